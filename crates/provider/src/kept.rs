//! Items and blocks of a form that no message has a place for: kept whole, with the form that they
//! are of, so that they can go back.

use serde::{Deserialize, Serialize};

use super::Form;
use loopstore_model::{Content, Extra, Json, ToolCall};

/// An item that was kept.
#[derive(Deserialize)]
pub(super) struct KeptItem {
    form: String,
    pub(super) item: Json,
}

impl KeptItem {
    /// Reads a block of an unknown type; `None` if it holds no such item.
    pub(super) fn of(block: &Json) -> Option<Self> {
        let is_kept = block.type_name().is_some_and(|name| name == TYPE);
        is_kept.then(|| block.read().ok()).flatten()
    }

    /// Reads the item that a call was read from; `None` if the call is written as any other.
    pub(super) fn of_call(call: &ToolCall) -> Option<Self> {
        call.extra.get(CALL_ITEM)?.read().ok()
    }

    /// Returns the form that it is of; `None` if this version does not know it.
    pub(super) fn form(&self) -> Option<Form> {
        self.form.parse().ok()
    }

    /// Returns who made it.
    pub(super) fn provider(&self) -> String {
        match self.form() {
            Some(form) => form.provider().to_owned(),
            None => self.form.clone(),
        }
    }
}

const TYPE: &str = "providerItem";

/// The extra field of a call with the item that it was read from.
const CALL_ITEM: &str = "item";

/// Returns the block that keeps an item.
///
/// # Errors
/// If it would nest too deep.
pub(super) fn keep(form: Form, item: &Json) -> serde_json::Result<Content> {
    let item = item.as_str();
    let block = format!(r#"{{"type":"{TYPE}","form":"{form}","item":{item}}}"#);
    Json::parse(&block).map(Content::Other)
}

/// Returns the item of a search that the provider carried out, of which a transcript keeps the call alone;
/// `None` if the caller carried out the call.
pub(super) fn hosted_item(call: &ToolCall) -> Option<Content> {
    #[derive(Serialize)]
    struct HostedCall<'a> {
        r#type: &'static str,
        id: &'a str,
        status: &'static str,
        action: &'a Json,
    }
    let form = call.extra.get("form")?.read::<String>().ok()?;
    let is_hosted = form == WEB_SEARCH && call.arguments.as_str().starts_with('{');
    let item = HostedCall {
        r#type: WEB_SEARCH,
        id: &call.id,
        status: "completed",
        action: &call.arguments,
    };
    let item = is_hosted.then(|| Json::of(&item).ok()).flatten()?;
    keep(Form::OpenAiResponses, &item).ok()
}

/// The form of a call of which its provider carried out the search.
const WEB_SEARCH: &str = "web_search_call";

/// Keeps the item that a call was read from, beside what every provider reads of the call.
///
/// # Errors
/// If it would nest too deep.
pub(super) fn keep_call(form: Form, item: &Json, extra: &mut Extra) -> serde_json::Result<()> {
    let item = item.as_str();
    let kept = Json::parse(&format!(r#"{{"form":"{form}","item":{item}}}"#))?;
    extra.insert(CALL_ITEM, kept);
    Ok(())
}
