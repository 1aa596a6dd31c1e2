//! Summaries written by a model.
//!
//! Each block holds one message. The block before is input, so that summaries are chained and not
//! stacked: a round reads that summary and the turns after it, and its answer takes the place of
//! both. A model that fails, is too slow or answers something else never stops a compaction: a
//! fallback strategy makes the text, and the run's audit row says why.
//!
//! To add a summariser, implement [`Summarizer`]; a new option that shapes the text goes into
//! `SummarizeOptions::shaping` too, or old blocks pass for new ones.

mod answer;
#[cfg(feature = "http")]
pub mod http;
mod input;
mod options;
mod prompt;
mod summarizer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::CompactionConfig;
use super::notes::SummaryNotes;
use super::strategy::{
    BlockCompactionStrategy, DefaultBlockCompaction, LoopSlice, StrategyError, Summary,
};
use crate::model::{AgentMessage, AssistantMessage, Content, Message, UserMessage};
use crate::store::Turns;
use crate::tokens::TokenCounter;
use input::Input;
pub use options::{SummarizeOptions, SummaryRole};
use prompt::Formatted;
pub use summarizer::{CancelFlag, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// The strategy `summarize`: a [`Summarizer`] writes one message for each block.
#[derive(Clone)]
pub struct SummarizeCompaction {
    summarizer: Arc<dyn Summarizer>,
    fallback: Arc<dyn BlockCompactionStrategy>,
    options: SummarizeOptions,
    cancel: CancelFlag,
}

/// One call of a summariser: what it reads, and what it may write.
struct Round<'a> {
    input: &'a Input,
    number: u32,
    /// Tokens that the text may have.
    most: u64,
    counter: &'a dyn TokenCounter,
}

impl SummarizeCompaction {
    /// Summaries by `summarizer`, with default options and fallback.
    pub fn new(summarizer: Arc<dyn Summarizer>) -> Self {
        Self {
            summarizer,
            fallback: Arc::new(DefaultBlockCompaction),
            options: SummarizeOptions::default(),
            cancel: CancelFlag::new(),
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

    fn request(&self, round: &Round<'_>, messages: &str) -> SummaryRequest {
        let options = &self.options;
        let asked_tokens = options.asked_tokens.min(round.most * 4 / 5);
        SummaryRequest {
            system: prompt::SYSTEM.to_owned(),
            prompt: prompt::user_prompt(round.input, messages, round.number, asked_tokens),
            asked_tokens,
            max_tokens: options.max_tokens.min(round.most),
            temperature: options.temperature,
            deadline: Instant::now() + options.timeout,
            cancel: self.cancel.clone(),
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
        round: &Round<'_>,
        notes: &mut SummaryNotes,
    ) -> Result<(AgentMessage, Formatted), String> {
        let input = round.input;
        let formatted = prompt::format_messages(&input.messages, &self.options);
        let answer = self.ask(&self.request(round, &formatted.text), notes)?;
        let count = |text: &str| round.counter.message_tokens(&self.message(input, text));
        let marker = self.options.marker.as_deref();
        let text = answer::finish(&answer, &input.task, marker, round.most, &count)?;
        let (tokens, read) = (count(&text), input.tokens);
        if tokens >= read {
            return Err(format!(
                "the answer has {tokens} tokens, not less than its input of {read}"
            ));
        }
        Ok((self.message(input, &text), formatted))
    }

    /// Lets the summariser write about `turns`, or else the fallback.
    fn write_or(
        &self,
        round: &Round<'_>,
        turns: impl Iterator<Item = u32>,
        fallback: impl FnOnce() -> Result<Summary, StrategyError>,
    ) -> Result<Summary, StrategyError> {
        let mut notes = SummaryNotes::default();
        match self.write(round, &mut notes) {
            Ok((message, formatted)) => Ok(Summary {
                messages: vec![message],
                turns: turns
                    .filter(|turn| !formatted.left_out.contains(turn))
                    .collect(),
                notes,
            }),
            Err(reason) => {
                let mut summary = fallback()?;
                notes.fallback = Some(self.fallback.name().to_owned());
                notes.error = Some(reason);
                notes.add(&summary.notes);
                summary.notes = notes;
                Ok(summary)
            }
        }
    }

    fn message(&self, input: &Input, text: &str) -> AgentMessage {
        let (content, timestamp) = (vec![Content::text(text)], input.timestamp());
        AgentMessage::from(match self.options.role {
            SummaryRole::User => Message::User(UserMessage { content, timestamp }),
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
        let round = Round {
            input: &input,
            number: slice.round(),
            most: config.max_summary_tokens,
            counter: slice.counter(),
        };
        self.write_or(&round, turns.first..turns.end(), || {
            self.fallback.keep_compacted(slice, turns, config)
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
