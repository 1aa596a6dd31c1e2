//! Tool calls: their results, failures and durations.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::messages::places;
use loopstore::extend::{CallRow, LoopRow, StoreRead, StoreResult};
use loopstore::model::{AgentMessage, Message, Time};

/// All tool calls of a session.
#[derive(Debug, Default, Serialize)]
pub(super) struct CallTable {
    /// The names of the tools; calls refer to them by position.
    pub(super) tools: Vec<String>,
    pub(super) calls: Vec<Call>,
}

/// One tool call.
#[derive(Debug, Serialize)]
pub(super) struct Call {
    /// The loop, by its position in the index.
    #[serde(rename = "l")]
    loop_key: usize,
    #[serde(rename = "t")]
    turn: Option<u32>,
    #[serde(rename = "q")]
    seq: u32,
    #[serde(rename = "n")]
    tool: usize,
    /// The milliseconds from the call to its result, if both times are known.
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    ms: Option<i64>,
    /// The loop and the sequence of the result.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    result: Option<(usize, u32)>,
    #[serde(rename = "e", skip_serializing_if = "std::ops::Not::not")]
    pub(super) failed: bool,
    #[serde(skip)]
    at: Option<i64>,
}

/// Pairs calls and results of a session, loop by loop in the order of their creation.
pub(super) struct ReportedCalls {
    found: CallTable,
    tools: HashMap<String, usize>,
    /// Calls without a result so far, by loop and id.
    open: HashMap<(usize, String), Vec<usize>>,
    parents: Vec<Option<usize>>,
    /// The recorded calls of the loop, by id; the newest last.
    noted: BTreeMap<String, Vec<CallRow>>,
}

impl ReportedCalls {
    pub(super) fn new(loops: &[LoopRow]) -> Self {
        let places = places(loops);
        let parent = |row: &LoopRow| row.parent.and_then(|key| places.get(&key).copied());
        Self {
            found: CallTable::default(),
            tools: HashMap::new(),
            open: HashMap::new(),
            parents: loops.iter().map(parent).collect(),
            noted: BTreeMap::new(),
        }
    }

    pub(super) fn begin_loop(&mut self, read: &dyn StoreRead, row: &LoopRow) -> StoreResult<()> {
        self.noted.clear();
        for call in read.calls_of_loop(row.key)? {
            let same = self.noted.entry(call.call_id.clone()).or_default();
            same.push(call);
        }
        Ok(())
    }

    /// Adds the calls of a message, or the result of a call.
    pub(super) fn follow(
        &mut self,
        loop_key: usize,
        turn: Option<u32>,
        seq: u32,
        at: Option<i64>,
        message: &AgentMessage,
    ) {
        let Some(message) = message.message() else {
            return;
        };
        for call in message.tool_calls() {
            let tool = self.tool(&call.name);
            let ms = self.noted_ms(&call.id);
            let key = (loop_key, call.id.clone());
            self.open
                .entry(key)
                .or_default()
                .push(self.found.calls.len());
            self.found.calls.push(Call {
                loop_key,
                turn,
                seq,
                tool,
                ms,
                result: None,
                failed: false,
                at,
            });
        }
        if let Message::ToolResult(result) = message
            && let Some(call) = self.answered(loop_key, turn, &result.tool_call_id)
            && let Some(call) = self.found.calls.get_mut(call)
        {
            let between = call.at.zip(at).map(|(from, to)| to - from);
            // A call and a result that were appended together have the same time.
            call.ms = call.ms.or(between.filter(|ms| *ms > 0));
            call.result = Some((loop_key, seq));
            call.failed = result.is_error;
        }
    }

    fn tool(&mut self, name: &str) -> usize {
        if let Some(place) = self.tools.get(name) {
            return *place;
        }
        let place = self.found.tools.len();
        self.found.tools.push(name.to_owned());
        self.tools.insert(name.to_owned(), place);
        place
    }

    /// Returns the duration of the next call with this id, if it was recorded.
    fn noted_ms(&mut self, id: &str) -> Option<i64> {
        let same = self.noted.get_mut(id).filter(|same| !same.is_empty())?;
        let row = same.remove(0);
        let ms = |text: String| Time::from_text(text).millis();
        let took = ms(row.finished_at?)? - ms(row.started_at)?;
        (took >= 0).then_some(took)
    }

    /// Removes and returns the call that a result answers: a call of its turn, else the newest of its loop, else of
    /// the loops before.
    fn answered(&mut self, loop_key: usize, turn: Option<u32>, id: &str) -> Option<usize> {
        let mut next = Some(loop_key);
        while let Some(place) = next {
            if let Some(open) = self.open.get_mut(&(place, id.to_owned()))
                && !open.is_empty()
            {
                let calls = &self.found.calls;
                let is_of_turn = |call: &usize| place == loop_key && calls[*call].turn == turn;
                let at = open.iter().position(is_of_turn).unwrap_or(open.len() - 1);
                return Some(open.remove(at));
            }
            // The position of a parent is before the position of its child.
            next = self.parents[place].filter(|parent| *parent < place);
        }
        None
    }

    pub(super) fn finish(self) -> CallTable {
        self.found
    }
}
