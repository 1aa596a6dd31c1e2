//! The second pass: reads the entries again and tells the sink.

use super::TOOL;
use super::entries::{Entries, Entry};
use super::messages::{Said, read, summary};
use super::tree::{Told, Tree, Way};
use crate::import::blocks::{note, text, unreadable};
use crate::import::fields::Fields;
use crate::import::records::Records;
use crate::import::telling::{NewLoop, Spot, Telling};
use crate::import::{FoundEffect, ImportError, SessionHead, Sink, Source};
use crate::model::{ContinuationKind, Json, Time};

/// Tells of the whole session. Returns whether there was a conversation.
pub(super) fn tell(
    source: &mut Source<'_>,
    entries: &Entries,
    head: SessionHead,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut emitter = Emitter {
        records: Records::new(source.path, &mut *source.reader)?,
        entries,
        telling: Telling::new(head),
        tree: Tree::default(),
        places: Vec::new(),
    };
    for (at, entry) in entries.all.iter().enumerate() {
        emitter.entry(at, entry, sink)?;
    }
    emitter.telling.finish(sink)
}

struct Emitter<'a> {
    records: Records<'a>,
    entries: &'a Entries,
    telling: Telling,
    tree: Tree,
    /// Where each readable entry is among all.
    places: Vec<usize>,
}

/// What an entry says of itself.
struct Head {
    id: Option<String>,
    /// Its parent, `None` in version 1.
    parent: Option<Option<String>>,
    kind: Option<String>,
    line: u64,
}

impl Head {
    fn parent(&self) -> Option<Option<&str>> {
        self.parent.as_ref().map(Option::as_deref)
    }

    /// The name of a loop that the entry begins.
    fn name(&self) -> String {
        let id = self.id.clone();
        id.unwrap_or_else(|| format!("line-{}", self.line))
    }
}

impl Emitter<'_> {
    fn entry(&mut self, at: usize, entry: &Entry, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let raw = self.records.bytes(entry.place)?;
        let json = String::from_utf8_lossy(&raw).into_owned();
        let (Some(_), Ok(fields)) = (entry.number, Fields::parse(&json)) else {
            return self.telling.note(unreadable(&raw), &raw, sink);
        };
        self.places.push(at);
        self.telling
            .at(text(fields.get("timestamp")).map(Time::from_text));
        let parent = fields.get("parentId");
        let head = Head {
            id: text(fields.get("id")),
            parent: parent.map(|parent| text(Some(parent))),
            kind: text(fields.get("type")),
            line: entry.place.line,
        };
        let said = read(&json).unwrap_or_else(|reason| {
            sink.skip(Some(entry.place.line), reason);
            Said::Note
        });
        let spot = match said {
            Said::Note => {
                let message = note(head.kind.as_deref(), &json);
                self.telling.note(message, &raw, sink)?;
                None
            }
            Said::Compaction => {
                self.compaction(&head, &fields, &json, &raw, sink)?;
                None
            }
            said => {
                let is_prompt = matches!(said, Said::Prompt(_));
                let is_begun = self.branch(&head, is_prompt, sink)?;
                Some(self.say(&head, said, is_begun, &raw, sink)?)
            }
        };
        self.tree.add(head.id.clone(), head.parent(), spot);
        Ok(())
    }

    /// Tells of a message, and returns where it stands.
    fn say(
        &mut self,
        head: &Head,
        said: Said,
        is_begun: bool,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Spot, ImportError> {
        let telling = &mut self.telling;
        match said {
            Said::Prompt(message) if is_begun => telling.said(message, raw, true, sink)?,
            Said::Prompt(message) => telling.prompt(head.name(), message, raw, sink)?,
            Said::Added(message) => telling.said(message, raw, false, sink)?,
            Said::Answer(message, stopped) => {
                telling.answer(|| head.name(), message, raw, sink)?;
                if stopped {
                    telling.interrupted();
                }
            }
            Said::Result(message, call) => {
                telling.result(&call, || head.name(), message, raw, sink)?;
            }
            Said::Compaction | Said::Note => {}
        }
        // What comes before the first loop will stand at its beginning.
        Ok(self.telling.last_spot().unwrap_or((0, 0)))
    }

    /// Begins a loop if the next message does not hang where the transcript stands. Returns
    /// whether it did.
    fn branch(
        &mut self,
        head: &Head,
        is_prompt: bool,
        sink: &mut dyn Sink,
    ) -> Result<bool, ImportError> {
        let Way::From(after) = self.tree.way(head.parent()) else {
            return Ok(false);
        };
        if self.telling.here().is_none() {
            return Ok(false);
        }
        let after = after.map(|number| self.tree.told[number]);
        let kind = match after {
            Some(told)
                if is_prompt && self.tree.ends_turn(told) && self.telling.is_tail(told.spot) =>
            {
                ContinuationKind::Default
            }
            _ => ContinuationKind::Branch {
                tag: head.name().chars().take(8).collect(),
            },
        };
        let (parent, again) = match after {
            Some(told) if self.tree.ends_turn(told) => (Some(told.spot), Vec::new()),
            Some(told) => (self.before(told.spot), self.tree.turn_so_far(told)),
            None => (None, Vec::new()),
        };
        let id = head.name();
        self.telling.begin(NewLoop { id, parent, kind }, sink)?;
        for told in again {
            self.repeat(told, sink)?;
        }
        Ok(true)
    }

    /// Returns the turn before a turn on its path.
    fn before(&self, (loop_no, turn): Spot) -> Option<Spot> {
        match turn.checked_sub(1) {
            Some(turn) => Some((loop_no, turn)),
            None => self.telling.parent(loop_no),
        }
    }

    /// Tells of a message once more: a path left its turn in the middle, and a loop goes on only
    /// from a whole turn.
    fn repeat(&mut self, told: Told, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let place = self.entries.all[self.places[told.entry]].place;
        let raw = self.records.bytes(place)?;
        let json = String::from_utf8_lossy(&raw).into_owned();
        let Ok(said) = read(&json) else { return Ok(()) };
        let head = Head {
            id: None,
            parent: None,
            kind: None,
            line: place.line,
        };
        let spot = self.say(&head, said, true, &raw, sink)?;
        self.tree.tell(spot, told.entry);
        Ok(())
    }

    fn compaction(
        &mut self,
        head: &Head,
        entry: &Fields<'_>,
        json: &str,
        raw: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        if self.telling.here().is_none() {
            // Nothing is known of what it stands for.
            return self.telling.said(summary(entry), raw, false, sink);
        }
        let index = entry.get("firstKeptEntryIndex");
        let by_index = || serde_json::from_str::<usize>(index?.get()).ok();
        let by_id = text(entry.get("firstKeptEntryId"));
        let first = by_id.and_then(|id| self.tree.entry(&id)).or_else(by_index);
        let kept = first.and_then(|first| self.tree.first_kept(first, head.parent()));
        let message = summary(entry);
        let effect = match kept.and_then(|told| Some((told, self.telling.loop_id(told.spot.0)?))) {
            Some((told, loop_id)) if told.nth > 0 || told.spot == (0, 0) => {
                FoundEffect::SummaryWithin {
                    message: Box::new(message),
                    first_kept: (loop_id.clone(), told.spot.1),
                    dropped: told.nth,
                }
            }
            kept => FoundEffect::Summary {
                messages: vec![message],
                first_kept: kept.map(|(told, loop_id)| (loop_id.clone(), told.spot.1)),
            },
        };
        let record = Json::parse(json).unwrap_or_default();
        self.telling.compaction(TOOL, None, effect, record, sink)
    }
}
