//! Items of the Responses API as a framework keeps them: each becomes a message, and comes back as it was.
//!
//! What a message has no place for (ids, states, annotations, the form of the content) stands in a field of
//! its own beside it: the item's text, in which each long string that the message holds as well is replaced
//! by a mark. So nothing is stored twice, and what a compaction shortened comes back short.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use loopstore::extend::{
    self, LoopKey, Outcome, StoreRead, StoreWrite, append, session, session_of,
};
use loopstore::provider::{self, Form, ProviderRequest};
use loopstore::{
    AgentMessage, Author, Content, Context, EntryQuery, EntryRef, Json, LoopId, LoopRecord,
    Message, Role, SessionHandle, StoreError, TokenCounter, TurnId, UserMessage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::Failure;

/// The field of a message that holds the text of its item.
const ITEM: &str = "responsesItem";
/// The field of a compaction of the provider's own that says what it stands for.
const STANDS_FOR: &str = "standsFor";
/// The mark in place of a string; a number and `}` follow. As text it occurs in no string of JSON.
const MARK: &str = r#"{"$loopstore":"#;
/// Shorter strings stay where they are.
const SHORT: usize = 32;

/// The last message that a compaction of the provider's own stands for.
#[derive(Serialize, Deserialize)]
struct StandsFor {
    loop_id: String,
    seq: u32,
}

/// Makes messages of items.
pub fn read(json: &[u8]) -> Result<Vec<AgentMessage>, Failure> {
    let items: Vec<&RawValue> = serde_json::from_slice(json)?;
    let mut response = None;
    let messages = items.into_iter().map(|item| {
        let message = message_of(item.get())?;
        // What the model put out in a row is one answer.
        Ok(match message.role() {
            Role::Assistant => message.of_response(response.get_or_insert_with(fresh_id)),
            _ => {
                response = None;
                message
            }
        })
    });
    messages.collect()
}

/// Returns an id that no other answer has.
fn fresh_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("items-{nanos:x}-{:x}-{count:x}", std::process::id())
}

fn message_of(item: &str) -> Result<AgentMessage, Failure> {
    let value: Value = serde_json::from_str(item)?;
    let read = provider::read(Form::OpenAiResponses, &value).unwrap_or_default();
    let mut message = match <[AgentMessage; 1]>::try_from(read) {
        Ok([message @ AgentMessage::Llm(_)]) => message,
        _ => unread(item, &value)?,
    };
    let extra = message.extra_mut();
    extra.remove("source");
    let kept = match Json::parse(&template(&message, item)) {
        Ok(template) => template,
        // It nests too deep to stand within another.
        Err(_) => Json::string(item),
    };
    message.extra_mut().insert(ITEM, kept);
    Ok(message)
}

/// Makes a message of an item that no message has a place for: its texts can be found, and the rest is kept.
fn unread(item: &str, value: &Value) -> Result<AgentMessage, Failure> {
    let role = value.get("role").and_then(Value::as_str);
    let said: Vec<&str> = match value.get("content") {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => Vec::new(),
    };
    let mut content: Vec<Content> = said.into_iter().map(Content::text).collect();
    if let Some(role @ ("user" | "system" | "developer")) = role {
        if content.is_empty() {
            content.push(kept(item));
        }
        return Ok(Message::User(UserMessage {
            content,
            author: (role != "user").then_some(Author::Harness),
            ..UserMessage::default()
        })
        .into());
    }
    if content.is_empty() {
        content.push(kept(item));
    }
    Ok(Message::Assistant(loopstore::AssistantMessage {
        content,
        ..Default::default()
    })
    .into())
}

