//! The reasons for which messages cannot be edited.

/// The reason for which an edit, or its restoration, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditRefusal {
    /// Extensions and system prompts are in no context.
    #[error(
        "message {seq} of loop `{loop_id}` is an extension, which no context shows; edit a message of a turn"
    )]
    Extension {
        /// The loop.
        loop_id: String,
        /// The sequence of the message.
        seq: u32,
    },
    /// The turn is not complete.
    #[error("turn {turn} of loop `{loop_id}` is in flight; edit it once it is complete")]
    InFlight {
        /// The loop.
        loop_id: String,
        /// The turn.
        turn: u32,
    },
    /// The message is not on the chain of the leaf.
    #[error("{what} is not on the chain of loop `{leaf}`; name a leaf whose chain has it")]
    NotOnChain {
        /// The turn, message or call.
        what: String,
        /// The leaf.
        leaf: String,
    },
    /// The message is pinned.
    #[error("message {seq} of loop `{loop_id}` is pinned; unpin it, then edit it")]
    Pinned {
        /// The loop.
        loop_id: String,
        /// The sequence of the message.
        seq: u32,
    },
    /// The message or the part is removed already.
    #[error("message {seq} of loop `{loop_id}` is removed already; restore it, then edit it")]
    Removed {
        /// The loop.
        loop_id: String,
        /// The sequence of the message.
        seq: u32,
    },
    /// The message has no such part.
    #[error(
        "message {seq} of loop `{loop_id}` has {parts} parts, numbered from 0, and no part {part}"
    )]
    NoPart {
        /// The loop.
        loop_id: String,
        /// The sequence of the message.
        seq: u32,
        /// The part.
        part: u32,
        /// The number of parts.
        parts: usize,
    },
    /// Nothing is left to edit.
    #[error("nothing to edit: no message matches, {skipped} were skipped")]
    NoMatch {
        /// The number of messages that match and were skipped.
        skipped: usize,
    },
    /// The context would become smaller by fewer tokens than the request requires.
    #[error(
        "the edit would free {freed} tokens, and at least {at_least} are required; require fewer"
    )]
    TooLittle {
        /// The tokens by which the context would become smaller.
        freed: u64,
        /// The tokens that the request requires.
        at_least: u64,
    },
    /// A filter without a condition would match every message.
    #[error("the filter has no condition; give words, a tool, a size or an age")]
    EmptyFilter,
    /// Nothing would be left of the context.
    #[error("nothing would be left of the context; keep a message")]
    Everything,
    /// A replacement needs a text, and no other edit has one.
    #[error("{0}")]
    Text(&'static str),
    /// A provider would reject what is left.
    #[error(
        "a provider would reject what is left ({kind} at message {message}); edit the whole turn"
    )]
    Fault {
        /// The kind of the fault.
        kind: String,
        /// The index of the message in the context.
        message: usize,
    },
    /// The edits of the run have other targets too.
    #[error("run `{run}` edits {others} too; undo the run, or restore all of them")]
    OtherTargets {
        /// The run.
        run: String,
        /// The addresses of the other messages and parts.
        others: String,
    },
    /// No live edit has these targets.
    #[error("no live edit of these messages; `history` lists the runs")]
    NotEdited,
}
