//! Results that OpenCode cleared later. The output stays in the part, with the time at which it was cleared
//! (`state.time.compacted`).

use std::borrow::Cow;

use loopstore::model::Json;
use serde_json::value::RawValue;

use crate::fields::Fields;
use crate::values::millis;

/// A result that was cleared.
#[derive(Clone, Debug)]
pub(super) struct ClearedResult {
    pub(super) call: String,
    /// The time of the clearing, in milliseconds since the epoch.
    pub(super) at: i64,
}

/// The parts of a message as they were before their results were cleared, so that a later export compares equal.
pub(super) struct OriginalParts<'a> {
    parts: Vec<Cow<'a, RawValue>>,
    results: Vec<ClearedResult>,
}

impl<'a> OriginalParts<'a> {
    pub(super) fn of(parts: &[&'a RawValue]) -> Self {
        let mut results = Vec::new();
        let mut uncleared = |part: &&'a RawValue| match without_mark(part) {
            Some((result, part)) => {
                results.push(result);
                Cow::Owned(part)
            }
            None => Cow::Borrowed(*part),
        };
        let parts = parts.iter().map(&mut uncleared).collect();
        Self { parts, results }
    }

    pub(super) fn parts(&self) -> Vec<&RawValue> {
        self.parts.iter().map(AsRef::as_ref).collect()
    }

    pub(super) fn results(self) -> Vec<ClearedResult> {
        self.results
    }
}

fn without_mark(part: &RawValue) -> Option<(ClearedResult, Box<RawValue>)> {
    const KEY: &str = "\"compacted\"";
    if !part.get().contains(KEY) {
        return None;
    }
    let fields = Fields::parse(part.get()).ok()?;
    let state = fields.child("state")?;
    let time = state.get("time")?.get();
    let at = millis(&Fields::parse(time).ok()?, "compacted")?;
    let call = fields.text("callID")?;
    let (before, after) = time.split_once(KEY)?;
    let number = after.find(|c: char| c.is_ascii_digit())?;
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let after = after[number..].trim_start_matches(is_of_number);
    let (before, after) = match before.trim_end().strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.trim_start_matches(',').trim_start()),
    };
    // The time is a substring of the part's own text.
    let from = time
        .as_ptr()
        .addr()
        .checked_sub(part.get().as_ptr().addr())?;
    let head = part.get().get(..from)?;
    let tail = part.get().get(from + time.len()..)?;
    let text = [head, before, after, tail].concat();
    let part = RawValue::from_string(text).ok()?;
    Some((ClearedResult { call, at }, part))
}

/// The cleared results of a session, in the order of its messages.
#[derive(Debug, Default)]
pub(super) struct Cleared(Vec<OfMessage>);

#[derive(Debug)]
struct OfMessage {
    result: ClearedResult,
    /// The number of the message that contains the result.
    message: u64,
    /// The number of the message before which the clearing was emitted; `None` if it was not emitted yet.
    emitted_before: Option<u64>,
}

impl Cleared {
    /// Adds the cleared results of message number `message`.
    pub(super) fn add(&mut self, message: u64, results: Vec<ClearedResult>) {
        self.0.extend(results.into_iter().map(|result| OfMessage {
            result,
            message,
            emitted_before: None,
        }));
    }

    /// Returns the results that were cleared before a time, and marks them as emitted before message number `message`.
    pub(super) fn before(&mut self, time: Option<i64>, message: u64) -> Vec<ClearedResult> {
        self.take_due(message, |of| time.is_none_or(|time| of.result.at < time))
    }

    /// Returns the results after message number `message`.
    pub(super) fn after(&mut self, message: u64) -> Vec<ClearedResult> {
        self.take_due(u64::MAX, |of| of.message > message)
    }

    /// Returns all other results of a session that returned to message number `message`; clearings that were emitted
    /// after that message no longer count.
    pub(super) fn rest(&mut self, message: u64) -> Vec<ClearedResult> {
        for of in self.0.iter_mut().filter(|of| of.message <= message) {
            of.emitted_before = of.emitted_before.filter(|before| *before <= message);
        }
        self.take_due(u64::MAX, |_| true)
    }

    fn take_due(&mut self, at: u64, is_due: impl Fn(&OfMessage) -> bool) -> Vec<ClearedResult> {
        let waiting = self.0.iter_mut().filter(|of| of.emitted_before.is_none());
        let due = waiting.filter(|of| is_due(of)).map(|of| {
            of.emitted_before = Some(at);
            of.result.clone()
        });
        due.collect()
    }
}

/// Returns the record that is kept with the run.
pub(super) fn record(results: &[ClearedResult]) -> Json {
    let one =
        |result: &ClearedResult| serde_json::json!({"callID": result.call, "compacted": result.at});
    let all: Vec<_> = results.iter().map(one).collect();
    Json::of(&all).unwrap_or_default()
}
