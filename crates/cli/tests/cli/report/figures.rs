//! The figures of a page are those of the database.

use std::collections::BTreeMap;

use loopstore::extend as store;
use loopstore::extend::append::append;
use loopstore::extend::sqlite::Record;
use loopstore::extend::write;
use loopstore::*;
use loopstore_report::{Prices, ReportOptions};
use serde_json::{Value, json};

use crate::commands::stage::{LoopSpec, Stage, add_loop, answer, result, session, turns};
use crate::support::page::Page;

/// Creates a session with every operation that changes a context: compactions, undo, redo, forks and appends.
fn eventful() -> Stage {
    let stage = Stage::new();
    for line in [
        "compact work --max-tokens 9000",
        "undo work",
        "redo work",
        "compact work --max-tokens 6000 --keep-recent 2 --force",
    ] {
        let said = stage.say(line);
        assert_eq!(said.code, 0, "{line}\n{said}");
    }
    grow(&stage, "more", "test", 7);
    stage.say("compact work --max-tokens 5000 --keep-recent 3 --scope fixed:1");
    grow(&stage, "last", "more", 4);
    stage
}

/// Adds a loop that continues another.
fn grow(stage: &Stage, id: &str, parent: &str, count: u32) {
    let store = stage.store();
    let work = SessionId::new("work").unwrap();
    let key = store::read(&store, |read| Ok(read.session(&work)?.unwrap().key)).unwrap();
    let spec = LoopSpec {
        id,
        parent: Some((parent, None)),
        kind: ContinuationKind::Default,
        status: LoopStatus::Completed,
    };
    add_loop(&store, key, spec, turns(&format!("{id} of it"), count, 60));
}

fn records(store: &SqliteStore, sql: &str) -> Vec<Record> {
    store.query(sql).unwrap().records()
}

/// Returns the turns of the page's chain: loop, turn, state and block.
fn chain(index: &Value) -> Vec<(String, u64, String, Value)> {
    let mut turns = Vec::new();
    for link in index["chain"].as_array().unwrap() {
        let loop_id = &index["loops"][link["loop"].as_u64().unwrap() as usize]["loop_id"];
        let mut turn = 0;
        for run in link["states"].as_array().unwrap() {
            for _ in 0..run[1].as_u64().unwrap() {
                let state = run[0].as_str().unwrap().to_owned();
                turns.push((
                    loop_id.as_str().unwrap().to_owned(),
                    turn,
                    state,
                    link["block"].clone(),
                ));
                turn += 1;
            }
        }
        assert_eq!(turn, link["turns"].as_u64().unwrap());
    }
    turns
}

