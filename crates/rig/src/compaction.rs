//! rig's compactor: the working state of a conversation, as an overlay.

use loopstore::compact::CompactOutcome;
use loopstore::internal::CancelOnDrop;
use loopstore::{CancelFlag, CompactRequest, CompactTrigger, KeepRecent, SessionHandle};
use rig_core::id::ConversationId;
use rig_core::memory::{Compactor, MemoryError};
use rig_core::message::Message;
use rig_core::wasm_compat::WasmBoxedFuture;

use crate::error::Error;
use crate::memory::{LoopstoreMemory, originals, record};
use crate::restored::RestoredMessage;
use crate::{pool, state};

/// The text of a compaction in place of the messages that left rig's window: the document of
/// loopstore's `digest`, or of the strategy of the memory's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingState {
    text: String,
    /// The number of messages of the conversation that the text replaces.
    covered: usize,
}

impl WorkingState {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the number of messages that the text replaces, counted from the first message of the conversation.
    pub fn covered(&self) -> usize {
        self.covered
    }
}

/// The text quotes tools and users, so it has the role of the user, and never the authority of the system.
impl From<WorkingState> for Message {
    fn from(state: WorkingState) -> Self {
        Self::user(state.text)
    }
}

/// rig's compactor of a store's conversations, from [`LoopstoreMemory::compacting`].
///
/// A compaction writes an overlay through the last turn that left the window completely. Other readers of the session
/// see the overlay, and `undo` undoes it. The messages stay. A repeated compaction, for example after a restart,
/// finds the overlay and writes no other one.
#[derive(Clone, Debug)]
pub struct WorkingStateCompactor {
    memory: LoopstoreMemory,
}

impl LoopstoreMemory {
    /// Returns the arguments of rig's `CompactingMemory`: the memory below it, whose loads return the originals, and
    /// the compactor. `CompactingMemory` counts the messages that it has passed on, so each load must return all of
    /// them.
    ///
    /// ```
    /// use loopstore::Store;
    /// use loopstore_rig::LoopstoreMemory;
    /// use rig_memory::{CompactingMemory, SlidingWindowMemory};
    ///
    /// let (originals, compactor) = LoopstoreMemory::new(Store::in_memory()?).compacting();
    /// let window = SlidingWindowMemory::last_messages(20);
    /// let memory = CompactingMemory::new(originals, window, compactor);
    /// # drop(memory);
    /// # Ok::<(), loopstore::OpenError>(())
    /// ```
    #[must_use = "both go into the adapter"]
    pub fn compacting(self) -> (Self, WorkingStateCompactor) {
        let memory = self.clone();
        (self.originals(), WorkingStateCompactor { memory })
    }
}

impl Compactor for WorkingStateCompactor {
    type Artifact = WorkingState;

    fn compact<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
        evicted: &'a [Message],
        carry_over: Option<&'a WorkingState>,
    ) -> WasmBoxedFuture<'a, Result<WorkingState, MemoryError>> {
        Box::pin(async move {
            let session = self.memory.session(conversation_id)?;
            let (evicted, covered) = (
                evicted.to_vec(),
                carry_over.map_or(0, |state| state.covered),
            );
            let cancel = CancelOnDrop::default();
            let flag = cancel.0.clone();
            Ok(pool::run(move || compact(&session, &evicted, covered, flag)).await?)
        })
    }
}

fn compact(
    session: &SessionHandle,
    evicted: &[Message],
    covered: usize,
    cancel: CancelFlag,
) -> Result<WorkingState, Error> {
    let record = record(session)?;
    let given = originals(&record);
    let end = end_of(&given, evicted, covered).ok_or_else(|| Error::NotInRecord {
        conversation: session.id().to_string(),
    })?;
    let lost: usize = given.iter().take(end).map(|given| given.parts).sum();
    if lost > 0 {
        write_overlay(session, record.len().saturating_sub(lost), cancel)?;
    }
    Ok(WorkingState {
        text: state::of(&session.context()?, &record, lost),
        covered: end,
    })
}

/// Returns the number of messages of the record up to the end of the evicted ones: right after the covered
/// messages, else at their last position.
fn end_of(record: &[RestoredMessage], evicted: &[Message], covered: usize) -> Option<usize> {
    let stands_at = |at: usize| {
        let found = record.get(at..at.checked_add(evicted.len())?)?;
        let is_same = found
            .iter()
            .zip(evicted)
            .all(|(given, evicted)| given.message == *evicted);
        is_same.then_some(at + evicted.len())
    };
    let last = record.len().checked_sub(evicted.len())?;
    stands_at(covered).or_else(|| (0..=last).rev().find_map(stands_at))
}

/// Compacts all turns except those with the last `kept` messages.
fn write_overlay(session: &SessionHandle, kept: usize, cancel: CancelFlag) -> Result<(), Error> {
    let kept = u32::try_from(kept).unwrap_or(u32::MAX);
    let policy = session
        .policy()
        .clone()
        .keep_first(0)
        .keep_recent(KeepRecent::Messages(kept));
    let request = CompactRequest {
        trigger: CompactTrigger::Length,
        cancel,
        ..policy.request()
    };
    let report = session.compact(&request)?;
    match report.outcome {
        // The text comes from the context in each of these cases.
        CompactOutcome::Committed
        | CompactOutcome::NotNeeded
        | CompactOutcome::NoGain
        | CompactOutcome::Conflict => Ok(()),
        CompactOutcome::Vetoed | CompactOutcome::Failed => Err(Error::NotCompacted {
            conversation: session.id().to_string(),
            reason: match (report.too_small, report.error) {
                (Some(small), _) => small.to_string(),
                (None, Some(error)) => error,
                (None, None) => "a hook refused it".to_owned(),
            },
        }),
    }
}
