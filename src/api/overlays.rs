//! The overlays of a session, which can be undone: compactions and pins.

use super::SessionHandle;
use super::entries::EntryRef;
use super::error::Result;
use crate::compact::{
    CompactReport, CompactRequest, CompactedExtent, FlipReport, FlipRequest, Pin, PinRef,
    PinReport, PinRequest, RecordedRun, RepairReport, compact_session_loops,
    record_provider_compaction, repair_session,
};
use crate::context::{BuildOptions, Context, build_context_from_session, session_of};
use crate::edit::{EditReport, EditRequest, EditTarget};
use crate::model::{AgentMessage, Json, LoopId, SealingProvider, Time};
use crate::store::{self, StoreError};

impl SessionHandle {
    /// Compacts the chain of the requested leaf, or of the end of the line if the request has no leaf.
    /// [`Policy::request`](crate::Policy::request) returns a request with the settings of a policy.
    ///
    /// # Errors
    /// If the session or the loop does not exist, or the store fails. A strategy that fails is no error: the report
    /// has the outcome `failed`.
    pub fn compact(&self, request: &CompactRequest) -> Result<CompactReport> {
        let leaf = match &request.leaf {
            Some(leaf) => leaf.clone(),
            None => self.leaf_or_not_found()?,
        };
        let system = self.kept_prompt_tokens(&leaf)?;
        let mut request = CompactRequest {
            leaf: Some(leaf),
            ..request.clone()
        };
        request.policy.window.count_system_prompt(system);
        Ok(compact_session_loops(self.backend(), self.id(), &request)?)
    }

