//! Random events, compared with a simple model of the stored content.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend as store;
use loopstore::*;
use loopstore_recorder::event::AgentStart;
use loopstore_recorder::{AgentEvent, SessionRecorder};
use proptest::prelude::*;

use crate::support::events::*;

#[derive(Clone, Debug)]
enum EventStep {
    Start,
    End,
    TurnStart(u32),
    TurnEnd,
    Begin(u8),
    Finish(u8),
    Call(u8),
    CallEnd(u8),
    Progress,
    /// Another recorder takes over the loops of this one.
    Crash,
}

fn step() -> impl Strategy<Value = (usize, EventStep)> {
    let what = prop_oneof![
        2 => Just(EventStep::Start),
        1 => Just(EventStep::End),
        5 => (0..8u32).prop_map(EventStep::TurnStart),
        5 => Just(EventStep::TurnEnd),
        6 => (0..4u8).prop_map(EventStep::Begin),
        6 => (0..4u8).prop_map(EventStep::Finish),
        3 => (0..2u8).prop_map(EventStep::Call),
        2 => (0..2u8).prop_map(EventStep::CallEnd),
        1 => Just(EventStep::Progress),
        1 => Just(EventStep::Crash),
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

/// A loop as the model expects it.
#[derive(Default)]
struct Modelled {
    known: bool,
    driven: bool,
    ended: bool,
    turn: Option<u32>,
    /// True if the open turn began before a crash.
    is_resumed: bool,
    /// The turn of the messages since the last end of a turn.
    current: Option<u32>,
    last: Option<u32>,
    /// The last turn whose end was recorded.
    last_ended: Option<u32>,
    open: BTreeSet<u8>,
    calls: BTreeMap<u8, bool>,
    /// The messages, each with its turn.
    stored: Vec<(u8, u32)>,
    unanswered: BTreeSet<u8>,
}

impl Modelled {
    /// Returns true if the event is valid now; the model then applies it.
    fn take(&mut self, step: &EventStep) -> bool {
        if let EventStep::Start = step {
            let may = !self.known;
            self.known = true;
            self.driven |= may;
            return may;
        }
        if !self.driven {
            return false;
        }
        match step {
            EventStep::TurnStart(turn) => {
                let may = (self.turn.is_none() || self.is_resumed)
                    && self.current.is_none_or(|current| current <= *turn)
                    && self.last.is_none_or(|last| last < *turn);
                if may {
                    self.enter(*turn);
                    (self.turn, self.is_resumed) = (Some(*turn), false);
                }
                may
            }
            EventStep::TurnEnd => {
                let Some(turn) = self.turn else {
                    return false;
                };
                self.forget();
                (self.last, self.last_ended) = (Some(turn), Some(turn));
                true
            }
            EventStep::End => {
                self.forget();
                (self.driven, self.ended) = (false, true);
                true
            }
            EventStep::Begin(number) => self.open.insert(*number),
            EventStep::Finish(number) => {
                let may = self.open.remove(number);
                if may {
                    self.store(*number);
                }
                may
            }
            EventStep::Call(number) => {
                let may = self.turn.is_some() && !self.calls.contains_key(number);
                if may {
                    self.calls.insert(*number, false);
                    self.unanswered.insert(*number);
                }
                may
            }
            EventStep::CallEnd(number) => match self.calls.get_mut(number) {
                Some(ended) if !*ended => {
                    *ended = true;
                    true
                }
                _ => false,
            },
            EventStep::Progress => true,
            EventStep::Start | EventStep::Crash => false,
        }
    }

    fn store(&mut self, number: u8) {
        let turn = match self.turn.filter(|_| !self.is_resumed) {
            Some(turn) => turn,
            None => self.turn_outside(number),
        };
        self.enter(turn);
        self.stored.push((number, turn));
        if number > 1 {
            self.unanswered.remove(&(number - 2));
        }
    }

    /// Returns the turn of a message outside of any turn.
    fn turn_outside(&self, number: u8) -> u32 {
        let Some(current) = self.current else {
            return self.last.map_or(0, |last| last + 1);
        };
        let has = |number| self.stored.contains(&(number, current));
        let begins_another = match number {
            0 => has(1) && has(2) && has(3),
            1 => has(1),
            _ => false,
        };
        current + u32::from(begins_another)
    }

    fn enter(&mut self, turn: u32) {
        if self.current != Some(turn) {
            self.last = self.current.or(self.last);
            (self.current, self.turn) = (Some(turn), None);
        }
    }

    fn forget(&mut self) {
        (self.turn, self.current, self.is_resumed) = (None, None, false);
        self.open.clear();
        self.calls.clear();
    }

    /// Another recorder takes over: a turn whose end was not recorded continues.
    fn crash(&mut self) {
        self.forget();
        self.last = self.stored.last().map(|(_, turn)| *turn);
        if self.last.is_some() && self.last_ended < self.last {
            self.current = self.last.take();
            (self.turn, self.is_resumed) = (self.current, true);
        }
    }
}

fn event(name: &str, step: &EventStep) -> AgentEvent {
    match step {
        EventStep::Start => {
            AgentEvent::AgentStart(AgentStart::new(session(), id(name)).fresh_start())
        }
        EventStep::End => end(name),
        EventStep::TurnStart(turn) => turn_start(name, *turn),
        EventStep::TurnEnd => turn_end(name),
        EventStep::Begin(number) => begins(name, &message(*number)),
        EventStep::Finish(number) => ends(name, &message(*number)),
        EventStep::Call(number) => call_start(name, &format!("c{number}"), "{}"),
        EventStep::CallEnd(number) => call_end(name, &format!("c{number}")),
        EventStep::Progress | EventStep::Crash => {
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
        .map(|(number, _)| ["prompt", "answer", "paid", "paid"][usize::from(*number)])
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
            if let EventStep::Crash = step {
                clock += 10;
                recorder = SessionRecorder::new(&store, Hand::at(clock).options("next", 1));
                for (name, model) in names.iter().zip(&mut models) {
                    if model.driven {
                        let resumed = recorder.resume(&session(), &id(name)).unwrap();
                        model.crash();
                        let open = resumed.open_turn.map(|open| open.turn_index as u32);
                        prop_assert_eq!(open, model.turn);
                    }
                }
                continue;
            }
            let may = model.take(&step);
            let done = recorder.record(event(name, &step));
            prop_assert_eq!(done.is_ok(), may, "{:?}: {:?}", step, done);
            check(&store, name, model);
        }
        prop_assert!(loopstore_verify::verify(&store).unwrap().problems.is_empty());
    }
}
