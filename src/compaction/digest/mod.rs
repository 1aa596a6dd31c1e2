//! The default strategy: a document of the working state, made from the record without a model.
//!
//! A document is one message in sections: the task and what a person said to hold, the plan, what was done,
//! decided and found, the files, the commands and errors, and exact values; every line names the turns that
//! it comes from. What is what is told from structure (roles, arguments of calls, exit states), sentences are
//! chosen by an extractive method ([`select`]), and nothing here knows a domain. A document can be read back
//! ([`read`]): a later one of the same loop reads the one before and only the new turns.
//!
//! `gather` reads messages and earlier documents into a `Record`; `page` fills a budget from it.

mod filling;
mod gather;
mod given;
mod instructions;
mod lines;
mod names;
mod page;
mod read;
mod record;
mod select;
mod text;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::filling::Told;
use self::gather::Gatherer;
use self::lines::{Heading, OPENING};
use self::names::LoopNames;
use self::page::{DocumentPage, PageWriter};
use super::config::CompactionConfig;
use super::slice::{LoopSlice, Placed, RollupSlice};
use super::strategy::{BlockCompactionStrategy, StrategyError, Summary};
use super::summarize::SUMMARIZE;
pub use crate::compaction::activity::Place;
use crate::compaction::activity::Work;
use crate::model::{
    AgentMessage, AssistantMessage, Content, Int, LoopId, Message, Role, SessionId, Turns,
    UserMessage,
};
use crate::tokens::TokenCounter;

/// The strategy's name, stored with its blocks.
pub const DIGEST: &str = "digest";

/// Something that a digest is made from.
#[derive(Clone, Debug)]
pub enum DigestInput {
    /// Messages of a loop.
    Messages {
        /// The loop's short name, without spaces; none if there is only one loop.
        of: Option<String>,
        /// The messages with their turns.
        messages: Vec<Placed>,
    },
    /// The text of an earlier summary.
    Summary {
        /// The short name of the loop that facts without a name of their own come from.
        of: Option<String>,
        /// The turn that the text is taken to come from if it is no digest.
        turn: u32,
        /// The text.
        text: String,
    },
}

/// What a digest says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// The text; empty if nothing fits.
    pub text: String,
    /// Where what it says comes from.
    pub places: BTreeSet<Place>,
    /// The time of the newest message read.
    pub timestamp: Option<Int>,
}

impl Digest {
    /// Returns the digest as a message of the user or, if `role` is that, of the assistant; none
    /// if it is empty.
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

/// Makes a digest of loops or parts of them, oldest first.
///
/// ```
/// use loopstore::HeuristicTokenCounter;
/// use loopstore::extend::compaction::{DigestInput, Digester};
///
/// let mut digester = Digester::new();
/// digester.add(DigestInput::Summary { of: None, turn: 3, text: "Ticket A17B is open.".into() });
/// let digest = digester.finish(200, &HeuristicTokenCounter);
/// assert!(digest.text.contains("A17B"));
/// ```
#[derive(Default)]
pub struct Digester {
    gatherer: Gatherer,
    headers: Vec<String>,
    /// What a reader has before them.
    beside: Option<Told>,
}

impl Digester {
    /// Begins with nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what the first line may say, the best first; a shorter one is taken where the budget
    /// is small. Each must begin with `[Working state` and be one line.
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<String>) -> Self {
        self.headers = headers;
        self
    }

