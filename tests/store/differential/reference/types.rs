//! The plain data of the model: messages, loops, runs, blocks, configuration.

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    User,
    Assistant,
    ToolResult,
    Extension,
}

/// One message. An extension holds its JSON as its only text.
#[derive(Clone, Debug, PartialEq)]
pub struct RefMessage {
    pub kind: RefKind,
    /// The turn index of the source; `None` makes the message a group of its own.
    pub turn_index: Option<u32>,
    pub texts: Vec<String>,
    /// `(id, name, arguments as compact JSON)`.
    pub calls: Vec<(String, String, String)>,
    /// The call that a tool result answers.
    pub answers: Option<String>,
    pub tool_name: String,
    /// `(thinking, signature)`.
    pub thinking: Vec<(String, Option<String>)>,
    /// Chosen by the test, unique among originals; 0 on a replacement without an original.
    pub id: u64,
    /// The tick of its append.
    pub tick: u64,
    /// True if the harness is the author.
    pub from_harness: bool,
}

/// One loop with everything that was ever appended to it.
#[derive(Clone, Debug, PartialEq)]
pub struct RefLoop {
    pub id: String,
    pub parent: Option<usize>,
    /// The last turn of the parent on this loop's chain, inclusive; `None` when it had no turns.
    pub parent_turn: Option<u32>,
    pub running: bool,
    pub messages: Vec<RefMessage>,
    pub created_tick: u64,
}

/// One agent's history, with loops and runs in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefSession {
    pub loops: Vec<RefLoop>,
    pub runs: Vec<RefRun>,
    pub pins: Vec<RefPin>,
    /// The last tick that was used.
    pub tick: u64,
}

/// How an attempt ended. `NotNeeded` leaves no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefOutcome {
    Committed,
    NoGain,
    NotNeeded,
}

/// The kind of a flip: it hides a run, or brings the run back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlipKind {
    Undo,
    Redo,
}

/// One undo or redo of a run, made at a point.
#[derive(Clone, Debug, PartialEq)]
pub struct RefFlip {
    pub kind: FlipKind,
    /// The leaf from which it was made.
    pub loop_ix: usize,
    /// The complete turns of that loop then.
    pub point: u32,
    pub tick: u64,
}

/// A message by its loop and its index there.
pub type RefPlace = (usize, usize);

/// One pin of a message, or its end, made at a point.
#[derive(Clone, Debug, PartialEq)]
pub struct RefPin {
    pub of: RefPlace,
    pub pinned: bool,
    /// The leaf from which it was made.
    pub loop_ix: usize,
    /// The complete turns of that loop then.
    pub point: u32,
    pub tick: u64,
}

/// One compaction attempt that left a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RefRun {
    /// Its leaf.
    pub loop_ix: usize,
    /// The complete turns of its leaf in its plan.
    pub point: u32,
    pub tick: u64,
    pub outcome: RefOutcome,
    pub flips: Vec<RefFlip>,
    /// The blocks that became live; empty unless committed.
    pub blocks: Vec<RefBlock>,
    pub config: RefConfig,
    /// The plan of the attempt, to recognise the same attempt.
    pub plan: RefPlan,
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Current,
    Earlier,
    Rollup,
}

/// Turns `first..=last` of a loop.
pub type RefRange = (u32, u32);

/// The disposition of a covered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Kept,
    Truncated,
    Summarised,
    Dropped,
    RolledUp,
}

/// The coverage of one message; the messages of a compacted turn share that of the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct RefCoverage {
    pub turn: u32,
    pub message: usize,
    pub disposition: Disposition,
}

/// A message of a block that replaces originals.
#[derive(Clone, Debug, PartialEq)]
pub struct RefReplacement {
    /// The turn from which it was made.
    pub turn: u32,
    /// The original of which it is a cut copy.
    pub replaces: Option<usize>,
    /// The pinned message that it quotes.
    pub quotes: Option<RefPlace>,
    pub message: RefMessage,
}

/// A section with replacement messages. In `keep_recent` only messages that differ are there.
#[derive(Clone, Debug, PartialEq)]
pub struct RefSection {
    pub range: RefRange,
    pub messages: Vec<RefReplacement>,
}

