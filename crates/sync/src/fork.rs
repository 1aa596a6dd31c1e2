//! Splits a loop that two databases continued differently: what one of them added becomes a branch.
//!
//! The branch begins with the turn that differs, and continues the loop after the turn before. Everything that was done
//! at or after the first different message goes with it: later messages and turns, runs, undos, pins and manifests,
//! and the loops that continue a later turn. A block over both parts becomes two, one on each, which show the same
//! messages in the same order. If the first turns differ, the whole loop becomes the branch.

use std::collections::HashMap;

use loopstore::extend::StoreError;
use loopstore::internal::{history_fingerprint, restore_history, shorten_history};
use loopstore::model::{AgentMessage, ContinuationKind, Json, LoopId, LoopRecord};
use loopstore_transcripts::internal::form::{JsonTurnRef, LoopLine, NoteLine};
use serde_json::value::RawValue;

use crate::document::{Attachment, LoopDocument, SessionDocument, StoredMessageLine};
use crate::fork_overlay::{split_edits, split_manifest, split_run_blocks};
use crate::merge::chain_again;

/// The mark between the id of a loop and the end of the id of its branch.
const MARK: char = '~';
/// The digits at the end of the id of a branch.
const DIGITS: usize = 12;
/// The longest id of a loop that keeps its whole id in those of its branches.
const MAX_ROOT_BYTES: usize = 200;

/// Returns the id of the branch of a loop that begins with the content of this digest. It does not depend on which
/// databases were brought together first, since it is made from the id that the loop had before any branch.
pub(crate) fn branch_id(loop_id: &LoopId, content: &[u8; 32]) -> Option<LoopId> {
    let digits = &hex::encode(content)[..DIGITS];
    let id = loop_id.as_str();
    let root = match id.rsplit_once(MARK) {
        Some((root, end)) if end.len() == DIGITS && end.bytes().all(|b| b.is_ascii_hexdigit()) => {
            root
        }
        _ => id,
    };
    let mut kept = root.len().min(MAX_ROOT_BYTES);
    while !root.is_char_boundary(kept) {
        kept -= 1;
    }
    LoopId::new(format!("{}{MARK}{digits}", &root[..kept])).ok()
}

/// The place at which a loop is split.
pub(crate) struct LoopFork<'a> {
    pub(crate) loop_id: &'a LoopId,
    pub(crate) branch: &'a LoopId,
    /// The first turn of the branch, and its first message.
    pub(crate) turn: u32,
    pub(crate) seq: u32,
    /// The first message that differs, and its tick: what was done earlier stays with the loop.
    different: u32,
    tick: i64,
    /// The messages of the loop before the split.
    pub(crate) messages: Vec<StoredMessageLine>,
    /// The tokens, bytes and messages of the loop before the first turn of the branch.
    pub(crate) before: (u64, u64, u64),
}

impl LoopFork<'_> {
    /// True if the whole loop becomes the branch.
    pub(crate) fn is_whole(&self) -> bool {
        self.turn == 0
    }

    /// Moves a point of a session: a loop, and the number of its complete turns when something was done at `tick`.
    fn move_point(&self, loop_id: &mut LoopId, turns: &mut u32, tick: i64) {
        if loop_id == self.loop_id && self.is_after(tick) {
            loop_id.clone_from(self.branch);
            *turns = turns.saturating_sub(self.turn);
        }
    }

    /// True if something that was done at this tick belongs to the branch.
    pub(crate) fn is_after(&self, tick: i64) -> bool {
        self.is_whole() || tick >= self.tick
    }

    /// Moves the place of a message.
    pub(crate) fn move_seq(&self, loop_id: &mut LoopId, seq: &mut u32) {
        if loop_id == self.loop_id && *seq >= self.seq {
            loop_id.clone_from(self.branch);
            *seq -= self.seq;
        }
    }

    fn move_turn(&self, place: &mut JsonTurnRef) {
        if place.loop_id == *self.loop_id && place.turn >= self.turn {
            place.loop_id.clone_from(self.branch);
            place.turn -= self.turn;
        }
    }

    /// Returns the two parts of a range of turns.
    pub(crate) fn parts_of_turns(&self, range: Option<(u32, u32)>) -> RangeParts {
        parts(range, self.turn)
    }

    /// Returns the two parts of a range of messages.
    pub(crate) fn parts_of_seqs(&self, range: Option<(u32, u32)>) -> RangeParts {
        parts(range, self.seq)
    }
}

