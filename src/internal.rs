//! The items of the store that the packages above this one use, and that no other program should: they change
//! in any release.

pub use crate::overlay::foreign::{block_form, restore_block};
pub use crate::store::history::{history_fingerprint, restore_history, shorten_history};
