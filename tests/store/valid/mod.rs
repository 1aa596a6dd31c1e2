//! A context in the form of a provider's request is never one that the provider refuses: at any
//! cut, after any undo, with any strategy, whatever was recorded.
//!
//! The check reads the JSON of the request and knows nothing of how it was written.

mod faulty;
mod messages;
mod reading;
mod round_trip;
mod sealed;
mod sessions;
mod strategies;
