//! Aligns the messages of a loop of a transcript with those of a stored loop.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, StoreRead, StoreResult, codec, decode};
use loopstore::model::AgentMessage;

use super::incoming::{Incoming, IncomingEntry};
use super::likeness::{Likeness, likeness};
use super::stored::{StoredEntry, StoredLoop};
use crate::matching::{Digests, RecordDigest};
use crate::secrets::Secrets;

/// The result of the comparison for a message of the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The stored message with this sequence is the same.
    Known(u32),
    /// A later state of the stored message. It may replace the stored one if the transcript has a counterpart for each
    /// later stored message.
    Later { seq: u32, may_replace: bool },
    /// The same message as the stored one, with another text: both are kept.
    Revised(u32),
    /// The message is not stored.
    New,
}

impl Fate {
    /// Returns the sequence of the stored message.
    pub(crate) fn seq(self) -> Option<u32> {
        match self {
            Self::Known(seq) | Self::Later { seq, .. } | Self::Revised(seq) => Some(seq),
            Self::New => None,
        }
    }
}

/// The messages that a loop of a transcript and a stored loop have in common.
pub(super) struct Alignment {
    /// The fates of the messages that belong to the stored loop: the common beginning, and the messages after its end.
    pub(super) fates: Vec<Fate>,
    /// The number of common messages, and the number of those that a person or an agent wrote.
    pub(super) common: usize,
    pub(super) voices: usize,
    /// The first message after the end of the stored loop.
    pub(super) grows_at: Option<usize>,
    /// True if the stored loop has messages after the common ones.
    pub(super) is_left_behind: bool,
    /// True if the first messages of both were made from the same record.
    pub(super) begins_equal: bool,
}

/// Compares messages of a transcript with stored ones.
pub(super) struct Comparison<'a> {
    pub(super) read: &'a dyn StoreRead,
    pub(super) digests: &'a Digests,
    /// True if loopstore itself may have written the transcript. It then also contains messages that were recorded
    /// here, which are recognised by their content.
    pub(super) own_form: bool,
    /// Redacts messages before they are compared with a redacted session.
    pub(super) secrets: Option<RefCell<&'a mut Secrets>>,
}

/// A message and its counterpart.
struct MessagePair {
    ours: usize,
    theirs: usize,
    is_equal: bool,
    /// `None` if the message has the position of the other and another text.
    likeness: Option<Likeness>,
}

impl Comparison<'_> {
    /// Compares the messages of a loop from `from` on with a stored loop; `None` if their beginnings differ.
    ///
    /// Notes are not part of the conversation and are compared separately.
    pub(super) fn align(
        &self,
        incoming: &Incoming,
        (number, from): (usize, usize),
        stored: &StoredLoop,
    ) -> StoreResult<Option<Alignment>> {
        let entries = &incoming.loops[number].entries[from..];
        let ours = positions(entries, IncomingEntry::is_note);
        let theirs = positions(&stored.entries, StoredEntry::is_note);
        let of = LoopPair {
            comparison: self,
            incoming,
            entries,
            stored,
            is_last_loop: number + 1 == incoming.loops.len(),
        };
        let pairs = of.pairs(&ours, &theirs)?;
        if pairs.is_empty() && !ours.is_empty() && !theirs.is_empty() {
            return Ok(None);
        }
        of.alignment(&ours, &theirs, &pairs).map(Some)
    }

    fn likeness(
        &self,
        stored: LoopKey,
        seq: u32,
        incoming: &AgentMessage,
    ) -> StoreResult<Option<Likeness>> {
        let old = message_at(self.read, stored, seq)?;
        let new = match &self.secrets {
            Some(secrets) => secrets.borrow_mut().redacted(incoming)?,
            None => incoming.clone(),
        };
        Ok(old.and_then(|old| likeness(&old, &new)))
    }

    /// True if the stored message, as loopstore itself writes it, has this digest.
    fn has_stored_digest(
        &self,
        stored: LoopKey,
        seq: u32,
        digest: &RecordDigest,
    ) -> StoreResult<bool> {
        if !self.own_form {
            return Ok(false);
        }
        let Some(message) = message_at(self.read, stored, seq)? else {
            return Ok(false);
        };
        let json = codec::to_json(&message)?;
        Ok(self.digests.of(json.as_bytes()) == *digest)
    }
}