/// The part of a range that stays, and the part in the branch, as numbered there.
pub(crate) type RangeParts = (Option<(u32, u32)>, Option<(u32, u32)>);

fn parts(range: Option<(u32, u32)>, at: u32) -> RangeParts {
    let Some((first, last)) = range else {
        return (None, None);
    };
    let stays = (first < at).then(|| (first, last.min(at.saturating_sub(1))));
    let moved = (last >= at).then(|| (first.max(at) - at, last - at));
    (stays, moved)
}

/// Moves the turns from that of message `seq` on, and everything that was done from then on, to a branch.
///
/// # Errors
/// If that is not possible; with the reason.
pub(crate) fn split(
    document: &mut SessionDocument,
    loop_id: &LoopId,
    seq: u32,
    branch: &LoopId,
) -> Result<(), String> {
    let found = document
        .loops
        .iter()
        .position(|one| one.line.loop_id == *loop_id);
    let at = found.ok_or_else(|| format!("loop `{loop_id}` is missing"))?;
    let fork = fork_of(&document.loops[at], seq, (loop_id, branch));
    match fork.is_whole() {
        true => rename(&mut document.loops[at], branch)?,
        false => {
            let branch = split_loop(&mut document.loops[at], &fork)?;
            document.loops.insert(at + 1, branch);
        }
    }
    for one in &mut document.loops {
        move_loop(one, &fork)?;
    }
    if let Some(current) = &mut document.line.current_loop
        && current == loop_id
    {
        current.clone_from(branch);
    }
    for run in &mut document.runs {
        let line = &mut run.line;
        fork.move_point(&mut line.loop_id, &mut line.turns, line.tick);
        if fork.is_after(line.tick) {
            split_run_blocks(run, &fork, &document.line.counter)?;
            split_edits(run, &fork)?;
        }
        for flip in &mut run.flips {
            fork.move_point(&mut flip.loop_id, &mut flip.turns, flip.tick);
        }
    }
    for pin in &mut document.pins {
        if fork.is_after(pin.tick) {
            fork.move_seq(&mut pin.loop_id, &mut pin.seq);
        }
        fork.move_point(&mut pin.leaf, &mut pin.turns, pin.tick);
    }
    for manifest in &mut document.manifests {
        let line = &mut manifest.line;
        if fork.is_after(line.tick) {
            fork.move_point(&mut line.loop_id, &mut 0, line.tick);
            split_manifest(manifest, &fork);
        }
    }
    document
        .attachments
        .iter_mut()
        .for_each(|row| move_key(row, &fork));
    Ok(())
}

fn fork_of<'a>(
    one: &LoopDocument,
    seq: u32,
    (loop_id, branch): (&'a LoopId, &'a LoopId),
) -> LoopFork<'a> {
    let rest = one.messages.get(seq as usize..).unwrap_or_default();
    let different = rest.first();
    let mut turn = different.and_then(|message| message.turn).unwrap_or(0);
    let mut first = one
        .turns
        .get(turn as usize)
        .map_or(0, |turn| turn.first_seq);
    // Extensions after a turn do not change it.
    let of_turn = rest.iter().take_while(|message| message.turn == Some(turn));
    if different.is_some_and(|message| message.turn.is_some())
        && first < seq
        && of_turn.into_iter().all(is_extension)
    {
        (turn, first) = (turn + 1, seq);
    }
    let last = turn
        .checked_sub(1)
        .and_then(|last| one.turns.get(last as usize));
    LoopFork {
        loop_id,
        branch,
        turn,
        seq: if turn == 0 { 0 } else { first },
        different: seq,
        tick: different.map_or(i64::MIN, |message| message.tick),
        messages: one.messages.clone(),
        before: last.map_or((0, 0, 0), |last| (last.tokens, last.bytes, last.messages)),
    }
}

/// True if a message is an extension, which belongs to no turn of its own.
fn is_extension(line: &StoredMessageLine) -> bool {
    let message = line.message.as_ref();
    let message = message.and_then(|json| serde_json::from_str(json.get()).ok());
    matches!(message, Some(AgentMessage::Extension(_)))
}

/// Gives a loop another id.
fn rename(one: &mut LoopDocument, id: &LoopId) -> Result<(), String> {
    edit_meta(&mut one.line, |record| record.loop_id = id.clone())?;
    rename_rows(one, id);
    Ok(())
}

