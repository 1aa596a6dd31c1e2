//! Blocks in the interchange form, which phi-core writes: the checks before a block is stored, and the conversion of
//! a stored block to that form.

use std::ops::ControlFlow;

use super::{BlockSpec, ImportedCompaction, Replacement, summary_of, turn_seqs};
use crate::compaction::Recent;
use crate::model::{
    AgentMessage, CompactedSection, CompactionBlock, Extra, Layout, Role, Time, TurnRange, Turns,
};
use crate::store::active_blocks::ChainLink;
use crate::store::{
    BlockRow, CallSite, LoopKey, Section, StoreError, StoreRead, StoreResult, codec, decode,
    shown_message,
};

/// The field of a block with the id of the run that made it, in exported blocks of loopstore's own.
pub const OWN_RUN: &str = "loopstore_run";

/// The reason why a block cannot be stored.
pub type Broken = String;

/// Returns the specification of the block that phi-core made on the leaf.
pub fn block_spec(
    compaction: &ImportedCompaction<'_>,
    block: &CompactionBlock,
) -> StoreResult<Result<BlockSpec, Broken>> {
    let (read, at) = (compaction.read, compaction.chain.leaf());
    let link = &compaction.chain.links[at];
    let layout = match layout(block, link.turns, link.complete) {
        Ok(layout) => layout,
        Err(broken) => return Ok(Err(broken)),
    };
    if let Some(broken) = check_pairs(read, link.row.key, &layout)? {
        return Ok(Err(broken));
    }
    let mut spec = compaction.unchanged(at, 0);
    spec.draft.first = layout.first;
    if let (Some(section), Some(turns)) = (&block.keep_compacted, layout.compacted) {
        spec.draft.compacted = summary_of(turns.first..turns.end(), section.messages.clone());
    }
    if let (Some(section), Some(turns)) = (&block.keep_recent, layout.recent) {
        match replacements(read, link, turns, &section.messages)? {
            Ok(replaced) => spec.draft.recent = Some(Recent { turns, replaced }),
            Err(broken) => return Ok(Err(broken)),
        }
    }
    spec.extra = Some(codec::to_json(&without_messages(block.clone()))?);
    Ok(Ok(spec))
}

fn without_messages(mut block: CompactionBlock) -> CompactionBlock {
    let sections = [&mut block.keep_compacted, &mut block.keep_recent];
    for section in sections.into_iter().flatten() {
        section.messages.clear();
    }
    block
}

/// Checks that the sections are in order and cover each turn once.
fn layout(block: &CompactionBlock, turns: u32, complete: u32) -> Result<Layout, Broken> {
    let compacted = block.keep_compacted.as_ref().map(|section| &section.range);
    let recent = block.keep_recent.as_ref().map(|section| &section.range);
    let mut next = 0;
    let mut take = |name: &str, range: Option<&TurnRange>| -> Result<Option<Turns>, Broken> {
        let Some(range) = range else { return Ok(None) };
        let turns = checked(name, range, next, turns)?;
        next = turns.end();
        Ok(Some(turns))
    };
    let layout = Layout {
        first: take("keep_first", block.keep_first.as_ref())?,
        compacted: take("keep_compacted", compacted)?,
        recent: take("keep_recent", recent)?,
    };
    if next < turns {
        return Err(format!(
            "the sections end before turn {next}, but the loop has {turns} turns"
        ));
    }
    if complete < turns {
        return Err(format!("turn {complete} is covered but still in flight"));
    }
    Ok(layout)
}

fn checked(name: &str, range: &TurnRange, next: u32, turns: u32) -> Result<Turns, Broken> {
    let (start, end) = (range.start.get(), range.end.get());
    let Some((first, last)) = range.bounds() else {
        return Err(format!("{name}: {start} to {end} is not a range of turns"));
    };
    if last >= turns {
        return Err(format!(
            "{name}: turns {first} to {last} reach beyond the loop, which has {turns} turns"
        ));
    }
    if first > next && next == 0 {
        return Err(format!(
            "{name}: the sections begin at turn {first}, not at turn 0"
        ));
    }
    if first > next {
        return Err(format!(
            "{name}: there is a gap before turn {first}, from turn {next} on"
        ));
    }
    if first < next {
        return Err(format!(
            "{name}: turn {first} is in the section before, which ends with turn {}",
            next - 1
        ));
    }
    Ok(Turns { first, last })
}

/// Returns the error if a call and its result are in different sections.
fn check_pairs(read: &dyn StoreRead, key: LoopKey, layout: &Layout) -> StoreResult<Option<Broken>> {
    for (turn, sites) in read.answers(key, 0..layout.end())? {
        let parted = |site: &CallSite| {
            site.loop_key == key && layout.section_of(site.turn) != layout.section_of(turn)
        };
        if let Some(site) = sites.into_iter().find(parted) {
            return Ok(Some(format!(
                "a call in turn {} and its result in turn {turn} are in different sections",
                site.turn
            )));
        }
    }
    Ok(None)
}

