//! Faults that are built in on purpose, one at a time, so that the tests can show that they would find
//! them. In a release build there are none, and no way to ask for one.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU8, Ordering};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The messages of a turn and its totals are committed apart.
    SplitTransaction = 1,
    /// Now and then a commit is acknowledged and not made.
    LostWrite,
    /// Writers do not queue.
    UnfairQueue,
    /// No digest is compared.
    UncheckedDigest,
    /// A long value of a transcript ends the program.
    Panic,
    /// Control characters reach the terminal.
    RawEscape,
    /// A commit is acknowledged before the disk has it.
    EarlyAnswer,
}

#[cfg(debug_assertions)]
const ALL: [(&str, Fault); 7] = [
    ("split-transaction", Fault::SplitTransaction),
    ("lost-write", Fault::LostWrite),
    ("unfair-queue", Fault::UnfairQueue),
    ("unchecked-digest", Fault::UncheckedDigest),
    ("panic", Fault::Panic),
    ("raw-escape", Fault::RawEscape),
    ("early-answer", Fault::EarlyAnswer),
];

#[cfg(debug_assertions)]
static BUILT_IN: AtomicU8 = AtomicU8::new(0);

/// Builds in the fault of this name; another name does nothing.
#[cfg(debug_assertions)]
pub fn build_in(name: &str) {
    if let Some((_, fault)) = ALL.iter().find(|(known, _)| *known == name) {
        BUILT_IN.store(*fault as u8, Ordering::Relaxed);
    }
}

/// Whether this fault is built in.
#[cfg(debug_assertions)]
pub fn has(fault: Fault) -> bool {
    BUILT_IN.load(Ordering::Relaxed) == fault as u8
}

/// Whether this fault is built in.
#[cfg(not(debug_assertions))]
pub const fn has(_: Fault) -> bool {
    false
}

/// Panics if that is built in, at a value so long.
pub(crate) fn panic_at(bytes: usize) {
    #[allow(clippy::panic)]
    if bytes > 69_000 && has(Fault::Panic) {
        panic!("a fault that is built in");
    }
}
