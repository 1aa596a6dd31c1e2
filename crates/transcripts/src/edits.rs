//! Stores what a transcript says was cleared from a context: runs of edits.

use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, StoreResult, codec, decode};
use loopstore::internal::{ImportedEdits, ReportedEdits, record_applied_edits};
use loopstore::model::{
    AgentMessage, AppliedEdit, AppliedEdits, ClearedToolUses, Content, Json, LoopId, Message, Time,
};
use sha2::{Digest as _, Sha256};

use super::matching::harmless;
use super::pipeline::EncodedSink;
use super::runs::ImportedRun;
use super::writer::StoreSink;
use super::{FoundCompaction, FoundEffect};

impl StoreSink<'_> {
    /// Writes the run of the edits that an answer reports, before the answer is appended to a loop.
    pub(super) fn record_report(
        &mut self,
        at: usize,
        (loop_id, loop_key): (&LoopId, LoopKey),
        (report, response, at_millis): (&AppliedEdits, Option<&str>, Option<i64>),
    ) -> StoreResult<()> {
        let session = &mut self.sessions[at];
        let Some(key) = session.key else {
            return Ok(());
        };
        let id = &session.head.session.session_id;
        let owner = loopstore::internal::run_owner(self.write, id)?;
        let seq = self.write.loop_by_key(loop_key)?.totals.next_seq;
        let run_id = run_id_of_report(&owner, (loop_id, seq), (report, response))?;
        if session.has_run(&*self.write, key, &run_id)? {
            return Ok(());
        }
        let started_at = at_millis
            .and_then(Time::from_millis)
            .unwrap_or_else(Time::now);
        let record = Json::of(report).unwrap_or_default();
        let reported = ReportedEdits {
            leaf: loop_key,
            report,
            response,
            setting: None,
            // An agent keeps the conversation, and sends it with all thinking each time.
            sends_cleared_thinking: Some(true),
            import: Some(ImportedEdits {
                run_id: &run_id,
                started_at: &started_at,
                record: &record,
                replaced: &[],
                keeps_attempt: false,
            }),
        };
        let done = record_applied_edits(self.write, self.counter, &reported)?;
        if done.run.is_some() {
            session.knows_run(&*self.write, key, &run_id)?;
        }
        done.notes.into_iter().for_each(|note| self.note(note));
        Ok(())
    }

    /// Writes the run of a stored result of which the transcript now has only a masked form. Returns false if the message
    /// is no such form, or the call is not in the context.
    pub(super) fn mask(
        &mut self,
        at: usize,
        (loop_id, loop_key, seq): (&LoopId, LoopKey, u32),
        message: &AgentMessage,
    ) -> StoreResult<bool> {
        let Some(Message::ToolResult(masked)) = message.message() else {
            return Ok(false);
        };
        if !is_masked(&masked.content) || self.is_stored_masked(loop_key, seq)? {
            return Ok(false);
        }
        let session = &mut self.sessions[at];
        let Some(key) = session.key else {
            return Ok(false);
        };
        let id = &session.head.session.session_id;
        let owner = loopstore::internal::run_owner(self.write, id)?;
        let calls = vec![masked.tool_call_id.clone()];
        let edits = vec![AppliedEdit::ClearedToolUses(ClearedToolUses::of_calls(
            calls,
        ))];
        let report = AppliedEdits::new(self.from.format.as_str(), edits);
        let text: Vec<&str> = message
            .message()
            .into_iter()
            .flat_map(Message::texts)
            .collect();
        let replaced = [(masked.tool_call_id.clone(), text.join("\n"))];
        let run_id = run_id_of_report(&owner, (loop_id, seq), (&report, None))?;
        if session.has_run(&*self.write, key, &run_id)? {
            return Ok(true);
        }
        let current = self.write.session_by_key(key)?.current_loop;
        let (now, record) = (Time::now(), Json::of(&report).unwrap_or_default());
        // At the end of the conversation as it is stored: the messages after the masking follow.
        for leaf in current.into_iter().chain([loop_key]) {
            let reported = ReportedEdits {
                leaf,
                report: &report,
                response: None,
                setting: None,
                sends_cleared_thinking: Some(true),
                import: Some(ImportedEdits {
                    run_id: &run_id,
                    started_at: &now,
                    record: &record,
                    replaced: &replaced,
                    keeps_attempt: false,
                }),
            };
            if record_applied_edits(self.write, self.counter, &reported)?
                .run
                .is_some()
            {
                session.knows_run(&*self.write, key, &run_id)?;
                session.is_changed = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_stored_masked(&self, loop_key: LoopKey, seq: u32) -> StoreResult<bool> {
        let (read, mut found) = (&*self.write, false);
        read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
            let stored = decode(read, row.body)?;
            found = stored
                .message()
                .is_some_and(|stored| is_masked(stored.content()));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Writes the run of results that a tool cleared or replaced.
    pub(super) fn write_edits(
        &mut self,
        run: &ImportedRun,
        found: &FoundCompaction,
    ) -> StoreResult<()> {
        let FoundEffect::EditedResults {
            tool_call_ids,
            replaced,
        } = &found.effect
        else {
            return Ok(());
        };
        let started_at = found.at.clone().unwrap_or_else(Time::now);
        let cleared =
            AppliedEdit::ClearedToolUses(ClearedToolUses::of_calls(tool_call_ids.clone()));
        let report = AppliedEdits::new(found.strategy.as_str(), vec![cleared]);
        let reported = ReportedEdits {
            leaf: run.loop_key,
            report: &report,
            response: None,
            setting: None,
            sends_cleared_thinking: Some(true),
            import: Some(ImportedEdits {
                run_id: &run.run_id,
                started_at: &started_at,
                record: &found.record,
                replaced,
                keeps_attempt: true,
            }),
        };
        let done = record_applied_edits(self.write, self.counter, &reported)?;
        done.notes.into_iter().for_each(|note| self.note(note));
        Ok(())
    }
}

/// The tag around the text that Gemini CLI, and agents made from it, keep of a long result.
const MASKED: &str = "<tool_output_masked>";

/// True for the content of a result of which only the beginning and the end are left.
pub(super) fn is_masked(content: &[Content]) -> bool {
    content
        .iter()
        .any(|part| matches!(part, Content::Text(text) if text.text.contains(MASKED)))
}

/// Returns the id of the run of the edits that an answer reports: the same whenever the answer is imported into the same
/// place.
fn run_id_of_report(
    session: &str,
    (loop_id, seq): (&LoopId, u32),
    (report, response): (&AppliedEdits, Option<&str>),
) -> StoreResult<String> {
    let place = response.map_or_else(|| seq.to_string(), str::to_owned);
    let text = codec::to_json(report)?;
    let mut hash = Sha256::new();
    for part in [session, loop_id.as_str(), "reported", &place, &text] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hex::encode(hash.finalize());
    Ok(format!("{}-{}", harmless(&report.strategy), &digest[..24]))
}
