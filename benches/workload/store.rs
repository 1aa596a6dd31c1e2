//! A store that turns are appended to, through the public API.

use std::path::Path;
use std::time::{Duration, Instant};

use loopstore::extend::{self as store, LoopKey, append, session};
use loopstore::*;

use super::Outcome;

/// One session of a store.
pub struct Recorded<S = SqliteStore> {
    pub store: S,
    pub session: SessionId,
    current: Option<LoopKey>,
    loops: u32,
}

impl Recorded {
    pub fn create(file: &Path, durability: Durability) -> Outcome<Self> {
        let options = SqliteOptions::new().durability(durability);
        Self::within(SqliteStore::open_with(file, options)?, "session")
    }
}

impl<S: SessionStore> Recorded<S> {
    /// A new session of a store.
    pub fn within(store: S, name: &str) -> Outcome<Self> {
        let session = SessionId::new(name)?;
        add_session(&store, &session)?;
        Ok(Self {
            store,
            session,
            current: None,
            loops: 0,
        })
    }

    /// Returns a store that continues an existing session.
    pub fn of(store: S, session: SessionId) -> Self {
        Self {
            store,
            session,
            current: None,
            loops: 0,
        }
    }

    /// Begins the next loop, below the one before.
    pub fn start(&mut self) -> Outcome<()> {
        let name = |at: u32| LoopId::new(format!("loop-{at}"));
        let parent = self.loops.checked_sub(1).map(name).transpose()?;
        let record = LoopRecord::new(name(self.loops)?, parent);
        self.current = Some(add_loop(&self.store, &self.session, &record)?);
        self.loops += 1;
        Ok(())
    }

    /// Appends a turn; returns the duration.
    pub fn append(&mut self, messages: Vec<AgentMessage>) -> Outcome<Duration> {
        let current = self.current.ok_or("no loop")?;
        let begun = Instant::now();
        store::write(&self.store, |write| {
            let messages = messages.into_iter().map(Into::into).collect();
            append::append(write, current, messages, &HeuristicTokenCounter)
        })?;
        Ok(begun.elapsed())
    }

    /// Appends many turns in few transactions, a loop after every 96.
    pub fn fill(&mut self, turns: Vec<Vec<AgentMessage>>) -> Outcome<()> {
        let mut turns = turns.into_iter().peekable();
        while turns.peek().is_some() {
            self.start()?;
            let of_loop = turns.by_ref().take(super::turns::IN_A_LOOP as usize);
            self.append(of_loop.flatten().collect())?;
        }
        Ok(())
    }

    pub fn build(&self) -> Outcome<Context> {
        let options = BuildOptions::default();
        Ok(build_context_from_session(
            &self.store,
            &self.session,
            &options,
        )?)
    }

    pub fn compact(&self, config: CompactionConfig, trigger: CompactTrigger) -> Outcome<()> {
        let request = CompactRequest {
            policy: Policy::of(ContextConfig::default(), config),
            trigger,
            ..CompactRequest::default()
        };
        let report = compact_session_loops(&self.store, &self.session, &request)?;
        match report.outcome {
            loopstore::compact::CompactOutcome::Committed => Ok(()),
            _ => Err(format!("not compacted: {report:?}").into()),
        }
    }
}

fn add_session(store: &dyn SessionStore, session: &SessionId) -> Outcome<()> {
    let record = Session::new(session.clone(), "agent");
    store::write(store, |write| {
        session::create_session(write, &record, None, None)
    })?;
    Ok(())
}

fn add_loop(
    store: &dyn SessionStore,
    session: &SessionId,
    record: &LoopRecord,
) -> Outcome<LoopKey> {
    Ok(store::write(store, |write| {
        let row = write.session(session)?;
        let row = row.ok_or_else(|| StoreError::NoSession(session.to_string()))?;
        session::create_loop(write, row.key, record)
    })?)
}