fn assert_curve(store: &SqliteStore, page: &Page, session: &str) {
    let id = SessionId::new(session).unwrap();
    let turns = chain(&page.index);
    let tokens = page.index["curve"]["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), turns.len());
    for ((loop_id, turn, ..), tokens) in turns.iter().zip(tokens) {
        let as_of = AsOf::Turn {
            loop_id: LoopId::new(loop_id.clone()).unwrap(),
            turn: u32::try_from(*turn).unwrap(),
        };
        let context = build_context_as_of(store, &id, as_of).unwrap();
        assert_eq!(json!(context.tokens), *tokens, "{loop_id}:{turn}");
    }
    let now = build_context_from_session(store, &id, &BuildOptions::default()).unwrap();
    assert_eq!(page.index["context"]["tokens"], now.tokens);
    assert_eq!(page.index["context"]["messages"], now.messages.len());
    for change in page.index["curve"]["changes"].as_array().unwrap() {
        if change["change"] == "compacted" {
            let run = change["run_id"].as_str().unwrap().to_owned();
            let after = build_context_as_of(store, &id, AsOf::Run(run)).unwrap();
            assert_eq!(change["after"], after.tokens);
        }
    }
}

#[test]
fn the_curve_is_the_context_as_of_each_turn() {
    let stage = eventful();
    let store = stage.store();
    let page = Page::of(&store, "work");
    assert_curve(&store, &page, "work");
    let changes = page.index["curve"]["changes"].as_array().unwrap();
    let words: Vec<&str> = changes
        .iter()
        .map(|c| c["change"].as_str().unwrap())
        .collect();
    assert!(
        words.starts_with(&["compacted", "undone", "redone", "compacted"]),
        "{words:?}"
    );
    assert_eq!(changes[0]["after"], changes[1]["before"]);
    assert_eq!(changes[0]["before"], changes[1]["after"]);
    assert_eq!(changes[0]["at"], 23);
}

#[test]
fn the_curve_holds_where_older_loops_are_left_out_and_where_a_result_came_late() {
    let stage = Stage::new();
    stage.say(
        "compact work --max-tokens 9000 --older-loops skip --scope fixed:1 --recent-window loop",
    );
    grow(&stage, "more", "test", 5);
    assert_curve(&stage.store(), &Page::of(&stage.store(), "work"), "work");

    // A loop gets the result of its last call after another loop continued it.
    let store = stage.store();
    let key = session(&store, "late", "A late result");
    let spec = |id, parent: Option<&'static str>| LoopSpec {
        id,
        parent: parent.map(|parent| (parent, None)),
        kind: ContinuationKind::Default,
        status: LoopStatus::Running,
    };
    let call = Content::tool_call("slow", "read_file", Json::parse("{}").unwrap());
    let asked = vec![Message::user("go").into(), answer(vec![call]).into()];
    add_loop(&store, key, spec("one", None), asked);
    add_loop(
        &store,
        key,
        spec("two", Some("one")),
        turns("two goes on", 3, 5),
    );
    write(&store, |write| {
        let one = write
            .loop_by_id(key, &LoopId::new("one").unwrap())?
            .unwrap();
        let late = AgentMessage::from(result("slow", &"late ".repeat(300)));
        append(write, one.key, vec![late.into()], store.counter())
    })
    .unwrap();
    let two = write(&store, |write| {
        let two = write
            .loop_by_id(key, &LoopId::new("two").unwrap())?
            .unwrap();
        let said = AgentMessage::from(Message::user("and on"));
        append(write, two.key, vec![said.into()], store.counter())
    });
    two.unwrap();
    let page = Page::of(&store, "late");
    assert_curve(&store, &page, "late");
    let calls = page.index["calls"]["calls"].as_array().unwrap();
    assert_eq!(calls[0]["r"], json!([0, 2]));
}

#[test]
fn what_became_of_each_turn_is_what_the_coverage_says() {
    let stage = eventful();
    let store = stage.store();
    let page = Page::of(&store, "work");
    let rows = records(&store, "SELECT * FROM v_coverage WHERE session_id = 'work'");
    let mut met = BTreeMap::new();
    for (loop_id, turn, state, block) in chain(&page.index) {
        *met.entry(state.clone()).or_insert(0) += 1;
        let turn = i64::try_from(turn).unwrap();
        let said = |block: &Value| {
            let on = &page.index["loops"][block["loop"].as_u64().unwrap() as usize]["loop_id"];
            let of = |row: &&Record| {
                row.text("block_loop_id").as_deref() == on.as_str()
                    && row.number("generation") == block["generation"].as_i64()
                    && row.text("loop_id").as_ref() == Some(&loop_id)
                    && row.number("from_turn").unwrap() <= turn
                    && turn <= row.number("to_turn").unwrap()
            };
            let own = rows.iter().filter(of);
            own.map(|row| row.text("disposition").unwrap())
                .collect::<Vec<String>>()
        };
        let mut words = Vec::new();
        let mut next = block;
        while let Some(at) = next.as_u64().filter(|_| words.is_empty()) {
            let block = &page.index["blocks"][at as usize];
            words = said(block);
            next = block["extends"].clone();
        }
        words.dedup();
        match &*state {
            "raw" => assert!(words.is_empty(), "{loop_id}:{turn} {words:?}"),
            "truncated" => assert!(words.iter().any(|w| w == "truncated" || w == "dropped")),
            state => assert_eq!(words, [state], "{loop_id}:{turn}"),
        }
    }
    for state in ["kept", "truncated", "raw"] {
        assert!(met.contains_key(state), "{met:?}");
    }
    assert!(
        met.contains_key("summarised") || met.contains_key("rolled_up"),
        "{met:?}"
    );
}

