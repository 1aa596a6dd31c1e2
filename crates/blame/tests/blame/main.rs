//! Blame of files that sessions changed, against a slow and obvious reference.

mod generated;
mod input;
mod real;
mod reference;
mod stage;
