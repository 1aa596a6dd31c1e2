//! Automatic turns and loops, compared with a slow and obvious rule; and the state that a handle keeps.

use loopstore::extend as store;
use loopstore::extend::session::NO_TURN;
use loopstore::*;
use proptest::prelude::*;
use serde_json::json;

/// The next step of a conversation.
#[derive(Clone, Debug)]
enum TurnStep {
    User,
    /// An answer with this number of calls.
    Answer(u8),
    /// The result of an open call, counted from the last.
    Result(u8),
    Note,
    End,
}

fn step() -> impl Strategy<Value = TurnStep> {
    prop_oneof![
        3 => Just(TurnStep::User),
        4 => (0u8..3).prop_map(TurnStep::Answer),
        4 => (0u8..3).prop_map(TurnStep::Result),
        1 => Just(TurnStep::Note),
        1 => Just(TurnStep::End),
    ]
}

/// A turn according to the rule.
#[derive(Clone, Debug, Default, PartialEq)]
struct RefTurn {
    texts: Vec<String>,
    answers: u32,
    open: Vec<String>,
}

/// The loops of a conversation according to the rule.
#[derive(Default)]
struct Reference {
    loops: Vec<Vec<RefTurn>>,
    has_ended: bool,
    said: u32,
}

impl Reference {
    fn last(&mut self) -> Option<&mut RefTurn> {
        self.loops.last_mut().and_then(|turns| turns.last_mut())
    }

    fn open(&self) -> Vec<String> {
        let turns = self.loops.last().into_iter().flatten();
        turns.flat_map(|turn| turn.open.iter().cloned()).collect()
    }

    fn begin_turn(&mut self) {
        if let Some(turns) = self.loops.last_mut() {
            turns.push(RefTurn::default());
        }
    }

    fn begin_loop(&mut self) {
        self.loops.push(Vec::new());
        self.has_ended = false;
    }

    fn text(&mut self) -> String {
        self.said += 1;
        format!("message {}", self.said)
    }

    /// Applies a step, and returns its message, if it has one.
    fn take(&mut self, step: &TurnStep) -> Option<AgentMessage> {
        match step {
            TurnStep::End => {
                self.has_ended = !self.loops.is_empty();
                return None;
            }
            TurnStep::Result(back) => {
                self.open().iter().rev().nth(usize::from(*back))?;
            }
            _ if self.loops.is_empty() => self.begin_loop(),
            _ => {}
        }
        let text = self.text();
        let message = match step {
            TurnStep::User => {
                let (none, answered, waits) = match self.last() {
                    None => (true, false, false),
                    Some(turn) => (false, turn.answers > 0, !turn.open.is_empty()),
                };
                if self.has_ended || (answered && !waits) {
                    self.begin_loop();
                    self.begin_turn();
                } else if none || answered {
                    // The calls are no longer awaited.
                    self.begin_turn();
                }
                Message::user(&text)
            }
            TurnStep::Answer(calls) => {
                self.has_ended = false;
                if self.last().is_none_or(|turn| turn.answers > 0) {
                    self.begin_turn();
                }
                let mut message = Message::assistant(&text);
                let said = self.said;
                let turn = self.last().unwrap();
                turn.answers += 1;
                for nth in 0..*calls {
                    let id = format!("c{said}-{nth}");
                    message = message.with_tool_call(&id, "look", json!({}));
                    turn.open.push(id);
                }
                message
            }
            TurnStep::Result(back) => {
                let open = self.open();
                let id = open.iter().rev().nth(usize::from(*back))?;
                self.has_ended = false;
                for turn in self.loops.last_mut().unwrap() {
                    turn.open.retain(|open| open != id);
                }
                Message::tool_result(id, &text)
            }
            TurnStep::Note => return Some(AgentMessage::extension("note", Json::string(&text))),
            TurnStep::End => return None,
        };
        self.last().unwrap().texts.push(text);
        Some(message.into())
    }
}