    /// Builds the context of the next model call and records a manifest of it: one row, whose id is
    /// [`Context::manifest`]. Another process builds the same context from the id, so a job queue or a workflow engine
    /// passes the id in place of the messages.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if the session does not exist. Also if the store fails.
    ///
    /// # Examples
    /// ```
    /// use loopstore::context::AsOf;
    /// use loopstore::*;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// chat.append([Message::user("Will it rain?")])?;
    /// let id = chat.record_context()?.manifest.unwrap_or_default();
    /// chat.append([Message::assistant("It will.")])?;
    /// assert_eq!(chat.context_as_of(AsOf::manifest(id))?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_context(&self) -> Result<Context> {
        let options = BuildOptions {
            leaf: Some(self.leaf_or_not_found()?),
            system_prompts: self.policy().system_prompts,
            context_management: self.policy().context_management(),
            record: true,
            ..BuildOptions::default()
        };
        let store = self.backend();
        Ok(build_context_from_session(store, self.id(), &options)?)
    }

    /// Undoes the last active compaction of the line.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if there is no such compaction. Also if the store fails.
    pub fn undo(&self) -> Result<FlipReport> {
        Ok(crate::compact::undo(
            self.backend(),
            self.id(),
            &self.flip()?,
        )?)
    }

    /// Reactivates the compaction that was undone last.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if there is no such compaction. Also if the store fails.
    pub fn redo(&self) -> Result<FlipReport> {
        Ok(crate::compact::redo(
            self.backend(),
            self.id(),
            &self.flip()?,
        )?)
    }

    /// Edits messages of the line: removes, clears or replaces them in contexts; see [`edit`](crate::edit()).
    ///
    /// # Errors
    /// As [`edit`](crate::edit()). [`Error::NotFound`](crate::Error::NotFound) if the session does not exist.
    pub fn edit(&self, request: &EditRequest) -> Result<EditReport> {
        let leaf = match &request.leaf {
            Some(leaf) => leaf.clone(),
            None => self.leaf_or_not_found()?,
        };
        let request = EditRequest {
            leaf: Some(leaf),
            ..request.clone()
        };
        Ok(crate::edit::edit(self.backend(), self.id(), &request)?)
    }

    /// Restores messages of the line: undoes the live runs of edits that have these targets.
    ///
    /// # Errors
    /// As [`restore`](crate::restore). [`Error::NotFound`](crate::Error::NotFound) if the session does not exist.
    pub fn restore(&self, targets: &[EditTarget]) -> Result<Vec<FlipReport>> {
        let leaf = self.leaf_or_not_found()?;
        let (backend, id) = (self.backend(), self.id());
        Ok(crate::edit::restore(backend, id, Some(&leaf), targets)?)
    }

    /// Recovers a session whose provider rejects, or has lost, its own compaction. Undoes that compaction and
    /// compacts the originals as requested; see [`repair_session`].
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if the session does not exist. Also if the store fails.
    pub fn repair(&self, request: &CompactRequest) -> Result<RepairReport> {
        let leaf = match &request.leaf {
            Some(leaf) => leaf.clone(),
            None => self.leaf_or_not_found()?,
        };
        let request = CompactRequest {
            leaf: Some(leaf),
            ..request.clone()
        };
        Ok(repair_session(self.backend(), self.id(), &request)?)
    }

    /// Records a compaction that a provider made on request, such as OpenAI's `responses.compact`, and returns the id
    /// of the run. In contexts for that provider ([`Policy::provider`](crate::Policy::provider)), `messages`, the
    /// result of the provider, replace everything on the line up to and including one message; later messages follow
    /// them. If the turn of that message is the first of its loop and has later messages, the whole turn follows.
    /// Every other provider reads the originals. [`SessionHandle::undo`] undoes the compaction.
    ///
    /// Do not record a compaction that a provider makes within an answer: appending the answer records it.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if the session does not exist. Also if `messages` contain no
    /// compaction of the provider, if the message is no longer on the line, if no turn was complete before the
    /// message, or if the store fails.
    ///
    /// ```
    /// use loopstore::provider::{self, Form};
    /// use loopstore::{EntryRef, Message, Policy, SealingProvider, Store};
    ///
    /// let policy = Policy::new(200_000).provider(SealingProvider::OpenAi);
    /// let chat = Store::in_memory()?.session("weather")?.with_policy(policy);
    /// let done = chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
    /// let last = EntryRef::new(done.loop_id.as_str(), done.seqs.end - 1);
    /// chat.append([Message::user("When?")])?;
    /// let given = serde_json::json!([{"type": "compaction", "id": "cmp_1", "encrypted_content": "…"}]);
    /// let given = provider::read(Form::OpenAiResponses, &given)?;
    /// chat.record_compaction(SealingProvider::OpenAi, &last, given)?;
    /// assert_eq!(chat.context()?.messages.len(), 2);
    /// chat.undo()?;
    /// assert_eq!(chat.context()?.messages.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_compaction(
        &self,
        provider: SealingProvider,
        through: &EntryRef,
        messages: Vec<AgentMessage>,
    ) -> Result<String> {
        let leaf = self.leaf_or_not_found()?;
        let of_provider = |message: &AgentMessage| {
            let found = message.last_compaction();
            found.is_some_and(|(_, by)| by == provider)
        };
        if !messages.iter().any(of_provider) {
            let reason = format!("the messages hold no compaction of {}", provider.as_str());
            return Err(StoreError::Invalid(reason).into());
        }
        let backend = self.backend();
        let run_id = format!(
            "{}-{}",
            provider.as_str(),
            crate::clock::new_uuid().simple()
        );
        store::write(backend, |write| {
            let session = session_of(write, self.id())?;
            let loop_key = |id: &LoopId| {
                let row = write.loop_by_id(session.key, id)?;
                let row = row.ok_or_else(|| StoreError::NoLoop(id.to_string()))?;
                Ok::<_, StoreError>(row.key)
            };
            let what = CompactedExtent {
                leaf: loop_key(&leaf)?,
                provider,
                through: Some((loop_key(&through.loop_id)?, through.seq)),
            };
            let run = RecordedRun {
                run_id: run_id.clone(),
                strategy: provider.strategy(),
                trigger: "provider".to_owned(),
                started_at: Time::now(),
                duration_ms: 0,
                record: Json::null(),
            };
            record_provider_compaction(write, backend.counter(), what, messages, run)
        })?;
        Ok(run_id)
    }

    fn flip(&self) -> Result<FlipRequest> {
        Ok(FlipRequest {
            leaf: Some(self.leaf_or_not_found()?),
            ..FlipRequest::default()
        })
    }

    /// Pins messages of the line: every later compaction keeps them word for word.
    ///
    /// # Errors
    /// If the messages do not exist, or the store fails.
    pub fn pin(&self, of: PinRef) -> Result<PinReport> {
        let request = self.pin_request(of)?;
        Ok(crate::compact::pin(self.backend(), self.id(), &request)?)
    }

    /// Removes pins: the next compaction treats the messages like any others.
    ///
    /// # Errors
    /// If none of these messages is pinned, or the store fails.
    pub fn unpin(&self, of: PinRef) -> Result<PinReport> {
        let request = self.pin_request(of)?;
        Ok(crate::compact::unpin(self.backend(), self.id(), &request)?)
    }

    /// Returns the pins of the line.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if the session does not exist. Also if the store fails.
    pub fn pins(&self) -> Result<Vec<Pin>> {
        let leaf = self.leaf_or_not_found()?;
        let list = crate::compact::pins(self.backend(), self.id(), Some(&leaf))?;
        Ok(list.pins)
    }

    fn pin_request(&self, of: PinRef) -> Result<PinRequest> {
        let leaf = Some(self.leaf_or_not_found()?);
        Ok(PinRequest { of, leaf })
    }

    fn kept_prompt_tokens(&self, leaf: &LoopId) -> Result<u64> {
        let mut kept = std::mem::take(&mut *self.kept());
        let which = self.policy().system_prompts;
        let tokens = kept
            .system_prompt(self.backend(), self.id(), leaf, which)?
            .tokens;
        *self.kept() = kept;
        Ok(tokens)
    }
}
