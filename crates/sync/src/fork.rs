//! Splits a loop that two databases continued differently: what one of them added becomes a branch.
//!
//! The branch begins with the turn that differs, and continues the loop after the turn before. Everything that refers
//! to the first different message or a later one goes with it: messages and turns, runs, undos, pins and manifests,
//! and the loops that continue a later turn. Runs and undos before the first different turn was complete stay with the
//! loop, and apply to both continuations. A block over both parts becomes two, one on each, which show the same messages
//! in the same order. Two loops with one id that begin differently share nothing: one of them gets another id.
//!
//! What moves depends on what it refers to, not on when it was done: a state may also have what a third database did to
//! the loop at the same time.

use std::collections::{HashMap, HashSet};

use loopstore::extend::StoreError;
use loopstore::internal::{history_fingerprint, restore_history, shorten_history};
use loopstore::model::{AgentMessage, ContinuationKind, Json, LoopId, LoopRecord};
use loopstore_transcripts::internal::form::{LoopLine, NoteLine};
use serde_json::value::RawValue;

use crate::document::{Attachment, LoopDocument, RunDocument, SessionDocument, StoredMessageLine};
use crate::fork_overlay::{split_edits, split_manifest, split_run_blocks};
use crate::fork_place::{LoopFork, fork_of};
use crate::merge::chain_again;
use crate::quoted;

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

/// Moves the turns from that of message `seq` on, and everything that refers to them, to a branch; the whole loop if
/// there is no such message.
///
/// # Errors
/// If that is not possible; with the reason.
pub(crate) fn split(
    document: &mut SessionDocument,
    loop_id: &LoopId,
    seq: Option<u32>,
    branch: &LoopId,
) -> Result<(), String> {
    let found = document
        .loops
        .iter()
        .position(|one| one.line.loop_id == *loop_id);
    let at = found.ok_or_else(|| format!("loop `{loop_id}` is missing"))?;
    quoted::remove_sizes(document)?;
    let fork = fork_of(&document.loops[at], seq, (loop_id, branch));
    match fork.is_whole {
        true => rename(&mut document.loops[at], branch)?,
        false => {
            let branch = split_loop(&mut document.loops[at], &fork)?;
            document.loops.insert(at + 1, branch);
        }
    }
    let mut moved = HashSet::from([branch.clone()]);
    // Parents are before their children.
    for one in &mut document.loops {
        move_loop(one, &fork)?;
        let parent = one.line.parent.as_ref();
        if one.line.loop_id == *branch || parent.is_some_and(|parent| moved.contains(parent)) {
            moved.insert(one.line.loop_id.clone());
            let answers = one.turns.iter_mut().flat_map(|turn| &mut turn.answers);
            answers.for_each(|place| fork.move_turn(place));
        }
    }
    if let Some(current) = &mut document.line.current_loop
        && current == loop_id
    {
        current.clone_from(branch);
    }
    for run in &mut document.runs {
        split_run(run, &fork, &moved, &document.line.counter)?;
    }
    for pin in &mut document.pins {
        let is_after = pin.leaf == *loop_id && fork.is_point_after(pin.turns, pin.tick);
        let is_pinned_after = pin.loop_id == *loop_id && pin.seq >= fork.different;
        if is_after || is_pinned_after || moved.contains(&pin.leaf) {
            fork.move_seq(&mut pin.loop_id, &mut pin.seq);
            fork.move_point(&mut pin.leaf, &mut pin.turns);
        }
    }
    for manifest in &mut document.manifests {
        let leaf = &mut manifest.line.loop_id;
        let has_after = manifest.line.parts.iter().any(|part| {
            let last = part.seqs.map_or(0, |(_, last)| last);
            part.loop_id == *loop_id && (fork.is_whole || last >= fork.different)
        });
        if moved.contains(leaf) || leaf == loop_id && (has_after || fork.is_whole) {
            fork.move_point(leaf, &mut 0);
            split_manifest(manifest, &fork);
        }
    }
    name_moved_blocks(document, &fork);
    document
        .attachments
        .iter_mut()
        .for_each(|row| move_key(row, &fork));
    quoted::add_sizes(document)
}

