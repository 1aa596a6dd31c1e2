//! The strategy `summarize`: summaries written by a model.
//!
//! Each block has one message. A compaction reads the earlier summary and the turns after it, and the new summary
//! replaces both, so summaries do not accumulate. The text is a document of the digest. The model writes the sections
//! in prose; the files, the exact values and the sections that the model left out are added from the recorded
//! messages. A model that fails, is too slow or returns nothing does not stop a compaction: a fallback strategy makes
//! the text, and the run's audit row has the reason.
//!
//! To add a summariser, implement [`Summarizer`], use a command ([`CommandSummarizer`]), or pass a closure that returns
//! a future to `FutureSummarizer` (feature `tokio`). A new option that affects the text must be added to
//! `SummarizeOptions::shaping` too, or blocks with the old option are taken for current ones.
//!
//! The crate accesses no database: it reads turns through a `LoopSlice`, and the caller records the run. It reaches a
//! model by a command or over HTTP (feature `http`), and has no client of a particular provider.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod command;
#[cfg(feature = "tokio")]
mod future;
#[cfg(feature = "http")]
pub mod http;
mod input;
mod options;
mod prompt;
mod summarizer;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

pub use command::CommandSummarizer;
#[cfg(feature = "tokio")]
pub use future::FutureSummarizer;
use input::Input;
use loopstore_digest::{
    DigestCompaction, DigestInput, Digester, SUMMARIZE, loop_label, rollup_digester, turns_digester,
};
use loopstore_model::compaction::{
    BlockCompactionStrategy, CancelFlag, CompactionConfig, LoopMessage, LoopSlice, RollupSlice,
    StrategyError, Summary, SummaryNotes,
};
use loopstore_model::tokens::TokenCounter;
use loopstore_model::{AgentMessage, LoopId, Role, Turns};
pub use options::{SummarizeOptions, SummaryRole};
use prompt::Formatted;
pub use summarizer::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// The reason for the fallback if the summariser is not called.
const NOT_ASKED: &str = "the summariser was not asked";

/// The strategy `summarize`: a [`Summarizer`] writes one message for each block.
///
/// ```
/// use loopstore_model::compaction::{BlockCompactionStrategy, CompactionConfig};
/// use loopstore_summarize::{
///     SummarizeCompaction, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest,
/// };
/// use std::sync::Arc;
///
/// /// A model that always returns the same text.
/// struct Model;
///
/// impl Summarizer for Model {
///     fn name(&self) -> &str {
///         "model"
///     }
///
///     fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
///         let text = "## Task\nWatch the weather.\n\n## Plan\nStay inside: it rains.".to_owned();
///         Ok(SummaryAnswer { text, ..SummaryAnswer::default() })
///     }
/// }
///
/// let strategy = SummarizeCompaction::new(Arc::new(Model));
/// assert_eq!(strategy.name(), "summarize");
/// let mut config = CompactionConfig::default();
/// config.block_strategy = Some(Arc::new(strategy));
/// ```
#[derive(Clone)]
pub struct SummarizeCompaction {
    summarizer: Arc<dyn Summarizer>,
    fallback: Arc<dyn BlockCompactionStrategy>,
    options: SummarizeOptions,
    cancel: CancelFlag,
    asks: bool,
    prompts: Option<CollectedPrompts>,
}

/// The prompts of a preview.
type CollectedPrompts = Arc<Mutex<Vec<SummaryPrompt>>>;

/// The prompt of a block, as a preview returns it instead of calling the summariser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryPrompt {
    /// The loop of the block; for a rollup the last loop that it replaces.
    pub loop_id: LoopId,
    /// The turns that the summary would replace; `None` for a rollup.
    pub turns: Option<(u32, u32)>,
    /// [`SummaryRequest::system`].
    pub system: String,
    /// [`SummaryRequest::prompt`].
    pub prompt: String,
}

impl SummarizeCompaction {
    /// Returns the strategy with this summariser, default options and the digest as fallback.
    pub fn new(summarizer: Arc<dyn Summarizer>) -> Self {
        Self {
            summarizer,
            fallback: Arc::new(DigestCompaction::default()),
            options: SummarizeOptions::default(),
            cancel: CancelFlag::new(),
            asks: true,
            prompts: None,
        }
    }

