//! The tree of a session's loops.
//!
//! Loops that continue each other stay on one level; other branches are indented under
//! the loop that they fork.

use std::collections::{HashMap, HashSet};

use loopstore::Database;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::sqlite::{Record, SessionView};
use loopstore::extend::{self as store, SessionRow, StoreError, shown_chain};
use loopstore::model::EditAction;
use loopstore_admin::inspect::live_edits;
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::text;

/// Returns the lines of the tree.
pub fn tree(view: &SessionView, now: &TreeState, names: &mut ShortNames<'_>) -> Vec<String> {
    let mut tree = TreeView::of(view, now, TreeNames::of(view, names));
    let roots: Vec<usize> = (0..view.loops.len())
        .filter(|at| tree.parents[*at].is_none())
        .collect();
    for root in roots {
        tree.line_of_loops(root, "");
    }
    if tree.lines.iter().any(|line| line.contains(NOW)) {
        tree.lines.push(String::new());
        tree.lines
            .push(format!("{NOW}in the context of the current loop now"));
    }
    tree.lines
}

/// The mark of blocks and edits in the context of the current loop, and the space in its place.
const NOW: &str = "▶ ";
const NOT_NOW: &str = "  ";

/// The blocks and edits in the current context of a session, and its idle loops.
#[derive(Default)]
pub struct TreeState {
    /// The blocks in the context of the current loop: the loop and the generation.
    blocks: HashSet<(String, i64)>,
    /// The runs whose edits are in that context.
    edits: HashSet<String>,
    /// The loops that wait for a prompt: not ended, without a driver and an open turn.
    idle: HashSet<String>,
}

impl TreeState {
    /// Reads the state of a session.
    pub fn of(store: &dyn Database, session: &SessionRow) -> Result<Self, StoreError> {
        let mut state = Self::default();
        let Some(current) = session.current_loop else {
            return Ok(state);
        };
        store::read(store, |read| {
            let loops = read.loops(session.key)?;
            for row in &loops {
                let waits = row.totals.turns > 0 && row.totals.complete == row.totals.turns;
                if !row.status.is_ended() && waits && read.lease(row.key)?.is_none() {
                    state.idle.insert(row.core.loop_id.to_string());
                }
            }
            let leaf = read.loop_by_key(current)?;
            let shown = shown_chain(read, &leaf.core, ChainView::default())?;
            for block in shown.states.into_iter().filter_map(|states| states.block) {
                // A rollup is on a later loop than those that it covers.
                let row = loops.iter().find(|row| row.key == block.loop_key);
                let loop_id = row.map(|row| row.core.loop_id.to_string());
                let key = loop_id.map(|id| (id, i64::from(block.generation)));
                state.blocks.extend(key);
            }
            Ok::<_, StoreError>(())
        })?;
        let edits = live_edits(store, &session.session_id, None, None)?;
        state.edits.extend(edits.into_iter().map(|run| run.run_id));
        Ok(state)
    }

    /// Returns the mark before a line.
    fn mark(is_now: bool) -> &'static str {
        if is_now { NOW } else { NOT_NOW }
    }
}

/// The short forms of the ids of loops and runs, by id.
struct TreeNames(HashMap<String, String>);

impl TreeNames {
    fn of(view: &SessionView, names: &mut ShortNames<'_>) -> Self {
        let session = view.session.text("session_id").unwrap_or_default();
        let mut short = HashMap::new();
        for (row, blocks) in &view.loops {
            let ids = ["loop_id", "parent_loop_id"].into_iter();
            for id in ids.filter_map(|column| row.text(column)) {
                short.insert(id.clone(), names.loop_id(&session, &id));
            }
            for id in blocks.iter().filter_map(|block| block.text("run_id")) {
                short.insert(id.clone(), names.run(&session, &id));
            }
        }
        for id in view.edits.iter().filter_map(|edit| edit.text("run_id")) {
            short.insert(id.clone(), names.run(&session, &id));
        }
        Self(short)
    }

    /// Returns the short form of the id in a column.
    fn short(&self, row: &Record, column: &str) -> String {
        let id = row.text(column).unwrap_or_default();
        text::line(self.0.get(&id).map_or(&*id, String::as_str))
    }
}

struct TreeView<'a> {
    view: &'a SessionView,
    now: &'a TreeState,
    names: TreeNames,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// True for the loops from the root to the current one.
    is_current: Vec<bool>,
    /// The edits of each loop, by run.
    edits: Vec<Vec<&'a Record>>,
    lines: Vec<String>,
}

impl<'a> TreeView<'a> {
    fn of(view: &'a SessionView, now: &'a TreeState, names: TreeNames) -> Self {
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
            now,
            names,
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
        self.lines.push(format!(
            "{indent}{mark} {}{}",
            head(row, self.now, &self.names),
            self.origin(at)
        ));
        if let Some(prompt) = row.text("prompt") {
            self.lines
                .push(format!("{indent}    “{}”", text::line(&prompt)));
        }
        for block in blocks {
            let key = row.text("loop_id").zip(block.number("generation"));
            let mark = TreeState::mark(key.is_some_and(|key| self.now.blocks.contains(&key)));
            self.lines.push(format!(
                "{indent}  {mark}{}",
                block_line(block, &self.names)
            ));
        }
        for (run, line) in edit_lines(&self.edits[at], &self.names) {
            let mark = TreeState::mark(self.now.edits.contains(&run));
            self.lines.push(format!("{indent}  {mark}{line}"));
        }
    }

    /// Returns where a loop continues from, unless that is the end of the loop above it.
    fn origin(&self, at: usize) -> String {
        let row = &self.view.loops[at].0;
        if row.text("parent_loop_id").is_none() {
            return String::new();
        }
        let turn = row.number("parent_turn");
        let id = self.names.short(row, "parent_loop_id");
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

fn head(row: &Record, now: &TreeState, names: &TreeNames) -> String {
    let word = |column| text::line(&row.text(column).unwrap_or_default());
    let number = |column| row.number(column).unwrap_or(0);
    // The order of the lines shows the other kinds.
    let kind = match word("continuation_kind").as_str() {
        "Initial" | "Default" => String::new(),
        kind => format!(", {kind}"),
    };
    let status = match row.text("loop_id").is_some_and(|id| now.idle.contains(&id)) {
        true => "Idle".to_owned(),
        false => word("status"),
    };
    let mut line = format!(
        "{}  {status}{kind}: {}, {}, {}",
        names.short(row, "loop_id"),
        text::count(number("turns"), "turn"),
        text::count(number("messages"), "message"),
        text::count(number("tokens"), "token"),
    );
    if row.number("archived") == Some(1) {
        line.push_str("; archived");
    }
    line
}

/// Returns each run that edited messages of a loop, with a line: how many edits of each kind, and of which turns.
fn edit_lines(edits: &[&Record], names: &TreeNames) -> Vec<(String, String)> {
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
        let name = text::line(names.0.get(&run).unwrap_or(&run));
        let line = format!("edits ({state}): {}{of}; run {name}", counts.join(", "));
        (run, line)
    };
    runs.into_iter().map(line).collect()
}

fn block_line(block: &Record, names: &TreeNames) -> String {
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
        names.short(block, "run_id"),
    )
}
