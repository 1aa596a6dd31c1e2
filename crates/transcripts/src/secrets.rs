//! Removes secrets from imported messages before they are stored.
//!
//! The digests of records are computed before the redaction, with the key of the database, so that stored messages are
//! still recognised. Once a session is redacted, all later imports into it are redacted too, even if not requested.

use loopstore::extend::{SessionFlags, SessionKey, StoreError, StoreResult};
use loopstore::model::{AgentMessage, LoopId, LoopRecord, SealingProvider};
use loopstore_redact::add_counts;
use loopstore_redact::drop_sealed;
use loopstore_redact::{RedactionPolicy, Redactor};

use super::matching::RecordDigest;
use super::origin::Origin;
use super::writer::StoreSink;
use super::{FoundCompaction, FoundEffect, ImportError, SessionHead};

/// The state of the redaction of an import.
pub(super) struct Secrets {
    /// True if all sessions are redacted; false if only those that are redacted already.
    pub(super) all: bool,
    key: Vec<u8>,
    redactor: Redactor,
}

impl Secrets {
    pub(super) fn new(key: Vec<u8>) -> Self {
        let redactor = Redactor::new(&key).remembering();
        Self {
            all: false,
            key,
            redactor,
        }
    }

    /// Redacts the names that identify earlier imports, always in the same way.
    pub(super) fn origin(&self, from: &Origin) -> Origin {
        let name = |text: &String| self.name(text);
        Origin {
            format: from.format.clone(),
            path: name(&from.path),
            file_name: name(&from.file_name),
            modified_at: from.modified_at,
        }
    }

    pub(super) fn name(&self, text: &str) -> String {
        let mut redactor = Redactor::new(&self.key);
        redactor.text(text).unwrap_or_else(|| text.to_owned())
    }

    fn head(&mut self, head: &mut SessionHead) -> StoreResult<()> {
        if let Some(new) = self.redactor.described(&head.session).map_err(invalid)? {
            head.session = new;
        }
        for label in [&mut head.title, &mut head.project].into_iter().flatten() {
            if let Some(new) = self.redactor.text(label) {
                *label = new;
            }
        }
        Ok(())
    }

    /// Returns a message without its secrets.
    pub(super) fn redacted(&mut self, message: &AgentMessage) -> StoreResult<AgentMessage> {
        let new = self.redactor.message(message).map_err(invalid)?;
        Ok(new.unwrap_or_else(|| message.clone()))
    }

    fn compaction(&mut self, found: &mut FoundCompaction) -> StoreResult<()> {
        if let Some(new) = self.redactor.meta(found.record.as_str()) {
            found.record = loopstore::model::Json::parse(&new).map_err(invalid)?;
        }
        match &mut found.effect {
            FoundEffect::Summary { messages, .. } => {
                for message in messages {
                    if let Some(new) = self.redactor.message(message).map_err(invalid)? {
                        *message = new;
                    }
                }
            }
            FoundEffect::SummaryWithin { message, .. } => {
                if let Some(new) = self.redactor.message(message).map_err(invalid)? {
                    **message = new;
                }
            }
            FoundEffect::EditedResults { replaced, .. } => {
                for (_, text) in replaced {
                    if let Some(new) = self.redactor.text(text) {
                        *text = new;
                    }
                }
            }
            FoundEffect::Block(block) => {
                if let Some(new) = self.redactor.described(&**block).map_err(invalid)? {
                    **block = new;
                }
            }
        }
        Ok(())
    }
}

/// The place of a message.
pub(super) struct MessageTurn<'a> {
    pub(super) at: usize,
    pub(super) loop_id: &'a LoopId,
    pub(super) begins: bool,
}

/// A message of an unfinished turn: a later secret in the turn removes its opaque parts.
pub(super) struct HeldMessage {
    at: usize,
    loop_id: LoopId,
    message: AgentMessage,
    origin: RecordDigest,
    bytes: usize,
}

fn messages_of(found: &FoundCompaction) -> Option<&[AgentMessage]> {
    match &found.effect {
        FoundEffect::Summary { messages, .. } => Some(messages),
        _ => None,
    }
}

fn invalid(error: serde_json::Error) -> StoreError {
    StoreError::Invalid(format!("a record cannot be redacted: {error}"))
}

