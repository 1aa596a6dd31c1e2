//! Files that were damaged in every way that disks, copies and people have: each answer is the right
//! one or a typed error, `verify` names what is wrong, and a salvage is whole.

mod files;
mod pages;
pub mod reading;
mod salvaging;
mod stage;
