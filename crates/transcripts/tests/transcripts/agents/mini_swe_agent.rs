//! mini-swe-agent's trajectories.

use std::path::Path;

use insta::assert_snapshot;
use loopstore::{LoopStatus, SqliteStore};
use loopstore_transcripts::{Importer, MiniSweAgent, OpenAiChat};
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const BARE: &str = "mini-swe-agent/bare.traj.json";
const CALLS: &str = "mini-swe-agent/calls.traj.json";

fn document(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

#[test]
fn a_bare_list_is_one_loop() {
    let found = import_fixture(&MiniSweAgent, BARE);
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        - system {"content":"Answer with one command."}
        0 user "Mend the lantern. End with `echo COMPLETE_TASK_AND_SUBMIT_FI…"
        0 assistant "I look.\n\n```bash\nls\n```"
        0 user "<returncode>0</returncode>\n<output>\nlamp.py\n</output>"
        1 assistant "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"
        1 user "lit"
    "#);
}

#[test]
fn calls_and_items_have_their_results() {
    let found = import_fixture(&MiniSweAgent, CALLS);
    assert_snapshot!(outline(&found), @r#"
    session Key("lantern__1")
      loop loop-0 after - Completed
        - system {"content":"You have a shell."}
        0 user "Mend the lantern."
        0 assistant thinking "Where is it?" + call c1 bash {"command":"ls"} model=otter stop=toolUse usage={"input":50,"output":7,"cache_read":20,"total_tokens":57,"prompt_tokens_details":{"cached_tokens":20},"cost":0.025}
        0 toolResult "<returncode>0</returncode>\n<output>\nlamp.py\n</output>" of bash c1
        1 assistant thinking "Nearly done." + call c2 bash {"command":"echo lit"} model=otter usage={"input":60,"output":9,"reasoning":4,"total_tokens":69,"output_tokens_details":{"reasoning_tokens":4},"cost":0.025}
        1 toolResult "lit" of bash c2
        - exit {"role":"exit","content":"lit","extra":{"exit_status":"Submi…
    "#);
    let session = &found.sessions[0].head.session;
    let info = session.extra.get("info").unwrap().as_str();
    assert!(
        info.contains("2.1.0") && info.contains("Submitted"),
        "{info}"
    );
    let messages: Vec<_> = found.sessions[0].messages().collect();
    assert_eq!(source(messages[3])["extra"]["returncode"], 0);
}

#[test]
fn a_run_that_is_not_over_is_running_and_one_that_was_stopped_aborted() {
    let mut document = document(CALLS);
    document["messages"].as_array_mut().unwrap().truncate(4);
    for (word, status) in [
        (json!(""), LoopStatus::Running),
        (json!(null), LoopStatus::Running),
        (json!("LimitsExceeded"), LoopStatus::Aborted),
        (json!("Submitted"), LoopStatus::Completed),
    ] {
        document["info"]["exit_status"] = word;
        let found = import(&MiniSweAgent, &document.to_string());
        assert_eq!(found.sessions[0].loops[0].record.status, status);
    }
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    for (name, messages) in [(BARE, 5), (CALLS, 5)] {
        let path = fixture(name);
        let (store, report) = imported(&path);
        assert_eq!((report.loops, report.messages), (1, messages), "{name}");
        check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
    }
}

#[test]
fn a_run_that_went_on_adds_only_what_is_new() {
    let whole = document(CALLS);
    let expected = SqliteStore::in_memory().unwrap();
    import_bytes(&expected, "a.json", whole.to_string().as_bytes()).unwrap();
    for count in 1..7 {
        let mut part = whole.clone();
        part["messages"].as_array_mut().unwrap().truncate(count);
        part["info"]["exit_status"] = json!("");
        let store = SqliteStore::in_memory().unwrap();
        import_bytes(&store, "a.json", part.to_string().as_bytes()).unwrap();
        let grown = import_bytes(&store, "a.json", whole.to_string().as_bytes()).unwrap();
        assert_eq!((grown.revised, grown.sessions.len()), (0, 1));
        assert_eq!(state(&store), state(&expected), "{count} messages first");
    }
}

#[test]
fn a_chat_that_only_looks_like_a_run_is_a_chat() {
    let detects = |value: &Value| {
        let text = value.to_string();
        let mini = MiniSweAgent.detect(Path::new("x"), text.as_bytes());
        assert_ne!(mini, OpenAiChat.detect(Path::new("x"), text.as_bytes()));
        mini
    };
    let bare = document(BARE);
    assert!(detects(&bare));
    let mut unmarked = bare.clone();
    unmarked[1]["content"] = json!("Mend the lantern.");
    assert!(detects(&unmarked));
    unmarked[3]["content"] = json!("and then?");
    assert!(!detects(&unmarked));
    let mut calls = bare;
    calls[2]["content"] = json!(null);
    calls[1]["content"] = json!("Mend it.");
    assert!(!detects(&calls));
}

#[test]
fn damage_is_told_and_never_panics() {
    for name in [BARE, CALLS] {
        check_cuts(&fixture(name), 601);
        check_flips(&MiniSweAgent, &std::fs::read(fixture(name)).unwrap());
        check_wrong_types(&MiniSweAgent, &document(name));
    }
    for end in [
        &b"{\"info\":{},\"messages\":[]}"[..],
        b"{}",
        b"[]",
        b"[7]",
        b"\xFF\xFE{",
    ] {
        assert!(try_import(&MiniSweAgent, end).1.is_err());
    }
}
