//! The strategy: documents of turns and of loops, each made from the document before if that has all facts.

use super::lines::OPENING;
use super::{DIGEST, DigestInput, Digester, SUMMARIZE, clean_loop_name, values};
use loopstore_model::compaction::CompactionConfig;
use loopstore_model::compaction::{BlockCompactionStrategy, StrategyError, Summary};
use loopstore_model::compaction::{LoopMessage, LoopSlice, RollupSlice};
use loopstore_model::{LoopId, Message, Role, SessionId, Turns};

/// The length of a loop's name in a rollup, in characters: for a UUID its time and counter, and for any other id.
const SHORT_NAME: usize = 23;
const LONGEST_NAME: usize = 80;
/// The length of a UUID in characters.
const UUID: usize = 36;

/// The default strategy: replaces turns by a digest of the facts that an agent likely needs, without a model.
///
/// The summary of a block is one message of at most [`CompactionConfig::max_summary_tokens`], and at most half the
/// tokens of the turns that it replaces. The text of a rollup has at most [`CompactionConfig::max_rollup_tokens`], and
/// no more tokens than the messages that it replaces.
///
/// ```
/// use loopstore_digest::DigestCompaction;
/// use loopstore_model::Role;
/// use loopstore_model::compaction::{BlockCompactionStrategy, CompactionConfig};
/// use std::sync::Arc;
///
/// // A message of the assistant, not the user.
/// let strategy = DigestCompaction::default().with_role(Role::Assistant);
/// assert_eq!(strategy.name(), "digest");
/// let mut config = CompactionConfig::default();
/// config.block_strategy = Some(Arc::new(strategy));
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
    /// Sets the role of the message: [`Role::Assistant`], or [`Role::User`] (the default).
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
        let digester = turns_digester(slice, turns, config)?;
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
        let (digester, replaced) = rollup_digester(slice, config.max_rollup_tokens)?;
        let digest = digester.finish(replaced, slice.counter());
        Ok(Summary {
            messages: digest.message(self.role).into_iter().collect(),
            ..Summary::default()
        })
    }
}

/// Returns a digester of `turns`: the active document if it covers their beginning, and the messages after it.
pub fn turns_digester(
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
            loop_name: None,
            turn: earlier.covered.last,
            text: earlier.text.clone(),
        });
    }
    if let Some(rest) = rest {
        let messages = slice.messages(rest)?;
        digester.add(DigestInput::Messages {
            loop_name: None,
            messages,
        });
    }
    if let Some(words) = words {
        digester
            .gatherer
            .add_model_sections_of(words.covered.last, &words.text);
    }
    Ok(digester)
}

/// Returns a digester of the loops of a rollup, and the tokens of the messages that the rollup replaces, at most
/// `most`: a rollup must not be longer.
pub fn rollup_digester(
    slice: &RollupSlice<'_>,
    most: u64,
) -> Result<(Digester, u64), StrategyError> {
    let mut digester = Digester::new().with_headers(rollup_headers(slice));
    let mut replaced = 0;
    for (at, id) in slice.loops().iter().enumerate() {
        // The lines of an earlier rollup name their loops.
        let loop_name = (at > 0 || !slice.extends()).then(|| loop_label(id));
        let mut messages = Vec::new();
        // A summary of another strategy may have several messages.
        let mut foreign = Vec::new();
        for (turn, message) in slice.messages(at)? {
            if replaced < most {
                replaced += slice.counter().message_tokens(&message);
            }
            if let Some(turn) = turn {
                let seq = 0;
                messages.push(LoopMessage { turn, seq, message });
                continue;
            }
            let texts = message.message().into_iter().flat_map(Message::texts);
            let text = texts.collect::<Vec<_>>().join("\n");
            let is_ours = text.starts_with(OPENING)
                && (slice.strategy)(at)?.is_some_and(|strategy| is_known(&strategy));
            match is_ours {
                true => {
                    digester.gatherer.summary(
                        clean_loop_name(loop_name.clone()).as_ref(),
                        0,
                        &text,
                    );
                }
                false => foreign.push(text),
            }
        }
        let foreign = foreign.join("\n\n");
        if !foreign.trim().is_empty() {
            digester.gatherer.foreign_summary(
                clean_loop_name(loop_name.clone()).as_ref(),
                0,
                &foreign,
            );
        }
        digester.add(DigestInput::Messages {
            loop_name,
            messages,
        });
    }
    Ok((digester, replaced.min(most)))
}

/// Returns the name of a loop in a rollup: its id, or the beginning of a UUID.
pub fn loop_label(id: &LoopId) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_uuid = id.as_str().len() == UUID && id.as_str().chars().all(is_part);
    // The separators of names are removed.
    let chars = id
        .as_str()
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ',');
    chars
        .take(if is_uuid { SHORT_NAME } else { LONGEST_NAME })
        .collect()
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

/// Returns the headers of a supplement to the summary of another program.
pub fn supplement_headers(session: &SessionId, only: Option<&LoopId>) -> Vec<String> {
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

/// The active document.
struct EarlierDocument {
    covered: Turns,
    text: String,
    /// True if it has the facts that a new document would have; else only the sections of a model are taken from it.
    is_whole: bool,
}

/// True if the strategy writes documents. The summary of another strategy may only look like one.
fn is_known(strategy: &str) -> bool {
    matches!(strategy, DIGEST | SUMMARIZE)
}

/// Returns the active document if it covers the first of `turns`.
///
/// A document for another budget may lack facts that fit now. The sections of a model are kept even then, since they
/// cannot be derived again.
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
    // Settings of other strategies follow those of the digest and do not affect it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore_model::Layout;
    use loopstore_model::compaction::EarlierBlock;
    use loopstore_model::compaction::memory::{MemoryTurns, check_promises, texts};

    /// A block of the digest over the turns `0..turns`.
    fn earlier_digest(turns: u32, config: &CompactionConfig) -> EarlierBlock {
        EarlierBlock {
            layout: Layout {
                compacted: Turns::of(0..turns),
                ..Layout::default()
            },
            is_rollup: false,
            strategy: DIGEST.to_owned(),
            shaping: config.shaping(),
        }
    }

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
