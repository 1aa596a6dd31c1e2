//! The author of each message (a person, an agent or the harness), as the importers of the formats set it.

use std::ops::ControlFlow;
use std::path::Path;

use insta::assert_snapshot;
use loopstore::extend::compaction::{DigestInput, digest_of};
use loopstore::extend::{decode, read};
use loopstore::{
    AgentMessage, Author, HeuristicTokenCounter, LoopMessage, Message, Role, SqliteStore,
};
use loopstore_transcripts::{ImportOptions, import_paths};
use loopstore_verify::verify;
use rusqlite::Connection;
use serde_json::json;

use crate::support::recording::real_transcripts;

fn imported(path: &Path) -> SqliteStore {
    let store = SqliteStore::in_memory().unwrap();
    let options = ImportOptions::default();
    let report = import_paths(&store, &[path.to_owned()], &options, &mut |_| {}).unwrap();
    assert!(
        !report.sessions.is_empty(),
        "{path:?}: {:?}",
        report.skipped
    );
    store
}

/// Returns the messages of a store that a model sees, loop by loop.
fn messages(store: &SqliteStore) -> Vec<AgentMessage> {
    by_session(store).into_iter().flatten().collect()
}

/// Returns the messages of each session.
fn by_session(store: &SqliteStore) -> Vec<Vec<AgentMessage>> {
    read(store, |read| {
        let mut found = Vec::new();
        let mut sessions = read.sessions()?;
        sessions.sort_by_key(|session| session.session_id.to_string());
        for session in sessions {
            let mut messages = Vec::new();
            for row in read.loops(session.key)? {
                read.messages(row.key, 0..u32::MAX, &mut |row| {
                    let author = row.body.author;
                    let message = decode(read, row.body)?;
                    assert_eq!(message.author(), author);
                    messages.push(message);
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            messages.retain(|message| message.role() != Role::Extension);
            found.push(messages);
        }
        Ok(found)
    })
    .unwrap()
}

/// Returns the author of each message of a fixture, with the text of prompts.
fn authors_in(name: &str) -> String {
    let store = imported(&Path::new("../../tests/fixtures/authors").join(name));
    assert_eq!(verify(&store).unwrap().problems, []);
    let sql = "SELECT count(*) FROM v_messages WHERE author NOT IN ('human', 'agent', 'harness')";
    assert_eq!(store.query(sql).unwrap().rows[0][0].as_str(), "0");
    let line = |message: &AgentMessage| {
        let (role, author) = (message.role().as_str(), message.author().as_str());
        let prompt = message.message().and_then(Message::prompt_text);
        format!("{role} {author} {}", prompt.unwrap_or_default())
            .trim_end()
            .to_owned()
    };
    messages(&store)
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn claude_code_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("claude-code.jsonl"), @r#"
    user harness
    user harness
    user harness
    user human Mend the wheel.
    assistant agent
    toolResult harness
    assistant harness
    user harness
    user harness
    user human What does <system-reminder>x</system-reminder> mean?
    assistant agent
    user agent Find the spokes.
    assistant agent
    "#);
}

#[test]
fn codex_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("codex.jsonl"), @r#"
    user harness
    user human Fire the kiln.
    assistant agent
    user harness
    user human <skill> is spelt wrong
    assistant agent
    "#);
    assert_snapshot!(authors_in("codex-spawned.jsonl"), @r#"
    user agent Look at the bricks.
    assistant agent
    "#);
}

#[test]
fn copilot_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("copilot-cli.jsonl"), @r#"
    user human Which ships?
    assistant agent
    toolResult harness
    user harness
    assistant agent
    user agent Count the masts.
    assistant agent
    "#);
}

#[test]
fn opencode_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("opencode.json"), @r#"
    user human Read the plan.
    assistant agent
    user harness
    assistant agent
    "#);
    assert_snapshot!(authors_in("opencode-child.json"), @r#"
    user agent Count the beams.
    assistant agent
    "#);
}

#[test]
fn gemini_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("gemini-cli.json"), @r#"
    user harness
    user human How deep is the well?
    assistant agent
    toolResult harness
    assistant agent
    "#);
    assert_snapshot!(authors_in("gemini-cli-subagent.json"), @r#"
    user agent Find the bucket.
    assistant agent
    "#);
}

#[test]
fn pi_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("pi.jsonl"), @r#"
    user human Plant an oak.
    assistant agent
    user harness
    user harness
    user human Water it.
    assistant agent
    "#);
}

#[test]
fn a_chat_tells_prompts_from_what_is_all_frame() {
    assert_snapshot!(authors_in("openai-chat.json"), @r#"
    user harness
    user human Two seats, please.
    assistant agent
    toolResult harness
    assistant agent
    "#);
}

#[test]
fn swe_agents_tell_the_task_from_observations_and_examples() {
    assert_snapshot!(authors_in("swe-agent.traj.json"), @r#"
    user harness
    user human The lamp does not light. Mend it.
    assistant agent
    user harness
    assistant agent
    "#);
    assert_snapshot!(authors_in("mini-swe-agent.traj.json"), @r#"
    user human Mend the lamp.
    assistant agent
    user harness
    assistant agent
    "#);
}

#[test]
fn openhands_tells_prompts_from_its_own_words() {
    assert_snapshot!(authors_in("openhands.jsonl"), @r#"
    user human It is dark.
    assistant agent
    toolResult harness
    user harness
    assistant agent
    "#);
}

#[test]
fn adk_tells_prompts_from_what_is_all_frame() {
    assert_snapshot!(authors_in("adk.json"), @r#"
    user harness
    user human Sow the wheat.
    assistant agent
    toolResult harness
    assistant agent
    "#);
}

#[test]
fn a_phi_core_session_says_it_itself() {
    assert_snapshot!(authors_in("phi-core.json"), @r#"
    user harness
    user human Make a nail.
    assistant agent
    user agent Now two.
    user human Quick.
    "#);
}

#[test]
fn a_session_of_the_agents_sdk_tells_prompts_from_what_is_all_frame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.db");
    let connection = Connection::open(&path).unwrap();
    let tables = "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY,
            created_at TIMESTAMP, updated_at TIMESTAMP);
        CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT,
            message_data TEXT, created_at TIMESTAMP);
        INSERT INTO agent_sessions VALUES ('s', '2026-02-02 02:40:00', '2026-02-02 02:40:00');";
    connection.execute_batch(tables).unwrap();
    for item in [
        r#"{"role":"user","content":"<environment_context>x</environment_context>"}"#,
        r#"{"role":"user","content":"Will it rain?"}"#,
        r#"{"role":"assistant","type":"message","content":[{"type":"output_text","text":"No."}]}"#,
    ] {
        let sql = "INSERT INTO agent_messages (session_id, message_data, created_at)
            VALUES ('s', ?1, '2026-02-02 02:40:00')";
        connection.execute(sql, [item]).unwrap();
    }
    drop(connection);
    let store = imported(&path);
    let said: Vec<_> = messages(&store).iter().map(AgentMessage::author).collect();
    assert_eq!(said, [Author::Harness, Author::Human, Author::Agent]);
}

/// Returns the author of a tool's error in one record of Claude Code.
fn author_of_error(tool: &str, version: &str, mark: &str, text: &str) -> Author {
    let said = json!({"uuid": "a", "parentUuid": null, "sessionId": "s", "type": "user",
        "timestamp": "2026-03-01T08:00:00.000Z", "message": {"role": "user", "content": "Mend it."}});
    let call = json!({"uuid": "b", "parentUuid": "a", "sessionId": "s", "type": "assistant",
        "timestamp": "2026-03-01T08:00:01.000Z", "message": {"id": "m", "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": tool, "input": {}}]}});
    let result = json!({"uuid": "c", "parentUuid": "b", "sessionId": "s", "type": "user", "version": version,
        "timestamp": "2026-03-01T08:00:02.000Z", "toolUseResult": mark, "message": {"role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true, "content": text}]}});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    std::fs::write(&path, format!("{said}\n{call}\n{result}\n")).unwrap();
    let all = messages(&imported(&path));
    assert_eq!(all.last().unwrap().role(), Role::ToolResult);
    all.last().unwrap().author()
}

#[test]
fn a_refusal_is_a_persons_word_where_no_tool_could_have_said_it() {
    let text = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file \
        edit, the new_string was NOT written to the file). To tell you how to proceed, the user said:\nNot now.";
    let (given, error) = ("User rejected tool use", format!("Error: {text}"));
    let expected = [
        ("Edit", "2.1.12", &*error, Author::Human),
        ("Edit", "1.0.51", &error, Author::Human),
        ("Bash", "2.1.38", given, Author::Human),
        // The output of commands follows the exit code.
        ("Bash", "2.1.12", &error, Author::Human),
        ("Bash", "1.0.51", &error, Author::Harness),
        ("mcp__quay__find", "2.1.38", given, Author::Human),
        ("mcp__quay__find", "2.1.38", &error, Author::Harness),
        ("Task", "2.1.12", &error, Author::Harness),
        ("Task", "2.1.38", given, Author::Human),
    ];
    for (tool, version, mark, author) in expected {
        let found = author_of_error(tool, version, mark, text);
        assert_eq!(found, author, "{tool} {version} {mark}");
    }
    let output = format!("Exit code 1\n{text}");
    let found = author_of_error("Bash", "2.1.12", &format!("Error: {output}"), &output);
    assert_eq!(found, Author::Harness);
}

/// The beginnings of texts that harnesses write.
const INJECTED: [&str; 9] = [
    "# AGENTS.md",
    "<INSTRUCTIONS>",
    "<command-",
    "<environment_context>",
    "<local-command",
    "<system-reminder>",
    "<task-notification>",
    "<user_instructions>",
    "[Request interrupted",
];

#[test]
fn the_task_in_the_digest_of_a_recorded_session_is_a_persons_words() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let formats = [
        "claude-code",
        "codex",
        "copilot-cli",
        "gemini-cli",
        "opencode",
        "pi",
    ];
    for format in formats {
        let store = imported(&folder.join(format));
        let (mut tasks, mut prompts) = (0, 0);
        for messages in by_session(&store) {
            let placed = (0..).zip(messages).map(|(seq, message)| LoopMessage {
                turn: seq,
                seq,
                message,
            });
            let placed: Vec<LoopMessage> = placed.collect();
            let said = placed
                .iter()
                .filter_map(|p| p.message.message()?.prompt_text());
            prompts += usize::from(said.count() > 0);
            let part = DigestInput::Messages {
                loop_name: None,
                messages: placed,
            };
            let digest = digest_of(&mut [part].into_iter(), 8_000, &HeuristicTokenCounter);
            let lines = digest.text.lines().skip_while(|line| *line != "## Task");
            let task: Vec<&str> = lines
                .skip(1)
                .take_while(|line| line.starts_with("- "))
                .collect();
            tasks += usize::from(!task.is_empty());
            for line in task {
                let (_, words) = line.split_once(": ").unwrap();
                let is_injected = INJECTED
                    .iter()
                    .any(|frame| words.trim_start().starts_with(frame));
                assert!(!is_injected, "{format}: {line}");
            }
        }
        assert!(
            prompts > 0 && tasks == prompts,
            "{format}: {tasks} of {prompts}"
        );
    }
}
