//! Items of the Agents SDK in a session.

use loopstore_bindings::item_changes::{self, ItemChange};
use loopstore_bindings::items::{self, ItemForm};
use napi_derive::napi;

use super::JsSession;
use crate::work::{GivenJson, Promised, bytes, text, whole};

#[napi]
impl JsSession {
    /// Appends items of the Agents SDK, which are returned unchanged: each with the equivalent item of the Responses
    /// API, or null.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn append_items(&self, given: GivenJson) -> Promised<()> {
        let given = bytes(given);
        self.call(None, move |session| {
            session.append(items::read_agents(&given)?)?;
            Ok(())
        })
    }

    /// Changes the end of the items once: removes the expected items, and appends others.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn change_items(
        &self,
        key: String,
        digest: String,
        expected: Option<String>,
        given: GivenJson,
    ) -> Promised<()> {
        let given = bytes(given);
        self.call(None, move |session| {
            let expected = expected.as_deref().map(serde_json::from_str).transpose()?;
            let change = ItemChange {
                key: &key,
                digest: &digest,
                expected,
                messages: items::read_agents(&given)?,
            };
            item_changes::apply(&session, ItemForm::Agents, &change)
        })
    }

    /// Returns the items of the context, at most the last `limit`.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn items(&self, limit: Option<f64>) -> Promised<String> {
        self.call(None, move |session| {
            let limit = whole("limit", limit)?.map(|limit| limit as usize);
            text(items::write(&session, ItemForm::Agents, limit)?)
        })
    }

    /// Removes the last item.
    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn pop_item(&self) -> Promised<Option<String>> {
        self.call(None, |session| {
            items::pop(&session, ItemForm::Agents)?
                .map(text)
                .transpose()
        })
    }

    /// Replaces all items with these, as a compaction by the provider; returns false if there are no items.
    #[napi(ts_return_type = "Promise<boolean>")]
    pub fn seal_items(&self, given: GivenJson) -> Promised<bool> {
        let given = bytes(given);
        self.call(None, move |session| {
            let Some((_, loop_id, seq)) = items::snapshot(&session, ItemForm::Agents)? else {
                return Ok(false);
            };
            items::record_compaction(&session, items::read_agents(&given)?, loop_id, seq)?;
            Ok(true)
        })
    }
}
