//! Checks whether a store of loopstore holds what was written to it.
//!
//! [`verify`] derives digests, totals, order, coverage and audit chains again from the rows and compares them with
//! the stored ones. [`take_head`] returns a short text that identifies all stored content, and [`verify_against`]
//! compares a store with such a text.
//!
//! Damage is listed in the [`VerifyReport`] and is not an error. The crate repairs nothing:
//! `loopstore_admin::salvage` copies the intact rows of a damaged file, with the checks of this crate. The checks
//! work on every [`Database`](loopstore::Database). An import of loopstore's own lines checks each imported session
//! with [`verify_session`].

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod audit;
mod blobs;
mod blocks;
mod calls;
mod coverage;
mod cuts;
mod edits;
mod heads;
mod loops;
mod manifests;
mod packs;
mod pairs;
mod receipts;
mod report;
mod runs;
mod sealed;
mod sessions;
mod sources;
mod stored;
mod turns;
mod verify;

pub use heads::{Head, HeadParseError, take_head, verify_against};
pub use report::{Checked, Problem, ProblemKind, VerifyReport};
pub use verify::{verify, verify_session};

/// The parts of a check that `loopstore-admin` uses to mend a copy, without a promise for others.
#[doc(hidden)]
pub mod internal {
    pub use crate::report::Subject;
    pub use crate::verify::{CheckedPart, faults};
}
