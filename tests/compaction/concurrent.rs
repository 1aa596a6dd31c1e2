//! Concurrent compactions: races, turns that are appended meanwhile, third-party strategies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{keyed, process};
use loopstore::compact::{CompactOutcome, CompactTrigger, FlipRequest};
use loopstore::compaction::*;
use loopstore::context::AsOf;
use loopstore::extend::{self as store, append, session};
use loopstore::model::*;
use loopstore::*;
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

fn loop_id(name: &str) -> LoopId {
    LoopId::new(name).unwrap()
}

/// Returns a turn of a prompt, a call, a long result and an answer.
fn turn(name: &str, number: u32) -> Vec<AgentMessage> {
    let place = || TurnId::new(name, number);
    let call = Content::tool_call(
        format!("{name}-{number}"),
        "read",
        Json::parse("{}").unwrap(),
    );
    let lines: String = (0..80)
        .map(|line| format!("line {line} of {name} {number}\n"))
        .collect();
    vec![
        AgentMessage::from(Message::user(format!("prompt {name} {number}"))).in_turn(place()),
        AgentMessage::from(Message::Assistant(AssistantMessage {
            content: vec![Content::text(format!("answer {name} {number}")), call],
            ..AssistantMessage::default()
        }))
        .in_turn(place()),
        AgentMessage::from(Message::ToolResult(ToolResultMessage {
            tool_call_id: format!("{name}-{number}"),
            tool_name: "read".into(),
            content: vec![Content::text(lines)],
            ..ToolResultMessage::default()
        }))
        .in_turn(place()),
    ]
}

fn start(store: &SqliteStore, name: &str, parent: Option<&str>, turns: std::ops::Range<u32>) {
    store::write(store, |write| {
        let key = match write.session(&id())? {
            Some(row) => row.key,
            None => session::create_session(write, &Session::new(id(), "agent"), None, None)?,
        };
        session::create_loop(
            write,
            key,
            &LoopRecord::new(loop_id(name), parent.map(loop_id)),
        )
    })
    .unwrap();
    turns.for_each(|number| add(store, name, turn(name, number)));
}

fn add(store: &SqliteStore, name: &str, messages: Vec<AgentMessage>) {
    store::write(store, |write| {
        let key = write.session(&id())?.unwrap().key;
        let row = write.loop_by_id(key, &loop_id(name))?.unwrap();
        let messages = messages.into_iter().map(Into::into).collect();
        append::append(write, row.key, messages, &HeuristicTokenCounter)
    })
    .unwrap();
}

fn context(store: &SqliteStore, leaf: &str) -> Context {
    let options = BuildOptions {
        leaf: Some(loop_id(leaf)),
        ..BuildOptions::default()
    };
    build_context_from_session(store, &id(), &options).unwrap()
}

fn texts(context: &Context) -> String {
    let all = context.messages.iter().filter_map(AgentMessage::message);
    all.flat_map(Message::texts).collect::<Vec<_>>().join("\n")
}

fn request(leaf: &str, strategy: Arc<dyn BlockCompactionStrategy>) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 1,
                keep_recent: loopstore::KeepRecent::Turns(1),
                block_strategy: Some(strategy),
                ..CompactionConfig::default()
            },
        ),
        leaf: Some(loop_id(leaf)),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    }
}

fn one_liner(leaf: &str) -> CompactRequest {
    request(leaf, Arc::new(DefaultBlockCompaction))
}

/// Runs a function while the text is being made, then returns the text of the original strategy.
struct Meanwhile<F: Fn() + Send + Sync>(F, AtomicBool);

impl<F: Fn() + Send + Sync> BlockCompactionStrategy for Meanwhile<F> {
    fn name(&self) -> &str {
        "meanwhile"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: store::Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        if !self.1.swap(true, Ordering::SeqCst) {
            (self.0)();
        }
        DefaultBlockCompaction.keep_compacted(slice, turns, config)
    }
}

fn meanwhile(work: impl Fn() + Send + Sync + 'static) -> Arc<dyn BlockCompactionStrategy> {
    Arc::new(Meanwhile(work, AtomicBool::new(false)))
}

