//! The choice of the loops that are archived.

use loopstore::*;
use loopstore_admin::retention::{ArchiveReport, ArchiveRequest, SkipReason, archive};
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::support::archive::*;
use crate::support::histories::{loop_id, user};

fn archived_loops(report: &ArchiveReport) -> Vec<&str> {
    report
        .loops
        .iter()
        .map(|one| one.loop_id.as_str())
        .collect()
}

fn kept(report: &ArchiveReport) -> Vec<(&str, SkipReason)> {
    let kept = report.kept.iter();
    kept.map(|one| (one.loop_id.as_str(), one.why)).collect()
}

#[test]
fn only_loops_that_no_context_shows_are_cold() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = line(&store, "s", 4, 3);
    let report = archive_cold(&store);
    assert_eq!(archived_loops(&report), [""; 0]);
    let shown = |at: usize| {
        (
            ["loop-0", "loop-1", "loop-2", "loop-3"][at],
            SkipReason::Shown,
        )
    };
    let open = ("loop-4", SkipReason::Open);
    assert_eq!(
        kept(&report),
        [shown(0), shown(1), shown(2), shown(3), open]
    );

    assert_eq!(history.compact(4, (0, 1), true)["outcome"], "committed");
    let report = archive_cold(&store);
    assert_eq!(
        archived_loops(&report),
        ["loop-0", "loop-1", "loop-2", "loop-3"]
    );
    assert_eq!(kept(&report), [open]);
    assert_eq!((report.messages, packed(&store)), (36, 36));
    assert!(report.bytes_after * 2 < report.bytes_before, "{report:?}");
    assert_eq!(archive_cold(&store).messages, 0, "a second time");
    assert_whole(&store);
}

#[test]
fn a_loop_that_a_fork_shows_is_not_cold() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = line(&store, "s", 2, 3);
    assert_eq!(history.compact(2, (0, 1), true)["outcome"], "committed");
    history.start_loop(Some(0), Some(1));
    history.append(3, vec![user("from the middle", 0)]);
    let report = archive_cold(&store);
    assert_eq!(archived_loops(&report), ["loop-1"]);
}

#[test]
fn a_loop_that_is_named_is_archived_whatever_shows_it_but_not_while_it_runs() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 2, 3);
    let report = archive_loops(&store, &history.session, &[1]);
    assert_eq!(archived_loops(&report), ["loop-1"]);
    let request = |at: usize| ArchiveRequest {
        session: Some(history.session.clone()),
        loops: vec![loop_id(at)],
        ..ArchiveRequest::default()
    };
    let running = archive(&store, &request(2)).unwrap_err().to_string();
    assert!(running.contains("loop loop-2 has not ended"), "{running}");
    let missing = archive(&store, &request(9)).unwrap_err();
    assert!(matches!(missing, StoreError::NoLoop(_)), "{missing}");
    let nowhere = ArchiveRequest {
        session: None,
        ..request(1)
    };
    assert!(archive(&store, &nowhere).is_err());
    let nobody = ArchiveRequest {
        session: Some(SessionId::new("nobody").unwrap()),
        ..ArchiveRequest::default()
    };
    let error = archive(&store, &nobody).unwrap_err();
    assert!(matches!(error, StoreError::NoSession(_)), "{error}");
}

#[test]
fn shown_loops_go_too_if_that_is_asked_and_young_ones_stay() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 2, 3);
    history.end_loop(2);
    let young = ArchiveRequest {
        shown: true,
        older_than: Some(60_000),
        dry_run: true,
        ..ArchiveRequest::default()
    };
    let report = archive(&store, &young).unwrap();
    assert_eq!((report.messages, report.kept.len()), (0, 3));
    assert!(report.kept.iter().all(|one| one.why == SkipReason::Recent));

    let dry = ArchiveRequest {
        older_than: None,
        ..young
    };
    let told = archive(&store, &dry).unwrap();
    assert_eq!((packed(&store), told.receipts.len()), (0, 0));
    let wet = ArchiveRequest {
        dry_run: false,
        ..dry
    };
    let done = archive(&store, &wet).unwrap();
    assert_eq!(done.loops, told.loops, "a dry run tells the truth");
    assert_eq!((packed(&store), done.receipts.len()), (21, 1));
}

