//! The titles and projects of sessions in the transcripts of each format.

use std::path::Path;

use loopstore::extend::SessionFilter;
use loopstore::{SessionId, SqliteStore};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::support::recording::real_transcripts;

fn import(path: &Path, redacts: bool) -> SqliteStore {
    let store = SqliteStore::in_memory().unwrap();
    let options = ImportOptions {
        redact: redacts,
        ..ImportOptions::default()
    };
    import_paths(&store, &[path.to_owned()], &options, &mut |_| {}).unwrap();
    store
}

/// Returns `source: title | project` of each session of a transcript.
fn titles_in(name: &str, lines: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, lines).unwrap();
    titles_of(&import(&path, false))
}

fn titles_of(store: &SqliteStore) -> Vec<String> {
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    let line = |row: &loopstore::extend::sqlite::Record| {
        let word = |column| row.text(column).unwrap_or_default();
        format!(
            "{}: {} | {}",
            word("source"),
            word("title"),
            word("project")
        )
    };
    rows.iter().map(line).collect()
}

const CLAUDE: &str = r#"{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s","cwd":"/work/kite","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"Mend the build"}}
{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"s","cwd":"/work/kite/src","timestamp":"2026-01-01T00:00:01Z","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"Done."}]}}
"#;

#[test]
fn claude_code_names_sessions_in_three_ways() {
    let titled = |more: &str| titles_in("s.jsonl", &format!("{CLAUDE}{more}"));
    assert_eq!(titled(""), ["claude-code: Mend the build | /work/kite"]);
    let summary = "{\"type\":\"summary\",\"summary\":\"A summary\",\"leafUuid\":\"a1\"}\n";
    let made = "{\"type\":\"ai-title\",\"aiTitle\":\"A made title\",\"sessionId\":\"s\"}\n";
    let given = "{\"type\":\"custom-title\",\"customTitle\":\"My title\",\"sessionId\":\"s\"}\n";
    let again = "{\"type\":\"custom-title\",\"customTitle\":\"Another\",\"sessionId\":\"s\"}\n";
    let of_another = "{\"type\":\"summary\",\"summary\":\"Of another file\",\"leafUuid\":\"x\"}\n";
    for (more, title) in [
        (of_another.to_owned(), "Mend the build"),
        (format!("{summary}{of_another}"), "A summary"),
        (format!("{made}{summary}"), "A made title"),
        (format!("{given}{made}{summary}"), "My title"),
        (format!("{given}{again}{made}"), "Another"),
        // A value that is not a text is no title.
        (
            "{\"type\":\"custom-title\",\"customTitle\":7}\n".into(),
            "Mend the build",
        ),
    ] {
        assert_eq!(
            titled(&more),
            [format!("claude-code: {title} | /work/kite")],
            "{more}"
        );
    }
}

#[test]
fn codex_names_threads_and_says_where_it_runs() {
    let lines = r#"{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"019f03e0-321f-7eb2-83cc-b54ecd71be23","cwd":"/work/kite","cli_version":"0.142"}}
{"timestamp":"2026-01-01T00:00:01Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"Mend the build"}]}}
{"timestamp":"2026-01-01T00:00:01Z","type":"event_msg","payload":{"type":"user_message","message":"Mend the build"}}
{"timestamp":"2026-01-01T00:00:02Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}}
"#;
    assert_eq!(
        titles_in("rollout.jsonl", lines),
        ["codex: Mend the build | /work/kite"]
    );
    let named = r#"{"timestamp":"2026-01-01T00:00:03Z","type":"event_msg","payload":{"type":"thread_name_updated","thread_id":"t","thread_name":"The build"}}"#;
    assert_eq!(
        titles_in("rollout.jsonl", &format!("{lines}{named}\n")),
        ["codex: The build | /work/kite"]
    );
}

#[test]
fn copilot_says_where_it_began_and_what_it_is_called() {
    let lines = r#"{"type":"session.start","data":{"sessionId":"s","copilotVersion":"1.0.77","context":{"cwd":"/work/kite"}},"id":"e1","timestamp":"2026-01-01T00:00:00Z","parentId":null}
{"type":"user.message","data":{"content":"Mend the build"},"id":"e2","timestamp":"2026-01-01T00:00:01Z","parentId":"e1"}
{"type":"assistant.message","data":{"messageId":"m","content":"Done."},"id":"e3","timestamp":"2026-01-01T00:00:02Z","parentId":"e2"}
"#;
    assert_eq!(
        titles_in("events.jsonl", lines),
        ["copilot-cli: Mend the build | /work/kite"]
    );
    let named = r#"{"type":"session.title_changed","data":{"title":"The build"},"id":"e4","timestamp":"2026-01-01T00:00:03Z","parentId":"e3"}"#;
    assert_eq!(
        titles_in("events.jsonl", &format!("{lines}{named}\n")),
        ["copilot-cli: The build | /work/kite"]
    );
}

#[test]
fn gemini_has_a_summary_and_folders_or_the_digest_of_one() {
    let titles_in = |head: &str| {
        let text = format!(
            r#"{{"sessionId":"s","startTime":"2026-01-01T00:00:00Z","projectHash":"7e89",{head}"messages":[
            {{"id":"1","timestamp":"2026-01-01T00:00:00Z","type":"user","content":"Mend the build"}},
            {{"id":"2","timestamp":"2026-01-01T00:00:01Z","type":"gemini","content":"Done."}}]}}"#
        );
        titles_in("session.json", &text)
    };
    assert_eq!(titles_in(""), ["gemini-cli: Mend the build | 7e89"]);
    let folders = r#""summary":"The build","directories":["/work/kite","/work/lark"],"#;
    assert_eq!(titles_in(folders), ["gemini-cli: The build | /work/kite"]);
    let odd = r#""summary":{"a":1},"directories":"x","#;
    assert_eq!(titles_in(odd), ["gemini-cli: Mend the build | 7e89"]);
}

