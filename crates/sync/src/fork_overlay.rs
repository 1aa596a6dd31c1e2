//! Splits the blocks, edits and manifests of a loop that is split.

use loopstore::counter_named;
use loopstore::extend::codec::json_bytes;
use loopstore::model::AgentMessage;
use loopstore_transcripts::internal::form::{
    BlockLine, CoverageForm, EditLine, PartForm, ShownForm, Sizes,
};

use crate::document::{BlockDocument, ManifestDocument, RunDocument, StoredMessageLine};
use crate::fork_place::LoopFork;
use crate::quoted::subtract;

/// Splits the blocks of a run that are on the loop.
pub(crate) fn split_run_blocks(
    run: &mut RunDocument,
    fork: &LoopFork<'_>,
    counter: &str,
) -> Result<(), String> {
    let mut blocks = Vec::with_capacity(run.blocks.len());
    for mut block in std::mem::take(&mut run.blocks) {
        if block.line.loop_id != *fork.loop_id {
            move_coverage(&mut block, fork);
            blocks.push(block);
            continue;
        }
        let (stays, moved) = split_block(block, fork, counter)?;
        blocks.extend(stays.into_iter().chain(moved));
    }
    for block in &mut blocks {
        let is_current = block.line.loop_id == run.line.loop_id;
        let kind = &mut block.line.kind;
        if matches!(&**kind, "current" | "earlier") {
            *kind = if is_current { "current" } else { "earlier" }.into();
        }
    }
    run.blocks = blocks;
    Ok(())
}

/// Splits the coverage and the quotes of a rollup on another loop.
fn move_coverage(block: &mut BlockDocument, fork: &LoopFork<'_>) {
    let rows = std::mem::take(&mut block.line.coverage);
    for row in rows {
        let (stays, moved) = split_coverage(row, fork);
        block.line.coverage.extend(stays.into_iter().chain(moved));
    }
    for shown in &mut block.line.shows {
        if let (Some(loop_id), Some(seq)) = (&mut shown.quotes, &mut shown.replaces) {
            fork.move_seq(loop_id, seq);
        }
    }
}

fn split_coverage(
    row: CoverageForm,
    fork: &LoopFork<'_>,
) -> (Option<CoverageForm>, Option<CoverageForm>) {
    if row.loop_id != *fork.loop_id {
        return (Some(row), None);
    }
    let (seqs, turns) = (fork.parts_of_seqs(row.seqs), fork.parts_of_turns(row.turns));
    let part = |loop_id: &loopstore::model::LoopId, seqs, turns: Option<(u32, u32)>| {
        turns.map(|turns| CoverageForm {
            loop_id: loop_id.clone(),
            seqs,
            turns: Some(turns),
            disposition: row.disposition.clone(),
        })
    };
    (
        part(fork.loop_id, seqs.0, turns.0),
        part(fork.branch, seqs.1, turns.1),
    )
}

type BlockParts = (Option<BlockDocument>, Option<BlockDocument>);

