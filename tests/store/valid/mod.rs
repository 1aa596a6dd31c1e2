//! A context in the form of a provider's request is never rejected by the provider: at any cut, after any undo, with
//! any strategy, for any recorded session.
//!
//! The check reads the JSON of the request and does not depend on the code that wrote it.

mod faulty;
mod messages;
mod reading;
mod round_trip;
mod sealed;
mod sessions;
mod strategies;
