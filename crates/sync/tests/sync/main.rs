//! Databases that were brought together: the same in every byte, with everything that either had, whatever interrupts
//! the sync.

mod hidden;
mod marks;
mod random;
mod removals;
mod stage;
mod stream;
mod together;
