//! Faults that are built in on purpose, one at a time, so that the tests can show that they would find
//! them. In a release build there are none, and no way to ask for one.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU8, Ordering};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
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
const ALL: [(&str, Failpoint); 7] = [
    ("split-transaction", Failpoint::SplitTransaction),
    ("lost-write", Failpoint::LostWrite),
    ("unfair-queue", Failpoint::UnfairQueue),
    ("unchecked-digest", Failpoint::UncheckedDigest),
    ("panic", Failpoint::Panic),
    ("raw-escape", Failpoint::RawEscape),
    ("early-answer", Failpoint::EarlyAnswer),
];

#[cfg(debug_assertions)]
static BUILT_IN: AtomicU8 = AtomicU8::new(0);

/// Builds in the fault of this name; another name does nothing.
#[cfg(debug_assertions)]
pub fn activate(name: &str) {
    if let Some((_, fault)) = ALL.iter().find(|(known, _)| *known == name) {
        BUILT_IN.store(*fault as u8, Ordering::Relaxed);
    }
}

/// Whether this fault is built in.
#[cfg(debug_assertions)]
pub fn is_active(fault: Failpoint) -> bool {
    BUILT_IN.load(Ordering::Relaxed) == fault as u8
}

/// Whether this fault is built in.
#[cfg(not(debug_assertions))]
pub const fn is_active(_: Failpoint) -> bool {
    false
}

/// Panics if that is built in, at a value so long.
pub(crate) fn panic_at(bytes: usize) {
    #[allow(clippy::panic)]
    if bytes > 69_000 && is_active(Failpoint::Panic) {
        panic!("a fault that is built in");
    }
}
