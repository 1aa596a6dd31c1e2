//! Ways to look at a store as a whole.
//!
//! `verify` asks it whether it tells the truth: digests, totals, order and coverage are derived
//! again from the rows and compared with what is stored.

mod audit;
mod blobs;
mod blocks;
mod calls;
mod coverage;
mod cuts;
mod diff;
mod expand;
mod heads;
mod loops;
mod manifests;
mod packs;
mod pairs;
mod receipts;
mod replaced;
mod report;
mod runs;
mod sealed;
mod sessions;
mod sources;
mod stored;
mod turns;
pub(crate) mod verify;

pub use diff::{ContextDiff, DiffRequest, DiffSide, Rewritten, TurnChange, diff, diff_contexts};
pub use expand::{
    BlobBytes, CutMessage, ExpandRequest, Expanded, MessageOffset, ShownMessage, ShownPart, blob,
    expand,
};
pub use heads::{Head, NoHead, take_head, verify_against};
pub use replaced::{BlockName, BlockSection, Covered, Replaced, replaced};
pub(crate) use report::Subject;
pub use report::{Checked, Problem, ProblemKind, VerifyReport};
pub use verify::verify;
pub(crate) use verify::{CheckedPart, faults};
