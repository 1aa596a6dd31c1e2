//! Items of a framework, in the format of the Responses API or of the Agents SDK for JavaScript: each becomes a
//! message, and is returned unchanged.
//!
//! The fields that a message lacks (ids, states, annotations, the form of the content) are kept in an extra field:
//! the text of the item, in which each long string that the message also contains is replaced
//! by a mark. So nothing is stored twice, and content that a compaction shortened is returned short.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use loopstore::context::PartSection;
use loopstore::extend::{self, LoopKey, StoreRead, StoreWrite, session, session_of};
use loopstore::provider::{self, Form, NO_RESULT, ProviderRequest};
use loopstore::{
    AgentMessage, Author, Content, Entry, EntryQuery, EntryRef, Json, LoopId, LoopRecord, Message,
    Role, SealingProvider, SessionHandle, StoreError, ToolCall, UserMessage,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::CallError;
use crate::item_texts;

/// The format of items. An item of one format is not used in the other: its message is converted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemForm {
    /// Items of the Responses API.
    Responses,
    /// Items of the Agents SDK for JavaScript, which has names of its own. Messages that were not made of its items
    /// are written as `{"$responses": …}`.
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

/// Makes messages of items of the Responses API.
pub fn read(json: &[u8]) -> Result<Vec<AgentMessage>, CallError> {
    let items: Vec<&RawValue> = serde_json::from_slice(json)?;
    let shown = items.into_iter().map(|item| (item.get(), Some(item.get())));
    messages_of(ItemForm::Responses, shown)
}

/// Makes messages of items of the Agents SDK, each with the equivalent item of the Responses API, or null.
pub fn read_agents(json: &[u8]) -> Result<Vec<AgentMessage>, CallError> {
    let items: Vec<(&RawValue, Option<&RawValue>)> = serde_json::from_slice(json)?;
    let shown = items
        .into_iter()
        .map(|(item, shown)| (item.get(), shown.map(RawValue::get)));
    messages_of(ItemForm::Agents, shown)
}

fn messages_of<'a>(
    form: ItemForm,
    items: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Vec<AgentMessage>, CallError> {
    let mut response = None;
    let messages = items.map(|(item, shown)| {
        let message = message_of(form, item, shown)?;
        // Consecutive outputs of the model are one answer.
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

fn message_of(form: ItemForm, item: &str, shown: Option<&str>) -> Result<AgentMessage, CallError> {
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
    let kept = item_texts::shortened(&message, item);
    message.extra_mut().insert(form.field(), kept);
    Ok(message)
}

/// Makes a message of an unknown item: its texts can be searched, and the rest is kept.
fn unread(item: &str) -> Result<AgentMessage, CallError> {
    let value: Value = serde_json::from_str(item)?;
    let role = value.get("role").and_then(Value::as_str);
    let texts: Vec<&str> = match value.get("content") {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => Vec::new(),
    };
    let mut content: Vec<Content> = texts.into_iter().map(Content::text).collect();
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

/// Returns the opaque item of the provider, if a message contains nothing else.
fn sealed_item(message: &AgentMessage) -> Option<&str> {
    match message.message()?.content() {
        [Content::Sealed(sealed)] => Some(sealed.item.as_str()),
        _ => None,
    }
}

/// Items, written one after the other as a list of JSON that is not ended yet.
pub(crate) struct ItemList {
    form: ItemForm,
    list: String,
    /// The start of each item.
    begins: Vec<usize>,
    /// Messages in a row that were not made of items.
    others: Vec<AgentMessage>,
}

impl ItemList {
    pub(crate) fn of<'a>(
        form: ItemForm,
        messages: impl IntoIterator<Item = &'a AgentMessage>,
    ) -> Result<Self, CallError> {
        let mut items = Self {
            form,
            list: "[".into(),
            begins: Vec::new(),
            others: Vec::new(),
        };
        let messages: Vec<&AgentMessage> = messages.into_iter().collect();
        for (at, message) in messages.iter().enumerate() {
            items.add(message, &messages[at..])?;
        }
        items.flush()?;
        Ok(items)
    }

    /// Adds a message; `rest` begins with it.
    fn add(&mut self, message: &AgentMessage, rest: &[&AgentMessage]) -> Result<(), CallError> {
        let Some(kept) = extra_of(message, self.form.field()) else {
            if message.message().is_some() {
                self.others.push(message.clone());
            }
            return Ok(());
        };
        self.close_calls(rest);
        self.flush()?;
        self.begin();
        match sealed_item(message) {
            Some(sealed) if kept.is_null() => self.list.push_str(sealed),
            _ => item_texts::write_whole(&mut self.list, message, kept),
        }
        Ok(())
    }

    fn begin(&mut self) {
        if !self.begins.is_empty() {
            self.list.push(',');
        }
        self.begins.push(self.list.len());
    }

    /// Adds results to the calls of messages that were not made of items if the conversation continues after
    /// them without a result: a provider rejects such a call. The calls of the last turn stay open.
    fn close_calls(&mut self, rest: &[&AgentMessage]) {
        let goes_on =
            |message: &&AgentMessage| matches!(message.role(), Role::User | Role::Assistant);
        if self.others.is_empty() || !rest.iter().any(goes_on) {
            return;
        }
        let mut open: Vec<ToolCall> = Vec::new();
        for message in self.others.iter().filter_map(AgentMessage::message) {
            match message {
                // The request itself closes calls before another prompt.
                Message::User(_) => open.clear(),
                Message::Assistant(_) => open.extend(message.tool_calls().cloned()),
                Message::ToolResult(result) => open.retain(|call| call.id != result.tool_call_id),
            }
        }
        for message in rest.iter().filter_map(|message| message.message()) {
            if let Message::ToolResult(result) = message {
                open.retain(|call| call.id != result.tool_call_id);
            }
        }
        let results = open.into_iter();
        let results = results.map(|call| Message::tool_result(call.id, NO_RESULT).into());
        self.others.extend(results);
    }

    /// Writes the messages that were not made of items in the provider's form.
    fn flush(&mut self) -> Result<(), CallError> {
        if self.others.is_empty() {
            return Ok(());
        }
        #[derive(Deserialize)]
        struct Request {
            input: Vec<Box<RawValue>>,
        }
        let request = ProviderRequest::new(Form::OpenAiResponses, &self.others);
        let request: Request = serde_json::from_str(&serde_json::to_string(&request)?)?;
        self.others.clear();
        for item in &request.input {
            self.begin();
            match self.form {
                ItemForm::Responses => self.list.push_str(item.get()),
                ItemForm::Agents => {
                    self.list.push_str(r#"{"$responses":"#);
                    self.list.push_str(item.get());
                    self.list.push('}');
                }
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.begins.len()
    }

    pub(crate) fn last(&self) -> Option<&str> {
        let begin = *self.begins.last()?;
        self.list.get(begin..)
    }

    /// Returns the last `limit` items, all if `None`.
    fn into_list(mut self, limit: Option<usize>) -> Vec<u8> {
        let surplus = self.len().saturating_sub(limit.unwrap_or(usize::MAX));
        if surplus > 0 {
            let begin = self.begins.get(surplus).copied();
            let begin = begin.unwrap_or(self.list.len());
            self.list.replace_range(1..begin, "");
        }
        self.list.push(']');
        self.list.into_bytes()
    }
}

fn extra_of<'a>(message: &'a AgentMessage, name: &str) -> Option<&'a Json> {
    match message {
        AgentMessage::Llm(message) => message.extra.get(name),
        AgentMessage::Extension(_) => None,
    }
}

/// Returns the items of a session's context, at most the last `limit`, as a list of JSON.
pub fn write(
    session: &SessionHandle,
    form: ItemForm,
    limit: Option<usize>,
) -> Result<Vec<u8>, CallError> {
    let items = match limit {
        // Nothing is hidden: the last items are those of the last stored messages.
        Some(limit) if !is_compacted(session)? => {
            let entries = session.entries(&messages().last(limit))?;
            ItemList::of(form, entries.iter().map(|entry| &entry.message))?
        }
        _ => of_context(session, form)?,
    };
    Ok(items.into_list(limit))
}

/// Returns the query for all messages that a model sees: all but extensions.
pub(crate) fn messages() -> EntryQuery {
    EntryQuery::new().roles([Role::User, Role::Assistant, Role::ToolResult])
}

/// True if a compaction was ever committed in the session, even if it was undone.
fn is_compacted(session: &SessionHandle) -> Result<bool, CallError> {
    let found = extend::read(session.store().database(), |read| {
        let Some((key, _)) = read.current(session.id())? else {
            return Ok(false);
        };
        let mut found = false;
        read.run_summaries(key, &mut |run| {
            found |= run.is_committed;
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
fn of_context(session: &SessionHandle, form: ItemForm) -> Result<ItemList, CallError> {
    ItemList::of(form, &session.context()?.messages)
}

/// Records a compaction by OpenAI: its items replace everything up to message `seq` of loop `loop_id`.
pub fn record_compaction(
    session: &SessionHandle,
    items: Vec<AgentMessage>,
    loop_id: String,
    seq: u32,
) -> Result<(), CallError> {
    let through = EntryRef::new(loop_id, seq);
    session.record_compaction(SealingProvider::OpenAi, &through, items)?;
    Ok(())
}

/// Returns all items with the position of the last message, for a compaction by the provider; `None` if there
/// are none.
pub fn snapshot(
    session: &SessionHandle,
    form: ItemForm,
) -> Result<Option<(Vec<u8>, String, u32)>, CallError> {
    let Some(last) = session.entries(&messages().last(1))?.pop() else {
        return Ok(None);
    };
    let items = of_context(session, form)?.into_list(None);
    Ok(Some((items, last.loop_id.to_string(), last.seq)))
}

/// Removes the last item: a branch without it becomes the current loop; a compaction without later messages
/// is undone. Returns the item, `None` if there is none.
pub fn pop(session: &SessionHandle, form: ItemForm) -> Result<Option<Vec<u8>>, CallError> {
    let backend = session.store().database();
    loop {
        // A handle stays on its line; another program may have begun a branch.
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
            // Messages that were added meanwhile are kept.
            let is_same = end_of(write, session)? == end;
            if is_same {
                branch_after(write, session, before.as_ref(), "pop_item")?;
            }
            Ok(is_same)
        })?;
        if done {
            let items = ItemList::of(form, [&popped.message])?;
            return Ok(Some(items.last().unwrap_or("null").as_bytes().to_vec()));
        }
    }
}

/// Undoes a provider's compaction without later messages; returns the last of its items.
fn undo_of_provider(session: &SessionHandle, form: ItemForm) -> Result<Option<Vec<u8>>, CallError> {
    if session.policy().provider.is_none() {
        return Ok(None);
    }
    let context = session.context()?;
    let last = context.parts.last().map(|part| part.section);
    if context.compaction.is_none() || last != Some(PartSection::Sealed) {
        return Ok(None);
    }
    session.undo()?;
    let items = ItemList::of(form, &context.messages)?;
    Ok(items.last().map(|item| item.as_bytes().to_vec()))
}

/// Returns the end of a session: its current loop, and the next sequence there.
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
    let owner = session_of(write, session.id())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(ids: &[&str]) -> AgentMessage {
        let mut answer = Message::assistant("I look.");
        for id in ids {
            answer = answer.with_tool_call(*id, "look", Json::parse("{}").unwrap());
        }
        answer.into()
    }

    /// Returns the calls and results of a list of items, in order.
    fn calls_of(form: ItemForm, messages: &[AgentMessage]) -> Vec<String> {
        let list = ItemList::of(form, messages).unwrap().into_list(None);
        let items: Vec<Value> = serde_json::from_slice(&list).unwrap();
        let items = items
            .iter()
            .map(|item| item.get("$responses").unwrap_or(item));
        let of_call = items.filter_map(|item| {
            let (kind, id) = (item["type"].as_str()?, item["call_id"].as_str()?);
            let output = item["output"].as_str().unwrap_or_default();
            Some(format!("{kind} {id} {output}").trim_end().to_owned())
        });
        of_call.collect()
    }

    #[test]
    fn a_call_without_a_result_is_closed_once_the_conversation_goes_on() {
        let prompt = read(br#"[{"role":"user","content":"And then?"}]"#).unwrap();
        let result = read(br#"[{"type":"function_call_output","call_id":"a","output":"rain"}]"#);
        let result = result.unwrap();
        for form in [ItemForm::Responses, ItemForm::Agents] {
            let of = |lists: &[&[AgentMessage]]| calls_of(form, &lists.concat());
            let asked = [Message::user("One?").into(), calls(&["a", "b"])];
            // The last turn stays open, also behind items of the framework.
            assert_eq!(
                of(&[&prompt, &asked]),
                ["function_call a", "function_call b"]
            );
            if form == ItemForm::Agents {
                continue;
            }
            let closed = format!("function_call_output a {NO_RESULT}");
            let found = of(&[&[calls(&["a"])], &prompt]);
            assert_eq!(found, ["function_call a", closed.as_str()]);
            // A result that comes as an item answers its call.
            let found = of(&[&[calls(&["a"])], &result, &prompt]);
            assert_eq!(found, ["function_call a", "function_call_output a rain"]);
            let found = of(&[&[calls(&["a"])], &result]);
            assert_eq!(found, ["function_call a", "function_call_output a rain"]);
        }
    }
}
