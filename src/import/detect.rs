//! The formats that this version reads.

use super::{ClaudeCode, Importer, OpenAiChat, PhiCore};

/// Returns the importers in the order in which they are asked; the first that knows a file reads
/// it. loopstore's own form comes first: a session of it may hold records of any other.
pub fn importers() -> &'static [&'static dyn Importer] {
    &[&PhiCore, &ClaudeCode, &OpenAiChat]
}
