//! Files in other encodings, compressed or damaged: each format yields the same messages as from an undamaged file.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use loopstore::SqliteStore;
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::support::root::fixture;

/// A transcript of each format, with the folder that contains it.
const FILES: [(&str, &str); 21] = [
    ("claude-code", "kite-1.jsonl"),
    ("claude-code", "rewinds.jsonl"),
    ("codex", "lighthouse.jsonl"),
    ("gemini-cli", "tide.json"),
    ("gemini-cli", "ebb.jsonl"),
    (
        "qwen-code",
        "chats/0b6f5f4e-1111-4222-8333-444455556666.jsonl",
    ),
    ("mini-swe-agent", "calls.traj.json"),
    ("openai-chat", "messages.json"),
    ("openai-chat", "runs.json"),
    ("copilot-cli", "harbour.jsonl"),
    ("swe-agent", "lantern.traj.json"),
    ("adk", "press.json"),
    ("pi", "garden.jsonl"),
    ("atif", "quay.json"),
    ("cline", "tasks/1780000000000/api_conversation_history.json"),
    (
        "cline",
        "sessions/1784000000000_abcde/1784000000000_abcde.messages.json",
    ),
    ("openhands", "events.jsonl"),
    (
        "roo-code",
        "tasks/01980000-aaaa-7bbb-8ccc-000000000001/api_conversation_history.json",
    ),
    ("phi-core", "tree.json"),
    ("opencode", "harbour.json"),
    ("goose", "20250812_101500.jsonl"),
];

/// A copy of a format's folder.
struct Copy {
    _folder: tempfile::TempDir,
    path: PathBuf,
    text: String,
}

impl Copy {
    fn of((root, name): (&str, &str)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (fixture(root), folder.path().join(root));
        for entry in walk(&from) {
            let path = to.join(entry.strip_prefix(&from).unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(&entry, &path).unwrap();
        }
        let path = to.join(name);
        Self {
            text: std::fs::read_to_string(&path).unwrap(),
            path,
            _folder: folder,
        }
    }

    /// Imports these bytes in place of the file; `end` is appended to the name of the file.
    fn import(&self, bytes: &[u8], end: &str) -> (Vec<String>, ImportReport) {
        let mut path = self.path.clone().into_os_string();
        path.push(end);
        let path = PathBuf::from(path);
        std::fs::write(&path, bytes).unwrap();
        let store = SqliteStore::in_memory().unwrap();
        let report = import(&store, &[path.as_path()]).unwrap_or_else(|error| {
            panic!("{}: {error}", path.display());
        });
        (rows(&store), report)
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files
}

fn import(store: &SqliteStore, paths: &[&Path]) -> Result<ImportReport, String> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    let options = ImportOptions::default();
    import_paths(store, &paths, &options, &mut |_| {}).map_err(|error| error.to_string())
}

/// Returns what a model sees of all sessions, sorted by text.
fn rows(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT role, text, turn FROM v_messages WHERE role <> 'extension' ORDER BY 1, 2, 3";
    let messages = store.query(sql).unwrap().rows;
    let sql = "SELECT status, turns FROM v_loops ORDER BY 1, 2";
    let loops = store.query(sql).unwrap().rows;
    let rows = messages.iter().chain(&loops);
    rows.map(|row| format!("{row:?}")).collect()
}

fn utf16(text: &str, is_big_endian: bool) -> Vec<u8> {
    let bytes = |unit: u16| match is_big_endian {
        true => unit.to_be_bytes(),
        false => unit.to_le_bytes(),
    };
    text.encode_utf16().flat_map(bytes).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn every_format_is_read_in_every_encoding() {
    for file in FILES {
        let copy = Copy::of(file);
        let text = &copy.text;
        let (expected, report) = copy.import(text.as_bytes(), "");
        let skipped = report.skipped.len();
        let marked = format!("\u{feff}{text}");
        let zstd = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        for (what, bytes, end) in [
            ("UTF-8 with a mark", marked.clone().into_bytes(), ""),
            ("CRLF", text.replace('\n', "\r\n").into_bytes(), ""),
            ("UTF-16 LE with a mark", utf16(&marked, false), ""),
            ("UTF-16 BE with a mark", utf16(&marked, true), ""),
            ("UTF-16 LE", utf16(text, false), ""),
            ("UTF-16 BE", utf16(text, true), ""),
            ("zstd", zstd, ".zst"),
            ("gzip", gzip(text.as_bytes()), ".gz"),
            ("gzip of UTF-16", gzip(&utf16(&marked, false)), ".gz"),
        ] {
            let (found, report) = copy.import(&bytes, end);
            assert_eq!(found, expected, "{file:?} as {what}");
            assert_eq!(report.skipped.len(), skipped, "{file:?} as {what}");
            let is_named = report
                .repaired
                .iter()
                .any(|one| one.what.contains("UTF-16"));
            assert_eq!(is_named, what.contains("UTF-16"), "{file:?} as {what}");
        }
    }
}

/// Returns the longest word of the texts that occurs in a file and is not a word of JSON.
fn word_of(rows: &[String], text: &str) -> Option<String> {
    let texts = rows.iter().filter_map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        row[1].as_str().map(str::to_owned)
    });
    let texts: Vec<String> = texts.collect();
    let words = texts
        .iter()
        .flat_map(|text| text.split(|c: char| !c.is_ascii_lowercase()));
    // A letter more in a name makes another name.
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let quoted = |word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let before = text[..at].trim_end_matches(is_name);
            let after = text[at..].trim_start_matches(is_name);
            before.ends_with('"') && after.starts_with('"')
        })
    };
    let words = words.filter(|word| word.len() > 1 && text.contains(*word) && !quoted(word));
    words.max_by_key(|word| word.len()).map(str::to_owned)
}