#[test]
fn a_turn_appended_while_a_strategy_runs_is_in_the_next_context() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "a", None, 0..6);
    let other = Arc::clone(&store);
    let strategy = meanwhile(move || add(&other, "a", turn("a", 6)));
    let report = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let text = texts(&context(&store, "a"));
    assert!(text.contains("prompt a 6") && text.contains("line 79 of a 6"));
    assert!(!text.contains("prompt a 3"));
}

#[test]
fn a_run_that_loses_the_race_leaves_only_its_row() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "a", None, 0..6);
    let other = Arc::clone(&store);
    let strategy = meanwhile(move || {
        let first = compact_session_loops(&*other, &id(), &one_liner("a")).unwrap();
        assert_eq!(first.outcome, CompactOutcome::Committed);
    });
    let report = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Conflict);
    assert!(report.run.is_some() && report.blocks.is_empty() && report.error.is_some());
    let rows = store.query("SELECT outcome, count(*) FROM v_compaction_runs GROUP BY outcome");
    assert_eq!(
        format!("{:?}", rows.unwrap().rows),
        r#"[["committed", 1], ["conflict", 1]]"#
    );
    let blocks = store
        .query("SELECT count(*) FROM v_compaction_blocks")
        .unwrap();
    assert_eq!(format!("{:?}", blocks.rows), "[[1]]");
}

#[test]
fn what_is_redacted_while_a_strategy_runs_does_not_come_back() {
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "a", None, 0..6);
    let told = AgentMessage::from(Message::user(format!("the key is {token}")));
    add(&store, "a", vec![told.in_turn(TurnId::new("a", 6))]);
    for number in 7..10 {
        add(&store, "a", turn("a", number));
    }
    let other = Arc::clone(&store);
    let strategy = meanwhile(move || {
        let report = redact_session(&*other, &RedactRequest::new(id())).unwrap();
        assert!(report.receipt.is_some(), "{report:?}");
    });
    let report = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Conflict);
    assert!(!texts(&context(&store, "a")).contains(&token));
    // A receipt of another session has no effect.
    let other = Store::from(Arc::clone(&store) as Arc<dyn Database>);
    let another = other.session("another").unwrap();
    another.append([Message::user("Hello.")]).unwrap();
    let strategy = meanwhile(move || {
        erase(other.database(), &EraseRequest::new(another.id().clone())).unwrap();
    });
    let again = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap();
    assert_eq!(again.outcome, CompactOutcome::Committed);
}

#[test]
fn a_session_that_is_erased_while_a_strategy_runs_is_not_there_and_its_keys_are_nobodys() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "a", None, 0..6);
    let other = Arc::clone(&store);
    let strategy = meanwhile(move || {
        let request = EraseRequest {
            force: true,
            ..EraseRequest::new(id())
        };
        erase(&*other, &request).unwrap();
        let chat = Store::from(Arc::clone(&other) as Arc<dyn Database>);
        let chat = chat.session("another").unwrap();
        for number in 0..8 {
            chat.append([Message::user(format!("secret {number}"))])
                .unwrap();
            chat.append([Message::assistant("yes")]).unwrap();
        }
    });
    let refused = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap_err();
    assert!(matches!(refused, StoreError::NoSession(_)), "{refused}");
    let keys = store
        .query("SELECT min(l.key) > 1 AS fresh FROM loops l")
        .unwrap();
    assert_eq!(format!("{:?}", keys.rows), "[[1]]");
    assert!(loopstore_verify::verify(&*store).unwrap().ok);
}

