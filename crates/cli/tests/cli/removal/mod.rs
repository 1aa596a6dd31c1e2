//! The removing commands: their questions, and recovery after a kill.

mod choices;
mod commands;
mod files;
mod killed;