/// Returns the stored texts of each turn of each loop.
fn stored(store: &Store, session: &str) -> Vec<Vec<Vec<String>>> {
    let mut loops: Vec<Vec<Vec<String>>> = Vec::new();
    store::read(store.database(), |read| {
        let Some(owner) = read.session(&SessionId::new(session).unwrap())? else {
            return Ok(());
        };
        for row in read.loops(owner.key)? {
            let mut turns: Vec<Vec<String>> = vec![Vec::new(); row.totals.turns as usize];
            read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
                if let Some(turn) = message
                    .turn
                    .filter(|_| message.body.role != Role::Extension)
                {
                    let message = store::decode(read, message.body)?;
                    let texts = message.message().map(|one| one.texts().collect::<String>());
                    turns[turn as usize].extend(texts);
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            loops.push(turns);
        }
        Ok(())
    })
    .unwrap();
    loops
}

/// Returns the state and content of each loop, and which of them is the current one.
fn loops(store: &Store) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    store::read(store.database(), |read| {
        let Some(owner) = read.session(&SessionId::new("s").unwrap())? else {
            return Ok(Vec::new());
        };
        let rows = read.loops(owner.key)?.into_iter().map(|row| {
            let progress = store::LoopProgress {
                // The chain contains digests of random salts.
                chain: [0; 32],
                ..row.progress.clone()
            };
            let is_current = owner.current_loop == Some(row.key);
            let mut core = row.core;
            // Sealed messages stay sealed when an ended loop is continued.
            core.totals.sealed_seq = 0;
            (core, row.ended_at.is_some(), progress, is_current)
        });
        Ok(rows.collect())
    })
    .unwrap()
}

fn play(steps: &[TurnStep], batch: usize) -> (Store, Reference) {
    let store = Store::in_memory().unwrap();
    let session = store.session("s").unwrap();
    let mut reference = Reference::default();
    let mut waiting: Vec<AgentMessage> = Vec::new();
    for step in steps {
        let message = reference.take(step);
        if matches!(step, TurnStep::End) {
            if !waiting.is_empty() {
                session.append(std::mem::take(&mut waiting)).unwrap();
            }
            if session.leaf().unwrap().is_some() {
                session.end_loop(LoopStatus::Completed).unwrap();
            }
        }
        waiting.extend(message);
        if waiting.len() >= batch {
            session.append(std::mem::take(&mut waiting)).unwrap();
        }
    }
    if !waiting.is_empty() {
        session.append(waiting).unwrap();
    }
    (store, reference)
}

proptest! {
    #[test]
    fn turns_and_loops_follow_the_rule_however_they_are_appended(
        steps in prop::collection::vec(step(), 0..40),
        batch in 1usize..6,
    ) {
        let (store, reference) = play(&steps, batch);
        let wanted: Vec<Vec<Vec<String>>> = reference
            .loops
            .iter()
            .map(|turns| turns.iter().map(|turn| turn.texts.clone()).collect())
            .collect();
        let found = stored(&store, "s");
        prop_assert_eq!(&found, &wanted);
        for turns in &reference.loops {
            let before_last = turns.len().saturating_sub(1);
            for turn in &turns[..before_last] {
                prop_assert_eq!(turn.answers, 1, "one model call a turn");
            }
        }
    }

    #[test]
    fn what_loops_say_of_themselves_does_not_depend_on_how_they_are_appended(
        steps in prop::collection::vec(step(), 0..40),
        batch in 2usize..9,
    ) {
        let (one_by_one, _) = play(&steps, 1);
        let (together, _) = play(&steps, batch);
        prop_assert_eq!(loops(&together), loops(&one_by_one));
        let report = loopstore_verify::verify(together.database()).unwrap();
        prop_assert!(report.ok, "{:?}", report.problems);
    }

    #[test]
    fn an_export_read_again_groups_the_same(steps in prop::collection::vec(step(), 1..30)) {
        let (store, _) = play(&steps, 1);
        let before = stored(&store, "s");
        prop_assume!(before.iter().any(|turns| !turns.is_empty()));
        for form in [loopstore_export::ExportForm::PhiCore, loopstore_export::ExportForm::Lines] {
            let mut bytes = Vec::new();
            let id = SessionId::new("s").unwrap();
            loopstore_export::export(store.database(), &id, None, form, &mut bytes).unwrap();
            let other = SqliteStore::in_memory().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("session.json");
            std::fs::write(&file, bytes).unwrap();
            loopstore_transcripts::import_paths(&other, &[file], &loopstore_transcripts::ImportOptions::default(), &mut |_| {}).unwrap();
            prop_assert_eq!(stored(&Store::from(other), "s"), before.clone());
        }
    }
}

