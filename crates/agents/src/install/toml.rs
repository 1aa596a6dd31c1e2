//! Entries in Codex's `config.toml`; everything else in the file is unchanged.

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::edit::EditError;
use super::setup::Setup;

/// The events, each with its matcher.
const EVENTS: [(&str, Option<&str>); 3] = [
    ("SessionStart", Some("compact")),
    ("PreCompact", None),
    ("Stop", None),
];
/// The part of a command by which an entry of loopstore in Codex's configuration is recognised.
const CODEX: &str = " hook codex ";
/// The seconds after which Codex kills a hook; the hook ends earlier by itself.
const TIMEOUT: i64 = 5;
/// The key of the program that Codex runs after each turn.
const NOTIFY: &str = "notify";
/// The table of MCP servers.
const SERVERS: &str = "mcp_servers";
const SERVER: &str = "loopstore";

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        EditError::Syntax(format!("line {line}: {what}"))
    })
}

/// Adds the hooks, the notice after each turn (unless another program gets it), and the server of tools if the setup
/// has one.
pub fn add(text: &str, setup: &Setup) -> Result<String, EditError> {
    let mut document = parse(text)?;
    if !document.contains_key(NOTIFY) {
        document[NOTIFY] = value(array(&setup.hook("notify")));
    }
    let hooks = document
        .entry("hooks")
        .or_insert_with(|| Item::Table(implicit()));
    let hooks = hooks
        .as_table_like_mut()
        .ok_or(EditError::Shape("`hooks`"))?;
    for (event, matcher) in EVENTS {
        let groups = hooks
            .entry(event)
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        push(groups, group(&setup.hook_line(event), matcher))?;
    }
    if let Some(words) = setup.server() {
        let servers = document
            .entry(SERVERS)
            .or_insert_with(|| Item::Table(implicit()));
        let servers = servers
            .as_table_like_mut()
            .ok_or(EditError::Shape("`mcp_servers`"))?;
        let mut server = Table::new();
        if let Some((program, arguments)) = words.split_first() {
            server["command"] = value(program);
            server["args"] = value(array(arguments));
        }
        servers.insert(SERVER, Item::Table(server));
    }
    Ok(with_line_ends_of(text, document.to_string()))
}

fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

fn array(words: &[String]) -> Array {
    words.iter().collect()
}

fn group(line: &str, matcher: Option<&str>) -> Table {
    let mut hook = Table::new();
    hook["type"] = value("command");
    hook["command"] = value(line);
    hook["timeout"] = value(TIMEOUT);
    let mut hooks = ArrayOfTables::new();
    hooks.push(hook);
    let mut group = Table::new();
    if let Some(matcher) = matcher {
        group["matcher"] = value(matcher);
    }
    group["hooks"] = Item::ArrayOfTables(hooks);
    group
}

/// Adds a group to a list, which may be an array of tables or an inline array.
fn push(groups: &mut Item, group: Table) -> Result<(), EditError> {
    match groups {
        Item::ArrayOfTables(tables) => tables.push(group),
        Item::Value(Value::Array(values)) => values.push(inline(group)),
        _ => return Err(EditError::Shape("an event in `hooks`")),
    }
    Ok(())
}

fn inline(group: Table) -> InlineTable {
    let mut group = group;
    if let Some(Item::ArrayOfTables(hooks)) = group.remove("hooks") {
        let hooks = hooks
            .into_iter()
            .map(|hook| Value::InlineTable(hook.into_inline_table()));
        group["hooks"] = value(hooks.collect::<Array>());
    }
    group.into_inline_table()
}

/// Removes the hooks, the notice and the server of tools.
pub fn remove(text: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let mut is_changed = false;
    if document.get(NOTIFY).is_some_and(is_our_notice) {
        document.remove(NOTIFY);
        is_changed = true;
    }
    if let Some(hooks) = document.get_mut("hooks").and_then(Item::as_table_like_mut) {
        for (event, _) in EVENTS {
            let Some(groups) = hooks.get_mut(event) else {
                continue;
            };
            let (removed, is_empty) = remove_groups(groups);
            is_changed |= removed;
            if removed && is_empty {
                hooks.remove(event);
            }
        }
        if is_changed && hooks.is_empty() {
            document.remove("hooks");
        }
    }
    if let Some(servers) = document.get_mut(SERVERS).and_then(Item::as_table_like_mut)
        && servers.remove(SERVER).is_some()
    {
        is_changed = true;
        if servers.is_empty() {
            document.remove(SERVERS);
        }
    }
    if !is_changed {
        return Ok(text.to_owned());
    }
    Ok(with_line_ends_of(text, document.to_string()))
}

fn is_our_notice(item: &Item) -> bool {
    let words = item
        .as_array()
        .map(|words| words.iter().filter_map(Value::as_str));
    words.is_some_and(|words| {
        let words: Vec<&str> = words.collect();
        words.windows(2).any(|pair| pair == ["hook", "codex"])
    })
}

/// Removes the groups of loopstore from a list. Returns true if there were any, and true if the list is now empty.
fn remove_groups(groups: &mut Item) -> (bool, bool) {
    match groups {
        Item::ArrayOfTables(tables) => {
            let before = tables.len();
            tables.retain(|group| !group.get("hooks").is_some_and(calls_us));
            (tables.len() < before, tables.is_empty())
        }
        Item::Value(Value::Array(values)) => {
            let before = values.len();
            values.retain(|group| {
                let hooks = group.as_inline_table().and_then(|group| group.get("hooks"));
                !hooks.is_some_and(|hooks| calls_us(&Item::Value(hooks.clone())))
            });
            (values.len() < before, values.is_empty())
        }
        _ => (false, false),
    }
}

fn calls_us(hooks: &Item) -> bool {
    let line = |hook: &dyn toml_edit::TableLike| {
        let line = hook.get("command").and_then(Item::as_str);
        line.is_some_and(|line| line.contains(CODEX))
    };
    match hooks {
        Item::ArrayOfTables(tables) => tables.iter().any(|hook| line(hook)),
        Item::Value(Value::Array(values)) => {
            let mut hooks = values.iter().filter_map(Value::as_inline_table);
            hooks.any(|hook| line(hook))
        }
        _ => false,
    }
}

/// True if another program than this one gets the notice after each turn.
pub fn has_other_notice(text: &str) -> bool {
    let document = parse(text);
    document.is_ok_and(|document| {
        document
            .get(NOTIFY)
            .is_some_and(|item| !is_our_notice(item))
    })
}

/// Gives the new lines of a text the line endings of the old text.
fn with_line_ends_of(old: &str, new: String) -> String {
    let all = old.matches('\n').count();
    match all > 0 && old.matches("\r\n").count() == all {
        true => new.replace("\r\n", "\n").replace('\n', "\r\n"),
        false => new,
    }
}
