//! Files that hold two conversations whose records alternate.

use std::path::{Path, PathBuf};

use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use rusqlite::{Connection, params};
use serde_json::Value;

use super::forms::{
    FORMS, Form, Line, alternating, claude_code_records, database, goose, lines_of, millis,
    opencode, qwen_records,
};
use super::{FAMILIES, LineGenerator, check_contexts, check_texts, import, state};
use crate::support::amount::amount;

const IDS: [&str; 2] = [
    "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001",
    "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0002",
];

/// The two conversations of a file.
type Pair = [Vec<Line>; 2];

/// A format in which a file contains several conversations.
struct Mixed {
    format: &'static str,
    file: &'static str,
    write: fn(&Path, &Pair),
}

const MIXED: [Mixed; 5] = [
    Mixed {
        format: "claude-code",
        file: "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl",
        write: |path, pair| records(path, pair, claude_code_records),
    },
    Mixed {
        format: "qwen-code",
        file: "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl",
        write: |path, pair| records(path, pair, qwen_records),
    },
    Mixed {
        format: "openai-agents",
        file: "chats.db",
        write: |path, [one, other]| database(path, &[(IDS[0], one), (IDS[1], other)]),
    },
    Mixed {
        format: "goose",
        file: "sessions.db",
        write: goose_database,
    },
    Mixed {
        format: "opencode",
        file: "opencode.db",
        write: opencode_database,
    },
];

fn records(path: &Path, pair: &Pair, of: fn(&[Line], &str, &str) -> Vec<Value>) {
    let tags = ["a", "b"].into_iter();
    let lists = pair.iter().zip(IDS).zip(tags);
    let lists = lists.map(|((lines, id), tag)| of(lines, id, tag));
    std::fs::write(path, lines_of(alternating(lists.collect()))).unwrap();
}

fn goose_database(path: &Path, pair: &Pair) {
    let _ = std::fs::remove_file(path);
    let file = Connection::open(path).unwrap();
    file.execute_batch(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, description TEXT NOT NULL DEFAULT '',
             working_dir TEXT NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP, extension_data TEXT);
         CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
             session_id TEXT NOT NULL, role TEXT NOT NULL, content_json TEXT NOT NULL,
             created_timestamp INTEGER NOT NULL, timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
             tokens INTEGER, metadata_json TEXT)",
    )
    .unwrap();
    let rows = pair.iter().zip(IDS).map(|(lines, id)| {
        let sql = "INSERT INTO sessions (id, working_dir, created_at, updated_at)
            VALUES (?1, '/w', '2026-01-01 00:00:00', '2026-01-01 00:00:00')";
        file.execute(sql, [id]).unwrap();
        let text = goose(lines);
        let messages = text.lines().skip(1).map(move |line| {
            let message: Value = serde_json::from_str(line).unwrap();
            (id, message)
        });
        messages.collect()
    });
    for (nth, (id, message)) in alternating(rows.collect()).into_iter().enumerate() {
        let sql =
            "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        let (role, content) = (message["role"].as_str(), message["content"].to_string());
        let row = params![
            format!("m{nth}"),
            id,
            role,
            content,
            message["created"].as_i64()
        ];
        file.execute(sql, row).unwrap();
    }
}

fn opencode_database(path: &Path, pair: &Pair) {
    let _ = std::fs::remove_file(path);
    let file = Connection::open(path).unwrap();
    file.execute_batch(
        "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT,
             slug TEXT, directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL,
             revert TEXT, cost REAL NOT NULL DEFAULT 0, time_created INTEGER, time_updated INTEGER);
         CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER,
             time_updated INTEGER, data TEXT NOT NULL);
         CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
             time_created INTEGER, time_updated INTEGER, data TEXT NOT NULL);",
    )
    .unwrap();
    let tags = ["a", "b"].into_iter();
    let rows = pair.iter().zip(IDS).zip(tags).map(|((lines, id), tag)| {
        let sql = "INSERT INTO session VALUES
            (?1, 'p1', NULL, 'work', '/w', 'Work', '1.14.30', NULL, 0, ?2, ?2)";
        file.execute(sql, params![id, millis(0)]).unwrap();
        let text = opencode(lines).replace("ses_1", id);
        let text = text.replace("msg_", &format!("msg_{tag}"));
        let text = text.replace("prt_", &format!("prt_{tag}"));
        let document: Value = serde_json::from_str(&text).unwrap();
        let messages = document["messages"].as_array().unwrap().clone();
        messages
            .into_iter()
            .map(move |message| (id, message))
            .collect()
    });
    for (session, message) in alternating(rows.collect()) {
        let info = &message["info"];
        let id = info["id"].as_str();
        let row = params![
            id,
            session,
            info["time"]["created"].as_i64(),
            info.to_string()
        ];
        file.execute("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)", row)
            .unwrap();
        for part in message["parts"].as_array().unwrap() {
            let row = params![part["id"].as_str(), id, session, part.to_string()];
            file.execute("INSERT INTO part VALUES (?1, ?2, ?3, 0, 0, ?4)", row)
                .unwrap();
        }
    }
}

