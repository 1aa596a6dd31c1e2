//! The document of the working state, written without a model.
//!
//! A document is one message with sections: the task, standing instructions, the plan, the results of the work, files,
//! commands and errors, and exact values. Every line names the turns that it comes from. Facts are derived from
//! structure (roles, arguments of calls, exit codes), sentences are chosen by an extractive method ([`select`]), and no
//! rule depends on a domain. A document can be read back ([`read`]): the next document of a loop is made from the one
//! before and the new turns only.
//!
//! `gather` reads messages and earlier documents into a `DocumentRecord`; `page` writes a document of a given size
//! from it.

mod gather;
mod instructions;
mod lines;
mod model_sections;
mod names;
mod page;
mod page_draft;
mod read;
mod record;
mod select;
mod specification;
mod speech;
mod strategy;
mod text;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::gather::Gatherer;
use self::lines::{Heading, OPENING};
use self::names::LoopNames;
use self::page::{DocumentPage, PageWriter};
use self::page_draft::KnownText;
pub use self::strategy::DigestCompaction;
#[doc(hidden)]
pub use self::strategy::{loop_label, rollup_digester, supplement_headers, turns_digester};
use crate::activity::AgentWork;
pub use crate::activity::SourceTurn;
use loopstore_model::compaction::LoopMessage;
use loopstore_model::tokens::TokenCounter;
use loopstore_model::{AgentMessage, AssistantMessage, Content, Int, Message, Role, UserMessage};

/// The name of the strategy, stored with its blocks.
pub const DIGEST: &str = "digest";

/// The name of the strategy of `loopstore-summarize`, in which a model writes the text. Its text is a document too.
pub const SUMMARIZE: &str = "summarize";

/// An input of a digest.
#[derive(Clone, Debug)]
pub enum DigestInput {
    /// Messages of a loop.
    Messages {
        /// The short name of the loop, without spaces; `None` if there is only one loop.
        loop_name: Option<String>,
        /// The messages with their turns.
        messages: Vec<LoopMessage>,
    },
    /// The text of an earlier summary.
    Summary {
        /// The short name of the loop that the text summarises. Turns that the text itself assigns to a loop keep it.
        loop_name: Option<String>,
        /// The turn of the text if it is no digest; the lines of a digest name their turns.
        turn: u32,
        /// The text of the summary.
        text: String,
    },
}

/// A digest: a text and its sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// The text; empty if nothing fits the budget.
    pub text: String,
    /// The turns that the lines come from.
    pub places: BTreeSet<SourceTurn>,
    /// The time of the newest message, in milliseconds since 1970.
    pub timestamp: Option<Int>,
}

impl Digest {
    /// Returns the digest as a message of the assistant if `role` is [`Role::Assistant`], else of the user; `None` if
    /// the text is empty.
    pub fn message(&self, role: Role) -> Option<AgentMessage> {
        if self.text.is_empty() {
            return None;
        }
        Some(message(&self.text, role, self.timestamp.clone()))
    }
}

fn message(text: &str, role: Role, timestamp: Option<Int>) -> AgentMessage {
    let content = vec![Content::text(text)];
    AgentMessage::from(match role {
        Role::Assistant => Message::Assistant(AssistantMessage {
            content,
            timestamp,
            ..AssistantMessage::default()
        }),
        Role::User | Role::ToolResult | Role::Extension => Message::User(UserMessage {
            content,
            timestamp,
            ..UserMessage::default()
        }),
    })
}

/// Builds a digest of messages and earlier summaries, which are added oldest first.
///
/// ```
/// use loopstore_digest::{DigestInput, Digester};
/// use loopstore_model::tokens::HeuristicTokenCounter;
///
/// let mut digester = Digester::new();
/// digester.add(DigestInput::Summary { loop_name: None, turn: 3, text: "Ticket A17B is open.".into() });
/// let digest = digester.finish(200, &HeuristicTokenCounter);
/// assert!(digest.text.contains("A17B"));
/// ```
#[derive(Default)]
pub struct Digester {
    gatherer: Gatherer,
    headers: Vec<String>,
    /// The texts that a supplement does not repeat.
    supplemented: Option<KnownText>,
}