#[test]
fn half_an_emoji_costs_no_format_more_than_itself() {
    let mut left_out = Vec::new();
    for file in FILES {
        let copy = Copy::of(file);
        let (expected, whole) = copy.import(copy.text.as_bytes(), "");
        let Some(word) = word_of(&expected, &copy.text) else {
            left_out.push(file);
            continue;
        };
        for half in ["\\ud83d", "\\uDE00"] {
            let text = copy.text.replace(&word, &format!("{word}{half}"));
            let (found, report) = copy.import(text.as_bytes(), "");
            let marked = format!("{word}\u{fffd}");
            let without: Vec<String> = found
                .iter()
                .map(|row| row.replace(&marked, &word))
                .collect();
            assert_eq!(without, expected, "{file:?}");
            assert!(found.iter().any(|row| row.contains(&marked)), "{file:?}");
            assert_eq!(report.skipped.len(), whole.skipped.len(), "{file:?}");
            let repaired = &report.repaired[0];
            assert!(
                repaired.what.contains("surrogate") && repaired.count > 0,
                "{file:?}"
            );
        }
        // A character that was truncated within its bytes.
        let mut bytes = copy.text.clone().into_bytes();
        let at = copy.text.find(&word).unwrap() + word.len();
        bytes.splice(at..at, *b"\xF0\x9F\x98");
        let (found, report) = copy.import(&bytes, "");
        assert_eq!(found.len(), expected.len(), "{file:?}");
        assert!(report.repaired[0].what.contains("UTF-8"), "{file:?}");
    }
    assert!(left_out.len() < 3, "{left_out:?}");
}

#[test]
fn a_record_that_was_cut_off_does_not_take_along_the_next_one() {
    for file in FILES.iter().filter(|(_, name)| name.ends_with(".jsonl")) {
        let copy = Copy::of(*file);
        let (expected, whole) = copy.import(copy.text.as_bytes(), "");
        let lines: Vec<&str> = copy.text.lines().collect();
        for at in 1..lines.len() {
            let before = lines[at - 1];
            for cut in [1, before.len() / 3, before.len() / 2, before.len() - 1] {
                if !before.is_char_boundary(cut) || lines[at].trim().is_empty() {
                    continue;
                }
                let glued = format!("{}{}", &before[..cut], lines[at]);
                let mut with: Vec<&str> = lines.clone();
                with[at] = &glued;
                let (found, report) = copy.import((with.join("\n") + "\n").as_bytes(), "");
                assert_eq!(found, expected, "{file:?} {at} {cut}");
                assert_eq!(
                    report.skipped.len(),
                    whole.skipped.len() + 1,
                    "{file:?} {at} {cut}"
                );
            }
            let zeros = format!("{}{}", "\0".repeat(700), lines[at]);
            let mut with: Vec<&str> = lines.clone();
            with[at] = &zeros;
            let (found, report) = copy.import((with.join("\n") + "\n").as_bytes(), "");
            assert_eq!(found, expected, "{file:?} {at}");
            let zeros = report.repaired.iter().find(|one| one.what.contains("zero"));
            let zeros = zeros.map(|one| (one.line, one.count));
            assert_eq!(zeros, Some((Some(at as u64 + 1), 700)), "{file:?} {at}");
        }
    }
}

