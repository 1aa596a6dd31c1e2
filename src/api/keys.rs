//! Appends under keys: many in one transaction, found again by their keys.

use loopstore_core::edit::{by_reports, record_report, unreadable_note};

use super::error::Result;
use super::line::{LineEnd, begin_session};
use super::same_append::ensure_same;
use super::{SessionHandle, calls};
use crate::compact::{Policy, record_appended_compactions};
use crate::model::redaction::append_key_marker;
use crate::model::{AgentMessage, AppliedEdits, LoopId};
use crate::store::append::{Appended, append_in_turns};
use crate::store::{
    self, AppendKey, AppendKeyRange, LoopKey, SessionKey, StoreError, StoreRead, StoreResult,
    StoreWrite,
};
use crate::tokens::TokenCounter;

/// A query for the append keys of a session, in the order of their bytes. Without filters it selects all keys.
///
/// ```
/// use loopstore::{AgentMessage, KeyQuery, Store};
/// use serde_json::json;
///
/// let chat = Store::in_memory()?.session("weather")?;
/// let state = |n: u32| [AgentMessage::extension("state", json!({ "n": n }).into())];
/// chat.append_batch([(Some("cp/001"), state(1)), (Some("cp/002"), state(2))])?;
/// chat.append_once("cp/003", state(3))?;
/// let latest = chat.append_keys(&KeyQuery::prefix("cp/").descending().limit(1))?;
/// assert_eq!(latest[0].key, "cp/003");
/// let earlier = KeyQuery::prefix("cp/").before("cp/003").descending();
/// assert_eq!(chat.append_keys(&earlier)?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct KeyQuery(AppendKeyRange);

impl KeyQuery {
    /// Selects all keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the keys with this prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self(AppendKeyRange {
            prefix: prefix.into(),
            ..AppendKeyRange::default()
        })
    }

    /// Selects only keys after this one in the order of bytes, also if the list is descending.
    pub fn after(mut self, key: impl Into<String>) -> Self {
        self.0.after = Some(key.into());
        self
    }

    /// Selects only keys before this one in the order of bytes, also if the list is descending.
    pub fn before(mut self, key: impl Into<String>) -> Self {
        self.0.before = Some(key.into());
        self
    }

    /// Lists the last key first.
    pub fn descending(mut self) -> Self {
        self.0.descending = true;
        self
    }

    /// Lists at most `count`.
    pub fn limit(mut self, count: usize) -> Self {
        self.0.limit = Some(u32::try_from(count).unwrap_or(u32::MAX));
        self
    }
}

/// An append with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyedAppend {
    /// The key.
    pub key: String,
    /// The result, as [`SessionHandle::appended`] returns it.
    pub appended: Appended,
}

impl SessionHandle {
    /// Makes several appends in one transaction, in order, and returns the result of each. If one fails, nothing is
    /// kept. A part appends nothing if the session already has its key, from an earlier call or an earlier part; the
    /// messages are not compared. A program that mirrors a log relies on this: the first append under a key counts.
    ///
    /// ```
    /// use loopstore::{EntryQuery, Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let first = (Some("question"), vec![Message::user("Will it rain?")]);
    /// let done = chat.append_batch([first.clone(), first, (None, vec![Message::assistant("No.")])])?;
    /// assert_eq!(done.iter().map(|part| part.duplicate).collect::<Vec<_>>(), [false, true, false]);
    /// assert_eq!(chat.count_entries(&EntryQuery::new())?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SessionHandle::append`]. Also if a key is empty or longer than 512 bytes.
    pub fn append_batch<K, M>(
        &self,
        parts: impl IntoIterator<Item = (Option<K>, M)>,
    ) -> Result<Vec<Appended>>
    where
        K: Into<String>,
        M: IntoIterator,
        M::Item: Into<AgentMessage>,
    {
        let parts = parts.into_iter().map(|(key, messages)| {
            let key = key.map(Into::into);
            if let Some(key) = &key {
                // Keys have the bounds of ids.
                LoopId::new(key.as_str())?;
            }
            Ok((key, messages.into_iter().map(Into::into).collect()))
        });
        self.append_parts(parts.collect::<Result<_>>()?, Reuse::Passed)
    }

