//! Runs of edits from the reports of providers and agents about content that they cleared before a model read it.
//!
//! An answer carries the report of its own call. The run is written before the answer, so that the context just before
//! the answer is what the model saw. A report with numbers is resolved by the rule of the provider; what has no
//! counterpart in the context is named in a note, and nothing of a report makes an append fail.

use std::collections::BTreeSet;

use super::chain_messages::ChainMessages;
use super::select::{ReportSelection, counted};
use super::sent::SentMessages;
use super::{EditConfig, EditRequest, ShownContext, rows, run_of};
use crate::model::{
    AgentMessage, AppliedEdit, AppliedEdits, EditAction, Json, SealingProvider, Time,
};
use crate::overlay;
use crate::provider::context_management::ContextManagement;
use crate::store::active_blocks::PendingEdits;
use crate::store::{LoopKey, LoopRow, Outcome, RunRow, SessionRow, StoreResult, StoreWrite, codec};
use crate::tokens::TokenCounter;

/// The longest name of a reporter, in characters.
const MAX_NAME: usize = 64;

/// A report of cleared content, and the position of its answer.
#[derive(Clone, Copy, Debug)]
pub struct ReportedEdits<'a> {
    /// The loop that the answer is appended to, or the parent of a loop that the answer begins.
    pub leaf: LoopKey,
    /// The report.
    pub report: &'a AppliedEdits,
    /// The id of the response that the answer is a part of, as JSON. Parts of it that are stored already were not sent.
    pub response: Option<&'a str>,
    /// The setting of the request, if the report has none.
    pub setting: Option<&'a ContextManagement>,
    /// True if the request contained the thinking that was cleared before; `None` if it is not known.
    pub sends_cleared_thinking: Option<bool>,
    /// The run of an import; `None` to give the run an id and the present time.
    pub import: Option<ImportedEdits<'a>>,
}

/// The run of edits that a transcript records.
#[derive(Clone, Copy, Debug)]
pub struct ImportedEdits<'a> {
    /// The id of the run.
    pub run_id: &'a str,
    /// The time of the edits.
    pub started_at: &'a Time,
    /// The record of the transcript.
    pub record: &'a Json,
    /// The texts that replaced results, by the ids of the calls; other results are cleared.
    pub replaced: &'a [(String, String)],
    /// True to write a run without edits if nothing can be edited, so that the next import finds the run.
    pub keeps_attempt: bool,
}

/// The result of recording a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppliedRun {
    /// The run of the edits; `None` if the report has nothing new.
    pub run: Option<RunRow>,
    /// A sentence for each part of the report that is not recorded as an edit.
    pub notes: Vec<String>,
}

impl<'a> ReportedEdits<'a> {
    /// Returns the report of an answer that is about to be appended to a loop, if it has one. It is not known whether
    /// its request was written from the context, or from messages that the agent keeps.
    pub fn of_answer(
        leaf: LoopKey,
        answer: &'a AgentMessage,
        report: &'a AppliedEdits,
        setting: Option<&'a ContextManagement>,
    ) -> Self {
        let response = match answer {
            AgentMessage::Llm(answer) => answer.response(),
            AgentMessage::Extension(_) => None,
        };
        Self {
            leaf,
            report,
            response,
            setting,
            sends_cleared_thinking: None,
            import: None,
        }
    }

