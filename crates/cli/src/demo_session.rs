//! A session for the demonstration: an agent that repairs a web shop, always the same.

use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::{self as store, StoreResult};
use loopstore::{
    AgentMessage, AssistantMessage, Content, Json, LoopId, LoopRecord, LoopStatus, Message,
    Session, SessionId, SessionStore, Time, ToolResultMessage, TurnId, UserMessage,
};

/// 2026-01-05 09:00:00 UTC.
const BEGIN_MS: i64 = 1_767_603_600_000;
/// Between two messages.
const STEP_MS: i64 = 20_000;

/// The loops: what the user asks, and in how many turns it is done.
const LOOPS: [(&str, usize); 4] = [
    (
        "Checkout fails for orders in yen. Find out why; do not touch the payment gateway.",
        8,
    ),
    (
        "Fix it in src/money.rs and keep the public API as it is.",
        9,
    ),
    (
        "Now the nightly export times out. Order 40312 is a good example.",
        9,
    ),
    (
        "Make the export stream its rows, then run the whole test suite.",
        14,
    ),
];

const TOOLS: [(&str, &str, &str); 5] = [
    ("grep", "pattern", "minor_unit"),
    ("read_file", "path", "src/money.rs"),
    ("run_tests", "filter", "export"),
    ("read_file", "path", "src/export/rows.rs"),
    ("shell", "command", "cargo build --release"),
];

/// Records the session and returns its id.
pub fn record(store: &dyn SessionStore) -> StoreResult<SessionId> {
    let mut session = Session::new(known("demo")?, "demo-agent");
    session.created_at = Time::from_millis(BEGIN_MS);
    session.last_active_at = Time::from_millis(BEGIN_MS);
    store::write(store, |write| {
        let title = Some("Yen orders and the nightly export".to_owned());
        let key = create_session(write, &session, title, None)?;
        let mut clock = DemoClock(BEGIN_MS);
        let mut parent = None;
        for (nth, (prompt, turns)) in LOOPS.into_iter().enumerate() {
            let loop_id = LoopId::new(format!("loop-{}", nth + 1)).map_err(invalid)?;
            let mut record = LoopRecord::new(loop_id.clone(), parent.replace(loop_id.clone()));
            record.started_at = Time::from_millis(clock.0);
            record.status = LoopStatus::Completed;
            let messages = loop_messages(&mut clock, &loop_id, nth, prompt, turns);
            record.ended_at = Time::from_millis(clock.0);
            let loop_id = create_loop(write, key, &record)?;
            let messages = messages.into_iter().map(Into::into).collect();
            append(write, loop_id, messages, store.counter())?;
        }
        Ok(())
    })?;
    Ok(session.session_id)
}

fn known(id: &str) -> StoreResult<SessionId> {
    SessionId::new(id).map_err(invalid)
}

fn invalid(error: loopstore::InvalidId) -> loopstore::StoreError {
    loopstore::StoreError::Invalid(error.to_string())
}

struct DemoClock(i64);

impl DemoClock {
    fn tick(&mut self) -> i64 {
        self.0 += STEP_MS;
        self.0
    }
}

fn loop_messages(
    clock: &mut DemoClock,
    loop_id: &LoopId,
    nth: usize,
    prompt: &str,
    turns: usize,
) -> Vec<AgentMessage> {
    let mut messages = vec![(0, user(clock, prompt))];
    for turn in 0..turns {
        if turn + 1 == turns {
            let text = format!("Done: step {} is finished and the tests pass.", nth + 1);
            messages.push((turn, answer(clock, vec![Content::text(text)])));
            continue;
        }
        let step = nth * 10 + turn;
        let (tool, key, value) = TOOLS[step % TOOLS.len()];
        let call = format!("call-{}-{turn}", nth + 1);
        let arguments = Json::of(&serde_json::json!({ key: value })).unwrap_or_default();
        let text = format!("Next I use {tool} on {value} to check finding {step}.");
        let blocks = vec![
            Content::text(text),
            Content::tool_call(&call, tool, arguments),
        ];
        messages.push((turn, answer(clock, blocks)));
        messages.push((turn, result(clock, &call, tool, step)));
    }
    let place = |(turn, message): (usize, Message)| {
        let turn = u32::try_from(turn).unwrap_or(u32::MAX);
        AgentMessage::from(message).in_turn(TurnId::new(loop_id.as_str(), turn))
    };
    messages.into_iter().map(place).collect()
}

fn user(clock: &mut DemoClock, text: &str) -> Message {
    Message::User(UserMessage {
        content: vec![Content::text(text)],
        timestamp: Some(clock.tick().into()),
        ..UserMessage::default()
    })
}

fn answer(clock: &mut DemoClock, content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        model: Some("demo-model".into()),
        timestamp: Some(clock.tick().into()),
        ..AssistantMessage::default()
    })
}

fn result(clock: &mut DemoClock, call: &str, tool: &str, step: usize) -> Message {
    let lines: Vec<String> = (0..90 + step * 7 % 60)
        .map(|line| {
            let row = step * 131 + line * 17;
            format!(
                "src/export/rows.rs:{line}: order {} amount {row}.{:02} JPY",
                40_000 + row,
                line % 100
            )
        })
        .collect();
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: tool.into(),
        content: vec![Content::text(lines.join("\n"))],
        is_error: step % 13 == 7,
        timestamp: Some(clock.tick().into()),
        ..ToolResultMessage::default()
    })
}
