//! Rollups: loops before the scope are replaced by one bounded summary, and each of them is accounted for.

mod leaf;

use loopstore::compact::{CompactOutcome, FlipRequest};
use loopstore::compaction::*;
use loopstore::extend::{self as store, BlockKind, append, session};
use loopstore::model::*;
use loopstore::*;

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

fn loop_id(at: usize) -> LoopId {
    LoopId::new(format!("loop-{at}")).unwrap()
}

/// Starts the next loop of a chain, with `turns` turns of about 40 tokens.
fn start(store: &SqliteStore, at: usize, turns: u32) {
    store::write(store, |write| {
        let key = match write.session(&id())? {
            Some(row) => row.key,
            None => session::create_session(write, &Session::new(id(), "agent"), None, None)?,
        };
        let parent = at.checked_sub(1).map(loop_id);
        let key = session::create_loop(write, key, &LoopRecord::new(loop_id(at), parent))?;
        let messages = (0..turns).flat_map(|turn| {
            let place = || TurnId::new("l", turn);
            let prompt = format!("prompt {at} {turn} {}", "and so on ".repeat(8));
            let answer = AssistantMessage {
                content: vec![Content::text(format!("answer {at} {turn}"))],
                ..AssistantMessage::default()
            };
            [
                AgentMessage::from(Message::user(prompt))
                    .in_turn(place())
                    .into(),
                AgentMessage::from(Message::Assistant(answer))
                    .in_turn(place())
                    .into(),
            ]
        });
        append::append(write, key, messages.collect(), &HeuristicTokenCounter)
    })
    .unwrap();
}

fn request() -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                policy: loopstore::CompactionPolicy::Headroom {
                    compact_at_pct: 0.0,
                    compact_budget_threshold_pct: 0.05,
                },
                keep_recent: loopstore::KeepRecent::Turns(2),
                compaction_scope: CompactionScope::FixedCount(1),
                max_rollup_tokens: 60,
                block_strategy: Some(std::sync::Arc::new(DefaultBlockCompaction)),
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    }
}

fn compact(store: &SqliteStore) -> CompactReport {
    compact_session_loops(store, &id(), &request()).unwrap()
}

fn context(store: &SqliteStore) -> Context {
    build_context_from_session(store, &id(), &BuildOptions::default()).unwrap()
}

fn query(store: &SqliteStore, sql: &str) -> String {
    format!("{:?}", store.query(sql).unwrap().rows)
}

