//! Short forms of ids: the beginnings that commands accept in place of an id.
//!
//! Ids that people choose are short and stay whole. Ids that programs make are cut to the shortest beginning that is
//! unique, but not below a length that stays unique for a while.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};

use loopstore::extend::{self as store, StoreRead, StoreResult, lookup};
use loopstore::model::SessionId;
use loopstore::{Database, StoreError};

/// The longest id that stays whole, in characters.
const WHOLE: usize = 20;
/// The shortest beginning of an id of hexadecimal digits, of one whose first 12 digits are its time, and of any other.
const LEAST_HEX: usize = 8;
const LEAST_TIMED: usize = 13;
const LEAST: usize = 16;
/// A beginning that leaves out fewer characters than this saves nothing.
const SAVED: usize = 4;

/// The short forms of the ids in a database. What cannot be read has its whole id.
pub struct ShortNames<'a> {
    store: &'a dyn Database,
    sessions: HashMap<String, SessionNames>,
}

/// The short form of a session's id, and the ids in it once they were read.
#[derive(Default)]
struct SessionNames {
    short: Option<String>,
    loops: Option<ShortIds>,
    runs: Option<ShortIds>,
}

impl<'a> ShortNames<'a> {
    /// Returns the short forms of the ids in a database, of which none was read.
    pub fn new(store: &'a dyn Database) -> Self {
        Self {
            store,
            sessions: HashMap::new(),
        }
    }

    /// Returns the short form of the id of a session.
    pub fn session(&mut self, id: &str) -> String {
        let store = self.store;
        let read = || {
            let id = SessionId::new(id).ok()?;
            let short = store::read(store, |read| {
                Ok::<_, StoreError>(session(read, &id)?.into())
            });
            short.ok()
        };
        let names = self.names(id);
        let short = names
            .short
            .get_or_insert_with(|| read().unwrap_or(id.to_owned()));
        short.clone()
    }

    /// Returns the short form of the id of a loop of a session.
    pub fn loop_id(&mut self, session: &str, id: &str) -> String {
        let store = self.store;
        let read = || {
            ids_of(store, session, |read, session| {
                let loops = read.loops(session)?.into_iter();
                Ok(loops.map(|row| row.loop_id.to_string()).collect())
            })
        };
        let names = self.names(session);
        names.loops.get_or_insert_with(read).short(id).to_owned()
    }

    /// Returns the short form of the id of a run of a session.
    pub fn run(&mut self, session: &str, id: &str) -> String {
        let store = self.store;
        let read = || {
            ids_of(store, session, |read, session| {
                let mut ids = Vec::new();
                read.runs(session, &mut |run| {
                    ids.push(run.run_id);
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(ids)
            })
        };
        let names = self.names(session);
        names.runs.get_or_insert_with(read).short(id).to_owned()
    }

    fn names(&mut self, session: &str) -> &mut SessionNames {
        self.sessions.entry(session.to_owned()).or_default()
    }
}

/// Reads the ids of loops or runs of a session.
fn ids_of(
    store: &dyn Database,
    session: &str,
    ids: impl Fn(&dyn StoreRead, store::SessionKey) -> StoreResult<Vec<String>>,
) -> ShortIds {
    let found = store::read(store, |read| {
        let missing = || StoreError::NoSession(session.to_owned());
        let id = SessionId::new(session).map_err(|_| missing())?;
        let row = read.session(&id)?.ok_or_else(missing)?;
        ids(read, row.key)
    });
    match found {
        Ok(ids) => ids.into_iter().collect(),
        Err(_) => ShortIds {
            ids: BTreeSet::new(),
            is_known: false,
        },
    }
}

/// A set of ids, within which a beginning must be unique.
struct ShortIds {
    ids: BTreeSet<String>,
    /// False if the ids could not be read.
    is_known: bool,
}

impl<S: Into<String>> FromIterator<S> for ShortIds {
    fn from_iter<I: IntoIterator<Item = S>>(ids: I) -> Self {
        Self {
            ids: ids.into_iter().map(Into::into).collect(),
            is_known: true,
        }
    }
}

impl ShortIds {
    fn short<'i>(&self, id: &'i str) -> &'i str {
        if !self.is_known {
            return id;
        }
        let before = (Bound::Unbounded, Bound::Excluded(id));
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let before = self.ids.range::<str, _>(before).next_back();
        let after = self.ids.range::<str, _>(after).next();
        let neighbours = [before, after].into_iter().flatten();
        let alike = neighbours.map(|other| alike_chars(id, other)).max();
        beginning(id, alike.map_or(0, |alike| alike + 1))
    }
}

/// Returns the short form of the id of a session: a beginning that no other session has. The id of a sub-agent, which
/// begins with that of its parent, has the short form of its parent's before the last `/`.
///
/// # Errors
/// If the store cannot be read.
fn session<'a>(read: &dyn StoreRead, id: &'a SessionId) -> StoreResult<Cow<'a, str>> {
    let whole = id.as_str();
    if let Some((parent, own)) = whole.rsplit_once('/')
        && let Ok(parent) = SessionId::new(parent)
        && read.session(&parent)?.is_some()
    {
        let parent = session(read, &parent)?;
        return Ok(Cow::Owned(format!("{parent}/{own}")));
    }
    let mut short = beginning(whole, 0);
    while short.len() < whole.len() {
        if is_unique(read, id, short)? {
            return Ok(Cow::Borrowed(short));
        }
        short = beginning(whole, short.chars().count() + 1);
    }
    Ok(Cow::Borrowed(whole))
}

