//! Items as a framework keeps them, of the Responses API or of the Agents SDK for JavaScript: each becomes a
//! message, and comes back as it was.
//!
//! What a message has no place for (ids, states, annotations, the form of the content) stands in a field of
//! its own beside it: the item's text, in which each long string that the message holds as well is replaced
//! by a mark. So nothing is stored twice, and what a compaction shortened comes back short.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use loopstore::context::PartSection;
use loopstore::extend::{self, LoopKey, Outcome, StoreRead, StoreWrite, session, session_of};
use loopstore::provider::{self, Form, ProviderRequest};
use loopstore::{
    AgentMessage, Author, Content, Entry, EntryQuery, EntryRef, Json, LoopId, LoopRecord, Message,
    Role, SealingProvider, SessionHandle, StoreError, UserMessage,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::Failure;

/// Whose items they are. An item of one is none of the other: there its message is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemForm {
    /// The Responses API's.
    Responses,
    /// The Agents SDK's for JavaScript, which has names of its own. Those that are not made of items of its own
    /// come as `{"$responses": …}`.
    Agents,
}

impl ItemForm {
    /// Returns the field of a message that holds the text of its item.
    fn field(self) -> &'static str {
        match self {
            Self::Responses => "responsesItem",
            Self::Agents => "agentsItem",
        }
    }
}

/// The mark in place of a string; a number and `}` follow. As text it occurs in no string of JSON.
const MARK: &str = r#"{"$loopstore":"#;
/// Shorter strings stay where they are.
const SHORT: usize = 32;

/// Makes messages of items of the Responses API.
pub fn read(json: &[u8]) -> Result<Vec<AgentMessage>, Failure> {
    let items: Vec<&RawValue> = serde_json::from_slice(json)?;
    let shown = items.into_iter().map(|item| (item.get(), Some(item.get())));
    messages_of(ItemForm::Responses, shown)
}

/// Makes messages of items of the Agents SDK, each with the item of the Responses API that says the same, or null.
pub fn read_agents(json: &[u8]) -> Result<Vec<AgentMessage>, Failure> {
    let items: Vec<(&RawValue, Option<&RawValue>)> = serde_json::from_slice(json)?;
    let shown = items
        .into_iter()
        .map(|(item, shown)| (item.get(), shown.map(RawValue::get)));
    messages_of(ItemForm::Agents, shown)
}

