//! `verify --salvage`: its output, its exit codes, and the files that it leaves unchanged.

use std::path::Path;
use std::process::Output;

use loopstore::{Policy, SealingProvider, Store, provider};
use loopstore_verify::verify;

use crate::damage::stage::record;
use crate::support::histories::Random;
use crate::support::plain::open;

fn loopstore(folder: &Path, line: &str) -> Output {
    let mut command = crate::support::command::loopstore();
    command
        .current_dir(folder)
        .env("LOOPSTORE_DB", "loopstore.db");
    command.args(line.split_whitespace()).output().unwrap()
}

fn parts_of(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn record_in(folder: &Path) {
    let store = open(&folder.join("loopstore.db"));
    record(&store, "s", &mut Random::new(1));
}

/// Returns the contents of the tables of a file.
fn rows(file: &Path) -> [String; 9] {
    let store = open(file);
    [
        "messages",
        "turns",
        "loops",
        "runs",
        "blocks",
        "coverage",
        "manifests",
        "hides",
        "store_meta",
    ]
    .map(|table| {
        let sql = format!("SELECT * FROM {table} ORDER BY 1");
        format!("{:?}", store.query(&sql).unwrap().rows)
    })
}

/// Overwrites the first page that contains `needle` with zeros.
fn spoil(file: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(file).unwrap();
    let at = bytes
        .windows(needle.len())
        .position(|part| part == needle)
        .unwrap();
    let size = crate::support::keyed::page_bytes();
    let page = at / size * size;
    bytes[page..page + size].fill(0);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn sealed_state_its_runs_and_what_is_hidden_come_over() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (
        folder.path().join("loopstore.db"),
        folder.path().join("new.db"),
    );
    let items = serde_json::json!([
        {"role": "user", "content": "Is it dark?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAAthought"},
        {"type": "program", "id": "pr_1", "call_id": "p", "code": "f()", "fingerprint": "gAAAAAprint"},
        {"type": "program_output", "id": "po_1", "call_id": "p", "result": "2", "status": "completed"},
        {"role": "assistant", "content": "It is."},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAcompaction"},
        {"role": "user", "content": "And now?"},
    ]);
    let messages = provider::read(provider::Form::OpenAiResponses, &items).unwrap();
    let store = Store::open(&from).unwrap();
    for name in ["seen", "hidden"] {
        store
            .session(name)
            .unwrap()
            .append(messages.clone())
            .unwrap();
    }
    store.session("hidden").unwrap().hide().unwrap();
    drop(store);
    let (code, out, err) = parts_of(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Nothing was lost."), "{out}");
    let [of_old, of_new] = [&from, &to].map(|file| rows(file));
    assert_eq!(of_new, of_old);
    assert!(
        of_new[3].contains("provider:openai") && of_new[7] != "[]",
        "{of_new:?}"
    );
    let sent = |file: &Path| {
        let store = Store::open(file).unwrap();
        let policy = Policy::new(100_000).provider(SealingProvider::OpenAi);
        let chat = store.session("seen").unwrap().with_policy(policy);
        let ready = chat.prepare().unwrap();
        ready
            .to(provider::Form::OpenAiResponses)
            .unwrap()
            .to_string()
    };
    assert!(sent(&to).contains("gAAAAAcompaction"));
    assert_eq!(sent(&to), sent(&from));
}

#[test]
fn all_of_a_sound_database_comes_over() {
    let folder = tempfile::tempdir().unwrap();
    record_in(folder.path());
    let (code, out, err) = parts_of(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Nothing was lost."), "{out}");
    assert_eq!(
        rows(&folder.path().join("new.db")),
        rows(&folder.path().join("loopstore.db"))
    );

    let (code, _, err) = parts_of(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(1));
    assert!(err.contains("new.db already exists"), "{err}");
    let (code, ..) = parts_of(&loopstore(folder.path(), "verify --salvage new.db --force"));
    assert_eq!(code, Some(0));
    let (code, _, err) = parts_of(&loopstore(
        folder.path(),
        "verify --salvage loopstore.db --force",
    ));
    assert_eq!(code, Some(1), "{err}");
    let (code, ..) = parts_of(&loopstore(folder.path(), "verify --force"));
    assert_eq!(code, Some(2));
}

#[test]
fn a_view_that_cannot_be_read_keeps_nothing_from_coming_over() {
    let folder = tempfile::tempdir().unwrap();
    record_in(folder.path());
    let (from, to) = (
        folder.path().join("loopstore.db"),
        folder.path().join("new.db"),
    );
    let whole = rows(&from);
    let mut bytes = std::fs::read(&from).unwrap();
    let needle = b"CREATE VIEW v_context";
    let at = bytes.windows(needle.len()).position(|part| part == needle);
    bytes[at.unwrap()..][..6].copy_from_slice(b"\xffRE\0TE");
    std::fs::write(&from, bytes).unwrap();
    let (code, _, err) = parts_of(&loopstore(folder.path(), "sessions"));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("verify --salvage DEST"), "{err}");
    let (code, out, err) = parts_of(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(rows(&to), whole);
    let (code, out, err) = parts_of(&loopstore(folder.path(), "--db new.db verify"));
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn what_a_lost_page_held_is_listed_and_the_rest_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    record_in(folder.path());
    let file = folder.path().join("loopstore.db");
    spoil(&file, b"kite number 9");
    let before = std::fs::read(&file).unwrap();
    let (code, out, err) = parts_of(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(3), "{out}{err}");
    assert!(out.contains("lost message: "), "{out}");
    assert!(out.contains("session s, loop loop-0, messages"), "{out}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let store = open(&folder.path().join("new.db"));
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    let texts = "SELECT count(*) FROM v_messages WHERE text LIKE '%kite number 2%'";
    assert_eq!(store.query(texts).unwrap().rows[0][0].as_str(), "1");

    let (code, out, _) = parts_of(&loopstore(folder.path(), "verify --salvage json.db --json"));
    assert_eq!(code, Some(3));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["ok"], false);
    for lost in report["lost"].as_array().unwrap() {
        let texts = ["kind", "where", "reason"].map(|key| lost[key].as_str().unwrap().len());
        assert!(texts.iter().all(|length| *length > 0), "{lost}");
    }
    assert!(report["kept"]["messages"].as_u64().unwrap() > 5);
}

#[test]
fn a_file_that_is_no_database_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("loopstore.db"), "no database at all").unwrap();
    for file in ["loopstore.db", "none.db"] {
        let line = format!("--db {file} verify --salvage new.db");
        let (code, _, err) = parts_of(&loopstore(folder.path(), &line));
        assert_eq!(code, Some(1), "{err}");
        assert!(!folder.path().join("new.db").exists());
    }
}
