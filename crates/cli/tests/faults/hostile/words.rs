//! The small languages, and JSON of the model.

use assert_cmd::Command;
use loopstore::compaction::{CompactionScope, OlderLoops, RecentWindow};
use loopstore::extend::search::parse_query;
use loopstore::model::{AgentMessage, LoopRecord, Session, SessionId};
use loopstore::{SearchQuery, SqliteStore, search};
use loopstore_export::ExportForm;
use loopstore_recorder::AgentEvent;
use proptest::prelude::*;

use crate::hostile::mutate::mutated;
use crate::hostile::{InputGuard, inputs};
use crate::support::histories::{History, Random};
use crate::support::{command, process};

/// Returns words of the small languages, valid and invalid.
fn words() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\""),
        Just("-"),
        Just("*"),
        Just("("),
        Just(")"),
        Just("OR"),
        Just("AND"),
        Just("NEAR("),
        Just(":"),
        Just("tool:"),
        Just("fixed:"),
        Just("token-budget"),
        Just("4"),
        Just("18446744073709551616"),
        Just("-1"),
        Just("1.5"),
        Just("loop-0:"),
        Just("d"),
        Just("h"),
        Just("%"),
        Just(" "),
        Just("\u{0}"),
        Just("\u{202e}"),
        Just("\u{301}"),
        Just("世"),
        Just("é"),
        Just("kite"),
        Just("'"),
        Just(";"),
        Just("2026-01-01"),
        Just("T"),
    ];
    prop_oneof![
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        any::<String>(),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: u32::try_from(inputs(400)).unwrap_or(u32::MAX),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn any_words_are_taken_or_refused() {
    if !process::is_alone("hostile::words::any_words_are_taken_or_refused") {
        return;
    }
    proptest!(config(), |(text in words())| {
        let _tried = InputGuard::new(format!("{text:?}"));
        let _ = parse_query(&text);
        if let Ok(scope) = text.parse::<CompactionScope>() {
            let again = scope.to_string().parse::<CompactionScope>();
            prop_assert_eq!(again.ok(), Some(scope));
        }
        let _ = text.parse::<OlderLoops>();
        let _ = text.parse::<RecentWindow>();
        let _ = text.parse::<ExportForm>();
        let _ = loopstore::model::Time::from_text(text.clone()).parse();
        if let Ok(id) = SessionId::new(text.clone()) {
            prop_assert_eq!(id.as_str(), text);
        }
    });
}

#[test]
fn any_query_finds_something_or_is_refused() {
    if !process::is_alone("hostile::words::any_query_finds_something_or_is_refused") {
        return;
    }
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    (0..8).for_each(|_| history.step(&mut Random::new(4)));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: u32::try_from(inputs(150)).unwrap_or(u32::MAX),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let tried = runner.run(&words(), |text| {
        let _tried = InputGuard::new(format!("{text:?}"));
        let query = SearchQuery {
            text,
            ..SearchQuery::default()
        };
        let told = search(&store, &query).map_err(|error| error.to_string());
        // The error is that of the query, not an error of the database.
        if let Err(told) = told {
            prop_assert!(!told.contains("the database"), "{}", told);
        }
        Ok(())
    });
    tried.unwrap();
    crate::support::proof::tally("search query", inputs(150), crate::hostile::INPUTS);
}

#[test]
fn any_json_of_the_model_is_read_or_refused() {
    if !process::is_alone("hostile::words::any_json_of_the_model_is_read_or_refused") {
        return;
    }
    let fixture = include_bytes!("../../../../../tests/fixtures/phi-core/tree.json");
    let mut read = 0;
    for seed in 1..=inputs(1500) {
        let bytes = mutated(fixture, &mut Random::new(seed));
        let _tried = InputGuard::new(format!("seed {seed}"));
        let _ = serde_json::from_slice::<LoopRecord>(&bytes);
        let _ = serde_json::from_slice::<AgentMessage>(&bytes);
        let _ = std::str::from_utf8(&bytes).map(AgentEvent::parse);
        let Ok(session) = serde_json::from_slice::<Session>(&bytes) else {
            continue;
        };
        read += 1;
        // A `null` field may be normalised at the first writing, but not at later ones.
        let again = |session: &Session| -> Session {
            serde_json::from_str(&serde_json::to_string(session).unwrap()).unwrap()
        };
        let once = again(&session);
        let twice = again(&once);
        assert_eq!(
            serde_json::to_string(&twice).unwrap(),
            serde_json::to_string(&once).unwrap()
        );
    }
    assert!(read > 100, "{read}: the test tests nothing");
    crate::support::proof::tally(
        "mutated JSON of the model",
        inputs(1500),
        crate::hostile::INPUTS,
    );
}

/// Languages that only the command line has: each word is accepted, rejected or not found.
#[test]
fn no_word_on_the_command_line_ends_it_in_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::support::keyed::open(folder.path().join("loopstore.db")).unwrap();
    let mut history = History::new(&store, "s");
    (0..8).for_each(|_| history.step(&mut Random::new(4)));
    drop(store);
    let words = [
        "",
        ":",
        "loop-0:",
        ":3",
        "loop-0:-1",
        "loop-0:99999999999999999999",
        "loop-0:3",
        "é:é",
        "0d",
        "-1d",
        "99999999999999999999d",
        "1e9d",
        "d",
        "1.5",
        "fixed:",
        "fixed:-1",
        "fixed:4294967296",
        "token-budget",
        "..",
        "3..1",
        "0..4294967295",
        "..1",
        "\u{202e}",
    ];
    for word in words {
        for line in [
            "context s --as-of",
            "context s --scope",
            "context s --max-tokens",
            "compact s --scope",
            "diff s --from",
            "expand s --turns",
            "expand s --turns 0 --match",
            "expand s --turns 0 --max-tokens 99 --from",
            "recall",
            "recall kite --max-tokens",
            "prune --dry-run --older-than",
            "search",
            "search kite --since",
            "sql",
            "replay s --speed",
            "fork s --turn",
        ] {
            let mut command = Command::from_std(command::loopstore());
            command
                .current_dir(folder.path())
                .env("LOOPSTORE_DB", "loopstore.db");
            command.args(line.split(' ')).arg(word);
            let output = command
                .timeout(crate::support::hang::HUNG)
                .output()
                .unwrap();
            let code = output.status.code();
            assert!(matches!(code, Some(0..=3)), "{line} {word:?}: {output:?}");
        }
    }
}