/// Run by the next test in processes of its own.
#[test]
fn child_compacts_when_told() {
    let Some(path) = std::env::var_os("LOOPSTORE_TEST_RACE") else {
        return;
    };
    let folder = Path::new(&path).parent().unwrap().to_owned();
    let store = keyed::open(&path).unwrap();
    let me = format!("{}.ready", std::process::id());
    let strategy = meanwhile(move || {
        std::fs::write(folder.join(&me), "").unwrap();
        let ready = || {
            let names = std::fs::read_dir(&folder).unwrap();
            names
                .filter(|n| n.as_ref().unwrap().path().extension() == Some("ready".as_ref()))
                .count()
        };
        while ready() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    compact_session_loops(&store, &id(), &request("a", strategy)).unwrap();
}

#[test]
fn two_processes_on_one_chain_leave_one_commit_and_one_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("race.db");
    let store = keyed::open(&path).unwrap();
    start(&store, "a", None, 0..6);
    let children: Vec<_> = (0..2)
        .map(|_| {
            process::test("concurrent::child_compacts_when_told")
                .env("LOOPSTORE_TEST_RACE", &path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let rows = store
        .query("SELECT outcome FROM v_compaction_runs ORDER BY outcome")
        .unwrap();
    assert_eq!(
        format!("{:?}", rows.rows),
        r#"[["committed"], ["conflict"]]"#
    );
    let blocks = store.query("SELECT count(*), count(DISTINCT run_id) FROM v_compaction_blocks");
    assert_eq!(format!("{:?}", blocks.unwrap().rows), "[[1, 1]]");
    assert!(loopstore_verify::verify(&store).unwrap().ok);
}

#[test]
fn branches_compact_and_undo_on_their_own() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "root", None, 0..5);
    start(&store, "left", Some("root"), 0..5);
    start(&store, "right", Some("root"), 0..5);
    let untouched = context(&store, "right");
    compact_session_loops(&store, &id(), &one_liner("left")).unwrap();
    let left = context(&store, "left");
    assert!(left.tokens < untouched.tokens);
    assert_eq!(context(&store, "right"), untouched);
    compact_session_loops(&store, &id(), &one_liner("right")).unwrap();
    let right = context(&store, "right");
    assert_eq!(context(&store, "left"), left);
    let request = FlipRequest {
        leaf: Some(loop_id("left")),
        ..FlipRequest::default()
    };
    undo(&store, &id(), &request).unwrap();
    assert_eq!(context(&store, "right"), right);
    assert!(context(&store, "left").tokens > left.tokens);
    redo(&store, &id(), &request).unwrap();
    assert_eq!(context(&store, "left"), left);
    assert_eq!(context(&store, "right"), right);
}

#[test]
fn undo_and_redo_name_what_cannot_be_done() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..5);
    let nothing = FlipRequest::default();
    let error = undo(&store, &id(), &nothing).unwrap_err();
    assert!(matches!(error, StoreError::NoCompaction { .. }), "{error}");
    let error = loopstore::Error::from(error);
    assert!(
        matches!(error, loopstore::Error::NotFound { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("no active compaction"),
        "{error}"
    );
    let error = redo(&store, &id(), &nothing).unwrap_err().to_string();
    assert!(error.contains("no compaction or edit to redo"), "{error}");
    let named = FlipRequest {
        run: Some("'; DROP TABLE runs".into()),
        ..FlipRequest::default()
    };
    assert!(matches!(
        undo(&store, &id(), &named),
        Err(StoreError::NoRun(_))
    ));
    let first = compact_session_loops(&store, &id(), &one_liner("a"))
        .unwrap()
        .run
        .unwrap();
    undo(&store, &id(), &nothing).unwrap();
    add(&store, "a", turn("a", 5));
    compact_session_loops(&store, &id(), &one_liner("a")).unwrap();
    let error = redo(&store, &id(), &nothing).unwrap_err().to_string();
    assert!(error.contains("after the last undo"), "{error}");
    let named = FlipRequest {
        run: Some(first),
        ..FlipRequest::default()
    };
    redo(&store, &id(), &named).unwrap();
}

/// Returns the given sections.
struct Fixed(Option<(u32, u32)>, Option<(u32, u32)>);

impl BlockCompactionStrategy for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }

    fn keep_first(
        &self,
        _: &LoopSlice<'_>,
        _: &CompactionConfig,
    ) -> Result<Option<store::Turns>, StrategyError> {
        Ok(self.0.map(|(first, last)| store::Turns { first, last }))
    }

    fn keep_recent(
        &self,
        _: &LoopSlice<'_>,
        _: &CompactionConfig,
    ) -> Result<Option<Recent>, StrategyError> {
        let turns = self.1.map(|(first, last)| store::Turns { first, last });
        Ok(turns.map(|turns| Recent {
            turns,
            replaced: Vec::new(),
        }))
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: store::Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Summary::default())
    }
}

