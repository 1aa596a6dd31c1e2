//! The store from async code: the effects of dropped futures, errors, panics and concurrency.

mod cancelled;
mod crowd;
mod dropped;
mod failing;
mod operations;
mod summaries;
