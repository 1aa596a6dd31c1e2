//! The files that an import reads, and the reports on the others.

use std::fs;
use std::path::{Path, PathBuf};

use loopstore::*;
use loopstore_transcripts::{
    Identity, ImportError, ImportOptions, ImportReport, Importer, Sink, Source, import_paths,
    import_paths_with,
};

use crate::writer::script::*;

/// Reads files that begin with `LINES`: each further line is `session text`; `!` ends with an error.
struct Lines;

impl Importer for Lines {
    fn format(&self) -> &'static str {
        "lines"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        head.starts_with(b"LINES\n")
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut text = String::new();
        source
            .reader
            .read_to_string(&mut text)
            .map_err(|error| ImportError::Read {
                path: source.path.into(),
                source: error,
            })?;
        for (number, line) in (1..).zip(text.lines()).skip(1) {
            let Some((id, said)) = line.split_once(' ') else {
                if line == "!" {
                    return Err(ImportError::NoTranscript("it breaks off".into()));
                }
                sink.skip(Some(number), "no session".into());
                continue;
            };
            sink.session(head(Identity::Own(session(id))))?;
            sink.begin_loop(record("a", None, LoopStatus::Completed))?;
            sink.message(&loop_id("a"), Message::user(said).into(), line.as_bytes())?;
        }
        Ok(())
    }
}

fn run(
    store: &SqliteStore,
    paths: &[&Path],
    options: &ImportOptions,
) -> Result<ImportReport, ImportError> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    import_paths_with(store, &paths, options, &[&Lines], &mut |_| {})
}

fn all(store: &SqliteStore, paths: &[&Path]) -> Result<ImportReport, ImportError> {
    run(store, paths, &ImportOptions::default())
}

fn ids(report: &ImportReport) -> Vec<&str> {
    report.sessions.iter().map(SessionId::as_str).collect()
}

#[test]
fn folders_are_walked_in_order_and_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("b/deep")).unwrap();
    fs::create_dir(at(".hidden")).unwrap();
    for (name, text) in [
        ("c.x", "LINES\nthird hello\n"),
        ("a.x", "LINES\nfirst hello\nnonsense\n"),
        ("b/deep/x.x", "LINES\nsecond hello\n"),
        (".hidden/x.x", "LINES\nnever hello\n"),
        (".dot", "LINES\nnever hello\n"),
        ("readme.md", "# hello"),
        ("empty.x", ""),
    ] {
        fs::write(at(name), text).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path(), at("b/around")).unwrap();
    let (store, mut seen) = (store(), Vec::new());
    let report = import_paths_with(
        &store,
        &[folder.path().to_owned()],
        &ImportOptions::default(),
        &[&Lines],
        &mut |progress| seen.push((progress.file, progress.files, progress.bytes)),
    )
    .unwrap();
    assert_eq!(ids(&report), ["first", "third", "second"]);
    assert_eq!(
        (report.files, report.unknown_files, report.messages),
        (3, 2, 3)
    );
    assert!(report.unread[0].reason.contains("a link to a folder"));
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|s| (s.line, s.reason.as_str()))
        .collect();
    assert_eq!(
        skipped,
        [(None, "the file is empty"), (Some(3), "no session")]
    );
    assert_eq!(seen, [(1, 3, 27), (2, 3, 18), (3, 3, 19)]);
    assert_eq!(report.bytes, 64);
    let json = serde_json::to_value(&report).unwrap();
    for key in [
        "files",
        "sessions",
        "loops",
        "turns",
        "messages",
        "added_messages",
        "skipped",
        "bytes",
        "seconds",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
    assert_eq!(json["skipped"][1]["line"], 3);
}

#[test]
fn a_file_that_fails_leaves_nothing_and_the_others_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.x"), "LINES\nlost hello\n!\n").unwrap();
    fs::write(at("b.x"), "LINES\nkept hello\n").unwrap();
    let store = store();
    let report = all(&store, &[folder.path()]).unwrap();
    assert_eq!(ids(&report), ["kept"]);
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(
        rows(&store, "SELECT session_id FROM sessions"),
        [r#""kept""#]
    );
    let error = all(&store, &[&at("a.x")]).unwrap_err().to_string();
    assert!(error.contains("breaks off"), "{error}");
    assert_eq!(ids(&all(&store, &[&at("b.x")]).unwrap()), ["kept"]);
}

#[test]
fn only_one_session_of_a_file_can_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.x");
    fs::write(&file, "LINES\none hello\ntwo hello\n").unwrap();
    let wanted = |id: &str| ImportOptions {
        session: Some(session(id)),
        ..ImportOptions::default()
    };
    let store = store();
    let report = run(&store, &[&file], &wanted("two")).unwrap();
    assert_eq!((ids(&report), report.messages), (vec!["two"], 1));
    assert_eq!(
        rows(&store, "SELECT session_id FROM sessions"),
        [r#""two""#]
    );
    let error = run(&store, &[&file], &wanted("three"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("`three`"), "{error}");
}

#[test]
fn bad_paths_are_errors_that_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("none")).unwrap();
    fs::write(at("none/readme.md"), "# hello").unwrap();
    fs::write(at("good.x"), "LINES\none hello\n").unwrap();
    fs::write(at("empty.x"), "").unwrap();
    let store = store();
    for (name, part) in [
        ("missing", "cannot read"),
        ("none/readme.md", "known formats are lines"),
        ("none", "holds no transcript"),
    ] {
        let error = all(&store, &[&at(name)]).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(name), "{error}");
    }
    assert_eq!(rows(&store, "SELECT count(*) FROM sessions"), ["0"]);
    // Valid files are imported all the same.
    for name in ["missing", "none/readme.md", "none"] {
        let report = all(&store, &[&at(name), &at("good.x")]).unwrap();
        assert_eq!((report.files, report.failed.len()), (1, 1), "{report:?}");
        assert!(report.failed[0].file.ends_with(name), "{report:?}");
    }
    let error = all(&store, &[&at("empty.x")]).unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");
    let odd = ImportOptions {
        format: Some("odd".into()),
        ..ImportOptions::default()
    };
    let error = run(&store, &[&at("good.x")], &odd).unwrap_err().to_string();
    assert!(
        error.contains("`odd`") && error.contains("lines"),
        "{error}"
    );
    let error = import_paths(
        &store,
        &[at("none")],
        &ImportOptions::default(),
        &mut |_| {},
    );
    assert!(error.is_err());
}

#[test]
fn a_format_that_is_named_is_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.x");
    fs::write(&file, "OTHER\none hello\n").unwrap();
    let store = store();
    assert!(all(&store, &[&file]).is_err());
    let named = ImportOptions {
        format: Some("lines".into()),
        ..ImportOptions::default()
    };
    assert_eq!(ids(&run(&store, &[&file], &named).unwrap()), ["one"]);
}
