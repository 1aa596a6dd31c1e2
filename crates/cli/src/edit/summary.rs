//! The report of an edit as text.

use std::collections::BTreeMap;

use loopstore::model::EditAction;
use loopstore::search::SearchError;
use loopstore::{Database, EditReport, EditedMessage, LoopId, SessionId};
use loopstore_admin::inspect::{self, ExpandRequest};
use loopstore_terminal::edits::result_line;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::text;

/// Returns the edited messages as a table, each with its author and the beginning of its text.
pub fn table(
    store: &dyn Database,
    session: &SessionId,
    report: &EditReport,
) -> Result<TextTable, SearchError> {
    let mut table = TextTable::new(vec![
        Column::text("message", 12),
        Column::text("action", 8),
        Column::text("author", 9),
        Column::number("tokens"),
        Column::number("after"),
        Column::text("text", 20),
    ]);
    let mut texts = RecordedTexts::default();
    let edits = report.edits.iter().map(|edit| (edit, ""));
    let paired = report.paired.iter().map(|edit| (edit, " (pair)"));
    let bound = report.bound.iter().map(|edit| (edit, " (bound)"));
    for (edit, why) in edits.chain(paired).chain(bound) {
        let (author, words) = texts.of(store, session, edit)?;
        table.row(vec![
            address(edit),
            format!("{}{why}", done(edit.action)),
            author,
            text::number(edit.tokens_before),
            text::number(edit.tokens_after),
            words,
        ]);
    }
    Ok(table)
}

/// The authors and texts of the messages of turns that were read.
#[derive(Default)]
struct RecordedTexts {
    turns: BTreeMap<(LoopId, u32), BTreeMap<u32, (String, String)>>,
}

impl RecordedTexts {
    fn of(
        &mut self,
        store: &dyn Database,
        session: &SessionId,
        edit: &EditedMessage,
    ) -> Result<(String, String), SearchError> {
        let key = (edit.loop_id.clone(), edit.turn);
        if !self.turns.contains_key(&key) {
            let request = ExpandRequest {
                loop_id: Some(edit.loop_id.clone()),
                ..ExpandRequest::turns(edit.turn, edit.turn)
            };
            let shown = inspect::expand(store, session, &request)?.shown();
            let lines = shown.into_iter().map(|message| {
                let words = text::fit(&text::line(&message.text), 200).into_owned();
                (message.message, (text::line(&message.author), words))
            });
            self.turns.insert(key.clone(), lines.collect());
        }
        let found = self.turns.get(&key).and_then(|turn| turn.get(&edit.seq));
        Ok(found.cloned().unwrap_or_default())
    }
}

/// Returns the address of an edited message or part, as the commands read it.
fn address(edit: &EditedMessage) -> String {
    let part = edit.part.map(|part| format!(":{part}")).unwrap_or_default();
    let loop_id = text::line(edit.loop_id.as_str());
    format!("{loop_id}:{}:{}{part}", edit.turn, edit.seq)
}

fn done(action: EditAction) -> &'static str {
    match action {
        EditAction::Removed => "removed",
        EditAction::Cleared => "cleared",
        EditAction::Replaced => "replaced",
    }
}

/// Returns the lines of a report: the result, what was skipped, the compactions to make again, and the way back.
pub fn lines(session: &str, report: &EditReport, action: EditAction) -> Vec<String> {
    let mut lines = vec![result_line(report, action)];
    if !report.skipped.is_empty() {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for skipped in &report.skipped {
            *reasons.entry(skipped.reason).or_default() += 1;
        }
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{} {reason}", text::number(*count)))
            .collect();
        let count = text::count(report.skipped.len(), "message");
        lines.push(format!("Skipped {count}: {}.", reasons.join(", ")));
    }
    let session = text::quoted(&text::line(session));
    for run in &report.stale {
        lines.push(format!(
            "The compaction of run {} was made from an edited message and is not used; `loopstore compact \
             {session}` makes a new one.",
            text::line(run)
        ));
    }
    lines.push(match &report.run_id {
        Some(run) => format!(
            "`loopstore undo {session} --run {}` takes it back.",
            text::quoted(&text::line(run))
        ),
        None => "Nothing was written.".to_owned(),
    });
    lines
}