#[test]
fn loops_before_the_scope_go_into_one_summary_that_is_extended() {
    let store = SqliteStore::in_memory().unwrap();
    for at in 0..5 {
        start(&store, at, 4);
    }
    let first = compact(&store);
    assert_eq!(first.outcome, CompactOutcome::Committed);
    assert_eq!(first.blocks[0].kind, BlockKind::Rollup);
    assert_eq!(first.blocks[0].loop_id, loop_id(2));
    assert_eq!(
        first.blocks[0].coverage.get(store::Disposition::RolledUp),
        24
    );
    let seen = context(&store);
    assert_eq!(
        seen.parts[0].section,
        loopstore::context::PartSection::Rollup
    );
    assert!(seen.parts[0].tokens <= 60);
    assert_eq!(seen.tokens, first.after.tokens);
    let again = compact(&store);
    assert_eq!(
        again.outcome,
        CompactOutcome::NotNeeded,
        "nothing new: {again:?}"
    );

    start(&store, 5, 4);
    start(&store, 6, 4);
    let second = compact(&store);
    assert_eq!(second.outcome, CompactOutcome::Committed);
    assert_eq!(second.blocks[0].loop_id, loop_id(4));
    let extends = "SELECT extends FROM v_compaction_blocks WHERE kind = 'rollup' ORDER BY loop_id";
    assert_eq!(query(&store, extends), r#"[[null], ["loop-2#1"]]"#);
    let added = "SELECT DISTINCT loop_id FROM v_coverage WHERE block_loop_id = 'loop-4'
        AND disposition = 'rolled_up' ORDER BY 1";
    assert_eq!(query(&store, added), r#"[["loop-3"], ["loop-4"]]"#);
    assert_eq!(context(&store).tokens, second.after.tokens);

    undo(&store, &id(), &FlipRequest::default()).unwrap();
    let undone = context(&store);
    assert_eq!(
        undone.parts[0].loop_id,
        loop_id(2),
        "the rollup before is active again"
    );
    redo(&store, &id(), &FlipRequest::default()).unwrap();
    assert_eq!(context(&store).tokens, second.after.tokens);
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
    let sections = "SELECT section, loop_id FROM v_context WHERE leaf_loop_id = 'loop-6'
        ORDER BY ordinal LIMIT 1";
    assert_eq!(query(&store, sections), r#"[["rollup", "loop-4"]]"#);
}

#[test]
fn a_forced_run_reads_the_originals_again() {
    let store = SqliteStore::in_memory().unwrap();
    for at in 0..6 {
        start(&store, at, 4);
    }
    compact(&store);
    let forced = CompactRequest {
        trigger: loopstore::CompactTrigger::Force,
        ..request()
    };
    let report = compact_session_loops(&store, &id(), &forced).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let extends = "SELECT extends FROM v_compaction_blocks WHERE kind = 'rollup'";
    assert_eq!(query(&store, extends), "[[null], [null]]");
    assert_eq!(context(&store).tokens, report.after.tokens);
    let mut wide = forced;
    wide.policy.compaction.compaction_scope = CompactionScope::FixedCount(9);
    let report = compact_session_loops(&store, &id(), &wide).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let seen = context(&store);
    assert_eq!(
        seen.tokens, report.after.tokens,
        "the rollup no longer counts"
    );
    assert_eq!(seen.parts[0].loop_id, loop_id(0));
    assert!(loopstore_verify::verify(&store).unwrap().ok);
}

#[test]
fn every_turn_is_shown_or_covered_however_the_chain_grows() {
    for keep_recent in [0, 1, 3, 9] {
        for scope in [0, 1, 2] {
            let store = SqliteStore::in_memory().unwrap();
            for at in 0..9 {
                start(&store, at, [4, 0, 1, 7][at % 4]);
                let mut request = request();
                request.policy.compaction.keep_recent = loopstore::KeepRecent::Turns(keep_recent);
                request.policy.compaction.compaction_scope = CompactionScope::FixedCount(scope);
                let report = compact_session_loops(&store, &id(), &request).unwrap();
                assert_eq!(context(&store).tokens, report.after.tokens);
                let next = compact_session_loops(&store, &id(), &request).unwrap();
                assert_eq!(next.outcome, CompactOutcome::NotNeeded, "{next:?}");
                assert_every_turn_once(&store);
            }
            let report = loopstore_verify::verify(&store).unwrap();
            assert!(report.ok, "{:?}", report.problems);
        }
    }
}

/// Checks that each turn of the chain is in one part of the context, or covered by the active rollup.
fn assert_every_turn_once(store: &SqliteStore) {
    let seen = context(store);
    let mut turns: Vec<(String, u32)> = Vec::new();
    for part in seen
        .parts
        .iter()
        .filter(|p| p.section != loopstore::context::PartSection::Rollup)
    {
        turns.extend((part.from_turn..=part.to_turn).map(|t| (part.loop_id.to_string(), t)));
    }
    let rolled = "WITH RECURSIVE up (ref) AS (
            SELECT loop_id || '#' || generation FROM v_compaction_blocks
            WHERE kind = 'rollup' AND is_active
            UNION SELECT b.extends FROM up JOIN v_compaction_blocks b
                ON b.loop_id || '#' || b.generation = up.ref WHERE b.extends IS NOT NULL)
        SELECT DISTINCT c.loop_id, c.from_turn, c.to_turn FROM v_coverage c
        JOIN up ON up.ref = c.block_loop_id || '#' || c.generation
        WHERE c.disposition = 'rolled_up' AND c.from_turn IS NOT NULL";
    let anchor = seen
        .parts
        .iter()
        .any(|p| p.section == loopstore::context::PartSection::Rollup);
    if anchor {
        for row in store.query(rolled).unwrap().rows {
            let name: String = row[0].read().unwrap();
            let (from, to): (u32, u32) = (row[1].read().unwrap(), row[2].read().unwrap());
            turns.extend((from..=to).map(|turn| (name.clone(), turn)));
        }
    }
    let covered = turns.len();
    turns.sort();
    turns.dedup();
    assert_eq!(turns.len(), covered, "a turn stands twice");
    let all: usize = store.query("SELECT sum(turns) FROM v_loops").unwrap().rows[0][0]
        .read()
        .unwrap();
    assert_eq!(covered, all, "a turn is missing");
}
