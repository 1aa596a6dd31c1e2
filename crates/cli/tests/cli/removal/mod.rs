//! The commands that remove: what they ask, and what a killed one leaves to be finished.

mod choices;
mod commands;
mod files;
mod killed;
