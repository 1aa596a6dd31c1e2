//! Builds the rows of a block from its specification: reach, sizes, replacement messages and coverage.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::coverage::{OwnCoverage, dispositions, rolled_up};
use super::exceptions::{Exceptions, cover_with_exceptions, split_by_exceptions};
use super::pins::PinnedMessage;
use super::ranges::{size_of, through, turn_seqs};
use crate::compaction::{Draft, Recent, Summary};
use crate::model::{AgentMessage, Role, Size, Turns};
use crate::store::active_blocks::ChainLink;
use crate::store::{
    Blob, BlockCore, BlockKey, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition,
    LiveEdits, LoopKey, NewBlock, QuotingBlock, RunKey, Section, StoreError, StoreRead,
    StoreResult, StoredMessage, codec, quote_body,
};
use crate::tokens::TokenCounter;

/// The coverage of the turns of a block's own loop that a summary replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactedAs {
    /// Turn by turn, as the summary lists them: `summarised` or `dropped`.
    Turns,
    /// As a whole, together with the loops before: `rolled_up`, or `sealed` if a provider made the compaction.
    RolledUp,
}

/// The specification of a block.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    pub kind: BlockKind,
    /// The rollup that it extends.
    pub extends: Option<BlockKey>,
    /// Its sections, and the replacements of originals.
    pub draft: Draft,
    pub compacted_as: CompactedAs,
    /// The earlier loops that it covers whole, with the coverage of [`super::rolled_up`].
    pub rolled_up: Vec<CoverageRow>,
    /// The live edits of these loops. Messages that they remove are covered as such.
    pub edits: Vec<(LoopKey, Arc<LiveEdits>)>,
    /// The ids of the runs that replaced something of the messages that the block may quote.
    pub quote_edits: Vec<String>,
    /// The pinned messages of the chain. The block quotes the pinned messages that it hides after its summary.
    pub pins: Vec<PinnedMessage>,
    /// The tokens of all earlier loops that it replaces.
    pub tokens_before: u64,
    pub strategy: String,
    /// The configuration that shaped it.
    pub shaping: String,
    /// ISO-8601 text.
    pub created_at: String,
    /// The fields of a foreign block without its messages.
    pub extra: Option<String>,
}

impl BlockSpec {
    /// Returns the specification of a block that shows its loop unchanged.
    pub fn unchanged(kind: BlockKind, turns: u32, strategy: &str, created_at: &str) -> Self {
        Self {
            kind,
            extends: None,
            draft: Draft {
                first: Turns::of(0..turns),
                ..Draft::default()
            },
            compacted_as: CompactedAs::Turns,
            rolled_up: Vec::new(),
            edits: Vec::new(),
            quote_edits: Vec::new(),
            pins: Vec::new(),
            tokens_before: 0,
            strategy: strategy.to_owned(),
            shaping: String::new(),
            created_at: created_at.to_owned(),
            extra: None,
        }
    }

    /// Covers an earlier loop whole.
    ///
    /// # Errors
    /// If the store fails.
    pub fn roll_up(&mut self, read: &dyn StoreRead, link: &ChainLink) -> StoreResult<()> {
        self.rolled_up.push(rolled_up(read, link)?);
        let edits = link.edits.clone().map(|edits| (link.row.key, edits));
        self.edits.extend(edits);
        Ok(())
    }