#[test]
fn conversations_whose_records_alternate_come_in_whole_and_unmixed() {
    for (nth, mixed) in MIXED.iter().enumerate() {
        for seed in 0..amount("LOOPSTORE_FAMILIES", FAMILIES) {
            let form = FORMS.iter().find(|form| form.format == mixed.format);
            let form = form.unwrap();
            let mut generator = LineGenerator::new(seed * 41 + nth as u64, form);
            pairs_in_every_order(mixed, form, &mut generator, seed);
        }
    }
}

/// Returns files of two machines with the same ids, in several states. The conversations of a file took place at the
/// same time.
fn pairs(generator: &mut LineGenerator) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let began = generator.now;
        let first = [generator.conversation(), generator.conversation()];
        let mut grown = first.clone();
        let which = generator.random.below(2) as usize;
        generator.add_turns(&mut grown[which], 1);
        if generator.random.one_in(2) {
            generator.add_turns(&mut grown[1 - which], 2);
        }
        for (nth, lines) in grown.iter_mut().enumerate() {
            for (place, line) in (0..).zip(lines.iter_mut()) {
                line.at = began + 14 * place + 7 * nth as i64;
            }
        }
        generator.now = began + 14 * grown[0].len().max(grown[1].len()) as i64;
        let cut = |generator: &mut LineGenerator, lines: &Vec<Line>| {
            let length = 1 + generator.random.below(lines.len() as u64) as usize;
            lines[..length].to_vec()
        };
        let early = [0, 1].map(|nth| grown[nth][..first[nth].len()].to_vec());
        let cut = [cut(generator, &grown[0]), cut(generator, &grown[1])];
        pairs.extend([early, grown, cut]);
    }
    pairs
}

fn pairs_in_every_order(mixed: &Mixed, form: &Form, generator: &mut LineGenerator, seed: u64) {
    let pairs = pairs(generator);
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..)
        .zip(&pairs)
        .map(|(nth, pair)| {
            let path = folder
                .path()
                .join(format!("machine-{nth}"))
                .join(mixed.file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            (mixed.write)(&path, pair);
            path
        })
        .collect();
    let store = Store::in_memory().unwrap();
    let order = generator.order(pairs.len());
    let mut known: Vec<&Vec<Line>> = Vec::new();
    for (step, at) in order.iter().enumerate() {
        let (format, file) = (mixed.format, mixed.file);
        let what = format!("{format} {file} pairs {seed}, order {order:?}, step {step}");
        let report = import(&store, form, &paths[*at]);
        assert!(report.skipped.is_empty(), "{what}: {report:?}");
        known.extend(&pairs[*at]);
        check_texts(&store, &known, &what);
        check_contexts(&store, form, &known, &what);
    }
    // The earlier state of a message that was replaced by a later one may be imported again: it is noted once.
    for path in &paths {
        assert_eq!(import(&store, form, path).added_messages, 0);
    }
    let what = format!("{} pairs {seed}, order {order:?}, all again", mixed.format);
    check_texts(&store, &known, &what);
    check_contexts(&store, form, &known, &what);
    let before = state(&store);
    for at in generator.order(pairs.len()) {
        let what = format!("{} pairs {seed}, order {order:?}, again {at}", mixed.format);
        let report = import(&store, form, &paths[at]);
        let new = (report.added_messages, report.revised);
        assert_eq!(new, (0, 0), "{what}: {report:?}");
        assert_eq!(state(&store), before, "{what}");
    }
    let found = loopstore_verify::verify(store.database()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

/// The lines of a store name no session: the lines of one session follow each other, or the file is rejected.
#[test]
fn lines_of_a_store_that_alternate_are_refused_whole() {
    let store = Store::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lines = ["one", "other"].map(|id| {
        let chat = store.session(id).unwrap();
        for turn in 0..3 {
            let text = |what: &str| format!("{what} {turn} of {id}");
            let messages = [
                Message::user(text("ask")),
                Message::assistant(text("answer")),
            ];
            chat.append(messages).unwrap();
        }
        let mut lines = Vec::new();
        export(
            store.database(),
            chat.id(),
            None,
            ExportForm::Lines,
            &mut lines,
        )
        .unwrap();
        let lines = String::from_utf8(lines).unwrap();
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let into = Store::in_memory().unwrap();
    let import = |name: &str, lines: Vec<String>| {
        let path = folder.path().join(name);
        std::fs::write(&path, lines.join("\n")).unwrap();
        let options = ImportOptions::default();
        import_paths(into.database(), &[path], &options, &mut |_| ())
    };
    let refused = import("alternating.jsonl", alternating(lines.to_vec())).unwrap_err();
    assert!(refused.to_string().contains("is not whole"), "{refused}");
    assert_eq!(super::sessions(&into), [""; 0]);
    let report = import("in-turn.jsonl", lines.concat()).unwrap();
    assert!(report.skipped.is_empty(), "{report:?}");
    assert_eq!(state(&into), state(&store));
}
