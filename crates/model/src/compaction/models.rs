//! The context windows of models.

use std::collections::BTreeMap;

/// The known windows in tokens. A name also matches its dated and special versions: `claude-sonnet-4` matches
/// `claude-sonnet-4-20250514`, `gpt-5.1` matches `gpt-5.1-codex`.
const KNOWN: [(&str, u64); 52] = [
    ("claude-2", 100_000),
    ("claude-2.1", 200_000),
    ("claude-3", 200_000),
    ("claude-3-5-haiku", 200_000),
    ("claude-3-5-sonnet", 200_000),
    ("claude-3-7-sonnet", 200_000),
    ("claude-3-haiku", 200_000),
    ("claude-3-opus", 200_000),
    ("claude-3-sonnet", 200_000),
    ("claude-haiku-4", 200_000),
    ("claude-haiku-4.5", 200_000),
    ("claude-opus-4", 200_000),
    ("claude-opus-4.1", 200_000),
    ("claude-opus-4.5", 200_000),
    ("claude-sonnet-4", 200_000),
    ("claude-sonnet-4.5", 200_000),
    ("codex-mini", 200_000),
    ("deepseek-chat", 128_000),
    ("deepseek-reasoner", 128_000),
    ("gemini-1.5-flash", 1_048_576),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini-2.0-flash", 1_048_576),
    ("gemini-2.5-flash", 1_048_576),
    ("gemini-2.5-pro", 1_048_576),
    ("gemini-3-flash", 1_048_576),
    ("gemini-3-pro", 1_048_576),
    ("gpt-3.5-turbo", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-0125-preview", 128_000),
    ("gpt-4-1106-preview", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-vision-preview", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4.5-preview", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-5", 400_000),
    ("gpt-5-chat", 128_000),
    ("gpt-5.1", 400_000),
    ("gpt-5.1-chat", 128_000),
    ("gpt-5.2", 400_000),
    ("gpt-5.2-chat", 128_000),
    ("grok-3", 131_072),
    ("grok-4", 256_000),
    ("llama-3.1", 128_000),
    ("llama-3.3", 128_000),
    ("mistral-large", 128_000),
    ("o1", 200_000),
    ("o1-mini", 128_000),
    ("o1-preview", 128_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
];

/// The context windows of models, in tokens, by the models' names.
///
/// A model is found by its name, with or without its provider before it (`anthropic/claude-…`, `models/gemini-…`,
/// `us.anthropic.claude-…`) and a date or version after it; the longest known name decides. Model names change faster
/// than libraries, so callers add theirs.
///
/// ```
/// use loopstore_model::compaction::ModelWindows;
///
/// let windows = ModelWindows::default().with("my-model", 32_000);
/// assert_eq!(windows.of("my-model-2031-05-01")?, 32_000);
/// assert_eq!(windows.of("anthropic/claude-sonnet-4-20250514")?, 200_000);
/// assert_eq!(windows.of("models/gemini-2.5-pro")?, 1_048_576);
/// assert!(windows.of("somebody-elses").is_err());
/// # Ok::<(), loopstore_model::compaction::UnknownModel>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWindows {
    known: BTreeMap<String, u64>,
}

/// The error for a model whose window is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the context window of the model `{model}` is not known; add it with `ModelWindows::with`, or give \
     the window in tokens"
)]
#[non_exhaustive]
pub struct UnknownModel {
    /// The name of the model.
    pub model: String,
}

impl Default for ModelWindows {
    fn default() -> Self {
        Self {
            known: KNOWN.map(|(name, tokens)| (name.to_owned(), tokens)).into(),
        }
    }
}

impl ModelWindows {
    /// Adds or changes the window of a model.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, tokens: u64) -> Self {
        self.known.insert(model.into().to_lowercase(), tokens);
        self
    }

    /// Returns the window of a model in tokens.
    ///
    /// # Errors
    /// If neither the name nor a beginning of it is known.
    pub fn of(&self, model: &str) -> Result<u64, UnknownModel> {
        let name = model.trim().to_lowercase();
        let found = plain_names(&name).find_map(|name| self.longest(name));
        found.ok_or_else(|| UnknownModel {
            model: model.to_owned(),
        })
    }

    /// Returns the window of the longest known name that is equal to this one or a beginning of it.
    fn longest(&self, name: &str) -> Option<u64> {
        let goes_on = |known: &str| {
            let rest = name.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':', '[']))
        };
        let known = self.known.iter().filter(|(known, _)| goes_on(known));
        let longest = known.max_by_key(|(known, _)| known.len());
        longest.map(|(_, tokens)| *tokens)
    }
}

/// Returns a name, then its part after the last slash, then that without the region and provider that some clouds put
/// before it with dots.
fn plain_names(name: &str) -> impl Iterator<Item = &str> {
    let model = name.rsplit('/').next().unwrap_or(name);
    let after_dots = model.match_indices('.').map(|(at, _)| &model[at + 1..]);
    [name, model].into_iter().chain(after_dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_with_dates_and_makers() {
        let windows = ModelWindows::default();
        for (model, tokens) in [
            ("gpt-4", 8_192),
            ("gpt-4-0613", 8_192),
            ("gpt-4-turbo-2024-04-09", 128_000),
            ("gpt-4o-mini", 128_000),
            ("gpt-4.1-nano", 1_047_576),
            ("gpt-5.1-codex", 400_000),
            ("openai/gpt-5-chat-latest", 128_000),
            ("claude-3-5-sonnet-20240620", 200_000),
            ("claude-sonnet-4-20250514", 200_000),
            ("claude-sonnet-4@20250514", 200_000),
            ("anthropic/claude-opus-4.1", 200_000),
            ("openrouter/anthropic/claude-sonnet-4:beta", 200_000),
            ("us.anthropic.claude-sonnet-4-20250514-v1:0", 200_000),
            ("models/gemini-2.5-pro", 1_048_576),
            ("Gemini-2.5-Flash-Preview-05-20", 1_048_576),
            ("o3-mini-2025-01-31", 200_000),
        ] {
            assert_eq!(windows.of(model), Ok(tokens), "{model}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_an_error_until_it_is_added() {
        let windows = ModelWindows::default();
        for model in ["", "tiny", "gpt", "gpt-40", "claude", "4"] {
            let error = windows.of(model).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{model}`")) && error.contains("with"),
                "{error}"
            );
        }
        let windows = windows.with("Tiny", 512).with("gpt-5.1-codex", 272_000);
        assert_eq!(windows.of("acme/tiny-v2"), Ok(512));
        assert_eq!(windows.of("gpt-5.1-codex-max"), Ok(272_000));
    }

    #[test]
    fn each_name_stands_once() {
        let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }
}