#[test]
fn sections_of_a_third_party_are_checked_before_anything_is_written() {
    let cases = [
        (Some((1, 2)), Some((4, 5))),
        (Some((0, 2)), Some((2, 5))),
        (Some((0, 2)), Some((4, 9))),
        (Some((0, 2)), Some((4, 4))),
    ];
    for (first, recent) in cases {
        let store = SqliteStore::in_memory().unwrap();
        start(&store, "a", None, 0..6);
        let request = request("a", Arc::new(Fixed(first, recent)));
        let report = compact_session_loops(&store, &id(), &request).unwrap();
        assert_eq!(
            report.outcome,
            CompactOutcome::Failed,
            "{first:?} {recent:?}"
        );
        let rows = store
            .query("SELECT outcome, error IS NOT NULL FROM v_compaction_runs")
            .unwrap();
        assert_eq!(format!("{:?}", rows.rows), r#"[["failed", 1]]"#);
        let blocks = store
            .query("SELECT count(*) FROM v_compaction_blocks")
            .unwrap();
        assert_eq!(format!("{:?}", blocks.rows), "[[0]]");
    }
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..6);
    let good = request("a", Arc::new(Fixed(Some((0, 2)), Some((5, 5)))));
    let report = compact_session_loops(&store, &id(), &good).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let dropped = report.blocks[0].coverage.get(store::Disposition::Dropped);
    assert_eq!(dropped, 6, "nothing was made of turns 3 and 4");
}

#[test]
fn coverage_says_what_the_texts_show() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "root", None, 0..3);
    start(&store, "a", Some("root"), 0..8);
    let mut request = one_liner("a");
    request.policy.compaction.max_summary_tokens = 12;
    request.policy.compaction.keep_recent = loopstore::KeepRecent::Turns(2);
    let report = compact_session_loops(&store, &id(), &request).unwrap();
    let shown = texts(&context(&store, "a"));
    let rows = store
        .query("SELECT loop_id, from_turn, to_turn, disposition, from_seq, to_seq FROM v_coverage");
    let mut turns_seen = std::collections::BTreeMap::new();
    for row in rows.unwrap().rows {
        let text = |at: usize| row[at].read::<String>().unwrap();
        let number = |at: usize| row[at].read::<u32>().unwrap();
        let (name, disposition) = (text(0), text(3));
        for turn in number(1)..=number(2) {
            turns_seen
                .entry((name.clone(), turn))
                .or_insert_with(Vec::new)
                .push(disposition.clone());
            let has = |what: &str| shown.contains(&format!("{what} {name} {turn}\n"));
            match disposition.as_str() {
                "kept" | "truncated" => assert!(has("prompt"), "{name} {turn}"),
                "summarised" => assert!(!has("prompt") && has("[Summary] answer"), "{name} {turn}"),
                "dropped" => assert!(!has("answer") && !has("prompt"), "{name} {turn}"),
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(turns_seen.len(), 11, "every turn is covered");
    assert!(
        turns_seen.values().flatten().any(|d| d == "dropped"),
        "the budget is too small for all"
    );
    for block in &report.blocks {
        for disposition in store::Disposition::ALL {
            let sql = format!(
                "SELECT count(*) FROM v_coverage c JOIN v_messages m ON m.loop_id = c.loop_id
                     AND m.seq BETWEEN c.from_seq AND c.to_seq AND m.role <> 'extension'
                 WHERE c.block_loop_id = '{}' AND c.disposition = '{}'",
                block.loop_id,
                disposition.as_str(),
            );
            let counted: u64 = store.query(&sql).unwrap().rows[0][0].read().unwrap();
            assert_eq!(counted, block.coverage.get(disposition), "{sql}");
        }
    }
}

#[test]
fn a_loop_that_ages_shows_its_first_and_last_turns_in_its_new_block() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..8);
    compact_session_loops(&store, &id(), &one_liner("a")).unwrap();
    start(&store, "b", Some("a"), 0..8);
    compact_session_loops(&store, &id(), &one_liner("b")).unwrap();
    let text = texts(&context(&store, "b"));
    assert!(text.contains("[Summary] answer a 0") && text.contains("[Summary] answer a 7"));
    let blocks =
        store.query("SELECT loop_id, generation, kind FROM v_compaction_blocks ORDER BY 1, 2");
    let expected = r#"[["a", 1, "current"], ["a", 2, "earlier"], ["b", 1, "current"]]"#;
    assert_eq!(format!("{:?}", blocks.unwrap().rows), expected);
}

