//! Reserved kinds of extensions, which loopstore itself writes: a record of a transcript with such a type is kept under
//! another kind.

use loopstore::SqliteStore;
use loopstore_transcripts::{Importer, importers};

use super::stage::{import_bytes, import_into};

/// The kinds whose contents are read again: changed messages, removed messages, events of phi-core.
const KINDS: [&str; 3] = ["revised", "removed", "phi-core-event"];

/// Returns a prompt and a record of the type `KIND`, in each format with foreign records.
fn transcript(format: &str) -> Option<&'static str> {
    Some(match format {
        "adk" => {
            r#"{"id":"s","events":[
                {"author":"user","timestamp":1.0,"content":{"parts":[{"text":"Hi"}]}},
                {"author":"KIND","timestamp":2.0,"content":null}]}"#
        }
        "aider" => "# aider chat started at 2031-04-01 09:00:00\n\n#### Hi\n\nKIND\n\n> KIND\n",
        "anthropic" => {
            r#"{"system":"Be brief.","messages":[{"role":"user","content":"Hi"},{"role":"KIND","content":"x"}]}"#
        }
        "responses" => r#"{"input":[{"role":"user","content":"Hi"},{"type":"KIND"}]}"#,
        "atif" => {
            r#"{"schema_version":"ATIF-v1.8","session_id":"s","steps":[
                {"source":"user","message":"Hi"},{"source":"KIND","message":"x"}]}"#
        }
        "claude-code" => {
            r#"{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"Hi"}}
{"type":"KIND","uuid":"b","parentUuid":"a","sessionId":"s","seq":0}"#
        }
        "cline" => {
            r#"[{"role":"user","content":"<task>\nHi\n</task>\n<environment_details></environment_details>"},
                {"role":"KIND","content":"x"}]"#
        }
        "roo-code" => {
            r#"[{"role":"user","content":"<task>\nHi\n</task>\n<environment_details><slug>code</slug></environment_details>"},
                {"role":"KIND","content":"x"}]"#
        }
        "codex" => {
            r#"{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}
{"timestamp":"2026-01-01T00:00:01Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}}
{"timestamp":"2026-01-01T00:00:02Z","type":"event_msg","payload":{"type":"KIND"}}"#
        }
        "copilot-cli" => {
            r#"{"type":"session.start","data":{"sessionId":"s","copilotVersion":"1"},"id":"a","timestamp":"2026-01-01T00:00:00Z","parentId":null}
{"type":"user.message","data":{"content":"Hi"},"id":"b","timestamp":"2026-01-01T00:00:01Z","parentId":"a"}
{"type":"KIND","data":{},"id":"c","timestamp":"2026-01-01T00:00:02Z","parentId":"b"}"#
        }
        "gemini-cli" => {
            r#"{"sessionId":"s","projectHash":"h","messages":[
                {"id":"a","type":"user","content":"Hi","timestamp":"2026-01-01T00:00:00Z"},
                {"id":"b","type":"KIND","content":"x","timestamp":"2026-01-01T00:00:01Z"}]}"#
        }
        "goose" => {
            r#"{"working_dir":"/","message_count":2}
{"role":"user","created":1,"content":[{"type":"text","text":"Hi"}]}
{"role":"KIND","created":2,"content":[{"type":"text","text":"x"}]}"#
        }
        "mini-swe-agent" => {
            r#"{"info":{"mini_version":"1"},"trajectory_format":"mini-swe-agent-1","messages":[
                {"role":"user","content":"Hi"},{"role":"KIND","content":"x"}]}"#
        }
        "openai-chat" => r#"[{"role":"user","content":"Hi"},{"role":"KIND","content":"x"}]"#,
        "opencode" => {
            r#"{"info":{"id":"s","projectID":"p"},"messages":[
                {"info":{"id":"a","role":"user"},"parts":[{"type":"text","text":"Hi"}]},
                {"info":{"id":"b","role":"KIND"},"parts":[]}]}"#
        }
        "openhands" => {
            r#"{"id":"a","timestamp":"2026-01-01T00:00:00","source":"user","kind":"MessageEvent","llm_message":{"role":"user","content":[{"type":"text","text":"Hi"}]}}
{"id":"b","timestamp":"2026-01-01T00:00:01","source":"environment","kind":"KIND"}"#
        }
        "pi" => {
            r#"{"type":"session","id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}
{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:01Z","message":{"role":"user","content":"Hi"}}
{"type":"KIND","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:02Z"}"#
        }
        "qwen-code" => {
            r#"{"uuid":"a","parentUuid":null,"sessionId":"s","type":"user","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","parts":[{"text":"Hi"}]}}
{"uuid":"b","parentUuid":"a","sessionId":"s","type":"system","subtype":"KIND","systemPayload":{}}"#
        }
        "swe-agent" => {
            r#"{"history":[{"role":"user","content":"Hi","message_type":"observation"},
                {"role":"KIND","content":"x"}],"trajectory":[],"info":{}}"#
        }
        _ => return None,
    })
}

/// Returns the kinds of the extensions in a store.
fn kinds(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT payload ->> 'kind' FROM v_messages WHERE role = 'extension'";
    let rows = store.query(sql).unwrap().rows;
    rows.iter().map(|row| row[0].read().unwrap()).collect()
}

/// True if a format may skip such a record, or uses one kind for all of them.
fn names_none(format: &str) -> bool {
    matches!(
        format,
        "adk" | "aider" | "goose" | "anthropic" | "openai-chat" | "responses"
    )
}

fn check(format: &str, kind: &str, found: &[String]) {
    assert!(!found.iter().any(|own| own == kind), "{format}: {found:?}");
    let renamed = format!("{kind}-record");
    let is_kept = found.contains(&renamed);
    assert!(is_kept || names_none(format), "{format}: {found:?}");
}

#[test]
fn a_foreign_record_never_passes_for_one_of_loopstore() {
    for format in importers().iter().filter(|format| !is_own(**format)) {
        let format = format.format();
        for kind in KINDS {
            let store = SqliteStore::in_memory().unwrap();
            if format == "openai-agents" {
                let file = super::openai_agents::file_of(&[
                    serde_json::json!({ "role": "user", "content": "Hi" }),
                    serde_json::json!({ "type": kind }),
                ]);
                import_into(&store, &file.path);
            } else {
                let text = transcript(format).unwrap_or_else(|| panic!("no sample of {format}"));
                let text = text.replace("KIND", kind);
                let name = "some.json";
                let report = import_bytes(&store, name, text.as_bytes()).unwrap();
                assert_eq!(report.sessions.len(), 1, "{format}");
                let again = import_bytes(&store, name, text.as_bytes()).unwrap();
                assert_eq!((again.added_messages, again.revised), (0, 0), "{format}");
            }
            check(format, kind, &kinds(&store));
        }
    }
}

#[test]
fn a_record_whose_type_is_system_is_no_system_prompt() {
    for format in [
        "claude-code",
        "codex",
        "copilot-cli",
        "gemini-cli",
        "openhands",
        "pi",
    ] {
        let text = transcript(format).unwrap().replace("KIND", "system");
        let store = SqliteStore::in_memory().unwrap();
        import_bytes(&store, "some.json", text.as_bytes()).unwrap();
        check(format, "system", &kinds(&store));
    }
}

/// True if a format is a form of loopstore itself, which may contain these kinds.
fn is_own(importer: &dyn Importer) -> bool {
    importer.holds_rows() || importer.format() == "phi-core"
}
