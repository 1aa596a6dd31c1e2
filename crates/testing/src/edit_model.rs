//! A slow, obvious model of contexts with edits: it reads all rows of a session and applies the rules one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::extend::{self as store, *};
use loopstore::model::*;

/// All rows of a session that its contexts follow from.
pub struct Rows {
    loops: BTreeMap<LoopKey, LoopRow>,
    messages: BTreeMap<LoopKey, Vec<MessageOf>>,
    runs: Vec<RunRow>,
    flips: BTreeMap<RunKey, Vec<FlipRow>>,
    edits: BTreeMap<RunKey, Vec<EditRow>>,
    blocks: Vec<ShownBlock>,
}

#[derive(Clone)]
struct MessageOf {
    seq: u32,
    turn: Option<u32>,
    tick: Tick,
    is_prompt: bool,
    message: AgentMessage,
}

struct ShownBlock {
    row: BlockRow,
    compacted: Vec<AgentMessage>,
    /// Forms of recent messages; `None` if a message is dropped.
    recent: BTreeMap<u32, Option<AgentMessage>>,
}

/// A loop of a chain with its cut: the number of whole turns.
struct Link {
    key: LoopKey,
    cut: u32,
}

impl Rows {
    pub fn read(database: &dyn SessionStore, session: &SessionId) -> Self {
        store::read(database, |read| {
            let session = read.session(session)?.unwrap().key;
            let mut rows = Self {
                loops: BTreeMap::new(),
                messages: BTreeMap::new(),
                runs: Vec::new(),
                flips: BTreeMap::new(),
                edits: BTreeMap::new(),
                blocks: Vec::new(),
            };
            for row in read.loops(session)? {
                let mut own = Vec::new();
                read.messages(row.key, 0..row.totals.next_seq, &mut |found| {
                    let is_prompt =
                        found.body.role == Role::User && found.body.author != Author::Harness;
                    own.push(MessageOf {
                        seq: found.seq,
                        turn: found.turn,
                        tick: found.tick,
                        is_prompt,
                        message: store::decode(read, found.body)?,
                    });
                    Ok(ControlFlow::Continue(()))
                })?;
                for block in read.blocks_of_loop(row.key)? {
                    rows.blocks.push(shown_block(read, block)?);
                }
                rows.messages.insert(row.key, own);
                rows.loops.insert(row.key, row);
            }
            read.runs(session, &mut |run| {
                rows.runs.push(run);
                Ok(ControlFlow::Continue(()))
            })?;
            for run in &rows.runs {
                rows.flips.insert(run.key, read.flips(run.key)?);
                rows.edits.insert(run.key, read.edits_of_run(run.key)?);
            }
            Ok(rows)
        })
        .unwrap()
    }

    /// Returns the runs of edits.
    pub fn edit_runs(&self) -> Vec<&RunRow> {
        let has_edits = |run: &&RunRow| !self.edits[&run.key].is_empty();
        self.runs.iter().filter(has_edits).collect()
    }

    fn chain(&self, leaf: LoopKey) -> Vec<Link> {
        let mut chain = vec![Link {
            key: leaf,
            cut: u32::MAX,
        }];
        let mut row = &self.loops[&leaf];
        while let Some(parent) = row.parent {
            chain.push(Link {
                key: parent,
                cut: row.parent_turns(),
            });
            row = &self.loops[&parent];
        }
        chain.reverse();
        chain
    }

    fn counts(chain: &[Link], point: Point) -> bool {
        let mut links = chain.iter();
        links.any(|link| link.key == point.loop_key && point.turns <= link.cut)
    }

    fn is_live(&self, chain: &[Link], run: &RunRow, at: Tick) -> bool {
        let flips = self.flips[&run.key].iter();
        let mut counting = flips.filter(|flip| flip.tick <= at && Self::counts(chain, flip.point));
        run.outcome == Outcome::Committed
            && run.tick <= at
            && Self::counts(chain, run.point)
            && counting.next_back().is_none_or(|flip| flip.redo)
    }