fn messages_of<'a>(
    form: ItemForm,
    items: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Vec<AgentMessage>, Failure> {
    let mut response = None;
    let messages = items.map(|(item, shown)| {
        let message = message_of(form, item, shown)?;
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

fn message_of(form: ItemForm, item: &str, shown: Option<&str>) -> Result<AgentMessage, Failure> {
    let read = shown.map(|shown| provider::read_str(Form::OpenAiResponses, shown));
    let read = read.and_then(Result::ok).unwrap_or_default();
    let mut message = match <[AgentMessage; 1]>::try_from(read) {
        Ok([message @ AgentMessage::Llm(_)]) => message,
        _ => unread(item)?,
    };
    let extra = message.extra_mut();
    extra.remove("source");
    if sealed_item(&message) == Some(item) {
        // The block is the item.
        message.extra_mut().insert(form.field(), Json::null());
        return Ok(message);
    }
    let kept = match Json::parse(&template(&message, item)) {
        Ok(template) => template,
        // It nests too deep to stand within another.
        Err(_) => Json::string(item),
    };
    message.extra_mut().insert(form.field(), kept);
    Ok(message)
}

/// Makes a message of an item that no message has a place for: its texts can be found, and the rest is kept.
fn unread(item: &str) -> Result<AgentMessage, Failure> {
    let value: Value = serde_json::from_str(item)?;
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

/// Returns the item of state that only the provider can read, if a message holds nothing else.
fn sealed_item(message: &AgentMessage) -> Option<&str> {
    match message.message()?.content() {
        [Content::Sealed(sealed)] => Some(sealed.item.as_str()),
        _ => None,
    }
}

/// Returns the strings of a message that an item may hold too.
fn strings(message: &AgentMessage) -> Vec<Cow<'_, str>> {
    let content = message.message().map(Message::content).unwrap_or_default();
    let mut strings = Vec::with_capacity(content.len());
    for block in content {
        strings.push(match block {
            Content::Text(text) => Cow::Borrowed(text.text.as_str()),
            Content::Thinking(thinking) => Cow::Borrowed(thinking.thinking.as_str()),
            Content::ToolCall(call) => Cow::Borrowed(call.arguments.as_str()),
            Content::Image(image) => {
                Cow::Owned(format!("data:{};base64,{}", image.mime_type, image.data))
            }
            Content::Sealed(sealed) => Cow::Owned(encrypted(sealed.item.as_str())),
            _ => Cow::Borrowed(""),
        });
    }
    strings
}

/// Returns what of an item of the provider's state is encrypted.
fn encrypted(item: &str) -> String {
    #[derive(Deserialize)]
    struct Encrypted {
        encrypted_content: String,
    }
    let found: Option<Encrypted> = serde_json::from_str(item).ok();
    found
        .map(|found| found.encrypted_content)
        .unwrap_or_default()
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
pub(crate) struct Items {
    form: ItemForm,
    out: Vec<String>,
    /// Messages in a row that were not made of items.
    others: Vec<AgentMessage>,
}

impl Items {
    fn add(&mut self, message: &AgentMessage) -> Result<(), Failure> {
        let Some(item) = extra_of(message, self.form.field()) else {
            if message.message().is_some() {
                self.others.push(message.clone());
            }
            return Ok(());
        };
        self.flush()?;
        let text = match (item.read::<String>(), sealed_item(message)) {
            (Ok(text), _) => text,
            (Err(_), Some(sealed)) if item.is_null() => sealed.to_owned(),
            (Err(_), _) => filled(message, item.as_str())?,
        };
        self.out.push(text);
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
        let items = request.input.iter().map(|item| match self.form {
            ItemForm::Responses => item.get().to_owned(),
            ItemForm::Agents => format!(r#"{{"$responses":{}}}"#, item.get()),
        });
        self.out.extend(items);
        self.others.clear();
        Ok(())
    }

    pub(crate) fn of<'a>(
        form: ItemForm,
        messages: impl IntoIterator<Item = &'a AgentMessage>,
    ) -> Result<Vec<String>, Failure> {
        let mut items = Self {
            form,
            out: Vec::new(),
            others: Vec::new(),
        };
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
pub fn write(
    session: &SessionHandle,
    form: ItemForm,
    limit: Option<usize>,
) -> Result<Vec<u8>, Failure> {
    let mut items = match limit {
        // Nothing is hidden: the last ones are the last that were stored.
        Some(limit) if !is_compacted(session)? => {
            let entries = session.entries(&messages().last(limit))?;
            Items::of(form, entries.iter().map(|entry| &entry.message))?
        }
        _ => of_context(session, form)?,
    };
    let surplus = items.len().saturating_sub(limit.unwrap_or(usize::MAX));
    items.drain(..surplus);
    Ok(format!("[{}]", items.join(",")).into_bytes())
}

/// What a model sees: everything but extensions.
pub(crate) fn messages() -> EntryQuery {
    EntryQuery::new().roles([Role::User, Role::Assistant, Role::ToolResult])
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
            Ok(match found {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(found)
    });
    Ok(found?)
}

/// Returns the items of the whole context.
fn of_context(session: &SessionHandle, form: ItemForm) -> Result<Vec<String>, Failure> {
    Items::of(form, &session.context()?.messages)
}

/// Records what OpenAI's own compaction gave: its items stand for all up to message `seq` of loop `loop_id`.
pub fn seal(
    session: &SessionHandle,
    items: Vec<AgentMessage>,
    loop_id: String,
    seq: u32,
) -> Result<(), Failure> {
    let through = EntryRef::new(loop_id, seq);
    session.record_compaction(SealingProvider::OpenAi, &through, items)?;
    Ok(())
}

/// Returns all items with the place of the last message, for a compaction by the provider; nothing if there
/// are none.
pub fn snapshot(
    session: &SessionHandle,
    form: ItemForm,
) -> Result<Option<(Vec<u8>, String, u32)>, Failure> {
    let Some(last) = session.entries(&messages().last(1))?.pop() else {
        return Ok(None);
    };
    let items = format!("[{}]", of_context(session, form)?.join(",")).into_bytes();
    Ok(Some((items, last.loop_id.to_string(), last.seq)))
}

/// Takes the last item back: a branch without it becomes the current loop; of a compaction that nothing
/// followed the originals are back. Returns the item, nothing if there is none.
pub fn pop(session: &SessionHandle, form: ItemForm) -> Result<Option<Vec<u8>>, Failure> {
    let backend = session.store().database();
    loop {
        // A handle stays on its line; somebody else may have begun another.
        let session = &session
            .store()
            .session(session.id().as_str())?
            .with_policy(session.policy().clone());
        let end = extend::read(backend, |read| end_of(read, session))?;
        if let Some(item) = undo_of_provider(session, form)? {
            return Ok(Some(item));
        }
        let mut last = session.entries(&messages().last(2))?;
        let Some(popped) = last.pop() else {
            return Ok(None);
        };
        let before = last.pop();
        let done = extend::write(backend, |write| {
            // What somebody else added meanwhile is not taken back.
            let is_same = end_of(write.as_read(), session)? == end;
            if is_same {
                branch_after(write, session, before.as_ref(), "pop_item")?;
            }
            Ok(is_same)
        })?;
        if done {
            let item = Items::of(form, [&popped.message])?.pop();
            return Ok(Some(item.unwrap_or_else(|| "null".into()).into_bytes()));
        }
    }
}

/// Undoes a compaction of the provider's that nothing followed; returns the last of its items.
fn undo_of_provider(session: &SessionHandle, form: ItemForm) -> Result<Option<Vec<u8>>, Failure> {
    if session.policy().request().provider.is_none() {
        return Ok(None);
    }
    let context = session.context()?;
    let last = context.parts.last().map(|part| part.section);
    if context.compaction.is_none() || last != Some(PartSection::Sealed) {
        return Ok(None);
    }
    session.undo()?;
    let item = Items::of(form, &context.messages)?.pop();
    Ok(item.map(String::into_bytes))
}

/// Returns where a session ends: its current loop, and the sequence that comes next there.
pub(crate) fn end_of(
    read: &dyn StoreRead,
    session: &SessionHandle,
) -> Result<Option<(LoopKey, u32)>, StoreError> {
    let Some((_, leaf)) = read.current(session.id())? else {
        return Ok(None);
    };
    let next = read.loop_by_key(leaf)?.core.totals.next_seq;
    Ok(Some((leaf, next)))
}

/// Begins a branch that ends with a message, or an empty one.
pub(crate) fn branch_after(
    write: &mut dyn StoreWrite,
    session: &SessionHandle,
    last: Option<&Entry>,
    tag: &str,
) -> Result<LoopKey, StoreError> {
    let owner = session_of(write.as_read(), session.id())?;
    let id = LoopId::generate();
    let Some(last) = last else {
        return session::create_loop(write, owner.key, &LoopRecord::new(id, None));
    };
    let row = write
        .loop_by_id(owner.key, &last.loop_id)?
        .ok_or_else(|| StoreError::NoLoop(last.loop_id.to_string()))?;
    let fork = session::Fork {
        loop_id: id,
        turn: last.turn.unwrap_or_default(),
        seq: Some(last.seq),
        tag: tag.into(),
    };
    session::fork(write, row.key, &fork)
}