fn rename_rows(one: &mut LoopDocument, id: &LoopId) {
    one.line.loop_id.clone_from(id);
    one.turns
        .iter_mut()
        .for_each(|row| row.loop_id.clone_from(id));
    one.messages
        .iter_mut()
        .for_each(|row| row.loop_id.clone_from(id));
    one.notes
        .iter_mut()
        .for_each(|row| row.loop_id.clone_from(id));
    one.calls
        .iter_mut()
        .for_each(|row| row.loop_id.clone_from(id));
}

/// Changes the document of a loop in the interchange form.
fn edit_meta(line: &mut LoopLine, edit: impl FnOnce(&mut LoopRecord)) -> Result<(), String> {
    let mut record: LoopRecord = read_json(line.meta.get())?;
    edit(&mut record);
    line.meta = write_json(&record)?;
    Ok(())
}

fn read_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn write_json(value: &impl serde::Serialize) -> Result<Box<RawValue>, String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    RawValue::from_string(text).map_err(|error| error.to_string())
}

/// Returns the turns of a loop from that of the fork on as a loop of their own, and removes them from the loop.
fn split_loop(one: &mut LoopDocument, fork: &LoopFork<'_>) -> Result<LoopDocument, String> {
    let mut branch = LoopDocument {
        line: one.line.clone(),
        turns: one.turns.split_off(fork.turn as usize),
        messages: one.messages.split_off(fork.seq as usize),
        notes: std::mem::take(&mut one.notes),
        calls: Vec::new(),
    };
    let is_before = |id: &str| calls_of(&one.messages).any(|text| text.contains(id));
    let calls = std::mem::take(&mut one.calls);
    (one.calls, branch.calls) = calls.into_iter().partition(|call| is_before(&call.call_id));
    let kept = one.line.clone();
    for turn in &mut branch.turns {
        turn.turn -= fork.turn;
        turn.first_seq = turn.first_seq.saturating_sub(fork.seq);
        turn.tokens -= fork.before.0.min(turn.tokens);
        turn.bytes -= fork.before.1.min(turn.bytes);
        turn.messages -= fork.before.2.min(turn.messages);
        turn.prompts -= one
            .turns
            .last()
            .map_or(0, |last| last.prompts)
            .min(turn.prompts);
    }
    for message in &mut branch.messages {
        message.seq -= fork.seq;
        message.turn = message.turn.and_then(|turn| turn.checked_sub(fork.turn));
    }
    rename_rows(&mut branch, fork.branch);
    let tick = branch
        .messages
        .first()
        .map_or(kept.tick, |first| first.tick);
    let line = &mut branch.line;
    let kind = ContinuationKind::Branch { tag: TAG.into() };
    line.kind = write_json(&kind)?;
    line.parent = Some(fork.loop_id.clone());
    line.parent_loop_id = Some(fork.loop_id.clone());
    line.parent_turn = Some(fork.turn - 1);
    line.parent_seq = None;
    line.tick = tick.saturating_sub(1);
    line.next_seq -= fork.seq.min(line.next_seq);
    line.sealed_seq = line.sealed_seq.saturating_sub(fork.seq);
    line.turns -= fork.turn.min(line.turns);
    line.complete = line.complete.saturating_sub(fork.turn);
    line.tokens = line.tokens.saturating_sub(fork.before.0);
    line.bytes = line.bytes.saturating_sub(fork.before.1);
    line.messages = line.messages.saturating_sub(fork.before.2);
    line.system_tokens = branch.messages.iter().map(system_tokens).sum();
    line.last_turn_index = branch.turns.last().and_then(|turn| turn.turn_index);
    line.open_calls = line
        .open_calls
        .iter()
        .filter(|(_, turn)| **turn >= fork.turn)
        .map(|(id, turn)| (id.clone(), turn - fork.turn))
        .collect();
    edit_meta(line, |record| {
        record.loop_id = fork.branch.clone();
        record.parent_loop_id = Some(fork.loop_id.clone());
        record.parent_turn = Some(i64::from(fork.turn - 1).into());
        record.continuation_kind = Some(kind);
    })?;
    move_history(&mut branch, fork)?;
    chain_again(&mut branch);
    shorten(one, fork);
    Ok(branch)
}

/// The name of the branches that a sync makes.
const TAG: &str = "sync";

/// Returns the texts of messages that may have tool calls.
fn calls_of(messages: &[StoredMessageLine]) -> impl Iterator<Item = &str> {
    messages
        .iter()
        .filter_map(|line| Some(line.message.as_ref()?.get()))
}

