//! Random sessions in phi-core and in loopstore: after each step the contexts are equal, or a known defect of
//! phi-core explains the difference.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loopstore::compact::CompactOutcome;
use loopstore::extend::active_blocks::{ActiveBlocks, ChainView};
use loopstore::extend::{self as store, append, session};
use loopstore::*;
use loopstore_phi::recorded_message;
use phi_core::context as theirs;

use super::defects::{ALL, Defect, WIDE, recognised, repaired};
use super::stage::*;
use super::world::{World, loop_name};
use crate::support::amount::amount;

/// The number of equal contexts, and of differences by defect.
#[derive(Debug, Default)]
struct Tally {
    equal: u64,
    equal_after_compaction: u64,
    /// The number of differences that `repaired` removed exactly.
    repaired: u64,
    explained: BTreeMap<Defect, u64>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.equal += other.equal;
        self.equal_after_compaction += other.equal_after_compaction;
        self.repaired += other.repaired;
        for (defect, times) in other.explained {
            *self.explained.entry(defect).or_default() += times;
        }
    }
}

/// The same session in phi-core and in loopstore.
struct Twin<'a> {
    world: World,
    store: &'a SqliteStore,
    id: SessionId,
    config: theirs::CompactionConfig,
}

fn own_id(at: usize) -> LoopId {
    LoopId::new(loop_name(at)).unwrap()
}

impl<'a> Twin<'a> {
    fn new(seed: u64, store: &'a SqliteStore) -> Self {
        let mut world = World::new(seed);
        let config = world.config();
        let id = SessionId::new(format!("s{seed}")).unwrap();
        store::write(store, |write| {
            let record = Session::new(id.clone(), "agent");
            session::create_session(write, &record, None, None)
        })
        .unwrap();
        let twin = Self {
            world,
            store,
            id,
            config,
        };
        twin.begin_own(None, None);
        twin
    }

    fn begin_own(&self, parent: Option<usize>, cut: Option<u32>) {
        let mut record = LoopRecord::new(own_id(self.world.leaf), parent.map(own_id));
        record.parent_turn = cut.map(|cut| i64::from(cut).into());
        self.write(|write, key| session::create_loop(write, key, &record).map(drop));
    }

    fn write(
        &self,
        work: impl FnOnce(&mut dyn store::StoreWrite, store::SessionKey) -> Result<(), StoreError>,
    ) {
        store::write(self.store, |write| {
            let key = write.session(&self.id)?.unwrap().key;
            work(write, key)
        })
        .unwrap();
    }

    fn append(&mut self) {
        let messages = self.world.turn();
        let own: Vec<_> = messages
            .iter()
            .map(|message| recorded_message(message).unwrap().into())
            .collect();
        let leaf = self.world.leaf;
        self.world.session.loops[leaf].messages.extend(messages);
        self.write(|write, key| {
            let row = write.loop_by_id(key, &own_id(leaf))?.unwrap();
            append::append(write, row.key, own, &HeuristicTokenCounter).map(drop)
        });
    }

    fn begin_loop(&mut self) {
        let leaf = self.world.leaf;
        let cut = match self.world.traits.forks && self.world.random.one_in(2) {
            true => self.world.cut_of(leaf),
            false => None,
        };
        self.world.begin_loop(Some(leaf), cut);
        self.begin_own(Some(leaf), cut);
    }

