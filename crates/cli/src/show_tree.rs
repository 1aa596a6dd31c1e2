//! The tree of a session's loops.
//!
//! Loops that continue each other stay on one level; other branches are indented under
//! the loop that they fork.

use std::collections::HashMap;

use loopstore::extend::sqlite::{Record, SessionView};
use loopstore::model::EditAction;
use loopstore_terminal::text;

/// Returns the lines of the tree.
pub fn tree(view: &SessionView) -> Vec<String> {
    let mut tree = TreeView::of(view);
    let roots: Vec<usize> = (0..view.loops.len())
        .filter(|at| tree.parents[*at].is_none())
        .collect();
    for root in roots {
        tree.line_of_loops(root, "");
    }
    tree.lines
}

struct TreeView<'a> {
    view: &'a SessionView,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// True for the loops from the root to the current one.
    is_current: Vec<bool>,
    /// The edits of each loop, by run.
    edits: Vec<Vec<&'a Record>>,
    lines: Vec<String>,
}

impl<'a> TreeView<'a> {
    fn of(view: &'a SessionView) -> Self {
        let count = view.loops.len();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let (mut parents, mut children) = (Vec::new(), vec![Vec::new(); count]);
        for (at, (row, _)) in view.loops.iter().enumerate() {
            // A parent that comes later, or is in another session, is only named.
            let parent = row
                .text("parent_loop_id")
                .and_then(|id| seen.get(&id).copied());
            if let Some(parent) = parent {
                children[parent].push(at);
            }
            parents.push(parent);
            seen.insert(row.text("loop_id").unwrap_or_default(), at);
        }
        let mut edits = vec![Vec::new(); count];
        for edit in &view.edits {
            let owner = edit.text("loop_id").and_then(|id| seen.get(&id));
            if let Some(at) = owner {
                edits[*at].push(edit);
            }
        }
        let mut is_current = vec![false; count];
        let current = view.session.text("current_loop_id");
        let mut step = current.and_then(|id| seen.get(&id).copied());
        while let Some(at) = step {
            is_current[at] = true;
            step = parents[at];
        }
        Self {
            view,
            parents,
            children,
            is_current,
            edits,
            lines: Vec::new(),
        }
    }

    /// Adds a loop and the loops that continue it, with its branches indented.
    fn line_of_loops(&mut self, first: usize, indent: &str) {
        let mut next = Some(first);
        while let Some(at) = next {
            self.add(at, indent);
            next = self.main_child(at);
            for branch in self.children[at].clone() {
                if Some(branch) != next {
                    self.line_of_loops(branch, &format!("{indent}  │ "));
                }
            }
        }
    }

    /// Returns the loop that continues this one: the one on the chain of the current loop, else the first that begins
    /// after its last turn.
    fn main_child(&self, at: usize) -> Option<usize> {
        let children = &self.children[at];
        let last = self.view.loops[at].0.number("turns").map(|turns| turns - 1);
        let goes_on = |child: &&usize| {
            let row = &self.view.loops[**child].0;
            row.number("parent_turn") == last && row.number("parent_seq").is_none()
        };
        let current = children.iter().find(|child| self.is_current[**child]);
        current.or_else(|| children.iter().find(goes_on)).copied()
    }

    fn add(&mut self, at: usize, indent: &str) {
        let (row, blocks) = &self.view.loops[at];
        let is_leaf = self.view.session.get("current_loop_id") == row.get("loop_id");
        let mark = if is_leaf { "●" } else { "○" };
        self.lines
            .push(format!("{indent}{mark} {}{}", head(row), self.origin(at)));
        if let Some(prompt) = row.text("prompt") {
            self.lines
                .push(format!("{indent}    “{}”", text::line(&prompt)));
        }
        for block in blocks {
            self.lines
                .push(format!("{indent}    {}", block_line(block)));
        }
        for line in edit_lines(&self.edits[at]) {
            self.lines.push(format!("{indent}    {line}"));
        }
    }

