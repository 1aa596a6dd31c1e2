//! Reads the tree of loops, and the state of its turns in a context.

use std::collections::{HashMap, HashSet};

use loopstore::context::TurnState;
use loopstore::extend::active_blocks::{ChainView, chain};
use loopstore::extend::{
    self as store, BlockCore, BlockKind, Disposition, LoopKey, LoopRow, SessionRow, StoreError,
    StoreRead, StoreResult, prompt,
};
use loopstore::{ContinuationKind, Database, LoopId, SessionId};
use loopstore_admin::inspect::{DiffRequest, DiffSide, diff};

use super::cursor::Tone;
use super::session::{LeafContext, LoopItem, LoopSeen, Node, TreeRow};
use super::state::ReadOutcome;

/// Returns the row of the session.
pub fn owner(read: &dyn StoreRead, session: &SessionId) -> StoreResult<SessionRow> {
    let found = read.session(session)?;
    found.ok_or_else(|| StoreError::NoSession(session.to_string()))
}

/// Returns the row of the loop.
pub fn loop_of(read: &dyn StoreRead, session: &SessionRow, id: &LoopId) -> StoreResult<LoopRow> {
    let found = read.loop_by_id(session.key, id)?;
    found.ok_or_else(|| StoreError::NoLoop(id.to_string()))
}

/// Returns the tone of a state.
pub fn tone(state: TurnState) -> Tone {
    use Disposition as D;
    match state {
        TurnState::Raw => Tone::Plain,
        TurnState::Covered(D::Kept) => Tone::Kept,
        TurnState::Edited | TurnState::Covered(D::Truncated) => Tone::Cut,
        TurnState::Covered(D::Summarised | D::RolledUp | D::Sealed) => Tone::Summary,
        TurnState::Covered(D::Dropped | D::Removed) => Tone::Gone,
    }
}

/// Reads the loops of a session and the sessions that it started.
pub fn tree(store: &dyn Database, session: &SessionId) -> StoreResult<ReadOutcome> {
    store::read(store, |read| {
        let session = owner(read, session)?;
        let loops = read.loops(session.key)?;
        let mut tree = LoopTree::of(&loops, session.current_loop);
        tree.prompts = prompt::loop_prompts(read, session.key)?;
        let (mut rows, current) = tree.rows();
        for key in read.started_by(session.key)? {
            let agent = read.session_by_key(key)?;
            rows.push(TreeRow {
                depth: 0,
                what: Node::Agent {
                    title: prompt::session_title(read, &agent)?.unwrap_or_default(),
                    session: agent.session_id,
                },
            });
        }
        let mut title = prompt::session_title(read, &session)?.unwrap_or_default();
        if let Some(project) = &session.project {
            title.push_str(&format!("  in {project}"));
        }
        Ok(ReadOutcome::Tree(title, rows, current))
    })
}

/// The loops of a session as a tree.
struct LoopTree<'a> {
    loops: &'a [LoopRow],
    children: HashMap<Option<LoopKey>, Vec<&'a LoopRow>>,
    on_chain: HashSet<LoopKey>,
    current: Option<LoopKey>,
    prompts: HashMap<LoopKey, String>,
}

impl<'a> LoopTree<'a> {
    fn of(loops: &'a [LoopRow], current: Option<LoopKey>) -> Self {
        let by_key: HashMap<LoopKey, &LoopRow> = loops.iter().map(|row| (row.key, row)).collect();
        let mut children: HashMap<Option<LoopKey>, Vec<&LoopRow>> = HashMap::new();
        for row in loops {
            // A parent has a smaller key; any other parent is damage and only named.
            let parent = row.parent.filter(|key| *key < row.key);
            let parent = parent.filter(|key| by_key.contains_key(key));
            children.entry(parent).or_default().push(row);
        }
        let mut on_chain = HashSet::new();
        let mut step = current;
        while let Some(key) = step.filter(|key| on_chain.insert(*key)) {
            step = by_key.get(&key).and_then(|row| row.parent);
        }
        Self {
            loops,
            children,
            on_chain,
            current,
            prompts: HashMap::new(),
        }
    }