/// Returns the block that keeps an item of the provider.
fn kept(item: &str) -> Content {
    let block = format!(r#"{{"type":"providerItem","form":"responses","item":{item}}}"#);
    match Json::parse(&block) {
        Ok(block) => Content::Other(block),
        Err(_) => Content::text(item),
    }
}

/// Returns the strings of a message that an item may hold too.
fn strings(message: &AgentMessage) -> Vec<Cow<'_, str>> {
    let content = message.message().map(Message::content).unwrap_or_default();
    let string = |block| match block {
        &Content::Text(ref text) => Cow::Borrowed(text.text.as_str()),
        &Content::Thinking(ref thinking) => Cow::Borrowed(thinking.thinking.as_str()),
        &Content::ToolCall(ref call) => Cow::Borrowed(call.arguments.as_str()),
        &Content::Image(ref image) => {
            Cow::Owned(format!("data:{};base64,{}", image.mime_type, image.data))
        }
        _ => Cow::Borrowed(""),
    };
    content.iter().map(string).collect()
}

/// Returns the text of an item with marks in place of what its message holds.
fn template(message: &AgentMessage, item: &str) -> String {
    let strings = strings(message);
    if item.contains(MARK) || strings.iter().all(|string| string.len() < SHORT) {
        return item.to_owned();
    }
    let (mut out, mut rest) = (String::with_capacity(item.len()), item);
    while let Some(start) = rest.find('"') {
        let length = literal(&rest[start..]);
        let (before, literal, after) = (
            &rest[..start],
            &rest[start..start + length],
            &rest[start + length..],
        );
        out.push_str(before);
        let is_name = after.trim_start().starts_with(':');
        let place = match literal.len() < SHORT || is_name {
            true => None,
            false => serde_json::from_str::<String>(literal)
                .ok()
                .and_then(|text| strings.iter().position(|string| *string == text)),
        };
        match place {
            Some(place) => out.push_str(&format!("{MARK}{place}}}")),
            None => out.push_str(literal),
        }
        rest = after;
    }
    out + rest
}

/// Returns how long the string of JSON is that a text begins with.
fn literal(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Puts what a message holds in the places of the marks.
fn filled(message: &AgentMessage, template: &str) -> Result<String, Failure> {
    let strings = strings(message);
    let (mut out, mut rest) = (String::with_capacity(template.len()), template);
    while let Some((before, after)) = rest.split_once(MARK) {
        out.push_str(before);
        let Some((number, behind)) = after.split_once('}') else {
            return Ok(template.to_owned());
        };
        let Ok(place) = number.parse::<usize>() else {
            // The item itself had such a mark.
            return Ok(template.to_owned());
        };
        let string = strings.get(place).map(AsRef::as_ref).unwrap_or_default();
        out.push_str(&serde_json::to_string(string)?);
        rest = behind;
    }
    Ok(out + rest)
}

/// Items, written one after the other.
#[derive(Default)]
struct Items {
    out: Vec<String>,
    /// Messages in a row that were not made of items.
    others: Vec<AgentMessage>,
}

impl Items {
    fn add(&mut self, message: &AgentMessage) -> Result<(), Failure> {
        let Some(item) = extra_of(message, ITEM) else {
            if message.message().is_some() {
                self.others.push(message.clone());
            }
            return Ok(());
        };
        self.flush()?;
        let text = match item.read::<String>() {
            Ok(text) => text,
            Err(_) => filled(message, item.as_str())?,
        };
        match text.starts_with('[') && extra_of(message, STANDS_FOR).is_some() {
            true => {
                let several: Vec<&RawValue> = serde_json::from_str(&text)?;
                self.out
                    .extend(several.iter().map(|one| one.get().to_owned()));
            }
            false => self.out.push(text),
        }
        Ok(())
    }

    /// Writes the messages that were not made of items in the provider's form.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.others.is_empty() {
            return Ok(());
        }
        #[derive(Deserialize)]
        struct Request {
            input: Vec<Box<RawValue>>,
        }
        let request = ProviderRequest::new(Form::OpenAiResponses, &self.others);
        let request: Request = serde_json::from_str(&serde_json::to_string(&request)?)?;
        let items = request.input.iter().map(|item| item.get().to_owned());
        self.out.extend(items);
        self.others.clear();
        Ok(())
    }

    fn of<'a>(
        messages: impl IntoIterator<Item = &'a AgentMessage>,
    ) -> Result<Vec<String>, Failure> {
        let mut items = Self::default();
        for message in messages {
            items.add(message)?;
        }
        items.flush()?;
        Ok(items.out)
    }
}