    /// Returns the live edits, oldest first, each with the id of its run.
    fn live_edits(&self, chain: &[Link], at: Tick) -> Vec<(String, EditRow)> {
        let mut runs: Vec<&RunRow> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.tick);
        let live = runs.into_iter().filter(|run| self.is_live(chain, run, at));
        let rows = live.flat_map(|run| {
            let rows = self.edits[&run.key].iter();
            rows.map(|row| (run.run_id.clone(), row.clone()))
        });
        rows.collect()
    }

    fn end_of_loop(&self, link: &Link) -> u32 {
        let own = self.messages[&link.key].iter();
        let first_beyond = own
            .clone()
            .find(|m| m.turn.is_some_and(|turn| turn >= link.cut));
        first_beyond.map_or(own.len() as u32, |message| message.seq)
    }

    fn active(
        &self,
        chain: &[Link],
        key: LoopKey,
        edits: &[(String, EditRow)],
        at: Tick,
    ) -> Option<&ShownBlock> {
        let mut own: Vec<&ShownBlock> = self.blocks.iter().collect();
        own.retain(|block| block.row.loop_key == key && !block.row.kind.is_sealed());
        own.sort_by_key(|block| block.row.generation);
        own.into_iter().rev().find(|block| {
            let run = self
                .runs
                .iter()
                .find(|run| run.key == block.row.run)
                .unwrap();
            let hidden = self.hidden(chain, &block.row);
            let touches = |(_, edit): &&(String, EditRow)| {
                edit.action != EditAction::Cleared
                    && hidden
                        .iter()
                        .any(|(key, seq)| *key == edit.loop_key && edit.covers(*seq))
            };
            let live: BTreeSet<&String> =
                edits.iter().filter(touches).map(|(run, _)| run).collect();
            self.is_live(chain, run, at) && live.into_iter().eq(&block.row.edits)
        })
    }

    /// Returns the messages that a summary hides or may quote.
    fn hidden(&self, chain: &[Link], block: &BlockRow) -> Vec<(LoopKey, u32)> {
        let mut hidden = Vec::new();
        for link in chain.iter().filter(|link| link.key <= block.loop_key) {
            for message in &self.messages[&link.key] {
                let (seq, turn) = (message.seq, message.turn.unwrap_or(0));
                let is_hidden = match link.key == block.loop_key {
                    false => block.kind == BlockKind::Rollup,
                    true => block.layout.compacted.is_some_and(|turns| {
                        seq < block.through && turns.contains(turn)
                            || message.is_prompt && turn < turns.first
                    }),
                };
                if is_hidden {
                    hidden.push((link.key, seq));
                }
            }
        }
        hidden
    }

    /// Returns the messages of the context of a leaf at a moment.
    pub fn context(&self, leaf: &LoopId, at: Tick) -> Vec<AgentMessage> {
        let chain = self.chain_of(leaf);
        let edits = self.live_edits(&chain, at);
        let active = |link: &Link| self.active(&chain, link.key, &edits, at);
        let is_anchor = |link: &Link| active(link).is_some_and(|b| b.row.kind == BlockKind::Rollup);
        let start = chain.iter().rposition(is_anchor).unwrap_or(0);
        let mut context = Vec::new();
        for link in &chain[start..] {
            let block = active(link);
            let mut summary = block.map(|block| block.compacted.clone());
            let compacted = block.and_then(|block| block.row.layout.compacted);
            let end = self.end_of_loop(link);
            for message in self.messages[&link.key]
                .iter()
                .filter(|message| message.seq < end)
            {
                let (seq, turn) = (message.seq, message.turn.unwrap_or(0));
                let is_covered = block.is_some_and(|block| seq < block.row.through);
                if compacted.is_some_and(|turns| is_covered && turn >= turns.first) {
                    context.extend(summary.take().unwrap_or_default());
                    if compacted.is_some_and(|turns| turns.contains(turn)) {
                        continue;
                    }
                }
                let other = block
                    .filter(|_| is_covered)
                    .and_then(|block| block.recent.get(&seq));
                if message.message.role() == Role::Extension
                    || message.tick > at
                    || other == Some(&None)
                {
                    continue;
                }
                match form_of(link.key, message, &edits) {
                    Some((true, edited)) => context.push(edited),
                    Some((false, original)) => {
                        context.push(other.cloned().flatten().unwrap_or(original));
                    }
                    None => {}
                }
            }
            context.extend(summary.unwrap_or_default());
        }
        context
    }

    /// Returns the texts that live edits removed or replaced: of whole messages, and of parts.
    pub fn removed_texts(&self, leaf: &LoopId) -> Vec<String> {
        let chain = self.chain_of(leaf);
        let edits = self.live_edits(&chain, Tick::MAX);
        let mut texts = Vec::new();
        for link in &chain {
            for message in &self.messages[&link.key] {
                let Some(inner) = message.message.message() else {
                    continue;
                };
                for (number, part) in inner.content().iter().enumerate() {
                    let is_gone = |(_, edit): &(String, EditRow)| {
                        let is_part = |part: EditedPart| part.number as usize == number;
                        edit.loop_key == link.key
                            && edit.covers(message.seq)
                            && edit.part.is_none_or(is_part)
                            && edit.action != EditAction::Cleared
                    };
                    if let (Content::Text(text), true) = (part, edits.iter().any(is_gone)) {
                        texts.push(text.text.clone());
                    }
                }
            }
        }
        texts
    }

    /// Returns the messages of the chain of a leaf as they were recorded.
    pub fn originals(&self, leaf: &LoopId) -> Vec<AgentMessage> {
        let chain = self.chain_of(leaf);
        let of = |link: &Link| {
            let end = self.end_of_loop(link);
            let own = self.messages[&link.key].clone().into_iter();
            own.filter(move |message| message.seq < end)
        };
        let all = chain.iter().flat_map(of).map(|message| message.message);
        all.filter(|message| message.role() != Role::Extension)
            .collect()
    }

    fn chain_of(&self, leaf: &LoopId) -> Vec<Link> {
        let mut loops = self.loops.values();
        let leaf = loops.find(|row| row.loop_id == *leaf).unwrap();
        self.chain(leaf.key)
    }
}