/// Splits a block: what it shows of each part goes with that part, and the text in place of its compacted turns with
/// the first part that has some of them.
fn split_block(
    block: BlockDocument,
    fork: &LoopFork<'_>,
    counter: &str,
) -> Result<BlockParts, String> {
    let line = &block.line;
    let sections = [line.keep_first, line.keep_compacted, line.keep_recent];
    let parts = sections.map(|section| fork.parts_of_turns(section));
    // A rollup is on the last loop that it covers.
    let is_rollup = !matches!(&*line.kind, "current" | "earlier");
    let is_moved = parts.iter().any(|(_, moved)| moved.is_some());
    let stays = !is_rollup && parts.iter().any(|(stays, _)| stays.is_some());
    if !is_moved && !is_rollup && fork.turn > 0 {
        return Ok((Some(block), None));
    }
    let mut moved = block.clone();
    moved.line.loop_id.clone_from(fork.branch);
    moved.line.keep_first = parts[0].1;
    moved.line.keep_compacted = parts[1].1;
    moved.line.keep_recent = parts[2].1;
    moved.line.through = line.through.saturating_sub(fork.seq);
    let has_text_before = parts[1].0.is_some();
    let (before, after) = split_shown(&line.shows, fork, has_text_before);
    moved.line.shows = after;
    let coverage = line.coverage.iter().cloned();
    let coverage = coverage
        .map(|row| split_coverage(row, fork))
        .collect::<Vec<_>>();
    moved.line.coverage = coverage
        .iter()
        .filter_map(|(_, moved)| moved.clone())
        .collect();
    if !stays {
        let others = coverage.into_iter().filter_map(|(stays, _)| stays);
        let mut rows: Vec<CoverageForm> = others.collect();
        rows.append(&mut moved.line.coverage);
        moved.line.coverage = rows;
        return Ok((None, Some(moved)));
    }
    moved.line.tokens_covered = line.tokens_covered.saturating_sub(fork.before.0);
    moved.line.size = size_of(&moved.line, fork, counter)?;
    let mut kept = block;
    kept.line.keep_first = parts[0].0;
    kept.line.keep_compacted = parts[1].0;
    kept.line.keep_recent = parts[2].0;
    kept.line.through = fork.seq;
    kept.line.shows = before;
    kept.line.coverage = coverage
        .into_iter()
        .filter_map(|(stays, _)| stays)
        .collect();
    kept.line.tokens_covered = fork.before.0;
    kept.line.size = subtract(kept.line.size, moved.line.size);
    Ok((Some(kept), Some(moved)))
}

fn less(all: Sizes, part: Sizes) -> Sizes {
    Sizes {
        tokens: all.tokens.saturating_sub(part.tokens),
        bytes: all.bytes.saturating_sub(part.bytes),
        messages: all.messages.saturating_sub(part.messages),
    }
}

/// Splits the messages of a block on the loop.
fn split_shown(
    shows: &[ShownForm],
    fork: &LoopFork<'_>,
    has_text_before: bool,
) -> (Vec<ShownForm>, Vec<ShownForm>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for shown in shows {
        let mut shown = shown.clone();
        let is_after = match (&mut shown.quotes, &mut shown.replaces) {
            (Some(loop_id), Some(seq)) => {
                let is_after = loop_id == fork.loop_id && *seq >= fork.seq;
                fork.move_seq(loop_id, seq);
                is_after
            }
            (_, Some(seq)) if *seq >= fork.seq => {
                *seq -= fork.seq;
                true
            }
            (_, Some(_)) => false,
            (_, None) => !has_text_before,
        };
        match is_after {
            true => after.push(shown),
            false => before.push(shown),
        }
    }
    (before, after)
}

/// Returns the size of what a block on the branch shows, without its quotes.
fn size_of(line: &BlockLine, fork: &LoopFork<'_>, counter: &str) -> Result<Sizes, String> {
    let mut size = Sizes {
        tokens: 0,
        bytes: 0,
        messages: 0,
    };
    let within = |section: Option<(u32, u32)>, turn: u32| {
        section.is_some_and(|(first, last)| (first..=last).contains(&turn))
    };
    let end = line.through.saturating_add(fork.seq);
    for message in fork
        .messages
        .iter()
        .filter(|row| row.seq >= fork.seq && row.seq < end)
    {
        let turn = message.turn.unwrap_or(0).saturating_sub(fork.turn);
        let seq = Some(message.seq - fork.seq);
        let is_replaced = (line.shows.iter())
            .any(|shown| shown.recent && shown.quotes.is_none() && shown.replaces == seq);
        let is_kept =
            within(line.keep_first, turn) || within(line.keep_recent, turn) && !is_replaced;
        if is_kept {
            add(&mut size, message_size(message));
        }
    }
    let shown = line.shows.iter().filter(|shown| shown.digest.is_some());
    let shown: Vec<&ShownForm> = shown.collect();
    if shown.is_empty() {
        return Ok(size);
    }
    let unknown = || format!("tokens are counted with {counter}, which is not known here");
    let counter = counter_named(counter).ok_or_else(unknown)?;
    for shown in shown {
        let Some(message) = shown.message.as_ref() else {
            // A quote, whose size is added later, or the rest of a redacted one.
            continue;
        };
        let message: AgentMessage =
            serde_json::from_str(message.get()).map_err(|error| error.to_string())?;
        let bytes = json_bytes(&message).map_err(|error| error.to_string())?;
        add(&mut size, Some((counter.message_tokens(&message), bytes)));
    }
    Ok(size)
}

