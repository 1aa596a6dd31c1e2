//! Translates the condensed or hidden messages of a task to compactions.

use loopstore::model::{AgentMessage, Content, Json, Time};

use super::content::answer;
use super::emit::{TaskEmitter, TaskRecord};
use super::prompt::summary_of;
use super::task_files::HiddenRange;
use crate::authors::by_harness;
use crate::fields::Fields;
use crate::values::user;
use crate::{FoundEffect, ImportError};

/// The number of messages that Roo kept in versions in which the summary came before them.
const KEPT_BEHIND: usize = 3;

/// A summary of Roo Code, or the mark of a truncated window. It waits until all messages that existed when it was made
/// were emitted: the messages after it in the file may be older.
pub(super) struct CondensedMessage {
    message: AgentMessage,
    record: Json,
    /// The number of the first message that is kept.
    kept: usize,
    /// The number of the message, or the time, before which the compaction happened.
    before: Result<usize, i64>,
}

impl TaskEmitter<'_> {
    /// Handles a summary of Roo Code. A summary in a user message replaces everything before it; before 2026 summaries
    /// came before the last messages, which were kept.
    pub(super) fn summary(
        &mut self,
        head: &TaskRecord,
        fields: &Fields<'_>,
        role: &str,
    ) -> Result<Result<(), ImportError>, String> {
        let message = whole(fields)?;
        let record = Json::parse(&head.made_from).unwrap_or_default();
        if role == "assistant" {
            self.held.push(CondensedMessage {
                message,
                record,
                kept: head.nth + 1,
                before: Ok(head.nth + 1 + KEPT_BEHIND),
            });
            return Ok(Ok(()));
        }
        let effect = FoundEffect::Summary {
            messages: vec![message],
            first_kept: None,
        };
        self.open.clear();
        Ok(self.compaction(effect, record))
    }

    /// Handles the mark of a truncated window.
    pub(super) fn marker(
        &mut self,
        head: &TaskRecord,
        fields: &Fields<'_>,
    ) -> Result<Result<(), ImportError>, String> {
        let id = fields.text("truncationId").unwrap_or_default();
        let mut known = self.files.truncations.iter();
        let Some((_, at)) = known.find(|(known, _)| *known == id) else {
            // The time of the truncation is not recorded.
            return Ok(self.keep(head, "truncation"));
        };
        self.held.push(CondensedMessage {
            before: Err(*at),
            message: whole(fields)?,
            record: Json::parse(&head.made_from).unwrap_or_default(),
            kept: head.nth + 1,
        });
        Ok(Ok(()))
    }

    /// Emits the compactions that happened before a message.
    pub(super) fn compactions(
        &mut self,
        nth: usize,
        millis: Option<i64>,
    ) -> Result<(), ImportError> {
        let is_due = |held: &mut CondensedMessage| match held.before {
            Ok(before) => before <= nth && held.kept < nth,
            Err(at) => held.kept < nth && millis.is_none_or(|millis| millis > at),
        };
        let due: Vec<CondensedMessage> = self.held.extract_if(.., is_due).collect();
        for held in due {
            self.keep_from(held.kept, Some(held.message), held.record)?;
        }
        let is_hidden = |hidden: &mut HiddenRange| hidden.before <= nth;
        let due: Vec<HiddenRange> = self.files.hidden.extract_if(.., is_hidden).collect();
        for hidden in due {
            self.hide(hidden)?;
        }
        Ok(())
    }

    fn hide(&mut self, hidden: HiddenRange) -> Result<(), ImportError> {
        self.transcript.at(hidden.at.and_then(Time::from_millis));
        let Some(messages) = hidden.summary else {
            return self.keep_from(hidden.kept, None, hidden.record);
        };
        let messages: Vec<AgentMessage> =
            summary_of(&messages).into_iter().map(Into::into).collect();
        if messages.is_empty() || self.transcript.here().is_none() {
            return Ok(());
        }
        let effect = FoundEffect::Summary {
            messages,
            first_kept: None,
        };
        // The loop continues: another state of the session does not contain this compaction any more.
        self.transcript.compaction(self.tool, effect, hidden.record)
    }

    /// Emits a compaction that keeps the first message and all messages from another one on. The kept messages begin
    /// with a whole turn, since no result may be without its call.
    fn keep_from(
        &mut self,
        kept: usize,
        summary: Option<AgentMessage>,
        record: Json,
    ) -> Result<(), ImportError> {
        let mut later = self.places.iter().skip(kept);
        let kept = later.find_map(|place| *place);
        let kept =
            kept.and_then(|(of, turn)| Some((self.transcript.loop_at(of)?.id.clone(), turn)));
        let messages: Vec<AgentMessage> = self.first.clone().into_iter().chain(summary).collect();
        if kept.is_none() || messages.is_empty() {
            self.transcript
                .skip(None, "what it hides ends behind its last message");
            return Ok(());
        }
        let effect = FoundEffect::Summary {
            messages,
            first_kept: kept,
        };
        self.compaction(effect, record)
    }

    fn compaction(&mut self, effect: FoundEffect, record: Json) -> Result<(), ImportError> {
        if self.transcript.here().is_some() {
            self.transcript.compaction(self.tool, effect, record)?;
            return self.transcript.end_loop();
        }
        // The range that the summary replaces is unknown.
        if let FoundEffect::Summary { messages, .. } = effect {
            for message in messages {
                let raw = record.as_str().as_bytes();
                self.transcript.input(by_harness(message), raw, false)?;
            }
        }
        Ok(())
    }

    /// Emits the compactions that happened after the last message.
    pub(super) fn last_compactions(&mut self) -> Result<(), ImportError> {
        for held in std::mem::take(&mut self.held) {
            self.keep_from(held.kept, Some(held.message), held.record)?;
        }
        let count = self.places.len();
        for hidden in std::mem::take(&mut self.files.hidden) {
            // A compaction further on waits until the file has grown.
            if hidden.before <= count || hidden.kept < count {
                self.hide(hidden)?;
            }
        }
        Ok(())
    }
}

/// Reads a message of the harness unchanged.
fn whole(fields: &Fields<'_>) -> Result<AgentMessage, String> {
    let content = answer(fields.get("content"), "summary")?;
    let is_text = |block: &Content| matches!(block, Content::Text(_) | Content::Image(_));
    let content: Vec<Content> = content.into_iter().filter(is_text).collect();
    match content.is_empty() {
        true => Err("a summary without a text".into()),
        false => Ok(by_harness(user(content, None))),
    }
}
