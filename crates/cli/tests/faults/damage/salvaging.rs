//! `verify --salvage` as a command: what it says, what it exits with, what it leaves alone.

use std::path::Path;
use std::process::Output;

use loopstore::admin::inspect::verify;

use crate::damage::stage::tell;
use crate::support::histories::Random;
use crate::support::plain::open;

fn loopstore(folder: &Path, line: &str) -> Output {
    let mut command = crate::support::command::loopstore();
    command.current_dir(folder).env_remove("LOOPSTORE_DB");
    command.args(line.split_whitespace()).output().unwrap()
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn told_in(folder: &Path) {
    let store = open(&folder.join("loopstore.db"));
    tell(&store, "s", &mut Random::new(1));
}

/// Writes zeros over the first page that holds `needle`.
fn spoil(file: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(file).unwrap();
    let at = bytes
        .windows(needle.len())
        .position(|part| part == needle)
        .unwrap();
    let page = at / 8192 * 8192;
    bytes[page..page + 8192].fill(0);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn all_of_a_sound_database_comes_over() {
    let folder = tempfile::tempdir().unwrap();
    told_in(folder.path());
    let (code, out, err) = told(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Nothing was lost."), "{out}");
    let rows = |name: &str| {
        let store = open(&folder.path().join(name));
        [
            "messages",
            "turns",
            "loops",
            "runs",
            "blocks",
            "coverage",
            "manifests",
            "store_meta",
        ]
        .map(|table| {
            let sql = format!("SELECT * FROM {table} ORDER BY 1");
            format!("{:?}", store.query(&sql).unwrap().rows)
        })
    };
    assert_eq!(rows("new.db"), rows("loopstore.db"));

    let (code, _, err) = told(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(1));
    assert!(err.contains("new.db already exists"), "{err}");
    let (code, ..) = told(&loopstore(folder.path(), "verify --salvage new.db --force"));
    assert_eq!(code, Some(0));
    let (code, _, err) = told(&loopstore(
        folder.path(),
        "verify --salvage loopstore.db --force",
    ));
    assert_eq!(code, Some(1), "{err}");
    let (code, ..) = told(&loopstore(folder.path(), "verify --force"));
    assert_eq!(code, Some(2));
}

#[test]
fn what_a_lost_page_held_is_listed_and_the_rest_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    told_in(folder.path());
    let file = folder.path().join("loopstore.db");
    spoil(&file, b"kite number 9");
    let before = std::fs::read(&file).unwrap();
    let (code, out, err) = told(&loopstore(folder.path(), "verify --salvage new.db"));
    assert_eq!(code, Some(3), "{out}{err}");
    assert!(out.contains("lost message: "), "{out}");
    assert!(out.contains("session s, loop loop-0, messages"), "{out}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let store = open(&folder.path().join("new.db"));
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    let texts = "SELECT count(*) FROM v_messages WHERE text LIKE '%kite number 2%'";
    assert_eq!(store.query(texts).unwrap().rows[0][0].as_str(), "1");

    let (code, out, _) = told(&loopstore(folder.path(), "verify --salvage json.db --json"));
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
        let (code, _, err) = told(&loopstore(folder.path(), &line));
        assert_eq!(code, Some(1), "{err}");
        assert!(!folder.path().join("new.db").exists());
    }
}
