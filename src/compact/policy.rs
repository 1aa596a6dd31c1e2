//! The policy of an agent's compactions.

use std::sync::Arc;

use super::events::{CompactionHook, Hooks};
use crate::compaction::{
    BlockCompactionStrategy, Budget, CompactionConfig, CompactionPolicy, CompactionScope,
    ContextConfig, DefaultBlockCompaction, KeepRecent, ModelWindows, OlderLoops, RecentWindow,
    SummarizeCompaction, Summarizer, UnknownModel, growth,
};
use crate::context::SystemPrompts;
use crate::edit::ClearToolResults;
use crate::model::SealingProvider;
use crate::provider::context_management::{ClearTrigger, ContextManagement};

/// The policy of an agent's compactions: the window of the model, the turns that are kept word for word, and the
/// strategy that makes the text that replaces the other turns. [`Settings`](crate::Settings) reads one from a file.
///
/// ```
/// use loopstore::{KeepRecent, Policy};
///
/// let policy = Policy::new(200_000)
///     .system_tokens(4_000)
///     .keep_recent(KeepRecent::Turns(40))
///     .max_summary_tokens(8_000);
/// # drop(policy);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Policy {
    /// The window of the model.
    pub window: ContextConfig,
    /// When to compact, to which size, and how.
    pub compaction: CompactionConfig,
    /// The tool results to clear before anything is compacted; see
    /// [`Policy::clear_tool_results`](Self::clear_tool_results()).
    pub clear_tool_results: Option<ClearToolResults>,
    /// The hooks to call before and after each compaction.
    pub hooks: Hooks,
    /// The share of the window in percent at which hooks are warned; see [`Policy::warn_at`](Self::warn_at()).
    pub warn_at: Option<u8>,
    /// The provider that contexts are sent to; see [`Policy::provider`](Self::provider()).
    pub provider: Option<SealingProvider>,
    /// The system prompts that requests for a provider may begin with.
    pub system_prompts: SystemPrompts,
    derived: DerivedLimits,
}

/// The limits of texts that a policy derives from the window.
#[derive(Clone, Copy, Debug)]
struct DerivedLimits {
    summary: bool,
    rollup: bool,
}

impl Default for Policy {
    fn default() -> Self {
        let exact = Self::of(ContextConfig::default(), CompactionConfig::default());
        let derived = DerivedLimits {
            summary: true,
            rollup: true,
        };
        Self { derived, ..exact }.with_limits()
    }
}

impl Policy {
    /// Returns the default policy for a window of `window` tokens, which includes the system prompt and the tools.
    pub fn new(window: u64) -> Self {
        Self::default().window(window)
    }

    /// Returns a policy with exactly this window and configuration. Unlike [`Policy::new`], the policy derives no
    /// limit of a summary from the window.
    ///
    /// ```
    /// use loopstore::{CompactionConfig, ContextConfig, KeepRecent, Policy};
    ///
    /// let window = ContextConfig { max_context_tokens: 64_000, ..ContextConfig::default() };
    /// let keep_recent = KeepRecent::Turns(4);
    /// let compaction = CompactionConfig { keep_recent, ..CompactionConfig::default() };
    /// let policy = Policy::of(window, compaction);
    /// assert_eq!(policy.compaction.max_summary_tokens, 2_000);
    /// ```
    pub fn of(window: ContextConfig, compaction: CompactionConfig) -> Self {
        Self {
            window,
            compaction,
            clear_tool_results: None,
            hooks: Hooks::default(),
            warn_at: None,
            provider: None,
            system_prompts: SystemPrompts::default(),
            derived: DerivedLimits {
                summary: false,
                rollup: false,
            },
        }
    }

    /// Returns the default policy for the window of a model, from [`ModelWindows`]. A program with its own table of
    /// windows calls `Policy::new(windows.of(model)?)`.
    ///
    /// # Errors
    /// If the model is not known.
    pub fn for_model(model: &str) -> Result<Self, UnknownModel> {
        Ok(Self::new(ModelWindows::default().of(model)?))
    }

    /// Sets the window in tokens, including the system prompt and the tools.
    pub fn window(mut self, tokens: u64) -> Self {
        self.window.max_context_tokens = tokens;
        self.with_limits()
    }

    /// Sets the tokens of the system prompt and the tools in the window. If the recorded system prompt has more
    /// tokens, its tokens are used.
    pub fn system_tokens(mut self, tokens: u64) -> Self {
        self.window.system_prompt_tokens = tokens;
        self.with_limits()
    }

