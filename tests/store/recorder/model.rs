//! Random events against a slow model of what must be stored.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::*;
use proptest::prelude::*;

use crate::support::events::*;

#[derive(Clone, Debug)]
enum Step {
    Start,
    End,
    TurnStart(u32),
    TurnEnd,
    Begin(u8),
    Finish(u8),
    Call(u8),
    CallEnd(u8),
    Progress,
    /// Another recorder goes on with the loops of this one.
    Crash,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let what = prop_oneof![
        2 => Just(Step::Start),
        1 => Just(Step::End),
        5 => (0..8u32).prop_map(Step::TurnStart),
        5 => Just(Step::TurnEnd),
        6 => (0..4u8).prop_map(Step::Begin),
        6 => (0..4u8).prop_map(Step::Finish),
        3 => (0..2u8).prop_map(Step::Call),
        2 => (0..2u8).prop_map(Step::CallEnd),
        1 => Just(Step::Progress),
        1 => Just(Step::Crash),
    ];
    (0..2usize, what)
}

fn message(number: u8) -> AgentMessage {
    match number {
        0 => user("prompt"),
        1 => answer("answer", &["c0", "c1"]),
        other => result(&format!("c{}", other - 2), "paid"),
    }
}

/// A loop as it must be.
#[derive(Default)]
struct Modelled {
    known: bool,
    driven: bool,
    ended: bool,
    turn: Option<u32>,
    last: Option<u32>,
    /// The last turn that holds something: an empty one leaves nothing that a crash would spare.
    last_stored: Option<u32>,
    open: BTreeSet<u8>,
    waiting: Vec<u8>,
    calls: BTreeMap<u8, bool>,
    stored: Vec<u8>,
    unanswered: BTreeSet<u8>,
}

impl Modelled {
    /// Whether the event may be at this place; if so it is taken in.
    fn take(&mut self, step: &Step) -> bool {
        if let Step::Start = step {
            let may = !self.known;
            self.known = true;
            self.driven |= may;
            return may;
        }
        if !self.driven {
            return false;
        }
        match step {
            Step::TurnStart(turn) => {
                let may = self.turn.is_none() && self.last.is_none_or(|last| last < *turn);
                if may {
                    self.turn = Some(*turn);
                }
                may
            }
            Step::TurnEnd => {
                let Some(turn) = self.turn.take() else {
                    return false;
                };
                self.last = Some(turn);
                if !self.waiting.is_empty() {
                    self.last_stored = self.last;
                }
                self.write();
                true
            }
            Step::End => {
                self.turn = None;
                self.write();
                (self.driven, self.ended) = (false, true);
                true
            }
            Step::Begin(number) => self.open.insert(*number),
            Step::Finish(number) => {
                let may = self.open.remove(number);
                self.waiting.extend(may.then_some(*number));
                may
            }
            Step::Call(number) => {
                let may = self.turn.is_some() && !self.calls.contains_key(number);
                if may {
                    self.calls.insert(*number, false);
                    self.unanswered.insert(*number);
                }
                may
            }
            Step::CallEnd(number) => match self.calls.get_mut(number) {
                Some(ended) if !*ended => {
                    *ended = true;
                    true
                }
                _ => false,
            },
            Step::Progress => true,
            Step::Start | Step::Crash => false,
        }
    }

    fn write(&mut self) {
        for number in self.waiting.drain(..) {
            self.stored.push(number);
            if number > 1 {
                self.unanswered.remove(&(number - 2));
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.turn = None;
        self.open.clear();
        self.waiting.clear();
        self.calls.clear();
    }
}

fn event(name: &str, step: &Step) -> AgentEvent {
    match step {
        Step::Start => start(name),
        Step::End => end(name),
        Step::TurnStart(turn) => turn_start(name, *turn),
        Step::TurnEnd => turn_end(name),
        Step::Begin(number) => begins(name, &message(*number)),
        Step::Finish(number) => ends(name, &message(*number)),
        Step::Call(number) => call_start(name, &format!("c{number}"), "{}"),
        Step::CallEnd(number) => call_end(name, &format!("c{number}")),
        Step::Progress | Step::Crash => {
            let text = format!(r#"{{"type":"progress","loop_id":"{name}","text":"x"}}"#);
            AgentEvent::parse(&text).unwrap()
        }
    }
}

fn check(store: &SqliteStore, name: &str, model: &Modelled) {
    if !model.known {
        return;
    }
    let texts = texts(store, name);
    let stored: Vec<&str> = texts
        .iter()
        .filter_map(|text| Some(text.split_once(':')?.1))
        .collect();
    let expected: Vec<&str> = model
        .stored
        .iter()
        .map(|number| ["prompt", "answer", "paid", "paid"][usize::from(*number)])
        .collect();
    assert_eq!(stored, expected);
    let row = row(store, name);
    assert_eq!(row.status.is_ended(), model.ended);
    let open = store::read(store, |read| read.open_calls(None)).unwrap();
    let open: BTreeSet<u8> = open
        .iter()
        .filter(|call| call.loop_key == row.key)
        .map(|call| call.call_id[1..].parse().unwrap())
        .collect();
    assert_eq!(open, model.unanswered);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_events_store_what_they_must(steps in prop::collection::vec(step(), 1..80)) {
        let store = SqliteStore::in_memory().unwrap();
        let names = ["a", "b"];
        let mut models = [Modelled::default(), Modelled::default()];
        let mut recorder = SessionRecorder::new(&store, Hand::at(0).options("first", 1));
        let mut clock = 0;
        for (at, step) in steps {
            let (name, model) = (names[at], &mut models[at]);
            if let Step::Crash = step {
                clock += 10;
                recorder = SessionRecorder::new(&store, Hand::at(clock).options("next", 1));
                for (name, model) in names.iter().zip(&mut models) {
                    if model.driven {
                        recorder.resume(&session(), &id(name)).unwrap();
                        model.forget();
                        model.last = model.last_stored;
                    }
                }
                continue;
            }
            let may = model.take(&step);
            let done = recorder.record(event(name, &step));
            prop_assert_eq!(done.is_ok(), may, "{:?}: {:?}", step, done);
            check(&store, name, model);
        }
        prop_assert!(inspect::verify(&store).unwrap().problems.is_empty());
    }
}
