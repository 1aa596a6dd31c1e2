//! The page of a session: its figures are the database's, what a transcript says stays text, and a
//! browser shows it.

mod browser;
mod commands;
mod figures;
mod hostile;
#[path = "../keyed/mod.rs"]
mod keyed;
mod page;
mod shown;
mod size;
#[path = "../cli/stage.rs"]
#[allow(dead_code)]
mod stage;
