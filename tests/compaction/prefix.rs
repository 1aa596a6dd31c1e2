//! Between two compactions a context only grows at its end, so that a provider's cache of the previous call stays valid
//! byte for byte.

use loopstore::compact::CompactOutcome;
use loopstore::extend::{self as store, append, session};
use loopstore::*;
use proptest::prelude::*;

const WINDOW: u64 = 3_000;

/// A step before a call.
#[derive(Clone, Debug)]
enum CallStep {
    /// A prompt in a new loop.
    Prompt(usize),
    /// An answer with calls, and their results.
    Tools { text: usize, results: Vec<usize> },
    /// An answer without calls.
    Answer(usize),
}

fn step() -> impl Strategy<Value = CallStep> {
    let results = prop::collection::vec(0..3_000usize, 1..3);
    prop_oneof![
        1 => (1..200usize).prop_map(CallStep::Prompt),
        6 => (0..300usize, results).prop_map(|(text, results)| CallStep::Tools { text, results }),
        1 => (1..300usize).prop_map(CallStep::Answer),
    ]
}

fn text(bytes: usize) -> String {
    "a line\n\"of\" text 17 é "
        .chars()
        .cycle()
        .take(bytes)
        .collect()
}

struct CachedAgent {
    store: Store,
    session: SessionId,
    current: Option<store::LoopKey>,
    loops: u32,
    turns: u32,
}

impl CachedAgent {
    fn new() -> Self {
        let store = Store::in_memory().unwrap();
        let session = SessionId::new("s").unwrap();
        let record = Session::new(session.clone(), "agent");
        store::write(store.database(), |write| {
            session::create_session(write, &record, None, None)
        })
        .unwrap();
        Self {
            store,
            session,
            current: None,
            loops: 0,
            turns: 0,
        }
    }

    fn start(&mut self) {
        let name = |at: u32| LoopId::new(format!("loop-{at}")).unwrap();
        let record = LoopRecord::new(name(self.loops), self.loops.checked_sub(1).map(name));
        self.loops += 1;
        self.current = store::write(self.store.database(), |write| {
            let key = write.session(&self.session)?.unwrap().key;
            session::create_loop(write, key, &record)
        })
        .ok();
    }

    fn take(&mut self, step: &CallStep) {
        if self.current.is_none() || matches!(step, CallStep::Prompt(_)) {
            self.start();
        }
        let messages = match step {
            CallStep::Prompt(bytes) => vec![Message::user(text(*bytes))],
            CallStep::Answer(bytes) => vec![answer(vec![Content::text(text(*bytes))])],
            CallStep::Tools {
                text: bytes,
                results,
            } => self.tools(*bytes, results),
        };
        self.turns += 1;
        let place = |message| AgentMessage::from(message).in_turn(TurnId::new("l", self.turns));
        let messages = messages.into_iter().map(|m| place(m).into()).collect();
        store::write(self.store.database(), |write| {
            append::append(
                write,
                self.current.unwrap(),
                messages,
                &HeuristicTokenCounter,
            )
        })
        .unwrap();
    }

    fn tools(&self, bytes: usize, results: &[usize]) -> Vec<Message> {
        let id = |at: usize| format!("call-{}-{at}", self.turns);
        let mut content = vec![Content::text(text(bytes.max(1)))];
        let calls = 0..results.len();
        content
            .extend(calls.map(|at| Content::tool_call(id(at), "read", Json::parse("{}").unwrap())));
        let mut messages = vec![answer(content)];
        messages.extend(results.iter().enumerate().map(|(at, bytes)| {
            Message::ToolResult(ToolResultMessage {
                tool_call_id: id(at),
                tool_name: "read".into(),
                content: vec![Content::text(text(*bytes))],
                ..ToolResultMessage::default()
            })
        }));
        messages
    }
}

fn answer(content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        ..AssistantMessage::default()
    })
}

/// Returns the context as one text with each message on its own line.
fn bytes_of(context: &Context) -> String {
    let line = |message| serde_json::to_string(message).unwrap() + "\n";
    context.messages.iter().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn between_two_compactions_a_context_begins_with_the_one_before(
        steps in prop::collection::vec(step(), 20..50)
    ) {
        let mut agent = CachedAgent::new();
        let chat = agent.store.session(&agent.session).unwrap().with_policy(Policy::new(WINDOW));
        let mut before = String::new();
        let mut grown = 0;
        for step in &steps {
            agent.take(step);
            // A single turn may be larger than the window.
            let Ok(next) = chat.prepare() else { break };
            let now = bytes_of(&next.context);
            let is_new = |report: &CompactReport| report.outcome == CompactOutcome::Committed;
            if !next.compactions.iter().any(is_new) {
                prop_assert!(now.starts_with(&before), "after {step:?}");
                grown += 1;
            }
            before = now;
        }
        prop_assert!(grown > 0);
    }
}
