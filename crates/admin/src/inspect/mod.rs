//! The difference between two contexts, the edits of a context, and the originals behind a compaction.

mod diff;
mod edits;
mod expand;
mod replaced;

pub use diff::{
    ContextDiff, DiffRequest, DiffSide, RewrittenTurns, TurnChange, diff, diff_contexts,
};
pub(crate) use edits::recorded;
pub use edits::{RecordedEdit, RunEdits, live_edits};
pub use expand::{
    BlobBytes, CutMessage, ExpandRequest, Expanded, MessageOffset, ShownMessage, ShownPart, blob,
    expand,
};
pub use replaced::{BlockName, BlockSection, CoveredTurns, ReplacedTurns, replaced};
