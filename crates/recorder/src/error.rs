//! The errors of a recorder: events that are invalid in the state of their loop, and errors of the store.

use loopstore::extend::StoreError;

/// An error of recording an event. Nothing of the event was kept, and the recorder is unchanged;
/// after [`StoreError::Unconfirmed`] the loop must be resumed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An error of the store, such as [`StoreError::LeaseLost`] or [`StoreError::LeaseHeld`].
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The text is not an event.
    #[error("not an event: {0}")]
    NotAnEvent(#[from] serde_json::Error),
    /// The recorder does not drive this loop: the loop was not begun with this recorder, or has ended.
    #[error("`{event}` for loop `{loop_id}`, which has not begun or has ended")]
    NotBegun {
        /// The event.
        event: &'static str,
        /// The loop.
        loop_id: String,
    },
    /// The loop has begun before.
    #[error("loop `{0}` has already begun; resume it, or use another id")]
    AlreadyBegun(String),
    /// The loop has ended and cannot be resumed.
    #[error(
        "loop `{loop_id}` is {status} and cannot be resumed; begin a new loop with it as the parent"
    )]
    Ended {
        /// The loop.
        loop_id: String,
        /// Its status.
        status: String,
    },
    /// No turn is open.
    #[error("`{event}` for loop `{loop_id}` outside a turn")]
    NoTurn {
        /// The event.
        event: &'static str,
        /// The loop.
        loop_id: String,
    },
    /// A turn is open.
    #[error("a turn of loop `{loop_id}` begins before turn {open} has ended")]
    TurnOpen {
        /// The loop.
        loop_id: String,
        /// The open turn.
        open: i64,
    },
    /// The index of a turn is out of range, or is not larger than the index before it.
    #[error(
        "loop `{loop_id}` cannot have a turn {given} now; its last one is {}",
        shown(last)
    )]
    TurnIndex {
        /// The loop.
        loop_id: String,
        /// The index.
        given: i64,
        /// The index of the last turn.
        last: Option<i64>,
    },
    /// A message ended or was updated that never began.
    #[error("`{event}` for {message} of loop `{loop_id}` that never began")]
    NoMessage {
        /// The event.
        event: &'static str,
        /// The loop.
        loop_id: String,
        /// The message.
        message: String,
    },
    /// A message began twice.
    #[error("{message} of loop `{loop_id}` begins before the previous one has ended")]
    MessageOpen {
        /// The loop.
        loop_id: String,
        /// The message.
        message: String,
    },
    /// A tool call ended or was updated that never started.
    #[error("`{event}` for call `{call}` of loop `{loop_id}`, which is not running")]
    NoCall {
        /// The event.
        event: &'static str,
        /// The loop.
        loop_id: String,
        /// The call.
        call: String,
    },
    /// A tool call started twice in one turn.
    #[error("call `{call}` of loop `{loop_id}` has already started in this turn")]
    CallOpen {
        /// The loop.
        loop_id: String,
        /// The call.
        call: String,
    },
    /// The event contradicts earlier ones.
    #[error("loop `{loop_id}`: {what}")]
    Contradiction {
        /// The loop.
        loop_id: String,
        /// The contradiction.
        what: String,
    },
    /// An id is empty or too long.
    #[error("{what}: {error}")]
    Id {
        /// The kind of the id.
        what: &'static str,
        /// The reason.
        error: loopstore::model::InvalidId,
    },
    /// An async call on the recorder panicked, or the runtime shut down before the call began.
    #[cfg(feature = "tokio")]
    #[error(transparent)]
    Call(#[from] loopstore::Error),
}

/// The result of recording.
pub type RecordResult<T> = Result<T, RecordError>;

fn shown(last: &Option<i64>) -> String {
    last.map_or_else(|| "none".to_owned(), |last| last.to_string())
}