#[test]
fn opencode_and_pi_say_where_they_run() {
    let opencode = |info: &str| {
        let text = format!(
            r#"{{"info":{{"id":"ses_1",{info}"projectID":"4f2a","time":{{"created":1,"updated":2}}}},"messages":[
            {{"info":{{"id":"msg_1","sessionID":"ses_1","role":"user","time":{{"created":1}}}},"parts":[{{"id":"prt_1","type":"text","text":"Mend the build"}}]}}]}}"#
        );
        titles_in("export.json", &text)
    };
    assert_eq!(
        opencode(r#""directory":"/work/kite","#),
        ["opencode: Mend the build | /work/kite"]
    );
    assert_eq!(
        opencode(r#""title":"The build","#),
        ["opencode: The build | 4f2a"]
    );

    let pi = r#"{"type":"session","version":3,"id":"p","timestamp":"2026-01-01T00:00:00Z","cwd":"/work/kite"}
{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-01T00:00:01Z","message":{"role":"user","content":"Mend the build"}}
"#;
    assert_eq!(
        titles_in("pi.jsonl", pi),
        ["pi: Mend the build | /work/kite"]
    );
}

#[test]
fn a_session_keeps_the_folder_that_it_began_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    std::fs::write(&path, CLAUDE).unwrap();
    let store = import(&path, false);
    std::fs::write(&path, CLAUDE.replace("/work/kite", "/elsewhere")).unwrap();
    let options = ImportOptions::default();
    import_paths(&store, &[path], &options, &mut |_| {}).unwrap();
    assert_eq!(
        titles_of(&store),
        ["claude-code: Mend the build | /work/kite"]
    );
}

#[test]
fn a_secret_in_the_name_of_a_folder_is_redacted_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";
    std::fs::write(&path, CLAUDE.replace("kite", secret)).unwrap();
    let titles_in = titles_of(&import(&path, true)).join("\n");
    assert!(
        titles_in.contains("/work/[REDACTED:") && !titles_in.contains("ghp_0123"),
        "{titles_in}"
    );
}

#[test]
fn what_a_sub_agent_of_a_redacted_session_says_is_redacted_too() {
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";
    let line = |kind: &str, id: &str, data: serde_json::Value| {
        let time = "2026-01-01T10:00:00.000Z";
        serde_json::json!({"type": kind, "id": id, "timestamp": time, "data": data}).to_string()
            + "\n"
    };
    let call = serde_json::json!({"toolCallId": "t1", "name": "task", "arguments": {"prompt": "go"}, "type": "function"});
    let begun = [
        line("session.start", "e0", serde_json::json!({"sessionId": "13131313-1111-4111-8111-111111111111", "version": 1, "copilotVersion": "1.0.77"})),
        line("user.message", "e1", serde_json::json!({"content": format!("use {secret}")})),
        line("assistant.message", "e2", serde_json::json!({"content": "", "toolRequests": [call]})),
    ]
    .concat();
    let rest = [
        line("assistant.message", "e3", serde_json::json!({"content": format!("it is {secret}"), "toolRequests": [], "parentToolCallId": "t1"})),
        line("tool.execution_complete", "e4", serde_json::json!({"toolCallId": "t1", "success": true, "result": {"content": "ok"}})),
    ]
    .concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    std::fs::write(&path, &begun).unwrap();
    let store = import(&path, true);
    // A later import does not ask for redaction.
    std::fs::write(&path, begun + &rest).unwrap();
    import_paths(&store, &[path], &ImportOptions::default(), &mut |_| {}).unwrap();
    let sql = "SELECT count(DISTINCT session_id) AS sessions, count(*) FILTER (WHERE payload LIKE '%ghp_%') AS told,
            count(*) FILTER (WHERE payload LIKE '%it is [REDACTED:%') AS redacted FROM v_messages";
    let rows = store.query(sql).unwrap();
    assert_eq!(format!("{:?}", rows.rows), "[[2, 0, 1]]");
}

