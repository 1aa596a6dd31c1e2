//! Files that were damaged in every way that disks, copies and people have: each answer is the right
//! one or a typed error, `verify` names what is wrong, and a salvage is whole.

mod files;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../keyed/mod.rs"]
mod keyed;
mod pages;
#[path = "../proof/mod.rs"]
mod proof;
mod reading;
mod salvaging;
mod stage;
