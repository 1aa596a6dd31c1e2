//! A whole session as one document of the interchange form.
//!
//! Loops come in the order of their creation, the current one last if nothing goes on from it. A
//! block is what is in force on its loop: from the current loop, where that goes on from the whole
//! loop, else from the loop itself. The form knows neither tails nor rollups, so a block takes in
//! what came after it, and a loop that a rollup covers has a block that shows nothing.

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;

use serde_json::value::RawValue;

use super::ExportError;
use crate::import::fields::Fields;
use crate::import::found::Scene;
use crate::import::runs::OWN_RUN;
use crate::import::state::CURRENT_LOOP;
use crate::import::{block_form, restore_history};
use crate::model::{
    AgentMessage, CompactedSection, CompactionBlock, Extra, Json, LoopStatus, Role, Time, TurnRange,
};
use crate::store::in_force::{ForceWalk, Link, View};
use crate::store::session::NO_TURN;
use crate::store::{
    BlockRow, LoopKey, LoopRow, Outcome, RunKey, SessionRow, StoreError, StoreRead, StoreResult,
    codec, decode,
};

/// Writes the session.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let loops = ordered(read.loops(session.key)?, session.current_loop);
    let mut document = Document {
        read,
        out,
        overlays: overlays(read, session, &loops)?,
        broken: broken(read, session)?,
    };
    document.session(session, &loops)
}

/// Puts the current loop last, so that it is the current one where the document comes in.
fn ordered(mut loops: Vec<LoopRow>, current: Option<LoopKey>) -> Vec<LoopRow> {
    let is_parent = loops.iter().any(|row| row.parent == current);
    let at = loops.iter().position(|row| Some(row.key) == current);
    if let Some(at) = at.filter(|_| !is_parent) {
        let last = loops.remove(at);
        loops.push(last);
    }
    loops
}

/// What a block is made from.
enum Overlay {
    /// A block on the loop.
    Block(Box<BlockRow>),
    /// A rollup on a later loop.
    RolledUp(RunKey, String),
}

fn overlays(
    read: &dyn StoreRead,
    session: &SessionRow,
    loops: &[LoopRow],
) -> StoreResult<HashMap<LoopKey, Overlay>> {
    let mut found = HashMap::new();
    let mut seen = Vec::new();
    if let Some(current) = session.current_loop {
        let scene = Scene::of(read, current)?;
        let rollup = scene.anchor.and_then(|at| scene.links[at].block.clone());
        for (at, link) in scene.links.iter().enumerate() {
            // What the current loop sees of a loop that it left midway is not all of it.
            if link.turns < link.row.totals.turns {
                continue;
            }
            seen.push(link.row.key);
            let above = scene.anchor.is_some_and(|anchor| at < anchor);
            let overlay = match (&link.block, &rollup) {
                (_, Some(rollup)) if above => {
                    Some(Overlay::RolledUp(rollup.run, rollup.created_at.clone()))
                }
                (Some(block), _) => Some(Overlay::Block(Box::new(block.clone()))),
                (None, _) => None,
            };
            found.extend(overlay.map(|overlay| (link.row.key, overlay)));
        }
    }
    for row in loops.iter().filter(|row| !seen.contains(&row.key)) {
        let block = own_block(read, row.key)?;
        found.extend(block.map(|block| (row.key, Overlay::Block(Box::new(block)))));
    }
    Ok(found)
}

