//! Secrets in new content: an import or a recorder with redaction writes none of them to the files.

use loopstore::{extend as store, *};
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, Recorded, RecorderOptions, SessionRecorder};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};

use crate::support::histories::{answer, loop_id, result, user};
use crate::support::removal::*;

fn import(
    stage: &Stage,
    store: &SqliteStore,
    name: &str,
    text: &str,
    redact: bool,
) -> ImportReport {
    let path = stage.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    let options = ImportOptions {
        redact,
        ..ImportOptions::default()
    };
    import_paths(store, &[path], &options, &mut |_| {}).unwrap()
}

/// Returns a chat with a secret in every role, in arguments as JSON in JSON, and in a key.
fn chat(more: &str) -> String {
    let token = token();
    format!(
        r#"[{{"role":"system","content":"you have {token}"}},
        {{"role":"user","content":"use {token}","name":"{token}"}},
        {{"role":"assistant","content":"as you say","tool_calls":[{{"id":"c1","type":"function",
          "function":{{"name":"run","arguments":"{{\"\\u0067hp_{CORE}\":\"https:\\/\\/me:{token}@x.org\"}}"}}}}]}},
        {{"role":"tool","tool_call_id":"c1","content":"out: {token}"}},
        {{"role":"assistant","content":"{token} works"}}{more}]"#
    )
}

