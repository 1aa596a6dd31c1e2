//! The page of a session: its figures are the database's, what a transcript says stays text, and a
//! browser shows it.

mod archived;
mod browser;
mod commands;
mod figures;
mod hostile;
mod shown;
mod size;