/// Returns a stored message.
pub(crate) fn message_at(
    read: &dyn StoreRead,
    key: LoopKey,
    seq: u32,
) -> StoreResult<Option<AgentMessage>> {
    let mut found = None;
    read.messages(key, seq..seq.saturating_add(1), &mut |row| {
        found = Some(decode(read, row.body)?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

fn positions<T>(entries: &[T], is_note: impl Fn(&T) -> bool) -> Vec<usize> {
    let numbered = entries.iter().enumerate();
    let messages = numbered.filter(|(_, entry)| !is_note(entry));
    messages.map(|(at, _)| at).collect()
}

/// A loop of a transcript, from a message on, and a stored loop.
struct LoopPair<'a, 'c> {
    comparison: &'a Comparison<'c>,
    incoming: &'a Incoming,
    entries: &'a [IncomingEntry],
    stored: &'a StoredLoop,
    /// True if the transcript ends in this loop.
    is_last_loop: bool,
}

impl LoopPair<'_, '_> {
    /// Pairs the messages of the common beginning. One message in it may have another text, if every later message has
    /// its counterpart: the record was corrected.
    fn pairs(&self, ours: &[usize], theirs: &[usize]) -> StoreResult<Vec<MessagePair>> {
        let (mut pairs, mut may_differ) = (Vec::new(), true);
        let (mut ours, mut theirs) = (ours, theirs);
        while let (Some((our, our_rest)), Some((their, their_rest))) =
            (ours.split_first(), theirs.split_first())
        {
            let found = self.pair(*our, *their, pairs.is_empty())?;
            let is_certain = found
                .as_ref()
                .is_some_and(|pair| self.is_certain(pair, our_rest));
            if !is_certain {
                if found.is_none() && self.stored.entries[*their].digest.is_none() {
                    // The stored message was recorded here and is not in the transcript, which may be older.
                    theirs = their_rest;
                    continue;
                }
                let may_be = found.is_some() || may_differ;
                if !may_be || !self.resumes(our_rest, their_rest, pairs.is_empty())? {
                    break;
                }
            }
            may_differ &= found.is_some();
            pairs.push(found.unwrap_or(MessagePair {
                ours: *our,
                theirs: *their,
                is_equal: false,
                likeness: None,
            }));
            (ours, theirs) = (our_rest, their_rest);
        }
        Ok(pairs)
    }

    /// True if a message is another state of its counterpart, whatever follows: it can replace or extend the stored
    /// message, or the transcript ends with it.
    fn is_certain(&self, pair: &MessagePair, rest: &[usize]) -> bool {
        let old = &self.stored.entries[pair.theirs];
        let totals = &self.stored.row.totals;
        let is_open = old.seq >= totals.sealed_seq;
        match pair.likeness {
            Some(Likeness::Same | Likeness::Alike | Likeness::Masked) => true,
            Some(Likeness::Longer) => is_open || old.turn == totals.turns.checked_sub(1),
            Some(Likeness::Grown) => is_open,
            Some(Likeness::Older) => rest.is_empty() && self.is_last_loop,
            None => false,
        }
    }

    fn pair(&self, ours: usize, theirs: usize, is_first: bool) -> StoreResult<Option<MessagePair>> {
        let (new, old) = (&self.entries[ours], &self.stored.entries[theirs]);
        // The text alone may occur in any conversation.
        let is_other_time = old
            .created_at
            .zip(new.created_at)
            .is_some_and(|(old, new)| old != new);
        if old.role != new.role || is_first && is_other_time {
            return Ok(None);
        }
        let key = self.stored.row.key;
        let pair = |is_equal, likeness| MessagePair {
            ours,
            theirs,
            is_equal,
            likeness,
        };
        if old.digest == Some(new.digest)
            || self
                .comparison
                .has_stored_digest(key, old.seq, &new.digest)?
        {
            return Ok(Some(pair(true, Some(Likeness::Same))));
        }
        if old.digest.is_none() {
            return Ok(None);
        }
        let found = match &new.message {
            Some(message) => self.comparison.likeness(key, old.seq, message)?,
            None => match self.incoming.body_of(new.digest, new.created_at) {
                Some((key_of, seq)) => match message_at(self.comparison.read, key_of, seq)? {
                    Some(message) => self.comparison.likeness(key, old.seq, &message)?,
                    None => None,
                },
                None => None,
            },
        };
        Ok(found.map(|likeness| pair(false, Some(likeness))))
    }

    /// True if every message after one that differs has its counterpart.
    fn resumes(&self, ours: &[usize], theirs: &[usize], is_first: bool) -> StoreResult<bool> {
        let mut equal = 0;
        for (our, their) in ours.iter().zip(theirs) {
            match self.pair(*our, *their, false)? {
                Some(pair) => equal += usize::from(pair.is_equal),
                None => return Ok(false),
            }
        }
        // In a loop that begins with another text, more than a common text such as `Done.` must be equal.
        Ok(equal > usize::from(is_first))
    }

    fn alignment(
        &self,
        ours: &[usize],
        theirs: &[usize],
        pairs: &[MessagePair],
    ) -> StoreResult<Alignment> {
        let stored = &self.stored.entries;
        let rest = match pairs.last() {
            Some(last) => theirs.iter().filter(|at| **at > last.theirs).count(),
            None => theirs.len(),
        };
        let is_over = pairs.len() == ours.len();
        let grows = !is_over && rest == 0;
        let mut notes = Notes::new(self)?;
        let mut fates: Vec<Fate> = self.entries.iter().map(|_| Fate::New).collect();
        for pair in pairs {
            let seq = stored[pair.theirs].seq;
            fates[pair.ours] = match pair.likeness {
                Some(Likeness::Same | Likeness::Older) => Fate::Known(seq),
                Some(Likeness::Masked) => Fate::Later {
                    seq,
                    may_replace: false,
                },
                Some(Likeness::Alike | Likeness::Longer | Likeness::Grown) => Fate::Later {
                    seq,
                    may_replace: rest == 0,
                },
                None => Fate::Revised(seq),
            };
        }
        let end = match pairs.last() {
            _ if is_over || grows => self.entries.len(),
            Some(last) => notes.known_after(last.ours + 1),
            None => 0,
        };
        fates.truncate(end);
        notes.judge(&mut fates);
        let matched: HashSet<u32> = fates.iter().filter_map(|fate| fate.seq()).collect();
        let last = matched.iter().max().copied();
        Ok(Alignment {
            common: pairs.len(),
            voices: pairs
                .iter()
                .filter(|pair| stored[pair.theirs].is_voice)
                .count(),
            grows_at: grows.then(|| ours.get(pairs.len()).copied()).flatten(),
            is_left_behind: stored
                .iter()
                .any(|entry| last.is_none_or(|last| entry.seq > last)),
            begins_equal: pairs.first().is_some_and(|pair| pair.is_equal),
            fates,
        })
    }
}

/// The notes of both loops. A note is recognised by its record, anywhere in the loop; a note that changed at its
/// position is the same note.
struct Notes<'n, 'a, 'c> {
    of: &'n LoopPair<'a, 'c>,
    known: HashMap<RecordDigest, Vec<u32>>,
    /// The next note between two messages, by the numbers of messages before it.
    slots: HashMap<(usize, usize), u32>,
}

impl<'n, 'a, 'c> Notes<'n, 'a, 'c> {
    fn new(of: &'n LoopPair<'a, 'c>) -> StoreResult<Self> {
        let (mut known, mut slots) = (HashMap::<_, Vec<u32>>::new(), HashMap::new());
        let (mut messages, mut nth) = (0, 0);
        for entry in &of.stored.entries {
            if !entry.is_note() {
                (messages, nth) = (messages + 1, 0);
                continue;
            }
            if of.comparison.own_form
                && let Some(message) = message_at(of.comparison.read, of.stored.row.key, entry.seq)?
            {
                let digest = of
                    .comparison
                    .digests
                    .of(codec::to_json(&message)?.as_bytes());
                if Some(digest) != entry.digest {
                    known.entry(digest).or_default().push(entry.seq);
                }
            }
            if let Some(digest) = entry.digest {
                known.entry(digest).or_default().push(entry.seq);
                slots.insert((messages, nth), entry.seq);
            }
            nth += 1;
        }
        Ok(Self { of, known, slots })
    }

    /// Returns the index after the known notes that begin at `at`.
    fn known_after(&self, at: usize) -> usize {
        let rest = self.of.entries[at..].iter();
        let known =
            rest.take_while(|entry| entry.is_note() && self.known.contains_key(&entry.digest));
        at + known.count()
    }

    fn judge(&mut self, fates: &mut [Fate]) {
        let (mut messages, mut nth) = (0, 0);
        let mut used = HashSet::new();
        let mut open = Vec::new();
        for (at, fate) in fates.iter_mut().enumerate() {
            let entry = &self.of.entries[at];
            if !entry.is_note() {
                (messages, nth) = (messages + 1, 0);
                continue;
            }
            let seqs = self.known.get(&entry.digest).into_iter().flatten();
            match seqs.copied().find(|seq| !used.contains(seq)) {
                Some(seq) => {
                    used.insert(seq);
                    *fate = Fate::Known(seq);
                }
                None => open.push((at, (messages, nth))),
            }
            nth += 1;
        }
        for (at, slot) in open {
            if let Some(seq) = self.slots.get(&slot)
                && used.insert(*seq)
            {
                fates[at] = Fate::Later {
                    seq: *seq,
                    may_replace: false,
                };
            }
        }
    }
}