    /// Makes a text that stands beside a summary of another's and whatever else a reader sees: of that it
    /// repeats nothing. It tells of the plan, of errors that are still open, of changed files, of what is to
    /// hold, and gives most of its room to exact values.
    #[must_use]
    pub fn beside<'a>(mut self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let told = self.beside.get_or_insert_default();
        texts.into_iter().for_each(|text| told.tell(text));
        self
    }

    /// Reads something; what is added later is newer.
    pub fn add(&mut self, input: DigestInput) {
        match input {
            DigestInput::Messages { of, messages } => {
                self.gatherer.messages(name(of).as_ref(), &messages);
            }
            DigestInput::Summary { of, turn, text } => {
                self.gatherer.summary(name(of).as_ref(), turn, &text);
            }
        }
    }

    /// Takes a model's answer to all that was added, which ends with `turn` of the loop `of`: its words stand
    /// in the place of the record's. Whether it says anything.
    pub(crate) fn answer(&mut self, of: Option<String>, turn: u32, answer: &str) -> bool {
        self.gatherer.model_answer(name(of).as_ref(), turn, answer)
    }

    /// Writes the digest, whose message has at most `budget` tokens.
    pub fn finish(self, budget: u64, counter: &dyn TokenCounter) -> Digest {
        let mut record = self.gatherer.finish();
        let names = LoopNames::shorten(&mut record);
        let headers = if self.headers.is_empty() {
            default_headers(record.values.span())
        } else {
            self.headers
        };
        let mut writer = PageWriter::new(&record, bytes_of(budget).saturating_mul(2));
        if let Some(known) = &self.beside {
            writer.leave_out(known);
        }
        let page = |most| {
            let mut page = match self.beside {
                Some(_) => writer.beside(&headers, most),
                None => writer.page(&headers, most),
            };
            let line = names.line(&page.places);
            page.text.push_str(&line);
            page
        };
        let page = fit(&page, budget, counter);
        let own = |mut place: Place| {
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

fn name(of: Option<String>) -> Option<Arc<str>> {
    of.map(|name| Arc::from(values::clean_label(&name)))
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

/// Returns what a document says of files, plan, commands and running calls; `None` if the text is no document.
///
/// ```
/// use loopstore::extend::compaction::document_work;
///
/// let text = "[Working state]\n## Files\n- `src/a.rs`: created t2; edited t4, t5 (fn parse)";
/// let work = document_work(text).unwrap();
/// assert_eq!((work.files[0].path.as_str(), work.files[0].events.len()), ("src/a.rs", 3));
/// assert!(document_work("All is well.").is_none());
/// ```
pub fn document_work(text: &str) -> Option<Work> {
    let sections = read::document(text, 0)?;
    let work = sections.into_iter().find_map(|section| match section {
        read::Section::Work(work) => Some(*work),
        _ => None,
    });
    Some(work.unwrap_or_default())
}

/// Returns the bytes that so many tokens have by the default counter.
fn bytes_of(budget: u64) -> usize {
    usize::try_from(budget.saturating_sub(4).saturating_mul(4)).unwrap_or(usize::MAX)
}

/// Makes a digest of `parts`, oldest first, whose message has at most `budget` tokens.
///
/// ```
/// use loopstore::extend::compaction::{DigestInput, digest_of};
/// use loopstore::*;
///
/// let placed = |turn, text: &str| Placed { turn, seq: turn, message: Message::user(text).into() };
/// let texts = ["Repair the roof.", "The ladder is in /barn/ladder-7."];
/// let messages = vec![placed(0, texts[0]), placed(1, texts[1])];
/// let part = DigestInput::Messages { of: None, messages };
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

/// Returns the largest page whose message is within the budget, or nearly so.
fn fit(
    page_of: &dyn Fn(usize) -> DocumentPage,
    budget: u64,
    counter: &dyn TokenCounter,
) -> DocumentPage {
    let tokens =
        |page: &DocumentPage| counter.message_tokens(&message(&page.text, Role::User, None));
    // Exact for the default counter.
    let mut most = bytes_of(budget);
    let (mut fits, mut too_large): (Option<(usize, DocumentPage)>, Option<usize>) = (None, None);
    for _ in 0..24 {
        let page = page_of(most);
        let spent = tokens(&page);
        if spent > budget {
            too_large = Some(most);
            // By the default counter, this is what has to go.
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

/// Replaces turns by what an agent is likely to need of them, without a model.
///
/// One message of at most [`CompactionConfig::max_summary_tokens`], and of at most half of what
/// it stands for.
///
/// ```
/// use loopstore::{CompactionConfig, DigestCompaction, Role};
/// use std::sync::Arc;
///
/// // Told by the assistant, not the user.
/// let strategy = DigestCompaction::default().with_role(Role::Assistant);
/// let block_strategy = Arc::new(strategy);
/// let config = CompactionConfig { block_strategy, ..CompactionConfig::default() };
/// assert_eq!(config.block_strategy.name(), "digest");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DigestCompaction {
    role: Role,
}

impl Default for DigestCompaction {
    fn default() -> Self {
        Self { role: Role::User }
    }
}

impl DigestCompaction {
    /// Makes the digest a message of the assistant, or of the user (the default).
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role }
    }
}

impl BlockCompactionStrategy for DigestCompaction {
    fn is_own(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        DIGEST
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let digester = digester_of(slice, turns, config)?;
        let budget = config.max_summary_tokens.min(slice.tokens(turns)? / 2);
        let digest = digester.finish(budget, slice.counter());
        Ok(Summary {
            messages: digest.message(self.role).into_iter().collect(),
            turns: digest.places.iter().map(|place| place.turn).collect(),
            ..Summary::default()
        })
    }

    fn rollup(
        &self,
        slice: &RollupSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let digester = rollup_digester(slice)?;
        let digest = digester.finish(config.max_rollup_tokens, slice.counter());
        Ok(Summary {
            messages: digest.message(self.role).into_iter().collect(),
            ..Summary::default()
        })
    }
}

/// Reads what a digest of `turns` is made from: the document before and the turns after it.
pub(crate) fn digester_of(
    slice: &LoopSlice<'_>,
    turns: Turns,
    config: &CompactionConfig,
) -> Result<Digester, StrategyError> {
    let mut digester = Digester::new().with_headers(headers(slice, turns)?);
    let mut rest = Some(turns);
    let earlier = earlier_document(slice, turns, config)?;
    let words = earlier.as_ref().filter(|earlier| !earlier.is_whole);
    if let Some(earlier) = earlier.as_ref().filter(|earlier| earlier.is_whole) {
        rest = Turns::of(earlier.covered.end()..turns.end());
        digester.add(DigestInput::Summary {
            of: None,
            turn: earlier.covered.last,
            text: earlier.text.clone(),
        });
    }
    if let Some(rest) = rest {
        let messages = slice.messages(rest)?;
        digester.add(DigestInput::Messages { of: None, messages });
    }
    if let Some(words) = words {
        digester
            .gatherer
            .words_of_model(words.covered.last, &words.text);
    }
    Ok(digester)
}

/// Reads what a digest of loops is made from.
pub(crate) fn rollup_digester(slice: &RollupSlice<'_>) -> Result<Digester, StrategyError> {
    let mut digester = Digester::new().with_headers(rollup_headers(slice));
    for (at, id) in slice.loops().iter().enumerate() {
        // What a rollup before says names its loops itself.
        let of = (at > 0 || !slice.extends()).then(|| short(id));
        let mut messages = Vec::new();
        // A summary that another made may have several messages.
        let mut foreign = Vec::new();
        for (turn, message) in slice.messages(at)? {
            if let Some(turn) = turn {
                let seq = 0;
                messages.push(Placed { turn, seq, message });
                continue;
            }
            let texts = message.message().into_iter().flat_map(Message::texts);
            let text = texts.collect::<Vec<_>>().join("\n");
            let is_ours = text.starts_with(OPENING)
                && (slice.strategy)(at)?.is_some_and(|strategy| is_known(&strategy));
            match is_ours {
                true => digester
                    .gatherer
                    .summary(name(of.clone()).as_ref(), 0, &text),
                false => foreign.push(text),
            }
        }
        let foreign = foreign.join("\n\n");
        if !foreign.trim().is_empty() {
            digester
                .gatherer
                .foreign_summary(name(of.clone()).as_ref(), 0, &foreign);
        }
        digester.add(DigestInput::Messages { of, messages });
    }
    Ok(digester)
}

/// Returns a loop's name in a rollup: the beginning of its id.
pub(crate) fn short(id: &LoopId) -> String {
    let plain = id.as_str().chars().filter(|c| !c.is_whitespace());
    plain.take(12).collect()
}

fn rollup_headers(slice: &RollupSlice<'_>) -> Vec<String> {
    let last = slice.loops().last().map(|id| values::flat(id.as_str()));
    let last = last.unwrap_or_default();
    vec![
        format!(
            "{OPENING} of the loops through {last}, made from the record; `LOOP tN` names the loop and turn \
             that a line comes from, the last line its id]"
        ),
        format!("{OPENING} of the loops through {last}]"),
        format!("{OPENING}]"),
    ]
}

fn headers(slice: &LoopSlice<'_>, turns: Turns) -> Result<Vec<String>, StrategyError> {
    let (first, last, id) = (turns.first, turns.last, slice.loop_id());
    let id = values::flat(id.as_str());
    let session = values::flat(slice.session_id()?.as_str());
    Ok(vec![
        format!(
            "{OPENING} of turns {first}..{last}, made from the record; tN names the turn that a line comes \
             from. Whole turns: expand session {session}, loop {id}, turns A..B; recall finds more]"
        ),
        format!("{OPENING} of turns {first}..{last} of loop {id}; expand shows them]"),
        format!("{OPENING} of turns {first}..{last}; expand]"),
        format!("{OPENING}, t{first}..t{last}]"),
    ])
}

/// Returns what the first line says of a text that stands beside a summary of another's.
pub(crate) fn beside_headers(session: &SessionId, only: Option<&LoopId>) -> Vec<String> {
    let session = values::flat(session.as_str());
    let of_loop = match only {
        Some(id) => format!("loop {}, ", values::flat(id.as_str())),
        None => String::new(),
    };
    vec![
        format!(
            "{OPENING}, what the summary leaves out. Whole turns: expand session {session}, {of_loop}turns A..B]"
        ),
        format!("{OPENING}, what the summary leaves out; expand {session}]"),
        format!("{OPENING}]"),
    ]
}

/// The document that is active.
struct EarlierDocument {
    covered: Turns,
    text: String,
    /// Whether it says what one made anew would; else only a model's words are taken from it.
    is_whole: bool,
}

/// Whether a strategy writes documents. A summary of another that looks like one may have been written by
/// anybody.
fn is_known(strategy: &str) -> bool {
    matches!(strategy, DIGEST | SUMMARIZE)
}

/// Returns the active document if it covers the first of `turns`.
///
/// One made for another budget may lack what fits now. What a model wrote is carried on even so: no reading
/// brings it back.
fn earlier_document(
    slice: &LoopSlice<'_>,
    turns: Turns,
    config: &CompactionConfig,
) -> Result<Option<EarlierDocument>, StrategyError> {
    let Some(block) = slice.before() else {
        return Ok(None);
    };
    let Some(covered) = block.layout.compacted else {
        return Ok(None);
    };
    if !is_known(&block.strategy)
        || block.is_rollup
        || covered.first != turns.first
        || covered.last > turns.last
    {
        return Ok(None);
    }
    // What else shapes a block says nothing of the digest's part in its text.
    let shaping = config.shaping();
    let rest = block.shaping.strip_prefix(&*shaping);
    let is_whole = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let messages = slice.before_messages()?;
    let text = match messages.as_slice() {
        [only] => only.message().and_then(|m| m.texts().next()),
        _ => None,
    };
    let is_document = |text: &&str| text.starts_with(OPENING);
    Ok(text.filter(is_document).map(|text| EarlierDocument {
        covered,
        text: text.to_owned(),
        is_whole,
    }))
}

/// Returns what a model is to read of an earlier text: of a document neither the header nor what the record
/// adds again.
pub(crate) fn without_record(text: &str) -> String {
    if !text.starts_with(OPENING) {
        return text.to_owned();
    }
    let mut is_shown = true;
    let mut lines = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(heading) = Heading::ALL
            .into_iter()
            .find(|heading| heading.line() == line)
        {
            is_shown = !matches!(heading, Heading::Files | Heading::Values);
        }
        if is_shown {
            lines.push(line);
        }
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::memory::{MemoryTurns, check_promises, earlier_digest, texts};
    use super::*;

    #[test]
    fn a_digest_names_what_was_worked_on() {
        check_promises(&DigestCompaction::default());
        let config = CompactionConfig::default();
        let slice = MemoryTurns::work(8, 3).slice(1, 2);
        let draft = DigestCompaction::default()
            .compact(&slice, &config)
            .unwrap();
        let [text] = &*texts(&draft) else {
            panic!("one message: {draft:?}");
        };
        assert!(text.starts_with("[Working state of turns 1..5"), "{text}");
        assert!(text.contains("/src/part_4/mod.rs"), "{text}");
        assert!(
            !text.contains("/src/part_7/mod.rs"),
            "turn 7 is kept: {text}"
        );
    }

    #[test]
    fn a_later_digest_reads_the_one_before_and_only_the_new_turns() {
        let config = CompactionConfig::default();
        let first = MemoryTurns::work(8, 3).slice(0, 4);
        let first = DigestCompaction::default()
            .compact(&first, &config)
            .unwrap();
        let [text] = &*texts(&first) else {
            panic!("one message: {first:?}");
        };
        // A value that only the digest before holds.
        let text = text.replace("part_0", "gone_0");
        let later = MemoryTurns::work(8, 3).with_earlier(&text).slice(0, 2);
        let later = later.with_before(earlier_digest(4, &config));
        let later = DigestCompaction::default()
            .compact(&later, &config)
            .unwrap();
        let [text] = &*texts(&later) else {
            panic!("one message: {later:?}");
        };
        assert!(text.contains("/src/gone_0/mod.rs"), "{text}");
        assert!(!text.contains("/src/part_0/mod.rs"), "read again: {text}");
        assert!(text.contains("/src/part_5/mod.rs"), "{text}");
    }
}
