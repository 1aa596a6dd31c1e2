//! Sessions of pi.

use insta::assert_snapshot;
use serde_json::json;

use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{import, is_sound, shown, store};

#[test]
fn entries_with_parents_are_a_tree() {
    let recorded = Recorder::of_fixture("pi", "garden.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session garden-1 "A garden"
      loop u1 Initial Completed
        - note session
        - note model_change
        - note session_info
        0 user It is dry.
        0 user Plant beans
        0 assistant Digging. [p1]
        0 toolResult a stone <p1 dig failed>
        1 assistant A stone.
        2 user Ran `ls`
      loop u2 Default after u1:2 Aborted
        0 user Left bed
        0 assistant
      loop s1 {Branch:{tag:s1}} after u1:2 Completed
        0 user The following is a summary of a branch that this conversatio
      loop u3 Default after s1:0 Completed
        0 user Right bed
        0 assistant Sown.
        - note label
      loop u4 Default after u3:0 Completed
        0 user Water
        0 assistant Wet.
      loop a6 {Branch:{tag:a6}} after u3:0 Completed
        0 user Water
        0 assistant Wetter.
      ? compaction in u3@2: summary keeps u3:0 but 1
    "##);
}

#[test]
fn entries_without_ids_follow_each_other() {
    let recorded = Recorder::of_fixture("pi", "first-version.jsonl");
    assert_snapshot!(recorded.outline(), @r##"
    session garden-0
      loop line-2 Initial Completed
        - note session
        0 user Rake
        0 assistant  [q1]
        - note thinking_level_change
        0 toolResult leaves <q1 rake>
        1 assistant Raked.
      loop line-6 Default after line-2:1 Completed
        0 user Burn
        0 assistant Smoke.
      loop line-9 Default after line-6:0 Running
        0 user Sow
      ? compaction in line-6@2: summary of 1 keeps line-2:1
    "##);
}

#[test]
fn messages_keep_what_they_were_made_from() {
    let recorded = Recorder::of_fixture("pi", "garden.jsonl");
    let answer = recorded.json_of(2);
    assert_eq!(
        answer["content"][0],
        json!({"type": "thinking", "thinking": "Dig.", "signature": "sig=="})
    );
    assert_eq!(
        answer["usage"],
        json!({"input": 10, "output": 5, "cache_read": 3, "cache_write": 2, "total_tokens": 20,
            "cost": {"input": 0.1, "total": 0.25}})
    );
    assert_eq!(answer["source"]["parentId"], "u1");
    let result = recorded.json_of(3);
    assert_eq!(
        (&result["isError"], &result["source"]["message"]),
        (&json!(true), &json!({"details": {"kg": 2}}))
    );
    let ran = recorded.json_of(5);
    assert_eq!(
        ran["content"][0]["text"],
        "Ran `ls`\n```\nspade\n```\n\nCommand exited with code 1"
    );
    assert_eq!(ran["source"]["message"]["role"], "bashExecution");
    let session = &recorded.sessions[0].head.session;
    assert_eq!(
        session.extra.get("parentSession").unwrap().as_str(),
        "\"/old/seed.jsonl\""
    );
}

#[test]
fn the_context_is_the_path_to_the_last_entry_as_the_compaction_left_it() {
    let store = store();
    for (name, session, expected) in [
        (
            "garden",
            "garden-1",
            vec![("Beans in the right bed."), "Sown.", "Water", "Wetter."],
        ),
        (
            "first-version",
            "garden-0",
            vec!["Raked.", "Raked.", "Burn", "Smoke.", "Sow"],
        ),
    ] {
        let path = format!("../../tests/fixtures/pi/{name}.jsonl");
        let bytes = std::fs::read(&path).unwrap();
        import(&store, importer("pi"), &path, &bytes).unwrap();
        let shown = shown(&store, session);
        assert_eq!(shown.len(), expected.len(), "{shown:#?}");
        for (text, expected) in shown.iter().zip(expected) {
            assert!(text.contains(expected), "{text} {expected}");
        }
    }
    is_sound(&store, "pi");
}

fn entry(id: &str, parent: &str, role: &str, text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":"{parent}","timestamp":"2026-04-01T06:00:00Z","message":{{"role":"{role}","content":"{text}"}}}}"#
    )
}

fn compaction(id: &str, parent: &str, kept: &str) -> String {
    format!(
        r#"{{"type":"compaction","id":"{id}","parentId":"{parent}","timestamp":"2026-04-01T06:00:00Z","summary":"S-{id}","firstKeptEntryId":"{kept}"}}"#
    )
}

/// Returns the context after these entries, without the texts that pi puts around a summary.
fn context_of(entries: &[String]) -> Vec<String> {
    let store = store();
    let header =
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-04-01T06:00:00Z","cwd":"/"}"#;
    let text = format!("{header}\n{}", entries.join("\n"));
    import(&store, importer("pi"), "s.jsonl", text.as_bytes()).unwrap();
    is_sound(&store, &text);
    let bare = |text: &String| match text.split_once("<summary>\n") {
        Some((_, rest)) => rest.split('\n').next().unwrap().to_owned(),
        None => text.clone(),
    };
    shown(&store, "s").iter().map(bare).collect()
}

#[test]
fn compactions_keep_from_any_entry_on() {
    let mut entries = vec![
        entry("u1", "", "user", "one"),
        entry("a1", "u1", "assistant", "1"),
        entry("u2", "a1", "user", "two"),
        entry("a2", "u2", "assistant", "2"),
    ];
    let after = |kept: &str| {
        let mut entries = entries.clone();
        entries.push(compaction("k", "a2", kept));
        entries.push(entry("u3", "k", "user", "three"));
        context_of(&entries)
    };
    assert_eq!(after("u2"), ["S-k", "two", "2", "three"]);
    assert_eq!(after("a1"), ["S-k", "1", "two", "2", "three"]);
    assert_eq!(
        after("u1"),
        ["S-k", "1", "two", "2", "three"],
        "with its prompt"
    );
    assert_eq!(after("a2"), ["S-k", "2", "three"]);
    assert_eq!(after("nowhere"), ["S-k", "three"]);
    entries.push(compaction("k", "a2", "a1"));
    entries.push(entry("u3", "k", "user", "three"));
    entries.push(entry("a3", "u3", "assistant", "3"));
    let again = |kept: &str| {
        let mut entries = entries.clone();
        entries.push(compaction("l", "a3", kept));
        context_of(&entries)
    };
    assert_eq!(again("a3"), ["S-l", "3"]);
    assert_eq!(again("a2"), ["S-l", "2", "three", "3"]);
    assert_eq!(again("u3"), ["S-l", "three", "3"]);
    assert_eq!(again(""), ["S-l"]);
}

#[test]
fn paths_leave_each_other_anywhere() {
    let entries = [
        entry("u1", "", "user", "one"),
        entry("a1", "u1", "assistant", "1"),
        entry("u2", "a1", "user", "two"),
        entry("a2", "u2", "assistant", "2"),
        entry("u3", "u1", "user", "after one"),
        entry("a3", "u3", "assistant", "3"),
        entry("u4", "a2", "user", "after 2"),
        entry("u5", "a3", "user", "after 3"),
        entry("a5", "lost", "assistant", "on"),
    ];
    assert_eq!(
        context_of(&entries),
        ["one", "after one", "3", "after 3", "on"]
    );
    assert_eq!(
        context_of(&entries[..7]),
        ["one", "1", "two", "2", "after 2"]
    );
}

#[test]
fn a_result_stands_on_its_path_when_its_call_is_on_another_branch() {
    let lines = [
        json!({"type": "session", "version": 3, "id": "garden-9", "timestamp": "2026-04-01T06:00:00.000Z", "cwd": "/srv"}),
        json!({"type": "message", "id": "u1", "parentId": null, "message": {"role": "user", "content": [{"type": "text", "text": "Dig"}]}}),
        json!({"type": "message", "id": "a1", "parentId": "u1", "message": {"role": "assistant", "content": [{"type": "toolCall", "id": "p9", "name": "dig", "arguments": {}}], "stopReason": "toolUse"}}),
        json!({"type": "branch_summary", "id": "s1", "parentId": "u1", "fromId": "a1", "summary": "Dug on the left."}),
        json!({"type": "message", "id": "r1", "parentId": "s1", "message": {"role": "toolResult", "toolCallId": "p9", "toolName": "dig", "content": [{"type": "text", "text": "a root"}], "isError": false}}),
        json!({"type": "message", "id": "a2", "parentId": "r1", "message": {"role": "assistant", "content": [{"type": "text", "text": "A root."}], "stopReason": "stop"}}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let store = store();
    let report = import(&store, importer("pi"), "g.jsonl", text.as_bytes()).unwrap();
    is_sound(&store, "a result on a branch summary");
    assert_eq!(report.skipped, []);
    let shown = format!("{:?}", shown(&store, "garden-9"));
    assert!(
        shown.contains("a root") && shown.contains("A root."),
        "{shown}"
    );
}