fn extra_of<'a>(message: &'a AgentMessage, name: &str) -> Option<&'a Json> {
    match message {
        AgentMessage::Llm(message) => message.extra.get(name),
        AgentMessage::Extension(_) => None,
    }
}

/// Returns the items of a session's context, the last `limit` of them if that is given, as a list of JSON.
pub fn write(session: &SessionHandle, limit: Option<usize>) -> Result<Vec<u8>, Failure> {
    let mut items = match limit {
        // Nothing is hidden: the last ones are the last that were stored.
        Some(limit) if !is_compacted(session)? => {
            let entries = session.entries(&messages().last(limit))?;
            match entries.iter().any(|entry| is_sealed(&entry.message)) {
                true => of_context(session)?,
                false => Items::of(entries.iter().map(|entry| &entry.message))?,
            }
        }
        _ => of_context(session)?,
    };
    let surplus = items.len().saturating_sub(limit.unwrap_or(usize::MAX));
    items.drain(..surplus);
    Ok(format!("[{}]", items.join(",")).into_bytes())
}

/// What a model sees: everything but extensions.
fn messages() -> EntryQuery {
    EntryQuery::new().roles([Role::User, Role::Assistant, Role::ToolResult])
}

fn is_sealed(message: &AgentMessage) -> bool {
    extra_of(message, STANDS_FOR).is_some()
}

