//! Deliberate faults, with which the tests show that they detect such faults, and a later format. A release build has
//! none, and no way to request one.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU32, Ordering};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// The messages of a turn and its totals are committed separately.
    SplitTransaction = 1,
    /// Some commits are acknowledged and not made.
    LostWrite,
    /// Writers do not queue.
    UnfairQueue,
    /// No digest is compared.
    UncheckedDigest,
    /// A long value of a transcript ends the program.
    Panic,
    /// Control characters reach the terminal.
    RawEscape,
    /// A commit is acknowledged before it is on disk.
    EarlyAnswer,
    /// No fault: the program knows one more format, which no database has.
    LaterFormat,
}

#[cfg(debug_assertions)]
const ALL: [(&str, Failpoint); 8] = [
    ("split-transaction", Failpoint::SplitTransaction),
    ("lost-write", Failpoint::LostWrite),
    ("unfair-queue", Failpoint::UnfairQueue),
    ("unchecked-digest", Failpoint::UncheckedDigest),
    ("panic", Failpoint::Panic),
    ("raw-escape", Failpoint::RawEscape),
    ("early-answer", Failpoint::EarlyAnswer),
    ("later-format", Failpoint::LaterFormat),
];

#[cfg(debug_assertions)]
static BUILT_IN: AtomicU32 = AtomicU32::new(0);

/// Builds in the faults with these names, separated by commas; other names do nothing.
#[cfg(debug_assertions)]
pub fn activate(names: &str) {
    let requested = ALL
        .iter()
        .filter(|(known, _)| names.split(',').any(|name| name == *known));
    for (_, fault) in requested {
        BUILT_IN.fetch_or(1 << *fault as u32, Ordering::Relaxed);
    }
}

/// True if this fault is built in.
#[cfg(debug_assertions)]
pub fn is_active(fault: Failpoint) -> bool {
    BUILT_IN.load(Ordering::Relaxed) & (1 << fault as u32) != 0
}

/// True if this fault is built in.
#[cfg(not(debug_assertions))]
pub const fn is_active(_: Failpoint) -> bool {
    false
}

/// Panics at a value of this length, if that fault is built in.
pub(crate) fn panic_at(bytes: usize) {
    #[allow(clippy::panic)]
    if bytes > 69_000 && is_active(Failpoint::Panic) {
        panic!("a fault that is built in");
    }
}
