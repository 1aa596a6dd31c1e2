//! Summaries written by a model.
//!
//! Each block holds one message. The block before is input, so that summaries are chained and not
//! stacked: a round reads that summary and the turns after it, and its answer takes the place of
//! both. A model that fails, is too slow or answers something else never stops a compaction: a
//! fallback strategy makes the text, and the run's audit row says why.
//!
//! To add a summariser, implement [`Summarizer`], or give a closure that returns a future to
//! `FutureSummarizer` (feature `tokio`); a new option that shapes the text goes into
//! `SummarizeOptions::shaping` too, or old blocks pass for new ones.

mod answer;
#[cfg(feature = "tokio")]
mod future;
#[cfg(feature = "http")]
pub mod http;
mod input;
mod options;
mod prompt;
mod summarizer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::CompactionConfig;
use super::digest::DigestCompaction;
use super::notes::SummaryNotes;
use super::slice::{LoopSlice, Placed, RollupSlice};
use super::strategy::{BlockCompactionStrategy, StrategyError, Summary};
use crate::model::{AgentMessage, AssistantMessage, Content, Message, Turns, UserMessage};
use crate::tokens::TokenCounter;
#[cfg(feature = "tokio")]
pub use future::FutureSummarizer;
use input::Input;
pub use options::{SummarizeOptions, SummaryRole};
use prompt::Formatted;
pub use summarizer::{CancelFlag, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// Why a strategy that does not ask has no summary.
const NOT_ASKED: &str = "the summariser was not asked";

/// The strategy `summarize`: a [`Summarizer`] writes one message for each block.
///
/// ```
/// use loopstore::*;
/// use std::sync::Arc;
///
/// /// Stands for a model. An answer without the sections that it is asked for counts as none.
/// struct Model;
///
/// const SECTIONS: [&str; 5] = [
///     "Original Task",
///     "Completed Work",
///     "Key Technical Decisions",
///     "Current State",
///     "Pending Work",
/// ];
///
/// impl Summarizer for Model {
///     fn name(&self) -> &str {
///         "model"
///     }
///
///     fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
///         let text = SECTIONS.map(|section| format!("### {section}\nIt rains.\n")).concat();
///         Ok(SummaryAnswer { text, ..SummaryAnswer::default() })
///     }
/// }
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let mut request = CompactRequest::default();
/// # request.trigger = CompactTrigger::Force;
/// request.config.block_strategy = Arc::new(SummarizeCompaction::new(Arc::new(Model)));
/// let report = chat.compact(&request)?;
/// // The model did it, and no fallback had to.
/// assert_eq!((&*report.strategy, report.fallback), ("summarize", None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SummarizeCompaction {
    summarizer: Arc<dyn Summarizer>,
    fallback: Arc<dyn BlockCompactionStrategy>,
    options: SummarizeOptions,
    cancel: CancelFlag,
    asks: bool,
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
        let options = SummarizeOptions {
            asked_tokens: most,
            max_tokens: most,
            ..self.options.clone()
        };
        let own = self.clone().options(options);
        let mut notes = SummaryNotes::default();
        let asked_by = (1, counter, &CancelFlag::new());
        let (message, _) = own.write(asked_by, &input, most, &mut notes)?;
        Ok(message)
    }

    fn request(
        &self,
        (round, cancel): (u32, &CancelFlag),
        input: &Input,
        text: &str,
        most: u64,
    ) -> SummaryRequest {
        let options = &self.options;
        let asked_tokens = options.asked_tokens.min(most * 4 / 5);
        SummaryRequest {
            system: prompt::SYSTEM.to_owned(),
            prompt: prompt::user_prompt(input, text, round, asked_tokens),
            asked_tokens,
            max_tokens: options.max_tokens.min(most),
            temperature: options.temperature,
            deadline: Instant::now() + options.timeout,
            cancel: self.cancel.or(cancel),
        }
    }

    /// Asks the summariser; what it said or why it did not goes into `notes`.
    fn ask(&self, request: &SummaryRequest, notes: &mut SummaryNotes) -> Result<String, String> {
        let begun = Instant::now();
        let answer = summarizer::ask(&self.summarizer, request);
        notes.calls += 1;
        notes.duration_ms += millis(begun.elapsed());
        let answer = answer.map_err(|error| error.to_string())?;
        let name = self.summarizer.name();
        notes.model = Some(answer.model.unwrap_or_else(|| name.to_owned()));
        notes.usage = answer.usage;
        Ok(answer.text)
    }

    fn write(
        &self,
        (round, counter, cancel): (u32, &dyn TokenCounter, &CancelFlag),
        input: &Input,
        most: u64,
        notes: &mut SummaryNotes,
    ) -> Result<(AgentMessage, Formatted), String> {
        if !self.asks {
            return Err(NOT_ASKED.into());
        }
        let formatted = prompt::format_messages(&input.messages, &self.options);
        let request = self.request((round, cancel), input, &formatted.text, most);
        let answer = self.ask(&request, notes)?;
        let count = |text: &str| counter.message_tokens(&self.message(input, text));
        let marker = self.options.marker.as_deref();
        let text = answer::finish(&answer, &input.task, marker, most, &count)?;
        let (tokens, read) = (count(&text), input.tokens);
        if tokens >= read {
            return Err(format!(
                "the answer has {tokens} tokens, no fewer than its input of {read}"
            ));
        }
        Ok((self.message(input, &text), formatted))
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

    fn message(&self, input: &Input, text: &str) -> AgentMessage {
        let (content, timestamp) = (vec![Content::text(text)], input.timestamp());
        AgentMessage::from(match self.options.role {
            SummaryRole::User => Message::User(UserMessage {
                content,
                timestamp,
                ..UserMessage::default()
            }),
            SummaryRole::Assistant => Message::Assistant(AssistantMessage {
                content,
                timestamp,
                ..AssistantMessage::default()
            }),
        })
    }
}

impl BlockCompactionStrategy for SummarizeCompaction {
    fn name(&self) -> &str {
        "summarize"
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
        let asked_by = (slice.round(), slice.counter(), slice.cancel());
        match self.write(asked_by, &input, config.max_summary_tokens, &mut notes) {
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
        let asked_by = (slice.round(), slice.counter(), slice.cancel());
        match self.write(asked_by, &input, config.max_rollup_tokens, &mut notes) {
            Ok((message, _)) => Ok(Summary {
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

    use super::super::memory::{MemoryTurns, check_promises, texts};
    use super::*;

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
            let section = |section: &&str| format!("### {section}\nIt rains.\n");
            let text = match self.fails {
                true => String::new(),
                false => prompt::SECTIONS.iter().map(section).collect(),
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
