//! One message of a run.

use loopstore::model::{AgentMessage, Content, Extra, Message, Time};
use serde_json::value::RawValue;

use super::super::extension::extension;
use super::super::fields::{Fields, list, some};
use super::super::openai_chat::message as chat;
use super::super::responses::{ResponseItem, answer, item};
use super::super::values::{add_cost, as_it_is, json, rest, time_of, token_usage, with_thinking};

/// A message, and its effect on the run.
pub(super) struct ReadMessage {
    pub(super) message: AgentMessage,
    /// True if the user set another task.
    pub(super) new_task: bool,
    pub(super) exit_status: Option<String>,
}

/// Reads the `nth` message of a run.
///
/// # Errors
/// If the record is not a message; the error gives the reason.
pub(super) fn read(raw: &RawValue, nth: usize) -> Result<ReadMessage, String> {
    let record = json(raw)?;
    let fields = Fields::parse(raw.get())?;
    let extra = fields.object("extra");
    let mut message = match fields.text("role").as_deref() {
        None if fields.get("output").is_some() || fields.get("type").is_some() => {
            of_items(raw, &fields)?
        }
        None => return Err("its role is missing or no text".into()),
        Some("system" | "developer" | "user" | "assistant" | "tool" | "function") => {
            with_thinking(chat::read(&record, nth)?, &fields)
        }
        // The exit record, which no model sees.
        Some(role) => extension(Some(role), record),
    };
    describe(&mut message, &fields, &extra);
    Ok(ReadMessage {
        message,
        new_task: extra.text("interrupt_type").as_deref() == Some("UserNewTask"),
        exit_status: extra.text("exit_status"),
    })
}

/// Reads an answer that is a list of items, or a single item.
fn of_items(raw: &RawValue, fields: &Fields<'_>) -> Result<AgentMessage, String> {
    let is_response = fields.get("type").is_none();
    let Some(items) = fields.get("output").and_then(list).filter(|_| is_response) else {
        return Ok(match item(raw)? {
            ResponseItem::Prompt(message)
            | ResponseItem::Result(message)
            | ResponseItem::Extension(message) => message,
            ResponseItem::Output(content, source) => answer(content, vec![source]),
        });
    };
    let mut content: Vec<Content> = Vec::new();
    let mut odd = Vec::new();
    for raw in items {
        match item(raw) {
            Ok(ResponseItem::Output(blocks, source)) => {
                content.extend(blocks);
                odd.push(source);
            }
            _ => content.extend(as_it_is(raw)),
        }
    }
    let mut other_fields = rest(fields);
    other_fields.remove("output");
    let mut sources: Vec<Extra> = vec![other_fields];
    sources.extend(odd);
    Ok(answer(content, sources))
}

/// Sets time, model, tokens and cost from the fields of the run.
fn describe(message: &mut AgentMessage, fields: &Fields<'_>, extra: &Fields<'_>) {
    let time = time_of(extra, "timestamp").or_else(|| time_of(fields, "timestamp"));
    let millis = time.as_ref().and_then(Time::millis);
    match message.message_mut() {
        Some(Message::User(user)) => user.timestamp = millis.map(Into::into),
        Some(Message::ToolResult(result)) => result.timestamp = millis.map(Into::into),
        Some(Message::Assistant(answer)) => {
            let noted = extra.object("response");
            let response = if some(fields.get("output")).is_some() {
                fields
            } else {
                &noted
            };
            answer.timestamp = millis.map(Into::into);
            answer.model = response.text("model");
            answer.usage = token_usage(response.object("usage"));
            add_cost(&mut answer.usage, extra.get("cost"));
            let choice = response.get("choices").and_then(list);
            let choice = choice.and_then(|choices| Fields::parse(choices.first()?.get()).ok());
            let word = choice.and_then(|choice| choice.text("finish_reason"));
            answer.stop_reason = word.map(super::super::values::stop_reason);
        }
        None => {}
    }
}
