//! Entries in JSON files, with or without comments; everything else in the files is unchanged.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};

use super::edit::EditError;
use super::setup::Setup;

/// The name of the MCP server.
const SERVER: &str = "loopstore";
/// The part of a command by which an entry of loopstore in Claude Code's settings is recognised.
const CLAUDE_CODE: &str = " hook claude-code ";
/// The events of Claude Code, each with its matcher.
const EVENTS: [(&str, Option<&str>); 5] = [
    ("SessionStart", Some("compact")),
    ("PreCompact", None),
    ("Stop", None),
    ("SubagentStop", None),
    ("SessionEnd", None),
];
/// The seconds after which Claude Code kills a hook; the hook ends earlier by itself.
const TIMEOUT: &str = "5";

fn string(text: &str) -> CstInputValue {
    CstInputValue::String(text.to_owned())
}

fn strings(words: &[String]) -> CstInputValue {
    CstInputValue::Array(words.iter().map(|word| string(word)).collect())
}

fn object<const N: usize>(fields: [(&str, CstInputValue); N]) -> CstInputValue {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    CstInputValue::Object(fields.collect())
}

/// Parses a file, which may be empty.
fn parse(text: &str) -> Result<(CstRootNode, CstObject), EditError> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let options = ParseOptions::default();
    let root =
        CstRootNode::parse(text, &options).map_err(|error| EditError::Syntax(error.to_string()))?;
    let top = root.object_value().ok_or(EditError::Shape("the whole"))?;
    Ok((root, top))
}

/// Adds the hooks of Claude Code.
pub fn add_hooks(text: &str, setup: &Setup) -> Result<String, EditError> {
    let (root, top) = parse(text)?;
    let hooks = top
        .object_value_or_create("hooks")
        .ok_or(EditError::Shape("`hooks`"))?;
    for (event, matcher) in EVENTS {
        let groups = hooks.array_value_or_create(event);
        let groups = groups.ok_or(EditError::Shape("an event in `hooks`"))?;
        let line = string(&setup.hook_line(event));
        let timeout = CstInputValue::Number(TIMEOUT.to_owned());
        let hook = object([
            ("type", string("command")),
            ("command", line),
            ("timeout", timeout),
        ]);
        let hooks = CstInputValue::Array(vec![hook]);
        groups.append(match matcher {
            Some(matcher) => object([("matcher", string(matcher)), ("hooks", hooks)]),
            None => object([("hooks", hooks)]),
        });
    }
    Ok(root.to_string())
}

/// Removes the hooks of Claude Code.
pub fn remove_hooks(text: &str) -> Result<String, EditError> {
    let (root, top) = parse(text)?;
    let Some(hooks) = top.object_value("hooks") else {
        return Ok(text.to_owned());
    };
    let mut is_changed = false;
    for event in hooks.properties() {
        let Some(groups) = event.array_value() else {
            continue;
        };
        is_changed |= remove_from(&groups);
        if groups.elements().is_empty() && EVENTS.iter().any(|(name, _)| named(&event, name)) {
            event.remove();
        }
    }
    if !is_changed {
        return Ok(text.to_owned());
    }
    if hooks.properties().is_empty() {
        hooks.remove();
        if let Some(left) = top.get("hooks") {
            left.remove();
        }
    }
    Ok(root.to_string())
}

fn named(property: &jsonc_parser::cst::CstObjectProp, name: &str) -> bool {
    property.decoded_name().as_deref() == Some(name)
}

fn remove_from(groups: &CstArray) -> bool {
    let mut is_changed = false;
    for group in groups.elements() {
        let Some(list) = group
            .as_object()
            .and_then(|group| group.array_value("hooks"))
        else {
            continue;
        };
        let ours: Vec<CstNode> = list.elements().into_iter().filter(is_ours).collect();
        if ours.is_empty() {
            continue;
        }
        is_changed = true;
        ours.into_iter().for_each(CstNode::remove);
        if list.elements().is_empty() {
            group.remove();
        }
    }
    is_changed
}

/// True if a hook of Claude Code calls this program.
fn is_ours(hook: &CstNode) -> bool {
    let command = hook.as_object().and_then(|hook| text_of(&hook, "command"));
    command.is_some_and(|command| command.contains(CLAUDE_CODE))
}

fn text_of(object: &CstObject, name: &str) -> Option<String> {
    let text = object.get(name)?.value()?.as_string_lit()?;
    text.decoded_value().ok()
}

/// Adds the server of tools to Claude Code's list.
pub fn add_claude_server(text: &str, words: &[String]) -> Result<String, EditError> {
    let (program, arguments) = words.split_first().ok_or(EditError::Shape("the call"))?;
    let server = object([
        ("type", string("stdio")),
        ("command", string(program)),
        ("args", strings(arguments)),
    ]);
    add_server(text, "mcpServers", server)
}

/// Adds the server of tools to OpenCode's list.
pub fn add_opencode_server(text: &str, words: &[String]) -> Result<String, EditError> {
    let server = object([
        ("type", string("local")),
        ("command", strings(words)),
        ("enabled", CstInputValue::Bool(true)),
    ]);
    add_server(text, "mcp", server)
}

fn add_server(text: &str, list: &'static str, server: CstInputValue) -> Result<String, EditError> {
    let (root, top) = parse(text)?;
    let servers = top
        .object_value_or_create(list)
        .ok_or(EditError::Shape("the list of servers"))?;
    if let Some(old) = servers.get(SERVER) {
        old.remove();
    }
    servers.append(SERVER, server);
    Ok(root.to_string())
}

/// Removes the server of tools from a list.
pub fn remove_server(text: &str, list: &str) -> Result<String, EditError> {
    let (root, top) = parse(text)?;
    let servers = top.object_value(list);
    let Some((servers, own)) = servers.and_then(|list| Some((list.clone(), list.get(SERVER)?)))
    else {
        return Ok(text.to_owned());
    };
    own.remove();
    if servers.properties().is_empty()
        && let Some(list) = top.get(list)
    {
        list.remove();
    }
    Ok(root.to_string())
}