#[test]
fn a_dry_run_writes_nothing_and_says_the_same() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..8);
    let dry = CompactRequest {
        dry_run: true,
        ..one_liner("a")
    };
    let said = compact_session_loops(&store, &id(), &dry).unwrap();
    assert_eq!(store.stats().unwrap().runs, 0);
    let done = compact_session_loops(&store, &id(), &one_liner("a")).unwrap();
    assert_eq!(
        (said.outcome, said.before, said.after),
        (done.outcome, done.before, done.after)
    );
    assert_eq!(said.run, None);
    assert_eq!(said.blocks[0].coverage, done.blocks[0].coverage);
}

#[test]
fn a_budget_that_is_too_small_is_a_typed_error() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..8);
    let all = context(&store, "a").tokens;
    let with = |budget| {
        let options = BuildOptions {
            budget: Some(budget),
            ..BuildOptions::default()
        };
        build_context_from_session(&store, &id(), &options)
    };
    assert_eq!(with(all).unwrap().tokens, all);
    match with(all - 1) {
        Err(context::BuildError::NeedsCompaction { tokens, budget }) => {
            assert_eq!((tokens, budget), (all, all - 1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_past_stays_as_it_was() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..6);
    let raw = context(&store, "a");
    let first = compact_session_loops(&store, &id(), &one_liner("a"))
        .unwrap()
        .run
        .unwrap();
    let compacted = context(&store, "a");
    add(&store, "a", turn("a", 6));
    undo(&store, &id(), &FlipRequest::default()).unwrap();
    let at = |as_of| {
        let options = BuildOptions {
            as_of: Some(as_of),
            ..BuildOptions::default()
        };
        build_context_from_session(&store, &id(), &options)
            .unwrap()
            .messages
    };
    assert_eq!(at(AsOf::Run(first)), compacted.messages);
    assert_eq!(
        at(AsOf::Turn {
            loop_id: loop_id("a"),
            turn: 5
        }),
        raw.messages
    );
    let missing = BuildOptions {
        as_of: Some(AsOf::Run("x".into())),
        ..BuildOptions::default()
    };
    assert!(build_context_from_session(&store, &id(), &missing).is_err());
}

#[test]
fn a_scope_is_resolved_from_what_the_loops_show() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "a", None, 0..2);
    start(&store, "b", Some("a"), 0..2);
    start(&store, "c", Some("b"), 0..2);
    let resolve = |scope, max_context_tokens| {
        let window = ContextConfig {
            max_context_tokens,
            ..ContextConfig::default()
        };
        resolve_scope(&store, &id(), None, scope, &window).unwrap()
    };
    for (count, found) in [(0, 0), (1, 1), (2, 2), (9, 2)] {
        assert_eq!(resolve(CompactionScope::FixedCount(count), 1), found);
    }
    let shown: Vec<u64> = context(&store, "c")
        .parts
        .iter()
        .map(|p| p.tokens)
        .collect();
    let two = shown[1] + shown[2];
    assert_eq!(
        resolve(CompactionScope::TokenBudget, two),
        1,
        "an exact fit"
    );
    assert_eq!(resolve(CompactionScope::TokenBudget, two - 1), 0);
    assert_eq!(resolve(CompactionScope::TokenBudget, two + shown[0]), 2);
    assert_eq!(
        resolve(CompactionScope::TokenBudget, 0),
        0,
        "the leaf is always there"
    );
}

fn replace(store: &SqliteStore, name: &str, messages: Vec<AgentMessage>) {
    store::write(store, |write| {
        let key = write.session(&id())?.unwrap().key;
        let row = write.loop_by_id(key, &loop_id(name))?.unwrap();
        let messages = messages.into_iter().map(Into::into).collect();
        append::replace_last_turn(write, row.key, messages, &HeuristicTokenCounter)
    })
    .unwrap();
}