/// True if a lookup of the beginning finds this session.
fn is_unique(read: &dyn StoreRead, id: &SessionId, short: &str) -> StoreResult<bool> {
    let mut near = read.session_ids(short, 3)?;
    near.retain(|other| other.as_str().starts_with(short));
    match near.as_slice() {
        [one] => Ok(one == id),
        [] => Ok(false),
        _ if !near
            .iter()
            .all(|other| other.as_str().starts_with(id.as_str())) =>
        {
            Ok(false)
        }
        // Its sub-agents: the lookup decides.
        _ => Ok(lookup::session(read, short).is_ok_and(|row| row.session_id == *id)),
    }
}

/// Returns a beginning of at least `least` characters that is worth it, else the whole id.
fn beginning(id: &str, least: usize) -> &str {
    let count = id.chars().count();
    if count <= WHOLE {
        return id;
    }
    let mut end = least.max(least_of(id));
    // A beginning does not end with a separator.
    while id
        .chars()
        .nth(end.saturating_sub(1))
        .is_some_and(|c| !c.is_alphanumeric())
    {
        end += 1;
    }
    if end + SAVED > count {
        return id;
    }
    let end = id.char_indices().nth(end);
    end.map_or(id, |(end, _)| &id[..end])
}

/// Returns the length below which a beginning of this id is not cut.
fn least_of(id: &str) -> usize {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let begins_hex = id.get(..LEAST_HEX).is_some_and(is_hex);
    // The version of a UUID.
    match begins_hex.then(|| id.as_bytes().get(14)).flatten() {
        Some(b'7') if id.as_bytes().get(13) == Some(&b'-') => LEAST_TIMED,
        _ if begins_hex => LEAST_HEX,
        _ => LEAST,
    }
}

/// Returns the number of characters that two ids have in common at the beginning.
fn alike_chars(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::extend::session::create_session;
    use loopstore::{Session, SqliteStore, extend as store};

    #[test]
    fn a_beginning_is_unique_and_no_longer_than_it_must_be() {
        let ids = [
            "kite-1",
            "a-name-that-somebody-chose",
            "9f3c1b2a-1d1e-4000-8000-000000000001",
            "0197a3c2-5d1e-7000-8000-000000000001",
            "0197a3c2-5d1f-7000-8000-000000000002",
            "0197a3c2-5d1f-7000-9000-000000000002",
        ];
        let known: ShortIds = ids.into_iter().collect();
        let short: Vec<&str> = ids.iter().map(|id| known.short(id)).collect();
        assert_eq!(
            short,
            [
                "kite-1",
                "a-name-that-some",
                "9f3c1b2a",
                "0197a3c2-5d1e",
                "0197a3c2-5d1f-7000-8",
                "0197a3c2-5d1f-7000-9",
            ]
        );
        for (short, id) in short.iter().zip(ids) {
            let fits = ids.iter().filter(|other| other.starts_with(short));
            assert_eq!(fits.count(), 1, "{id}");
        }
    }

    #[test]
    fn an_id_that_another_begins_with_is_whole() {
        let long = "9f3c1b2a-1d1e-4000-8000-000000000001";
        let second = format!("{long}-2");
        let known: ShortIds = [long, &*second].into_iter().collect();
        assert_eq!(known.short(long), long);
        assert_eq!(known.short(&second), second);
        // An id that is not in the set, and one of other letters.
        assert_eq!(
            known.short("日本語日本語日本語日本語日本語日本語日本語"),
            "日本語日本語日本語日本語日本語日"
        );
    }

    #[test]
    fn what_is_shown_of_a_session_finds_it() {
        let parent = "9f3c1b2a-1d1e-4000-8000-000000000001";
        let agent = format!("{parent}/agent-a1");
        let ids = [
            parent,
            &agent,
            "9f3c1b2b-1d1e-4000-8000-000000000001",
            "9f3c1b2a-1d1e-5000-8000-000000000001",
        ];
        let store = SqliteStore::in_memory().unwrap();
        store::write(&store, |write| {
            for id in ids {
                let mut session = Session::new(SessionId::new(id).unwrap(), "agent");
                session.parent_spawn_ref =
                    id.split_once('/')
                        .map(|(parent, _)| loopstore::ParentSpawnRef {
                            parent_session_id: SessionId::new(parent).unwrap(),
                            parent_loop_id: None,
                            tool_call_id: None,
                            tool_name: None,
                            extra: Default::default(),
                        });
                create_session(write, &session, None, None)?;
            }
            Ok::<_, loopstore::StoreError>(())
        })
        .unwrap();
        let short = |id: &str| {
            let id = SessionId::new(id).unwrap();
            store::read(&store, |read| session(read, &id).map(Cow::into_owned)).unwrap()
        };
        assert_eq!(short(parent), "9f3c1b2a-1d1e-4");
        assert_eq!(short(&agent), "9f3c1b2a-1d1e-4/agent-a1");
        assert_eq!(short(ids[2]), "9f3c1b2b");
        for id in ids {
            let found = crate::select::session(&store, &short(id)).unwrap();
            assert_eq!(found.session_id.as_str(), id);
        }
    }
}
