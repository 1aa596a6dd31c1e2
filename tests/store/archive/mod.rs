//! Archived loops: compressed, read as before, never lost, and gone without a byte when they are removed.

mod choosing;
mod damaged;
mod random;
mod removed;
mod rows;
mod seen;