/// Moves a run, or the parts of it that are on the branch.
fn split_run(
    run: &mut RunDocument,
    fork: &LoopFork<'_>,
    moved: &HashSet<LoopId>,
    counter: &str,
) -> Result<(), String> {
    let is_after = match run.line.loop_id == *fork.loop_id {
        true => fork.is_run_after(run),
        false => moved.contains(&run.line.loop_id),
    };
    if is_after {
        fork.move_point(&mut run.line.loop_id, &mut run.line.turns);
        split_run_blocks(run, fork, counter)?;
        split_edits(run, fork)?;
    }
    for flip in &mut run.flips {
        if is_after || fork.is_point_after(flip.turns, flip.tick) {
            fork.move_point(&mut flip.loop_id, &mut flip.turns);
        }
    }
    Ok(())
}

/// Names the branch where rows refer to a block that is on the branch now.
fn name_moved_blocks(document: &mut SessionDocument, fork: &LoopFork<'_>) {
    let blocks = document.runs.iter().flat_map(|run| &run.blocks);
    let blocks: HashSet<(String, LoopId)> = blocks
        .map(|block| (block.line.run.clone(), block.line.loop_id.clone()))
        .collect();
    let is_moved = |run: &Option<String>, loop_id: &LoopId| {
        let Some(run) = run.as_ref().filter(|_| loop_id == fork.loop_id) else {
            return false;
        };
        let has = |loop_id: &LoopId| blocks.contains(&(run.clone(), loop_id.clone()));
        !has(loop_id) && has(fork.branch)
    };
    for block in document.runs.iter_mut().flat_map(|run| &mut run.blocks) {
        if let Some(extends) = &mut block.line.extends
            && is_moved(&block.extends, &extends.loop_id)
        {
            extends.loop_id.clone_from(fork.branch);
        }
    }
    for manifest in &mut document.manifests {
        let parts = manifest.line.parts.iter_mut().zip(&manifest.block_runs);
        for (part, run) in parts {
            if let Some(block) = &mut part.block
                && is_moved(run, &block.loop_id)
            {
                block.loop_id.clone_from(fork.branch);
            }
        }
    }
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
    let line = &mut branch.line;
    let kind = ContinuationKind::Branch { tag: TAG.into() };
    line.kind = write_json(&kind)?;
    line.parent = Some(fork.loop_id.clone());
    line.parent_loop_id = Some(fork.loop_id.clone());
    line.parent_turn = fork.turn.checked_sub(1);
    line.parent_seq = None;
    line.next_seq -= fork.seq.min(line.next_seq);
    // A third database may have completed the common part.
    line.sealed_seq = match line.sealed_seq > fork.different {
        true => line.sealed_seq - fork.seq,
        false => branch.turns.last().map_or(0, |last| last.first_seq),
    };
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
        // No turn of the loop if the first one differs.
        record.parent_turn = Some((i64::from(fork.turn) - 1).into());
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
    line.system_tokens = one.messages.iter().map(system_tokens).sum();
    line.last_turn_index = one.turns.last().and_then(|turn| turn.turn_index);
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

/// Sets the parent of a loop that continues the branch.
fn move_loop(one: &mut LoopDocument, fork: &LoopFork<'_>) -> Result<(), String> {
    let line = &one.line;
    let continues = line.parent.as_ref() == Some(fork.loop_id) && line.loop_id != *fork.branch;
    if !continues || !fork.is_child_after(one) {
        return Ok(());
    }
    let line = &mut one.line;
    let mut place = line.clone();
    place.parent = Some(fork.branch.clone());
    place.parent_loop_id = Some(fork.branch.clone());
    place.parent_turn = line.parent_turn.map(|turn| turn - fork.turn);
    place.parent_seq = line.parent_seq.map(|seq| seq.saturating_sub(fork.seq));
    move_to(line, &place)
}

/// Gives a loop the parent of another one.
pub(crate) fn move_to(line: &mut LoopLine, place: &LoopLine) -> Result<(), String> {
    line.parent.clone_from(&place.parent);
    line.parent_loop_id.clone_from(&place.parent_loop_id);
    (line.parent_turn, line.parent_seq) = (place.parent_turn, place.parent_seq);
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
