//! For those who run a database: checks, copies, removals, and the past moment by moment.
//!
//! - [`copies`]: copies that killed processes left half written
//! - [`inspect`]: `verify`, and what two contexts show of each turn
//! - [`backup`], [`salvage`]: a copy of a file, what is intact
//!   of a damaged one
//! - [`retention`]: redact, erase, prune, archive
//! - [`replay`]: a session as it happened
//!
//! A program that only keeps sessions needs none of this: see [`Store`](crate::Store).

pub mod backup;
pub mod copies;
pub mod inspect;
pub mod replay;
pub mod retention;
pub mod salvage;