/// The overlay that a run puts on one loop.
#[derive(Clone, Debug, PartialEq)]
pub struct RefBlock {
    pub loop_ix: usize,
    /// From 1 on each loop; 0 while only planned.
    pub generation: u32,
    pub kind: BlockKind,
    pub keep_first: Option<RefRange>,
    pub keep_compacted: Option<RefSection>,
    pub keep_recent: Option<RefSection>,
    /// The index of the last message covered.
    pub through: Option<usize>,
    /// The settings that shaped its texts: `max_summary_tokens` and `tool_output_max_lines`.
    pub shaping: (u64, usize),
    pub coverage: Vec<RefCoverage>,
}

/// The blocks that an attempt would write, and the state on which it is based.
#[derive(Clone, Debug, PartialEq)]
pub struct RefPlan {
    pub config: RefConfig,
    pub force: bool,
    /// `(loop, generation)` of the active blocks.
    pub in_force: Vec<(usize, u32)>,
    /// The place on the chain of the first loop in scope.
    pub first_in_scope: usize,
    /// The turns that each loop in scope was to keep.
    pub layout: Vec<RefKept>,
    /// The messages that were pinned on the chain.
    pub pins: Vec<RefPlace>,
    /// The blocks to write, root to leaf, generation 0.
    pub blocks: Vec<RefBlock>,
}

/// What a plan keeps of a loop: turns `..first` uncut and turns `recent..turns` with cut tool
/// results; between them is the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefKept {
    pub loop_ix: usize,
    /// Its turns up to the cut; for the leaf, the complete ones.
    pub turns: u32,
    /// The index of the last message of those turns.
    pub through: Option<usize>,
    pub first: u32,
    pub recent: u32,
    /// True if the whole loop is shown without a block.
    pub raw: bool,
}

/// The number of earlier loops that a compaction includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefScope {
    FixedCount(usize),
    TokenBudget,
}

/// The treatment of loops older than the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderLoops {
    /// Not in the context.
    Skip,
    /// Replaces them by one summary of at most `max_rollup_tokens`; if that is 0, they stay unchanged.
    Rollup,
}

/// How far the recent window reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentWindow {
    CurrentLoop,
    Chain,
}

/// The policy of a run. The strategy is always `one-liner`.
#[derive(Clone, Debug, PartialEq)]
pub struct RefConfig {
    pub compact_at_pct: f64,
    pub compact_budget_threshold_pct: f64,
    pub scope: RefScope,
    pub older_loops: OlderLoops,
    pub recent_window: RecentWindow,
    pub keep_first_turns: u32,
    pub keep_recent_turns: u32,
    pub max_summary_tokens: u64,
    pub max_rollup_tokens: u64,
    pub tool_output_max_lines: usize,
    pub max_context_tokens: u64,
    pub system_tokens: u64,
}

impl Default for RefConfig {
    /// The defaults of section 7.
    fn default() -> Self {
        Self {
            compact_at_pct: 0.90,
            compact_budget_threshold_pct: 0.05,
            scope: RefScope::FixedCount(3),
            older_loops: OlderLoops::Rollup,
            recent_window: RecentWindow::Chain,
            keep_first_turns: 2,
            keep_recent_turns: 10,
            max_summary_tokens: 2_000,
            max_rollup_tokens: 2_000,
            tool_output_max_lines: 50,
            max_context_tokens: 128_000,
            system_tokens: 0,
        }
    }
}

/// The origin of a message of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefPart {
    First,
    Compacted,
    Recent,
    Tail,
    Raw,
}

/// One message of a context.
#[derive(Clone, Debug, PartialEq)]
pub struct RefOut {
    pub loop_ix: usize,
    /// Its turn; for a replacement, the turn from which it was made.
    pub turn: u32,
    /// The index of the original that it is, or is cut from.
    pub original: Option<usize>,
    /// The pinned message that it quotes.
    pub quotes: Option<RefPlace>,
    pub message: RefMessage,
    pub part: RefPart,
    pub tokens: u64,
}
