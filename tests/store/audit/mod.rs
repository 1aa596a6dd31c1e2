//! Recorded events cannot be removed or added unnoticed, even by plain SQL on the file.

mod attempts;
mod heads;
mod killed;
mod stage;
mod tampering;