impl Digester {
    /// Returns a digester without any input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the possible first lines, the preferred one first; a later, shorter one is used if the budget is small.
    /// Each must be one line and begin with `[Working state`.
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<String>) -> Self {
        self.headers = headers;
        self
    }

    /// Makes the digest a supplement to `texts`, such as the summary of another program: it repeats nothing of them. A
    /// supplement has the plan, open errors, changed files and standing instructions, and spends most of its budget on
    /// exact values.
    #[must_use]
    pub fn supplementing<'a>(mut self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let known = self.supplemented.get_or_insert_default();
        texts.into_iter().for_each(|text| known.add(text));
        self
    }

    /// Adds an input; inputs are added oldest first.
    pub fn add(&mut self, input: DigestInput) {
        match input {
            DigestInput::Messages {
                loop_name,
                messages,
            } => {
                self.gatherer
                    .messages(clean_loop_name(loop_name).as_ref(), &messages);
            }
            DigestInput::Summary {
                loop_name,
                turn,
                text,
            } => {
                self.gatherer
                    .summary(clean_loop_name(loop_name).as_ref(), turn, &text);
            }
        }
    }

    /// Adds a model's answer, which covers all inputs so far and replaces the record's lines in the sections that it
    /// has. `loop_name` and `turn` name the last turn of the inputs. Returns false if the answer has no section.
    #[doc(hidden)]
    pub fn add_model_answer(&mut self, loop_name: Option<String>, turn: u32, answer: &str) -> bool {
        self.gatherer
            .add_model_answer(clean_loop_name(loop_name).as_ref(), turn, answer)
    }

    /// Returns the digest, whose message has at most `budget` tokens as `counter` counts.
    pub fn finish(self, budget: u64, counter: &dyn TokenCounter) -> Digest {
        let mut record = self.gatherer.finish();
        let names = LoopNames::shorten(&mut record);
        let headers = if self.headers.is_empty() {
            default_headers(record.values.span())
        } else {
            self.headers
        };
        let mut writer = PageWriter::new(&record, bytes_of(budget).saturating_mul(2));
        if let Some(known) = &self.supplemented {
            writer.leave_out(known);
        }
        let page = |most| {
            let mut page = match self.supplemented {
                Some(_) => writer.supplement(&headers, most),
                None => writer.page(&headers, most),
            };
            let line = names.line(&page.places);
            page.text.push_str(&line);
            page
        };
        let page = fit(&page, budget, counter);
        let own = |mut place: SourceTurn| {
            names.restore(&mut place);
            place
        };
        Digest {
            text: page.text,
            places: page.places.into_iter().map(own).collect(),
            timestamp: record.timestamp,
        }
    }
}

fn clean_loop_name(loop_name: Option<String>) -> Option<Arc<str>> {
    loop_name.map(|name| Arc::from(values::clean_label(&name)))
}

fn default_headers(span: Option<(u32, u32)>) -> Vec<String> {
    let of = match span {
        Some((first, last)) => format!(" of turns {first}..{last}"),
        None => String::new(),
    };
    let turns = match span {
        Some(_) => "tN names the turn that a line comes from",
        None => "LN tN names the loop (see the last line) and the turn that a line comes from",
    };
    vec![
        format!(
            "{OPENING}{of}, made from the record; {turns}. `expand` shows whole turns, `recall` finds more]"
        ),
        format!("{OPENING}{of}; `expand` shows whole turns]"),
        format!("{OPENING}]"),
    ]
}

