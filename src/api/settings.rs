//! Settings of compactions: from a file (`file`), and from options that override it.

#[cfg(feature = "toml")]
mod file;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

use crate::compact::Policy;
use crate::compaction::{
    CompactionConfig, CompactionPolicy, CompactionScope, ContextConfig, DefaultBlockCompaction,
    KeepRecent, ModelWindows, OlderLoops, RecentWindow, UnknownModel, UnknownWord,
};
use crate::context::SystemPrompts;
use crate::edit::ClearToolResults;

/// The settings of a policy, as read from a file: the window of a model, and the options of compactions. A missing
/// setting has the value of [`Policy::default`].
///
/// ```
/// use loopstore::{KeepRecent, Settings};
///
/// let settings = Settings {
///     model: Some("my-model-large".into()),
///     models: [("my-model".into(), 64_000)].into(),
///     keep_recent: Some(KeepRecent::UserTurns(6)),
///     ..Settings::default()
/// };
/// assert_eq!(settings.window()?, Some(64_000));
/// let policy = settings.policy()?;
/// # drop(policy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The policy: when to compact, and down to which size: `headroom` (default), `reserves` or `target`.
    #[serde(deserialize_with = "word")]
    pub policy: Option<CompactionPolicy>,
    /// Parameters of the policy, by the names of its fields.
    pub policy_param: BTreeMap<String, Number>,
    /// The window in tokens, system prompt included; takes precedence over `model`.
    #[serde(deserialize_with = "positive")]
    pub max_tokens: Option<u64>,
    /// The most bytes of JSON of the messages.
    #[serde(deserialize_with = "positive")]
    pub max_bytes: Option<u64>,
    /// Tokens of the system prompt and the tools.
    pub system_tokens: Option<u64>,
    /// The system prompts that requests for a provider may begin with: `appended` (default), `all` or `none`.
    #[serde(deserialize_with = "word")]
    pub system_prompts: Option<SystemPrompts>,
    /// The model whose window is used if `max_tokens` is not set.
    pub model: Option<String>,
    /// Windows of models in tokens, by the beginnings of the models' names, in addition to the windows in
    /// [`ModelWindows`].
    #[serde(deserialize_with = "windows")]
    pub models: BTreeMap<String, u64>,
    /// Turns kept word for word from the start of the current loop.
    pub keep_first: Option<u32>,
    /// The turns kept at the end: a number of turns, or `user-turns:N`, `messages:N`.
    #[serde(deserialize_with = "word")]
    pub keep_recent: Option<KeepRecent>,
    /// The typical turns that a compaction leaves room for.
    pub room_turns: Option<u32>,
    /// The most tokens of the prompts of people that are kept word for word.
    pub keep_prompts: Option<u64>,
    /// The most tokens of the summary of a loop.
    pub max_summary_tokens: Option<u64>,
    /// The most tokens of the rollup of older loops.
    pub max_rollup_tokens: Option<u64>,
    /// The most lines of each tool output in the turns kept at the end.
    pub tool_output_lines: Option<usize>,
    /// The earlier loops in scope: `fixed:N` or `token-budget`.
    #[serde(deserialize_with = "word")]
    pub scope: Option<CompactionScope>,
    /// The treatment of the loops before the scope: `skip` or `rollup`.
    #[serde(deserialize_with = "word")]
    pub older_loops: Option<OlderLoops>,
    /// The loops from which turns are kept at the end: `loop` or `chain`.
    #[serde(deserialize_with = "word")]
    pub recent_window: Option<RecentWindow>,
    /// The strategy: `one-liner`, `digest` (default) or `summarize`.
    #[serde(deserialize_with = "word")]
    pub strategy: Option<StrategyName>,
    /// The tool results to clear before anything is compacted; none by default.
    pub clear_tool_results: Option<ClearToolResults>,
}

/// The name of a strategy, which makes the text that replaces turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyName {
    /// One line for each answer.
    OneLiner,
    /// Facts, each with its turn.
    #[default]
    Digest,
    /// A summary by a model.
    Summarize,
}

