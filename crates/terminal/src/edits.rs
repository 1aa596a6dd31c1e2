//! Edits as texts: what a run removed, cleared or replaced, and why.

use loopstore::model::EditAction;
use loopstore::{EditReport, EditedMessage};
use loopstore_admin::inspect::{RecordedEdit, RunEdits};

use super::text;

/// The most edits of a run that are listed.
const MOST: usize = 20;

/// Returns the run and its reason, and below them a line for each edit.
pub fn run_edits(run: &RunEdits) -> Vec<String> {
    let reason = run.reason.as_deref().map(text::line);
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let mut lines = vec![format!("run {}{reason}", text::line(&run.run_id))];
    lines.extend(edit_lines(&run.edits));
    lines
}

/// Returns a line for each edit, indented, and the number of those that are not listed.
pub fn edit_lines(edits: &[RecordedEdit]) -> Vec<String> {
    let shown = edits.iter().take(MOST);
    let mut lines: Vec<String> = shown
        .map(|edit| format!("   {}", edit_line(edit)))
        .collect();
    if edits.len() > MOST {
        let more = text::count(edits.len() - MOST, "edit");
        lines.push(format!("   … and {more} more; --json lists all"));
    }
    lines
}

/// Returns the action, the address of the messages or the part as commands read it, and the tokens.
fn edit_line(edit: &RecordedEdit) -> String {
    let loop_id = text::line(edit.loop_id.as_str());
    let last = match edit.from_seq == edit.to_seq {
        true => String::new(),
        false => format!(" to {loop_id}:{}:{}", edit.to_turn, edit.to_seq),
    };
    let part = edit.part.map(|part| format!(":{part}")).unwrap_or_default();
    format!(
        "{} {loop_id}:{}:{}{part}{last} ({} -> {} tokens)",
        edit.action.as_str(),
        edit.from_turn,
        edit.from_seq,
        text::number(edit.tokens_before),
        text::number(edit.tokens_after)
    )
}

/// Returns a line about what an edit edited, and the sizes of the context.
pub fn result_line(report: &EditReport, action: EditAction) -> String {
    let mut line = format!("{} {}", verb(report, action), counted(&report.edits));
    if !report.paired.is_empty() {
        line.push_str(&format!(", {} of pairs with them", counted(&report.paired)));
    }
    if !report.bound.is_empty() {
        line.push_str(&format!(
            ", {} bound to them removed",
            counted(&report.bound)
        ));
    }
    format!(
        "{line}: {} -> {} tokens, {} -> {} messages",
        text::number(report.tokens_before),
        text::number(report.tokens_after),
        text::number(report.messages_before),
        text::number(report.messages_after)
    )
}

fn verb(report: &EditReport, action: EditAction) -> &'static str {
    match (report.run_id.is_some(), action) {
        (true, EditAction::Removed) => "Removed",
        (true, EditAction::Cleared) => "Cleared",
        (true, EditAction::Replaced) => "Replaced",
        (false, EditAction::Removed) => "Would remove",
        (false, EditAction::Cleared) => "Would clear",
        (false, EditAction::Replaced) => "Would replace",
    }
}

/// Returns the number of messages and parts as words.
fn counted(edits: &[EditedMessage]) -> String {
    let parts = edits.iter().filter(|edit| edit.part.is_some()).count();
    let words = [(edits.len() - parts, "message"), (parts, "part")];
    let words = words.into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = words.map(|(count, one)| text::count(count, one)).collect();
    words.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::model::LoopId;

    fn edit(from: (u32, u32), to: (u32, u32), part: Option<u32>) -> RecordedEdit {
        RecordedEdit {
            action: EditAction::Removed,
            loop_id: LoopId::of("ask\u{1b}"),
            from_turn: from.0,
            to_turn: to.0,
            from_seq: from.1,
            to_seq: to.1,
            part,
            tokens_before: 1_234,
            tokens_after: 0,
        }
    }

    #[test]
    fn an_edit_is_named_as_commands_read_it() {
        let edits = [
            edit((0, 2), (0, 2), None),
            edit((1, 3), (4, 9), None),
            edit((0, 1), (0, 1), Some(1)),
        ];
        let run = RunEdits {
            run_id: "r1".into(),
            at: String::new(),
            reason: Some("a\nb".into()),
            edits: edits.to_vec(),
        };
        assert_eq!(
            run_edits(&run),
            [
                "run r1: a\\nb",
                "   removed ask\\u{1b}:0:2 (1,234 -> 0 tokens)",
                "   removed ask\\u{1b}:1:3 to ask\\u{1b}:4:9 (1,234 -> 0 tokens)",
                "   removed ask\\u{1b}:0:1:1 (1,234 -> 0 tokens)",
            ]
        );
    }

    #[test]
    fn edits_that_are_not_listed_are_counted() {
        let edits = vec![edit((0, 2), (0, 2), None); MOST + 3];
        let lines = edit_lines(&edits);
        assert_eq!(lines.len(), MOST + 1);
        assert!(lines[MOST].contains("3 edits more"), "{}", lines[MOST]);
    }
}
