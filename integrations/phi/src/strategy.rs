//! Adapters of strategies: phi-core's for loopstore, and loopstore's for phi-core.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use loopstore::compact::{CompactRequest, CompactTrigger, compact_session_loops};
use loopstore::compaction::{
    BlockCompactionStrategy, CompactionConfig, CompactionPolicy, CompactionScope, ContextConfig,
    KeepRecent, LoopSlice, OlderLoops, RecentWindow, StrategyError, Summary, SummaryNotes,
};
use loopstore::extend::{SessionStore, Turns};
use loopstore::model::{LoopId, SessionId};
use loopstore::{AsyncStore, Policy, Store, extend as store};
use phi_core::context as theirs;
use phi_core::session::{LoopRecord, SessionFormation, SessionScope};

use super::convert;
use super::error::{PhiError, outcome};

/// The tokens of a window that every context fits.
const WIDE: u64 = 1 << 50;

/// A strategy of phi-core as a strategy of loopstore.
///
/// loopstore selects the kept turns, and the strategy writes the text. The strategy is called as for the summary of
/// an earlier loop, with only the selected turns. If the summary has messages, the turns of its range are recorded as
/// summarised, and the other turns as dropped.
pub struct FromPhi {
    name: String,
    strategy: Arc<dyn theirs::BlockCompactionStrategy>,
}

impl FromPhi {
    /// Returns an adapter of `strategy` under a name of its own, which is stored with each run.
    pub fn new(
        name: impl Into<String>,
        strategy: Arc<dyn theirs::BlockCompactionStrategy>,
    ) -> Self {
        Self {
            name: name.into(),
            strategy,
        }
    }
}

impl BlockCompactionStrategy for FromPhi {
    fn name(&self) -> &str {
        &self.name
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let placed = slice.messages(turns)?;
        let numbers: Vec<u32> = placed.iter().map(|one| one.turn).collect();
        let messages = placed
            .iter()
            .map(|one| convert::context_message(&one.message));
        let messages = messages.collect::<Result<_, _>>().map_err(failed)?;
        let record = record_of(&slice.session_id()?, slice.loop_id(), messages);
        let (config, strategy) = (convert::config_out(config), &self.strategy);
        let Some(section) = wait(summary_of(&**strategy, &record, &config))? else {
            return Ok(Summary::default());
        };
        let shown = section.messages.iter().map(convert::recorded_message);
        Ok(Summary {
            turns: covered(&record, &section, &numbers),
            messages: shown.collect::<Result<_, _>>().map_err(failed)?,
            notes: SummaryNotes::default(),
        })
    }
}

fn failed(error: impl std::fmt::Display) -> StrategyError {
    StrategyError::Failed(error.to_string())
}

async fn summary_of(
    strategy: &dyn theirs::BlockCompactionStrategy,
    record: &LoopRecord,
    config: &theirs::CompactionConfig,
) -> Option<theirs::CompactedSection> {
    let map = theirs::TurnMap::from_messages(&record.messages);
    strategy.keep_compacted(record, &map, config, false).await
}

/// Returns the turns that a section was made from; `numbers` has the turn of each message.
fn covered(
    record: &LoopRecord,
    section: &theirs::CompactedSection,
    numbers: &[u32],
) -> BTreeSet<u32> {
    if section.messages.is_empty() {
        return BTreeSet::new();
    }
    let map = theirs::TurnMap::from_messages(&record.messages);
    let (first, last) = (section.range.start_turn, section.range.end_turn);
    let last = last.min(map.turn_count().saturating_sub(1));
    let spans = (first..=last).filter_map(|turn| map.turn_msg_range(turn));
    let messages = spans.filter_map(|(from, to)| numbers.get(from..=to));
    messages.flatten().copied().collect()
}

/// Runs a future on a thread of its own, outside of any runtime.
fn wait<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, StrategyError> {
    let run = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(failed)?;
        Ok(runtime.block_on(future))
    };
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    done.unwrap_or_else(|_| Err(StrategyError::Failed("the strategy panicked".into())))
}

/// A strategy of loopstore as a strategy of phi-core.
///
/// Each record is compacted in a small database in memory, by loopstore's rules: turns are never
/// shown twice, a call stays with its result, and a loop that would not become smaller is kept word for
/// word. If the strategy fails, the record is kept as it is.
///
/// ```
/// use loopstore::DigestCompaction;
/// use loopstore_phi::IntoPhi;
/// use std::sync::Arc;
///
/// let digest = IntoPhi::new(Arc::new(DigestCompaction::default()));
/// let for_phi: Arc<dyn phi_core::context::BlockCompactionStrategy> = Arc::new(digest);
/// # drop(for_phi);
/// ```
#[derive(Clone)]
pub struct IntoPhi {
    strategy: Arc<dyn BlockCompactionStrategy>,
}

impl IntoPhi {
    /// Returns an adapter of `strategy`.
    pub fn new(strategy: Arc<dyn BlockCompactionStrategy>) -> Self {
        Self { strategy }
    }

    /// Returns the block of the strategy; `None` if it makes none.
    async fn block(
        &self,
        record: &LoopRecord,
        config: &theirs::CompactionConfig,
        is_most_recent: bool,
    ) -> Option<theirs::CompactionBlock> {
        let session = alone(record);
        let request = self.request(config, is_most_recent);
        let store = AsyncStore::from(Store::in_memory().ok()?);
        let done = store
            .call(move |store| compacted(store.database(), &session, &request))
            .await;
        outcome(done).ok().flatten()
    }

