//! Kinds of extensions that loopstore itself writes and reads back.

/// A system or developer prompt of a transcript.
pub const SYSTEM: &str = "system";
/// How a final message came back changed.
pub const REVISED: &str = "revised";
/// What stands in place of a message whose content was removed.
pub(crate) const REMOVED: &str = "removed";
/// An event that phi-core recorded.
pub const PHI_CORE_EVENT: &str = "phi-core-event";

/// Whether an extension of this kind passes for one that loopstore wrote.
pub fn is_reserved(kind: &str) -> bool {
    [SYSTEM, REVISED, REMOVED, PHI_CORE_EVENT].contains(&kind)
}