    /// Returns the result of the append under a key; `None` if the session has no such key.
    ///
    /// ```
    /// use loopstore::{EntryQuery, Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// chat.append_once("request 17", [Message::user("Will it rain?")])?;
    /// let known = chat.appended("request 17")?.ok_or("it was appended")?;
    /// let messages = chat.entries(&EntryQuery::of_loop(known.loop_id, known.seqs))?;
    /// assert_eq!(messages.len(), 1);
    /// assert_eq!(chat.appended("request 18")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub fn appended(&self, key: &str) -> Result<Option<Appended>> {
        if LoopId::new(key).is_err() {
            return Ok(None);
        }
        Ok(store::read(self.backend(), |read| {
            let Some(row) = read.session(self.id())? else {
                return Ok(None);
            };
            let known = known_key(read, row.key, key)?;
            let known = known.map(|known| appended_before(read, known));
            Ok(known.transpose()?.map(|(_, appended)| appended))
        })?)
    }

    /// Returns the appends with keys, in the order of the keys' bytes. The cost depends on the number of results, not
    /// on the number of other keys. For a session that does not exist the list is empty.
    ///
    /// # Errors
    /// If the store fails.
    pub fn append_keys(&self, query: &KeyQuery) -> Result<Vec<KeyedAppend>> {
        Ok(store::read(self.backend(), |read| {
            let Some(row) = read.session(self.id())? else {
                return Ok(Vec::new());
            };
            let mut known: Option<(LoopKey, LoopId)> = None;
            let rows = read.append_keys_within(row.key, &query.0)?.into_iter();
            let keyed = rows.map(|row| {
                // Neighbours mostly belong to one loop.
                let loop_id = match &known {
                    Some((key, id)) if *key == row.loop_key => id.clone(),
                    _ => read.loop_by_key(row.loop_key)?.core.loop_id,
                };
                known = Some((row.loop_key, loop_id.clone()));
                Ok(KeyedAppend {
                    key: row.name.clone(),
                    appended: Appended::before(loop_id, row),
                })
            });
            keyed.collect()
        })?)
    }

    pub(super) fn append_parts(
        &self,
        parts: Vec<(Option<String>, Vec<AgentMessage>)>,
        reuse: Reuse,
    ) -> Result<Vec<Appended>> {
        let backend = self.backend();
        let (leaf, done) = store::write(backend, |write| {
            let mut position = match self.line().find(write, self.id())? {
                Some(position) => position,
                None => begin_session(write, self.id())?,
            };
            let (mut reached, mut done) = (None, Vec::with_capacity(parts.len()));
            for (key, messages) in parts {
                let key = key.as_deref();
                let known = match key {
                    Some(key) => known_key(write, position.session, key)?,
                    None => None,
                };
                if let Some(known) = known {
                    if reuse == Reuse::Refused {
                        ensure_same(write, &known, &messages)?;
                    }
                    done.push(appended_before(write, known)?.1);
                    continue;
                }
                let (leaf, part) = append_part(
                    write,
                    position,
                    key,
                    messages,
                    (backend.counter(), self.policy()),
                )?;
                position.leaf = Some(leaf);
                reached = Some((leaf, part.loop_id.clone()));
                done.push(part);
            }
            Ok((reached, done))
        })?;
        if let Some((key, id)) = leaf {
            self.line().reached(key, id);
        }
        Ok(done)
    }
}

/// The treatment of an append under a key that the session has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// The messages must be the same.
    Refused,
    /// The append is skipped, whatever its messages are.
    Passed,
}

/// Appends under a key that is free; returns the last loop, and the result.
fn append_part(
    write: &mut dyn StoreWrite,
    at: LineEnd,
    key: Option<&str>,
    messages: Vec<AgentMessage>,
    with: (&dyn TokenCounter, &Policy),
) -> StoreResult<(LoopKey, Appended)> {
    let mut done: Option<(LoopKey, Appended)> = None;
    for part in by_reports(messages) {
        let leaf = done.as_ref().map(|(leaf, _)| *leaf).or(at.leaf);
        let at = LineEnd { leaf, ..at };
        let (leaf, next) = append_reported(write, at, part, with)?;
        let all = match done.take() {
            Some((_, before)) => before.followed_by(next),
            None => next,
        };
        done = Some((leaf, all));
    }
    let (loop_key, appended) =
        done.ok_or_else(|| StoreError::Invalid("an append returned no result".into()))?;
    if let Some(key) = key {
        let row = AppendKey {
            name: key.to_owned(),
            loop_key,
            seqs: appended.seqs.clone(),
            turns: appended.turns.clone(),
            tokens: appended.tokens,
        };
        write.insert_append_key(at.session, &row)?;
    }
    Ok((loop_key, appended))
}

/// Appends an answer with the messages after it, and before the answer the run of the edits that it reports.
fn append_reported(
    write: &mut dyn StoreWrite,
    at: LineEnd,
    (report, messages): (Option<AppliedEdits>, Vec<AgentMessage>),
    (counter, policy): (&dyn TokenCounter, &Policy),
) -> StoreResult<(LoopKey, Appended)> {
    let mut notes: Vec<String> = messages.iter().filter_map(unreadable_note).collect();
    if let (Some(report), Some(answer)) = (&report, messages.first()) {
        // The request was written with the setting of the policy, if it has one.
        let setting = policy.context_management();
        let setting = (!setting.is_empty()).then_some(&setting);
        let report = (answer, report, setting);
        notes.extend(record_report(write, at.leaf, report, counter)?);
    }
    let mut done = append_in_turns(write, at.session, at.leaf, messages, counter)?;
    calls::finish(write, at.session, done.loop_key, &done.answered)?;
    record_appended_compactions(write, counter, &done.compactions)?;
    done.appended.notes.extend(notes);
    Ok((done.loop_key, done.appended))
}

/// Returns an append by the key of its caller, also if a redaction replaced the key.
fn known_key(
    read: &dyn StoreRead,
    session: SessionKey,
    key: &str,
) -> StoreResult<Option<AppendKey>> {
    let known = read.append_key(session, key)?;
    if known.is_some() || !read.flags(session)?.redacts {
        return Ok(known);
    }
    read.append_key(session, &append_key_marker(&read.import_key()?, key))
}

/// Returns the loop and the result of an earlier append.
fn appended_before(read: &dyn StoreRead, known: AppendKey) -> StoreResult<(LoopKey, Appended)> {
    let (key, id) = (
        known.loop_key,
        read.loop_by_key(known.loop_key)?.core.loop_id,
    );
    Ok((key, Appended::before(id, known)))
}
