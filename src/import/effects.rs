//! What another tool's compaction did, as blocks.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::found::{Replacement, Scene, Wanted, first_seq, rolled_up};
use crate::model::{AgentMessage, Content, Json, Role};
use crate::store::active_blocks::ChainLink;
use crate::store::append::size_through;
use crate::store::{
    BlockCore, BlockKind, Layout, MessageRow, NewBlock, Section, StoreRead, StoreResult, Turns,
    decode,
};
use crate::tokens::TokenCounter;

/// What the blocks of one compaction have in common.
pub(super) struct Making<'a> {
    pub(super) read: &'a dyn StoreRead,
    pub(super) scene: &'a Scene,
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) strategy: &'a str,
    pub(super) created_at: &'a str,
}

/// A turn on the chain: the loop's place, and the turn.
type Spot = (usize, u32);

impl Making<'_> {
    fn kind(&self, at: usize) -> BlockKind {
        if at == self.scene.leaf() {
            BlockKind::Current
        } else {
            BlockKind::Earlier
        }
    }

    fn plain(&self, at: usize, turns: u32) -> Wanted {
        Wanted::plain(self.kind(at), turns, self.strategy, self.created_at)
    }

    fn build(&self, at: usize, wanted: Wanted) -> StoreResult<NewBlock> {
        wanted.build(self.read, &self.scene.links[at], self.counter)
    }

    /// Puts `messages` in the place of everything before `first_kept` (`None`: of everything).
    ///
    /// Returns no block if nothing stands before it.
    pub(super) fn summary(
        &self,
        messages: &[AgentMessage],
        first_kept: Option<Spot>,
    ) -> StoreResult<Vec<NewBlock>> {
        let (mut at, mut kept) = self.boundary(first_kept)?;
        // A summary needs turns to stand for: without any here it stands on the loop before.
        let stands_before = kept == 0;
        while kept == 0 {
            let Some(before) = at.checked_sub(1) else {
                return Ok(Vec::new());
            };
            at = before;
            kept = self.scene.links[at].turns;
        }
        let mut wanted = self.plain(at, 0);
        wanted.layout = Layout {
            first: None,
            compacted: Turns::of(0..kept),
            recent: Turns::of(kept..self.scene.end(at)),
        };
        wanted.compacted = messages
            .iter()
            .filter(|message| message.role() != Role::Extension)
            .cloned()
            .collect();
        if at > 0 || stands_before {
            self.roll_up(at, &mut wanted)?;
        }
        let mut blocks = vec![self.build(at, wanted)?];
        self.show_later(at, &mut blocks)?;
        Ok(blocks)
    }

    /// Shows the loops after the one with the summary, of which every turn was kept.
    fn show_later(&self, at: usize, blocks: &mut Vec<NewBlock>) -> StoreResult<()> {
        for later in at + 1..self.scene.links.len() {
            if self.is_hidden(at, later) {
                blocks.push(self.build(later, self.plain(later, self.scene.end(later)))?);
            }
        }
        Ok(())
    }

    /// Puts `message` in the place of everything before a message of turn `kept`: before it stand
    /// `dropped` messages of that turn.
    ///
    /// Only what was said before the turn's answer can go without its calls losing their results;
    /// without anything to go it is a summary at the turn's start. Where nothing stands before that,
    /// the first prompt is shown with the summary before it.
    pub(super) fn summary_within(
        &self,
        message: &AgentMessage,
        kept: Spot,
        dropped: u32,
    ) -> StoreResult<Vec<NewBlock>> {
        let whole = || self.summary(std::slice::from_ref(message), Some(kept));
        let (at, turn) = kept;
        let is_moved = self.boundary(Some(kept))? != kept;
        let is_start = kept == (0, 0) && dropped == 0;
        let mut recent = match is_moved || turn >= self.scene.end(at) {
            true => Vec::new(),
            false => self.prompts_of(at, turn, dropped.max(u32::from(is_start)))?,
        };
        let Some(first) = recent.first_mut() else {
            return whole();
        };
        let mut wanted = self.plain(at, 0);
        wanted.layout.compacted = Turns::of(0..turn);
        wanted.layout.recent = Turns::of(turn..self.scene.end(at));
        match turn {
            0 if is_start => first.message = Some(self.led_by(message, at, first.seq)?),
            0 => first.message = Some(message.clone()),
            _ => wanted.compacted.push(message.clone()),
        }
        wanted.recent = recent;
        if at > 0 {
            self.roll_up(at, &mut wanted)?;
        }
        let mut blocks = vec![self.build(at, wanted)?];
        self.show_later(at, &mut blocks)?;
        Ok(blocks)
    }

    /// Returns a message with another one's content before its own.
    fn led_by(&self, lead: &AgentMessage, at: usize, seq: u32) -> StoreResult<AgentMessage> {
        let key = self.scene.links[at].row.key;
        let mut led = lead.clone();
        self.read.messages(key, seq..seq + 1, &mut |row| {
            let mut original = decode(self.read, row.body)?;
            if let (Some(inner), Some(lead)) = (original.message_mut(), lead.message()) {
                let content = lead.content().iter().cloned();
                inner.content_mut().splice(0..0, content);
            }
            led = original;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(led)
    }

    /// Returns what a turn begins with in the user's name, at most `limit` messages, as dropped.
    fn prompts_of(&self, at: usize, turn: u32, limit: u32) -> StoreResult<Vec<Replacement>> {
        let turns = Turns {
            first: turn,
            last: turn,
        };
        let link = &self.scene.links[at];
        let range = super::found::seqs(self.read, link, turns)?;
        let mut found = Vec::new();
        self.read.sizes(link.row.key, range, &mut |message| {
            let is_over = found.len() as u64 >= u64::from(limit);
            match message.role {
                Role::Extension => {}
                Role::User if !is_over => found.push(Replacement {
                    seq: message.seq,
                    message: None,
                }),
                _ => return Ok(ControlFlow::Break(())),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Returns the first kept turn, moved back so far that no kept result loses its call.
    fn boundary(&self, first_kept: Option<Spot>) -> StoreResult<Spot> {
        let links = &self.scene.links;
        let leaf = self.scene.leaf();
        let mut first = match first_kept {
            Some((at, turn)) => (at, turn.min(self.scene.end(at))),
            None => (leaf, self.scene.end(leaf)),
        };
        while let Some(call) = self.earliest_call(first)? {
            first = (call.0, call.1.min(links[call.0].turns));
        }
        Ok(first)
    }

    /// Returns the earliest turn before `first` that holds a call answered from there on.
    fn earliest_call(&self, first: Spot) -> StoreResult<Option<Spot>> {
        let mut earliest: Option<Spot> = None;
        for (at, link) in self.scene.links.iter().enumerate().skip(first.0) {
            let from = if at == first.0 { first.1 } else { 0 };
            let answers = self.read.answers(link.row.key, from..link.turns)?;
            let sites = answers.into_iter().flat_map(|(_, sites)| sites);
            let spots =
                sites.filter_map(|site| Some((self.scene.place(site.loop_key)?, site.turn)));
            earliest = spots.filter(|spot| *spot < first).chain(earliest).min();
        }
        Ok(earliest)
    }

    /// Makes `wanted` a rollup of the loops before `at`.
    fn roll_up(&self, at: usize, wanted: &mut Wanted) -> StoreResult<()> {
        wanted.kind = BlockKind::Rollup;
        let before = self.scene.anchor.filter(|anchor| *anchor <= at);
        let mut from = 0;
        if let Some(anchor) = before {
            let link = &self.scene.links[anchor];
            wanted.extends = link.block.as_ref().map(|block| block.key);
            // What the rollup before kept of its own loop, or did not cover, is only now gone.
            let gone = link
                .block
                .as_ref()
                .is_some_and(|block| block.layout.compacted == Turns::of(0..link.turns));
            from = anchor + usize::from(gone);
        }
        for (place, link) in self.scene.links[..at].iter().enumerate() {
            wanted.tokens_before += size_through(self.read, link.row.key, link.turns)?.tokens;
            if place >= from {
                wanted.rolled_up.push(rolled_up(link));
            }
        }
        Ok(())
    }

    /// Whether turns of a loop after the summary, which were all kept, are hidden so far.
    fn is_hidden(&self, summary: usize, later: usize) -> bool {
        let link = &self.scene.links[later];
        if self.scene.anchor.is_some_and(|anchor| anchor > summary) {
            // The rollup in force hides what stands on the loops before it: any block of theirs
            // would be in force again.
            return link.row.totals.generation > 0;
        }
        link.block.as_ref().is_some_and(|block| {
            block.layout.compacted.is_some() || block.kind == BlockKind::Rollup
        })
    }

    /// Empties the results of some calls wherever the context shows them.
    pub(super) fn cleared(
        &self,
        calls: &[String],
        placeholder: &str,
    ) -> StoreResult<Vec<NewBlock>> {
        let calls: HashSet<&str> = calls.iter().map(String::as_str).collect();
        let mut blocks = Vec::new();
        for at in self.scene.anchor.unwrap_or(0)..self.scene.links.len() {
            if let Some(wanted) = self.clear_in(at, &calls, placeholder)? {
                blocks.push(self.build(at, wanted)?);
            }
        }
        Ok(blocks)
    }

    fn clear_in(
        &self,
        at: usize,
        calls: &HashSet<&str>,
        placeholder: &str,
    ) -> StoreResult<Option<Wanted>> {
        let link = &self.scene.links[at];
        let mut wanted = self.carried_over(at)?;
        let Some(recent) = wanted.layout.recent else {
            return Ok(None);
        };
        let range = super::found::seqs(self.read, link, recent)?;
        let dropped: HashSet<u32> = wanted
            .recent
            .iter()
            .filter(|r| r.message.is_none())
            .map(|r| r.seq)
            .collect();
        let mut cleared = Vec::new();
        self.read.messages(link.row.key, range, &mut |row| {
            if answers(&row, calls) && !dropped.contains(&row.seq) {
                cleared.push((row.seq, decode(self.read, row.body)?));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut changed = false;
        for (seq, original) in cleared {
            changed |= wanted.replace(seq, emptied(original, placeholder));
        }
        Ok(changed.then_some(wanted))
    }

    /// Returns a block that shows the loop as it is shown now, up to its last complete turn.
    fn carried_over(&self, at: usize) -> StoreResult<Wanted> {
        let link = &self.scene.links[at];
        let mut wanted = self.plain(at, 0);
        let Some(block) = &link.block else {
            wanted.layout.recent = Turns::of(0..self.scene.end(at));
            return Ok(wanted);
        };
        self.carry_messages(block, link, &mut wanted)?;
        if block.kind == BlockKind::Rollup {
            wanted.kind = BlockKind::Rollup;
            wanted.extends = Some(block.key);
            wanted.tokens_before = self.tokens_before(at)?;
        }
        wanted.layout.compacted = block.layout.compacted;
        // Turns before a summary can only be shown as they are.
        wanted.layout.first = block
            .layout
            .first
            .filter(|_| block.layout.compacted.is_some());
        let from = wanted.layout.compacted.map_or(0, Turns::end);
        wanted.layout.recent = Turns::of(from..self.scene.end(at));
        Ok(wanted)
    }

    fn tokens_before(&self, at: usize) -> StoreResult<u64> {
        let mut tokens = 0;
        for link in &self.scene.links[..at] {
            tokens += size_through(self.read, link.row.key, link.turns)?.tokens;
        }
        Ok(tokens)
    }

    fn carry_messages(
        &self,
        block: &BlockCore,
        link: &ChainLink,
        wanted: &mut Wanted,
    ) -> StoreResult<()> {
        let end = first_seq(self.read, link, link.turns)?;
        for message in self.read.block_messages(block.key)? {
            let body = match message.body {
                Some(body) => Some(decode(self.read, body)?),
                None => None,
            };
            match (message.section, message.replaces) {
                (Section::Compacted, _) => wanted.compacted.extend(body),
                (Section::Recent, Some(seq)) if seq < end => {
                    wanted.recent.push(Replacement { seq, message: body });
                }
                (Section::Recent, _) => {}
            }
        }
        Ok(())
    }
}

impl Wanted {
    /// Shows `message` in place of an original, and returns whether that is new.
    fn replace(&mut self, seq: u32, message: AgentMessage) -> bool {
        match self.recent.binary_search_by_key(&seq, |r| r.seq) {
            Ok(at) => {
                let known = self.recent[at].message.as_ref() == Some(&message);
                self.recent[at].message = Some(message);
                !known
            }
            Err(at) => {
                let message = Some(message);
                self.recent.insert(at, Replacement { seq, message });
                true
            }
        }
    }
}

/// Whether a message is the result of one of these calls.
fn answers(row: &MessageRow, calls: &HashSet<&str>) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "toolCallId")]
        tool_call_id: String,
    }
    if row.body.role != Role::ToolResult {
        return false;
    }
    let head = row
        .body
        .head
        .as_deref()
        .and_then(|head| Json::parse(head).ok());
    head.and_then(|head| head.read::<Head>().ok())
        .is_some_and(|head| calls.contains(head.tool_call_id.as_str()))
}

fn emptied(mut message: AgentMessage, placeholder: &str) -> AgentMessage {
    if let Some(inner) = message.message_mut() {
        *inner.content_mut() = vec![Content::text(placeholder)];
    }
    message
}
