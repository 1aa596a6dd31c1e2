//! Records on a server and compacts there, as any number of processes may at once: `cargo run -p
//! loopstore-postgres --example postgres postgres://me@localhost/agents`, or with the address in
//! `LOOPSTORE_DB`. It adds one session and changes nothing else in the database.

use std::error::Error;

use loopstore::*;
use loopstore_postgres::PostgresStore;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};

/// The events of a turn: a question with a long answer.
fn turn(loop_id: &LoopId, number: u32) -> Vec<AgentEvent> {
    let messages: [AgentMessage; 2] = [
        Message::user(format!("Please mend part {number}")).into(),
        Message::assistant(format!("Part {number} is mended. ").repeat(40)).into(),
    ];
    let mut events = vec![AgentEvent::TurnStart(TurnStart::new(
        loop_id.clone(),
        number,
    ))];
    for message in messages {
        let (id, started) = (loop_id.clone(), message.clone());
        events.push(AgentEvent::MessageStart(MessageStart::new(id, started)));
        events.push(AgentEvent::MessageEnd(MessageEnd::new(
            loop_id.clone(),
            message,
        )));
    }
    events.push(AgentEvent::TurnEnd(TurnEnd::new(loop_id.clone())));
    events
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args()
        .nth(1)
        .filter(|text| text.starts_with("postgres"));
    let address = given.or_else(|| std::env::var("LOOPSTORE_DB").ok());
    on(&address.ok_or("give the address of a database, or set LOOPSTORE_DB")?)
}

/// Records, compacts and reads in the database at `address`.
pub fn on(address: &str) -> Result<(), Box<dyn Error>> {
    let store = PostgresStore::open(address)?;
    let loop_id = LoopId::generate();
    let session = SessionId::new(format!("session of {loop_id}"))?;
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    let start = AgentStart::new(session.clone(), loop_id.clone());
    recorder.record(AgentEvent::AgentStart(start))?;
    for number in 0..16 {
        for event in turn(&loop_id, number) {
            // A message that is complete would outlive the server's crash.
            recorder.record(event)?;
        }
    }
    recorder.record(AgentEvent::AgentEnd(AgentEnd::new(loop_id)))?;
    let request = CompactRequest {
        trigger: CompactTrigger::Length,
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&store, &session, &request)?;
    println!("{} → {} tokens", report.before.tokens, report.after.tokens);
    let context = build_context_from_session(&store, &session, &BuildOptions::default())?;
    assert!(context.messages.len() < 32);
    println!("{} messages in {}", context.messages.len(), store.place());
    Ok(())
}
