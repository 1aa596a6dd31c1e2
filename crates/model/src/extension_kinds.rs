//! The kinds of extension messages that loopstore itself writes and reads.

/// The kind of a system or developer prompt.
#[doc(hidden)]
pub const SYSTEM: &str = "system";
/// The kind of a changed version of a final message.
#[doc(hidden)]
pub const REVISED: &str = "revised";
/// The kind of the replacement of a message whose content was removed.
#[doc(hidden)]
pub const REMOVED: &str = "removed";
/// The kind of an event that phi-core recorded.
#[doc(hidden)]
pub const PHI_CORE_EVENT: &str = "phi-core-event";

/// True if loopstore writes extensions of this kind.
#[doc(hidden)]
pub fn is_reserved(kind: &str) -> bool {
    [SYSTEM, REVISED, REMOVED, PHI_CORE_EVENT].contains(&kind)
}
