//! Blocks: digests, sections, sizes, and the run that wrote them.

use std::ops::ControlFlow;

use loopstore::extend::{
    BlockKey, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition, LoopKey, LoopRow,
    Outcome, RunRow, Section, Size, StoreResult, digest, quote_body,
    scan::{BlobOwner, MessagePlace},
};
use loopstore::model::Role;

use super::coverage::{self, HiddenMessages};
use super::edits::removed_messages;
use super::pairs;
use super::report::{ProblemKind, Subject, short};
use super::sessions::SessionScope;
use super::stored::{check_digest, decoded};
use super::verify::Verify;

/// A block with all rows that belong to it.
pub(super) struct WholeBlock {
    pub(super) place: String,
    pub(super) row: BlockRow,
    pub(super) messages: Vec<BlockMessage>,
    pub(super) coverage: Vec<CoverageRow>,
    /// The loop that the block belongs to.
    pub(super) loop_key: LoopRow,
    /// The messages that edits removed as a whole or in part, of loops that the block covers as removed.
    removed: Vec<(LoopKey, (u32, u32))>,
}

impl WholeBlock {
    /// Returns the section that a turn is in: first, compacted or recent.
    pub(super) fn section(&self, turn: u32) -> Option<usize> {
        self.row.layout.section_of(turn)
    }

    /// True if the block quotes a message of its own loop.
    pub(super) fn quotes(&self, seq: u32) -> bool {
        let place = (self.row.loop_key, seq);
        self.messages
            .iter()
            .any(|message| message.quoted() == Some(place))
    }

    /// True if a run removed the message, or a part of it.
    pub(super) fn is_removed(&self, loop_key: LoopKey, seq: u32) -> bool {
        let is_it = |(key, (from, to)): &(LoopKey, (u32, u32))| {
            *key == loop_key && (*from..=*to).contains(&seq)
        };
        self.removed.iter().any(is_it)
    }

    /// Returns the recent messages that are not shown unchanged.
    pub(super) fn replaced(&self) -> HiddenMessages {
        let recent = |message: &&BlockMessage| message.section == Section::Recent;
        self.messages
            .iter()
            .filter(recent)
            .filter_map(|message| Some((message.replaces?, message.body.is_some())))
            .collect()
    }
}

/// Checks the blocks on a loop.
pub(super) fn check(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    key: LoopKey,
) -> StoreResult<()> {
    // A loop that cannot be read is reported elsewhere.
    let Ok(loop_key) = verify.scan.loop_by_key(key) else {
        return Ok(());
    };
    let place = format!("{}, loop {}", scope.place, loop_key.loop_id);
    let keys = verify.scan.block_keys(key);
    let Some(keys) = verify.found.readable(&place, keys)? else {
        return Ok(());
    };
    let mut newest = 0;
    for key in keys {
        verify.found.checked.blocks += 1;
        verify.found.subject = Subject::Block(key);
        let row = verify.scan.block_and_digest(key);
        let at = format!("{place}, block with key {}", key.0);
        let Some((row, stored)) = verify.found.readable(at, row)? else {
            newest += 1;
            continue;
        };
        let place = format!("{place}, block {}", row.generation);
        check_generation(verify, scope, &place, newest, row.generation);
        newest = row.generation;
        let whole = whole(verify, row, place, &loop_key)?;
        if let Some(whole) = whole {
            check_block(verify, scope, &whole, &stored)?;
        }
    }
    let generation = &loop_key.totals.generation;
    let found = &mut verify.found;
    found.subject = Subject::Loop(loop_key.key);
    found.compare(ProblemKind::Total, place, "generation", generation, &newest);
    Ok(())
}

/// Checks that generations are numbered without gaps, unless some were pruned.
fn check_generation(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    place: &str,
    before: u32,
    found: u32,
) {
    let expected = before.saturating_add(1);
    let pruned = found > expected && verify.has_receipt(scope.key, &["prune"]);
    if found != expected && !pruned {
        let detail = format!("generation {expected} should come here");
        verify.found.add(ProblemKind::Block, place, detail);
    }
}

fn whole(
    verify: &mut Verify<'_>,
    row: BlockRow,
    place: String,
    loop_key: &LoopRow,
) -> StoreResult<Option<WholeBlock>> {
    let messages = verify.scan.block_messages(row.key);
    let messages = verify.found.readable(&place, messages)?;
    let coverage = verify.scan.coverage(row.key);
    let coverage = verify.found.readable(&place, coverage)?;
    let (Some(messages), Some(coverage)) = (messages, coverage) else {
        return Ok(None);
    };
    let removed = removed_messages(verify, &coverage);
    let removed = verify.found.readable(&place, removed)?.unwrap_or_default();
    verify.found.checked.block_messages += messages.len() as u64;
    verify.found.checked.coverage += coverage.len() as u64;
    Ok(Some(WholeBlock {
        place,
        row,
        messages,
        coverage,
        loop_key: loop_key.clone(),
        removed,
    }))
}

