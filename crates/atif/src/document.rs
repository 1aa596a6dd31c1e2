//! The rows of sessions in a document: the lines of each session, and its messages in the steps.

use std::collections::HashMap;

use loopstore_model::LoopId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::form::Step;
use crate::object::{BorrowedFields, reason};
use crate::stored::{STORED_FORM, StepMessage};

/// A part of a document that cannot be used.
pub struct DocumentError<'a> {
    /// The text of the part.
    pub part: &'a str,
    /// The reason.
    pub reason: String,
}

fn wrong<T>(part: &str, reason: impl Into<String>) -> Result<T, DocumentError<'_>> {
    let reason = reason.into();
    Err(DocumentError { part, reason })
}

/// The rows of one session.
pub struct StoredTrajectory<'a> {
    /// The lines of the session without its messages, in their order.
    pub lines: Vec<&'a RawValue>,
    /// The trajectories of sub-agents, which have rows of their own.
    pub subagents: Vec<&'a RawValue>,
    messages: HashMap<LoopId, Vec<PlacedMessage<'a>>>,
}

/// A message of a step, with its position in its loop.
struct PlacedMessage<'a> {
    seq: u32,
    row: &'a RawValue,
    step: &'a RawValue,
}

/// A message as it was stored.
pub struct RestoredMessage {
    /// The row.
    pub row: StepMessage,
    /// The message as JSON; `None` if its content was removed.
    pub text: Option<Box<RawValue>>,
}

impl<'a> StoredTrajectory<'a> {
    /// Reads the trajectory of a session.
    ///
    /// # Errors
    /// If it has no rows, or rows of another form.
    pub fn read(text: &'a str) -> Result<Self, DocumentError<'a>> {
        let fields = match BorrowedFields::parse(text) {
            Ok(fields) => fields,
            Err(reason) => return wrong(text, reason),
        };
        let stored = fields.object("extra").object("loopstore");
        let Some(lines) = stored.list("lines") else {
            return wrong(text, "it has no rows in `extra.loopstore.lines`");
        };
        if stored.read::<u32>("form") != Some(STORED_FORM) {
            let form = stored.get("form").map_or("none", RawValue::get);
            let form: String = form.chars().take(40).collect();
            let why = format!(
                "its `extra.loopstore` is of form {form}; this version reads form {STORED_FORM}"
            );
            return wrong(text, why);
        }
        let mut read = Self {
            lines,
            subagents: Vec::new(),
            messages: HashMap::new(),
        };
        read.steps(&fields)?;
        for raw in fields.list("subagent_trajectories").unwrap_or_default() {
            let inner = BorrowedFields::parse(raw.get()).unwrap_or_default();
            let stored = inner.object("extra").object("loopstore");
            match stored.get("lines") {
                Some(_) => read.subagents.push(raw),
                None => read.steps(&inner)?,
            }
        }
        Ok(read)
    }

    /// Collects the messages of the steps of a trajectory.
    fn steps(&mut self, trajectory: &BorrowedFields<'a>) -> Result<(), DocumentError<'a>> {
        #[derive(Deserialize)]
        struct Row {
            seq: u32,
        }
        for step in trajectory.list("steps").unwrap_or_default() {
            let fields = BorrowedFields::parse(step.get()).unwrap_or_default();
            let stored = fields.object("extra").object("loopstore");
            let Some(rows) = stored.list("messages") else {
                continue;
            };
            let Some(loop_id) = stored.read::<LoopId>("loop") else {
                return wrong(step.get(), "its messages name no loop");
            };
            let of_loop = self.messages.entry(loop_id).or_default();
            for row in rows {
                match serde_json::from_str(row.get()) {
                    Ok(Row { seq }) => of_loop.push(PlacedMessage { seq, row, step }),
                    Err(error) => return wrong(row.get(), reason(error)),
                }
            }
        }
        Ok(())
    }

    /// Removes the messages of a loop, and calls `visit` with each in its order and with its text in the document.
    ///
    /// # Errors
    /// If a message cannot be restored from its step, or `visit` fails.
    pub fn take_messages<E: From<DocumentError<'a>>>(
        &mut self,
        loop_id: &LoopId,
        visit: &mut dyn FnMut(&'a str, RestoredMessage) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut messages = self.messages.remove(loop_id).unwrap_or_default();
        messages.sort_by_key(|of| of.seq);
        let mut last: Option<(&RawValue, Step)> = None;
        for PlacedMessage { row, step, .. } in messages {
            let part = row.get();
            let failed = |reason: String| E::from(DocumentError { part, reason });
            let is_same = last
                .as_ref()
                .is_some_and(|(raw, _)| std::ptr::eq(*raw, step));
            if !is_same {
                let read = serde_json::from_str(step.get());
                last = Some((step, read.map_err(|error| failed(reason(error)))?));
            }
            let row: StepMessage =
                serde_json::from_str(part).map_err(|error| failed(reason(error)))?;
            let Some((_, step)) = &last else { continue };
            let text = row.text(step).map_err(failed)?;
            let text = text.map(RawValue::from_string).transpose();
            let text = text.map_err(|error| failed(reason(error)))?;
            visit(part, RestoredMessage { row, text })?;
        }
        Ok(())
    }

    /// Returns a loop whose messages were not taken, with the text of its first step.
    pub fn left(&self) -> Option<(&LoopId, &'a str)> {
        let (loop_id, messages) = self.messages.iter().next()?;
        let step = messages.first().map_or("", |of| of.step.get());
        Some((loop_id, step))
    }
}
