//! The setting of a policy that clears old tool results.

use serde::Deserialize;

use super::request::{EditRequest, EditTarget};
use crate::provider::context_management::{ClearToolUses, ContextManagement};

/// The setting of a policy that clears old tool results before anything is compacted: contexts show a marker of one
/// line in place of each. No model is called.
///
/// ```
/// use loopstore::{ClearToolResults, Policy};
///
/// let clear = ClearToolResults::new().keep(5).at_least(4_000).exclude_tools(["Read"]);
/// let policy = Policy::new(200_000).clear_tool_results(clear);
/// # drop(policy);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table of `keep`, `at_least`, `exclude_tools` and `by_provider`"
)]
#[must_use]
pub struct ClearToolResults {
    /// The number of newest tool results that stay, whatever their tools; 3 by default.
    pub keep: u32,
    /// The tokens that clearing must free, else nothing is cleared; 1,000 by default. Each clearing changes the
    /// beginning of the context, after which a provider's prompt cache does not help, so a small one costs more than it
    /// saves.
    pub at_least: u64,
    /// The names of tools whose results are never cleared.
    pub exclude_tools: Vec<String>,
    /// True to leave the clearing to the provider; false by default. A compaction then clears nothing before it begins,
    /// and requests that are written for Anthropic from contexts of the policy have the setting `context_management`.
    /// Other providers have no such setting: nothing is cleared in requests for them.
    pub by_provider: bool,
}

impl Default for ClearToolResults {
    fn default() -> Self {
        Self {
            keep: 3,
            at_least: 1_000,
            exclude_tools: Vec::new(),
            by_provider: false,
        }
    }
}

impl ClearToolResults {
    /// Returns the default setting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of newest tool results that stay.
    pub fn keep(mut self, results: u32) -> Self {
        self.keep = results;
        self
    }

    /// Sets the tokens that clearing must free, else nothing is cleared.
    pub fn at_least(mut self, tokens: u64) -> Self {
        self.at_least = tokens;
        self
    }

    /// Sets the names of the tools whose results are never cleared.
    pub fn exclude_tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.exclude_tools = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets that the provider clears the results, in requests for Anthropic. The answer reports what was cleared, and
    /// the append of the answer records it as a run of edits. The call needs the header `anthropic-beta` with the value
    /// [`BETA`](crate::provider::context_management::BETA).
    ///
    /// ```
    /// use loopstore::provider::Form;
    /// use loopstore::{ClearToolResults, Message, Policy, Store};
    ///
    /// let clear = ClearToolResults::new().keep(5).by_provider(true);
    /// let policy = Policy::new(200_000).clear_tool_results(clear);
    /// let chat = Store::in_memory()?.session("weather")?.with_policy(policy);
    /// chat.append([Message::user("Will it rain?")])?;
    /// let request = chat.prepare()?.to(Form::Anthropic)?;
    /// assert_eq!(request["context_management"]["edits"][0]["keep"]["value"], 5);
    /// assert_eq!(chat.prepare()?.to(Form::OpenAiChat)?.get("context_management"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by_provider(mut self, by_provider: bool) -> Self {
        self.by_provider = by_provider;
        self
    }

    /// Returns the request of the edits.
    #[must_use]
    pub fn request(&self) -> EditRequest {
        let results = EditTarget::OldResults {
            keep: self.keep,
            exclude_tools: self.exclude_tools.clone(),
        };
        EditRequest {
            at_least: self.at_least,
            ..EditRequest::clear([results])
        }
    }
}

/// The setting with which Anthropic clears the same results in a request. The provider decides when, by its default
/// trigger, and forgets it after the request.
///
/// ```
/// use loopstore::ClearToolResults;
/// use loopstore::provider::context_management::ContextManagement;
///
/// let setting = ContextManagement::from(&ClearToolResults::new().keep(5));
/// assert_eq!(setting.clear_tool_uses.and_then(|uses| uses.keep), Some(5));
/// ```
impl From<&ClearToolResults> for ContextManagement {
    fn from(clear: &ClearToolResults) -> Self {
        let clear_tool_uses = ClearToolUses {
            keep: Some(clear.keep),
            clear_at_least: Some(clear.at_least).filter(|tokens| *tokens > 0),
            exclude_tools: clear.exclude_tools.clone(),
            ..ClearToolUses::default()
        };
        Self {
            clear_tool_uses: Some(clear_tool_uses),
            ..Self::default()
        }
    }
}