    /// Returns where a loop continues from, unless that is the end of the loop above it.
    fn origin(&self, at: usize) -> String {
        let row = &self.view.loops[at].0;
        let (Some(id), turn) = (row.text("parent_loop_id"), row.number("parent_turn")) else {
            return String::new();
        };
        let id = text::line(&id);
        let Some(parent) = self.parents[at] else {
            return format!("; after {id}");
        };
        let last = self.view.loops[parent]
            .0
            .number("turns")
            .map(|turns| turns - 1);
        match (turn, row.number("parent_seq")) {
            (Some(turn), Some(seq)) => format!("; after message {seq} of turn {turn} of {id}"),
            _ if turn == last && self.main_child(parent) == Some(at) => String::new(),
            (Some(turn), None) => format!("; after turn {turn} of {id}"),
            (None, _) => format!("; before the first turn of {id}"),
        }
    }
}

fn head(row: &Record) -> String {
    let word = |column| text::line(&row.text(column).unwrap_or_default());
    let number = |column| row.number(column).unwrap_or(0);
    // The order of the lines shows the other kinds.
    let kind = match word("continuation_kind").as_str() {
        "Initial" | "Default" => String::new(),
        kind => format!(", {kind}"),
    };
    let mut line = format!(
        "{}  {}{kind}: {}, {}, {}",
        word("loop_id"),
        word("status"),
        text::count(number("turns"), "turn"),
        text::count(number("messages"), "message"),
        text::count(number("tokens"), "token"),
    );
    if row.number("archived") == Some(1) {
        line.push_str("; archived");
    }
    line
}

/// Returns a line for each run that edited messages of a loop: how many edits of each kind, and of which turns.
fn edit_lines(edits: &[&Record]) -> Vec<String> {
    let mut runs: Vec<(String, Vec<&Record>)> = Vec::new();
    for edit in edits {
        let run = edit.text("run_id").unwrap_or_default();
        match runs.last_mut().filter(|(last, _)| *last == run) {
            Some((_, own)) => own.push(edit),
            None => runs.push((run, vec![edit])),
        }
    }
    let line = |(run, own): (String, Vec<&Record>)| {
        let counts = EditAction::ALL.into_iter().filter_map(|action| {
            let is_it = |edit: &&&Record| edit.text("action").as_deref() == Some(action.as_str());
            let count = own.iter().filter(is_it).count();
            (count > 0).then(|| format!("{count} {}", action.as_str()))
        });
        let turn = |column: &'static str| own.iter().filter_map(move |edit| edit.number(column));
        let turns = turn("from_turn").min().zip(turn("to_turn").max());
        let of = turns.map_or_else(String::new, |(first, last)| {
            format!(" of turns {}", text::turns(first, last))
        });
        let is_live = own.first().and_then(|edit| edit.number("is_live")) == Some(1);
        let state = if is_live { "active" } else { "inactive" };
        let counts: Vec<String> = counts.collect();
        format!(
            "edits ({state}): {}{of}; run {}",
            counts.join(", "),
            text::line(&run)
        )
    };
    runs.into_iter().map(line).collect()
}

fn block_line(block: &Record) -> String {
    let number = |column: &str| block.number(column);
    let mut sections = Vec::new();
    for (name, column) in [
        ("first", "keep_first"),
        ("compacted", "keep_compacted"),
        ("recent", "keep_recent"),
    ] {
        let ends = (
            number(&format!("{column}_start")),
            number(&format!("{column}_end")),
        );
        if let (Some(first), Some(last)) = ends {
            sections.push(format!("{name} {}", text::turns(first, last)));
        }
    }
    let kind = block.text("kind").unwrap_or_default();
    let state = match (number("is_active"), kind.strip_prefix("sealed:")) {
        (Some(1), None) => "active".to_owned(),
        (Some(1), Some(provider)) => format!("active for {} only", text::line(provider)),
        _ => "inactive".to_owned(),
    };
    format!(
        "block {} ({}, {state}): {}; {} of {} tokens; run {}",
        number("generation").unwrap_or(0),
        text::line(&kind),
        if sections.is_empty() {
            "no turns".to_owned()
        } else {
            sections.join(", ")
        },
        text::number(number("tokens_block").unwrap_or(0)),
        text::number(number("tokens_covered").unwrap_or(0)),
        text::line(&block.text("run_id").unwrap_or_default()),
    )
}
