//! A session as a document: its lines as `export --format jsonl` writes them, grouped, and the rows that are not in
//! its lines.

use std::collections::{HashMap, HashSet};

use loopstore::model::{LoopId, SessionId};
use loopstore_transcripts::internal::form::{
    AnyLine, BlockAddress, BlockLine, CallLine, EditLine, EndLine, FORM, FlipLine, HideLine,
    LineKind, LoopLine, ManifestLine, MessageLine, NoteLine, PinLine, RunLine, SessionLine,
    TurnLine,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// A stored message in its line.
pub(crate) type StoredMessageLine = MessageLine<Box<RawValue>>;

/// A row of a session that is not in its lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "attachment", rename_all = "snake_case")]
pub(crate) enum Attachment {
    /// The flags of the session; absent if none is set.
    Flags {
        /// True if imports into the session are redacted.
        redacts: bool,
        /// The time since which the session is protected from pruning.
        protected_at: Option<String>,
    },
    /// The mark of an import: its file and record.
    Import {
        format: String,
        path: String,
        file_name: String,
        record_key: Option<String>,
    },
    /// The key of an append, and what it wrote.
    AppendKey {
        name: String,
        #[serde(rename = "loop")]
        loop_id: LoopId,
        seqs: (u32, u32),
        turns: (u32, u32),
        tokens: u64,
    },
}

/// The largest tick, as for an import of lines.
const MAX_TICK: i64 = 1 << 53;

/// The text of a session: one line for each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionText {
    pub(crate) lines: Vec<String>,
}

impl SessionText {
    /// Returns the lines of a text.
    pub(crate) fn of(text: &str) -> Self {
        Self {
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// Returns the digest of all lines.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for line in &self.lines {
            hash.update(line);
            hash.update(b"\n");
        }
        hash.finalize().into()
    }

