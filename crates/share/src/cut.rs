//! A part of a session: some turns of one chain, as contexts show their messages.
//!
//! A cut has no compactions, since a summary may tell of turns that were cut away. Edits are applied: what an edit
//! removed is not in the cut, nor are the notes and the fields of a source that may repeat it.

use std::ops::ControlFlow;
use std::path::Path;

use loopstore::SqliteStore;
use loopstore::extend::active_blocks::{self, ChainLink, ChainView};
use loopstore::extend::{
    self as store, Database, LoopKey, LoopRow, MessageEdit, SessionRow, StoreRead, StoreResult,
    leaf_of, session_of,
};
use loopstore::model::{
    AgentMessage, ContinuationKind, Extra, LoopId, LoopRecord, Session, SessionId, Time, TurnId,
};
use loopstore_transcripts::{
    Identity, ImportError, Importer, SessionHead, Sink, Source, import_source,
};
use serde::Serialize;

use crate::ShareError;

/// The turns of a cut. The turns of the chain from the first to the last are shared, both inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareCut {
    /// The last loop of the chain; the current loop of the session if `None`.
    pub leaf: Option<LoopId>,
    /// The first turn: its loop, and its number in the loop; the beginning of the chain if `None`.
    pub from: Option<(LoopId, u32)>,
    /// The last turn, of the last loop of the chain; the end of the loop if `None`.
    pub to: Option<u32>,
}

/// The size of a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CutReport {
    /// The number of loops of the cut.
    pub loops: u64,
    /// The number of turns of the cut.
    pub turns: u64,
    /// The number of messages of the cut.
    pub messages: u64,
    /// The number of messages that edits changed or removed.
    pub edited: u64,
    /// The number of loops of the chain whose compaction was left out.
    pub compactions_left_out: u64,
    /// The number of notes that no context shows, which were left out: they may repeat what an edit removed.
    pub notes_left_out: u64,
}

/// Copies the turns of a cut into an empty database.
pub(crate) fn copy(
    from: &dyn Database,
    session: &SessionId,
    cut: &ShareCut,
    to: &SqliteStore,
) -> Result<CutReport, ShareError> {
    let taken = store::read(from, |read| Ok(TurnsTaken::of(read, session, cut)))??;
    let report = taken.report.clone();
    if report.messages == 0 {
        return Err(ShareError::Cut("the cut has no messages".into()));
    }
    let mut empty = std::io::Cursor::new(Vec::new());
    let mut source = Source {
        path: Path::new("the cut"),
        reader: &mut empty,
    };
    import_source(to, &taken, &mut source, None)?;
    Ok(report)
}

/// The content of a cut, which is written into a database as an import of a transcript.
struct TurnsTaken {
    head: SessionHead,
    loops: Vec<(LoopRecord, Vec<AgentMessage>)>,
    /// The loop that was taken last, and the number of its turns.
    last: Option<(LoopId, u32)>,
    report: CutReport,
}

/// A part of a loop: its turns from the first to the last, both inclusive.
struct LoopPart {
    link: ChainLink,
    row: LoopRow,
    first: u32,
    last: u32,
}

impl TurnsTaken {
    fn of(read: &dyn StoreRead, session: &SessionId, cut: &ShareCut) -> Result<Self, ShareError> {
        let owner = session_of(read, session)?;
        let leaf = leaf_of(read, &owner, cut.leaf.as_ref())?;
        let links = active_blocks::chain(read, leaf.key, ChainView::default())?;
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        let mut taken = Self {
            head: head_of(&owner),
            loops: Vec::new(),
            last: None,
            report: CutReport::default(),
        };
        let all = active_blocks::chain(read, leaf.key, raw)?;
        let parts = parts_of(read, all, cut, leaf.key)?;
        for part in &parts {
            let key = part.link.row.key;
            let active = links.iter().find(|link| link.row.key == key);
            let is_compacted = active.is_none_or(|link| link.block.is_some());
            taken.report.compactions_left_out += u64::from(is_compacted);
            taken.take(read, part)?;
        }
        Ok(taken)
    }

