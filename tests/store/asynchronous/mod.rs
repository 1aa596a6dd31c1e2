//! The store from async code: what a dropped future, an error, a panic and a crowd leave behind.

mod cancelled;
mod crowd;
mod dropped;
mod failing;
mod operations;
mod summaries;
