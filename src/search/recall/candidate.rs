//! A hit that may be in the answer, and its excerpts.

use std::collections::{BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};

use super::RecallPart;
use crate::context::session_of;
use crate::model::{AgentMessage, Message, Role};
use crate::search::SearchHit;
use crate::search::excerpt::{ReadableText, WindowLimits, one_line, windows};
use crate::search::query::Query;
use crate::store::{self, LoopKey, MessageRow, StoreRead, StoreResult, Tick};
use crate::tokens::TokenCounter;

/// The most characters of a lead.
const MAX_LEAD: usize = 160;

/// The number of messages before a hit that are searched for its lead: a prompt or a call is near.
const LOOK_BACK: u32 = 64;

/// Places within this many bytes form a group.
const NEAR: usize = 240;

/// The bytes that are shown at first of a place and on either side of it.
const LEAST: usize = 48;

/// A message that was found.
pub(super) struct RecallCandidate {
    pub(super) loop_key: LoopKey,
    /// The message that leads to it, and a line of it.
    pub(super) lead: Option<(u32, String)>,
    tick: Tick,
    seq: u32,
    readable: ReadableText,
    /// The places of the searched words: first the group with the most of them.
    places: Vec<Range<usize>>,
    /// The number of places in that group.
    together: usize,
}

impl RecallCandidate {
    /// Reads a hit; `None` if it is gone.
    pub(super) fn load(
        read: &dyn StoreRead,
        hit: &SearchHit,
        words: &Query,
    ) -> StoreResult<Option<Self>> {
        let session = session_of(read, &hit.session_id)?;
        let Some(row) = read.loop_by_id(session.key, &hit.loop_id)? else {
            return Ok(None);
        };
        let mut found = None;
        each(
            read,
            row.key,
            hit.seq..hit.seq.saturating_add(1),
            &mut |row| {
                found = Some((row.tick, message_of(row)?));
                Ok(())
            },
        )?;
        let Some((tick, message)) = found else {
            return Ok(None);
        };
        let readable = ReadableText::new(&message);
        // A hit by words of the title may have none in its text; its beginning is shown then.
        let places = readable.places(words).unwrap_or_default();
        let (places, together) = best_first(places);
        Ok(Some(Self {
            loop_key: row.key,
            lead: lead(read, row.key, hit.seq, &message)?,
            tick,
            seq: hit.seq,
            readable,
            places,
            together,
        }))
    }

    /// Returns the sort key of the message: the order of appends.
    pub(super) fn order(&self) -> (Tick, LoopKey, u32) {
        (self.tick, self.loop_key, self.seq)
    }

    /// Returns the part of the answer without its lead.
    pub(super) fn part(
        &self,
        hit: &SearchHit,
        level: u32,
        counter: &dyn TokenCounter,
    ) -> RecallPart {
        let (text, cut) = self.excerpt(level);
        let mut part = RecallPart {
            session_id: hit.session_id.clone(),
            loop_id: hit.loop_id.clone(),
            turn: hit.turn,
            seqs: vec![hit.seq],
            role: hit.role,
            created_at: hit.created_at.clone(),
            lead: None,
            text,
            tokens: 0,
            score: hit.score,
            hidden: hit.hidden,
            cut,
            heading: self.readable.heading.clone(),
        };
        part.tokens = counter.text_tokens(&part.render());
        part
    }

    /// Returns the excerpt of a level, and true if it is cut. Each level shows about twice as much as the
    /// one before.
    pub(super) fn excerpt(&self, level: u32) -> (String, bool) {
        let text = &self.readable.text;
        let double = |least: usize| least.checked_shl(level).unwrap_or(usize::MAX);
        let limits = WindowLimits {
            lines: double(1).saturating_sub(1).min(text.len()),
            bytes: double(LEAST).min(text.len()),
        };
        let count = match level {
            0 => 1,
            _ => self.together.saturating_add(double(1) - 2),
        };
        let places = self.places.iter().take(count).cloned();
        let shown = windows(
            text,
            places.map(|place| clipped(text, place, limits.bytes)),
            limits,
        );
        let is_whole = shown == [self.readable.whole()];
        (draw(text, &shown), !is_whole)
    }
}

/// Returns the beginning of a place that is longer than what is shown.
fn clipped(text: &str, place: Range<usize>, most: usize) -> Range<usize> {
    let end = place
        .end
        .min(text.floor_char_boundary(place.start + 2 * most));
    place.start..end.max(place.start)
}

/// Writes parts of a text with `…` where something is left out.
fn draw(text: &str, parts: &[Range<usize>]) -> String {
    let mut drawn = String::new();
    for part in parts {
        if part.start > 0 {
            let is_line = text[..part.start].ends_with('\n');
            drawn.push_str(match (drawn.is_empty(), is_line) {
                (true, false) => "…",
                (true, true) => "…\n",
                (false, _) => "\n",
            });
        }
        let shown = &text[part.clone()];
        drawn.push_str(shown);
        if part.end < text.len() {
            let is_line = text[part.end..].starts_with('\n');
            drawn.push_str(if is_line && !shown.ends_with('\n') {
                "\n…"
            } else {
                "…"
            });
        }
    }
    drawn
}