#[test]
fn what_an_answer_used_is_the_last_count_also_if_it_grew() {
    let answer = |id: &str, block: serde_json::Value, output: u32| {
        serde_json::json!({"type": "assistant", "uuid": id, "parentUuid": "r1", "sessionId": "red", "version": "2.1.0", "cwd": "/w",
            "timestamp": "2026-01-01T10:00:02.000Z", "requestId": "q", "message": {"id": "m1", "type": "message",
            "role": "assistant", "model": "claude", "content": [block], "stop_reason": null,
            "usage": {"input_tokens": 10, "output_tokens": output}}})
        .to_string() + "\n"
    };
    let prompt = serde_json::json!({"type": "user", "uuid": "r1", "parentUuid": null, "sessionId": "red", "version": "2.1.0", "cwd": "/w",
        "timestamp": "2026-01-01T10:00:01.000Z", "message": {"role": "user", "content": "list it"}});
    let begun = format!(
        "{prompt}\n{}",
        answer(
            "r2",
            serde_json::json!({"type": "text", "text": "I list."}),
            1
        )
    );
    let call = serde_json::json!({"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}});
    let whole = begun.clone() + &answer("r3", call, 90);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("red.jsonl");
    let used = |store: &SqliteStore| {
        let rows = store
            .query("SELECT sum(input), sum(output) FROM v_usage")
            .unwrap();
        format!("{:?}", rows.rows)
    };
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(used(&import(&path, false)), "[[10, 90]]");
    std::fs::write(&path, &begun).unwrap();
    let store = import(&path, false);
    std::fs::write(&path, &whole).unwrap();
    import_paths(&store, &[path], &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(used(&store), "[[10, 90]]");
}

#[test]
fn title_and_project_come_back_from_an_export() {
    let given = "{\"type\":\"custom-title\",\"customTitle\":\"My title\",\"sessionId\":\"s\"}\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    std::fs::write(&path, format!("{CLAUDE}{given}")).unwrap();
    let store = import(&path, false);
    let id = SessionId::new("s").unwrap();
    for (form, name, source) in [
        (ExportForm::Lines, "out.jsonl", "claude-code"),
        (ExportForm::PhiCore, "out.json", "phi-core"),
    ] {
        let out = folder.path().join(name);
        let mut file = std::fs::File::create(&out).unwrap();
        export(&store, &id, None, form, &mut file).unwrap();
        let expected = format!("{source}: My title | /work/kite");
        assert_eq!(titles_of(&import(&out, false)), [expected]);
    }
}

/// For recorded sessions, the views show the same as the library derives from the messages.
#[test]
fn views_and_library_agree_on_real_transcripts() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let store = import(&folder, false);
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    let titled = rows
        .iter()
        .filter(|row| row.text("title").is_some())
        .count();
    assert!(titled * 10 > rows.len() * 8, "{titled} of {}", rows.len());
    let mut loops = 0;
    for row in rows {
        let id = SessionId::new(row.text("session_id").unwrap()).unwrap();
        let sql = |columns: &str, view: &str| {
            let sql = format!("SELECT {columns} FROM {view} WHERE session_id = ?1");
            store.query_with(&sql, &[id.as_str()]).unwrap().records()
        };
        let view = &sql("title, prompt", "v_sessions")[0];
        for column in ["title", "prompt"] {
            assert_eq!(view.text(column), row.text(column), "{id}");
        }
        let found = store.session_view(&id).unwrap().loops;
        let found = found
            .iter()
            .map(|(row, _)| (row.text("loop_id"), row.text("prompt")));
        let mut found: Vec<_> = found.collect();
        let views = sql("loop_id, prompt", "v_loops");
        let views = views
            .iter()
            .map(|row| (row.text("loop_id"), row.text("prompt")));
        let mut views: Vec<_> = views.collect();
        found.sort();
        views.sort();
        assert_eq!(found, views, "{id}");
        loops += found.len();
    }
    assert!(loops > 0);
}
