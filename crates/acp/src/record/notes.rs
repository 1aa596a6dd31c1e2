//! The kinds of the messages that no model sees.

/// The numbers of the context window and the cost at the end of a prompt.
pub(crate) const USAGE: &str = "acp.usage";
/// A question for permission, with the answer.
pub(crate) const PERMISSION: &str = "acp.permission";
/// A change of the mode, the model or another option of the session.
pub(crate) const OPTION: &str = "acp.option";
/// A cancellation by the editor.
pub(crate) const CANCEL: &str = "acp.cancel";
/// The numbers of what was not recorded since the previous prompt.
pub(crate) const UNRECORDED: &str = "acp.unrecorded";
/// An update of another kind, whole.
pub(crate) const UPDATE: &str = "acp.update";