    /// Returns the lines of the session, without its attachments, as one text.
    pub(crate) fn session_lines(&self) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| !is_attachment(line)) {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// True if a line is an attachment; every other line begins with its record.
fn is_attachment(line: &str) -> bool {
    line.starts_with("{\"attachment\":")
}

/// A loop with all rows that its lines have.
#[derive(Clone)]
pub(crate) struct LoopDocument {
    pub(crate) line: LoopLine,
    pub(crate) turns: Vec<TurnLine>,
    pub(crate) messages: Vec<StoredMessageLine>,
    pub(crate) notes: Vec<NoteLine>,
    pub(crate) calls: Vec<CallLine>,
}

/// A block. Generations are numbered per database, so other rows refer to the block by its run.
#[derive(Clone)]
pub(crate) struct BlockDocument {
    pub(crate) line: BlockLine,
    /// The run of the rollup that it extends.
    pub(crate) extends: Option<String>,
}

/// A run with its blocks, edits and flips.
#[derive(Clone)]
pub(crate) struct RunDocument {
    pub(crate) line: RunLine,
    pub(crate) blocks: Vec<BlockDocument>,
    pub(crate) edits: Vec<EditLine>,
    pub(crate) flips: Vec<FlipLine>,
}

/// A manifest; each part with the run of its block.
#[derive(Clone)]
pub(crate) struct ManifestDocument {
    pub(crate) line: ManifestLine,
    pub(crate) block_runs: Vec<Option<String>>,
}

/// A session.
#[derive(Clone)]
pub(crate) struct SessionDocument {
    pub(crate) line: SessionLine,
    pub(crate) loops: Vec<LoopDocument>,
    pub(crate) runs: Vec<RunDocument>,
    pub(crate) pins: Vec<PinLine>,
    pub(crate) hides: Vec<HideLine>,
    pub(crate) manifests: Vec<ManifestDocument>,
    pub(crate) attachments: Vec<Attachment>,
}

/// Returns the JSON of a line.
pub(crate) fn text_of(line: &impl Serialize) -> String {
    // The lines have no maps with keys that JSON has no form for.
    serde_json::to_string(line).unwrap_or_default()
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl SessionDocument {
    /// Parses the lines of a session.
    ///
    /// # Errors
    /// If the lines are not those of one whole session; with the reason.
    pub(crate) fn parse(id: &SessionId, text: &SessionText) -> Result<Self, String> {
        let mut lines = (1..).zip(&text.lines);
        let Some((_, first)) = lines.next() else {
            return Err("the session has no lines".into());
        };
        let line: SessionLine = parsed(first).map_err(|error| format!("line 1: {error}"))?;
        if line.record != LineKind::Session || line.loopstore != FORM || line.session != *id {
            return Err("line 1: it is not the line of the session".into());
        }
        let mut document = Self {
            line,
            loops: Vec::new(),
            runs: Vec::new(),
            pins: Vec::new(),
            hides: Vec::new(),
            manifests: Vec::new(),
            attachments: Vec::new(),
        };
        let mut is_ended = false;
        for (number, line) in lines {
            let taken = match (is_attachment(line), is_ended) {
                (true, true) => parsed(line).map(|row| document.attachments.push(row)),
                (false, false) => document.take(line, number).map(|ended| is_ended = ended),
                _ => Err("it is out of order".into()),
            };
            taken.map_err(|error| format!("line {number}: {error}"))?;
        }
        if !is_ended {
            return Err("its end is missing".into());
        }
        document.check()?;
        document.name_blocks()?;
        Ok(document)
    }

    /// Checks the numbers by which a union finds rows.
    fn check(&self) -> Result<(), String> {
        for one in &self.loops {
            let id = &one.line.loop_id;
            let turns = one.turns.len();
            let has_turn = |turn: u32| (turn as usize) < turns;
            let messages = (0..).zip(&one.messages);
            let is_numbered = (0..)
                .zip(&one.turns)
                .all(|(number, turn)| turn.turn == number)
                && one.turns.is_sorted_by_key(|turn| turn.first_seq)
                && messages.into_iter().all(|(number, message)| {
                    message.seq == number && message.turn.is_none_or(has_turn)
                });
            if !is_numbered {
                return Err(format!("the messages of loop `{id}` are not in order"));
            }
        }
        let ticks = self.loops.iter().flat_map(|one| {
            let messages = one.messages.iter().map(|message| message.tick);
            messages.chain([one.line.tick])
        });
        match ticks
            .chain([self.line.tick])
            .all(|tick| (0..=MAX_TICK).contains(&tick))
        {
            true => Ok(()),
            false => Err("one of its ticks is out of range".into()),
        }
    }

    /// Takes a line; returns true for the last one.
    fn take(&mut self, text: &str, number: u64) -> Result<bool, String> {
        let outside = || "it does not follow its loop or run".to_owned();
        match parsed::<AnyLine>(text)?.record {
            LineKind::Session => return Err("a second session begins".into()),
            LineKind::Loop => self.loops.push(LoopDocument {
                line: parsed(text)?,
                turns: Vec::new(),
                messages: Vec::new(),
                notes: Vec::new(),
                calls: Vec::new(),
            }),
            LineKind::Turn => {
                let owner = self.loops.last_mut().ok_or_else(outside)?;
                owner.turns.push(parsed(text)?);
            }
            LineKind::Message => {
                let owner = self.loops.last_mut().ok_or_else(outside)?;
                owner.messages.push(parsed(text)?);
            }
            LineKind::Note => {
                let owner = self.loops.last_mut().ok_or_else(outside)?;
                owner.notes.push(parsed(text)?);
            }
            LineKind::Call => {
                let owner = self.loops.last_mut().ok_or_else(outside)?;
                owner.calls.push(parsed(text)?);
            }
            LineKind::Run => self.runs.push(RunDocument {
                line: parsed(text)?,
                blocks: Vec::new(),
                edits: Vec::new(),
                flips: Vec::new(),
            }),
            LineKind::Block => {
                let owner = self.runs.last_mut().ok_or_else(outside)?;
                owner.blocks.push(BlockDocument {
                    line: parsed(text)?,
                    extends: None,
                });
            }
            LineKind::Edit => {
                let owner = self.runs.last_mut().ok_or_else(outside)?;
                owner.edits.push(parsed(text)?);
            }
            LineKind::Flip => {
                let owner = self.runs.last_mut().ok_or_else(outside)?;
                owner.flips.push(parsed(text)?);
            }
            LineKind::Pin => self.pins.push(parsed(text)?),
            LineKind::Hide => self.hides.push(parsed(text)?),
            LineKind::Manifest => self.manifests.push(ManifestDocument {
                line: parsed(text)?,
                block_runs: Vec::new(),
            }),
            LineKind::End => {
                let end: EndLine = parsed(text)?;
                return match end.records.checked_add(1) == Some(number) {
                    true => Ok(true),
                    false => Err("some of its lines are missing".into()),
                };
            }
        }
        Ok(false)
    }

    /// Names the blocks that other rows refer to by their runs.
    fn name_blocks(&mut self) -> Result<(), String> {
        let runs = self.block_runs();
        let run_of = |address: &BlockAddress| {
            let key = (address.loop_id.clone(), address.generation);
            runs.get(&key).cloned().ok_or_else(|| {
                let (loop_id, generation) = (&address.loop_id, address.generation);
                format!("block {generation} of loop `{loop_id}` is missing")
            })
        };
        for block in self.runs.iter_mut().flat_map(|run| &mut run.blocks) {
            block.extends = block.line.extends.as_ref().map(run_of).transpose()?;
        }
        for manifest in &mut self.manifests {
            let parts = manifest.line.parts.iter();
            let named = parts.map(|part| part.block.as_ref().map(run_of).transpose());
            manifest.block_runs = named.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Returns the run of each block, by loop and generation.
    fn block_runs(&self) -> HashMap<(LoopId, u32), String> {
        let blocks = self.runs.iter().flat_map(|run| &run.blocks);
        let named = blocks.map(|block| {
            let line = &block.line;
            ((line.loop_id.clone(), line.generation), line.run.clone())
        });
        named.collect()
    }

    /// Returns the lines.
    pub(crate) fn text(&self) -> SessionText {
        let mut lines = vec![text_of(&self.line)];
        for one in &self.loops {
            lines.push(text_of(&one.line));
            lines.extend(one.turns.iter().map(text_of));
            lines.extend(one.messages.iter().map(text_of));
            lines.extend(one.notes.iter().map(text_of));
            lines.extend(one.calls.iter().map(text_of));
        }
        for run in &self.runs {
            lines.push(text_of(&run.line));
            lines.extend(run.blocks.iter().map(|block| text_of(&block.line)));
            lines.extend(run.edits.iter().map(text_of));
            lines.extend(run.flips.iter().map(text_of));
        }
        lines.extend(self.pins.iter().map(text_of));
        lines.extend(self.hides.iter().map(text_of));
        lines.extend(self.manifests.iter().map(|one| text_of(&one.line)));
        lines.push(text_of(&EndLine {
            record: LineKind::End,
            records: lines.len() as u64,
        }));
        lines.extend(self.attachments.iter().map(text_of));
        SessionText { lines }
    }

    /// Returns the loop with this id.
    pub(crate) fn loop_of(&self, id: &LoopId) -> Option<&LoopDocument> {
        self.loops.iter().find(|one| one.line.loop_id == *id)
    }

    /// Returns the digests of the messages that were, or were not, redacted.
    pub(crate) fn digests(&self, is_redacted: bool) -> HashSet<&str> {
        let messages = self.loops.iter().flat_map(|one| &one.messages);
        let of = messages.filter(|message| message.salt.is_none() == is_redacted);
        of.map(|message| message.digest.as_str()).collect()
    }

    /// True if it redacts messages that the other state has unchanged.
    pub(crate) fn redacts(&self, other: &Self) -> bool {
        !self.digests(true).is_disjoint(&other.digests(false))
    }

    /// Returns the positions of the loops.
    pub(crate) fn loop_index(&self) -> HashMap<&LoopId, usize> {
        let loops = self.loops.iter().enumerate();
        loops.map(|(at, one)| (&one.line.loop_id, at)).collect()
    }
}