impl FromStr for StrategyName {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "one-liner" => Ok(Self::OneLiner),
            "digest" => Ok(Self::Digest),
            "summarize" => Ok(Self::Summarize),
            _ => Err(UnknownWord::new(text, "one-liner, digest, summarize")),
        }
    }
}

/// An error in settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings in `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The text is not TOML, or has an unknown key.
    #[error("{}line {line}: {reason}", prefix(path.as_deref()))]
    Invalid {
        /// The file, if the text was read from one.
        path: Option<PathBuf>,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The policy has no such parameter, or does not accept the value.
    #[error("{reason}")]
    Parameter {
        /// The name of the parameter.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The window of the model is not known.
    #[error(transparent)]
    Model(#[from] UnknownModel),
    /// The strategy `summarize` needs a model: set [`Settings::strategy`] to `None` and give the policy a
    /// [`summarizer`](Policy::summarizer).
    #[error("the strategy `summarize` needs a summarizer, which settings cannot hold")]
    NeedsSummarizer,
}

fn prefix(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!("`{}`, ", path.display()))
}

impl Settings {
    /// Returns these settings, with missing values taken from `below`. If a window or a model is set here, neither is
    /// taken from `below`. Parameters belong to a policy: if another policy is set here, no parameter is taken from
    /// `below`.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        let has_window = self.max_tokens.is_some() || self.model.is_some();
        let is_other =
            |policy: &CompactionPolicy| policy.name() != below.policy.unwrap_or_default().name();
        let mut policy_param = match self.policy.as_ref().is_some_and(is_other) {
            true => BTreeMap::new(),
            false => below.policy_param,
        };
        policy_param.extend(self.policy_param);
        let mut models = below.models;
        models.extend(self.models);
        Self {
            policy: self.policy.or(below.policy),
            policy_param,
            max_tokens: self.max_tokens.or(below.max_tokens.filter(|_| !has_window)),
            max_bytes: self.max_bytes.or(below.max_bytes),
            system_tokens: self.system_tokens.or(below.system_tokens),
            system_prompts: self.system_prompts.or(below.system_prompts),
            model: self.model.or(below.model),
            models,
            keep_first: self.keep_first.or(below.keep_first),
            keep_recent: self.keep_recent.or(below.keep_recent),
            room_turns: self.room_turns.or(below.room_turns),
            keep_prompts: self.keep_prompts.or(below.keep_prompts),
            max_summary_tokens: self.max_summary_tokens.or(below.max_summary_tokens),
            max_rollup_tokens: self.max_rollup_tokens.or(below.max_rollup_tokens),
            tool_output_lines: self.tool_output_lines.or(below.tool_output_lines),
            scope: self.scope.or(below.scope),
            older_loops: self.older_loops.or(below.older_loops),
            recent_window: self.recent_window.or(below.recent_window),
            strategy: self.strategy.or(below.strategy),
            clear_tool_results: self.clear_tool_results.or(below.clear_tool_results),
        }
    }

    /// Returns the window in tokens: `max_tokens`, else the window of `model`; `None` if neither is set.
    ///
    /// # Errors
    /// If the model is not known.
    pub fn window(&self) -> Result<Option<u64>, UnknownModel> {
        match (self.max_tokens, &self.model) {
            (None, Some(model)) => {
                let known = ModelWindows::default();
                let add = |known: ModelWindows, (name, tokens): (&String, &u64)| {
                    known.with(name, *tokens)
                };
                self.models.iter().fold(known, add).of(model).map(Some)
            }
            (given, _) => Ok(given),
        }
    }

    /// Returns the policy that these settings describe. If no window is set, the window is 128,000 tokens, or 64,000
    /// with the policy `target`.
    ///
    /// # Errors
    /// If the model or a parameter of the policy is not known, or if the strategy needs a summariser.
    pub fn policy(&self) -> Result<Policy, SettingsError> {
        let usual = CompactionConfig::of(self.compaction_policy()?);
        let max_context_tokens = self.window()?.unwrap_or(match usual.policy {
            CompactionPolicy::Target { .. } => 64_000,
            _ => ContextConfig::default().max_context_tokens,
        });
        let mut policy = Policy::new(max_context_tokens);
        policy.window.system_prompt_tokens = self.system_tokens.unwrap_or_default();
        policy.window.max_context_bytes = self.max_bytes;
        policy.system_prompts = self.system_prompts.unwrap_or_default();
        policy
            .clear_tool_results
            .clone_from(&self.clear_tool_results);
        policy.compaction = CompactionConfig {
            compaction_scope: self.scope.unwrap_or(usual.compaction_scope),
            older_loops: self.older_loops.unwrap_or(usual.older_loops),
            recent_window: self.recent_window.unwrap_or(usual.recent_window),
            keep_first_turns: self.keep_first.unwrap_or(usual.keep_first_turns),
            keep_recent: self.keep_recent.unwrap_or(usual.keep_recent),
            room_turns: self.room_turns.unwrap_or(usual.room_turns),
            keep_prompts_tokens: self.keep_prompts.unwrap_or_default(),
            tool_output_max_lines: self
                .tool_output_lines
                .unwrap_or(usual.tool_output_max_lines),
            ..usual
        };
        if let Some(tokens) = self.max_summary_tokens {
            policy = policy.max_summary_tokens(tokens);
        }
        if let Some(tokens) = self.max_rollup_tokens {
            policy = policy.max_rollup_tokens(tokens);
        }
        match self.strategy.unwrap_or_default() {
            StrategyName::OneLiner => Ok(policy.strategy(DefaultBlockCompaction)),
            StrategyName::Digest => Ok(policy.with_limits()),
            StrategyName::Summarize => Err(SettingsError::NeedsSummarizer),
        }
    }

    /// Returns the policy with its parameters.
    fn compaction_policy(&self) -> Result<CompactionPolicy, SettingsError> {
        let mut policy = self.policy.unwrap_or_default();
        for (name, value) in &self.policy_param {
            policy =
                with_param(policy, name, value).map_err(|reason| SettingsError::Parameter {
                    name: name.clone(),
                    reason,
                })?;
        }
        Ok(policy)
    }
}