/// Returns the block in force on a loop from itself.
fn own_block(read: &dyn StoreRead, key: LoopKey) -> StoreResult<Option<BlockRow>> {
    let mut block = None;
    ForceWalk::new(read, key, View::default()).run(&mut |link| {
        block = link.block;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(block)
}

/// Returns the blocks of the source that break the rules, as they stood there.
fn broken(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<HashMap<LoopKey, Json>> {
    let mut found = HashMap::new();
    read.runs(session.key, &mut |run| {
        if run.outcome == Outcome::Failed
            && let Some(record) = run.record.as_deref().map(Json::parse)
            && let Ok(record) = record
        {
            found.entry(run.point.in_loop).or_insert(record);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

struct Document<'a> {
    read: &'a dyn StoreRead,
    out: &'a mut dyn Write,
    overlays: HashMap<LoopKey, Overlay>,
    broken: HashMap<LoopKey, Json>,
}

/// A field whose value is not what the source noted.
enum Value<'a> {
    Json(Json),
    Loops(&'a [LoopRow]),
    Messages(&'a LoopRow),
    Absent,
}

type Changed<'a> = Vec<(&'static str, Value<'a>)>;

impl Document<'_> {
    fn session(&mut self, row: &SessionRow, loops: &[LoopRow]) -> Result<(), ExportError> {
        let fields = fields(&row.meta)?;
        let mut changed = vec![("loops", Value::Loops(loops))];
        if let Some(time) = newer(fields.get("last_active_at"), row.last_active_at.as_deref()) {
            changed.push(("last_active_at", Value::Json(time)));
        }
        if let Some(title) = row.title.as_ref().filter(|_| fields.get("title").is_none()) {
            changed.push(("title", Value::Json(Json::string(title))));
        }
        let is_last = loops.last().map(|last| last.key) == row.current_loop;
        let current = loops.iter().find(|l| Some(l.key) == row.current_loop);
        changed.push(match current.filter(|_| !is_last) {
            Some(current) => {
                let id = Json::string(current.loop_id.as_str());
                (CURRENT_LOOP, Value::Json(id))
            }
            None => (CURRENT_LOOP, Value::Absent),
        });
        self.object(&fields, changed)?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn one_loop(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        let meta = self.read.loop_meta(row.key)?;
        let fields = fields(&meta.meta)?;
        let mut changed = self.changed(row, &fields)?;
        let history = match &meta.history {
            Some(history) => self.history(row.key, history)?,
            None => Vec::new(),
        };
        changed.extend(history);
        if let Some(block) = self.block(row)? {
            changed.push(("compaction_block", Value::Json(block)));
        }
        self.object(&fields, changed)
    }

    /// Returns what became of a loop since its source described it.
    fn changed<'l>(
        &self,
        row: &'l LoopRow,
        fields: &Fields<'_>,
    ) -> Result<Changed<'l>, ExportError> {
        let mut changed = Vec::new();
        if row.totals.next_seq > 0 {
            changed.push(("messages", Value::Messages(row)));
        }
        let noted = fields.get("status").map(RawValue::get);
        let status = Json::string(row.status.as_str());
        if noted != Some(status.as_str())
            && (noted.is_some() || row.status != LoopStatus::default())
        {
            changed.push(("status", Value::Json(status)));
        }
        let times = [
            ("started_at", &row.started_at),
            ("ended_at", &row.ended_at),
        ];
        for (key, time) in times {
            let noted = fields.get(key).map_or("null", RawValue::get);
            let time = time.as_deref().map_or_else(Json::null, Json::string);
            if noted != time.as_str() {
                changed.push((key, Value::Json(time)));
            }
        }
        changed.extend(self.cut(row, fields)?);
        Ok(changed)
    }

    /// Returns the cut if it is not the parent's last turn.
    fn cut(
        &self,
        row: &LoopRow,
        fields: &Fields<'_>,
    ) -> Result<Option<(&'static str, Value<'static>)>, ExportError> {
        let Some(parent) = row.parent else {
            return Ok(None);
        };
        let last = self.read.loop_by_key(parent)?.totals.turns.checked_sub(1);
        let cut = row.parent_turn.map_or(NO_TURN, i64::from);
        let noted = fields.get("parent_turn");
        let is_noted =
            noted.is_some_and(|noted| noted.get().parse::<f64>().ok() == Some(cut as f64));
        if is_noted || noted.is_none() && row.parent_turn == last {
            return Ok(None);
        }
        let cut = json_of(&cut)?;
        Ok(Some(("parent_turn", Value::Json(cut))))
    }

    /// Returns the recorded turns and events, with their messages.
    fn history(&self, key: LoopKey, history: &str) -> Result<Changed<'static>, ExportError> {
        let read = self.read;
        let whole = restore_history(history, &mut |seq| {
            let message = message_of(read, key, seq)?;
            json_of(&message)
        })?;
        let fields = fields(&whole)?;
        let mut changed = Vec::new();
        for name in ["turns", "events"] {
            let list = fields.get(name).map(RawValue::get);
            if let Some(list) = list.filter(|list| *list != "[]") {
                changed.push((name, Value::Json(parsed(list)?)));
            }
        }
        Ok(changed)
    }

    fn block(&self, row: &LoopRow) -> Result<Option<Json>, ExportError> {
        let block = match self.overlays.get(&row.key) {
            Some(Overlay::Block(block)) => whole_block(self.read, row, block)?,
            Some(Overlay::RolledUp(run, at)) if row.totals.turns > 0 => {
                let run = self.read.run_by_key(*run)?.run_id;
                hidden(row.totals.turns, at, &run)
            }
            Some(Overlay::RolledUp(..)) => return Ok(None),
            None => return Ok(self.broken.get(&row.key).cloned()),
        };
        Ok(Some(json_of(&block)?))
    }

    /// Writes an object as its source described it, but for what changed.
    fn object(&mut self, fields: &Fields<'_>, changed: Changed<'_>) -> Result<(), ExportError> {
        let mut changed: Vec<_> = changed.into_iter().map(Some).collect();
        let mut separator = "{";
        for (key, value) in fields.iter() {
            let new = changed
                .iter_mut()
                .find(|new| new.as_ref().is_some_and(|(name, _)| *name == key))
                .and_then(Option::take);
            match new {
                Some((_, Value::Absent)) => continue,
                Some((_, new)) => self.field(separator, key, &new)?,
                None => {
                    self.key(separator, key)?;
                    self.out.write_all(value.get().as_bytes())?;
                }
            }
            separator = ",";
        }
        for (key, value) in changed.into_iter().flatten() {
            if !matches!(value, Value::Absent) {
                self.field(separator, key, &value)?;
                separator = ",";
            }
        }
        let end = if separator == "{" { "{}" } else { "}" };
        Ok(self.out.write_all(end.as_bytes())?)
    }

    fn key(&mut self, separator: &str, key: &str) -> Result<(), ExportError> {
        let key = Json::string(key);
        Ok(write!(self.out, "{separator}{}:", key.as_str())?)
    }

    fn field(&mut self, separator: &str, key: &str, value: &Value<'_>) -> Result<(), ExportError> {
        self.key(separator, key)?;
        match value {
            Value::Json(json) => self.out.write_all(json.as_str().as_bytes())?,
            Value::Loops(loops) => {
                self.out.write_all(b"[")?;
                for (at, row) in loops.iter().enumerate() {
                    self.out.write_all(if at > 0 { b",\n" } else { b"\n" })?;
                    self.one_loop(row)?;
                }
                self.out.write_all(b"]")?;
            }
            Value::Messages(row) => self.messages(row)?,
            Value::Absent => {}
        }
        Ok(())
    }

    fn messages(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        self.out.write_all(b"[")?;
        let (read, out) = (self.read, &mut *self.out);
        let mut failed = None;
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            let separator: &[u8] = if message.seq > 0 { b",\n" } else { b"\n" };
            let text = codec::to_json(&decode(read, message.body)?)?;
            let written = out
                .write_all(separator)
                .and_then(|()| out.write_all(text.as_bytes()));
            match written {
                Ok(()) => Ok(ControlFlow::Continue(())),
                Err(error) => {
                    failed = Some(error);
                    Ok(ControlFlow::Break(()))
                }
            }
        })?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(self.out.write_all(b"]")?),
        }
    }
}

fn json_of(value: &impl serde::Serialize) -> StoreResult<Json> {
    parsed(&codec::to_json(value)?)
}

fn parsed(text: &str) -> StoreResult<Json> {
    Json::parse(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

fn fields(text: &str) -> StoreResult<Fields<'_>> {
    let damaged = |reason| StoreError::Damaged(format!("what a source noted: {reason}"));
    Fields::parse(text).map_err(damaged)
}

/// Returns when something last happened, if that was after what the source noted.
fn newer(noted: Option<&RawValue>, known: Option<&str>) -> Option<Json> {
    let noted: Option<Time> = noted.and_then(|noted| serde_json::from_str(noted.get()).ok());
    let known = Time::from_text(known?);
    let is_newer = noted.and_then(|time| time.millis()) < known.millis();
    is_newer.then(|| Json::string(known.as_str()))
}

fn message_of(read: &dyn StoreRead, key: LoopKey, seq: u32) -> StoreResult<AgentMessage> {
    let mut found = None;
    read.messages(key, seq..seq.saturating_add(1), &mut |row| {
        found = Some(decode(read, row.body)?);
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| StoreError::Damaged(format!("message {seq} is missing")))
}

/// Returns a block that takes in what came after it.
fn whole_block(
    read: &dyn StoreRead,
    row: &LoopRow,
    stored: &BlockRow,
) -> StoreResult<CompactionBlock> {
    let turns = row.totals.turns;
    let link = Link {
        turns,
        complete: row.totals.complete,
        end_seq: row.totals.next_seq,
        row: row.clone(),
        block: None,
    };
    let mut block = block_form(read, &link, stored)?;
    let tail = tail(read, row, stored.through)?;
    if tail.is_empty() && stored.extra.is_some() {
        return Ok(block);
    }
    if !tail.is_empty() {
        take_in(&mut block, tail, stored.layout.end(), turns);
    }
    if block.extra.get(OWN_RUN).is_none() {
        let run = read.run_by_key(stored.run)?.run_id;
        block.extra.insert(OWN_RUN, Json::string(&run));
    }
    Ok(block)
}

/// Returns the messages that a block does not cover, from its last turn's end on.
fn tail(read: &dyn StoreRead, row: &LoopRow, through: u32) -> StoreResult<Vec<AgentMessage>> {
    let mut tail = Vec::new();
    read.messages(row.key, through..row.totals.next_seq, &mut |message| {
        if message.body.role != Role::Extension {
            tail.push(decode(read, message.body)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(tail)
}

fn take_in(block: &mut CompactionBlock, mut tail: Vec<AgentMessage>, from: u32, turns: u32) {
    let last = turns.saturating_sub(1);
    match (&mut block.keep_recent, &mut block.keep_compacted) {
        (Some(recent), _) => {
            recent.range.end = i64::from(last).into();
            recent.messages.append(&mut tail);
        }
        // Only late results of covered turns: there are no turns for a section of their own.
        (None, Some(compacted)) if from >= turns => compacted.messages.append(&mut tail),
        (None, _) => {
            block.keep_recent = Some(CompactedSection {
                range: TurnRange::new(from.min(last), last),
                messages: tail,
                extra: Extra::default(),
            });
        }
    }
}

/// Returns the block of a loop of which nothing is shown.
fn hidden(turns: u32, created_at: &str, run: &str) -> CompactionBlock {
    let mut block = CompactionBlock {
        keep_first: None,
        keep_compacted: Some(CompactedSection {
            range: TurnRange::new(0, turns - 1),
            messages: Vec::new(),
            extra: Extra::default(),
        }),
        keep_recent: None,
        created_at: Some(Time::from_text(created_at)),
        extra: Extra::default(),
    };
    block.extra.insert(OWN_RUN, Json::string(run));
    block
}
