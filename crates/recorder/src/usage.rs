//! The usage and the cost of a session, with the sessions of its sub-agents.

use std::collections::BTreeSet;

use loopstore::extend::{
    self as store, SessionKey, SessionStore, StoreError, StoreRead, StoreResult, UsageRow,
};
use loopstore::model::SessionId;
use serde::Serialize;

/// Tokens as providers reported them, and their cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageCost {
    /// Prompt tokens.
    pub input: u64,
    /// Completion tokens.
    pub output: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_write: u64,
    /// Completion tokens spent on reasoning.
    pub reasoning: u64,
    /// The total that the providers reported, or else the sum of input, output and both caches.
    pub total: u64,
    /// The cost: by the given price, else as providers reported it (`usage.cost`).
    pub cost: f64,
}

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

impl UsageCost {
    /// Adds another usage.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.total = self.total.saturating_add(other.total);
        self.cost += other.cost;
    }

    /// Returns the usage of a row, with this price if it is known.
    pub fn of(row: UsageRow, price: Option<&Price<'_>>) -> Self {
        let mut spent = Self {
            input: row.input,
            output: row.output,
            cache_read: row.cache_read,
            cache_write: row.cache_write,
            reasoning: row.reasoning,
            total: row.total,
            cost: row.cost,
        };
        let priced = price.and_then(|price| price(row.model.as_deref(), &spent));
        spent.cost = priced.unwrap_or(spent.cost);
        spent
    }
}

/// Returns the usage of a session and of the sessions below it. Sessions that start each other in a cycle, or are
/// nested deeper than 64, are counted once.
///
/// # Errors
/// If the session does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore_recorder::{UsageCost, usage_tree};
/// use loopstore::*;
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
        own.add(&UsageCost::of(row, price));
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
