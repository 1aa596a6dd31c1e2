//! The kinds of extension messages that loopstore itself writes and reads.

/// A system or developer prompt of a transcript.
#[doc(hidden)]
pub const SYSTEM: &str = "system";
/// A changed version of a final message.
#[doc(hidden)]
pub const REVISED: &str = "revised";
/// The replacement of a message whose content was removed.
#[doc(hidden)]
pub const REMOVED: &str = "removed";
/// An event that phi-core recorded.
#[doc(hidden)]
pub const PHI_CORE_EVENT: &str = "phi-core-event";

/// True if loopstore writes extensions of this kind.
#[doc(hidden)]
pub fn is_reserved(kind: &str) -> bool {
    [SYSTEM, REVISED, REMOVED, PHI_CORE_EVENT].contains(&kind)
}
