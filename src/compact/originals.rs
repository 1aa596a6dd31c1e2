//! Originals that an earlier import still has, outside the chain whose compaction replaced them.
//!
//! A provider's compaction at the very beginning of a chain replaces messages that the chain never had: its
//! transcript was rewritten, and the messages that an earlier import read from it are on another chain. The context
//! of that chain replaces the compaction, as the run of a repair.

use std::ops::ControlFlow;

use serde::Serialize;

use super::{RecordedResult, RecordedRun};
use crate::context::{Context, PartSection};
use crate::model::{AgentMessage, Content, Json, LoopId, Message, Time, Turns};
use crate::overlay::{ChainSnapshot, ImportedCompaction, turn_seqs};
use crate::store::active_blocks::{self, ChainView};
use crate::store::{
    ImportRow, LoopKey, Outcome, RunKey, SessionKey, StoreError, StoreRead, StoreResult,
    StoreWrite, decode, session,
};
use crate::tokens::TokenCounter;

/// The trigger of such a run.
const TRIGGER: &str = "repair";

/// The forms of providers: a file without anything of its own form may have been taken for another one.
const FORMS: [&str; 3] = ["responses", "anthropic", "openai-chat"];

/// The location of originals that a chain does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OriginalsLocation {
    /// The session.
    pub session_id: String,
    /// The last loop of the chain that has them.
    pub loop_id: LoopId,
}

/// Returns the location of the messages from before a chain began: on the newest loop that the session had before
/// it, else in the session that an earlier import of the same file made.
///
/// # Errors
/// If the store fails.
pub(super) fn find_originals_before(
    read: &dyn StoreRead,
    leaf: LoopKey,
) -> StoreResult<Option<OriginalsLocation>> {
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let chain = active_blocks::chain(read, leaf, raw)?;
    let Some(root) = chain.first() else {
        return Ok(None);
    };
    let session = root.row.session;
    if let Some(loop_id) = newest_loop(read, session, Some(root.row.key))? {
        return found(read, session, loop_id).map(Some);
    }
    for import in read.imports(session)? {
        let Some(record) = &import.record_key else {
            continue;
        };
        let mut others = read.imported(&import.format, &import.file_name, record)?;
        for format in FORMS {
            others.extend(read.imported(format, &import.file_name, record)?);
        }
        others.retain(|other| *other < session);
        others.sort_unstable();
        for other in others.into_iter().rev() {
            let is_same_file = |from: &ImportRow| from.path == import.path;
            if !read.imports(other)?.iter().any(is_same_file) || session::is_hidden(read, other)? {
                continue;
            }
            if let Some(loop_id) = newest_loop(read, other, None)? {
                return found(read, other, loop_id).map(Some);
            }
        }
    }
    Ok(None)
}

/// Returns the newest loop of a session with turns, before one of its loops if that is given.
fn newest_loop(
    read: &dyn StoreRead,
    session: SessionKey,
    before: Option<LoopKey>,
) -> StoreResult<Option<LoopId>> {
    let mut newest = None;
    for row in read.loops(session)? {
        if before.is_none_or(|before| row.key < before) && row.totals.turns > 0 {
            newest = Some(row.core.loop_id);
        }
    }
    Ok(newest)
}

fn found(
    read: &dyn StoreRead,
    session: SessionKey,
    loop_id: LoopId,
) -> StoreResult<OriginalsLocation> {
    let session_id = read.session_by_key(session)?.session_id.to_string();
    Ok(OriginalsLocation {
        session_id,
        loop_id,
    })
}

/// The text of a chain in few messages: its summaries as they are, and one more message with the rest word for word.
/// Of several messages that are no documents, a later compaction would carry on only the last.
#[derive(Clone, Default)]
pub(super) struct ChainText {
    summaries: Vec<AgentMessage>,
    transcript: String,
}

