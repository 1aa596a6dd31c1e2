//! Finds the stored session that a transcript belongs to.
//!
//! An id is a name, not an identity: two machines or two databases may use one id for different conversations, and a
//! file may be rewritten. A session is recognised by its beginning: by the digests of its records and, where a record
//! changed, by the content of its message. The id, or the file and the record's key, only narrow the search. A
//! transcript with another beginning becomes a session of its own; one that diverges from a stored conversation becomes
//! a branch of it. Stored content is never replaced by unrelated content.
//!
//! A session whose id or key is not stored yet is written as it is read. Any other waits until the transcript ends.

mod align;
mod current;
mod incoming;
mod likeness;
mod plan;
mod replay;
mod stored;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;

use loopstore::extend::session::is_hidden;
use loopstore::extend::{LoopKey, SessionKey, SessionRow, StoreResult, StoreWrite};
use loopstore::model::{LoopId, SessionId};

use self::align::Comparison;
pub(super) use self::align::Fate;
pub(super) use self::current::CurrentLoop;
pub(super) use self::incoming::{Incoming, is_voice};
use self::plan::ImportPlanner;
pub(super) use self::plan::LoopPiece;
use self::plan::SessionPlan;
use self::stored::StoredLoop;
use super::matching::{common_prefix, made_id, next_id};
use super::origin::Origin;
use super::report::SeparatedSession;
use super::state::RecordKey;
use super::writer::StoreSink;
use super::{Identity, ImportError};

/// The stored session that matches a waiting one, and the plan of the import.
pub(super) struct SessionMatch {
    id: SessionId,
    key: Option<RecordKey>,
    plan: SessionPlan,
    /// True if the waiting session has no common beginning with the stored one.
    is_unlike: bool,
}

/// A stored session that may match a transcript.
struct SessionCandidate {
    row: SessionRow,
    plan: SessionPlan,
    is_same_file: bool,
}