#[test]
fn an_import_that_redacts_lets_no_secret_reach_the_files() {
    let stage = Stage::new();
    let store = stage.store();
    let name = format!("{}/chat-{}.json", token(), token());
    let report = import(&stage, &store, &name, &chat(""), true);
    let secrets = report.secrets.unwrap();
    assert!(secrets["github-pat"] >= 5, "{secrets:?}");
    loopstore::search::search(&store, &loopstore::search::SearchQuery::new("works")).unwrap();
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sources"), 0);
    assert_whole(&store);

    // The import is repeated, then grown: only new content is imported, redacted in either case.
    let again = import(&stage, &store, &name, &chat(""), false);
    assert_eq!(again.added_messages, 0);
    let more = format!(r#",{{"role":"user","content":"and {} again"}}"#, token());
    let grown = import(&stage, &store, &name, &chat(&more), false);
    assert_eq!((grown.added_messages, grown.sessions.len()), (1, 1));
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sessions"), 1);
    assert_eq!(grown.secrets.unwrap()["github-pat"], 1);
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sources"), 0);
    assert_whole(&store);
}

#[test]
fn an_import_into_a_session_that_was_redacted_later_brings_nothing_back() {
    if crate::support::keyed::leaves_out(
        "an_import_into_a_session_that_was_redacted_later_brings_nothing_back",
    ) {
        return;
    }
    let stage = Stage::new();
    let store = stage.store();
    let first = import(&stage, &store, "chat.json", &chat(""), false);
    assert!(first.secrets.is_none());
    assert!(stage.count(CORE.as_bytes()) > 0);
    let told = import(&stage, &store, "chat.json", &chat(""), true);
    assert_eq!(told.unredacted, first.sessions);
    let report = redact_session(&store, &RedactRequest::new(first.sessions[0].clone())).unwrap();
    assert_eq!(report.sources, 1);
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    let more = format!(r#",{{"role":"user","content":"and {} again"}}"#, token());
    let grown = import(&stage, &store, "chat.json", &chat(&more), false);
    assert_eq!(grown.added_messages, 1);
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_whole(&store);
}

#[test]
fn what_is_imported_without_secrets_is_the_same_with_redaction() {
    let text =
        r#"[{"role":"user","content":"plain é \u0001"},{"role":"assistant","content":"words"}]"#;
    let contexts: Vec<String> = [false, true]
        .into_iter()
        .map(|redact| {
            let stage = Stage::new();
            let store = stage.store();
            let report = import(&stage, &store, "chat.json", text, redact);
            let id = &report.sessions[0];
            let built = build_context_from_session(&store, id, &BuildOptions::default()).unwrap();
            serde_json::to_string(&built.messages).unwrap()
        })
        .collect();
    assert_eq!(contexts[0], contexts[1]);
}

fn recorder(store: &SqliteStore) -> SessionRecorder<'_> {
    let options = RecorderOptions {
        redact: true,
        streaming: true,
        request_payloads: true,
        ..RecorderOptions::default()
    };
    SessionRecorder::new(store, options)
}

fn events() -> Vec<AgentEvent> {
    let (id, token) = (loop_id(0), token());
    let mut start = AgentStart::new(session("s"), id.clone());
    start.metadata = Some(Json::string(&token));
    let told = answer(&format!("I take {token}"), &["c1"], 0);
    let args = Json::parse(&format!("{{\"with\":\"{token}\"}}")).unwrap();
    let out = result("c1", vec![Content::text(format!("done with {token}"))], 0);
    let prompt = user(&format!("use {token}"), 0);
    let mut end = TurnEnd::new(id.clone());
    end.message = Some(told.clone());
    end.tool_results = vec![out.clone()];
    vec![
        AgentEvent::AgentStart(start),
        AgentEvent::TurnStart(TurnStart::new(id.clone(), 0)),
        AgentEvent::MessageStart(MessageStart::new(id.clone(), prompt.clone())),
        AgentEvent::MessageEnd(MessageEnd::new(id.clone(), prompt)),
        AgentEvent::MessageStart(MessageStart::new(id.clone(), told.clone())),
        AgentEvent::MessageEnd(MessageEnd::new(id.clone(), told)),
        AgentEvent::ToolExecutionStart(ToolExecutionStart::new(id.clone(), "c1", "tool", args)),
        AgentEvent::ToolExecutionEnd(ToolExecutionEnd::new(id.clone(), "c1", "tool")),
        AgentEvent::MessageStart(MessageStart::new(id.clone(), out.clone())),
        AgentEvent::MessageEnd(MessageEnd::new(id.clone(), out)),
        AgentEvent::TurnEnd(end),
        AgentEvent::AgentEnd(AgentEnd::new(id)),
    ]
}

#[test]
fn a_recorder_that_redacts_lets_no_secret_reach_the_files() {
    let stage = Stage::new();
    let store = stage.store();
    let mut recorder = recorder(&store);
    for event in events() {
        recorder.record(event).unwrap();
        assert_eq!(stage.count(CORE.as_bytes()), 0);
    }
    assert!(recorder.secrets()["github-pat"] > 4);
    let messages =
        "SELECT count(*) AS n FROM messages WHERE coalesce(body, '') || head LIKE '%REDACTED%'";
    assert_eq!(number(&store, messages), 3);
    let flags = store::read(&store, |read| {
        let key = read.session(&session("s"))?.unwrap().key;
        read.flags(key)
    });
    assert!(flags.unwrap().redacts);
    assert_whole(&store);
}

#[test]
fn a_call_that_starts_again_is_known_in_spite_of_its_marker() {
    let stage = Stage::new();
    let store = stage.store();
    let start_of = |events: Vec<AgentEvent>| events.into_iter().take(7).collect::<Vec<_>>();
    let mut first = recorder(&store);
    let mut keys = Vec::new();
    for event in start_of(events()) {
        if let Recorded::Call {
            idempotency_key, ..
        } = first.record(event).unwrap()
        {
            keys.push(idempotency_key);
        }
    }
    first.release(&loop_id(0)).unwrap();
    let mut second = recorder(&store);
    second.resume(&session("s"), &loop_id(0)).unwrap();
    for event in start_of(events()).into_iter().skip(1) {
        if let Recorded::Call {
            idempotency_key,
            attempts,
        } = second.record(event).unwrap()
        {
            assert_eq!((&idempotency_key, attempts), (&keys[0], 2));
        }
    }
}