    /// Returns the text that replaced the result of a call.
    pub(super) fn text_for(&self, call: &str) -> Option<&'a str> {
        let mut texts = self.import?.replaced.iter();
        texts
            .find(|(id, _)| id == call)
            .map(|(_, text)| text.as_str())
    }

    /// Returns the name of the reporter.
    pub(super) fn name(&self) -> &'a str {
        match self.report.strategy.as_str() {
            "" => "unknown",
            name => match name.char_indices().nth(MAX_NAME) {
                Some((end, _)) => &name[..end],
                None => name,
            },
        }
    }

    /// Returns the setting in the report, if it can be read.
    pub(super) fn own_setting(&self) -> Option<ContextManagement> {
        let setting = self.report.setting.as_ref()?;
        let setting: ContextManagement = setting.read().ok()?;
        (!setting.is_empty()).then_some(setting)
    }

    /// True if the report names the calls.
    pub(super) fn names_calls(&self) -> bool {
        self.report.edits.iter().all(|edit| match edit {
            AppliedEdit::ClearedToolUses(uses) => uses.tool_call_ids.is_some(),
            AppliedEdit::ClearedThinking(_) | AppliedEdit::Other(_) => true,
        })
    }

    /// Returns the reason of the run: what was cleared, and how the messages were found.
    fn reason(&self, found: &ReportSelection) -> String {
        let mut parts = Vec::new();
        if found.tool_uses > 0 {
            parts.push(counted(found.tool_uses, "tool use", "tool uses"));
        }
        if found.thinking > 0 {
            parts.push(counted(
                found.thinking,
                "turn of thinking",
                "turns of thinking",
            ));
        }
        let what = format!("`{}` cleared {}", self.name(), parts.join(" and "));
        let is_known = self.own_setting().is_some() || self.setting.is_some();
        match (self.names_calls() && found.thinking == 0, is_known) {
            (true, _) => format!("{what}, named in its report"),
            (false, true) => {
                format!(
                    "{what}; derived from the numbers of its report and the setting of the request, oldest first"
                )
            }
            (false, false) => {
                format!(
                    "{what}; derived from the numbers of its report, oldest first, without the setting of the request"
                )
            }
        }
    }
}

/// Writes the run of the edits that a report stands for. The answer with the report must be appended afterwards, in the
/// same transaction. Messages of the turn in flight, pinned messages and summaries stay as they are.
///
/// # Errors
/// If the store fails.
pub fn record_applied_edits(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    reported: &ReportedEdits<'_>,
) -> StoreResult<AppliedRun> {
    let leaf = write.loop_by_key(reported.leaf)?;
    let owner = write.session_by_key(leaf.session)?;
    let (found, rows) = {
        let mut recorded = ChainMessages::load(write, &owner, leaf.key)?;
        let provider = SealingProvider::of_strategy(reported.name());
        let keys = (provider, reported.response);
        let sent = SentMessages::load(write, &mut recorded, (&owner, &leaf), keys)?;
        let mut found = ReportSelection::of(&mut recorded, &sent, &leaf, reported)?;
        let selection = std::mem::take(&mut found.selection);
        (
            found,
            rows::make(&mut recorded, selection, (&owner, counter))?.rows,
        )
    };
    let is_kept = reported.import.is_some_and(|import| import.keeps_attempt);
    if rows.is_empty() && !is_kept {
        return Ok(AppliedRun {
            run: None,
            notes: found.notes,
        });
    }
    let before = ShownContext::load(write, (&owner, &leaf), None)?;
    let mut run = applied_run(write, (&owner, &leaf, counter.name()), reported, &found)?;
    (run.before, run.after) = (before.size, before.size);
    if rows.is_empty() {
        run.outcome = Outcome::NoGain;
        run.error = Some("the context shows nothing of this to edit".into());
    }
    overlay::begin_edits(write, &mut run, &rows)?;
    let pending = PendingEdits {
        run: &run,
        rows: &rows,
    };
    run.after = ShownContext::load(write, (&owner, &leaf), Some(pending))?.size;
    write.close_run(&run, None)?;
    Ok(AppliedRun {
        run: Some(run),
        notes: found.notes,
    })
}

/// Writes the run of the edits that an answer reports, before the answer is appended to the line that ends in `leaf`.
/// Returns a sentence for each part of the report that is not recorded as an edit.
///
/// # Errors
/// If the store fails.
pub fn record_report(
    write: &mut dyn StoreWrite,
    leaf: Option<LoopKey>,
    (answer, report, setting): (&AgentMessage, &AppliedEdits, Option<&ContextManagement>),
    counter: &dyn TokenCounter,
) -> StoreResult<Vec<String>> {
    match leaf {
        Some(leaf) => {
            let reported = ReportedEdits::of_answer(leaf, answer, report, setting);
            Ok(record_applied_edits(write, counter, &reported)?.notes)
        }
        None if report.edits.is_empty() => Ok(Vec::new()),
        None => Ok(vec![format!(
            "`{}` reports cleared content, but nothing is recorded before the answer",
            report.strategy
        )]),
    }
}