/// Matches the messages of `keep_recent` to the originals; equal ones need no replacement.
fn replacements(
    read: &dyn StoreRead,
    link: &ChainLink,
    turns: Turns,
    messages: &[AgentMessage],
) -> StoreResult<Result<Vec<Replacement>, Broken>> {
    let mut places = Vec::new();
    read.sizes(
        link.row.key,
        turn_seqs(read, link.row.key, turns, link.end_seq)?,
        &mut |message| {
            places.push((message.seq, message.role));
            Ok(ControlFlow::Continue(()))
        },
    )?;
    let all = turn_range(&places, |(_, role)| *role == Role::Extension);
    let places = &places[all];
    let has_notes = messages.len() == places.len();
    let notes = places.iter().filter(|(_, role)| *role == Role::Extension);
    let notes = notes.count();
    if !has_notes && messages.len() + notes != places.len() {
        return Ok(Err(format!(
            "keep_recent: {} messages stand for the {} of its turns",
            messages.len(),
            places.len()
        )));
    }
    let (mut recent, mut messages) = (Vec::new(), messages.iter());
    for (seq, role) in places.iter().copied() {
        let is_left_out = role == Role::Extension && !has_notes;
        let message = if is_left_out { None } else { messages.next() };
        let Some(message) = message else {
            recent.push((seq, None));
            continue;
        };
        let original = read_one(read, link.row.key, seq)?;
        if codec::to_json(&original)? != codec::to_json(message)? {
            recent.push((seq, Some(message.clone())));
        }
    }
    Ok(Ok(recent))
}

/// Returns the range of the turns: notes around them belong to none.
fn turn_range<T>(places: &[T], is_note: impl Fn(&T) -> bool) -> std::ops::Range<usize> {
    let first = places.iter().position(|place| !is_note(place));
    let last = places.iter().rposition(|place| !is_note(place));
    first.unwrap_or(0)..last.map_or(0, |last| last + 1)
}

fn read_one(read: &dyn StoreRead, key: LoopKey, seq: u32) -> StoreResult<AgentMessage> {
    let mut found = None;
    read.messages(key, seq..seq.saturating_add(1), &mut |row| {
        found = Some(decode(read, row.body)?);
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| StoreError::Damaged(format!("message {seq} is missing")))
}

/// Returns a stored foreign block as in its transcript; `None` if the block is not foreign.
///
/// # Errors
/// If the database is damaged.
pub fn restore_block(
    read: &dyn StoreRead,
    link: &ChainLink,
    row: &BlockRow,
) -> StoreResult<Option<CompactionBlock>> {
    match row.extra {
        Some(_) => block_form(read, link, row).map(Some),
        None => Ok(None),
    }
}

/// Returns a stored block in the interchange form, with all messages that its sections show.
///
/// # Errors
/// If the database is damaged.
pub fn block_form(
    read: &dyn StoreRead,
    link: &ChainLink,
    row: &BlockRow,
) -> StoreResult<CompactionBlock> {
    let mut block: CompactionBlock = match &row.extra {
        Some(extra) => serde_json::from_str(extra).map_err(|error| {
            StoreError::Damaged(format!("a foreign block cannot be read: {error}"))
        })?,
        None => bare_form(row),
    };
    let (mut compacted, mut replaced) = (Vec::new(), Vec::new());
    for message in read.block_messages(row.key)? {
        let (section, replaces) = (message.section, message.replaces);
        let shown = shown_message(read, row.quoting(), message)?;
        match (section, replaces) {
            (Section::Recent, Some(seq)) => replaced.push((seq, shown)),
            _ => compacted.extend(shown),
        }
    }
    if let Some(section) = &mut block.keep_compacted {
        section.messages = compacted;
    }
    if let (Some(section), Some(turns)) = (&mut block.keep_recent, row.layout.recent) {
        section.messages = shown_recent(read, link, turns, replaced)?;
    }
    Ok(block)
}

/// Returns the sections of a block of loopstore's own, without messages.
fn bare_form(row: &BlockRow) -> CompactionBlock {
    let range = |turns: Turns| TurnRange::new(turns.first, turns.last);
    let section = |turns| CompactedSection {
        range: range(turns),
        messages: Vec::new(),
        extra: Extra::default(),
    };
    CompactionBlock {
        keep_first: row.layout.first.map(range),
        keep_compacted: row.layout.compacted.map(section),
        keep_recent: row.layout.recent.map(section),
        created_at: Some(Time::from_text(&row.created_at)),
        extra: Extra::default(),
    }
}

fn shown_recent(
    read: &dyn StoreRead,
    link: &ChainLink,
    turns: Turns,
    replaced: Vec<(u32, Option<AgentMessage>)>,
) -> StoreResult<Vec<AgentMessage>> {
    let mut replaced = replaced.into_iter().peekable();
    let mut shown = Vec::new();
    read.messages(
        link.row.key,
        turn_seqs(read, link.row.key, turns, link.end_seq)?,
        &mut |message| {
            match replaced.next_if(|(seq, _)| *seq == message.seq) {
                Some((_, cut)) => shown.extend(cut),
                None => shown.push(decode(read, message.body)?),
            }
            Ok(ControlFlow::Continue(()))
        },
    )?;
    let within = turn_range(&shown, |message| message.role() == Role::Extension);
    Ok(shown.drain(within).collect())
}
