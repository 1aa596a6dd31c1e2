//! The difference between two contexts, the edits of a context, the originals behind a compaction, and the changes of
//! files by tool calls.

mod diff;
mod edits;
mod expand;
mod file_changes;
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
pub use file_changes::{ChangedFile, DiffLine, changed_files};
pub use replaced::{BlockName, BlockSection, CoveredTurns, ReplacedTurns, replaced};