fn chat(store: &Store) -> SessionHandle {
    store.session("s").unwrap()
}

fn leaf(session: &SessionHandle) -> String {
    session.leaf().unwrap().unwrap().to_string()
}

#[test]
fn a_session_that_is_not_there_reads_as_nothing_and_cannot_be_undone() {
    let store = Store::in_memory().unwrap();
    let session = chat(&store);
    assert!(session.context().unwrap().messages.is_empty());
    assert!(session.prepare().unwrap().messages().is_empty());
    assert_eq!(session.leaf().unwrap(), None);
    assert!(matches!(
        session.undo(),
        Err(Error::NotFound {
            what: "session",
            ..
        })
    ));
    assert!(matches!(
        session.end_loop(LoopStatus::Completed),
        Err(Error::NotFound { .. })
    ));
    let at = TurnRef::new("loop-1", 0);
    assert!(matches!(
        session.fork_at(at),
        Err(Error::NotFound {
            what: "session",
            ..
        })
    ));
    assert!(store.session("").is_err());
}

#[test]
fn a_fork_has_its_own_line_and_does_not_move_the_other() {
    let store = Store::in_memory().unwrap();
    let session = chat(&store);
    for day in ["Monday", "Tuesday"] {
        session
            .append([Message::user(day), Message::assistant("Rain.")])
            .unwrap();
    }
    let fork = session.fork_at(TurnRef::new("loop-1", 0)).unwrap();
    assert_eq!(
        (leaf(&session), leaf(&fork)),
        ("loop-2".into(), "loop-3".into())
    );
    fork.append([Message::user("Wednesday"), Message::assistant("Sun.")])
        .unwrap();
    session.append([Message::user("Thursday")]).unwrap();
    assert_eq!(
        (leaf(&session), leaf(&fork)),
        ("loop-4".into(), "loop-3".into())
    );
    let texts = |session: &SessionHandle| {
        let context = session.context().unwrap();
        let messages = context.messages.iter().filter_map(AgentMessage::message);
        messages
            .map(|message| message.texts().collect())
            .collect::<Vec<String>>()
    };
    assert_eq!(
        texts(&session),
        ["Monday", "Rain.", "Tuesday", "Rain.", "Thursday"]
    );
    assert_eq!(texts(&fork), ["Monday", "Rain.", "Wednesday", "Sun."]);
    // Another handle uses the current loop; a clone uses the loop of its original.
    assert_eq!(leaf(&chat(&store)), "loop-4");
    let clone = session.clone();
    session
        .append([Message::assistant("Sun."), Message::user("Friday")])
        .unwrap();
    assert_eq!(leaf(&clone), "loop-5");
}

#[test]
fn a_handle_follows_what_another_one_appends_to_its_line() {
    let store = Store::in_memory().unwrap();
    let (one, two) = (chat(&store), chat(&store));
    one.append([Message::user("Monday"), Message::assistant("Rain.")])
        .unwrap();
    assert_eq!(leaf(&two), "loop-1");
    one.append([Message::user("Tuesday"), Message::assistant("Rain.")])
        .unwrap();
    one.append([Message::user("Wednesday"), Message::assistant("Rain.")])
        .unwrap();
    two.append([Message::user("Thursday")]).unwrap();
    assert_eq!(leaf(&two), "loop-4");
    assert_eq!(one.context().unwrap().messages.len(), 7);
}