    /// Builds the block from the stored rows of its loop. The generation and the run are assigned on
    /// commit.
    ///
    /// # Errors
    /// If a replaced message is not in its section, or the store fails.
    pub fn build(
        mut self,
        read: &dyn StoreRead,
        link: &ChainLink,
        counter: &dyn TokenCounter,
    ) -> StoreResult<NewBlock> {
        let loop_key = link.row.key;
        let layout = self.draft.layout();
        let through = through(read, link, layout.end())?;
        let is_rollup = self.kind.covers_earlier_loops();
        self.pins
            .retain(|pin| pin.is_hidden(loop_key, layout.compacted, is_rollup));
        let mut sections = Sections {
            read,
            counter,
            loop_key,
            through,
            part: link.end_of(layout.end()).map(|end| (layout.end(), end)),
            all: Turns {
                first: 0,
                last: layout.end().saturating_sub(1),
            },
            size: Size::default(),
            messages: Vec::new(),
            blobs: Vec::new(),
            coverage: OwnCoverage::new(loop_key),
            whole: whole_as(self.kind),
            quotes: &self.pins,
            quoting: QuotingBlock {
                loop_key,
                edits: &self.quote_edits,
            },
            edits: link.edits.as_deref(),
        };
        if let Some(turns) = self.draft.first {
            sections.keep(turns)?;
        }
        if let Some((turns, summary)) = self.draft.compacted {
            sections.replace(turns, summary, self.compacted_as)?;
        }
        if let Some(recent) = self.draft.recent {
            sections.keep_recent(recent)?;
        }
        let own = link.size_through(read, layout.end())?;
        let row = BlockRow {
            core: BlockCore {
                key: BlockKey(0),
                loop_key,
                generation: 0,
                run: RunKey(0),
                kind: self.kind,
                extends: self.extends,
                layout,
                through,
                size: sections.size,
                // The commit adds the other runs.
                edits: self.quote_edits.clone(),
            },
            tokens_covered: own.tokens.saturating_add(self.tokens_before),
            strategy: self.strategy,
            shaping: self.shaping,
            created_at: self.created_at,
            extra: self.extra,
        };
        let mut coverage = Vec::with_capacity(self.rolled_up.len() + 3);
        for mut row in self.rolled_up {
            row.disposition = whole_as(self.kind);
            let edits = self.edits.iter().find(|(key, _)| *key == row.loop_key);
            let exceptions = Exceptions {
                quotes: &self.pins,
                edits: edits.map(|(_, edits)| &**edits),
            };
            coverage.extend(split_by_exceptions(read, row, exceptions)?);
        }
        coverage.extend(sections.coverage.finish(through));
        Ok(NewBlock {
            row,
            messages: sections.messages,
            coverage,
            blobs: sections.blobs,
        })
    }
}

/// Returns the disposition of turns that are covered whole by a block of this kind.
pub fn whole_as(kind: BlockKind) -> Disposition {
    match kind {
        BlockKind::Sealed(_) => Disposition::Sealed,
        _ => Disposition::RolledUp,
    }
}

/// The sections of a block as they are added.
struct Sections<'a> {
    read: &'a dyn StoreRead,
    counter: &'a dyn TokenCounter,
    loop_key: LoopKey,
    through: u32,
    /// The number of covered turns and the end of the last one, if the chain leaves the loop within it.
    part: Option<(u32, u32)>,
    /// All turns that the block covers.
    all: Turns,
    size: Size,
    messages: Vec<BlockMessage>,
    blobs: Vec<Blob>,
    coverage: OwnCoverage,
    /// The disposition of turns that the block covers whole.
    whole: Disposition,
    /// The pinned messages that the summary hides.
    quotes: &'a [PinnedMessage],
    quoting: QuotingBlock<'a>,
    /// The live edits of the loop.
    edits: Option<&'a LiveEdits>,
}

