//! A strategy of phi-core in loopstore, and a strategy of loopstore in phi-core.

use std::sync::Arc;

use async_trait::async_trait;
use loopstore::compact::CompactOutcome;
use loopstore::extend as store;
use loopstore::extend::Turns;
use loopstore::*;
use loopstore_phi::{FromPhi, IntoPhi, PhiSessionStore};
use phi_core::context as theirs;
use phi_core::session::{LoopRecord as TheirRecord, SessionStore};

use super::defects::WIDE;
use super::stage::*;
use super::world::World;

/// Returns a session of one loop with this many turns.
fn session(seed: u64, turns: usize) -> World {
    let mut world = World::new(seed);
    for _ in 0..turns {
        let turn = world.turn();
        world.session.loops[0].messages.extend(turn);
    }
    world.session.loops[0].status = phi_core::LoopStatus::Completed;
    world
}

async fn compacted(
    world: &World,
    strategy: Arc<dyn BlockCompactionStrategy>,
) -> (CompactReport, Vec<String>) {
    let store = in_memory();
    let sessions = PhiSessionStore::new(store.clone());
    sessions.save(&world.session).await.unwrap();
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 1,
                keep_recent: KeepRecent::Turns(3),
                max_summary_tokens: 200,
                block_strategy: Some(strategy),
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    let chat = store.session("s").unwrap();
    let report = chat.compact(&request).await.unwrap();
    let context = chat.context().await.unwrap();
    (report, all_plain(&context.messages))
}

#[test]
fn phi_cores_default_makes_the_same_text_as_ours() {
    runtime().block_on(async {
        let mut committed = 0;
        for seed in 1..=60 {
            let world = session(seed, 14);
            let phi = FromPhi::new("phi-default", Arc::new(theirs::DefaultBlockCompaction));
            let (report, found) = compacted(&world, Arc::new(phi)).await;
            let (own, expected) = compacted(&world, Arc::new(DefaultBlockCompaction)).await;
            assert_eq!(found, expected, "seed {seed}");
            assert_eq!(report.outcome, own.outcome, "seed {seed}");
            assert_eq!(report.strategy, "phi-default");
            committed += u32::from(report.outcome == CompactOutcome::Committed);
        }
        assert!(committed > 30, "only {committed} runs were committed");
    });
}

/// A strategy that summarises with one message after a delay.
struct Late;

#[async_trait]
impl theirs::BlockCompactionStrategy for Late {
    async fn keep_first(
        &self,
        _: &TheirRecord,
        _: &theirs::TurnMap,
        _: &theirs::CompactionConfig,
    ) -> Option<theirs::TurnRange> {
        panic!("which turns are kept is not asked")
    }

    async fn keep_recent(
        &self,
        _: &TheirRecord,
        _: &theirs::TurnMap,
        _: &theirs::CompactionConfig,
    ) -> Option<theirs::CompactedSection> {
        panic!("which turns are kept is not asked")
    }

    async fn keep_compacted(
        &self,
        record: &TheirRecord,
        map: &theirs::TurnMap,
        config: &theirs::CompactionConfig,
        _: bool,
    ) -> Option<theirs::CompactedSection> {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(config.max_summary_tokens == 200, "told by a panic");
        let text = format!("{} messages", record.messages.len());
        Some(theirs::CompactedSection {
            range: theirs::TurnRange {
                start_turn: 0,
                end_turn: map.turn_count() - 2,
            },
            messages: vec![phi_core::Message::user(text).into()],
        })
    }
}

#[test]
fn a_strategy_that_waits_is_waited_for_also_within_a_runtime() {
    runtime().block_on(async {
        let world = session(4, 14);
        let store = in_memory();
        let sessions = PhiSessionStore::new(store.clone());
        sessions.save(&world.session).await.unwrap();
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig::default(),
                CompactionConfig {
                    max_summary_tokens: 200,
                    keep_recent: KeepRecent::Turns(3),
                    block_strategy: Some(Arc::new(FromPhi::new("late", Arc::new(Late)))),
                    ..CompactionConfig::default()
                },
            ),
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        let id = SessionId::new("s").unwrap();
        // This is a thread of the runtime, which cannot wait for a second runtime.
        let report = compact_session_loops(store.blocking().database(), &id, &request).unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
        let coverage = &report.blocks[0].coverage;
        assert!(coverage.get(store::Disposition::Summarised) > 0);
        assert!(
            coverage.get(store::Disposition::Dropped) > 0,
            "the last turn is not named"
        );
    });
}

