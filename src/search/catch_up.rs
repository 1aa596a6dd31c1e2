//! Brings the index up to date, in short transactions so that writers do not wait long.

use std::ops::{ControlFlow, Range};
use std::time::Duration;

use super::text::message_text;
use crate::store::index::IndexEntry;
use crate::store::{self, LoopKey, SessionStore, StoreRead, StoreResult, StoreWrite};
use crate::words::VERSION;
use crate::words::stems::Stems;

/// The number of messages that one transaction indexes.
const BATCH_MESSAGES: u32 = 256;

/// Bytes of words after which a transaction ends. A single message may have more.
const BATCH_BYTES: usize = 256 << 10;

/// The pause between two transactions that lets other writers in: another process tries to write every
/// few milliseconds only.
const PAUSE: Duration = Duration::from_millis(4);

/// The progress of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Indexed {
    /// The number of indexed messages.
    pub indexed: u64,
    /// Messages in the store, extensions included.
    pub total: u64,
}

/// Indexes all messages that are not indexed yet. `progress` is called after each transaction. Other threads and
/// processes can append between the transactions; the next call indexes these messages.
///
/// # Errors
/// If the store cannot be read or written, or the index is damaged. Messages indexed before stay indexed.
///
/// # Examples
/// ```
/// use loopstore::extend::search::index;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// chat.end_loop(LoopStatus::Completed)?;
/// let far = index(store.database(), &mut |_| {})?;
/// assert_eq!((far.indexed, far.total), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn index(store: &dyn SessionStore, progress: &mut dyn FnMut(Indexed)) -> StoreResult<Indexed> {
    bring_up_to_date(store, progress)?;
    far(store)
}

/// Indexes as [`index`], without counting if there is nothing to index.
pub(super) fn bring_up_to_date(
    store: &dyn SessionStore,
    progress: &mut dyn FnMut(Indexed),
) -> StoreResult<()> {
    if store::read(store, |read| read.index_version())? != Some(VERSION) {
        store::write(store, |write| write.clear_index(VERSION))?;
    }
    catch_up(store, progress)
}

/// Rebuilds the index, even if it is damaged.
///
/// # Errors
/// If the store cannot be read or written.
///
/// # Examples
/// ```
/// use loopstore::extend::search::rebuild_index;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// chat.end_loop(LoopStatus::Completed)?;
/// let far = rebuild_index(store.database(), &mut |far| println!("{far:?}"))?;
/// assert_eq!(far.indexed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rebuild_index(
    store: &dyn SessionStore,
    progress: &mut dyn FnMut(Indexed),
) -> StoreResult<Indexed> {
    store::write(store, |write| write.clear_index(VERSION))?;
    catch_up(store, progress)?;
    far(store)
}

fn far(store: &dyn SessionStore) -> StoreResult<Indexed> {
    let state = store::read(store, |read| read.index_state())?;
    Ok(Indexed {
        indexed: state.indexed,
        total: state.total,
    })
}

/// Takes in what is missing in an index of this version.
fn catch_up(store: &dyn SessionStore, progress: &mut dyn FnMut(Indexed)) -> StoreResult<()> {
    let loops = store::read(store, |read| {
        let mut loops = Vec::new();
        for loop_key in read.unindexed()? {
            if !to_index(read, loop_key)?.is_empty() {
                loops.push(loop_key);
            }
        }
        Ok(loops)
    })?;
    if loops.is_empty() {
        return Ok(());
    }
    let mut seen = far(store)?;
    let mut loops = loops.into_iter().peekable();
    while loops.peek().is_some() {
        seen.indexed += store::write(store, |write| {
            let mut batch = IndexBatch::default();
            while let Some(loop_key) = loops.peek().copied() {
                if batch.is_full() {
                    break;
                }
                if batch.take_in(write, loop_key)? {
                    loops.next();
                }
            }
            Ok(u64::from(batch.messages))
        })?;
        progress(seen);
        if loops.peek().is_some() {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Returns the messages of a loop to index. A message that is not final may still be replaced, and the index cannot
/// remove words; a search reads such a message directly.
fn to_index(read: &dyn StoreRead, loop_key: LoopKey) -> StoreResult<Range<u32>> {
    let open = read.unindexed_seqs(loop_key)?;
    let sealed = read.loop_by_key(loop_key)?.totals.sealed_seq;
    Ok(open.start..open.end.min(sealed))
}

/// One transaction's worth.
#[derive(Default)]
struct IndexBatch {
    messages: u32,
    bytes: usize,
}

impl IndexBatch {
    fn is_full(&self) -> bool {
        self.messages >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES
    }

    /// Indexes messages of a loop; returns true if these were all.
    fn take_in(&mut self, write: &mut dyn StoreWrite, loop_key: LoopKey) -> StoreResult<bool> {
        let open = to_index(write, loop_key)?;
        let mut entries: Vec<IndexEntry> = Vec::new();
        let mut after = open.end;
        let stems = Stems::default();
        write.messages(loop_key, open.clone(), &mut |row| {
            if self.is_full() {
                after = row.seq;
                return Ok(ControlFlow::Break(()));
            }
            let author = row.body.author;
            let message = store::codec::decode(row.body, &mut |_| Ok(None))?;
            let entry = message_text(message, author).entry(row.seq, &stems);
            self.messages += 1;
            self.bytes += entry.words.len();
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        entries.retain(|entry| !entry.words.is_empty());
        if open.start < after {
            write.index(loop_key, open.start..after, &entries)?;
        }
        Ok(after == open.end)
    }
}
