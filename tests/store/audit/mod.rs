//! What was done cannot be taken out or added unseen, also by who writes the file with plain SQL.

mod attempts;
mod heads;
mod killed;
mod stage;
mod tampering;