#[test]
fn records_on_one_line_are_read_one_by_one() {
    for file in FILES.iter().filter(|(_, name)| name.ends_with(".jsonl")) {
        let copy = Copy::of(*file);
        let (expected, _) = copy.import(copy.text.as_bytes(), "");
        for between in ["", " ", "\0\0"] {
            let lines: Vec<&str> = copy.text.lines().collect();
            let pairs: Vec<String> = lines.chunks(2).map(|pair| pair.join(between)).collect();
            let (found, _) = copy.import((pairs.join("\n") + "\n").as_bytes(), "");
            assert_eq!(found, expected, "{file:?} {between:?}");
        }
    }
}

const CHAT: &str =
    r#"[{"role":"user","content":"Is it dry?"},{"role":"assistant","content":"No."}]"#;

#[test]
fn what_is_not_read_in_a_folder_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("chat.json", CHAT.as_bytes());
    write("settings.json", br#"{"theme":"dark","size":11}"#);
    write("empty.json", b"[]");
    write("notes.md", b"# Notes\n");
    write("chat.json.xz", b"\xFD7zXZ\0rest");
    write("wide.json", b"\xFF\xFE\0\0{\0\0\0}\0\0\0");
    write("cut.jsonl.zst", b"\x28\xB5\x2F\xFD\x04");
    let other = rusqlite::Connection::open(folder.path().join("other.db")).unwrap();
    other.execute_batch("CREATE TABLE lamps (id)").unwrap();
    crate::support::keyed::open(folder.path().join("store.db")).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let report = import(&store, &[folder.path()]).unwrap();
    assert_eq!((report.files, report.unknown_files), (1, 8));
    let unread = report.unread.iter().map(|one| {
        let name = Path::new(&one.file).file_name().unwrap();
        (name.to_str().unwrap(), one.reason.as_str())
    });
    let unread: Vec<_> = unread.collect();
    for (name, reason) in [
        ("chat.json.xz", "unpack it with `xz -d`"),
        ("cut.jsonl.zst", "zstd data is cut off or damaged"),
        ("other.db", "(it has lamps)"),
        ("settings.json", "name its format"),
        ("wide.json", "UTF-32"),
    ] {
        let found = unread.iter().find(|(found, _)| *found == name);
        assert!(
            found.is_some_and(|(_, why)| why.contains(reason)),
            "{name}: {unread:?}"
        );
    }
    if crate::support::keyed::key().is_none() {
        assert_eq!(unread.len(), 6, "{unread:?}");
        assert!(
            unread
                .iter()
                .any(|(name, why)| *name == "store.db" && why.contains("copy"))
        );
    }
}

#[test]
fn a_path_that_fails_does_not_keep_the_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("chat.json"), CHAT).unwrap();
    std::fs::write(at("unknown.json"), "{\"a\":1}").unwrap();
    std::fs::write(at("void.json"), "[{\"role\":\"user\"").unwrap();
    std::fs::create_dir(at("none")).unwrap();
    let paths = ["missing.json", "unknown.json", "chat.json", "none"].map(at);
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let store = SqliteStore::in_memory().unwrap();
    let report = import(&store, &paths).unwrap();
    assert_eq!((report.files, report.sessions.len()), (1, 1));
    let failed: Vec<&str> = report
        .failed
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    for (failed, reason) in failed
        .iter()
        .zip(["cannot be read", "known format", "no transcript"])
    {
        assert!(failed.contains(reason), "{failed}");
    }
    // As the only path, each is the error of the import.
    for path in ["missing.json", "unknown.json", "none"] {
        assert!(import(&store, &[&at(path)]).is_err());
    }
    let error = import(&store, &[&at("unknown.json"), &at("none")]).unwrap_err();
    assert!(
        error.contains("unknown.json") && error.contains("none"),
        "{error}"
    );
}

#[test]
fn a_compressed_file_that_is_cut_off_is_read_as_far_as_it_goes() {
    let copy = Copy::of(("claude-code", "kite-1.jsonl"));
    let packed = compress_to_vec(copy.text.as_bytes(), CompressionLevel::Fastest);
    let more = "{}\n".repeat(300_000);
    let mut two = packed.clone();
    two.extend(compress_to_vec(
        more.as_bytes(),
        CompressionLevel::Uncompressed,
    ));
    let (found, report) = copy.import(&two[..packed.len() + 200_000], ".zst");
    let (expected, _) = copy.import(&packed, ".zst");
    assert_eq!(found, expected);
    let is_reported = report
        .skipped
        .iter()
        .any(|one| one.reason.contains("zstd data is cut off"));
    assert!(is_reported, "{:?}", report.skipped);
}
