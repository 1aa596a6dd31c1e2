//! Tool calls that were started: the key of a call, and its end.

use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use super::error::StoreResult;
use super::{LoopKey, SessionKey, StoreRead, StoreWrite};
use crate::model::{LoopId, SessionId, Time};

/// Returns the default key of a call. `nth` is the number of the call among those of the loop with this
/// id, from 0.
///
/// ```
/// use loopstore::extend::calls::idempotency_key;
/// use loopstore::{LoopId, SessionId};
///
/// let (session, loop_key) = (SessionId::new("bills")?, LoopId::new("bills.1")?);
/// let key = idempotency_key(&session, &loop_key, "c1", 0);
/// assert_eq!(key, idempotency_key(&session, &loop_key, "c1", 0));
/// // Another call that came with the same id.
/// assert_ne!(key, idempotency_key(&session, &loop_key, "c1", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn idempotency_key(session: &SessionId, loop_id: &LoopId, call_id: &str, nth: u32) -> String {
    let mut digest = Sha256::new();
    digest.update(b"loopstore call");
    for part in [session.as_str(), loop_id.as_str(), call_id] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.update(nth.to_be_bytes());
    hex::encode(digest.finalize())
}

/// Marks the calls `answered` as finished if the chain of `leaf` started them. The arguments of a call whose
/// message is stored are in the message only.
#[doc(hidden)]
pub fn finish_calls(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    leaf: LoopKey,
    answered: &[String],
    is_stored: impl Fn(&str) -> bool,
) -> StoreResult<()> {
    let mut open = write.open_calls(Some(session))?;
    open.retain(|row| answered.contains(&row.call_id));
    if open.is_empty() {
        return Ok(());
    }
    let chain = chain_of(write, leaf)?;
    let now = Time::now().as_str().to_owned();
    for mut row in open.into_iter().filter(|row| chain.contains(&row.loop_key)) {
        if is_stored(&row.call_id) {
            row.arguments = None;
        }
        row.finished_at = Some(now.clone());
        write.update_call(&row)?;
    }
    Ok(())
}

fn chain_of(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Vec<LoopKey>> {
    let mut chain = Vec::new();
    read.walk(leaf, &mut |row| {
        chain.push(row.key);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(chain)
}
