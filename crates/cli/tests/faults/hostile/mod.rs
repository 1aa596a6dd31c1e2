//! Malformed input: transcripts mutated byte by byte and value by value, words of the small languages, JSON of the
//! model. Nothing panics or hangs, and the stored result is valid.
//!
//! `LOOPSTORE_INPUTS=10000000` sets the number of inputs.

mod mutate;
mod rows;
mod terminal;
mod transcripts;
mod words;

use std::time::Instant;

use peak_alloc::PeakAlloc;

use crate::support::amount::amount;
use crate::support::hang::HUNG;

/// Counts the memory of this program, except that of SQLite.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The memory limit for every input: the largest texts have 70 KB, and a database has 3 MB at one point. Each of these
/// tests runs in a separate process, so that nothing else is counted.
const MOST_MEMORY: usize = 256 << 20;

/// The command for a long run.
const INPUTS: &str = "LOOPSTORE_INPUTS=10000000 cargo test --test faults hostile";

/// Returns the number of inputs of each kind.
fn inputs(by_default: u64) -> u64 {
    amount("LOOPSTORE_INPUTS", by_default)
}

/// Reports an input that makes the test fail or takes too long.
struct InputGuard {
    name: String,
    begun: Instant,
}

impl InputGuard {
    fn new(name: String) -> Self {
        let begun = Instant::now();
        MEMORY.reset_peak_usage();
        Self { name, begun }
    }
}

impl Drop for InputGuard {
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