#[test]
fn every_message_and_every_block_is_in_its_piece() {
    let stage = eventful();
    let store = stage.store();
    let page = Page::of(&store, "work");
    let pieces = page.pieces();
    let rows = records(
        &store,
        "SELECT l.loop_id, m.seq, m.turn, m.role, m.text, m.tokens
         FROM v_messages m JOIN v_loops l USING (session_id, loop_id) WHERE session_id = 'work'",
    );
    let entries = page.entries();
    let messages: Vec<&Value> = entries
        .iter()
        .filter(|entry| entry.get("l").is_some())
        .collect();
    assert_eq!(messages.len(), rows.len());
    for row in &rows {
        let loops = page.index["loops"].as_array().unwrap();
        let at = loops
            .iter()
            .position(|l| l["loop_id"].as_str() == row.text("loop_id").as_deref());
        let seq = row.number("seq").unwrap();
        let noted = loops[at.unwrap()]["pieces"].as_array().unwrap();
        let piece = noted
            .iter()
            .rfind(|p| p[0].as_i64().unwrap() <= seq)
            .unwrap();
        let own = &pieces[piece[1].as_u64().unwrap() as usize];
        let entry = own
            .iter()
            .find(|e| e["l"] == at.unwrap() && e["q"] == seq)
            .unwrap();
        assert_eq!(entry["r"].as_str(), row.text("role").as_deref());
        assert_eq!(entry["k"].as_i64(), row.number("tokens"));
        assert_eq!(entry["t"].as_i64(), row.number("turn"));
        let text = entry["b"]
            .as_array()
            .unwrap()
            .iter()
            .find(|b| b[0] == "text");
        assert_eq!(
            text.and_then(|b| b[1].as_str()),
            row.text("text").as_deref()
        );
    }
    let blocks = page.index["blocks"].as_array().unwrap();
    let known = records(
        &store,
        "SELECT * FROM v_compaction_blocks WHERE session_id = 'work'",
    );
    assert_eq!(blocks.len(), known.len());
    for (at, block) in blocks.iter().enumerate() {
        let piece = &pieces[block["piece"].as_u64().unwrap() as usize];
        assert!(piece.iter().any(|entry| entry["g"] == at), "{block}");
    }
}

#[test]
fn tool_calls_are_those_of_the_view() {
    let stage = Stage::new();
    let store = stage.store();
    for id in ["work", "worker", "mess'; DROP TABLE sessions;--"] {
        let page = Page::of(&store, id);
        let rows = store
            .query_with("SELECT * FROM v_tool_calls WHERE session_id = ?1", &[id])
            .unwrap()
            .records();
        let calls = page.index["calls"]["calls"].as_array().unwrap();
        assert_eq!(calls.len(), rows.len());
        for row in rows {
            let of = |call: &&Value| {
                let loop_key =
                    &page.index["loops"][call["l"].as_u64().unwrap() as usize]["loop_id"];
                let tool = &page.index["calls"]["tools"][call["n"].as_u64().unwrap() as usize];
                loop_key.as_str() == row.text("loop_id").as_deref()
                    && call["q"].as_i64() == row.number("call_seq")
                    && tool.as_str() == row.text("tool_name").as_deref()
                    && call["r"][1].as_i64() == row.number("result_seq")
            };
            assert!(calls.iter().any(|call| of(&call)), "{row:?}");
        }
    }
}

fn spent(model: &str, input: u64, cost: Option<f64>) -> AgentMessage {
    let usage = json!({"input": input, "output": 100, "cache_read": 1000, "cost": cost});
    Message::Assistant(AssistantMessage {
        content: vec![Content::text("so")],
        model: Some(model.into()),
        usage: serde_json::from_value(usage).unwrap(),
        ..Default::default()
    })
    .into()
}