impl StoreSink<'_> {
    /// Redacts all sessions of the transcript, or only those that are redacted already, according to a policy.
    #[must_use]
    pub fn redacting(mut self, all: bool, policy: &RedactionPolicy) -> Self {
        self.secrets.all = all;
        self.secrets.redactor = self.secrets.redactor.with_policy(policy.clone());
        if all {
            self.report.secrets = Some(Default::default());
        }
        self
    }

    /// True if the session at `at` is redacted.
    pub(super) fn redacts(&self, at: usize) -> bool {
        self.sessions[at].redacts
    }

    /// Redacts the description of a session, stored or new. Returns true if its messages must be redacted too.
    pub(super) fn redact_head(
        &mut self,
        stored: Option<SessionKey>,
        head: &mut SessionHead,
    ) -> StoreResult<bool> {
        let flags = match stored {
            Some(key) => self.write.flags(key)?,
            None => SessionFlags {
                redacts: self.secrets.all || self.is_of_redacted(head)?,
                ..SessionFlags::default()
            },
        };
        if !flags.redacts && !self.secrets.all {
            return Ok(false);
        }
        if let Some(key) = stored.filter(|_| !flags.redacts) {
            self.report.unredacted.push(head.session.session_id.clone());
            self.mark(key)?;
        }
        self.secrets.head(head)?;
        self.report_secrets();
        Ok(true)
    }

    /// True if the session that started this one is redacted: both saw the same secrets.
    fn is_of_redacted(&self, head: &SessionHead) -> StoreResult<bool> {
        let Some(by) = &head.session.parent_spawn_ref else {
            return Ok(false);
        };
        if let Some(at) = self.by_id.get(&by.parent_session_id) {
            return Ok(self.redacts(*at));
        }
        match self.write.session(&by.parent_session_id)? {
            Some(row) => Ok(self.write.flags(row.key)?.redacts),
            None => Ok(false),
        }
    }

    /// Marks a session, so that later imports into it are redacted.
    pub(super) fn mark(&mut self, key: SessionKey) -> StoreResult<()> {
        let mut flags = self.write.flags(key)?;
        flags.redacts = true;
        self.write.put_flags(key, &flags)
    }

    pub(super) fn redact_loop(&mut self, record: &mut LoopRecord) -> StoreResult<()> {
        let new = self.secrets.redactor.described(record).map_err(invalid)?;
        if let Some(new) = new {
            *record = new;
        }
        self.report_secrets();
        Ok(())
    }

    /// Redacts a message. Returns true if it changed.
    pub(super) fn redact_message(
        &mut self,
        message: AgentMessage,
    ) -> Result<(AgentMessage, bool), ImportError> {
        let new = self.secrets.redactor.message(&message).map_err(invalid)?;
        let changed = new.is_some();
        Ok((new.unwrap_or(message), changed))
    }

    /// Removes the opaque parts that were made from a secret: those in a redacted message and earlier in its turn, and
    /// every provider's compaction after the secret.
    pub(super) fn without_bound(
        &mut self,
        turn: &MessageTurn<'_>,
        mut message: AgentMessage,
        has_secret: bool,
    ) -> StoreResult<AgentMessage> {
        let is_same_loop = |held: &HeldMessage| (held.at, &held.loop_id) == (turn.at, turn.loop_id);
        if turn.begins || !self.held.iter().all(is_same_loop) {
            self.release_held()?;
        }
        let session = &mut self.sessions[turn.at];
        session.has_secrets |= has_secret;
        let Some(state) = session.loops.get_mut(turn.loop_id) else {
            return Ok(message);
        };
        state.turn_has_secrets = has_secret || (state.turn_has_secrets && !turn.begins);
        if session.has_secrets {
            drop_sealed(&mut message, state.turn_has_secrets);
        }
        if has_secret {
            for held in &mut self.held {
                drop_sealed(&mut held.message, true);
            }
        }
        Ok(message)
    }

    /// Holds a message until its turn has ended.
    pub(super) fn hold(
        &mut self,
        at: usize,
        loop_id: &LoopId,
        message: AgentMessage,
        origin: RecordDigest,
        bytes: usize,
    ) {
        self.held.push(HeldMessage {
            at,
            loop_id: loop_id.clone(),
            message,
            origin,
            bytes,
        });
    }

    /// Appends the held messages of a turn that has ended.
    pub(super) fn release_held(&mut self) -> StoreResult<()> {
        for held in std::mem::take(&mut self.held) {
            let message = held.message.into();
            self.queue(held.at, &held.loop_id, message, held.origin, held.bytes)?;
        }
        Ok(())
    }

    /// Redacts a compaction. Returns true if the compaction must be left out: it is a provider's, and it or its session
    /// contains a secret.
    pub(super) fn redact_compaction(
        &mut self,
        at: usize,
        found: &mut FoundCompaction,
    ) -> StoreResult<bool> {
        let is_sealed = SealingProvider::of_strategy(&found.strategy).is_some();
        let before = messages_of(found).filter(|_| is_sealed).map(<[_]>::to_vec);
        self.secrets.compaction(found)?;
        self.report_secrets();
        let changed = before.is_some_and(|before| messages_of(found) != Some(&before[..]));
        Ok(is_sealed && (changed || self.sessions[at].has_secrets))
    }

    /// True if a compaction is stored that was imported before its session was redacted.
    pub(super) fn knows_compaction(
        &mut self,
        at: usize,
        found: &FoundCompaction,
    ) -> StoreResult<bool> {
        let session = &mut self.sessions[at];
        let Some(key) = session
            .key
            .filter(|_| super::runs::own_run(found).is_none())
        else {
            return Ok(false);
        };
        let id = {
            let id = &session.head.session.session_id;
            let owner = loopstore::internal::run_owner(self.write, id)?;
            super::runs::run_id(&owner, found)?
        };
        session.has_run(&*self.write, key, &id)
    }

    /// Counts the secrets that were found in a new message.
    pub(super) fn count_secrets(&mut self, at: usize) {
        if self.redacts(at) {
            self.report_secrets();
        }
    }

    /// Adds the secrets that were replaced since the last call to the report.
    pub(super) fn report_secrets(&mut self) {
        let counts = self.secrets.redactor.take_counts();
        add_counts(self.report.secrets.get_or_insert_default(), &counts.secrets);
        add_counts(&mut self.report.held_back, &counts.held_back);
    }

    /// Discards the counts since the last call: the message is stored already.
    pub(super) fn known_already(&mut self) {
        self.secrets.redactor.take_counts();
    }
}
