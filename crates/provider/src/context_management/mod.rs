//! Context editing of Anthropic: the setting of a request, the report in an answer, and the tool uses and thinking that
//! a report refers to.
//!
//! [`ContextManagement`] is the field `context_management` of a request. The provider then clears old tool results and
//! thinking before the model reads the conversation. The answer reports how many were cleared, which
//! [`read`](crate::read()) keeps as the answer's [`AppliedEdits`](loopstore_model::AppliedEdits). The report names no
//! message; [`resolve()`] finds them in the conversation that was sent.
//!
//! A streamed answer has its report in the event `message_delta`. Clients put the events of a stream together to one
//! message with the field `context_management`; that message is read as any other answer.

mod report;
mod resolve;
mod setting;
#[cfg(test)]
mod tests;

pub use report::read_report;
pub use resolve::{
    BlockPlace, EditedRequest, ResolvedEdits, ResolvedThinking, ResolvedToolUse, UnresolvedEdit,
    resolve,
};
pub use setting::{
    BETA, ClearThinking, ClearToolInputs, ClearToolUses, ClearTrigger, ContextManagement,
    KeptThinking,
};
