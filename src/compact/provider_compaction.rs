//! The runs of compactions that providers make.
//!
//! Such a run has one block, active in contexts for its provider alone. A compaction that the provider made within
//! an answer stays in its message: the block keeps that message's turn from there on and covers everything before.
//! A compaction that replaces a whole conversation is the block's own text.

use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use super::{CompactionEnded, RecordedResult, RecordedRun};
use crate::compaction::{Recent, Summary};
use crate::context::view_for;
use crate::model::{AgentMessage, Content, Json, Role, SealingProvider, Time, Turns};
use crate::overlay::{BlockSpec, ChainSnapshot, CompactedAs, SealedRecord, turn_seqs};
use crate::store::append::AppendedCompaction;
use crate::store::session::run_owner;
use crate::store::{
    BlockKind, LoopKey, Outcome, StoreError, StoreRead, StoreResult, StoreWrite, decode,
};
use crate::tokens::TokenCounter;

/// The trigger of a compaction that a provider made while it answered.
const TRIGGER: &str = "provider";

/// Writes the runs of the compactions in messages that were just appended.
///
/// # Errors
/// If the store fails.
pub fn record_appended_compactions(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    found: &[AppendedCompaction],
) -> StoreResult<Vec<CompactionEnded>> {
    found
        .iter()
        .map(|sealed| seal(write, counter, *sealed))
        .collect()
}

fn seal(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    AppendedCompaction {
        loop_key,
        seq,
        provider,
    }: AppendedCompaction,
) -> StoreResult<CompactionEnded> {
    let (turn, message) = message_at(write, loop_key, seq)?;
    let lost = || StoreError::Damaged(format!("message {seq} holds no compaction"));
    let (place, _) = message.last_compaction().ok_or_else(lost)?;
    let started_at = message.message().and_then(|message| message.timestamp());
    let started_at = started_at.and_then(Time::from_millis);
    let view = view_for(Some(provider));
    let chain = ChainSnapshot::load(write, loop_key, view)?;
    let at = chain.leaf();
    let link = &chain.links[at];
    let item = item_of(&message, place).ok_or_else(lost)?;
    let record = SealedRecord::new(&link.row.loop_id, seq, &item);
    let run = RecordedRun {
        run_id: run_id(write, &chain, provider, &record)?,
        strategy: provider.strategy(),
        trigger: TRIGGER.to_owned(),
        started_at: started_at.unwrap_or_else(Time::now),
        duration_ms: 0,
        record: record.to_json(),
    };
    let mut spec = spec_of(provider, &run);
    if let Some(before) = Turns::of(0..turn) {
        spec.draft.compacted = Some((before, Summary::default()));
    }
    let mut replaced = before_in_turn(write, loop_key, turn, seq)?;
    if place > 0 {
        replaced.push((seq, Some(from_block(message, place))));
    }
    spec.draft.recent = Some(Recent {
        turns: Turns::only(turn),
        replaced,
    });
    chain.roll_up(write, at, &mut spec)?;
    let block = spec.build(write, link, counter)?;
    let made = RecordedResult {
        blocks: vec![block],
        outcome: Outcome::Committed,
        error: None,
    };
    run.commit(write, counter, (&chain, turn + 1), view, made)
}

/// The messages that a provider's compaction of a conversation replaces.
#[derive(Clone, Copy, Debug)]
pub struct CompactedExtent {
    #[doc(hidden)]
    pub leaf: LoopKey,
    #[doc(hidden)]
    pub provider: SealingProvider,
    /// The last message that it replaces; all messages if `None`.
    #[doc(hidden)]
    pub through: Option<(LoopKey, u32)>,
}

/// Writes the run of a provider's compaction that replaces all messages so far, in this loop
/// and before it.
///
/// # Errors
/// If there is no message to replace, if the last of these messages is no longer on the chain, or if the store fails.
pub fn record_provider_compaction(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    what: CompactedExtent,
    messages: Vec<AgentMessage>,
    mut run: RecordedRun,
) -> StoreResult<CompactionEnded> {
    let provider = what.provider;
    let view = view_for(Some(provider));
    let chain = ChainSnapshot::load(write, what.leaf, view)?;
    if let Some(item) = first_item(&messages, provider) {
        let through = what.through.and_then(|(key, seq)| {
            let link = &chain.links[chain.place(key)?];
            Some((&link.row.loop_id, seq))
        });
        run.record = SealedRecord::of_whole(&run.record, &item, through);
    }
    let end = match what.through {
        None => whole_before(&chain, chain.links.len()),
        Some(last) => end_at(write, &chain, last)?,
    };
    let (at, turns, recent) = end.ok_or_else(|| {
        StoreError::Invalid("nothing was said that a compaction could stand for".into())
    })?;
    let link = &chain.links[at];
    let mut spec = spec_of(provider, &run);
    let messages = messages.into_iter();
    let summary = Summary {
        messages: messages
            .filter(|message| message.role() != Role::Extension)
            .collect(),
        ..Summary::default()
    };
    spec.draft.compacted = Turns::of(0..turns).map(|turns| (turns, summary));
    spec.draft.recent = recent;
    chain.roll_up(write, at, &mut spec)?;
    let block = spec.build(write, link, counter)?;
    let made = RecordedResult {
        blocks: vec![block],
        outcome: Outcome::Committed,
        error: None,
    };
    let turns = chain.links[chain.leaf()].turns;
    run.commit(write, counter, (&chain, turns), view, made)
}