/// Returns the tokens of a message if it is a system prompt in the record.
fn system_tokens(line: &StoredMessageLine) -> u64 {
    let message = line.message.as_ref();
    let message = message.and_then(|json| serde_json::from_str(json.get()).ok());
    match message {
        Some(AgentMessage::Extension(extension)) if extension.kind == "system" => line.tokens,
        _ => 0,
    }
}

/// Sets the numbers of a loop to those of its remaining turns. The other database has a longer state of the loop, whose
/// numbers are used in the union.
fn shorten(one: &mut LoopDocument, fork: &LoopFork<'_>) {
    let line = &mut one.line;
    line.next_seq = fork.seq;
    line.sealed_seq = line.sealed_seq.min(fork.seq);
    line.turns = fork.turn;
    line.complete = line.complete.min(fork.turn);
    (line.tokens, line.bytes, line.messages) = fork.before;
    line.open_calls.retain(|_, turn| *turn < fork.turn);
    chain_again(one);
}

/// Names the messages in the history and the notes of a branch by their new sequences; those before the branch are
/// written out.
fn move_history(branch: &mut LoopDocument, fork: &LoopFork<'_>) -> Result<(), String> {
    let mut known: HashMap<[u8; 32], u32> = HashMap::new();
    let moved = |text: &str, known: &HashMap<[u8; 32], u32>| -> Result<Box<RawValue>, String> {
        let message = &mut |seq: u32| {
            let line = fork.messages.get(seq as usize);
            let json = line.and_then(|line| line.message.as_ref());
            let json = json.and_then(|json| Json::parse(json.get()).ok());
            json.ok_or_else(|| StoreError::Damaged(format!("message {seq} is missing")))
        };
        let whole = restore_history(text, message).map_err(|error| error.to_string())?;
        let short = shorten_history(&whole, &|digest| known.get(digest).copied());
        RawValue::from_string(short.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())
    };
    for line in &branch.messages {
        if let Some(json) = line
            .message
            .as_ref()
            .and_then(|json| Json::parse(json.get()).ok())
        {
            known.entry(history_fingerprint(&json)).or_insert(line.seq);
        }
    }
    if let Some(history) = &branch.line.history {
        branch.line.history = Some(moved(history.get(), &known)?);
    }
    for NoteLine { event, turn, .. } in &mut branch.notes {
        for json in [event, turn].into_iter().flatten() {
            *json = moved(json.get(), &known)?;
        }
    }
    Ok(())
}

/// Moves what a loop says of others: its parent, and the calls that it answers.
fn move_loop(one: &mut LoopDocument, fork: &LoopFork<'_>) -> Result<(), String> {
    for turn in one.turns.iter_mut().filter(|turn| fork.is_after(turn.tick)) {
        turn.answers
            .iter_mut()
            .for_each(|place| fork.move_turn(place));
    }
    let line = &mut one.line;
    let continues = line.parent.as_ref() == Some(fork.loop_id) && line.loop_id != *fork.branch;
    let is_after = line
        .parent_turn
        .map_or(fork.is_whole(), |turn| turn >= fork.turn);
    if !continues || !is_after || !fork.is_after(line.tick) {
        return Ok(());
    }
    line.parent = Some(fork.branch.clone());
    line.parent_loop_id = Some(fork.branch.clone());
    line.parent_turn = line.parent_turn.map(|turn| turn - fork.turn);
    line.parent_seq = line.parent_seq.map(|seq| seq.saturating_sub(fork.seq));
    let (parent, turn) = (line.parent_loop_id.clone(), line.parent_turn);
    edit_meta(line, |record| {
        record.parent_loop_id = parent;
        if record.parent_turn.is_some() {
            record.parent_turn = turn.map(|turn| i64::from(turn).into());
        }
    })
}

fn move_key(row: &mut Attachment, fork: &LoopFork<'_>) {
    if let Attachment::AppendKey {
        loop_id,
        seqs,
        turns,
        ..
    } = row
        && loop_id == fork.loop_id
        && seqs.0 >= fork.different
    {
        loop_id.clone_from(fork.branch);
        *seqs = (seqs.0 - fork.seq, seqs.1.saturating_sub(fork.seq));
        *turns = (
            turns.0.saturating_sub(fork.turn),
            turns.1.saturating_sub(fork.turn),
        );
    }
}