    /// Sets the strategy that makes the text if the summariser fails; it may be another `summarize`.
    #[must_use]
    pub fn fallback(mut self, fallback: Arc<dyn BlockCompactionStrategy>) -> Self {
        self.fallback = fallback;
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn options(mut self, options: SummarizeOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the flag that cancels a running summary; the fallback then makes the text.
    #[must_use]
    pub fn cancel(mut self, cancel: CancelFlag) -> Self {
        self.cancel = cancel;
        self
    }

    /// Makes the fallback write every text, without a call of the summariser. A dry run uses it, since it must
    /// neither cost anything nor send messages to a model.
    #[must_use]
    pub fn without_asking(mut self) -> Self {
        self.asks = false;
        self
    }

    /// Makes the strategy push its prompts to `prompts` instead of calling the summariser.
    #[must_use]
    pub fn preview(mut self, prompts: Arc<Mutex<Vec<SummaryPrompt>>>) -> Self {
        self.prompts = Some(prompts);
        self.without_asking()
    }

    /// Pushes a prompt to the list of [`SummarizeCompaction::preview`], if there is one.
    fn record_prompt(
        &self,
        about: (Option<&LoopId>, Option<Turns>),
        input: &Input,
        room: (u64, u64),
    ) {
        let (Some(prompts), (Some(loop_id), turns)) = (&self.prompts, about) else {
            return;
        };
        let formatted = prompt::format_messages(&input.messages, &self.options);
        let SummaryRequest { system, prompt, .. } =
            self.request(&CancelFlag::new(), input, &formatted.text, room);
        let prompt = SummaryPrompt {
            loop_id: loop_id.clone(),
            turns: turns.map(|turns| (turns.first, turns.last)),
            system,
            prompt,
        };
        let mut prompts = prompts.lock().unwrap_or_else(PoisonError::into_inner);
        prompts.push(prompt);
    }

    /// Returns a summary of messages that belong to no store, with at most `most` tokens by `counter`. If the
    /// summariser fails, no fallback is used.
    ///
    /// # Errors
    /// If the summariser fails. The error has the text that an audit row would have.
    pub fn summarize(
        &self,
        messages: &[LoopMessage],
        most: u64,
        counter: &dyn TokenCounter,
    ) -> Result<AgentMessage, String> {
        let input = Input::of_messages(messages, counter);
        let mut notes = SummaryNotes::default();
        let (answer, _) = self.answer(&CancelFlag::new(), &input, (most, most), &mut notes)?;
        let mut digester = Digester::new();
        let messages = messages.to_vec();
        let last = messages.last().map_or(0, |placed| placed.turn);
        digester.add(DigestInput::Messages {
            loop_name: None,
            messages,
        });
        let answer = ModelAnswer {
            text: &answer,
            loop_name: None,
            last,
        };
        self.document(digester, &answer, &input, (most, most), counter)
    }

    fn request(
        &self,
        cancel: &CancelFlag,
        input: &Input,
        text: &str,
        (usual, most): (u64, u64),
    ) -> SummaryRequest {
        let (asked_tokens, max_tokens) = self.options.tokens_of(usual, most);
        SummaryRequest {
            system: prompt::SYSTEM.to_owned(),
            prompt: prompt::user_prompt(input, text, asked_tokens),
            asked_tokens,
            max_tokens,
            temperature: self.options.temperature,
            deadline: Instant::now() + self.options.timeout,
            cancel: self.cancel.or(cancel),
        }
    }

    /// Calls the summariser for a summary of `usual` tokens, at most `most`; its usage or its error is added to
    /// `notes`.
    fn answer(
        &self,
        cancel: &CancelFlag,
        input: &Input,
        room: (u64, u64),
        notes: &mut SummaryNotes,
    ) -> Result<(String, Formatted), String> {
        if !self.asks {
            return Err(NOT_ASKED.into());
        }
        let formatted = prompt::format_messages(&input.messages, &self.options);
        let request = self.request(cancel, input, &formatted.text, room);
        let begun = Instant::now();
        let answer = summarizer::call_with_deadline(&self.summarizer, &request);
        notes.calls += 1;
        notes.duration_ms += millis(begun.elapsed());
        let answer = answer.map_err(|error| error.to_string())?;
        let name = self.summarizer.name();
        notes.model = Some(answer.model.unwrap_or_else(|| name.to_owned()));
        notes.usage = answer.usage;
        Ok((answer.text, formatted))
    }

    /// Returns the document of an answer and the record: of `usual` tokens, or more if the answer is longer, but at
    /// most `most`.
    fn document(
        &self,
        mut digester: Digester,
        answer: &ModelAnswer<'_>,
        input: &Input,
        (usual, most): (u64, u64),
        counter: &dyn TokenCounter,
    ) -> Result<AgentMessage, String> {
        if !digester.add_model_answer(answer.loop_name.clone(), answer.last, answer.text) {
            return Err("the answer is empty".into());
        }
        let (written, read) = (counter.text_tokens(answer.text), input.tokens);
        if written >= read {
            return Err(format!(
                "the answer has {written} tokens, no fewer than its input of {read}"
            ));
        }
        let room = usual
            .max(written + written / 2)
            .min(most)
            .min(read.saturating_sub(1));
        let mut digest = digester.finish(room, counter);
        digest.timestamp = input.time.clone().or(digest.timestamp);
        let role = match self.options.role {
            SummaryRole::User => Role::User,
            SummaryRole::Assistant => Role::Assistant,
        };
        digest
            .message(role)
            .ok_or_else(|| format!("{room} tokens hold no summary"))
    }

    /// Adds the fallback and its reason to the notes.
    fn fallen_back(
        &self,
        mut summary: Summary,
        mut notes: SummaryNotes,
        reason: String,
    ) -> Summary {
        notes.fallback = Some(self.fallback.name().to_owned());
        // In a dry run, the fallback is no error.
        notes.error = self.asks.then_some(reason);
        notes.add(&summary.notes);
        summary.notes = notes;
        summary
    }
}

/// The answer of a model to an input.
struct ModelAnswer<'a> {
    text: &'a str,
    /// The name of the last loop that the model read, if there are several.
    loop_name: Option<String>,
    /// The last turn that the model read.
    last: u32,
}

impl BlockCompactionStrategy for SummarizeCompaction {
    fn name(&self) -> &str {
        SUMMARIZE
    }

