//! A file of each released format, kept as text with its rows, is upgraded by this version: it holds what
//! it held, and its schema is that of a new file.
//!
//! Before a release with a new format, `cargo test --test store formats -- --ignored` writes the text of the
//! newest one. Texts that are there never change.

mod text;

use std::path::{Path, PathBuf};

use crate::support::histories::{History, answer, loop_id, open, result, user};
use crate::support::keyed;
use loopstore::inspect::verify;
use loopstore::model::{Content, SessionId};
use loopstore::store::sqlite::format_version;
use loopstore::{BuildOptions, SearchQuery, SqliteStore, build_context_from_session, search};

fn text_of(version: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/formats/v{version}.sql"))
}

/// What every text holds: two loops, calls, images, a block, an undone run.
fn tell(file: &Path) {
    let store = open(file);
    let mut history = History::new(&store, "s");
    for turn in 0..6 {
        let call = format!("call-{turn}");
        let output = vec![
            Content::text("line\n".repeat(40)),
            Content::image("aGVsbG8=", "image/png"),
        ];
        let messages = vec![
            user("please", turn),
            answer(&"words ".repeat(30), &[&call], turn),
            result(&call, output, turn),
        ];
        history.append(0, messages);
    }
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    history.start_loop(Some(0), Some(3));
    history.append(1, vec![user("a fork", 0), answer("yes", &[], 0)]);
    assert!(history.flip(0, false));
}

/// The contexts of both loops.
fn contexts(store: &SqliteStore) -> Vec<String> {
    let session = SessionId::new("s").unwrap();
    let context = |at| {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let context = build_context_from_session(store, &session, &options).unwrap();
        serde_json::to_string(&context.messages).unwrap()
    };
    vec![context(0), context(1)]
}

type Schema = Vec<(String, String, Option<String>)>;

fn schema(file: &Path) -> Schema {
    let connection = keyed::raw(file).unwrap();
    let sql = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_text_of_each_released_format_is_upgraded_with_all_that_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let today = folder.path().join("today.db");
    tell(&today);
    let expected = contexts(&open(&today));
    let released = (1..=format_version()).filter(|version| text_of(*version).exists());
    let released: Vec<i64> = released.collect();
    assert!(released.len() >= 10, "{released:?}");
    for version in released {
        let file = folder.path().join(format!("v{version}.db"));
        let text = std::fs::read_to_string(text_of(version)).unwrap();
        let old = keyed::raw(&file).unwrap();
        text::load(&old, &text);
        let found: i64 = old
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(found, version);
        drop(old);

        let store = open(&file);
        assert_eq!(contexts(&store), expected, "version {version}");
        let report = verify(&store).unwrap();
        assert!(report.ok, "version {version}: {:#?}", report.problems);
        assert_eq!(report.checked.messages, 20, "version {version}");
        let hits = search(&store, &SearchQuery::new("please")).unwrap().hits;
        assert_eq!(hits.len(), 6, "version {version}");
        // What was written then goes on.
        History::new(&store, "t").append(0, vec![user("today", 0)]);
        assert!(verify(&store).unwrap().ok, "version {version}");
        drop(store);
        assert_eq!(schema(&file), schema(&today), "version {version}");
    }
}

#[test]
#[ignore = "writes the text of the newest format into the repository, if it is not there"]
fn write_the_text_of_the_newest_format() {
    let to = text_of(format_version());
    if to.exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("newest.db");
    tell(&file);
    let connection = rusqlite::Connection::open(&file).unwrap();
    std::fs::write(to, text::dump(&connection)).unwrap();
}