fn add(size: &mut Sizes, message: Option<(u64, u64)>) {
    if let Some((tokens, bytes)) = message {
        size.tokens += tokens;
        size.bytes += bytes;
        size.messages += 1;
    }
}

/// Returns the tokens and bytes of a message; `None` for an extension.
pub(crate) fn message_size(line: &StoredMessageLine) -> Option<(u64, u64)> {
    let message: AgentMessage = serde_json::from_str(line.message.as_ref()?.get()).ok()?;
    match message {
        AgentMessage::Extension(_) => None,
        message => Some((line.tokens, json_bytes(&message).ok()?)),
    }
}

/// Splits the edits of messages of the loop.
pub(crate) fn split_edits(run: &mut RunDocument, fork: &LoopFork<'_>) -> Result<(), String> {
    let mut edits: Vec<EditLine> = Vec::with_capacity(run.edits.len());
    for edit in std::mem::take(&mut run.edits) {
        if edit.loop_id != *fork.loop_id {
            edits.push(edit);
            continue;
        }
        match fork.parts_of_seqs(Some(edit.seqs)) {
            (Some(_), None) => edits.push(edit),
            (None, Some(seqs)) => edits.push(EditLine {
                loop_id: fork.branch.clone(),
                seqs,
                ..edit
            }),
            (Some(before), Some(after)) => {
                let mut moved = EditLine {
                    loop_id: fork.branch.clone(),
                    seqs: after,
                    ..edit.clone()
                };
                moved.before = Sizes {
                    tokens: 0,
                    bytes: 0,
                    messages: 0,
                };
                let (from, to) = (after.0 + fork.seq, after.1 + fork.seq);
                for message in &fork.messages {
                    if (from..=to).contains(&message.seq) {
                        add(&mut moved.before, message_size(message));
                    }
                }
                edits.push(EditLine {
                    seqs: before,
                    before: less(edit.before, moved.before),
                    ..edit
                });
                edits.push(moved);
            }
            (None, None) => return Err("an edit is of no message".into()),
        }
    }
    run.edits = edits;
    Ok(())
}

/// Splits the parts of a manifest that are of the loop.
pub(crate) fn split_manifest(manifest: &mut ManifestDocument, fork: &LoopFork<'_>) {
    let parts = std::mem::take(&mut manifest.line.parts);
    let runs = std::mem::take(&mut manifest.block_runs);
    for (part, run) in parts.into_iter().zip(runs) {
        for part in split_part(part, fork) {
            manifest.line.parts.push(part);
            manifest.block_runs.push(run.clone());
        }
    }
}

fn split_part(part: PartForm, fork: &LoopFork<'_>) -> Vec<PartForm> {
    if part.loop_id != *fork.loop_id {
        return vec![part];
    }
    let moved = |seqs: Option<(u32, u32)>, messages: u64| {
        let mut moved = part.clone();
        moved.loop_id.clone_from(fork.branch);
        (moved.seqs, moved.messages) = (seqs, messages);
        if let Some(block) = &mut moved.block {
            block.loop_id.clone_from(fork.branch);
        }
        moved
    };
    if fork.turn == 0 {
        return vec![moved(part.seqs, part.messages)];
    }
    match fork.parts_of_seqs(part.seqs) {
        (_, None) => vec![part],
        (None, seqs) => vec![moved(seqs, part.messages)],
        (Some(before), Some(after)) => {
            let (from, to) = (after.0 + fork.seq, after.1 + fork.seq);
            let is_in = |row: &&StoredMessageLine| (from..=to).contains(&row.seq);
            let counted = fork.messages.iter().filter(is_in).filter_map(message_size);
            let messages = (counted.count() as u64).min(part.messages);
            let stays = PartForm {
                seqs: Some(before),
                messages: part.messages - messages,
                ..part.clone()
            };
            vec![stays, moved(Some(after), messages)]
        }
    }
}
