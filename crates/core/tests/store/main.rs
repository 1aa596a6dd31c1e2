//! What needs a database to be tried.

mod key;
mod lookup;
mod packing;
