//! The strategy `summarize`: summaries written by a model.
//!
//! Each block holds one message. The block before is input, so that summaries are chained and not
//! stacked: a round reads that summary and the turns after it, and its answer takes the place of
//! both. The text is a document of the digest: the model writes the sections that want words, in any form,
//! and the record adds the files, the exact values and whatever sections the model left out. A model that
//! fails, is too slow or says nothing never stops a compaction: a fallback strategy makes the text, and the
//! run's audit row says why.
//!
//! To add a summariser, implement [`Summarizer`], name a command ([`CommandSummarizer`]), or
//! give a closure that returns a future to `FutureSummarizer` (feature `tokio`); a new option that shapes the text goes into
//! `SummarizeOptions::shaping` too, or old blocks pass for new ones.
//!
//! The crate reads no database: turns come through a `LoopSlice`, and a run is recorded by the caller. It holds
//! two ways to reach a model, a command and HTTP (feature `http`), and no client of any one provider.

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
    BlockCompactionStrategy, CancelFlag, CompactionConfig, LoopSlice, Placed, RollupSlice,
    StrategyError, Summary, SummaryNotes,
};
use loopstore_model::tokens::TokenCounter;
use loopstore_model::{AgentMessage, LoopId, Role, Turns};
pub use options::{SummarizeOptions, SummaryRole};
use prompt::Formatted;
pub use summarizer::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// Why a strategy that does not ask has no summary.
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
/// /// Stands for a model.
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

/// Where prompts are put that nobody is asked.
type CollectedPrompts = Arc<Mutex<Vec<SummaryPrompt>>>;

/// What a summariser would be asked for a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryPrompt {
    /// The loop of the block; of a rollup the last that it stands for.
    pub loop_id: LoopId,
    /// The turns that the summary is to stand for; `None` for a rollup.
    pub turns: Option<(u32, u32)>,
    /// [`SummaryRequest::system`].
    pub system: String,
    /// [`SummaryRequest::prompt`].
    pub prompt: String,
}

impl SummarizeCompaction {
    /// Summaries by `summarizer`, with default options and fallback.
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

    /// Sets what makes the text when the summariser does not; another `summarize` will do.
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

    /// Sets the flag that cancels a summary in the making; the fallback then makes the text.
    #[must_use]
    pub fn cancel(mut self, cancel: CancelFlag) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets that the summariser is not asked: the fallback makes every text. For a dry run, which
    /// should neither cost anything nor hand out what was said.
    #[must_use]
    pub fn without_asking(mut self) -> Self {
        self.asks = false;
        self
    }

    /// Sets that the summariser is not asked, and that what it would be asked is put into `prompts`.
    #[must_use]
    pub fn preview(mut self, prompts: Arc<Mutex<Vec<SummaryPrompt>>>) -> Self {
        self.prompts = Some(prompts);
        self.without_asking()
    }

    /// Puts what the summariser would be asked where [`SummarizeCompaction::preview`] says.
    fn note_prompt(
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

    /// Summarises messages that belong to no store, in at most `most` tokens as `counter` counts
    /// them. Nothing stands in for the summariser.
    ///
    /// # Errors
    /// Why there is no summary, as an audit row would say it.
    pub fn summarize(
        &self,
        messages: &[Placed],
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

    /// Asks the summariser for a summary that is to have `usual` tokens, `most` at most; what it said or why it did not goes into
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
        let answer = summarizer::ask(&self.summarizer, &request);
        notes.calls += 1;
        notes.duration_ms += millis(begun.elapsed());
        let answer = answer.map_err(|error| error.to_string())?;
        let name = self.summarizer.name();
        notes.model = Some(answer.model.unwrap_or_else(|| name.to_owned()));
        notes.usage = answer.usage;
        Ok((answer.text, formatted))
    }

    /// Makes the document of an answer and the record, of at most `most` tokens: `usual` of them, or more if
    /// the answer is longer.
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
        let (said, read) = (counter.text_tokens(answer.text), input.tokens);
        if said >= read {
            return Err(format!(
                "the answer has {said} tokens, no fewer than its input of {read}"
            ));
        }
        let room = usual
            .max(said + said / 2)
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

    /// Notes that the fallback made a summary, and why.
    fn fallen_back(
        &self,
        mut summary: Summary,
        mut notes: SummaryNotes,
        reason: String,
    ) -> Summary {
        notes.fallback = Some(self.fallback.name().to_owned());
        // Not to ask is no error.
        notes.error = self.asks.then_some(reason);
        notes.add(&summary.notes);
        summary.notes = notes;
        summary
    }
}

/// What a model said to an input.
struct ModelAnswer<'a> {
    text: &'a str,
    /// The name of the last loop that it read, if there is more than one.
    loop_name: Option<String>,
    /// The last turn that it read.
    last: u32,
}

impl BlockCompactionStrategy for SummarizeCompaction {
    fn name(&self) -> &str {
        SUMMARIZE
    }

    fn shaping(&self, config: &CompactionConfig) -> String {
        let (name, options) = (self.summarizer.name(), self.options.shaping());
        format!("{} summarizer={name:?} {options}", config.shaping())
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let input = Input::read(slice, turns, self.name())?;
        let mut notes = SummaryNotes::default();
        let most = config.max_summary_tokens;
        let usual = most.min(slice.tokens(turns)? / 2);
        self.note_prompt((Some(slice.loop_id()), Some(turns)), &input, (usual, most));
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
        let input = Input::of_loops(slice)?;
        let mut notes = SummaryNotes::default();
        let most = config.max_rollup_tokens;
        self.note_prompt((slice.loops().last(), None), &input, (most, most));
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

    /// Answers as a model would, or fails; keeps what it was asked.
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
