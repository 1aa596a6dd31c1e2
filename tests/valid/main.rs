//! A context in the form of a provider's request is never one that the provider refuses: at any
//! cut, after any undo, with any strategy, whatever was recorded.
//!
//! The check reads the JSON of the request and knows nothing of how it was written.

mod check;
mod faulty;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../keyed/mod.rs"]
mod keyed;
mod messages;
#[path = "../support/provider_faults/mod.rs"]
mod provider_faults;
mod reading;
mod round_trip;
mod sessions;
mod strategies;
