//! Input that nobody meant: transcripts mutated byte by byte and value by value, words of the small
//! languages, JSON of the model. Nothing panics, nothing hangs, and what came in is sound.
//!
//! `LOOPSTORE_INPUTS=10000000` tries so many.

mod mutate;
mod rows;
mod terminal;
mod transcripts;
mod words;

use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;

/// Longer than this no input may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts the memory of this program, but for that of SQLite.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// More memory than this no input may take, beside that of the other tests of this program: the largest
/// texts have 70 KB, and a database 3 MB at a place.
const MOST_MEMORY: usize = 256 << 20;

/// How the harness is run at length.
const INPUTS: &str = "LOOPSTORE_INPUTS=10000000 cargo test --test hostile";

/// How many inputs are tried of each kind.
fn inputs(by_default: u64) -> u64 {
    let given = std::env::var("LOOPSTORE_INPUTS").ok();
    given.map_or(by_default, |n| n.parse().unwrap())
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
        assert!(took < PATIENCE, "{} took {took:?}", self.name);
        let most = MEMORY.peak_usage();
        assert!(most < MOST_MEMORY, "{} took {most} bytes", self.name);
    }
}