/// Whether a compaction was ever committed in the session, whatever became of it.
fn is_compacted(session: &SessionHandle) -> Result<bool, Failure> {
    let found = extend::read(session.store().database(), |read| {
        let Some(row) = read.session(session.id())? else {
            return Ok(false);
        };
        let mut found = false;
        read.runs(row.key, &mut |run| {
            found |= run.outcome == Outcome::Committed;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    });
    Ok(found?)
}

/// Returns the items of the whole context. A compaction of the provider's own stands for what was before it
/// when it was asked for; what came meanwhile follows it.
fn of_context(session: &SessionHandle) -> Result<Vec<String>, Failure> {
    let Context { messages, .. } = session.context()?;
    let Some(compaction) = messages.iter().rev().find(|message| is_sealed(message)) else {
        return Items::of(&messages);
    };
    let mut items = Items::of([compaction])?;
    let stands_for = extra_of(compaction, STANDS_FOR).and_then(|json| json.read().ok());
    let query = match stands_for {
        Some(StandsFor { loop_id, seq }) => self::messages().after(EntryRef::new(loop_id, seq)),
        None => self::messages(),
    };
    let after = session.entries(&query)?;
    let after = after.iter().map(|entry| &entry.message);
    items.extend(Items::of(after.filter(|message| !is_sealed(message)))?);
    Ok(items)
}

/// Appends what the provider's own compaction of everything until now gave: `items` stand for all up to
/// message `seq` of loop `loop_id`.
pub fn seal(
    session: &SessionHandle,
    items: &[u8],
    loop_id: String,
    seq: u32,
) -> Result<(), Failure> {
    let text = std::str::from_utf8(items).map_err(|error| Failure::Input(error.to_string()))?;
    let value: Value = serde_json::from_str(text)?;
    let read = provider::read(Form::OpenAiResponses, &value)?;
    let sealed = read.into_iter().filter_map(|message| match message {
        AgentMessage::Llm(message) => Some(message.message.content().to_vec()),
        AgentMessage::Extension(_) => None,
    });
    let content = sealed
        .flatten()
        .filter(|block| matches!(block, Content::Sealed(_)));
    let mut message = AgentMessage::from(Message::Assistant(loopstore::AssistantMessage {
        content: content.collect(),
        ..Default::default()
    }))
    .of_response(&fresh_id());
    let extra = message.extra_mut();
    extra.insert(ITEM, Json::parse(text)?);
    extra.insert(STANDS_FOR, Json::of(&StandsFor { loop_id, seq })?);
    session.append([message])?;
    Ok(())
}

/// Returns all items with the place of the last message, for a compaction by the provider; nothing if there
/// are none.
pub fn snapshot(session: &SessionHandle) -> Result<Option<(Vec<u8>, String, u32)>, Failure> {
    let Some(last) = session.entries(&messages().last(1))?.pop() else {
        return Ok(None);
    };
    let items = format!("[{}]", of_context(session)?.join(",")).into_bytes();
    Ok(Some((items, last.loop_id.to_string(), last.seq)))
}

/// Takes the last item back: a branch without it becomes the current loop. Returns the item, nothing if
/// there is none.
pub fn pop(session: &SessionHandle) -> Result<Option<Vec<u8>>, Failure> {
    let backend = session.store().database();
    loop {
        let end = extend::read(backend, |read| end_of(read, session))?;
        let Some(last) = session.entries(&messages().last(1))?.pop() else {
            return Ok(None);
        };
        let (turn, loop_id) = (last.turn.unwrap_or_default(), last.loop_id.clone());
        let before = EntryQuery::of_loop(loop_id.clone(), 0..last.seq);
        let kept = session.entries(&before.last(TURN_MESSAGES))?;
        let kept = kept.into_iter().filter(|entry| entry.turn == Some(turn));
        let kept: Vec<AgentMessage> = kept.map(|entry| entry.message).collect();
        let done = extend::write(backend, |write| {
            if end_of(write.as_read(), session)? != end {
                return Ok(false);
            }
            branch(write, session, (&loop_id, turn), kept, backend.counter())?;
            Ok(true)
        })?;
        if done {
            let item = Items::of([&last.message])?.pop();
            return Ok(Some(item.unwrap_or_else(|| "null".into()).into_bytes()));
        }
    }
}

/// The most messages of a turn.
const TURN_MESSAGES: usize = 100_000;

/// Returns where a session ends: its current loop, and the sequence that comes next there.
fn end_of(
    read: &dyn StoreRead,
    session: &SessionHandle,
) -> Result<Option<(LoopKey, u32)>, StoreError> {
    let Some((_, leaf)) = read.current(session.id())? else {
        return Ok(None);
    };
    let next = read.loop_by_key(leaf)?.core.totals.next_seq;
    Ok(Some((leaf, next)))
}

/// Begins a branch that ends before a turn and goes on with `kept`.
fn branch(
    write: &mut dyn StoreWrite,
    session: &SessionHandle,
    (loop_id, turn): (&LoopId, u32),
    kept: Vec<AgentMessage>,
    counter: &dyn TokenCounter,
) -> Result<(), StoreError> {
    let owner = session_of(write.as_read(), session.id())?;
    let row = write
        .loop_by_id(owner.key, loop_id)?
        .ok_or_else(|| StoreError::NoLoop(loop_id.to_string()))?;
    let id = LoopId::generate();
    let at = match turn.checked_sub(1) {
        Some(turn) => Some((row.key, turn)),
        None => row.core.parent.zip(row.core.parent_turn),
    };
    let key = match at {
        Some((parent, turn)) => {
            let fork = session::Fork {
                seq: None,
                loop_id: id.clone(),
                turn,
                tag: "pop_item".into(),
            };
            session::fork(write, parent, &fork)?
        }
        None => session::create_loop(write, owner.key, &LoopRecord::new(id.clone(), None))?,
    };
    if kept.is_empty() {
        return Ok(());
    }
    let turn_id = TurnId::new(id.as_str(), 0);
    let kept = kept
        .into_iter()
        .map(|one| one.in_turn(turn_id.clone()).into());
    append::append(write, key, kept.collect(), counter).map(drop)
}
