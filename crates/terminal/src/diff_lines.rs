//! The difference between two contexts as lines, for `loopstore diff` and the browser.

use loopstore::context::TurnState;
use loopstore_admin::inspect::ContextDiff;

use super::{edits, text};

/// Returns the lines of a diff. A changed turn has the text of the second context.
pub fn diff_lines(diff: &ContextDiff) -> Vec<(String, Option<TurnState>)> {
    let mut lines = Vec::new();
    for (at, (word, name)) in [("from", &diff.from), ("to", &diff.to)].iter().enumerate() {
        let line = format!(
            "{word:<4}  {}: {}, {}{}",
            text::line(name),
            text::count(diff.tokens[at], "token"),
            text::count(diff.messages[at], "message"),
            counts(diff, at),
        );
        lines.push((line, None));
    }
    lines.push((String::new(), None));
    let has_edits = !(diff.edited.is_empty() && diff.restored.is_empty());
    if diff.changes.is_empty() && diff.rewritten.is_empty() && !has_edits {
        lines.push(("No differences.".into(), None));
    }
    add_changes(&mut lines, diff);
    for change in &diff.rewritten {
        let line = format!(
            "{}  {}: different summary ({} -> {})",
            text::line(change.loop_id.as_str()),
            text::turns(change.from_turn, change.to_turn),
            text::line(&change.before),
            text::line(&change.after)
        );
        lines.push((line, None));
    }
    for (side, runs) in [("to", &diff.edited), ("from", &diff.restored)] {
        for run in runs {
            let mut own = edits::run_edits(run);
            own[0] = format!("edits of `{side}` only, {}", own[0]);
            lines.extend(own.into_iter().map(|line| (line, None)));
        }
    }
    lines
}

/// Adds the changes, each loop under its name.
fn add_changes(lines: &mut Vec<(String, Option<TurnState>)>, diff: &ContextDiff) {
    let mut before = None;
    for change in &diff.changes {
        if before.replace(&change.loop_id) != Some(&change.loop_id) {
            lines.push((text::line(change.loop_id.as_str()), None));
        }
        let line = format!(
            "  {:<9}  {} -> {}",
            text::turns(change.from_turn, change.to_turn),
            word(change.before),
            word(change.after)
        );
        lines.push((line, change.after));
    }
}

/// Returns the numbers of turns by the way in which a context shows them.
fn counts(diff: &ContextDiff, side: usize) -> String {
    let shown = diff.counts.iter().filter(|(_, turns)| turns[side] > 0);
    let counts: Vec<String> = shown
        .map(|(word, turns)| format!("{} {word}", text::number(turns[side])))
        .collect();
    if counts.is_empty() {
        return String::new();
    }
    format!(" (turns: {})", counts.join(", "))
}

fn word(state: Option<TurnState>) -> &'static str {
    state.map_or("absent", TurnState::as_str)
}
