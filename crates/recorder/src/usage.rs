//! The usage and the cost of a session, with the sessions of its sub-agents.

use std::collections::BTreeSet;

use loopstore::UsageCost;
use loopstore::extend::{
    self as store, SessionKey, SessionStore, StoreError, StoreRead, StoreResult, UsageRow,
};
use loopstore::model::SessionId;
use serde::Serialize;

/// A function that returns the cost of the tokens of a model, or `None` if the price is not known. The model is
/// `None` if the answers do not name one.
pub type Price<'a> = dyn Fn(Option<&str>, &UsageCost) -> Option<f64> + 'a;

/// A session with the sessions that it started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageTree {
    /// The session.
    pub session: SessionId,
    /// The usage of the session itself.
    pub own: UsageCost,
    /// The usage of the session with all sessions below it.
    pub tree: UsageCost,
    /// The sessions that its tool calls started.
    pub children: Vec<UsageTree>,
}

/// The depth to which sessions of sub-agents are followed.
const MAX_DEPTH: usize = 64;

/// Returns the usage of a row, with this price if it is known.
pub fn priced(row: &UsageRow, price: Option<&Price<'_>>) -> UsageCost {
    let mut spent = row.spent.clone();
    let priced = price.and_then(|price| price(row.model.as_deref(), &spent));
    spent.cost = priced.unwrap_or(spent.cost);
    spent
}

/// Returns the usage of a session and of the sessions below it. Sessions that start each other in a cycle, or are
/// nested deeper than 64, are counted once.
///
/// # Errors
/// If the session does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_recorder::usage_tree;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// # let answer: AgentMessage = serde_json::from_str(
/// #     r#"{"role": "assistant", "content": [{"type": "text", "text": "No."}], "model": "sonnet",
/// #         "usage": {"input": 1000, "output": 200}}"#,
/// # )?;
/// chat.append([answer])?;
/// // Dollars for a million tokens.
/// let cost = |spent: &UsageCost| (3.0 * spent.input as f64 + 15.0 * spent.output as f64) / 1e6;
/// let price = |model: Option<&str>, spent: &UsageCost| (model == Some("sonnet")).then(|| cost(spent));
/// let usage = usage_tree(store.database(), chat.id(), Some(&price))?;
/// assert_eq!((usage.tree.input, usage.tree.output), (1_000, 200));
/// assert_eq!(usage.tree.cost, 0.006);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn usage_tree(
    store: &dyn SessionStore,
    session: &SessionId,
    price: Option<&Price<'_>>,
) -> StoreResult<UsageTree> {
    store::read(store, |read| {
        let root = read
            .session(session)?
            .ok_or_else(|| StoreError::NoSession(session.to_string()))?;
        usage_below(read, root.key, price)
    })
}

/// Sums the usage of a session and the sessions below it, as [`usage_tree`].
///
/// # Errors
/// If the store fails.
pub fn usage_below(
    read: &dyn StoreRead,
    root: SessionKey,
    price: Option<&Price<'_>>,
) -> StoreResult<UsageTree> {
    let mut seen = BTreeSet::from([root]);
    tree_of(read, root, price, &mut seen, MAX_DEPTH)
}

fn tree_of(
    read: &dyn StoreRead,
    key: SessionKey,
    price: Option<&Price<'_>>,
    seen: &mut BTreeSet<SessionKey>,
    depth: usize,
) -> StoreResult<UsageTree> {
    let mut own = UsageCost::default();
    for row in read.usage(key)? {
        own.add(&priced(&row, price));
    }
    let mut tree = own.clone();
    let mut children = Vec::new();
    for child in read.started_by(key)? {
        if depth > 0 && seen.insert(child) {
            let child = tree_of(read, child, price, seen, depth - 1)?;
            tree.add(&child.tree);
            children.push(child);
        }
    }
    Ok(UsageTree {
        session: read.session_by_key(key)?.session_id,
        own,
        tree,
        children,
    })
}