    async fn compact(&mut self) {
        let (leaf, config) = (self.world.leaf().loop_id.clone(), self.config.clone());
        let strategy = theirs::DefaultBlockCompaction;
        let session = &mut self.world.session;
        theirs::compact_session_loops(session, &leaf, &strategy, &config, WIDE, None).await;
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens: WIDE as u64,
                    ..ContextConfig::default()
                },
                own_config(&config),
            ),
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        let report = compact_session_loops(self.store, &self.id, &request).unwrap();
        let fine = [
            CompactOutcome::Committed,
            CompactOutcome::NoGain,
            CompactOutcome::NotNeeded,
        ];
        assert!(fine.contains(&report.outcome), "{report:?}");
    }

    /// Returns true if an active run states the width of its recent window: by default the window extends into
    /// the chain, which phi-core does not support.
    fn has_its_options(&self) -> bool {
        store::read(self.store, |read| {
            let key = read.session(&self.id)?.unwrap().key;
            let leaf = read.loop_by_id(key, &own_id(self.world.leaf))?.unwrap();
            ActiveBlocks::new(read, leaf.key, ChainView::default()).newest_live_run()
        })
        .unwrap()
        .is_some()
    }

    fn compare(&self, compacted: bool, tally: &mut Tally) {
        if !self.has_its_options() {
            return;
        }
        let leaf = &self.world.leaf().loop_id;
        let (session, config) = (&self.world.session, &self.config);
        let expected = theirs::build_context_from_session(session, leaf, config, WIDE, None);
        let options = BuildOptions {
            older_loops: Some(OlderLoops::Skip),
            scope: Some(own_config(config).compaction_scope),
            ..BuildOptions::default()
        };
        let found = build_context_from_session(self.store, &self.id, &options).unwrap();
        let (expected, found) = (all_plain(&expected), all_plain(&found.messages));
        if expected == found {
            tally.equal += 1;
            tally.equal_after_compaction += u64::from(compacted);
            return;
        }
        let defects = recognised(&self.world, config);
        assert!(
            !defects.is_empty(),
            "no defect explains this: {config:?}\n{:#?}\nphi-core {expected:#?}\nloopstore {found:#?}",
            self.world.outline()
        );
        if let Some(repaired) = repaired(&self.world, config, &defects) {
            assert_eq!(found, all_plain(&repaired), "{:#?}", self.world.outline());
            tally.repaired += 1;
        }
        for defect in defects {
            *tally.explained.entry(defect).or_default() += 1;
        }
    }
}

fn own_config(config: &theirs::CompactionConfig) -> CompactionConfig {
    CompactionConfig {
        compaction_scope: match config.compaction_scope {
            theirs::CompactionScope::FixedCount(count) => CompactionScope::FixedCount(count),
            theirs::CompactionScope::TokenBudget => CompactionScope::TokenBudget,
        },
        older_loops: OlderLoops::Skip,
        recent_window: RecentWindow::CurrentLoop,
        keep_first_turns: config.keep_first_turns as u32,
        keep_recent: KeepRecent::Turns(config.keep_recent_turns as u32),
        max_summary_tokens: config.max_summary_tokens as u64,
        tool_output_max_lines: config.tool_output_max_lines,
        block_strategy: Some(Arc::new(DefaultBlockCompaction)),
        ..CompactionConfig::default()
    }
}

async fn play(seed: u64, store: &SqliteStore, tally: &mut Tally) {
    let mut twin = Twin::new(seed, store);
    let steps = twin.world.random.below(16) + 6;
    let first_run = twin.world.random.below(steps);
    for step in 0..steps {
        let compacted = step == first_run || step > first_run && twin.world.random.one_in(4);
        match twin.world.random.below(7) {
            _ if compacted => twin.compact().await,
            0 => twin.begin_loop(),
            _ => twin.append(),
        }
        twin.compare(compacted, tally);
    }
}

/// Plays every second session from `first` on.
fn play_half(first: u64, sessions: u64) -> Tally {
    let (runtime, mut tally) = (runtime(), Tally::default());
    let mut store = SqliteStore::in_memory().unwrap();
    for seed in (first..=sessions).step_by(2) {
        if seed % 400 <= 1 {
            store = SqliteStore::in_memory().unwrap();
        }
        let played = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(play(seed, &store, &mut tally));
        }));
        assert!(played.is_ok(), "the session of seed {seed} fails");
    }
    tally
}

#[test]
fn contexts_are_equal_or_a_known_defect_explains_why_not() {
    let sessions = amount("LOOPSTORE_HISTORIES", 1500);
    let other = std::thread::spawn(move || play_half(2, sessions));
    let mut tally = play_half(1, sessions);
    tally.add(other.join().unwrap());
    println!("{tally:?}");
    assert!(tally.equal > sessions, "{tally:?}");
    assert!(tally.equal_after_compaction > sessions / 4, "{tally:?}");
    assert!(tally.repaired > sessions / 4, "{tally:?}");
    if sessions < 1500 {
        return;
    }
    // This many sessions have every defect of the list.
    let shown: Vec<&Defect> = tally.explained.keys().collect();
    assert_eq!(shown, ALL.iter().collect::<Vec<_>>(), "all of them");
}
