//! Summaries of sessions for lists, made without reading messages.

use super::session::session_key;
use super::{Result, SessionHandle, Store};
use crate::model::{LoopId, SessionId};
use crate::store::Record;
use crate::store::prompt::{own_title, session_prompt};
use crate::store::{self, SessionCursor, SessionFilter, StoreError, StoreResult, UsageCost};

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Its id.
    pub session_id: SessionId,
    /// The agent.
    pub agent_id: Option<String>,
    /// The title that was set, else the first prompt.
    pub title: Option<String>,
    /// Its first prompt, as a line.
    pub prompt: Option<String>,
    /// The folder that its agent works in.
    pub project: Option<String>,
    /// The format that it was imported from.
    pub source: Option<String>,
    /// ISO-8601 text.
    pub created_at: Option<String>,
    /// ISO-8601 text.
    pub last_active_at: Option<String>,
    /// The time at which the session was hidden, as ISO-8601 text; `None` if it is not hidden.
    pub hidden_at: Option<String>,
    /// The loop last appended to or begun.
    pub current_loop: Option<LoopId>,
    /// The number of its loops.
    pub loops: u64,
    /// Turns of all loops.
    pub turns: u64,
    /// Messages of all loops, without extensions.
    pub messages: u64,
    /// Tokens of these messages.
    pub tokens: u64,
    cursor: SessionCursor,
}

impl SessionSummary {
    /// Returns the cursor after this session in the list: the start of the next page.
    pub fn cursor(&self) -> &SessionCursor {
        &self.cursor
    }

    fn of((cursor, row): &(SessionCursor, Record)) -> StoreResult<Self> {
        let damaged = |error: crate::model::InvalidId| StoreError::Damaged(error.to_string());
        let number = |column| {
            let number = row.number(column).unwrap_or_default();
            u64::try_from(number).map_err(|_| StoreError::Damaged(format!("{column}: {number}")))
        };
        let id = row.text("session_id").unwrap_or_default();
        let current = row.text("current_loop_id").map(LoopId::new).transpose();
        Ok(Self {
            session_id: SessionId::new(id).map_err(damaged)?,
            agent_id: row.text("agent_id"),
            title: row.text("title"),
            prompt: row.text("prompt"),
            project: row.text("project"),
            source: row.text("source"),
            created_at: row.text("created_at"),
            last_active_at: row.text("last_active_at"),
            hidden_at: row.text("hidden_at"),
            current_loop: current.map_err(damaged)?,
            loops: number("loops")?,
            turns: number("turns")?,
            messages: number("messages")?,
            tokens: number("tokens")?,
            cursor: cursor.clone(),
        })
    }
}

impl Store {
    /// Returns the sessions that match a filter, last active first. Hidden sessions are included only if the filter
    /// selects them.
    ///
    /// ```
    /// use loopstore::{Message, SessionFilter, Store};
    ///
    /// let store = Store::in_memory()?;
    /// for city in ["Bern", "Rome", "Oslo"] {
    ///     let chat = store.session(city)?;
    ///     chat.append([Message::user(format!("Will it rain in {city}?"))])?;
    /// }
    /// let page = SessionFilter { offset: 1, limit: Some(1), ..SessionFilter::default() };
    /// let rows = store.sessions(&page)?;
    /// assert_eq!((rows.len(), rows[0].messages), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionSummary>> {
        let rows = self.database().listed_sessions(filter)?;
        let rows = rows.iter().map(SessionSummary::of);
        Ok(rows.collect::<StoreResult<_>>()?)
    }
}

impl SessionHandle {
    /// Returns the tokens and the cost that providers reported for the answers of the session, in all its loops. The
    /// answers bring them: [`provider::read`](crate::provider::read) keeps the usage of a provider's answer, and
    /// [`Message::with_usage`](crate::Message::with_usage) sets it.
    ///
    /// ```
    /// use loopstore::model::Usage;
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let usage = Usage::new(1_200, 80);
    /// chat.append([Message::user("Will it rain?"), Message::assistant("No.").with_usage(usage)])?;
    /// assert_eq!(chat.usage()?.total, 1_280);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the session does not exist, or the store fails.
    pub fn usage(&self) -> Result<UsageCost> {
        Ok(store::read(self.store().database(), |read| {
            let session = session_key(read, self.id())?;
            let mut sum = UsageCost::default();
            for row in read.usage(session)? {
                sum.add(&row.spent);
            }
            Ok(sum)
        })?)
    }

    /// True if the session exists: something was appended to it, or its title was set.
    ///
    /// # Errors
    /// If the store fails.
    pub fn exists(&self) -> Result<bool> {
        let found = store::read(self.backend(), |read| read.session(self.id()))?;
        Ok(found.is_some())
    }

    /// Returns the session as lists show it; `None` if the session does not exist.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// assert_eq!(chat.summary()?, None);
    /// chat.append([Message::user("Will it rain?")])?;
    /// let summary = chat.summary()?.ok_or("it began")?;
    /// assert_eq!(summary.title.as_deref(), Some("Will it rain?"));
    /// assert!(chat.exists()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub fn summary(&self) -> Result<Option<SessionSummary>> {
        Ok(store::read(self.backend(), |read| {
            let Some(row) = read.session(self.id())? else {
                return Ok(None);
            };
            let prompt = session_prompt(read, row.key)?;
            let last = read.hides(row.key)?.pop().filter(|last| last.hidden);
            let current = row.current_loop.map(|key| read.loop_by_key(key));
            let mut summary = SessionSummary {
                cursor: SessionCursor::of(&row),
                title: own_title(row.title.as_deref())
                    .map(str::to_owned)
                    .or_else(|| prompt.clone()),
                prompt,
                session_id: row.session_id,
                agent_id: row.agent_id,
                project: row.project,
                source: row.source,
                created_at: row.created_at,
                last_active_at: row.last_active_at,
                hidden_at: last.map(|last| last.at),
                current_loop: current.transpose()?.map(|row| row.core.loop_id),
                loops: 0,
                turns: 0,
                messages: 0,
                tokens: 0,
            };
            for row in read.loops(row.key)? {
                summary.loops += 1;
                summary.turns += u64::from(row.totals.turns);
                summary.messages += row.totals.messages;
                summary.tokens += row.totals.tokens;
            }
            Ok(Some(summary))
        })?)
    }
}