    fn shaping(&self, config: &CompactionConfig) -> String {
        let (name, options) = (self.summarizer.name(), self.options.shaping());
        let mut shaping = format!("{} summarizer={name:?} {options}", config.shaping());
        if let Some(instructions) = &config.summary_prompt {
            shaping.push_str(&format!(" instructions={instructions:?}"));
        }
        shaping
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let input = Input {
            instructions: config.summary_prompt.clone(),
            ..Input::read(slice, turns, self.name())?
        };
        let mut notes = SummaryNotes::default();
        let most = config.max_summary_tokens;
        let usual = most.min(slice.tokens(turns)? / 2);
        self.record_prompt((Some(slice.loop_id()), Some(turns)), &input, (usual, most));
        let made = match self.answer(slice.cancel(), &input, (usual, most), &mut notes) {
            Ok((text, formatted)) => {
                let answer = ModelAnswer {
                    text: &text,
                    loop_name: None,
                    last: turns.last,
                };
                let digester = turns_digester(slice, turns, config)?;
                self.document(digester, &answer, &input, (usual, most), slice.counter())
                    .map(|message| (message, formatted))
            }
            Err(reason) => Err(reason),
        };
        match made {
            Ok((message, formatted)) => Ok(Summary {
                messages: vec![message],
                turns: (turns.first..turns.end())
                    .filter(|turn| !formatted.left_out.contains(turn))
                    .collect(),
                notes,
            }),
            Err(reason) => {
                let summary = self.fallback.keep_compacted(slice, turns, config)?;
                Ok(self.fallen_back(summary, notes, reason))
            }
        }
    }

