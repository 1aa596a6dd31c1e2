//! The stored result of an import, and of a repeated import.

mod files;
mod found_compactions;
mod history;
mod script;
mod writers;

use loopstore::*;
use loopstore_transcripts::ImportError;
use script::*;

/// Returns two loops with all kinds of messages.
fn two_loops() -> Vec<Step> {
    let mut steps = vec![
        Step::Own("s"),
        begin("a", None),
        note("a", "system", "be brief"),
    ];
    steps.extend(work("a", "one"));
    steps.push(note("a", "progress", "half"));
    steps.push(begin("b", Some("a")));
    steps.extend(work("b", "two"));
    steps
}

#[test]
fn importing_twice_adds_nothing() {
    let store = store();
    let first = import(&store, &two_loops());
    assert_eq!((first.loops, first.turns), (2, 4));
    assert_eq!((first.messages, first.added_messages), (8, 8));
    let before = dump(&store);
    let second = import(&store, &two_loops());
    assert_eq!(dump(&store), before);
    assert_eq!(
        (second.messages, second.added_messages, second.revised),
        (8, 0, 0)
    );
    assert_eq!(second.sessions, first.sessions);
    assert_eq!(before["imports"].len(), 1);
}

#[test]
fn a_session_takes_over_what_the_transcript_says() {
    let store = imported(&two_loops());
    assert_eq!(
        rows(
            &store,
            "SELECT session_id, agent_id, title, created_at, last_active_at, source FROM sessions"
        ),
        [r#""s" "agent" "A title" "2026-01-01T00:00:00.000Z" "2026-01-02T00:00:00.000Z" "script""#]
    );
    assert_eq!(
        rows(
            &store,
            "SELECT loop_id, parent_turn, status, turns, complete, sealed_seq FROM loops"
        ),
        [
            r#""a" null "Completed" 2 2 6"#,
            r#""b" 1 "Completed" 2 2 4"#
        ]
    );
}

#[test]
fn a_transcript_that_grew_gives_the_same_as_the_whole_at_once() {
    let steps = two_loops();
    let whole = essence(&imported(&steps));
    for cut in 2..steps.len() {
        let store = imported(&steps[..cut]);
        let grown = import(&store, &steps);
        assert_eq!(essence(&store), whole, "cut before step {cut}");
        assert_eq!(grown.revised, 0);
        let before = dump(&store);
        import(&store, &steps[..cut]);
        assert_eq!(dump(&store), before, "an earlier state changes nothing");
    }
}

#[test]
fn a_running_loop_keeps_its_last_turn_open_and_ends_later() {
    let mut steps = vec![
        Step::Own("s"),
        running("a", None),
        user("a", 0, "go"),
        call("a", 0, "c"),
    ];
    let store = imported(&steps);
    let state = "SELECT status, turns, complete, sealed_seq FROM loops";
    assert_eq!(rows(&store, state), [r#""Running" 1 0 0"#]);
    steps.push(result("a", 0, "c", "done"));
    steps.push(begin("a", None));
    import(&store, &steps);
    assert_eq!(rows(&store, state), [r#""Completed" 1 1 3"#]);
}

#[test]
fn an_open_last_turn_is_replaced_by_what_it_became() {
    let open = |call_id: &str| {
        vec![
            Step::Own("s"),
            running("a", None),
            user("a", 0, "go"),
            assistant("a", 0, "done"),
            user("a", 1, "more"),
            note("a", "progress", "half"),
            call("a", 1, call_id),
        ]
    };
    let store = imported(&open("first"));
    let report = import(&store, &open("second"));
    assert_eq!((report.added_messages, report.revised), (1, 0));
    assert_eq!(essence(&store), essence(&imported(&open("second"))));
    let before = dump(&store);
    import(&store, &open("second"));
    assert_eq!(dump(&store), before);
}

#[test]
fn a_sealed_message_that_came_back_changed_is_kept_once_beside_the_first() {
    let changed = |text: &str| {
        let mut steps = vec![Step::Own("s"), begin("a", None)];
        steps.extend([
            user("a", 0, "go"),
            assistant("a", 0, text),
            user("a", 1, "more"),
        ]);
        steps
    };
    let store = imported(&changed("first"));
    assert_eq!(import(&store, &changed("second")).revised, 1);
    let before = dump(&store);
    for _ in 0..2 {
        assert_eq!(import(&store, &changed("second")).revised, 0);
        assert_eq!(import(&store, &changed("first")).added_messages, 0);
    }
    assert_eq!(dump(&store), before);
    let kept = rows(&store, "SELECT id & 255, head FROM messages WHERE role = 3");
    assert_eq!(kept.len(), 1);
    assert!(
        kept[0].contains("revised") && kept[0].contains("second"),
        "{kept:?}"
    );
    assert_eq!(context(&store, "a"), ["go", "first", "more"]);
    // Messages after the revision are still matched.
    let mut grown = changed("second");
    grown.push(assistant("a", 1, "end"));
    let report = import(&store, &grown);
    assert_eq!((report.added_messages, report.revised), (1, 0));
    assert_eq!(context(&store, "a"), ["go", "first", "more", "end"]);
    assert_eq!(import(&store, &grown).added_messages, 0);
}

#[test]
fn a_revision_within_the_open_turn_outlives_its_replacement() {
    let steps = |sealed: &str, open: &str| {
        let mut steps = vec![Step::Own("s"), running("a", None), user("a", 0, sealed)];
        steps.extend([
            assistant("a", 0, "ok"),
            user("a", 1, "more"),
            call("a", 1, open),
        ]);
        steps
    };
    let store = imported(&steps("one", "c1"));
    assert_eq!(import(&store, &steps("two", "c1")).revised, 1);
    assert_eq!(import(&store, &steps("two", "c2")).revised, 0);
    assert_eq!(context(&store, "a"), ["one", "ok", "more", "call c2"]);
    assert_eq!(
        rows(&store, "SELECT count(*) FROM messages WHERE role = 3"),
        ["1"]
    );
    let before = dump(&store);
    import(&store, &steps("two", "c2"));
    assert_eq!(dump(&store), before);
}

#[test]
fn an_answer_that_goes_on_after_the_end_of_the_file_gets_its_rest() {
    let blocks = |count: usize| {
        let mut content = vec![Content::text("I look"), Content::thinking("hm", None)];
        for id in ["c1", "c2"] {
            content.push(Content::tool_call(id, "read", Json::null()));
        }
        content.truncate(count);
        let answer = Message::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        });
        let mut steps = vec![Step::Own("s"), begin("a", None), user("a", 0, "go")];
        steps.push(step("a", 0, answer));
        steps
    };
    let store = imported(&blocks(1));
    let mut whole = blocks(4);
    whole.extend([result("a", 0, "c1", "one"), result("a", 0, "c2", "two")]);
    whole.extend([assistant("a", 1, "done")]);
    for (steps, added) in [
        (blocks(3), 1),
        (blocks(3), 0),
        (whole.clone(), 4),
        (whole, 0),
    ] {
        let report = import(&store, &steps);
        assert_eq!((report.added_messages, report.revised), (added, 0));
    }
    let shown = ["go", "I look", "call c1", "call c2", "one", "two", "done"];
    assert_eq!(context(&store, "a"), shown);
    assert_eq!(
        rows(&store, "SELECT turns, open_calls FROM loops"),
        ["2 null"]
    );
}

/// Returns four runs of one key whose first messages are the same.
fn runs() -> Vec<Step> {
    let mut steps = Vec::new();
    for answer in ["w", "x", "y", "z"] {
        steps.extend([Step::Key("7/0"), begin("a", None)]);
        steps.extend([user("a", 0, "same task"), assistant("a", 0, "same start")]);
        steps.extend([user("a", 1, "go on"), assistant("a", 1, answer)]);
    }
    steps
}

#[test]
fn sessions_without_ids_are_known_by_their_key_and_their_beginning() {
    let store = store();
    let report = import_as(&store, "x/tau bench.json", &runs()).unwrap();
    let ids: Vec<&str> = report.sessions.iter().map(SessionId::as_str).collect();
    let expected = [
        "tau-bench-7-0",
        "tau-bench-7-0-2",
        "tau-bench-7-0-3",
        "tau-bench-7-0-4",
    ];
    assert_eq!(ids, expected);
    let before = dump(&store);
    let again = import_as(&store, "elsewhere/tau bench.json", &runs()).unwrap();
    assert_eq!(again.sessions, report.sessions);
    assert_eq!(dump(&store), before);
    let mut grown = runs();
    grown.push(user("a", 2, "still there?"));
    let report = import_as(&store, "tau bench.json", &grown).unwrap();
    assert_eq!(report.added_messages, 1);
    assert_eq!(rows(&store, "SELECT count(*) FROM sessions"), ["4"]);
    assert_eq!(rows(&store, "SELECT count(*) FROM imports"), ["5"]);
}

#[test]
fn a_file_of_the_same_name_with_another_conversation_is_another_session() {
    let chat = |text: &str| vec![Step::Key("0"), begin("a", None), user("a", 0, text)];
    let store = store();
    for (folder, text) in [("a", "hello"), ("b", "goodbye")] {
        import_as(&store, &format!("{folder}/chat.json"), &chat(text)).unwrap();
    }
    assert_eq!(
        rows(&store, "SELECT session_id FROM sessions"),
        [r#""chat-0""#, r#""chat-0-2""#]
    );
}

#[test]
fn hostile_ids_are_only_text() {
    const IDS: [&str; 4] = [
        "'; DROP TABLE messages; --",
        "../../etc/passwd",
        "a:b\u{202e}",
        "\\\"{}",
    ];
    for id in IDS {
        let mut steps = vec![Step::Own(id), begin(id, None)];
        steps.extend(work(id, id));
        steps.push(summary(id, "sum", None));
        let store = imported(&steps);
        assert_eq!(rows(&store, "SELECT count(*) FROM messages"), ["4"]);
        assert_eq!(rows(&store, "SELECT count(*) FROM runs"), ["1"]);
        let before = dump(&store);
        import(&store, &steps);
        assert_eq!(dump(&store), before);
    }
    let store = store();
    let keyed = [
        Step::Key("'; DROP TABLE sessions"),
        begin("a", None),
        user("a", 0, "x"),
    ];
    import_as(&store, "../..", &keyed).unwrap();
    assert_eq!(
        rows(&store, "SELECT session_id FROM sessions"),
        [r#""DROP-TABLE-sessions""#]
    );
}

#[test]
fn a_parent_that_is_missing_is_noted_and_a_wrong_cut_is_reported() {
    let mut lost = record("b", Some("a"), LoopStatus::Completed);
    lost.parent_turn = Some(99.into());
    let store = imported(&[
        Step::Own("s"),
        begin("a", Some("nowhere")),
        user("a", 0, "x"),
    ]);
    let steps = [Step::Own("s"), Step::Loop(lost), user("b", 0, "y")];
    let report = import(&store, &steps);
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(
        rows(
            &store,
            "SELECT loop_id, parent, parent_loop_id, parent_turn FROM loops"
        ),
        [r#""a" null "nowhere" null"#, r#""b" 1 "a" 0"#]
    );
    let own = imported(&[Step::Own("s"), begin("a", Some("a")), user("a", 0, "x")]);
    assert_eq!(rows(&own, "SELECT parent FROM loops"), ["null"]);
}

#[test]
fn an_import_that_fails_leaves_nothing() {
    let store = imported(&two_loops());
    let before = dump(&store);
    let mut steps = two_loops();
    steps.extend([
        begin("c", Some("b")),
        user("c", 0, "new"),
        Step::Own("t"),
        begin("z", None),
    ]);
    steps.push(Step::Fail);
    let error = import_as(&store, "file.script", &steps).unwrap_err();
    assert!(matches!(error, ImportError::NoTranscript(_)), "{error}");
    assert_eq!(dump(&store), before);
}

#[test]
fn calls_out_of_order_are_refused() {
    for steps in [
        vec![begin("a", None)],
        vec![Step::Own("s"), user("a", 0, "x")],
        vec![Step::Own("s"), summary("a", "x", None)],
    ] {
        let store = store();
        assert!(import_as(&store, "f.script", &steps).is_err());
        assert_eq!(rows(&store, "SELECT count(*) FROM sessions"), ["0"]);
    }
}

#[test]
fn a_session_without_a_loop_is_reported_and_not_stored() {
    let store = store();
    let report = import(&store, &[Step::Own("s")]);
    assert!(report.sessions.is_empty());
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(rows(&store, "SELECT count(*) FROM sessions"), ["0"]);
}

#[test]
fn metadata_follows_the_newest_import() {
    let store = imported(&two_loops());
    let mut steps = two_loops();
    let mut record = record("b", Some("a"), LoopStatus::Aborted);
    record.ended_at = Some(Time::from_text("2026-01-03T00:00:00Z"));
    record.metadata = Some(Json::parse(r#"{"a":1.0}"#).unwrap());
    steps.push(Step::Loop(record));
    import(&store, &steps);
    let found = rows(
        &store,
        "SELECT status, ended_at, meta FROM loops WHERE loop_id = 'b'",
    );
    assert!(
        found[0].starts_with(r#""Aborted" "2026-01-03T00:00:00Z""#),
        "{found:?}"
    );
    assert!(found[0].contains("1.0"), "{found:?}");
    assert_eq!(rows(&store, "SELECT count(*) FROM imports"), ["2"]);
}

#[test]
fn loops_that_take_turns_keep_the_order_of_the_transcript() {
    let mut steps = vec![Step::Own("s"), running("a", None), running("b", None)];
    for turn in 0..3 {
        steps.push(user("a", turn, &format!("a{turn}")));
        steps.push(user("b", turn, &format!("b{turn}")));
    }
    let store = imported(&steps);
    let order = rows(
        &store,
        "SELECT body IS NULL, head ->> '$.content[0].text' FROM messages ORDER BY tick",
    );
    let texts: Vec<&str> = order.iter().map(|row| &row[2..]).collect();
    assert_eq!(
        texts,
        [
            r#""a0""#, r#""b0""#, r#""a1""#, r#""b1""#, r#""a2""#, r#""b2""#
        ]
    );
}

#[test]
fn more_messages_than_a_batch_holds_all_come_in() {
    let mut steps = vec![Step::Own("s"), begin("a", None)];
    for turn in 0..700 {
        steps.push(user("a", turn, &"x".repeat(5000)));
    }
    let store = imported(&steps);
    assert_eq!(
        rows(&store, "SELECT turns, next_seq FROM loops"),
        ["700 700"]
    );
    assert_eq!(import(&store, &steps).added_messages, 0);
}
