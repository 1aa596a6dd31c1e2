//! The stored result of an import does not depend on whether the transcript is imported in pieces or whole.

use std::path::Path;

use loopstore::extend::source::write_out;
use loopstore::extend::{SessionStore, read};
use loopstore::{
    AgentMessage, BuildOptions, Json, SealingProvider, SessionId, SqliteStore,
    build_context_from_session,
};
use loopstore_transcripts::{
    ImportOptions, ImportReport, Importer, Source, import_paths, import_source,
};

use crate::support::requests::is_valid;
use crate::tools::recorder::importer;

/// The formats under test here.
pub const FORMATS: [&str; 5] = ["codex", "pi", "gemini-cli", "copilot-cli", "adk"];

/// The hand-written transcripts: format and path.
pub fn fixtures() -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for format in FORMATS {
        let folder = std::fs::read_dir(Path::new("../../tests/fixtures").join(format)).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path().to_string_lossy().into_owned());
        found.extend(paths.map(|path| (format, path)));
    }
    found.sort();
    found
}

pub fn store() -> SqliteStore {
    SqliteStore::in_memory().unwrap()
}

/// Imports `bytes` as the file `path`. Returns an error for a file without a conversation.
pub fn import(
    store: &SqliteStore,
    importer: &dyn Importer,
    path: &str,
    bytes: &[u8],
) -> Option<ImportReport> {
    let mut source = Source {
        path: Path::new(path),
        reader: &mut std::io::Cursor::new(bytes.to_vec()),
    };
    import_source(store, importer, &mut source, None).ok()
}

pub fn rows(store: &SqliteStore, sql: &str) -> Vec<String> {
    let found = store.query(sql).unwrap();
    let line = |row: &Vec<Json>| {
        row.iter()
            .map(|v| v.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    found.rows.iter().map(|row| line(row).join(" ")).collect()
}

/// Returns everything that a store contains of its sessions.
fn everything(store: &SqliteStore) -> Vec<String> {
    let mut all = rows(store, "SELECT * FROM v_messages ORDER BY 1, 2, 3");
    all.extend(rows(store, "SELECT * FROM v_loops ORDER BY 1, 2"));
    all.extend(rows(store, "SELECT * FROM v_compaction_runs ORDER BY 1, 2"));
    all
}

/// Returns what models see, block by block, since an answer that was imported in two parts is two messages.
pub fn content_of(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT session_id, loop_id, role, json_extract(payload, '$.toolCallId'),
            json_extract(payload, '$.isError'), block.value
        FROM v_messages, json_each(payload, '$.content') block
        WHERE role <> 'extension' ORDER BY 1, 2, seq, block.key";
    rows(store, sql)
}

/// Returns the context of a session's current loop.
pub fn context(store: &SqliteStore, session: &SessionId) -> Vec<AgentMessage> {
    context_for(store, session, None)
}

fn context_for(
    store: &SqliteStore,
    session: &SessionId,
    provider: Option<SealingProvider>,
) -> Vec<AgentMessage> {
    let options = BuildOptions {
        provider,
        ..BuildOptions::default()
    };
    let context = build_context_from_session(store, session, &options);
    context.unwrap().messages
}

/// Returns the texts of a context, with the ids of calls.
pub fn shown(store: &SqliteStore, session: &str) -> Vec<String> {
    shown_to(store, session, None)
}

/// Returns the texts of a context for a provider.
pub fn shown_to(
    store: &SqliteStore,
    session: &str,
    provider: Option<SealingProvider>,
) -> Vec<String> {
    let messages = context_for(store, &SessionId::new(session).unwrap(), provider);
    let text = |message: &AgentMessage| {
        let message = message.message().unwrap();
        let calls = message.tool_calls().map(|call| call.id.as_str());
        message.texts().chain(calls).collect::<Vec<_>>().join(" ")
    };
    messages.iter().map(text).collect()
}

/// Checks the invariants of every database.
pub fn is_sound(store: &SqliteStore, what: &str) {
    let report = loopstore_verify::verify(store).unwrap();
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    let mut ids = Vec::new();
    read(store, |read| {
        ids.extend(read.sessions()?.into_iter().map(|row| row.session_id));
        Ok(())
    })
    .unwrap();
    for id in ids {
        if let Err(fault) = is_valid(&context(store, &id)) {
            panic!("{what}, session {id}: {fault}");
        }
    }
}

#[test]
fn importing_twice_adds_nothing() {
    for (format, path) in fixtures() {
        let (store, bytes) = (store(), std::fs::read(&path).unwrap());
        let first = import(&store, importer(format), &path, &bytes).unwrap();
        assert!(first.added_messages > 0, "{path}");
        is_sound(&store, &path);
        let before = everything(&store);
        let second = import(&store, importer(format), &path, &bytes).unwrap();
        assert_eq!((second.added_messages, second.revised), (0, 0), "{path}");
        assert_eq!(everything(&store), before, "{path}");
    }
}

#[test]
fn a_file_that_is_cut_anywhere_and_comes_again_whole_loses_and_doubles_nothing() {
    for (format, path) in fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        let whole = store();
        import(&whole, importer(format), &path, &bytes).unwrap();
        let expected = content_of(&whole);
        let step = (bytes.len() / 8).max(1);
        for cut in (0..bytes.len()).step_by(step).chain(line_ends(&bytes)) {
            let store = store();
            let part = import(&store, importer(format), &path, &bytes[..cut]);
            import(&store, importer(format), &path, &bytes).unwrap();
            assert_eq!(content_of(&store), expected, "{path} at {cut}: {part:?}");
        }
    }
}

fn line_ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at + 1)
}

#[test]
fn a_file_that_grows_line_by_line_stays_sound() {
    for (format, path) in fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        let store = store();
        for cut in line_ends(&bytes).chain([bytes.len()]) {
            import(&store, importer(format), &path, &bytes[..cut]);
        }
        is_sound(&store, &path);
    }
}

#[test]
fn a_file_that_grows_line_by_line_always_shows_what_the_whole_does() {
    for (format, path) in fixtures() {
        // The event that announces an item may come later.
        if !["rolled-back.jsonl", "rewound.jsonl"]
            .iter()
            .any(|name| path.ends_with(name))
        {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let grown = store();
        for cut in line_ends(&bytes) {
            let whole = store();
            let found = import(&whole, importer(format), &path, &bytes[..cut]);
            import(&grown, importer(format), &path, &bytes[..cut]);
            let Some(found) = found else { continue };
            let session = &found.sessions[0];
            assert_eq!(
                context(&grown, session),
                context(&whole, session),
                "{path} at {cut}"
            );
        }
        is_sound(&grown, &path);
    }
}

#[test]
fn the_file_itself_comes_out_byte_for_byte() {
    for (format, path) in fixtures() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::support::keyed::open(folder.path().join("a.db")).unwrap();
        let paths = [path.clone().into()];
        let options = ImportOptions::default();
        let report = import_paths(&store, &paths, &options, &mut |_| {}).unwrap();
        let mut out = Vec::new();
        read(&store, |read| {
            let session = read.session(&report.sessions[0])?.unwrap();
            let sources = read.sources(session.key)?;
            assert_eq!((sources.len(), sources[0].format.as_str()), (1, format));
            write_out(read, &sources[0], &mut out).unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(out, std::fs::read(&path).unwrap(), "{path}");
        assert!(store.counter().name().len() > 1);
    }
}