    /// Sets the system prompts that requests for a provider may begin with. The default is the newest one that the
    /// agent appended itself.
    ///
    /// ```
    /// use loopstore::context::SystemPrompts;
    /// use loopstore::provider::{self, Form};
    /// use loopstore::{Policy, Store};
    /// use serde_json::json;
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let said = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain?"}]);
    /// chat.append(provider::read(Form::OpenAiChat, &said)?)?;
    /// assert_eq!(chat.prepare()?.to(Form::OpenAiChat)?["messages"], said);
    /// let chat = chat.with_policy(Policy::new(200_000).system_prompts(SystemPrompts::None));
    /// assert_eq!(chat.prepare()?.to(Form::OpenAiChat)?["messages"][0]["role"], "user");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn system_prompts(mut self, which: SystemPrompts) -> Self {
        self.system_prompts = which;
        self
    }

    /// Sets the provider that contexts are sent to. A compaction that this provider made, and that only it can read,
    /// then replaces all messages before it. Without a provider, and for any other provider, the originals are read.
    ///
    /// ```
    /// use loopstore::provider::{self, Form};
    /// use loopstore::{Message, Policy, SealingProvider, Store};
    ///
    /// let policy = Policy::new(200_000).provider(SealingProvider::Anthropic);
    /// let chat = Store::in_memory()?.session("weather")?.with_policy(policy);
    /// let answer = serde_json::json!({"role": "assistant", "content": [
    ///     {"type": "compaction", "content": "sealed"}, {"type": "text", "text": "It will."},
    /// ]});
    /// chat.append([Message::user("Will it rain?")])?;
    /// chat.append(provider::read(Form::Anthropic, &answer)?)?;
    /// chat.append([Message::user("And tomorrow?")])?;
    /// let request = chat.prepare()?.to(Form::Anthropic)?;
    /// assert_eq!(request["messages"][0]["content"][0]["type"], "compaction");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn provider(mut self, provider: SealingProvider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets the most bytes of JSON of the messages. Providers limit the body of a request, and images reach that
    /// limit before the window is full.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.window.max_context_bytes = Some(bytes);
        self
    }

    /// Sets the policy that decides when a context is compacted, and to which size.
    pub fn compaction_policy(mut self, policy: CompactionPolicy) -> Self {
        self.compaction.policy = policy;
        self.with_limits()
    }

    /// Sets the number of typical turns that a compaction leaves room for; 0 to use the target whole. The default is 6.
    /// A typical turn has the mean size of the newest turns. A compaction that leaves room for less than two turns is
    /// not made while the window fits the context.
    pub fn room_turns(mut self, turns: u32) -> Self {
        self.compaction.room_turns = turns;
        self
    }

    /// Sets the number of turns that are kept word for word from the start of the current loop.
    pub fn keep_first(mut self, turns: u32) -> Self {
        self.compaction.keep_first_turns = turns;
        self
    }

    /// Sets the turns that are kept at the end.
    pub fn keep_recent(mut self, keep: KeepRecent) -> Self {
        self.compaction.keep_recent = keep;
        self
    }

    /// Sets the most tokens of what people wrote that every compaction keeps word for word, whatever the strategy: the
    /// newest prompts that it would hide, quoted as pinned messages are. A prompt of which edits replaced something
    /// is quoted as the edits show it; removed and cleared prompts are not quoted. The last steps of the fallback give
    /// quotes up. The report counts the prompts that are not quoted.
    pub fn keep_prompts(mut self, tokens: u64) -> Self {
        self.compaction.keep_prompts_tokens = tokens;
        self
    }

    /// Sets the loops from which turns are kept at the end: the current loop, or the chain.
    pub fn recent_window(mut self, window: RecentWindow) -> Self {
        self.compaction.recent_window = window;
        self
    }

    /// Sets the scope: the number of earlier loops that a compaction includes.
    pub fn scope(mut self, scope: CompactionScope) -> Self {
        self.compaction.compaction_scope = scope;
        self
    }

    /// Sets the treatment of the loops before the scope: skip them, or cover them by a rollup.
    pub fn older_loops(mut self, older_loops: OlderLoops) -> Self {
        self.compaction.older_loops = older_loops;
        self
    }

    /// Sets the most tokens of the summary of a loop. The default is a quarter of the target of a compaction, at
    /// least 2,000; with the default, the first summary of a loop may fill the tokens that the kept turns leave free.
    pub fn max_summary_tokens(mut self, tokens: u64) -> Self {
        self.compaction.max_summary_tokens = tokens;
        self.compaction.fills_window = false;
        self.derived.summary = false;
        self
    }

    /// Sets the most tokens of the summary of all older loops. The default is that of the summary of a loop.
    pub fn max_rollup_tokens(mut self, tokens: u64) -> Self {
        self.compaction.max_rollup_tokens = tokens;
        self.derived.rollup = false;
        self
    }

    /// Sets the most lines of each tool output in the turns kept at the end.
    pub fn tool_output_lines(mut self, lines: usize) -> Self {
        self.compaction.tool_output_max_lines = lines;
        self
    }

    /// Sets the strategy, which makes the text that replaces turns.
    pub fn strategy(mut self, strategy: impl BlockCompactionStrategy + 'static) -> Self {
        self.compaction.block_strategy = Some(Arc::new(strategy));
        self.with_limits()
    }

    /// Sets a model that writes the text. If the model fails, the digest, which needs no model, makes the text, and
    /// the audit row has the error.
    pub fn summarizer(self, summarizer: impl Summarizer + 'static) -> Self {
        self.strategy(SummarizeCompaction::new(Arc::new(summarizer)))
    }

    /// Sets own instructions to the summariser, after its usual ones. The run stores them. Facts from the record are
    /// added to the summary whatever they say. Strategies that call no model do not read them.
    pub fn summary_prompt(mut self, instructions: impl Into<String>) -> Self {
        self.compaction.summary_prompt = Some(instructions.into());
        self
    }

    /// Sets that old tool results are cleared when the policy fires. If the context is then below the limits of the
    /// policy, nothing is compacted. The clearing is a run of edits with the strategy `clear`, which an undo takes
    /// back. A compaction that is requested ([`CompactTrigger::Force`](crate::CompactTrigger::Force)), or that a
    /// provider requires ([`CompactTrigger::Length`](crate::CompactTrigger::Length)), clears nothing.
    ///
    /// ```
    /// use loopstore::{ClearToolResults, Json, Message, Policy, Store};
    ///
    /// let policy = Policy::new(4_000).clear_tool_results(ClearToolResults::new().keep(1));
    /// let chat = Store::in_memory()?.session("weather")?.with_policy(policy);
    /// chat.append([Message::user("How is the weather?")])?;
    /// for hour in ["c1", "c2", "c3", "c4"] {
    ///     let call = Message::assistant("I look.").with_tool_call(hour, "forecast", Json::parse("{}")?);
    ///     chat.append([call, Message::tool_result(hour, "rain, ".repeat(600))])?;
    /// }
    /// chat.append([Message::assistant("It rains.")])?;
    /// let ready = chat.prepare()?;
    /// let cleared = ready.cleared.as_ref().expect("the results");
    /// assert_eq!((cleared.edits.len(), ready.was_compacted()), (3, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_tool_results(mut self, clear: ClearToolResults) -> Self {
        self.clear_tool_results = Some(clear);
        self
    }

    /// Returns the setting of requests for Anthropic: empty unless the policy leaves the clearing of tool results to the
    /// provider ([`ClearToolResults::by_provider`](ClearToolResults::by_provider())). The provider then clears from half
    /// of the size that a compaction aims at, so that it clears before a compaction is necessary.
    pub fn context_management(&self) -> ContextManagement {
        let clear = self.clear_tool_results.as_ref();
        let Some(clear) = clear.filter(|clear| clear.by_provider) else {
            return ContextManagement::default();
        };
        let mut setting = ContextManagement::from(clear);
        if let Some(uses) = &mut setting.clear_tool_uses {
            let tokens = (self.target().tokens / 2).max(1);
            uses.trigger = Some(ClearTrigger::InputTokens(tokens));
        }
        setting
    }

    /// Sets the share of the window in percent from which hooks are warned that a compaction comes near
    /// ([`CompactionHook::warn`]).
    pub fn warn_at(mut self, percent: u8) -> Self {
        self.warn_at = Some(percent);
        self
    }

    /// Adds a hook that is called before and after each compaction, and may veto, postpone or rewrite it.
    pub fn hook(mut self, hook: impl CompactionHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Returns the most that a context has after a compaction. The compaction leaves room for several turns below
    /// that size if it can. With the default [`CompactionPolicy`], a window of less than 500 tokens is used whole: it is
    /// a size to hand a conversation over in.
    pub fn target(&self) -> Budget {
        growth::target(&self.compaction, &self.window)
    }

    /// Sets the limits of texts that this policy derives from the window.
    pub(crate) fn with_limits(mut self) -> Self {
        let (derived, compaction) = (self.derived, &mut self.compaction);
        // Lines of answers are as many as the original's, whatever the window.
        let strategy = compaction.block_strategy.as_ref();
        let is_by_line = strategy.is_some_and(|s| s.name() == DefaultBlockCompaction.name());
        let tokens = match is_by_line {
            true => CompactionConfig::default().max_summary_tokens,
            false => compaction.policy.summary_tokens(&self.window),
        };
        if derived.summary {
            compaction.max_summary_tokens = tokens;
            compaction.fills_window = !is_by_line;
        }
        if derived.rollup {
            compaction.max_rollup_tokens = tokens;
        }
        self
    }
}
