//! Archived loops: compressed, read as before, never lost, and without a byte left when they are removed.

mod choosing;
mod damaged;
mod random;
mod removed;
mod rows;
mod seen;