fn check_block(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    block: &WholeBlock,
    stored: &[u8; 32],
) -> StoreResult<()> {
    let derived = digest::block(&block.row, &block.messages, &block.coverage);
    if derived != *stored {
        let detail = format!("{} should be {}", short(stored), short(&derived));
        verify.found.add(ProblemKind::Digest, &block.place, detail);
    }
    check_messages(verify, scope, block)?;
    let run = verify.scan.run_by_key(block.row.run);
    let Some(run) = verify.found.readable(&block.place, run)? else {
        return Ok(());
    };
    check_place(verify, scope, block, &run)?;
    if !check_layout(verify, block) {
        // The coverage can only be compared if the sections are valid.
        return Ok(());
    }
    check_sizes(verify, block)?;
    coverage::check(verify, block)?;
    if run.record.is_none() {
        pairs::check(verify, block)?;
    }
    Ok(())
}

fn check_messages(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    block: &WholeBlock,
) -> StoreResult<()> {
    let mut last = None;
    for (ordinal, message) in (0u32..).zip(&block.messages) {
        let place = format!("{}, message {ordinal}", block.place);
        if let Some(of) = message.quoted() {
            check_quote(verify, block, (message, of), &place)?;
        } else if let Some(body) = &message.body {
            let at = MessagePlace::InBlock(block.row.key, ordinal);
            check_digest(verify, scope, body, at, &place)?;
            if body.head.is_some() {
                decoded(verify, BlobOwner::Block(block.row.key), body, &place)?;
            }
        }
        let is_fit = match (message.section, message.replaces) {
            (Section::Compacted, None) => message.body.is_some() && last.is_none(),
            (Section::Compacted, Some(_)) => message.quotes.is_some() && last.is_none(),
            (Section::Recent, Some(seq)) => {
                last.replace(seq).is_none_or(|last| last < seq) && message.quotes.is_none()
            }
            _ => false,
        };
        if !is_fit {
            let detail = "it is not in the order of its section";
            verify.found.add(ProblemKind::Block, place, detail);
        }
    }
    Ok(())
}

/// Checks that a quote has the size and the digest of its original, and that the coverage contains it.
fn check_quote(
    verify: &mut Verify<'_>,
    block: &WholeBlock,
    (message, of): (&BlockMessage, (LoopKey, u32)),
    place: &str,
) -> StoreResult<()> {
    let own = block.row.loop_key;
    let derived = quote_body(verify.scan, verify.counter, block.row.quoting(), of);
    let Some(derived) = verify.found.readable(place, derived)? else {
        return Ok(());
    };
    if message.body.as_ref() != Some(&derived) {
        let detail = "the quote is not of the message that it names";
        verify.found.add(ProblemKind::Block, place, detail);
    }
    if of.0 != own && !block.row.kind.covers_earlier_loops() {
        let detail = "it quotes a message of another loop, and is no rollup";
        verify.found.add(ProblemKind::Block, place, detail);
    }
    let covers = |row: &CoverageRow| {
        row.loop_key == own
            && row
                .seqs
                .is_some_and(|(from, to)| (from..=to).contains(&of.1))
    };
    let covered = block.coverage.iter().find(|row| covers(row));
    if of.0 == own && covered.is_none_or(|row| row.disposition != Disposition::Kept) {
        let detail = format!(
            "message {} is quoted, and its coverage does not say so",
            of.1
        );
        verify.found.add(ProblemKind::Coverage, place, detail);
    }
    Ok(())
}