    fn request(&self, config: &theirs::CompactionConfig, is_most_recent: bool) -> CompactRequest {
        let turns = |turns: usize| match is_most_recent {
            true => u32::try_from(turns).unwrap_or(u32::MAX),
            false => 0,
        };
        CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens: WIDE,
                    ..ContextConfig::default()
                },
                CompactionConfig {
                    policy: CompactionPolicy::default(),
                    compaction_scope: CompactionScope::FixedCount(0),
                    older_loops: OlderLoops::Skip,
                    recent_window: RecentWindow::CurrentLoop,
                    keep_first_turns: turns(config.keep_first_turns),
                    keep_recent: KeepRecent::Turns(turns(config.keep_recent_turns)),
                    max_summary_tokens: config.max_summary_tokens as u64,
                    tool_output_max_lines: config.tool_output_max_lines,
                    block_strategy: Some(Arc::clone(&self.strategy)),
                    ..CompactionConfig::default()
                },
            ),
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        }
    }
}

#[async_trait]
impl theirs::BlockCompactionStrategy for IntoPhi {
    async fn keep_first(
        &self,
        record: &LoopRecord,
        _turn_map: &theirs::TurnMap,
        config: &theirs::CompactionConfig,
    ) -> Option<theirs::TurnRange> {
        self.compact(record, config, true).await.keep_first
    }

    async fn keep_recent(
        &self,
        record: &LoopRecord,
        _turn_map: &theirs::TurnMap,
        config: &theirs::CompactionConfig,
    ) -> Option<theirs::CompactedSection> {
        self.compact(record, config, true).await.keep_recent
    }

    async fn keep_compacted(
        &self,
        record: &LoopRecord,
        _turn_map: &theirs::TurnMap,
        config: &theirs::CompactionConfig,
        is_most_recent: bool,
    ) -> Option<theirs::CompactedSection> {
        let block = self.compact(record, config, is_most_recent).await;
        block.keep_compacted
    }

    async fn compact(
        &self,
        record: &LoopRecord,
        config: &theirs::CompactionConfig,
        is_most_recent: bool,
    ) -> theirs::CompactionBlock {
        match self.block(record, config, is_most_recent).await {
            Some(block) => block,
            None => kept(record, is_most_recent),
        }
    }
}

/// Returns a session with only this loop. phi-core leaves unknown ids empty.
fn alone(record: &LoopRecord) -> phi_core::Session {
    let named = |id: &str, else_: &str| if id.is_empty() { else_ } else { id }.to_owned();
    let record = LoopRecord {
        loop_id: named(&record.loop_id, "loop"),
        session_id: named(&record.session_id, "session"),
        parent_loop_id: None,
        compaction_block: None,
        turns: Vec::new(),
        ..record.clone()
    };
    phi_core::Session {
        session_id: record.session_id.clone(),
        agent_id: record.agent_id.clone(),
        created_at: record.started_at,
        last_active_at: record.started_at,
        formation: SessionFormation::Explicit {
            timestamp: record.started_at,
        },
        parent_spawn_ref: None,
        scope: SessionScope::Ephemeral,
        loops: vec![record],
    }
}

fn compacted(
    store: &dyn SessionStore,
    session: &phi_core::Session,
    request: &CompactRequest,
) -> Result<Option<theirs::CompactionBlock>, PhiError> {
    let taken = store::write(store, |write| {
        Ok(convert::import_session(write, store, session))
    })?;
    let report = taken?;
    let Some(id) = report.sessions.first() else {
        return Ok(None);
    };
    compact_session_loops(store, id, request)?;
    let mut session = convert::export_session(store, id)?;
    Ok(session
        .loops
        .pop()
        .and_then(|record| record.compaction_block))
}

/// Returns a block that shows the record as it is.
fn kept(record: &LoopRecord, is_most_recent: bool) -> theirs::CompactionBlock {
    let turns = theirs::TurnMap::from_messages(&record.messages).turn_count();
    let range = turns.checked_sub(1).map(|last| theirs::TurnRange {
        start_turn: 0,
        end_turn: last,
    });
    // Of an earlier loop phi-core shows the compacted section only.
    let section = |range| theirs::CompactedSection {
        range,
        messages: record.messages.clone(),
    };
    theirs::CompactionBlock {
        keep_first: range.clone().filter(|_| is_most_recent),
        keep_recent: None,
        keep_compacted: range.filter(|_| !is_most_recent).map(section),
        created_at: loopstore_model::clock::utc_now(),
    }
}

fn record_of(
    session: &SessionId,
    loop_id: &LoopId,
    messages: Vec<phi_core::AgentMessage>,
) -> LoopRecord {
    LoopRecord {
        loop_id: loop_id.to_string(),
        session_id: session.to_string(),
        agent_id: String::new(),
        parent_loop_id: None,
        continuation_kind: phi_core::ContinuationKind::Initial,
        started_at: loopstore_model::clock::utc_now(),
        ended_at: None,
        status: phi_core::LoopStatus::Completed,
        rejection: None,
        config: None,
        messages,
        turns: Vec::new(),
        usage: phi_core::Usage::default(),
        metadata: None,
        children_loop_ids: Vec::new(),
        child_loop_refs: Vec::new(),
        parallel_group: None,
        compaction_block: None,
    }
}