#[test]
fn who_numbers_turns_keeps_the_numbers() {
    let store = Store::in_memory().unwrap();
    let session = chat(&store);
    let own =
        |message: Message, turn| AgentMessage::from(message).in_turn(TurnId::new("loop-1", turn));
    session
        .append([
            own(Message::user("a"), 3),
            own(Message::assistant("b"), 3),
            own(Message::user("c"), 7),
        ])
        .unwrap();
    let turns = stored(&store, "s");
    assert_eq!(turns, [[vec!["a", "b"], vec!["c"]]]);
    // A message without a turn number joins; one with a number of another loop counts as without.
    let done = session.append([Message::assistant("d")]).unwrap();
    assert_eq!(done.turns, 1..2);
    let other = AgentMessage::from(Message::assistant("e")).in_turn(TurnId::new("elsewhere", 7));
    assert_eq!(session.append([other]).unwrap().turns, 2..3);
}

#[test]
fn parts_of_one_response_are_one_turn() {
    let session = chat(&Store::in_memory().unwrap());
    let part = |text: &str, id: &str| AgentMessage::from(Message::assistant(text)).of_response(id);
    session
        .append([AgentMessage::from(Message::user("a")), part("b", "r1")])
        .unwrap();
    assert_eq!(session.append([part("c", "r1")]).unwrap().turns, 0..1);
    assert_eq!(
        session
            .append([part("d", "r2"), part("e", "r2")])
            .unwrap()
            .turns,
        1..2
    );
}

#[test]
fn a_fresh_loop_sees_nothing_of_what_was_before() {
    let session = chat(&Store::in_memory().unwrap());
    session
        .append([Message::user("a"), Message::assistant("b")])
        .unwrap();
    let id = session.begin_loop(LoopSpec::fresh()).unwrap();
    session.append([Message::user("c")]).unwrap();
    let context = session.context().unwrap();
    assert_eq!((context.leaf, context.messages.len()), (id, 1));
    assert_eq!(NO_TURN, -1);
}

#[test]
fn a_started_call_keeps_its_key_until_its_result_is_there() {
    let store = Store::in_memory().unwrap();
    let session = chat(&store);
    let answer = Message::assistant("").with_tool_call("c1", "pay", json!({"euro": 12}));
    session.append([Message::user("Pay."), answer]).unwrap();
    let CallState::New { key } = session.start_call("c1").unwrap() else {
        panic!("it was not started before");
    };
    // A second program, after a crash of the first.
    let again = chat(&store).start_call("c1").unwrap();
    assert_eq!(again, CallState::Started { key });
    session
        .append([Message::tool_result("c1", "Paid.")])
        .unwrap();
    let CallState::Finished(result) = session.start_call("c1").unwrap() else {
        panic!("its result is there");
    };
    assert_eq!(
        result.message().unwrap().texts().collect::<String>(),
        "Paid."
    );
    let missing = session.start_call("c2");
    assert!(matches!(missing, Err(Error::NotFound { what: "call", .. })));
    let request = loopstore_recorder::RecoverRequest {
        all: true,
        ..Default::default()
    };
    assert!(
        loopstore_recorder::recover(store.database(), &request)
            .unwrap()
            .calls
            .is_empty()
    );
}

#[test]
fn a_sub_agent_and_its_caller_note_each_other() {
    let store = Store::in_memory().unwrap();
    let session = chat(&store);
    let answer = Message::assistant("").with_tool_call("c1", "ask", json!({}));
    session
        .append([Message::user("Ask somebody."), answer])
        .unwrap();
    let child = session.child("c1", "helper").unwrap();
    child
        .append([Message::user("What is it?"), Message::assistant("That.")])
        .unwrap();
    // The loop is continued after a restart.
    let child = chat(&store).child("c1", "helper").unwrap();
    assert_eq!(child.context().unwrap().messages.len(), 2);
    session
        .append([Message::tool_result("c1", "That.")])
        .unwrap();
    let started = store::read(store.database(), |read| {
        let owner = read.session(&SessionId::new("s").unwrap())?.unwrap();
        let keys = read.started_by(owner.key)?;
        keys.into_iter()
            .map(|key| Ok(read.session_by_key(key)?.session_id))
            .collect::<Result<Vec<_>, StoreError>>()
    });
    assert_eq!(started.unwrap(), [SessionId::new("helper").unwrap()]);
    assert!(matches!(
        session.child("c1", "late"),
        Err(Error::NotFound { .. })
    ));
}
