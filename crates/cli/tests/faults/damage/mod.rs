//! Files with every kind of damage that disks, copies and people cause: each answer is correct or a typed error,
//! `verify` names the damage, and a salvaged database is valid.

mod files;
mod pages;
pub mod reading;
mod salvaging;
mod stage;