impl Sections<'_> {
    /// Returns the size of turns, as far as they belong to the chain.
    fn size_of(&self, turns: Turns) -> StoreResult<Size> {
        let part = self.part.filter(|(covered, _)| *covered == turns.end());
        size_of(self.read, self.loop_key, turns, part.map(|(_, end)| end))
    }

    /// Shows turns unchanged.
    fn keep(&mut self, turns: Turns) -> StoreResult<()> {
        self.size.add(self.size_of(turns)?);
        let seqs = self.seqs(turns)?;
        self.coverage.add(turns, &seqs, Disposition::Kept);
        Ok(())
    }

    /// Shows a summary in place of turns.
    fn replace(&mut self, turns: Turns, summary: Summary, by: CompactedAs) -> StoreResult<()> {
        for message in summary.messages {
            self.push(Section::Compacted, None, Some(message))?;
        }
        for pin in self.quotes {
            let body = quote_body(self.read, self.counter, self.quoting, pin.place())?;
            self.size.add(shown_size(&body));
            self.messages.push(BlockMessage {
                section: Section::Compacted,
                replaces: Some(pin.seq),
                quotes: Some(pin.loop_key),
                body: Some(body),
            });
        }
        let exceptions = Exceptions {
            quotes: self.quotes,
            edits: self.edits,
        };
        let ranges = match by {
            CompactedAs::Turns => dispositions(turns, &summary.turns),
            CompactedAs::RolledUp => vec![(turns, self.whole)],
        };
        for (turns, disposition) in ranges {
            let mut seqs = self.seqs(turns)?;
            if disposition == self.whole && turns == self.all {
                // Covered as if from another loop: with the notes before its first turn.
                seqs.start = 0;
            }
            if exceptions.are_in(self.loop_key, turns, &seqs) {
                let row = CoverageRow {
                    loop_key: self.loop_key,
                    seqs: seqs.end.checked_sub(1).map(|last| (seqs.start, last)),
                    turns: Some((turns.first, turns.last)),
                    disposition,
                };
                cover_with_exceptions(self.read, &mut self.coverage, &row, exceptions)?;
                continue;
            }
            self.coverage.add(turns, &seqs, disposition);
        }
        Ok(())
    }

    /// Shows turns unchanged except for the messages that are replaced or dropped.
    fn keep_recent(&mut self, recent: Recent) -> StoreResult<()> {
        let Recent {
            turns,
            mut replaced,
        } = recent;
        // A message with edits is shown as the edits say, and not shortened: no text is made of it.
        if let Some(edits) = self.edits {
            replaced.retain(|(seq, _)| edits.at(*seq).is_none());
        }
        if replaced.is_empty() {
            return self.keep(turns);
        }
        let replaced: BTreeMap<u32, Option<AgentMessage>> = replaced.into_iter().collect();
        let seqs = self.seqs(turns)?;
        if let Some(seq) = replaced.keys().find(|seq| !seqs.contains(seq)) {
            let reason = format!("message {seq} is not in the section");
            return Err(StoreError::Invalid(reason));
        }
        let gone = match self.whole {
            Disposition::Sealed => Disposition::Sealed,
            _ => Disposition::Dropped,
        };
        let mut size = self.size_of(turns)?;
        let coverage = &mut self.coverage;
        self.read.sizes(self.loop_key, seqs, &mut |original| {
            if original.role == Role::Extension {
                return Ok(ControlFlow::Continue(()));
            }
            let disposition = match replaced.get(&original.seq) {
                None => Disposition::Kept,
                Some(Some(_)) => Disposition::Truncated,
                Some(None) => gone,
            };
            if disposition != Disposition::Kept {
                size = size.without(original.size);
            }
            let place = (original.turn.unwrap_or_default(), original.seq);
            coverage.add_message(place, turns.first, disposition);
            Ok(ControlFlow::Continue(()))
        })?;
        self.size.add(size);
        for (seq, message) in replaced {
            self.push(Section::Recent, Some(seq), message)?;
        }
        Ok(())
    }

    fn seqs(&self, turns: Turns) -> StoreResult<Range<u32>> {
        turn_seqs(self.read, self.loop_key, turns, self.through)
    }

    /// Adds a message of the block's own.
    fn push(
        &mut self,
        section: Section,
        replaces: Option<u32>,
        message: Option<AgentMessage>,
    ) -> StoreResult<()> {
        let body = match message {
            Some(message) => {
                let (stored, blobs) = codec::encode(message, self.counter)?;
                self.blobs.extend(blobs);
                self.size.add(shown_size(&stored));
                Some(stored)
            }
            None => None,
        };
        self.messages.push(BlockMessage {
            section,
            replaces,
            quotes: None,
            body,
        });
        Ok(())
    }
}

/// Returns the size that a stored message adds to a context: the summary of another tool may contain
/// extensions, which no context shows.
fn shown_size(stored: &StoredMessage) -> Size {
    match stored.role {
        Role::Extension => Size::default(),
        _ => Size {
            tokens: stored.tokens,
            bytes: stored.bytes,
            messages: 1,
        },
    }
}