/// Puts the places first that are near each other and have the most different phrases; returns their
/// number. The first places of other phrases are next. An empty list becomes the beginning of the text.
fn best_first(places: Vec<(Range<usize>, usize)>) -> (Vec<Range<usize>>, usize) {
    let (mut best, mut kinds) = (0..0, 0);
    for (at, (first, _)) in places.iter().enumerate() {
        let near = places[at..].iter();
        let near = near.take_while(|(place, _)| place.end <= first.start.saturating_add(NEAR));
        let mut phrases: Vec<usize> = near.map(|(_, phrase)| *phrase).collect();
        let end = at + phrases.len().max(1);
        phrases.sort_unstable();
        phrases.dedup();
        if best.is_empty() || phrases.len() > kinds {
            (best, kinds) = (at..end, phrases.len());
        }
    }
    if best.is_empty() {
        return (std::iter::once(0..0).collect(), 1);
    }
    let together = best.len();
    let mut order: Vec<usize> = best.clone().collect();
    let rest = || (0..places.len()).filter(|at| !best.contains(at));
    let mut known: HashSet<usize> = places[best.clone()]
        .iter()
        .map(|(_, phrase)| *phrase)
        .collect();
    let firsts: BTreeSet<usize> = rest().filter(|at| known.insert(places[*at].1)).collect();
    order.extend(&firsts);
    order.extend(rest().filter(|at| !firsts.contains(at)));
    let ordered = order.into_iter().map(|at| places[at].0.clone());
    (ordered.collect(), together)
}

/// Returns one line of the message that leads to this one: the prompt that an answer answers, or the call that a result
/// is of.
fn lead(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seq: u32,
    message: &AgentMessage,
) -> StoreResult<Option<(u32, String)>> {
    let wanted = match message.role() {
        Role::Assistant => Role::User,
        Role::ToolResult => Role::Assistant,
        Role::User | Role::Extension => return Ok(None),
    };
    let mut end = seq;
    let mut size = 4;
    while end > seq.saturating_sub(LOOK_BACK) {
        let start = end.saturating_sub(size);
        let mut found = None;
        each(read, loop_key, start..end, &mut |row| {
            if row.body.role == wanted {
                let at = row.seq;
                let line = lead_line(&message_of(row)?, message);
                found = line.map(|line| (at, line)).or(found.take());
            }
            Ok(())
        })?;
        if found.is_some() {
            return Ok(found);
        }
        (end, size) = (start, size * 2);
    }
    Ok(None)
}

fn lead_line(before: &AgentMessage, message: &AgentMessage) -> Option<String> {
    let (label, line) = match (before.message()?, message.message()?) {
        (answer @ Message::Assistant(_), Message::ToolResult(result)) => {
            let mut calls = answer.tool_calls();
            let call = calls.find(|call| call.id == result.tool_call_id)?;
            (
                "call",
                format!("{} {}", call.name, call.arguments.plain_text()),
            )
        }
        (user @ Message::User(_), _) => ("prompt", user.texts().collect::<Vec<_>>().join(" ")),
        _ => return None,
    };
    let line = line.trim();
    if line.is_empty() {
        return None;
    }
    let is_cut = line.chars().nth(MAX_LEAD).is_some();
    let line = one_line(line, MAX_LEAD);
    Some(format!("{label}: {line}{}", if is_cut { "…" } else { "" }))
}

fn each(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seqs: Range<u32>,
    take: &mut dyn FnMut(MessageRow) -> StoreResult<()>,
) -> StoreResult<()> {
    read.messages(loop_key, seqs, &mut |row| {
        take(row)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Reads a message without the bytes of its images.
fn message_of(row: MessageRow) -> StoreResult<AgentMessage> {
    store::codec::decode(row.body, &mut |_| Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_together_comes_first() {
        let at = |start: usize, phrase| (start..start + 3, phrase);
        let places = vec![at(0, 0), at(900, 0), at(905, 1), at(2000, 2), at(2500, 1)];
        let (ordered, together) = best_first(places);
        let starts: Vec<usize> = ordered.iter().map(|place| place.start).collect();
        assert_eq!((starts, together), (vec![900, 905, 2000, 0, 2500], 2));
        assert_eq!(best_first(Vec::new()).0.len(), 1);
    }

    #[test]
    fn dots_stand_where_something_is_left_out() {
        let text = "one\ntwo\nthree four five\nsix";
        let whole = 0..text.len();
        assert_eq!(draw(text, std::slice::from_ref(&whole)), text);
        assert_eq!(draw(text, &[4..7, 14..18]), "…\ntwo\n…\nfour…");
        assert_eq!(draw(text, std::slice::from_ref(&(0..8))), "one\ntwo\n…");
    }
}
