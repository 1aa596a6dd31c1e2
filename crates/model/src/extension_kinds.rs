//! Kinds of extensions that loopstore itself writes and reads back.

/// A system or developer prompt of a transcript.
#[doc(hidden)]
pub const SYSTEM: &str = "system";
/// How a final message came back changed.
#[doc(hidden)]
pub const REVISED: &str = "revised";
/// What stands in place of a message whose content was removed.
#[doc(hidden)]
pub const REMOVED: &str = "removed";
/// An event that phi-core recorded.
#[doc(hidden)]
pub const PHI_CORE_EVENT: &str = "phi-core-event";

/// Whether an extension of this kind passes for one that loopstore wrote.
#[doc(hidden)]
pub fn is_reserved(kind: &str) -> bool {
    [SYSTEM, REVISED, REMOVED, PHI_CORE_EVENT].contains(&kind)
}
