//! rig's demotion hook: messages that leave a window stay in the record.

use std::fmt::Write as _;

use loopstore::{KeyQuery, SessionHandle};
use rig_core::id::ConversationId;
use rig_core::memory::{DemotionHook, MemoryError};
use rig_core::message::Message;
use rig_core::wasm_compat::WasmBoxedFuture;

use crate::error::Error;
use crate::memory::{KEYS, LoopstoreMemory, digest, originals, record};
use crate::pool;
use crate::restored::{RestoredMessage, restore_messages};
use crate::state::summaries;
use crate::stored::stored;

/// The prefix of the keys of demoted messages.
const DEMOTED: &str = "rig/demoted/";

/// Messages that leave a window are kept, and [`LoopstoreMemory::recall`] finds them. The messages of a conversation that such a
/// memory appended are stored already; over a memory of another kind (rig's `InMemoryConversationMemory`)
/// the demoted messages are appended to the session of the conversation's id, each batch once, however often it is
/// delivered.
impl DemotionHook for LoopstoreMemory {
    fn on_demote<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
        messages: Vec<Message>,
    ) -> WasmBoxedFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move {
            let session = self.session(conversation_id)?;
            Ok(pool::run(move || keep(&session, &messages)).await?)
        })
    }
}

fn keep(session: &SessionHandle, messages: &[Message]) -> Result<(), Error> {
    let record = originals(&record(session)?);
    let batch = stored(messages)?;
    if messages.is_empty() || holds(&record, messages) {
        return Ok(());
    }
    let own = KeyQuery::prefix(KEYS).limit(1);
    let new = if !session.append_keys(&own)?.is_empty() {
        stored(&unknown(session, &record, messages)?)?
    } else if begins_with(messages, &record) {
        // A restarted adapter delivers all messages again.
        let known = record.iter().map(|given| given.parts).sum();
        batch.iter().skip(known).cloned().collect()
    } else {
        batch.clone()
    };
    if new.is_empty() {
        return Ok(());
    }
    let mut key = DEMOTED.to_owned();
    for byte in digest(&batch)? {
        // Writing to a text does not fail.
        let _ = write!(key, "{byte:02x}");
    }
    // The new messages of a batch differ each time that it is delivered: the first delivery counts.
    session.append_batch([(Some(key), new)])?;
    Ok(())
}

/// Returns the messages that are neither in the record, in its order, nor summaries of it.
fn unknown(
    session: &SessionHandle,
    record: &[RestoredMessage],
    messages: &[Message],
) -> Result<Vec<Message>, Error> {
    let context = session.context()?;
    let summaries = restore_messages(summaries(&context));
    let mut rest = record;
    let mut unknown = Vec::new();
    for message in messages {
        match rest.iter().position(|given| given.message == *message) {
            Some(at) => rest = rest.get(at + 1..).unwrap_or_default(),
            None if summaries.iter().any(|given| given.message == *message) => {}
            None => unknown.push(message.clone()),
        }
    }
    Ok(unknown)
}

/// True if the record has these messages in a row.
fn holds(record: &[RestoredMessage], messages: &[Message]) -> bool {
    record
        .windows(messages.len())
        .any(|row| same(row, messages))
}

fn begins_with(messages: &[Message], record: &[RestoredMessage]) -> bool {
    messages
        .get(..record.len())
        .is_some_and(|first| same(record, first))
}

fn same(record: &[RestoredMessage], messages: &[Message]) -> bool {
    record
        .iter()
        .zip(messages)
        .all(|(given, message)| given.message == *message)
}
