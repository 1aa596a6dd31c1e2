//! What an agent calls before each model call.

use std::sync::Arc;

use crate::compact::{
    BudgetTooSmall, CompactOutcome, CompactReport, CompactRequest, CompactTrigger, CompactionHook,
    compact_session_loops,
};
use crate::compaction::{CompactionConfig, ContextConfig, DIGEST, DigestCompaction};
use crate::context::{BuildError, BuildOptions, Context, LiveContext, build_context_from_session};
use crate::model::{LoopId, SessionId};
use crate::provider::{Form, ProviderRequest};
use crate::store::{SessionStore, StoreError};

/// Keeps the contexts of an agent within its window.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, append, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let id = SessionId::new("s")?;
/// store::write(&store, |write| {
///     let key = session::create_session(write, &Session::new(id.clone(), "agent"), None, None)?;
///     let first = LoopRecord::new(LoopId::generate(), None);
///     let loop_key = session::create_loop(write, key, &first)?;
///     let prompt = AgentMessage::from(Message::user("Will it rain?"));
///     append::append(write, loop_key, vec![prompt.into()], &HeuristicTokenCounter)
/// })?;
/// let compactor = Compactor::new(&store, CompactionConfig::default(), ContextConfig::default());
/// let next = compactor.maybe_compact(&id, None)?;
/// assert_eq!(next.context.messages.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Compactor<'a> {
    store: &'a dyn SessionStore,
    request: CompactRequest,
    form: Option<Form>,
}

/// What the next model call gets.
#[derive(Clone, Debug)]
pub struct NextCall {
    /// The context; it fits the window.
    pub context: Context,
    /// The context as a provider takes it, if a form was named, with what had to be mended.
    pub request: Option<ProviderRequest>,
    /// What was tried, in order; most often one attempt that was not needed.
    pub reports: Vec<CompactReport>,
}

/// Why there is nothing that the next model call could get.
#[derive(Debug, thiserror::Error)]
pub enum CompactorError {
    /// The store failed, or the session or loop is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing that a compaction may give up is enough.
    #[error(transparent)]
    BudgetTooSmall(#[from] BudgetTooSmall),
    /// The context does not fit, and no compaction made it smaller: it was vetoed, failed, or lost
    /// its races.
    #[error("{build} ({report})")]
    NotCompacted {
        /// What does not fit.
        build: BuildError,
        /// How the last attempt ended.
        report: String,
    },
}

impl<'a> Compactor<'a> {
    /// A compactor with a policy and a window.
    pub fn new(
        store: &'a dyn SessionStore,
        config: CompactionConfig,
        window: ContextConfig,
    ) -> Self {
        let request = CompactRequest {
            config,
            window,
            ..CompactRequest::default()
        };
        Self::of_request(store, request)
    }

    /// A compactor that makes this request.
    pub(crate) fn of_request(store: &'a dyn SessionStore, request: CompactRequest) -> Self {
        Self {
            store,
            request,
            form: None,
        }
    }

    /// Adds a hook that is called around each compaction.
    #[must_use]
    pub fn with_hook(mut self, hook: Arc<dyn CompactionHook>) -> Self {
        self.request.hooks.push(hook);
        self
    }

    /// Returns contexts also in the form of this provider.
    ///
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::provider::Form;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let said = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![said.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let (config, window) = (CompactionConfig::default(), ContextConfig::default());
    /// let compactor = Compactor::new(&store, config, window).for_provider(Form::Anthropic);
    /// let next = compactor.maybe_compact(&id, None)?;
    /// assert_eq!(next.request.map(|request| request.len()), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn for_provider(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// Returns the context of a leaf (the session's current loop if not given), compacted if the
    /// policy's trigger fires.
    ///
    /// The trigger looks at stored totals only. An attempt that lost a race is made again, one
    /// whose strategy failed is made again with the digest; at most as many as the policy allows.
    ///
    /// # Errors
    /// If the session or the loop is not there, the store fails, or nothing fits the window.
    pub fn maybe_compact(
        &self,
        session: &SessionId,
        leaf: Option<&LoopId>,
    ) -> Result<NextCall, CompactorError> {
        self.next(session, leaf, CompactTrigger::Policy)
    }

    /// The same after the provider stopped its answer for length: the trigger is not asked.
    ///
    /// # Errors
    /// As [`Compactor::maybe_compact`].
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
    /// # monday.status = LoopStatus::Completed;
    /// # let loop_key = store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &monday)?;
    /// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
    /// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
    /// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
    /// #     Ok(loop_key)
    /// # })?;
    /// let window = ContextConfig { max_context_tokens: 16_000, ..ContextConfig::default() };
    /// let compactor = Compactor::new(&store, CompactionConfig::default(), window);
    /// // The policy sees no need, but the provider did.
    /// assert_eq!(compactor.maybe_compact(&id, None)?.context.messages.len(), 40);
    /// assert!(compactor.compact_for_length(&id, None)?.context.messages.len() < 40);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact_for_length(
        &self,
        session: &SessionId,
        leaf: Option<&LoopId>,
    ) -> Result<NextCall, CompactorError> {
        self.next(session, leaf, CompactTrigger::Length)
    }