    /// Takes the messages of a part, which continues the part that was taken before.
    fn take(&mut self, read: &dyn StoreRead, part: &LoopPart) -> StoreResult<()> {
        let row = &part.row;
        let mut record = LoopRecord::new(row.loop_id.clone(), None);
        if let Some((parent, turns)) = self.last.take() {
            record.parent_loop_id = Some(parent);
            record.parent_turn = turns.checked_sub(1).map(|turn| i64::from(turn).into());
            record.continuation_kind = Some(ContinuationKind::Default);
        }
        record.status = row.status.clone();
        record.started_at = row.started_at.as_deref().map(Time::from_text);
        record.ended_at = row.ended_at.as_deref().map(Time::from_text);
        let (mut messages, mut turns) = (Vec::new(), 0);
        let mut last_turn = None;
        let edits = part.link.edits.as_deref();
        read.messages(row.key, 0..part.link.end_seq, &mut |found| {
            // Only messages before the first turn have none.
            let is_taken = match found.turn {
                Some(turn) => (part.first..=part.last).contains(&turn),
                None => part.first == 0,
            };
            if !is_taken {
                return Ok(ControlFlow::Continue(()));
            }
            let mut message = store::decode(read, found.body)?;
            match edits.and_then(|edits| edits.at(found.seq)) {
                Some(MessageEdit::Removed) => {
                    self.report.edited += 1;
                    return Ok(ControlFlow::Continue(()));
                }
                Some(MessageEdit::Parts(edited)) => {
                    self.report.edited += 1;
                    edited.apply(&mut message);
                    if let AgentMessage::Llm(llm) = &mut message {
                        // Fields of a source may repeat what an edit removed.
                        llm.extra = Extra::default();
                    }
                }
                None => {}
            }
            if matches!(&message, AgentMessage::Extension(note) if note.kind != "system") {
                self.report.notes_left_out += 1;
                return Ok(ControlFlow::Continue(()));
            }
            if let (AgentMessage::Llm(llm), Some(turn)) = (&mut message, found.turn) {
                llm.turn_id = Some(TurnId::new(row.loop_id.as_str(), turn));
                turns += u32::from(last_turn.replace(turn) != Some(turn));
            }
            messages.push(message);
            Ok(ControlFlow::Continue(()))
        })?;
        self.report.loops += 1;
        self.report.turns += u64::from(turns);
        self.report.messages += messages.len() as u64;
        self.last = Some((row.loop_id.clone(), turns));
        self.loops.push((record, messages));
        Ok(())
    }
}

fn head_of(owner: &SessionRow) -> SessionHead {
    let agent = owner.agent_id.clone().unwrap_or_default();
    let mut session = Session::new(owner.session_id.clone(), agent);
    session.agent_id.clone_from(&owner.agent_id);
    session.formation = None;
    session.created_at = owner.created_at.as_deref().map(Time::from_text);
    session.last_active_at = owner.last_active_at.as_deref().map(Time::from_text);
    SessionHead {
        identity: Identity::Own(owner.session_id.clone()),
        session,
        title: owner.title.clone(),
        project: owner.project.clone(),
    }
}

/// Returns the parts of the loops of a chain, root first.
fn parts_of(
    read: &dyn StoreRead,
    links: Vec<ChainLink>,
    cut: &ShareCut,
    leaf: LoopKey,
) -> Result<Vec<LoopPart>, ShareError> {
    let mut parts = Vec::new();
    let mut is_begun = cut.from.is_none();
    for link in links {
        let row = read.loop_by_key(link.row.key)?;
        let mut first = 0;
        if let Some((loop_id, turn)) = &cut.from
            && *loop_id == row.loop_id
        {
            check_turn(&row, *turn, link.turns)?;
            (is_begun, first) = (true, *turn);
        }
        let mut last = link.turns.checked_sub(1);
        if let Some(turn) = cut.to.filter(|_| row.key == leaf) {
            check_turn(&row, turn, link.turns)?;
            last = Some(turn);
        }
        let Some(last) = last.filter(|_| is_begun) else {
            continue;
        };
        if first > last {
            let why = format!(
                "turn {first} of loop `{}` is after turn {last}",
                row.loop_id
            );
            return Err(ShareError::Cut(why));
        }
        parts.push(LoopPart {
            link,
            row,
            first,
            last,
        });
    }
    match (&cut.from, is_begun) {
        (Some((loop_id, _)), false) => Err(ShareError::Cut(format!(
            "loop `{loop_id}` is not on the chain of the cut"
        ))),
        _ => Ok(parts),
    }
}

fn check_turn(row: &LoopRow, turn: u32, turns: u32) -> Result<(), ShareError> {
    match turn < turns {
        true => Ok(()),
        false => Err(ShareError::Cut(format!(
            "loop `{}` has no turn {turn} here; it has {turns}, counted from 0",
            row.loop_id
        ))),
    }
}

impl Importer for TurnsTaken {
    fn format(&self) -> &'static str {
        "loopstore"
    }

    fn detect(&self, _path: &Path, _head: &[u8]) -> bool {
        false
    }

    fn import(&self, _source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        sink.session(self.head.clone())?;
        for (record, messages) in &self.loops {
            let loop_id = record.loop_id.clone();
            sink.begin_loop(record.clone())?;
            for message in messages {
                let raw = serde_json::to_vec(message).unwrap_or_default();
                sink.message(&loop_id, message.clone(), &raw)?;
            }
        }
        Ok(())
    }
}
