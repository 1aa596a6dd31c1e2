//! Sessions whose calls have times, and the turns of these calls.

use std::collections::HashMap;

use loopstore::extend::QueryLimits;
use loopstore::model::*;
use loopstore::{Database, Store};
use loopstore_blame::{Blame, BlameError, BlameRequest, FileText, blame};
use serde_json::Value;

/// A turn by its names.
pub type TurnName = (String, String, u32);

pub struct Stage {
    pub store: Store,
    calls: i64,
}

impl Stage {
    pub fn new() -> Self {
        Self {
            store: Store::in_memory().unwrap(),
            calls: 0,
        }
    }

    pub fn prompt(&self, session: &str, text: &str) {
        let chat = self.store.session(session).unwrap();
        chat.append([Message::user(text)]).unwrap();
    }

    /// Appends a call with its result, a second after the last one. Returns the id of the call.
    pub fn call(&mut self, session: &str, tool: &str, arguments: Value, result: &str) -> String {
        let id = self.open_call(session, tool, arguments);
        self.result(session, Message::tool_result(&id, result));
        id
    }

    pub fn failed(&mut self, session: &str, tool: &str, arguments: Value, result: &str) {
        let id = self.open_call(session, tool, arguments);
        self.result(session, Message::tool_result(&id, result).with_error());
    }

    pub fn open_call(&mut self, session: &str, tool: &str, arguments: Value) -> String {
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        let mut answer = Message::assistant("").with_tool_call(&id, tool, arguments);
        if let Message::Assistant(answer) = &mut answer {
            answer.timestamp = Some(self.time().into());
            answer.model = Some("a-model".into());
        }
        let chat = self.store.session(session).unwrap();
        chat.append([answer]).unwrap();
        id
    }

    fn result(&self, session: &str, mut message: Message) {
        if let Message::ToolResult(result) = &mut message {
            result.timestamp = Some((self.time() + 1).into());
        }
        let chat = self.store.session(session).unwrap();
        chat.append([message]).unwrap();
    }

    fn time(&self) -> i64 {
        1_767_225_600_000 + self.calls * 1_000
    }

    /// Returns the turn of each call, from the view.
    pub fn turns(&self) -> HashMap<String, TurnName> {
        turns(self.store.database())
    }

    pub fn blame(&self, file: &str, text: Option<&str>) -> Result<Blame, BlameError> {
        blame(self.store.database(), &request(file, text))
    }
}

pub fn request(file: &str, text: Option<&str>) -> BlameRequest {
    BlameRequest {
        file: file.to_owned(),
        absolute: vec![file.to_owned()],
        text: text.map(|text| FileText {
            text: text.to_owned(),
            not_utf8: 0,
        }),
        ..BlameRequest::default()
    }
}

pub fn turns(store: &dyn Database) -> HashMap<String, TurnName> {
    let query = "SELECT tool_call_id, session_id, loop_id, turn FROM v_tool_calls";
    let rows = store.query_within(query, QueryLimits::default()).unwrap();
    let row = |row: &loopstore::extend::Record| {
        let text = |column| row.text(column).unwrap();
        let turn = row.number("turn").unwrap() as u32;
        (
            text("tool_call_id"),
            (text("session_id"), text("loop_id"), turn),
        )
    };
    rows.records().iter().map(row).collect()
}

/// Returns the turn that wrote each line.
pub fn lines(blame: &Blame) -> Vec<Option<TurnName>> {
    let mut lines = Vec::new();
    for range in &blame.ranges {
        assert_eq!(range.from_line as usize, lines.len() + 1);
        let turn = range.turn.as_ref();
        let turn = turn.map(|turn| {
            (
                turn.session_id.clone(),
                turn.loop_id.clone(),
                turn.turn.unwrap(),
            )
        });
        lines.extend((range.from_line..=range.to_line).map(|_| turn.clone()));
    }
    lines
}