/// Returns the form of a message with edits, and whether it has some; `None` if nothing of it is shown.
fn form_of(
    key: LoopKey,
    original: &MessageOf,
    edits: &[(String, EditRow)],
) -> Option<(bool, AgentMessage)> {
    let own = edits.iter().map(|(_, edit)| edit);
    let own = own.filter(|edit| edit.loop_key == key && edit.covers(original.seq));
    let own: Vec<&EditRow> = own.collect();
    if own.is_empty() {
        return Some((false, original.message.clone()));
    }
    if own.iter().any(|edit| edit.part.is_none()) {
        return None;
    }
    let mut message = original.message.clone();
    let content = message.message_mut()?.content_mut();
    let mut shown = Vec::new();
    for (number, part) in content.iter().enumerate() {
        let of_part = |edit: &&&EditRow| edit.part.is_some_and(|p| p.number as usize == number);
        let of_part: Vec<&&EditRow> = own.iter().filter(of_part).collect();
        if of_part
            .iter()
            .any(|edit| edit.action == EditAction::Removed)
        {
            continue;
        }
        let mut part = part.clone();
        if let Some(last) = of_part.last() {
            let text = last.text.clone().unwrap();
            match &mut part {
                Content::ToolCall(call) => call.arguments = Json::parse(&text).unwrap(),
                part => *part = Content::text(text),
            }
        }
        shown.push(part);
    }
    *content = shown;
    (!content.is_empty()).then_some((true, message))
}

fn shown_block(read: &dyn StoreRead, row: BlockRow) -> StoreResult<ShownBlock> {
    let (mut compacted, mut recent) = (Vec::new(), BTreeMap::new());
    for message in read.block_messages(row.key)? {
        let (section, replaces) = (message.section, message.replaces);
        let shown = store::shown_message(read, row.quoting(), message)?;
        match (section, replaces) {
            (Section::Recent, Some(seq)) => {
                recent.insert(seq, shown);
            }
            _ => compacted.extend(shown),
        }
    }
    Ok(ShownBlock {
        row,
        compacted,
        recent,
    })
}
