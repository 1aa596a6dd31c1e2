//! The usage and the cost of a session, by model, and with the sessions of its sub-agents.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ReportOptions;
use loopstore::UsageCost;
use loopstore::extend::{SessionRow, StoreRead, StoreResult, prompt};
use loopstore::model::{Session, SessionId};
use loopstore_recorder::usage_below;
use loopstore_recorder::{UsageTree, priced};

/// Usage as a page shows it.
#[derive(Debug, Serialize)]
pub(super) struct UsageLines {
    models: Vec<ModelLine>,
    /// True if the prices of any model are known.
    pub(super) is_priced: bool,
    /// The session with the sessions that it started.
    pub(super) tree: SubAgent,
}

#[derive(Debug, Serialize)]
struct ModelLine {
    model: Option<String>,
    #[serde(flatten)]
    spent: UsageCost,
}

/// A session in the tree of sessions that started each other.
#[derive(Debug, Serialize)]
pub(super) struct SubAgent {
    session_id: String,
    title: Option<String>,
    agent_id: Option<String>,
    /// The loop and the tool call that started it.
    from_loop_id: Option<String>,
    from_call: Option<String>,
    tool: Option<String>,
    /// The path of its report.
    file: Option<String>,
    own: UsageCost,
    pub(super) total: UsageCost,
    children: Vec<SubAgent>,
}

pub(super) fn usage_of(
    read: &dyn StoreRead,
    owner: &SessionRow,
    options: &ReportOptions,
) -> StoreResult<UsageLines> {
    let cost = |model: Option<&str>, spent: &UsageCost| options.prices.as_ref()?.cost(model, spent);
    let mut models: BTreeMap<Option<String>, UsageCost> = BTreeMap::new();
    for row in read.usage(owner.key)? {
        let model = row.model.clone();
        models
            .entry(model)
            .or_default()
            .add(&priced(&row, Some(&cost)));
    }
    let line = |(model, spent)| ModelLine { model, spent };
    let models: Vec<ModelLine> = models.into_iter().map(line).collect();
    let tree = usage_below(read, owner.key, Some(&cost))?;
    Ok(UsageLines {
        models,
        is_priced: tree.tree.cost > 0.0 || options.prices.is_some(),
        tree: sub_agent(read, tree, options)?,
    })
}

fn sub_agent(
    read: &dyn StoreRead,
    tree: UsageTree,
    options: &ReportOptions,
) -> StoreResult<SubAgent> {
    let row = read.session(&tree.session)?;
    let meta = row
        .as_ref()
        .and_then(|row| serde_json::from_str::<Session>(&row.meta).ok());
    let spawn = meta.and_then(|session| session.parent_spawn_ref);
    let (mut from_loop_id, mut from_call, mut tool) = (None, None, None);
    if let Some(spawn) = spawn {
        from_loop_id = spawn.parent_loop_id.map(|id| id.to_string());
        (from_call, tool) = (spawn.tool_call_id, spawn.tool_name);
    }
    let mut children = Vec::with_capacity(tree.children.len());
    for child in tree.children {
        children.push(sub_agent(read, child, options)?);
    }
    let title = row.as_ref().map(|row| prompt::session_title(read, row));
    let title = title.transpose()?.flatten();
    let agent_id = row.and_then(|row| row.agent_id);
    Ok(SubAgent {
        file: file_of(options, &tree.session),
        session_id: tree.session.to_string(),
        title,
        agent_id,
        from_loop_id,
        from_call,
        tool,
        own: tree.own,
        total: tree.tree,
        children,
    })
}

fn file_of(options: &ReportOptions, session: &SessionId) -> Option<String> {
    options.others.get(session).cloned()
}