#[test]
fn a_strategy_that_panics_fails_its_run_and_nothing_else() {
    runtime().block_on(async {
        let world = session(4, 14);
        let store = in_memory();
        PhiSessionStore::new(store.clone())
            .save(&world.session)
            .await
            .unwrap();
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig::default(),
                CompactionConfig {
                    max_summary_tokens: 7,
                    keep_recent: KeepRecent::Turns(3),
                    block_strategy: Some(Arc::new(FromPhi::new("late", Arc::new(Late)))),
                    ..CompactionConfig::default()
                },
            ),
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        let chat = store.session("s").unwrap();
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.outcome, CompactOutcome::Failed);
        assert_eq!(report.error.as_deref(), Some("the strategy panicked"));
        let context = chat.context().await.unwrap();
        let raw = &world.session.loops[0].messages;
        let raw: Vec<_> = raw.iter().filter(|m| m.as_llm().is_some()).collect();
        assert_eq!(all_plain(&context.messages), all_plain(&raw));
    });
}

fn their_config() -> theirs::CompactionConfig {
    theirs::CompactionConfig {
        keep_first_turns: 1,
        keep_recent_turns: 3,
        max_summary_tokens: 200,
        compaction_scope: theirs::CompactionScope::FixedCount(3),
        ..theirs::CompactionConfig::default()
    }
}

async fn their_context(
    world: &mut World,
    strategy: &dyn theirs::BlockCompactionStrategy,
) -> Vec<String> {
    let (leaf, config) = (world.leaf().loop_id.clone(), their_config());
    let session = &mut world.session;
    theirs::compact_session_loops(session, &leaf, strategy, &config, WIDE, None).await;
    let context = theirs::build_context_from_session(session, &leaf, &config, WIDE, None);
    all_plain(&context)
}

#[test]
fn our_strategies_make_blocks_for_phi_core() {
    let ours: [Arc<dyn BlockCompactionStrategy>; 2] = [
        Arc::new(DefaultBlockCompaction),
        Arc::new(DigestCompaction::default()),
    ];
    runtime().block_on(async {
        for seed in 1..=25 {
            for own in &ours {
                let mut world = session(seed, 12);
                if world.traits.extensions {
                    continue;
                }
                let (_, expected) = compacted(&world, Arc::clone(own)).await;
                let bridge = IntoPhi::new(Arc::clone(own));
                let found = their_context(&mut world, &bridge).await;
                assert_eq!(found.len(), expected.len(), "seed {seed} {}", own.name());
                if own.name() != loopstore::extend::compaction::DIGEST {
                    assert_eq!(found, expected, "seed {seed}");
                }
            }
        }
    });
}

#[test]
fn an_earlier_loop_is_summarised_whole_and_a_short_one_kept() {
    runtime().block_on(async {
        for seed in 1..=12 {
            let mut world = session(seed, 10);
            world.begin_loop(Some(0), None);
            let turn = world.turn();
            world.session.loops[1].messages.extend(turn);
            let bridge = IntoPhi::new(Arc::new(DefaultBlockCompaction));
            let context = their_context(&mut world, &bridge).await;
            let [earlier, current] = &world.session.loops[..] else {
                panic!("two loops")
            };
            let section = earlier.compaction_block.as_ref().unwrap();
            let section = section.keep_compacted.as_ref().unwrap();
            assert!(section.messages.len() <= earlier.messages.len());
            let tail = &context[section.messages.len()..];
            assert_eq!(tail, all_plain(&current.messages), "seed {seed}");
        }
    });
}

/// A strategy that always fails.
struct Failing;

impl BlockCompactionStrategy for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Err(StrategyError::Failed("no".into()))
    }
}

#[test]
fn a_record_that_cannot_be_compacted_is_kept_as_it_is() {
    runtime().block_on(async {
        let mut world = session(2, 12);
        let raw = all_plain(&world.session.loops[0].messages);
        let failing = IntoPhi::new(Arc::new(Failing));
        assert_eq!(their_context(&mut world, &failing).await, raw);
        world.begin_loop(Some(0), None);
        world.session.loops[0].compaction_block = None;
        assert_eq!(their_context(&mut world, &failing).await, raw);
    });
}
