//! The formats that this version reads.

use super::{ClaudeCode, Importer, OpenAiChat, PhiCore};

/// Returns the importers in the order in which they are asked; the first that knows a file reads
/// it.
pub fn importers() -> &'static [&'static dyn Importer] {
    &[&ClaudeCode, &PhiCore, &OpenAiChat]
}