#[test]
fn usage_is_that_of_the_view_and_costs_what_the_prices_say() {
    let stage = Stage::empty();
    let store = stage.store();
    let key = session(&store, "paid", "Paid");
    for (id, parent) in [("a", None), ("b", Some(("a", None)))] {
        let spec = LoopSpec {
            id,
            parent,
            kind: ContinuationKind::Default,
            status: LoopStatus::Completed,
        };
        let said = vec![
            Message::user("go").into(),
            spent("sonnet-4", 2000, Some(0.25)),
            spent("other", 500, None),
        ];
        add_loop(&store, key, spec, said);
    }
    let page = Page::of(&store, "paid");
    let rows = records(
        &store,
        "SELECT model, sum(input) AS input, sum(output) AS output, sum(cache_read) AS cache_read,
             sum(total) AS total
         FROM v_usage GROUP BY model ORDER BY model",
    );
    let models = page.index["usage"]["models"].as_array().unwrap();
    assert_eq!(models.len(), rows.len());
    for (model, row) in models.iter().zip(&rows) {
        for column in ["input", "output", "cache_read", "total"] {
            assert_eq!(model[column].as_i64(), row.number(column), "{column}");
        }
    }
    assert_eq!(page.index["usage"]["tree"]["total"]["cost"], 0.5);
    let prices = Prices::from_json(r#"{"sonnet": {"input": 3, "output": 15, "cache_read": 0.3}}"#);
    let options = ReportOptions {
        prices: Some(prices.unwrap()),
        ..ReportOptions::default()
    };
    let page = Page::with(&store, "paid", &options);
    // Two answers: 4000 tokens in, 200 out, 2000 from the cache.
    let cost = page.index["usage"]["models"][1]["cost"].as_f64().unwrap();
    assert!((cost - (0.012 + 0.003 + 0.0006)).abs() < 1e-9, "{cost}");
}

#[test]
fn a_sub_agent_stands_under_the_session_that_started_it() {
    let stage = Stage::empty();
    let store = stage.store();
    let key = session(&store, "main", "Main");
    let spec = |id| LoopSpec {
        id,
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let go = || AgentMessage::from(Message::user("go"));
    add_loop(&store, key, spec("a"), vec![go(), spent("m", 100, None)]);
    let mut helper = Session::new(SessionId::new("helper").unwrap(), "agent");
    let spawn = json!({"parent_session_id": "main", "parent_loop_id": "a", "tool_name": "task"});
    helper.parent_spawn_ref = serde_json::from_value(spawn).unwrap();
    let helper = write(&store, |write| {
        store::session::create_session(write, &helper, Some("A helper".into()), None)
    });
    add_loop(
        &store,
        helper.unwrap(),
        spec("b"),
        vec![go(), spent("m", 30, Some(1.5))],
    );
    let others = [(SessionId::new("helper").unwrap(), "helper.html".to_owned())];
    let options = ReportOptions {
        others: others.into(),
        ..ReportOptions::default()
    };
    let tree = &Page::with(&store, "main", &options).index["usage"]["tree"];
    let child = &tree["children"][0];
    for (name, said) in [
        ("title", "A helper"),
        ("from_loop_id", "a"),
        ("tool", "task"),
        ("file", "helper.html"),
    ] {
        assert_eq!(child[name], said);
    }
    assert_eq!(tree["own"]["input"], 100);
    assert_eq!(tree["total"]["input"], 130);
    assert_eq!(tree["total"]["cost"], 1.5);
}

#[test]
fn durations_are_known_where_both_times_are() {
    let stage = Stage::empty();
    let store = stage.store();
    let key = session(&store, "timed", "Timed");
    let spec = LoopSpec {
        id: "a",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let timed = |mut message: Message, at: i64| {
        match &mut message {
            Message::Assistant(m) => m.timestamp = Some(at.into()),
            Message::ToolResult(m) => {
                m.timestamp = Some(at.into());
                m.is_error = true;
            }
            Message::User(_) => {}
        }
        AgentMessage::from(message)
    };
    let call = |id: &str| Content::tool_call(id, "ls", Json::parse("{}").unwrap());
    let said = vec![
        Message::user("go").into(),
        timed(answer(vec![call("x")]), 1_000_000),
        timed(result("x", "done"), 1_002_500),
        answer(vec![call("y")]).into(),
        result("y", "done").into(),
        timed(answer(vec![call("z")]), 1_005_000),
    ];
    add_loop(&store, key, spec, said);
    let page = Page::of(&store, "timed");
    let calls = page.index["calls"]["calls"].as_array().unwrap();
    assert_eq!(calls[0]["d"], 2500);
    assert_eq!(calls[0]["e"], true);
    assert!(calls[1].get("d").is_none() && calls[1].get("e").is_none());
    assert!(calls[2].get("r").is_none());
}

#[test]
fn a_session_without_a_loop_has_a_page() {
    let stage = Stage::empty();
    let store = stage.store();
    session(&store, "bare", "Nothing yet");
    let page = Page::of(&store, "bare");
    assert_eq!(page.index["chain"], json!([]));
    assert_eq!(page.index["leaf"], Value::Null);
}