#[test]
fn a_driven_loop_stays() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 1, 3);
    let key = history.row(0).key;
    let _held = loopstore::extend::write(&store, |write| {
        let now = Time::now().millis().unwrap();
        loopstore::extend::lease::acquire(write, key, "somebody", 60_000, now)
    })
    .unwrap();
    let request = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    let report = archive(&store, &request).unwrap();
    assert_eq!(report.messages, 0);
    assert_eq!(kept(&report)[0], ("loop-0", SkipReason::Open));
}

/// An ended loop may grow, for example when a transcript is imported again.
#[test]
fn an_archived_loop_that_grows_keeps_what_is_archived_and_takes_the_rest_next_time() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 1, 3);
    let before = crate::archive::seen::lines(&store, &history.session);
    archive_loops(&store, &history.session, &[0]);
    history.append(0, turn("what came later", 3));
    assert_eq!(packed(&store), 9);
    let archived = "SELECT count(*) AS n FROM v_loops WHERE archived";
    assert_eq!(number(&store, archived), 0, "a part of it is not");
    assert_whole(&store);
    let report = archive_loops(&store, &history.session, &[0]);
    assert_eq!((report.messages, packed(&store)), (3, 12));
    assert_eq!(number(&store, archived), 1);
    assert_whole(&store);
    let after = crate::archive::seen::lines(&store, &history.session);
    let said = |lines: &str| lines.matches("is answered at length").count();
    assert_eq!((said(&before), said(&after)), (16, 20));
    let report = bring_back(&store);
    assert_eq!((report.messages, packed(&store)), (12, 0));
    assert_eq!(crate::archive::seen::lines(&store, &history.session), after);
}

/// Two halves of a transcript, the first archived before the second is imported, give the same as one import.
#[test]
fn a_transcript_whose_loops_are_archived_is_imported_again_as_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = "tests/fixtures/claude-code/kite-1.jsonl";
    let whole = std::fs::read_to_string(fixture).unwrap();
    let half: String = whole.split_inclusive('\n').take(20).collect();
    let file = folder.path().join("kite-1.jsonl");
    let import = |store: &SqliteStore| {
        let options = ImportOptions::default();
        import_paths(store, std::slice::from_ref(&file), &options, &mut |_| {}).unwrap()
    };
    let all = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    let grown = SqliteStore::in_memory().unwrap();
    std::fs::write(&file, half).unwrap();
    import(&grown);
    let before = archive(&grown, &all).unwrap().messages;
    std::fs::write(&file, &whole).unwrap();
    assert!(import(&grown).added_messages > 0);
    assert_eq!(import(&grown).added_messages, 0);
    assert!(before > 0 && packed(&grown) as u64 == before);
    assert!(archive(&grown, &all).unwrap().messages > 0);
    assert_eq!(import(&grown).added_messages, 0);
    assert_whole(&grown);
    let at_once = SqliteStore::in_memory().unwrap();
    let id = import(&at_once).sessions.remove(0);
    let shown = |store: &SqliteStore| {
        let options = BuildOptions::default();
        build_context_from_session(store, &id, &options)
            .unwrap()
            .messages
    };
    assert_eq!(shown(&grown), shown(&at_once));
}

#[test]
fn undoing_the_run_that_hid_an_archived_loop_shows_its_originals() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = line(&store, "s", 3, 3);
    let originals = build_context_from_session(&store, &history.session, &BuildOptions::default());
    let originals = originals.unwrap().messages;
    assert_eq!(history.compact(3, (0, 1), true)["outcome"], "committed");
    assert_eq!(archive_cold(&store).messages, 27);
    assert!(history.flip(3, false));
    let shown = build_context_from_session(&store, &history.session, &BuildOptions::default());
    assert_eq!(shown.unwrap().messages, originals);
    assert_eq!(packed(&store), 27, "reading brings nothing back");
    // The loop can be compacted again, from its archived messages.
    assert_eq!(history.compact(3, (0, 0), true)["outcome"], "committed");
    assert_whole(&store);
}