fn with_param(
    policy: CompactionPolicy,
    name: &str,
    value: &Number,
) -> Result<CompactionPolicy, String> {
    let mut fields = serde_json::to_value(policy).map_err(|error| error.to_string())?;
    let names: Vec<&str> = match &fields {
        Value::Object(fields) => fields.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "kind").collect();
    if !names.contains(&name) {
        let known = nearest(name, &names);
        return Err(format!(
            "`{}` has no parameter `{name}`; {known}",
            policy.name()
        ));
    }
    fields[name] = value.clone().into();
    serde_json::from_value(fields).map_err(|error| format!("`{name}`: {error}"))
}

/// Returns a hint with the nearest of these names, or with all names if none is near.
fn nearest(given: &str, names: &[&str]) -> String {
    let distance = |name: &&&str| strsim::osa_distance(given, name);
    let most = (given.chars().count() / 3).clamp(1, 4);
    // No name is so long that a longer text is near.
    let near = match given.len() <= 64 {
        true => names.iter().min_by_key(distance),
        false => None,
    };
    match near.filter(|name| distance(name) <= most) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known are {}", names.join(", ")),
    }
}

/// Reads the word of a value; a number is a word too.
fn word<'de, D: Deserializer<'de>, T: FromStr<Err = UnknownWord>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string or a whole number")]
    enum Given {
        Number(u64),
        Text(String),
    }
    let text = match Given::deserialize(from)? {
        Given::Number(number) => number.to_string(),
        Given::Text(text) => text,
    };
    text.parse().map(Some).map_err(D::Error::custom)
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    NonZeroU64::deserialize(from).map(|number| Some(number.get()))
}

fn windows<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let windows = BTreeMap::<String, NonZeroU64>::deserialize(from)?;
    let tokens = |(name, tokens): (String, NonZeroU64)| (name, tokens.get());
    Ok(windows.into_iter().map(tokens).collect())
}

#[cfg(all(test, feature = "toml"))]
mod tests;
