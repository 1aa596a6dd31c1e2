//! SWE-agent's trajectories.

use insta::assert_snapshot;
use loopstore::{Json, SqliteStore};
use loopstore_transcripts::SweAgent;
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const CALLS: &str = "swe-agent/lantern.traj.json";
const TEXT: &str = "swe-agent/text.traj.json";

fn document(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

#[test]
fn both_views_give_each_message_once() {
    let found = import_fixture(&SweAgent, CALLS);
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        - system {"content":"You mend lanterns."}
        0 user "The lantern in lamp.py does not light."
        0 assistant "I look at it." + call call_1 open {"path":"lamp.py"}
        0 toolResult "def light(): return False\n(Open file: lamp.py)" of open call_1
        1 assistant "The wick is wrong." + call call_1 edit {"search":"False","replace":"True"}
        1 toolResult "Replaced." of edit call_1
        - step {"action":"submit","observation":"diff","response":"Done.","…
    "#);
    let session = &found.sessions[0];
    let info = session
        .head
        .session
        .extra
        .get("info")
        .map(Json::as_str)
        .unwrap();
    assert!(info.contains(r#""exit_status":"submitted""#), "{info}");
    let messages: Vec<_> = session.messages().collect();
    let step = |at: usize| serde_json::to_value(messages[at]).unwrap()["step"].clone();
    assert_eq!(
        step(2),
        json!({ "execution_time": 0.25, "state": { "open_file": "lamp.py" } })
    );
    assert_eq!(step(4)["observation"], "Replaced one.");
    let usage = Json::of(session.loops[0].record.usage.as_ref().unwrap()).unwrap();
    assert!(usage.as_str().contains(r#""cost":0.02"#), "{usage:?}");
}

#[test]
fn observations_as_text_belong_to_the_turn_of_their_action() {
    let found = import_fixture(&SweAgent, TEXT);
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Aborted
        - system {"content":"You mend lanterns."}
        0 user "Here is how it is done."
        0 user "The lantern does not light."
        0 assistant "I look.\n```\nls\n```"
        0 user "lamp.py"
        1 assistant "Done.\n```\nsubmit\n```"
    "#);
}

#[test]
fn steps_alone_are_enough() {
    let mut document = document(CALLS);
    document["history"] = json!(null);
    document["trajectory"][0]["query"] = json!([
        { "role": "system", "content": "You mend lanterns." },
        { "role": "user", "content": "It does not light." }
    ]);
    let found = import(&SweAgent, &document.to_string());
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        - system {"content":"You mend lanterns."}
        0 user "It does not light."
        0 assistant "I look at it."
        0 user "def light(): return False"
        1 assistant "The wick is wrong."
        1 user "Replaced one."
        2 assistant "Done."
        2 user "diff"
    "#);
    document["trajectory"][1] = json!(7);
    document["trajectory"][2]["observation"] = json!({ "odd": 1 });
    let found = import(&SweAgent, &document.to_string());
    assert_snapshot!(outline(&found), @r#"
    session Key("0")
      loop loop-0 after - Completed
        - system {"content":"You mend lanterns."}
        0 user "It does not light."
        0 assistant "I look at it."
        0 user "def light(): return False"
        1 assistant "Done."
        - observation {"odd":1}
    skipped Some(1) step 2: invalid type: integer `7`, expected an object
    "#);
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    for (name, messages) in [(CALLS, 5), (TEXT, 5)] {
        let path = fixture(name);
        let (store, report) = imported(&path);
        assert_eq!((report.loops, report.messages), (1, messages), "{name}");
        check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
    }
}

#[test]
fn a_run_that_went_on_adds_only_what_is_new() {
    for name in [CALLS, TEXT] {
        let whole = document(name);
        let expected = SqliteStore::in_memory().unwrap();
        import_bytes(&expected, "a.traj", whole.to_string().as_bytes()).unwrap();
        let length = whole["history"].as_array().unwrap().len();
        for count in 1..length {
            let mut part = whole.clone();
            part["history"].as_array_mut().unwrap().truncate(count);
            part["trajectory"]
                .as_array_mut()
                .unwrap()
                .truncate(count / 2 - usize::from(count > 1));
            part["info"] = json!({});
            let store = SqliteStore::in_memory().unwrap();
            import_bytes(&store, "a.traj", part.to_string().as_bytes()).unwrap();
            let grown = import_bytes(&store, "a.traj", whole.to_string().as_bytes()).unwrap();
            assert_eq!((grown.revised, grown.sessions.len()), (0, 1));
            let texts = |store: &SqliteStore| {
                let sql = "SELECT role, text FROM v_messages ORDER BY seq";
                format!("{:?}", store.query(sql).unwrap().rows)
            };
            assert_eq!(
                texts(&store),
                texts(&expected),
                "{name}: {count} messages first"
            );
        }
    }
}

#[test]
fn an_odd_message_costs_only_itself() {
    let mut document = document(CALLS);
    let history = document["history"].as_array_mut().unwrap();
    history.insert(2, json!(7));
    history.insert(3, json!({ "role": 7 }));
    history.insert(4, json!({ "role": "judge", "content": "hm" }));
    history.insert(5, json!({ "role": "user", "content": { "odd": 1 } }));
    let found = import(&SweAgent, &document.to_string());
    assert_snapshot!(found.reasons(), @r#"
    Some(1) message 3: invalid type: integer `7`, expected an object
    Some(1) message 4: its role is missing or no text
    Some(1) message 6: its content is neither text nor a list of parts
    "#);
    assert_eq!(found.sessions[0].messages().count(), 8);
}

#[test]
fn damage_is_told_and_never_panics() {
    for name in [CALLS, TEXT] {
        check_cuts(&fixture(name), 1301);
        check_flips(&SweAgent, &std::fs::read(fixture(name)).unwrap());
        check_wrong_types(&SweAgent, &document(name));
    }
    for end in [
        &b"{\"history\":[],\"trajectory\":[]}"[..],
        b"{}",
        b"[7]",
        b"\xFF\xFE{",
    ] {
        assert!(try_import(&SweAgent, end).1.is_err());
    }
}