    /// Returns the rows, and the index of the current loop's row. Loops that continue each other are on one level,
    /// other branches below the loop that they leave.
    fn rows(&self) -> (Vec<TreeRow>, usize) {
        let (mut rows, mut current) = (Vec::with_capacity(self.loops.len()), 0);
        let roots = self.children.get(&None).into_iter().flatten();
        let mut ahead: Vec<(&LoopRow, usize)> = roots.rev().map(|row| (*row, 0)).collect();
        while let Some((row, depth)) = ahead.pop() {
            if Some(row.key) == self.current {
                current = rows.len();
            }
            rows.push(TreeRow {
                depth,
                what: Node::Loop(self.line(row)),
            });
            let main = self.main_child(row);
            ahead.extend(main.map(|child| (child, depth)));
            let children = self.children.get(&Some(row.key)).into_iter().flatten();
            let branches = children.filter(|child| main.is_none_or(|main| main.key != child.key));
            ahead.extend(branches.rev().map(|child| (*child, depth + 1)));
        }
        (rows, current)
    }

    /// Returns the loop that continues this one: the one on the chain of the current loop, else the first that begins
    /// after its last turn.
    fn main_child(&self, row: &LoopRow) -> Option<&'a LoopRow> {
        let children = self.children.get(&Some(row.key))?;
        let current = children
            .iter()
            .find(|child| self.on_chain.contains(&child.key));
        let goes_on = |child: &&&LoopRow| child.parent_cut().whole == row.totals.turns;
        current.or_else(|| children.iter().find(goes_on)).copied()
    }

    fn line(&self, row: &LoopRow) -> LoopItem {
        LoopItem {
            id: row.loop_id.clone(),
            origin: origin(row),
            status: row.status.as_str().to_lowercase(),
            turns: row.totals.turns,
            tokens: row.totals.tokens,
            on_chain: self.on_chain.contains(&row.key),
            prompt: self.prompts.get(&row.key).cloned().unwrap_or_default(),
        }
    }
}

/// Returns the kind of a loop's continuation, unless it is the default kind.
fn origin(row: &LoopRow) -> String {
    let (word, tag) = match serde_json::from_str(&row.kind).unwrap_or_default() {
        ContinuationKind::Initial | ContinuationKind::Default => return String::new(),
        ContinuationKind::Compaction => ("compaction", String::new()),
        ContinuationKind::Rerun { tag } => ("rerun ", tag),
        ContinuationKind::Branch { tag } => ("branch ", tag),
        ContinuationKind::Other(json) => ("", json.as_str().to_owned()),
    };
    match (row.parent_turn, row.parent_seq) {
        (Some(turn), Some(seq)) => format!("{word}{tag} after message {seq} of turn {turn}"),
        (Some(turn), None) => format!("{word}{tag} after turn {turn}"),
        (None, _) => format!("{word}{tag}"),
    }
}

/// Reads the state of each turn of `leaf`'s chain in its context.
pub fn seen(store: &dyn Database, session: &SessionId, leaf: &LoopId) -> StoreResult<LeafContext> {
    let request = DiffRequest {
        from: Some(DiffSide::Raw),
        to: Some(DiffSide::Now),
        leaf: Some(leaf.clone()),
    };
    let found = diff(store, session, &request)?;
    let mut loops = store::read(store, |read| {
        let session = owner(read, session)?;
        let key = loop_of(read, &session, leaf)?.key;
        loops_of_chain(read, key)
    })?;
    for change in found.changes {
        if let Some(seen) = loops.get_mut(&change.loop_id) {
            let turns = (change.from_turn, change.to_turn, change.after);
            seen.changes.push(turns);
        }
    }
    Ok(LeafContext {
        leaf: leaf.clone(),
        tokens: Some(found.tokens),
        loops,
    })
}

/// Returns the loops of a chain with their active blocks.
fn loops_of_chain(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<HashMap<LoopId, LoopSeen>> {
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let blocks: HashMap<LoopKey, String> = chain(read, leaf, ChainView::default())?
        .into_iter()
        .filter_map(|link| Some((link.row.key, name(link.block.as_ref()?))))
        .collect();
    let seen = |link: store::active_blocks::ChainLink| {
        let seen = LoopSeen {
            turns: link.turns,
            block: blocks.get(&link.row.key).cloned(),
            is_edited: link.edits.is_some(),
            changes: Vec::new(),
        };
        (link.row.loop_id, seen)
    };
    Ok(chain(read, leaf, raw)?.into_iter().map(seen).collect())
}

/// Returns the name of a block.
pub fn name(block: &BlockCore) -> String {
    let word = match block.kind {
        BlockKind::Rollup => "rollup",
        BlockKind::Sealed(_) => "sealed",
        BlockKind::Current | BlockKind::Earlier => "block",
    };
    format!("{word} {}", block.generation)
}
