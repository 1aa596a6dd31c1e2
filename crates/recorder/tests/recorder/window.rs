//! The messages of the open turn count when a context is compacted, and are never compacted themselves.

use loopstore::compact::CompactOutcome;
use loopstore::*;
use loopstore_recorder::{RecorderOptions, SessionRecorder};

use crate::support::events::*;

const WINDOW: u64 = 8_000;

/// Records a loop of ended turns, of about 3,000 tokens.
fn worked(store: &Store) -> SessionRecorder<'_> {
    let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
    record_all(&mut recorder, vec![start("a")]);
    for number in 0..15 {
        let reply = answer(&format!("Step {number}: {}", "done, ".repeat(130)), &[]);
        let prompt = user(&format!("step {number}"));
        record_all(
            &mut recorder,
            vec![
                turn_start("a", number),
                begins("a", &prompt),
                ends("a", &prompt),
                begins("a", &reply),
                ends("a", &reply),
                turn_end("a"),
            ],
        );
    }
    recorder
}

fn prompt(recorder: &mut SessionRecorder<'_>, tokens: usize) -> AgentMessage {
    let prompt = user(&"look ".repeat(tokens * 4 / 5));
    let events = vec![
        turn_start("a", 15),
        begins("a", &prompt),
        ends("a", &prompt),
    ];
    record_all(recorder, events);
    prompt
}

fn ask(store: &Store) -> Result<Prepared> {
    let chat = store.session(session())?;
    chat.with_policy(Policy::new(WINDOW)).prepare()
}

#[test]
fn an_open_prompt_fires_the_trigger_and_the_result_fits_with_it() {
    let store = Store::in_memory().unwrap();
    let mut recorder = worked(&store);
    let before = ask(&store).unwrap();
    assert!(before.compactions.is_empty());
    let prompt = prompt(&mut recorder, 4_950);
    let next = ask(&store).unwrap();
    let last = next.compactions.last().unwrap();
    assert_eq!(last.outcome, CompactOutcome::Committed, "{last:?}");
    assert!(next.context.tokens <= WINDOW, "{}", next.context.tokens);
    let stored = next.context.messages.last().unwrap();
    assert_eq!(stored.message(), prompt.message());
    // No section of a block contains the open turn.
    let sqlite = SqliteStore::downcast(store.database()).unwrap();
    let sql = "SELECT max(to_turn) AS t FROM v_coverage";
    let covered = sqlite.query(sql).unwrap().records()[0].number("t");
    assert_eq!(covered, Some(14));
    // The answer comes, and the turn is complete.
    let reply = answer("yes", &[]);
    let events = vec![begins("a", &reply), ends("a", &reply), turn_end("a")];
    record_all(&mut recorder, events);
    assert_eq!(row(sqlite, "a").totals.complete, 16);
    assert!(
        loopstore_verify::verify(sqlite)
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn the_turn_in_flight_is_the_last_one_where_no_other_fits_beside_it() {
    let store = Store::in_memory().unwrap();
    let mut recorder = worked(&store);
    let reply = answer(&"long ".repeat(3_600), &[]);
    let events = vec![
        turn_start("a", 15),
        begins("a", &reply),
        ends("a", &reply),
        turn_end("a"),
        turn_start("a", 16),
    ];
    record_all(&mut recorder, events);
    let large = user(&"look ".repeat(4_000));
    record_all(&mut recorder, vec![begins("a", &large), ends("a", &large)]);
    let next = ask(&store).unwrap();
    assert!(next.context.tokens <= WINDOW, "{}", next.context.tokens);
    let stored = next.context.messages.last().unwrap();
    assert_eq!(stored.message(), large.message());
}

#[test]
fn a_prompt_that_is_too_large_by_itself_is_a_typed_error() {
    let store = Store::in_memory().unwrap();
    let mut recorder = worked(&store);
    prompt(&mut recorder, 9_000);
    let error = ask(&store).unwrap_err();
    let Error::BudgetTooSmall { needed, .. } = error else {
        panic!("{error}");
    };
    assert!(needed > WINDOW, "{needed}");
}