impl StoreSink<'_> {
    /// Matches each waiting session with a stored one, and writes it.
    pub(super) fn match_waiting(&mut self) -> Result<(), ImportError> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut decided = Vec::new();
        for incoming in waiting {
            let decision = match incoming.identity.clone() {
                Identity::Own(id) => self.decide_own(&incoming, id)?,
                Identity::Key(key) => {
                    let file_name = self.from.file_name.clone();
                    self.decide_keyed(&incoming, RecordKey { file_name, key })?
                }
                Identity::Series(key) => {
                    let file_name = String::new();
                    self.decide_keyed(&incoming, RecordKey { file_name, key })?
                }
            };
            self.renamed.insert(
                incoming.head.session.session_id.clone(),
                decision.id.clone(),
            );
            decided.push((incoming, decision));
        }
        for (incoming, decision) in decided {
            self.replay(incoming, decision)?;
        }
        Ok(())
    }

    /// Adds to a waiting session the stored loop with the id of one of its loops.
    pub(super) fn note_stored(&mut self, waiting: usize, id: &LoopId) -> StoreResult<()> {
        let read = &*self.write;
        let Some(session) = self.waiting[waiting].namesake else {
            return Ok(());
        };
        // The stored messages of a redacted session differ from its records.
        if self.secrets.all || read.flags(session)?.redacts {
            return Ok(());
        }
        if let Some(row) = read.loop_by_id(session, id)? {
            let stored = StoredLoop::load(read, row, self.is_own_form())?;
            self.waiting[waiting].add_stored(Rc::new(stored));
        }
        Ok(())
    }

    /// True if loopstore itself may have written the transcript.
    pub(super) fn is_own_form(&self) -> bool {
        self.from.format == "phi-core"
    }

    /// Matches a session that has an id of its own.
    fn decide_own(
        &mut self,
        incoming: &Incoming,
        own: SessionId,
    ) -> Result<SessionMatch, ImportError> {
        let mut rows: Vec<SessionRow> = self.write.session(&own)?.into_iter().collect();
        let key = own_key(&own);
        for session in self.imported(&key)? {
            let row = self.write.session_by_key(session)?;
            if rows.iter().all(|known| known.key != row.key) {
                rows.push(row);
            }
        }
        let candidates = self.candidates(incoming, rows)?;
        let mut best: Option<&SessionCandidate> = None;
        for candidate in &candidates {
            if candidate.plan.voices > best.map_or(0, |best| best.plan.voices) {
                best = Some(candidate);
            }
        }
        let best = best.map(|best| best.row.key);
        let chosen = match best {
            Some(best) => Some(best),
            None => self.unlike(incoming, &own, &candidates)?,
        };
        let mut candidates = candidates.into_iter();
        if let Some(one) = candidates.find(|one| Some(one.row.key) == chosen) {
            return Ok(SessionMatch {
                key: (one.row.session_id != own).then_some(key),
                id: one.row.session_id,
                plan: one.plan,
                is_unlike: best.is_none(),
            });
        }
        let (write, claimed) = (&*self.write, &self.claimed);
        let id = next_id(&own, &mut |id| {
            Ok(claimed.contains(id) || write.session(id)?.is_some())
        })?;
        self.claimed.insert(id.clone());
        let plan = self.plan(incoming, None)?;
        if plan.added > 0 {
            self.report.separated.push(SeparatedSession {
                file: self.from.path.clone(),
                id: own,
                session: id.clone(),
            });
        }
        Ok(SessionMatch {
            id,
            key: Some(key),
            plan,
            is_unlike: false,
        })
    }

    /// Returns the session with the same id that a transcript belongs to although they have no common beginning: one of
    /// them contains no conversation yet, or the file of the session was rewritten.
    fn unlike(
        &self,
        incoming: &Incoming,
        own: &SessionId,
        candidates: &[SessionCandidate],
    ) -> Result<Option<SessionKey>, ImportError> {
        let is_of_format =
            |row: &SessionRow| row.source.as_deref() == Some(self.from.format.as_str());
        if let Some(first) = candidates.first()
            && first.plan.is_incomparable
            && is_of_format(&first.row)
            && !self.is_own_form()
        {
            return Err(ImportError::NoTranscript(format!(
                "session `{own}` came in from an export, which its transcript cannot be compared with; \
                 import the transcript into the database of that export"
            )));
        }
        if !incoming.has_voice() {
            return Ok(candidates.first().map(|first| first.row.key));
        }
        for candidate in candidates {
            let is_same = candidate.is_same_file && is_of_format(&candidate.row);
            if is_same || !self.has_voice(candidate.row.key)? {
                return Ok(Some(candidate.row.key));
            }
        }
        Ok(None)
    }

    /// True if a stored session contains a message by a person or an agent.
    fn has_voice(&self, session: SessionKey) -> StoreResult<bool> {
        let read = &*self.write;
        for row in read.loops(session)? {
            let mut found = false;
            read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
                found = is_voice(message.body.role, message.body.author);
                Ok(match found {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Matches a session that is identified by its file and a key. It is the stored session of which one is a prefix of
    /// the other, else the session that its file contained before.
    fn decide_keyed(
        &mut self,
        incoming: &Incoming,
        key: RecordKey,
    ) -> Result<SessionMatch, ImportError> {
        let new = incoming.digests();
        let (mut rows, mut best) = (Vec::new(), None::<(usize, SessionKey)>);
        for session in self.imported(&key)? {
            let row = self.write.session_by_key(session)?;
            let is_hidden = is_hidden(self.write, session)?;
            // A hidden session is not continued, and no two records of a file are one session.
            if self.claimed.contains(&row.session_id) || is_hidden {
                continue;
            }
            if let Some(common) = common_prefix(&*self.write, session, &new)?
                && best.is_none_or(|(most, _)| common > most)
            {
                best = Some((common, session));
            }
            rows.push(row);
        }
        let candidates = match best {
            Some((_, best)) => {
                rows.retain(|row| row.key == best);
                self.candidates(incoming, rows)?
            }
            None => {
                let mut all = self.candidates(incoming, rows)?;
                let is_known = |one: &SessionCandidate| {
                    let plan = &one.plan;
                    plan.voices > 0 && plan.added == 0 && plan.changed == 0
                };
                match all.iter().position(is_known) {
                    Some(at) => vec![all.swap_remove(at)],
                    None => all
                        .into_iter()
                        .filter(|one| one.is_same_file && one.plan.voices > 0)
                        .collect(),
                }
            }
        };
        // If the file contained several, it is unknown which of them was rewritten.
        if let [_] = &candidates[..]
            && let Some(one) = candidates.into_iter().next()
        {
            self.claimed.insert(one.row.session_id.clone());
            return Ok(SessionMatch {
                id: one.row.session_id,
                key: Some(key),
                plan: one.plan,
                is_unlike: false,
            });
        }
        let (from, named) = self.named(&key.key);
        let (write, claimed) = (&*self.write, &self.claimed);
        let stem = match key.file_name.is_empty() {
            true => &from.format,
            false => from.stem(),
        };
        let id = made_id(stem, &named, &mut |id| {
            Ok(claimed.contains(id) || write.session(id)?.is_some())
        })?;
        self.claimed.insert(id.clone());
        Ok(SessionMatch {
            id,
            key: Some(key),
            plan: self.plan(incoming, None)?,
            is_unlike: false,
        })
    }

    /// Returns the sessions that were imported with a key.
    fn imported(&self, key: &RecordKey) -> StoreResult<Vec<SessionKey>> {
        let format = &self.from.format;
        let mut sessions = self.write.imported(format, &key.file_name, &key.key)?;
        // A redacted session is stored under redacted names.
        let redacted = (
            self.secrets.name(&key.file_name),
            self.secrets.name(&key.key),
        );
        if (&redacted.0, &redacted.1) != (&key.file_name, &key.key) {
            sessions.extend(self.write.imported(format, &redacted.0, &redacted.1)?);
        }
        Ok(sessions)
    }

    /// Returns the names that an id is made of. They are redacted if necessary, since ids are not redacted later.
    fn named(&self, key: &str) -> (Origin, String) {
        match self.secrets.all {
            true => (self.secrets.origin(&self.from), self.secrets.name(key)),
            false => (self.from.clone(), key.to_owned()),
        }
    }

    fn candidates(
        &mut self,
        incoming: &Incoming,
        rows: Vec<SessionRow>,
    ) -> StoreResult<Vec<SessionCandidate>> {
        let mut candidates = Vec::new();
        for row in rows {
            candidates.push(SessionCandidate {
                plan: self.plan(incoming, Some(row.key))?,
                is_same_file: self.is_of_file(row.key)?,
                row,
            });
        }
        Ok(candidates)
    }

    fn plan(
        &mut self,
        incoming: &Incoming,
        session: Option<SessionKey>,
    ) -> StoreResult<SessionPlan> {
        let redacts = match session {
            Some(session) => self.write.flags(session)?.redacts,
            None => false,
        };
        let own_form = self.is_own_form();
        let comparison = Comparison {
            read: self.write,
            digests: &self.digests,
            own_form,
            secrets: redacts.then(|| RefCell::new(&mut self.secrets)),
        };
        let plan = ImportPlanner::new(&comparison, incoming, session).run();
        if redacts {
            self.known_already();
        }
        plan
    }

    /// True if a session was imported from the current file.
    pub(super) fn is_of_file(&self, session: SessionKey) -> StoreResult<bool> {
        let path = &self.from.path;
        let redacted = self.secrets.name(path);
        let whole = Path::new(path).canonicalize().ok();
        let is_same = |from: &str| {
            from == redacted || whole.is_some() && Path::new(from).canonicalize().ok() == whole
        };
        let imports = self.write.imports(session)?;
        let paths: HashSet<&str> = imports.iter().map(|one| one.path.as_str()).collect();
        Ok(paths.contains(path.as_str()) || paths.into_iter().any(is_same))
    }
}

/// Returns the key of sessions whose own id belongs to another conversation.
fn own_key(id: &SessionId) -> RecordKey {
    RecordKey {
        file_name: String::new(),
        key: format!("id:{id}"),
    }
}

/// Returns the newest loop of a session.
pub(super) fn newest_loop(
    read: &dyn StoreWrite,
    session: SessionKey,
) -> StoreResult<Option<LoopKey>> {
    let loops = read.loops(session)?;
    Ok(loops.into_iter().map(|row| row.key).max())
}
