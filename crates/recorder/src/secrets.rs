//! Redaction of events before they are stored.
//!
//! Each event is redacted by itself: secrets of an earlier event are not searched in a later
//! one, so that events with the same message are redacted to the same message.

use loopstore::extend::{self as store, SessionKey, StoreResult, StoreWrite};
use loopstore::model::AgentMessage;
use loopstore_redact::Redactor;

use crate::event::AgentEvent;
use crate::{RecordResult, SessionRecorder};

impl SessionRecorder<'_> {
    /// Returns an event in the form in which it is recorded.
    pub(crate) fn redacted(&mut self, event: AgentEvent) -> RecordResult<AgentEvent> {
        self.prepare_redactor()?;
        let Some(mut redactor) = self.redactor.take() else {
            return Ok(event);
        };
        let done = without_secrets(&mut redactor, event);
        self.redactor = Some(redactor);
        Ok(done?)
    }

    /// Creates the redactor if one is needed, and redacts the name of the owner, which leases store.
    pub(crate) fn prepare_redactor(&mut self) -> RecordResult<()> {
        if !self.options.redact || self.redactor.is_some() {
            return Ok(());
        }
        let mut redactor = Redactor::new(&store::read(&*self.store, |read| read.import_key())?);
        if let Some(owner) = redactor.text(&self.options.owner) {
            self.options.owner = owner;
        }
        redactor.take_counts();
        self.redactor = Some(redactor);
        Ok(())
    }

    /// Returns the number of secrets replaced in the events so far, by type. A message in several events is counted
    /// for each event.
    pub fn secrets(&self) -> std::collections::BTreeMap<String, u64> {
        let redactor = self.redactor.as_ref();
        redactor.map_or_else(Default::default, |redactor| redactor.counts().clone())
    }
}

/// Marks a session as redacted while it is recorded.
pub(crate) fn mark(write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<()> {
    let mut flags = write.flags(session)?;
    if flags.redacts {
        return Ok(());
    }
    flags.redacts = true;
    write.put_flags(session, &flags)
}

fn without_secrets(
    redactor: &mut Redactor,
    mut event: AgentEvent,
) -> serde_json::Result<AgentEvent> {
    for message in messages(&mut event) {
        if let Some(new) = redactor.message(message)? {
            *message = new;
        }
    }
    Ok(redactor.described(&event)?.unwrap_or(event))
}

/// Returns the messages of an event: thinking in them loses its signature when it changes.
fn messages(event: &mut AgentEvent) -> Vec<&mut AgentMessage> {
    match event {
        AgentEvent::MessageStart(event) => vec![&mut event.message],
        AgentEvent::MessageUpdate(event) => event.message.iter_mut().collect(),
        AgentEvent::MessageEnd(event) => vec![&mut event.message],
        AgentEvent::TurnEnd(event) => event
            .message
            .iter_mut()
            .chain(&mut event.tool_results)
            .collect(),
        AgentEvent::AgentEnd(event) => event.messages.iter_mut().collect(),
        _ => Vec::new(),
    }
}