#[test]
fn a_parents_open_turn_that_is_replaced_meanwhile_is_a_conflict() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "root", None, 0..3);
    let mut open = turn("root", 3);
    open.truncate(2);
    add(&store, "root", open);
    start(&store, "a", Some("root"), 0..6);
    let other = Arc::clone(&store);
    let rewritten = |name: &str| {
        let mut messages = turn("root", 3);
        messages.truncate(1);
        let text = format!("{name} was written anew");
        messages.push(
            AgentMessage::from(Message::Assistant(AssistantMessage {
                content: vec![Content::text(text)],
                ..AssistantMessage::default()
            }))
            .in_turn(TurnId::new("root", 3)),
        );
        messages
    };
    let strategy = meanwhile(move || replace(&other, "root", rewritten("turn 3")));
    let report = compact_session_loops(&*store, &id(), &request("a", strategy)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Conflict, "{report:?}");
    let text = texts(&context(&store, "a"));
    assert!(text.contains("turn 3 was written anew"), "{text}");
    let again = compact_session_loops(&*store, &id(), &one_liner("a")).unwrap();
    assert_eq!(again.outcome, CompactOutcome::Committed);
    let problems = loopstore_verify::verify(&*store).unwrap();
    assert!(problems.ok, "{:?}", problems.problems);
}

#[test]
fn an_append_that_shortens_the_walk_is_no_conflict() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    start(&store, "root", None, 0..4);
    for (name, parent) in [("a", "root"), ("b", "a"), ("c", "b")] {
        start(&store, name, Some(parent), 0..3);
    }
    // The recent window extends to earlier loops until the leaf has enough turns of its own.
    let wide = |strategy| {
        let mut request = request("c", strategy);
        request.trigger = CompactTrigger::Length;
        request.policy.compaction.older_loops = OlderLoops::Skip;
        request.policy.compaction.compaction_scope = CompactionScope::FixedCount(1);
        request.policy.compaction.keep_recent = loopstore::KeepRecent::Turns(8);
        request
    };
    let other = Arc::clone(&store);
    let strategy = meanwhile(move || {
        for number in 3..9 {
            add(&other, "c", turn("c", number));
        }
    });
    let report = compact_session_loops(&*store, &id(), &wide(strategy)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let text = texts(&context(&store, "c"));
    (0..9).for_each(|number| assert!(text.contains(&format!("prompt c {number}"))));
    assert!(loopstore_verify::verify(&*store).unwrap().ok);
}

/// Keeps no turn of earlier loops, whatever the plan.
struct Forgets;

impl BlockCompactionStrategy for Forgets {
    fn name(&self) -> &str {
        "forgets"
    }

    fn keep_recent(
        &self,
        slice: &LoopSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Option<Recent>, StrategyError> {
        match slice.is_current() {
            true => DefaultBlockCompaction.keep_recent(slice, config),
            false => Ok(None),
        }
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: store::Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Summary::default())
    }
}

#[test]
fn a_strategy_that_hides_only_the_call_in_an_earlier_loop_fails() {
    let store = SqliteStore::in_memory().unwrap();
    start(&store, "root", None, 0..3);
    let mut asks = turn("root", 3);
    asks.truncate(2);
    add(&store, "root", asks);
    // The result was appended after the next loop had begun.
    start(&store, "a", Some("root"), 0..0);
    let mut late = turn("root", 3);
    let late = late.split_off(2).into_iter();
    let late = late.map(|message| message.in_turn(TurnId::new("a", 0)));
    add(&store, "a", late.collect());
    (1..3).for_each(|number| add(&store, "a", turn("a", number)));
    let mut request = request("a", Arc::new(Forgets));
    request.policy.compaction.keep_recent = loopstore::KeepRecent::Turns(6);
    let report = compact_session_loops(&store, &id(), &request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Failed, "{report:?}");
    assert!(
        report.error.as_ref().unwrap().contains("fault"),
        "{report:?}"
    );
    let text = texts(&context(&store, "a"));
    assert!(text.contains("answer root 3"), "{text}");
}