    fn rollup(
        &self,
        slice: &RollupSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let input = Input {
            instructions: config.summary_prompt.clone(),
            ..Input::of_loops(slice)?
        };
        let mut notes = SummaryNotes::default();
        let most = config.max_rollup_tokens;
        self.record_prompt((slice.loops().last(), None), &input, (most, most));
        let made = match self.answer(slice.cancel(), &input, (most, most), &mut notes) {
            Ok((text, _)) => {
                let answer = ModelAnswer {
                    text: &text,
                    loop_name: slice.loops().last().map(loop_label),
                    last: input.messages.last().map_or(0, |placed| placed.turn),
                };
                let (digester, _) = rollup_digester(slice, 0)?;
                self.document(digester, &answer, &input, (most, most), slice.counter())
            }
            Err(reason) => Err(reason),
        };
        match made {
            Ok(message) => Ok(Summary {
                messages: vec![message],
                notes,
                ..Summary::default()
            }),
            Err(reason) => {
                let summary = self.fallback.rollup(slice, config)?;
                Ok(self.fallen_back(summary, notes, reason))
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use loopstore_model::compaction::memory::{MemoryTurns, check_promises, texts};

    /// A model that answers or fails, and records its requests.
    #[derive(Default)]
    struct Model {
        fails: bool,
        prompts: Mutex<Vec<String>>,
    }

    impl Summarizer for Model {
        fn name(&self) -> &str {
            "model"
        }

        fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
            self.prompts.lock().unwrap().push(request.prompt.clone());
            let text = match self.fails {
                true => String::new(),
                false => "## Task\nMend all parts.\n## Weather\nIt rains.".to_owned(),
            };
            Ok(SummaryAnswer {
                text,
                ..SummaryAnswer::default()
            })
        }
    }

    #[test]
    fn the_model_reads_the_turns_between_those_that_are_kept() {
        let model = Arc::new(Model::default());
        let strategy = SummarizeCompaction::new(model.clone());
        check_promises(&strategy);
        let slice = MemoryTurns::work(8, 3).slice(1, 2);
        let config = CompactionConfig::default();
        model.prompts.lock().unwrap().clear();
        let draft = strategy.compact(&slice, &config).unwrap();
        let prompts = model.prompts.lock().unwrap();
        let [prompt] = &**prompts else {
            panic!("asked {} times", prompts.len());
        };
        assert!(prompt.contains("Mended /src/part_1/mod.rs.") && prompt.contains("part_5"));
        assert!(
            !prompt.contains("Mended /src/part_6/mod.rs."),
            "turn 6 is kept"
        );
        let [text] = &*texts(&draft) else {
            panic!("one message: {draft:?}");
        };
        assert!(text.contains("It rains."), "{text}");
        let (_, summary) = draft.compacted.unwrap();
        assert_eq!(
            summary.turns.into_iter().collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert_eq!((summary.notes.calls, summary.notes.fallback), (1, None));
    }

    #[test]
    fn own_instructions_reach_the_model_and_the_facts_stay() {
        let model = Arc::new(Model::default());
        let strategy = SummarizeCompaction::new(model.clone());
        let slice = MemoryTurns::work(8, 3).slice(1, 2);
        let config = CompactionConfig {
            summary_prompt: Some("Write in French; leave all files out.".into()),
            ..CompactionConfig::default()
        };
        let draft = strategy.compact(&slice, &config).unwrap();
        let prompts = model.prompts.lock().unwrap();
        let own = "\n\n## Instructions for this summary\nWrite in French; leave all files out.";
        assert!(prompts[0].ends_with(own), "{}", prompts[0]);
        let text = &texts(&draft)[0];
        assert!(
            text.contains("/src/part_"),
            "files come from the record: {text}"
        );
        let usual = CompactionConfig::default();
        assert_ne!(strategy.shaping(&config), strategy.shaping(&usual));
    }

    #[test]
    fn a_model_that_says_nothing_is_replaced_by_the_digest() {
        let model = Model {
            fails: true,
            ..Model::default()
        };
        let strategy = SummarizeCompaction::new(Arc::new(model));
        let slice = MemoryTurns::work(8, 3).slice(1, 2);
        let draft = strategy
            .compact(&slice, &CompactionConfig::default())
            .unwrap();
        assert!(texts(&draft)[0].starts_with("[Working state"), "{draft:?}");
        let notes = draft.notes().unwrap();
        assert_eq!(notes.fallback.as_deref(), Some("digest"));
        assert_eq!(notes.error.as_deref(), Some("the answer is empty"));
    }
}