    /// Begins a context that is kept from call to call, of this leaf or the session's current loop.
    pub fn live(&self, session: SessionId, leaf: Option<LoopId>) -> LiveContext<'a> {
        let live = LiveContext::new(self.store, session);
        match leaf {
            Some(leaf) => live.of_leaf(leaf),
            None => live,
        }
    }

    /// Does the same as [`Compactor::maybe_compact`] for a context of [`Compactor::live`], and returns it
    /// with what was tried.
    ///
    /// # Errors
    /// As [`Compactor::maybe_compact`].
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let said = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![said.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let (config, window) = (CompactionConfig::default(), ContextConfig::default());
    /// let compactor = Compactor::new(&store, config, window);
    /// let mut live = compactor.live(id, None);
    /// // Before each call of the model:
    /// let (context, reports) = compactor.refresh(&mut live)?;
    /// assert_eq!((context.messages.len(), reports.len()), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh<'l>(
        &self,
        live: &'l mut LiveContext<'a>,
    ) -> Result<(&'l Context, Vec<CompactReport>), CompactorError> {
        let (session, leaf) = (live.session().clone(), live.leaf().cloned());
        let reports = self.compact(&session, leaf.as_ref(), CompactTrigger::Policy)?;
        live.limit(self.request.window.budget());
        match live.refresh() {
            Ok(context) => Ok((context, reports)),
            Err(error) => Err(refused(error, reports.last())),
        }
    }

    pub(crate) fn next(
        &self,
        session: &SessionId,
        leaf: Option<&LoopId>,
        trigger: CompactTrigger,
    ) -> Result<NextCall, CompactorError> {
        let reports = self.compact(session, leaf, trigger)?;
        let budget = self.request.window.budget();
        let options = BuildOptions {
            leaf: leaf.cloned(),
            budget: Some(budget.tokens),
            max_bytes: budget.bytes,
            ..BuildOptions::default()
        };
        let context = build_context_from_session(self.store, session, &options)
            .map_err(|error| refused(error, reports.last()))?;
        let request = |form| ProviderRequest::new(form, &context.messages);
        Ok(NextCall {
            request: self.form.map(request),
            context,
            reports,
        })
    }

    /// Compacts if it has to be; returns what was tried.
    fn compact(
        &self,
        session: &SessionId,
        leaf: Option<&LoopId>,
        trigger: CompactTrigger,
    ) -> Result<Vec<CompactReport>, CompactorError> {
        let mut request = CompactRequest {
            leaf: leaf.cloned(),
            trigger,
            ..self.request.clone()
        };
        let mut reports = Vec::new();
        let mut left = request.config.policy.max_attempts().max(1);
        while left > 0 {
            let report = compact_session_loops(self.store, session, &request)?;
            left -= u32::from(report.outcome != CompactOutcome::NotNeeded);
            let again = self.prepare_another(&report, &mut request);
            reports.push(report);
            if !again {
                break;
            }
        }
        Ok(reports)
    }

    /// Whether another attempt may do better; changes the request for it.
    fn prepare_another(&self, report: &CompactReport, request: &mut CompactRequest) -> bool {
        match report.outcome {
            CompactOutcome::Conflict => true,
            CompactOutcome::Failed if report.too_small.is_none() && report.strategy != DIGEST => {
                request.config.block_strategy = Arc::new(DigestCompaction::default());
                true
            }
            // Too few messages to fire, but too large all the same.
            CompactOutcome::NotNeeded if request.trigger == CompactTrigger::Policy => {
                let fits = request.window.budget().fits(report.after);
                request.trigger = CompactTrigger::Length;
                !fits
            }
            _ => false,
        }
    }
}

/// Says why a context was not built after the last attempt to make it smaller.
fn refused(error: BuildError, report: Option<&CompactReport>) -> CompactorError {
    match (error, report) {
        (BuildError::Store(error), _) => error.into(),
        (build, Some(report)) => match report.too_small {
            Some(too_small) => too_small.into(),
            None => CompactorError::NotCompacted {
                build,
                report: report
                    .error
                    .clone()
                    .unwrap_or_else(|| "not compacted".into()),
            },
        },
        (build, None) => StoreError::Invalid(build.to_string()).into(),
    }
}