/// Returns the files, plan, commands and running calls of a digest; `None` if the text is no digest.
///
/// ```
/// use loopstore_digest::document_work;
///
/// let text = "[Working state]\n## Files\n- `src/a.rs`: created t2; edited t4, t5 (fn parse)";
/// let work = document_work(text).unwrap();
/// assert_eq!((work.files[0].path.as_str(), work.files[0].events.len()), ("src/a.rs", 3));
/// assert!(document_work("All is well.").is_none());
/// ```
pub fn document_work(text: &str) -> Option<AgentWork> {
    let sections = read::document(text, 0)?;
    let work = sections.into_iter().find_map(|section| match section {
        read::DocumentPart::Work(work) => Some(*work),
        _ => None,
    });
    Some(work.unwrap_or_default())
}

/// Returns the bytes of so many tokens as the default counter counts: four a token, after four tokens of a message.
fn bytes_of(budget: u64) -> usize {
    usize::try_from(budget.saturating_sub(4).saturating_mul(4)).unwrap_or(usize::MAX)
}

/// Returns a digest of `parts`, oldest first, whose message has at most `budget` tokens as `counter` counts.
///
/// ```
/// use loopstore_digest::{DigestInput, digest_of};
/// use loopstore_model::Message;
/// use loopstore_model::compaction::LoopMessage;
/// use loopstore_model::tokens::HeuristicTokenCounter;
///
/// let placed = |turn, text: &str| LoopMessage { turn, seq: turn, message: Message::user(text).into() };
/// let texts = ["Repair the roof.", "The ladder is in /barn/ladder-7."];
/// let messages = vec![placed(0, texts[0]), placed(1, texts[1])];
/// let part = DigestInput::Messages { loop_name: None, messages };
/// let digest = digest_of(&mut [part].into_iter(), 200, &HeuristicTokenCounter);
/// assert!(digest.text.contains("/barn/ladder-7"));
/// ```
pub fn digest_of(
    parts: &mut dyn Iterator<Item = DigestInput>,
    budget: u64,
    counter: &dyn TokenCounter,
) -> Digest {
    let mut digester = Digester::new();
    parts.for_each(|part| digester.add(part));
    digester.finish(budget, counter)
}

/// Returns a page whose message is within the budget, and close to it unless everything fits.
fn fit(
    page_of: &dyn Fn(usize) -> DocumentPage,
    budget: u64,
    counter: &dyn TokenCounter,
) -> DocumentPage {
    let tokens =
        |page: &DocumentPage| counter.message_tokens(&message(&page.text, Role::User, None));
    // For the default counter, the first page fits exactly.
    let mut most = bytes_of(budget);
    let (mut fits, mut too_large): (Option<(usize, DocumentPage)>, Option<usize>) = (None, None);
    for _ in 0..24 {
        let page = page_of(most);
        let spent = tokens(&page);
        if spent > budget {
            too_large = Some(most);
            // The excess in bytes, as the default counter counts.
            let excess = bytes_of(spent - budget + 6);
            if fits.is_none() && excess < most / 4 {
                most -= excess;
                continue;
            }
        } else {
            let is_enough = !page.is_full || spent + budget / 100 >= budget;
            fits = Some((most, page));
            if is_enough {
                break;
            }
        }
        let low = fits.as_ref().map_or(0, |(most, _)| *most);
        most = match too_large {
            Some(high) if high - low <= 1 => break,
            Some(high) => low + (high - low) / 2,
            None => low.saturating_add(low / 8 + 16),
        };
    }
    fits.map_or_else(|| page_of(0), |(_, page)| page)
}

/// Returns the part of an earlier text that a model should read: a digest without its header and without the sections
/// that the record adds again, any other text unchanged.
#[doc(hidden)]
pub fn without_recorded_sections(text: &str) -> String {
    if !text.starts_with(OPENING) {
        return text.to_owned();
    }
    let mut is_shown = true;
    let mut lines = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(heading) = Heading::of_line(line) {
            is_shown = !matches!(heading, Heading::Files | Heading::Values);
        }
        if is_shown {
            lines.push(line);
        }
    }
    lines.join("\n").trim().to_owned()
}
