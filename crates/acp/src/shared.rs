//! The state that the pumps and the worker share.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::gate::StartingSession;
use crate::outlet::Outlet;
use crate::queue::LineQueue;

/// The maximum time that the response to `initialize` waits for the store to open.
const PATIENCE: Duration = Duration::from_secs(2);

/// The capabilities that the store provides in place of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    pub load: bool,
    pub list: bool,
    pub resume: bool,
}

/// The state of the connection, as far as the gates read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The store answers nothing.
    #[default]
    Off,
    /// The editor has sent no `initialize`.
    Waiting,
    /// The agent has not answered the request with this id.
    Initializing(String),
    /// The store answers requests for these capabilities.
    Ready(Offered),
}

/// An open session of the store.
#[derive(Debug)]
pub(crate) struct ServedSession {
    /// The id of the agent's own session.
    pub agent_id: String,
    /// The conversation for the agent's model, until it was sent.
    pub context: Option<String>,
}

/// The state of the gates.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    pub phase: Phase,
    /// Open sessions of the store, by the id that the editor uses.
    pub served: HashMap<String, ServedSession>,
    /// Sessions that the agent is asked to begin, by the id of the proxy's request.
    pub starting: HashMap<String, StartingSession>,
    /// Sessions whose replay is held back, by the id of the request.
    pub quiet: HashMap<String, String>,
}

impl Serving {
    /// True if lines of the agent may have to be changed.
    pub fn reads_agent(&self) -> bool {
        matches!(self.phase, Phase::Initializing(_))
            || !(self.served.is_empty() && self.starting.is_empty() && self.quiet.is_empty())
    }

    /// True if updates of this session are held back.
    pub fn is_quiet(&self, session_id: &str) -> bool {
        self.quiet.values().any(|quiet| quiet == session_id)
    }

    /// Returns the id that the editor uses for a session of the agent; `None` if it is the same.
    pub fn editor_id(&self, agent_id: &str) -> Option<String> {
        let mut served = self.served.iter();
        let found = served.find(|(_, session)| session.agent_id == agent_id)?;
        Some(found.0.clone())
    }
}

/// The state that the pumps and the worker share.
pub(crate) struct Shared {
    pub queue: LineQueue,
    pub to_agent: Outlet,
    pub to_editor: Outlet,
    serving: Mutex<Serving>,
    /// True or false once it is known whether the store opens.
    store: Mutex<Option<bool>>,
    store_known: Condvar,
}

impl Shared {
    /// Returns the state of a connection that begins.
    pub fn new(queue: LineQueue, to_agent: Outlet, to_editor: Outlet, serves: bool) -> Self {
        let phase = if serves { Phase::Waiting } else { Phase::Off };
        Self {
            queue,
            to_agent,
            to_editor,
            serving: Mutex::new(Serving {
                phase,
                ..Serving::default()
            }),
            store: Mutex::default(),
            store_known: Condvar::new(),
        }
    }

    /// Returns the state of the gates.
    pub fn serving(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the store opens.
    pub fn set_store(&self, opens: bool) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(opens);
        self.store_known.notify_all();
    }

    /// True if the store is open, or opens within a short time.
    pub fn store_opens(&self) -> bool {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self
            .store_known
            .wait_timeout_while(store, PATIENCE, |store| store.is_none());
        let store = known.map_or_else(|error| *error.into_inner().0, |(store, _)| *store);
        store == Some(true)
    }
}
