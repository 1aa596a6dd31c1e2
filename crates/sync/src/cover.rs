//! Compares two states of a session: one may contain the other.

use std::collections::{HashMap, HashSet};

use loopstore_transcripts::internal::form::{CallLine, LoopLine};

use crate::document::{
    LoopDocument, ManifestDocument, RunDocument, SessionDocument, StoredMessageLine, text_of,
};

/// True if `big` contains all lines that `small` contains, so that `small` is an earlier state of it. Attachments are
/// not compared.
pub(crate) fn covers(big: &SessionDocument, small: &SessionDocument) -> bool {
    let loops = big.loop_index();
    let has_loop = |one: &LoopDocument| {
        let at = loops.get(&one.line.loop_id);
        at.is_some_and(|at| covers_loop(&big.loops[*at], one))
    };
    let runs: HashMap<&str, &RunDocument> =
        big.runs.iter().map(|run| (&*run.line.run, run)).collect();
    let has_run = |run: &RunDocument| {
        let found = runs.get(&*run.line.run);
        found.is_some_and(|found| covers_run(found, run))
    };
    let manifests: HashSet<String> = big.manifests.iter().map(manifest_text).collect();
    covers_line(big, small)
        && small.loops.iter().all(has_loop)
        && small.runs.iter().all(has_run)
        && contains(&big.pins, &small.pins)
        && contains(&big.hides, &small.hides)
        && (small.manifests.iter()).all(|one| manifests.contains(&manifest_text(one)))
}

fn manifest_text(manifest: &ManifestDocument) -> String {
    text_of(&manifest.line)
}

/// True if all lines of `small` are among those of `big`.
fn contains(big: &[impl serde::Serialize], small: &[impl serde::Serialize]) -> bool {
    let big: HashSet<String> = big.iter().map(text_of).collect();
    small.iter().all(|line| big.contains(&text_of(line)))
}

fn covers_line(big: &SessionDocument, small: &SessionDocument) -> bool {
    let (big, small) = (&big.line, &small.line);
    if text_of(big) == text_of(small) {
        return true;
    }
    let keeps = |big: &Option<String>, small: &Option<String>| small.is_none() || big == small;
    big.tick > small.tick
        && big.last_active_at >= small.last_active_at
        && big.created_at == small.created_at
        && keeps(&big.title, &small.title)
        && keeps(&big.project, &small.project)
        && keeps(&big.agent_id, &small.agent_id)
        && keeps(&big.source, &small.source)
}

/// True if two messages of one place are the same, or `big` is the redacted state of `small`.
fn covers_message(big: &StoredMessageLine, small: &StoredMessageLine) -> bool {
    big.digest == small.digest
        && big.turn == small.turn
        && (big.salt.is_none() || big.salt == small.salt)
        && (big.salt.is_some() || small.salt.is_some() || text_of(big) == text_of(small))
}

fn covers_loop(big: &LoopDocument, small: &LoopDocument) -> bool {
    let messages = small.messages.len();
    let has_messages = big.messages.len() >= messages
        && (big.messages.iter().zip(&small.messages)).all(|(a, b)| covers_message(a, b));
    if !has_messages || begin_of(&big.line) != begin_of(&small.line) {
        return false;
    }
    let is_ended = |one: &LoopDocument| one.line.status.is_ended();
    let has_row = text_of(&big.line) == text_of(&small.line)
        || big.messages.len() > messages
        || is_later(&big.line, &small.line);
    has_row
        && (big.notes.len() >= small.notes.len() || is_ended(big))
        && small.calls.iter().all(|call| has_call(&big.calls, call))
}

/// The place of a loop in its tree: its parent, the parent's last turn and message, and the kind of continuation.
type LoopPlace<'a> = (Option<&'a str>, Option<u32>, Option<u32>, &'a str);

/// Returns the values of a loop that never change in its database: its tick, and its place.
pub(crate) fn begin_of(line: &LoopLine) -> (i64, LoopPlace<'_>) {
    let place = (
        line.parent.as_ref().map(|id| id.as_str()),
        line.parent_turn,
        line.parent_seq,
        line.kind.get(),
    );
    (line.tick, place)
}

/// True if a row of a loop with the same messages is a later state of another one.
fn is_later(big: &LoopLine, small: &LoopLine) -> bool {
    let rises = big.generation >= small.generation && big.sealed_seq >= small.sealed_seq;
    if !rises || small.status.is_ended() && !big.status.is_ended() {
        return false;
    }
    let mut like = small.clone();
    like.generation = big.generation;
    like.sealed_seq = big.sealed_seq;
    if !small.status.is_ended() && big.status.is_ended() {
        like.status = big.status.clone();
        like.ended_at.clone_from(&big.ended_at);
        like.history.clone_from(&big.history);
        like.meta.clone_from(&big.meta);
        like.complete = big.complete;
        like.open_calls.clone_from(&big.open_calls);
    }
    text_of(&like) == text_of(big)
}

/// True if a call, or a later state of it, is among these.
fn has_call(calls: &[CallLine], call: &CallLine) -> bool {
    let progress = |call: &CallLine| (call.finished_at.is_some(), call.attempts);
    let is_same = |other: &&CallLine| (&other.call_id, other.nth) == (&call.call_id, call.nth);
    calls
        .iter()
        .find(is_same)
        .is_some_and(|found| progress(found) >= progress(call))
}

/// True if two runs are the same, and `big` has all undos and redos of `small`.
fn covers_run(big: &RunDocument, small: &RunDocument) -> bool {
    let rows = |run: &RunDocument| {
        let blocks = run.blocks.iter().map(|block| text_of(&block.line));
        let edits = run.edits.iter().map(text_of);
        blocks.chain(edits).collect::<Vec<_>>()
    };
    text_of(&big.line) == text_of(&small.line)
        && rows(big) == rows(small)
        && contains(&big.flips, &small.flips)
}
