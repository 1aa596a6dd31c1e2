//! Input that nobody meant: transcripts mutated byte by byte and value by value, words of the small
//! languages, JSON of the model. Nothing panics, nothing hangs, and what came in is sound.
//!
//! `LOOPSTORE_INPUTS=10000000` tries so many.

mod mutate;
mod rows;
mod terminal;
mod transcripts;
mod words;

use std::time::Instant;

use peak_alloc::PeakAlloc;

use crate::support::amount::amount;
use crate::support::hang::HUNG;

/// Counts the memory of this program, but for that of SQLite.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// More memory than this no input may take: the largest texts have 70 KB, and a database 3 MB at a place.
/// So that nothing else counts, each of these tests runs in a process of its own.
const MOST_MEMORY: usize = 256 << 20;

/// How the harness is run at length.
const INPUTS: &str = "LOOPSTORE_INPUTS=10000000 cargo test --test faults hostile";

/// How many inputs are tried of each kind.
fn inputs(by_default: u64) -> u64 {
    amount("LOOPSTORE_INPUTS", by_default)
}

/// Names an input if it makes the test fail or takes too long.
struct Tried {
    name: String,
    begun: Instant,
}

impl Tried {
    fn new(name: String) -> Self {
        let begun = Instant::now();
        MEMORY.reset_peak_usage();
        Self { name, begun }
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {}", self.name);
            return;
        }
        let took = self.begun.elapsed();
        assert!(took < HUNG, "{} took {took:?}", self.name);
        let most = MEMORY.peak_usage();
        assert!(most < MOST_MEMORY, "{} took {most} bytes", self.name);
    }
}
