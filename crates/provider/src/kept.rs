//! Items and blocks that no message can represent: kept whole with their form, so that they can be sent back.

use serde::{Deserialize, Serialize};

use super::Form;
use loopstore_model::{Content, Extra, Json, ToolCall};

/// A kept item.
#[derive(Deserialize)]
pub(super) struct KeptItem {
    form: String,
    pub(super) item: Json,
}

impl KeptItem {
    /// Returns the item of a block of an unknown type; `None` if the block has none.
    pub(super) fn of(block: &Json) -> Option<Self> {
        let is_kept = block.type_name().is_some_and(|name| name == TYPE);
        is_kept.then(|| block.read().ok()).flatten()
    }

    /// Returns the item that a call was read from; `None` if the call has none.
    pub(super) fn of_call(call: &ToolCall) -> Option<Self> {
        call.extra.get(CALL_ITEM)?.read().ok()
    }

    /// Returns the form of the item; `None` if it is unknown.
    pub(super) fn form(&self) -> Option<Form> {
        self.form.parse().ok()
    }

    /// Returns the provider of the item.
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
/// If the result would nest too deep.
pub(super) fn keep(form: Form, item: &Json) -> serde_json::Result<Content> {
    let item = item.as_str();
    let block = format!(r#"{{"type":"{TYPE}","form":"{form}","item":{item}}}"#);
    Json::parse(&block).map(Content::Other)
}

/// Returns the item of a search that the provider executed, of which a transcript has only the call; `None` if the
/// caller executed the call.
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

/// The item type of a search that the provider executed.
const WEB_SEARCH: &str = "web_search_call";

/// Keeps the item that a call was read from in an extra field of the call.
///
/// # Errors
/// If the result would nest too deep.
pub(super) fn keep_call(form: Form, item: &Json, extra: &mut Extra) -> serde_json::Result<()> {
    let item = item.as_str();
    let kept = Json::parse(&format!(r#"{{"form":"{form}","item":{item}}}"#))?;
    extra.insert(CALL_ITEM, kept);
    Ok(())
}
