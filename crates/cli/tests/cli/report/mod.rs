//! The report page of a session: its figures are those of the database, texts of a transcript stay text, and it works
//! in a browser.

mod archived;
mod browser;
mod commands;
mod figures;
mod hostile;
mod shown;
mod size;
