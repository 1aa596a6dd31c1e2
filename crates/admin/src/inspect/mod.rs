//! The difference between two contexts, and the originals behind a compaction.

mod diff;
mod expand;
mod replaced;

pub use diff::{
    ContextDiff, DiffRequest, DiffSide, RewrittenTurns, TurnChange, diff, diff_contexts,
};
pub use expand::{
    BlobBytes, CutMessage, ExpandRequest, Expanded, MessageOffset, ShownMessage, ShownPart, blob,
    expand,
};
pub use replaced::{BlockName, BlockSection, CoveredTurns, ReplacedTurns, replaced};