/// Checks that the run was committed, and that the loop and the turns were on its chain.
fn check_place(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    block: &WholeBlock,
    run: &RunRow,
) -> StoreResult<()> {
    let (row, place) = (&block.row, &block.place);
    if run.outcome != Outcome::Committed || run.session != scope.key {
        let detail = format!("run {} is not a committed run of this session", run.run_id);
        verify.found.add(ProblemKind::Block, place, detail);
    }
    let length = verify.scan.length_at(row.loop_key, run.tick);
    if let Some(length) = verify.found.readable(place, length)?
        && row.through > length
    {
        let (through, tick) = (row.through, run.tick);
        let detail = format!("it covers {through} messages, at tick {tick} there were {length}");
        verify.found.add(ProblemKind::Tick, place, detail);
    }
    let is_current = row.loop_key == run.point.loop_key;
    if (row.kind == BlockKind::Current) != is_current && !row.kind.covers_earlier_loops() {
        let kind = row.kind.as_str();
        let detail = format!("its kind {kind} does not fit the loop of its run");
        verify.found.add(ProblemKind::Block, place, detail);
    }
    let cut = verify.cuts.of(verify.scan, run.point, row.loop_key);
    match verify.found.readable(place, cut)? {
        Some(Some(cut)) if row.layout.end() > cut => {
            let (end, id) = (row.layout.end(), &run.run_id);
            let detail = format!("it covers {end} turns, the chain of run {id} had {cut}");
            verify.found.add(ProblemKind::Block, place, detail);
        }
        Some(None) => {
            let detail = format!("its loop is not on the chain of run {}", run.run_id);
            verify.found.add(ProblemKind::Block, place, detail);
        }
        _ => {}
    }
    check_extends(verify, block)
}

fn check_extends(verify: &mut Verify<'_>, block: &WholeBlock) -> StoreResult<()> {
    let Some(extends) = block.row.extends else {
        return Ok(());
    };
    let before = verify.scan.block_and_digest(extends);
    let Some((before, _)) = verify.found.readable(&block.place, before)? else {
        return Ok(());
    };
    let is_fit = before.kind.covers_earlier_loops()
        && (block.row.kind == before.kind || block.row.kind.is_sealed())
        && before.key < block.row.key;
    if !is_fit {
        let BlockKey(key) = extends;
        let detail = format!("it extends the block with key {key}, which is not an earlier rollup");
        verify.found.add(ProblemKind::Block, &block.place, detail);
    }
    Ok(())
}

/// Checks that the sections follow each other from turn 0 and lie within the loop.
fn check_layout(verify: &mut Verify<'_>, block: &WholeBlock) -> bool {
    let (layout, totals) = (&block.row.layout, &block.loop_key.totals);
    let mut next = 0;
    let mut wrong = Vec::new();
    let sections = [layout.first, layout.compacted, layout.recent];
    for turns in sections.into_iter().flatten() {
        if turns.first != next || turns.last < turns.first {
            let (first, last) = (turns.first, turns.last);
            wrong.push(format!("turns {first} to {last} where {next} follows"));
        }
        next = turns.end();
    }
    if next > totals.turns {
        wrong.push(format!("it covers {next} of {} turns", totals.turns));
    }
    if block.row.through > totals.sealed_seq {
        let (through, sealed) = (block.row.through, totals.sealed_seq);
        wrong.push(format!("it covers {through} messages, {sealed} are sealed"));
    }
    for detail in &wrong {
        verify.found.add(ProblemKind::Block, &block.place, detail);
    }
    wrong.is_empty()
}

/// Checks the totals of the covered and the shown content.
fn check_sizes(verify: &mut Verify<'_>, block: &WholeBlock) -> StoreResult<()> {
    let row = &block.row;
    let replaced = block.replaced();
    let (mut covered, mut shown, mut last) = (0u64, Size::default(), 0);
    let mut outside = None;
    let sizes = verify
        .scan
        .sizes(row.loop_key, 0..row.through, &mut |message| {
            let turn = message.turn.unwrap_or_default();
            if message.role == Role::Extension {
                return Ok(ControlFlow::Continue(()));
            }
            covered = covered.saturating_add(message.size.tokens);
            last = turn;
            match block.section(turn) {
                Some(0) => shown.add(message.size),
                Some(2) if !replaced.contains_key(&message.seq) => shown.add(message.size),
                None => outside = outside.or(Some(message.seq)),
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        });
    if verify.found.readable(&block.place, sizes)?.is_none() {
        return Ok(());
    }
    for body in block.messages.iter().filter_map(|m| m.body.as_ref()) {
        if body.role != Role::Extension {
            shown.add(Size {
                tokens: body.tokens,
                bytes: body.bytes,
                messages: 1,
            });
        }
    }
    let (found, at) = (&mut verify.found, &block.place);
    if outside.is_some() || (row.layout.end() > 0 && last + 1 != row.layout.end()) {
        let (through, end) = (row.through, row.layout.end());
        let detail = format!("the messages before {through} are not those of its {end} turns");
        found.add(ProblemKind::Block, at, detail);
        return Ok(());
    }
    found.compare(ProblemKind::Count, at, "its size", &row.size, &shown);
    // A rollup also counts the loops before its own, some of which may have grown since.
    if !row.kind.covers_earlier_loops() || row.tokens_covered < covered {
        let kind = ProblemKind::Count;
        found.compare(kind, at, "tokens_covered", &row.tokens_covered, &covered);
    }
    Ok(())
}
