//! Faults that are built in on purpose, so that the tests can show that they would find them, and a format
//! to come. In a release build there are none, and no way to ask for one.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// No fault: the program knows one format more, which nobody has.
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

/// Builds in the faults of these names, parted by commas; other names do nothing.
#[cfg(debug_assertions)]
pub fn activate(names: &str) {
    let asked = ALL
        .iter()
        .filter(|(known, _)| names.split(',').any(|name| name == *known));
    for (_, fault) in asked {
        BUILT_IN.fetch_or(1 << *fault as u32, Ordering::Relaxed);
    }
}

/// Whether this fault is built in.
#[cfg(debug_assertions)]
pub fn is_active(fault: Failpoint) -> bool {
    BUILT_IN.load(Ordering::Relaxed) & (1 << fault as u32) != 0
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