fn applied_run(
    write: &dyn StoreWrite,
    keys: (&SessionRow, &LoopRow, &str),
    reported: &ReportedEdits<'_>,
    found: &ReportSelection,
) -> StoreResult<RunRow> {
    let request = EditRequest::clear([]);
    let mut run = run_of(write, keys, &request, crate::store::Size::default())?;
    let reason = reported.reason(found);
    run.config = codec::to_json(&EditConfig {
        action: EditAction::Cleared,
        reason: Some(&reason),
    })?;
    reported.name().clone_into(&mut run.strategy);
    run.record = Some(codec::to_json(reported.report)?);
    if let Some(import) = reported.import {
        import.run_id.clone_into(&mut run.run_id);
        import.started_at.as_str().clone_into(&mut run.started_at);
        let record = import.record;
        run.record = (!record.is_null()).then(|| record.as_str().to_owned());
    }
    Ok(run)
}

/// Returns the note about an answer whose report cannot be read; `None` if it has none.
pub fn unreadable_note(message: &AgentMessage) -> Option<String> {
    message.has_unreadable_edits().then(|| {
        "the report of cleared content of an answer cannot be read, and is only kept with the answer".to_owned()
    })
}

/// Splits messages before each answer with a report, so that the run of the report can be written before the answer. An
/// answer that is recorded in several messages is not split.
pub fn by_reports(messages: Vec<AgentMessage>) -> Vec<(Option<AppliedEdits>, Vec<AgentMessage>)> {
    let reports: Vec<Option<AppliedEdits>> =
        messages.iter().map(AgentMessage::applied_edits).collect();
    if reports.iter().all(Option::is_none) {
        return vec![(None, messages)];
    }
    let starts: BTreeSet<usize> = (0..messages.len())
        .filter(|at| reports[*at].is_some())
        .map(|at| start_of_answer(&messages, at))
        .collect();
    let mut parts: Vec<(Option<AppliedEdits>, Vec<AgentMessage>)> = Vec::new();
    for (at, (report, message)) in reports.into_iter().zip(messages).enumerate() {
        if at == 0 || starts.contains(&at) {
            parts.push((None, Vec::new()));
        }
        if let Some((known, part)) = parts.last_mut() {
            *known = known.take().or(report);
            part.push(message);
        }
    }
    parts
}

/// Returns the index of the first message of the answer that a message is a part of.
fn start_of_answer(messages: &[AgentMessage], at: usize) -> usize {
    let response = |message: &AgentMessage| match message {
        AgentMessage::Llm(message) => message.response().map(str::to_owned),
        AgentMessage::Extension(_) => None,
    };
    let own = response(&messages[at]);
    let mut start = at;
    while own.is_some() && start > 0 && response(&messages[start - 1]) == own {
        start -= 1;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClearedToolUses, Message};

    fn answer(response: &str, has_report: bool) -> AgentMessage {
        let mut message = AgentMessage::from(Message::assistant("Yes."));
        message
            .extra_mut()
            .insert("responseId", Json::string(response));
        if has_report {
            let edits = vec![AppliedEdit::ClearedToolUses(ClearedToolUses::new(1))];
            let report = AppliedEdits::new("provider:anthropic", edits);
            message.set_applied_edits(&report).unwrap();
        }
        message
    }

    #[test]
    fn messages_are_split_before_answers_with_reports() {
        let prompt = || AgentMessage::from(Message::user("Will it rain?"));
        let of = |messages: Vec<AgentMessage>| -> Vec<(bool, usize)> {
            let parts = by_reports(messages).into_iter();
            parts
                .map(|(report, part)| (report.is_some(), part.len()))
                .collect()
        };
        assert_eq!(of(vec![]), [(false, 0)]);
        assert_eq!(of(vec![prompt(), answer("a", false)]), [(false, 2)]);
        let all = vec![
            prompt(),
            answer("a", true),
            prompt(),
            answer("b", false),
            answer("b", true),
        ];
        assert_eq!(of(all), [(false, 1), (true, 2), (true, 2)]);
        assert_eq!(of(vec![answer("a", true), prompt()]), [(true, 2)]);
    }

    #[test]
    fn the_name_of_a_reporter_is_bounded() {
        for (given, expected) in [
            ("", "unknown".to_owned()),
            ("é", "é".into()),
            (&"é".repeat(99), "é".repeat(64)),
        ] {
            let report = AppliedEdits::new(given, Vec::new());
            let answer = answer("a", false);
            let reported = ReportedEdits::of_answer(LoopKey::default(), &answer, &report, None);
            assert_eq!(reported.name(), expected);
        }
    }
}
