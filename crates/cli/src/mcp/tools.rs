//! The tools: what they are called with, and their answers.

use std::collections::HashMap;

use loopstore::context::context_parts;
use loopstore::extend::sqlite::Record;
use loopstore::extend::{self as store, StoreResult, prompt};
use loopstore::search::{SearchQuery, search};
use loopstore::{BuildOptions, Database, LoopId, Role, SessionId, admin::inspect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::super::{context_text, select};

/// How many runs or hits are given if no number is asked for.
const LIMIT: usize = 20;

/// The most bytes of one text of a run.
const MAX_CELL: usize = 300;

type Given = Map<String, Value>;

/// A tool.
pub struct ToolSpec {
    pub name: &'static str,
    pub about: &'static str,
    /// The properties of its arguments, as JSON, and which it needs.
    properties: &'static str,
    required: &'static [&'static str],
    answer: fn(&Recall, &dyn Database, &SessionId, Given) -> Result<String, String>,
}

/// All of them.
pub static TOOLS: [ToolSpec; 4] = [
    ToolSpec {
        name: "search_history",
        about: "Find messages of the recorded history by their words, including those that a \
                compaction removed from the context. Syntax: words, \"a phrase\", prefix*, a OR b, \
                -excluded. A hit has loop_id and turn for `expand`; `hidden` means that the context \
                does not hold it.",
        properties: r#"{
            "query": {"type": "string", "description": "the words to find"},
            "hidden": {"type": "boolean", "description": "only messages that the context does not hold (true) or holds (false)"},
            "role": {"type": "string", "enum": ["user", "assistant", "toolResult"]},
            "tool": {"type": "string", "description": "only calls of this tool, and their results"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "offset": {"type": "integer", "minimum": 0, "description": "continue from `next`"}
        }"#,
        required: &["query"],
        answer: Recall::search,
    },
    ToolSpec {
        name: "expand",
        about: "Read turns verbatim, as recorded. A long answer ends with where to continue.",
        properties: r#"{
            "loop_id": {"type": "string", "description": "the loop [default: the current one]"},
            "first": {"type": "integer", "minimum": 0, "description": "the first turn"},
            "last": {"type": "integer", "minimum": 0, "description": "the last turn [default: the first]"},
            "offset": {"type": "integer", "minimum": 0, "description": "continue within the turns, in characters"}
        }"#,
        required: &["first"],
        answer: Recall::expand,
    },
    ToolSpec {
        name: "context_overview",
        about: "What the context of the next model call consists of: which turns are verbatim and \
                which are summarised, with their tokens; and what each loop was asked first.",
        properties: r#"{
            "loop_id": {"type": "string", "description": "the loop [default: the current one]"},
            "offset": {"type": "integer", "minimum": 0, "description": "continue from `next`"}
        }"#,
        required: &[],
        answer: Recall::overview,
    },
    ToolSpec {
        name: "compaction_history",
        about: "The compactions of the session, newest first: time, strategy, tokens before and \
                after, and outcome.",
        properties: r#"{
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "offset": {"type": "integer", "minimum": 0, "description": "continue from `next`"}
        }"#,
        required: &[],
        answer: Recall::history,
    },
];

