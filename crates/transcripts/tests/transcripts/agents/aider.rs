//! aider's chat histories.

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::{Aider, ImportOptions, Importer, import_paths};

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const LANTERN: &str = "aider/lantern.aider.chat.history.md";

fn text() -> String {
    std::fs::read_to_string(fixture(LANTERN)).unwrap()
}

#[test]
fn each_chat_is_a_session_and_commands_are_no_prompts() {
    assert_snapshot!(outline(&import_fixture(&Aider, LANTERN)), @r#"
    session Key("2031-04-01 09:00:00")
      loop loop-0 after - Completed
        - aider "/usr/bin/aider --model otter-4"
        - aider "Aider v0.86.1"
        - aider "Model: otter-4 with diff edit format"
        - aider "Git repo: .git with 3 files"
        - aider "Repo-map: using 1024 tokens, auto refresh"
        0 user "/add lamp.py"
        - aider "Added lamp.py to the chat"
        0 user "Mend the lantern.\nNever touch wick.py. 🏮"
        0 assistant "I mend it:\n\nlamp.py\n```python\n<<<<<<< SEARCH\nlit = False\n===…" model=otter-4 usage={"input":5200,"output":130,"cache_read":2000,"cache_write":1100,"cost":0.03}
        - aider "Tokens: 5.2k sent, 1.1k cache write, 2k cache hit, 130 rece…
        - aider "Applied edit to lamp.py"
        - aider "Commit 1f0c2aa fix: light the lantern"
        1 user "/run pytest"
        - aider "1 failed"
        - aider "Add 0.1k tokens of command output to the chat? (Y)es/(N)o […
      loop loop-1 after loop-0 Completed
        0 user "/ask why does it fail?"
        0 assistant "The test looks for `lit == \"yes\"`." model=otter-4 usage={"input":830,"output":12}
        - aider "Tokens: 830 sent, 12 received."
    session Key("2031-04-02 08:30:00")
      loop loop-0 after - Completed
        - aider "Aider v0.86.1"
        - aider "Main model: otter-5 with architect edit format"
        0 user "Grüße die Lampe"
        0 assistant "Sie leuchtet." model=otter-5
    "#);
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    let path = fixture(LANTERN);
    let (store, report) = imported(&path);
    assert_eq!(report.sessions.len(), 2);
    check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
}

#[test]
fn a_history_that_went_on_adds_only_what_is_new() {
    let (whole, name) = (text(), ".aider.chat.history.md");
    let expected = SqliteStore::in_memory().unwrap();
    import_bytes(&expected, name, whole.as_bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let store = SqliteStore::in_memory().unwrap();
    // The file grows by one message at a time.
    for (at, _) in whole
        .match_indices("\n\n#### ")
        .chain(whole.match_indices("\n\n>"))
    {
        std::fs::write(&path, &whole[..at + 1]).unwrap();
        let _ = import_paths(
            &store,
            std::slice::from_ref(&path),
            &ImportOptions::default(),
            &mut |_| {},
        );
    }
    std::fs::write(&path, &whole).unwrap();
    let last = import_all(&store, std::slice::from_ref(&path));
    assert_eq!((last.sessions.len(), last.revised), (2, 0));
    assert_eq!(texts(&store), texts(&expected));
    check_store(&store, &last.sessions);
}

/// Returns the texts of the messages, sorted.
fn texts(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT role, payload ->> 'content' FROM v_messages WHERE role <> 'extension'";
    let rows = store.query(sql).unwrap().rows;
    let mut texts: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    texts.sort();
    texts
}

#[test]
fn a_history_cut_anywhere_or_mangled_never_costs_the_rest() {
    let (whole, name) = (text(), ".aider.chat.history.md");
    for end in (1..whole.len())
        .filter(|end| whole.is_char_boundary(*end))
        .step_by(41)
    {
        let store = SqliteStore::in_memory().unwrap();
        let _ = import_bytes(&store, name, &whole.as_bytes()[..end]);
        let report = import_bytes(&store, name, whole.as_bytes()).unwrap();
        let all = texts(&store).concat();
        for part in [
            "lit = True",
            "The wick was wet.",
            "why does it fail?",
            "Sie leuchtet.",
        ] {
            assert!(all.contains(part), "cut at {end}: {part:?} is lost");
        }
        check_store(&store, &report.sessions);
    }
    for bad in [
        "",
        "\u{feff}\n",
        "# aider chat started at \n",
        "> only aider\n",
        "no chat at all\n",
    ] {
        let _ = try_import(&Aider, bad.as_bytes());
    }
    let mut bytes = text().into_bytes();
    let at = bytes.len() - 8;
    bytes[at] = 0xff;
    let store = SqliteStore::in_memory().unwrap();
    let report = import_bytes(&store, name, &bytes).unwrap();
    assert_eq!((report.sessions.len(), report.skipped.len()), (2, 1));
}

#[test]
fn only_histories_are_taken_for_one() {
    let knows = |name: &str, text: &str| Aider.detect(std::path::Path::new(name), text.as_bytes());
    assert!(knows(
        "any.md",
        "\n# aider chat started at 2031-04-01 09:00:00\n"
    ));
    assert!(knows(
        ".aider.chat.history.md",
        "> left over\n\n# aider chat started at 2031"
    ));
    assert!(!knows(".aider.chat.history.md", "# notes\n"));
    assert!(!knows(
        "README.md",
        "# Notes\n\n# aider chat started at noon\n"
    ));
}

#[test]
fn two_chats_of_one_second_are_two_sessions_and_stay_so() {
    let start = "# aider chat started at 2031-04-01 09:00:00\n\n#### one\n\nFirst.\n\n";
    let text = format!("{start}{}", start.replace("one", "two"));
    let found = import(&Aider, &text);
    let keys: Vec<String> = found
        .sessions
        .iter()
        .map(|s| format!("{:?}", s.head.identity))
        .collect();
    assert_eq!(
        keys,
        [
            r#"Key("2031-04-01 09:00:00")"#,
            r#"Key("2031-04-01 09:00:00/1")"#
        ]
    );
}