/// The depth of the loop of a compaction's block, the number of its turns that are replaced, and the kept part
/// of the turn after them.
type CoveredEnd = (usize, u32, Option<Recent>);

/// Returns the last loop before a place that has turns, with all of them.
fn whole_before(chain: &ChainSnapshot, end: usize) -> Option<CoveredEnd> {
    let at = chain.links[..end].iter().rposition(|link| link.turns > 0)?;
    Some((at, chain.links[at].turns, None))
}

/// Returns the end of a compaction that replaces everything through a message. Of the first turn of a loop
/// that has messages after it nothing is left out: a block needs a turn before its kept part.
fn end_at(
    read: &dyn StoreRead,
    chain: &ChainSnapshot,
    (loop_key, seq): (LoopKey, u32),
) -> StoreResult<Option<CoveredEnd>> {
    let at = chain
        .place(loop_key)
        .filter(|at| seq < chain.links[*at].end_seq);
    let at = at.ok_or_else(|| {
        StoreError::Invalid("what the compaction stands for was taken back meanwhile".into())
    })?;
    let (turn, _) = message_at(read, loop_key, seq)?;
    let seqs = turn_seqs(read, loop_key, Turns::only(turn), chain.links[at].end_seq)?;
    let mut goes_on = false;
    read.sizes(loop_key, seq.saturating_add(1)..seqs.end, &mut |message| {
        goes_on |= message.role != Role::Extension;
        Ok(ControlFlow::Continue(()))
    })?;
    if !goes_on {
        return Ok(Some((at, turn + 1, None)));
    }
    if turn == 0 {
        return Ok(whole_before(chain, at));
    }
    let recent = Recent {
        turns: Turns::only(turn),
        replaced: before_in_turn(read, loop_key, turn, seq + 1)?,
    };
    Ok(Some((at, turn, Some(recent))))
}

fn spec_of(provider: SealingProvider, run: &RecordedRun) -> BlockSpec {
    let kind = BlockKind::Sealed(provider);
    let mut spec = BlockSpec::unchanged(kind, 0, &run.strategy, run.started_at.as_str());
    spec.compacted_as = CompactedAs::RolledUp;
    spec
}

/// Returns the id of the run: the same whenever the same answer is recorded in the same place.
fn run_id(
    read: &dyn StoreRead,
    chain: &ChainSnapshot,
    provider: SealingProvider,
    record: &SealedRecord,
) -> StoreResult<String> {
    let session = read.session_by_key(chain.links[chain.leaf()].row.session)?;
    let owner = run_owner(read, &session.session_id)?;
    let mut hash = Sha256::new();
    let seq = record.seq.to_string();
    let parts = [
        owner.as_str(),
        record.loop_id.as_str(),
        &seq,
        &record.sha256,
    ];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hex::encode(hash.finalize());
    Ok(format!("{}-{}", provider.as_str(), &digest[..24]))
}

fn message_at(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seq: u32,
) -> StoreResult<(u32, AgentMessage)> {
    let mut found = None;
    read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
        found = Some((row.turn.unwrap_or_default(), decode(read, row.body)?));
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| StoreError::Damaged(format!("message {seq} is missing")))
}

/// Returns the messages of a turn before one of it, as gone.
fn before_in_turn(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    turn: u32,
    seq: u32,
) -> StoreResult<Vec<(u32, Option<AgentMessage>)>> {
    let mut gone = Vec::new();
    let seqs = turn_seqs(read, loop_key, Turns::only(turn), seq)?;
    read.sizes(loop_key, seqs, &mut |message| {
        if message.role != Role::Extension {
            gone.push((message.seq, None));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(gone)
}

/// Returns the item of the compaction that a list of messages begins with: the last of its message.
fn first_item(messages: &[AgentMessage], provider: SealingProvider) -> Option<Json> {
    let places = messages
        .iter()
        .map(|message| (message, message.last_compaction()));
    let mut own = places.filter_map(|(message, found)| {
        let (place, _) = found.filter(|(_, by)| *by == provider)?;
        item_of(message, place)
    });
    own.next()
}

fn item_of(message: &AgentMessage, place: usize) -> Option<Json> {
    let block = message.message()?.content().get(place)?;
    match block {
        Content::Sealed(sealed) => Some(sealed.item.clone()),
        _ => None,
    }
}

/// Returns the message from one of its blocks on.
fn from_block(mut message: AgentMessage, place: usize) -> AgentMessage {
    if let Some(inner) = message.message_mut() {
        inner.content_mut().drain(..place);
    }
    message
}