impl ToolSpec {
    /// Returns the schema of its arguments; where all sessions may be read, they name one.
    pub fn schema(&self, all: bool) -> Value {
        let mut properties: Given = serde_json::from_str(self.properties).unwrap_or_default();
        let mut required: Vec<&str> = self.required.to_vec();
        if all {
            let about = "the session: its id or a unique prefix";
            let session = json!({"type": "string", "description": about});
            properties.insert("session_id".into(), session);
            required.push("session_id");
        }
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// What the tools may read, and how much at once.
pub struct Recall {
    /// `None`: every session.
    pub session: Option<SessionId>,
    /// The most that an answer may be, in bytes.
    pub most: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    query: String,
    hidden: Option<bool>,
    role: Option<String>,
    tool: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpandArgs {
    loop_id: Option<String>,
    first: u32,
    last: Option<u32>,
    #[serde(default)]
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverviewArgs {
    loop_id: Option<String>,
    #[serde(default)]
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryArgs {
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

impl Recall {
    /// Answers a call, or says what is wrong with it.
    pub fn call(
        &self,
        store: &dyn Database,
        tool: &ToolSpec,
        mut given: Given,
    ) -> Result<String, String> {
        let session = match &self.session {
            Some(only) => only.clone(),
            None => match given.remove("session_id") {
                Some(Value::String(id)) => select::session(store, &id).map_err(message)?.session_id,
                _ => return Err("`session_id` is missing: an id or a unique prefix".into()),
            },
        };
        (tool.answer)(self, store, &session, given)
    }

    fn search(
        &self,
        store: &dyn Database,
        session: &SessionId,
        given: Given,
    ) -> Result<String, String> {
        let args: SearchArgs = read(given)?;
        let mut query = SearchQuery::new(args.query);
        query.session = Some(session.clone());
        query.hidden = args.hidden;
        query.tool = args.tool;
        query.limit = Some(args.limit.unwrap_or(LIMIT).min(100));
        query.offset = args.offset;
        query.role = match args.role.as_deref() {
            None => None,
            Some("user") => Some(Role::User),
            Some("assistant") => Some(Role::Assistant),
            Some("toolResult") => Some(Role::ToolResult),
            Some(_) => return Err("`role` must be user, assistant or toolResult".into()),
        };
        let found = search(store, &query).map_err(message)?;
        let hits = found.hits.iter().map(serde_json::to_value);
        let hits = hits.collect::<Result<Vec<_>, _>>().map_err(message)?;
        Ok(self.page("hits", hits, args.offset, found.next))
    }

    fn expand(
        &self,
        store: &dyn Database,
        session: &SessionId,
        given: Given,
    ) -> Result<String, String> {
        let args: ExpandArgs = read(given)?;
        let last = args.last.unwrap_or(args.first);
        let loop_id = loop_of(store, session, args.loop_id.as_deref())?;
        let tokens = Some(self.most as u64 / 4);
        let turns = (args.first, last);
        let found =
            inspect::expand(store, session, loop_id.as_ref(), turns, tokens).map_err(message)?;
        let text: Vec<String> = found.messages.iter().map(context_text::message).collect();
        let text: String = text.join("\n");
        let rest: String = text.chars().skip(args.offset).collect();
        // The last line needs some room.
        let shown = cut(&rest, self.most.saturating_sub(120));
        let mut answer = shown.to_owned();
        if shown.len() < rest.len() {
            let offset = args.offset + shown.chars().count();
            let (first, last) = (args.first, found.next.map_or(last, |next| next - 1));
            answer.push_str(&format!(
                "\n[continue with first {first}, last {last}, offset {offset}]"
            ));
        } else if let Some(next) = found.next {
            answer.push_str(&format!("\n[continue with first {next}, last {last}]"));
        }
        Ok(answer)
    }

    fn overview(
        &self,
        store: &dyn Database,
        session: &SessionId,
        given: Given,
    ) -> Result<String, String> {
        let args: OverviewArgs = read(given)?;
        let options = BuildOptions {
            leaf: loop_of(store, session, args.loop_id.as_deref())?,
            ..BuildOptions::default()
        };
        let parts = context_parts(store, session, &options).map_err(message)?;
        let parts = parts.iter().map(serde_json::to_value);
        let mut parts = parts.collect::<Result<Vec<_>, _>>().map_err(message)?;
        let mut prompts = prompts_of(store, session).map_err(message)?;
        for part in &mut parts {
            // With the first part of each loop.
            let prompt = part["loop_id"].as_str().and_then(|id| prompts.remove(id));
            if let Some(prompt) = prompt {
                part["prompt"] = json!(prompt);
            }
        }
        let rest = parts.into_iter().skip(args.offset).collect();
        Ok(self.page("parts", rest, args.offset, None))
    }

    fn history(
        &self,
        store: &dyn Database,
        session: &SessionId,
        given: Given,
    ) -> Result<String, String> {
        const COLUMNS: [&str; 11] = [
            "run_id",
            "loop_id",
            "started_at",
            "trigger",
            "strategy",
            "outcome",
            "is_live",
            "fallback",
            "tokens_before",
            "tokens_after",
            "error",
        ];
        let args: HistoryArgs = read(given)?;
        let limit = args.limit.unwrap_or(LIMIT).min(100);
        let runs = store.run_rows(Some(session)).map_err(message)?;
        let row = |run: &Record| -> Value {
            let cell = |name: &&str| {
                let value = match run.text(name) {
                    Some(text) => json!(cut(&text, MAX_CELL)),
                    None => json!(run.get(name)),
                };
                ((*name).to_owned(), value)
            };
            Value::Object(COLUMNS.iter().map(cell).collect())
        };
        let next = (runs.len() > args.offset.saturating_add(limit)).then_some(args.offset + limit);
        let rows = runs.iter().skip(args.offset).take(limit).map(row).collect();
        Ok(self.page("runs", rows, args.offset, next))
    }

    /// Gives as many of the values as fit, at least one, and where to go on: at `next` behind all of
    /// them.
    fn page(&self, name: &str, values: Vec<Value>, offset: usize, next: Option<usize>) -> String {
        let mut next = next;
        let mut size = 0;
        let mut given = Vec::new();
        let all = values.len();
        for value in values {
            size += value.to_string().len() + 1;
            if size + 60 > self.most && !given.is_empty() {
                break;
            }
            given.push(value);
        }
        if given.len() < all {
            next = Some(offset + given.len());
        }
        json!({ name: given, "next": next }).to_string()
    }
}

fn read<T: DeserializeOwned>(given: Given) -> Result<T, String> {
    serde_json::from_value(Value::Object(given))
        .map_err(|error| format!("invalid arguments: {error}"))
}

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns what each loop of a session was asked first, by its id.
fn prompts_of(store: &dyn Database, session: &SessionId) -> StoreResult<HashMap<String, String>> {
    store::read(store, |read| {
        let Some(row) = read.session(session)? else {
            return Ok(HashMap::new());
        };
        let prompts = prompt::loop_prompts(read, row.key)?;
        let loops = read.loops(row.key)?.into_iter();
        let prompt = |row: store::LoopRow| {
            let prompt = prompts.get(&row.key)?.clone();
            Some((row.core.loop_id.to_string(), prompt))
        };
        Ok(loops.filter_map(prompt).collect())
    })
}

fn loop_of(
    store: &dyn Database,
    session: &SessionId,
    given: Option<&str>,
) -> Result<Option<LoopId>, String> {
    let Some(given) = given else { return Ok(None) };
    let row = select::session(store, session.as_str()).map_err(message)?;
    select::loop_id(store, &row, Some(given)).map_err(message)
}

/// Returns the beginning of a text of at most `most` bytes, whole characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