impl ChainText {
    pub(super) fn of(context: &Context) -> Self {
        let mut sections = context.parts.iter().flat_map(|part| {
            let is_summary = matches!(part.section, PartSection::Rollup | PartSection::Compacted);
            std::iter::repeat_n(
                is_summary,
                usize::try_from(part.messages).unwrap_or(usize::MAX),
            )
        });
        let mut text = Self::default();
        for message in &context.messages {
            match sections.next() {
                Some(true) => text.summaries.push(message.clone()),
                _ => text.add(message),
            }
        }
        text
    }

    /// Adds the texts and calls of a message, each after the role of its author.
    fn add(&mut self, message: &AgentMessage) {
        let Some(message) = message.message() else {
            return;
        };
        let who = match message {
            Message::User(_) => "User",
            Message::Assistant(_) => "Assistant",
            Message::ToolResult(_) => "Tool",
        };
        let texts = message.texts().map(str::to_owned);
        let calls = message.content().iter().filter_map(|block| match block {
            Content::ToolCall(call) => Some(format!("{} {}", call.name, call.arguments.as_str())),
            _ => None,
        });
        for text in texts.chain(calls).filter(|text| !text.is_empty()) {
            // No line of a text is taken for another speaker's.
            let text = text.replace('\n', "\n  ");
            self.transcript.push_str(&format!("{who}: {text}\n"));
        }
    }

    fn into_messages(mut self) -> Vec<AgentMessage> {
        if !self.transcript.is_empty() {
            let text = format!("What was said before, word for word:\n{}", self.transcript);
            self.summaries.push(Message::user(text.trim_end()).into());
        }
        self.summaries
    }
}

/// Replaces a provider's compaction whose originals are not on the chain of `leaf` with the text of the other chain.
/// Returns false if the turn of the compaction is not complete yet: it stays as it is.
///
/// # Errors
/// If the store fails.
pub(super) fn replace_compaction(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    (leaf, sealed): (LoopKey, RunKey),
    (strategy, from): (&str, &OriginalsLocation),
    mut text: ChainText,
) -> StoreResult<bool> {
    let chain = ChainSnapshot::load(write, leaf, ChainView::default())?;
    let Some(block) = write.blocks_of_run(sealed)?.pop() else {
        return Ok(false);
    };
    let (Some(at), Some(kept)) = (chain.place(block.loop_key), block.layout.recent) else {
        return Ok(false);
    };
    let turn = kept.first;
    if turn >= chain.end(at) {
        return Ok(false);
    }
    for message in after_compaction(write, &chain, (at, turn))? {
        text.add(&message);
    }
    let run = RecordedRun {
        run_id: format!("repair-{}", crate::clock::new_uuid().simple()),
        strategy: strategy.to_owned(),
        trigger: TRIGGER.to_owned(),
        started_at: Time::now(),
        duration_ms: 0,
        record: Json::of(from).map_err(|error| StoreError::Invalid(error.to_string()))?,
    };
    let compaction = ImportedCompaction {
        read: write,
        chain: &chain,
        counter,
        strategy,
        created_at: run.started_at.as_str(),
    };
    let made = RecordedResult {
        blocks: compaction.anchored(&text.into_messages(), (at, turn + 1))?,
        outcome: Outcome::Committed,
        error: None,
    };
    let turns = chain.end(chain.leaf());
    run.commit(write, counter, (&chain, turns), ChainView::default(), made)?;
    Ok(true)
}

/// Returns the content of a turn beside and after the compaction in it.
fn after_compaction(
    read: &dyn StoreRead,
    chain: &ChainSnapshot,
    (at, turn): (usize, u32),
) -> StoreResult<Vec<AgentMessage>> {
    let link = &chain.links[at];
    let seqs = turn_seqs(read, link.row.key, Turns::only(turn), link.end_seq)?;
    let mut rest = Vec::new();
    read.messages(link.row.key, seqs, &mut |row| {
        let mut message = decode(read, row.body)?;
        if let Some((place, _)) = message.last_compaction()
            && let Some(inner) = message.message_mut()
        {
            inner.content_mut().drain(..=place);
            if inner.content().is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
        }
        rest.push(message);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rest)
}
