//! The approval of a compaction: before a commit, the hooks see the texts and the context as it would be, and may
//! refuse, postpone or rewrite them.

use super::candidate::CompactionCandidate;
use super::commit::PendingRun;
use super::guard::guarded;
use super::planner::CandidatePlanner;
use crate::compaction::{CancelFlag, StrategyError};
use crate::context::messages_with;
use crate::model::{AgentMessage, LoopId, Message, SessionId, Size, Turns};
use crate::store::{self, BlockKind, NewBlock, Section, StoreResult};

/// The strategy of a block whose text a hook wrote.
const PERSON: &str = "person";

/// A compaction that is ready to be committed.
pub struct Proposal<'a> {
    /// The session.
    pub session_id: &'a SessionId,
    /// The leaf.
    pub loop_id: &'a LoopId,
    /// The name of the strategy.
    pub strategy: &'a str,
    /// The size of the context now.
    pub before: Size,
    /// The size of the context with the blocks.
    pub after: Size,
    /// The blocks to be written, from the root to the leaf.
    pub blocks: Vec<ProposedBlock>,
    /// The flag of the call. If it is set, nothing is committed, whatever the decision: a hook that waits for a person
    /// returns then.
    pub cancel: &'a CancelFlag,
    context: &'a dyn Fn() -> StoreResult<Vec<AgentMessage>>,
}

impl Proposal<'_> {
    /// Returns the messages that the next model call would have with the blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn messages(&self) -> StoreResult<Vec<AgentMessage>> {
        (self.context)()
    }
}

/// A block of a [`Proposal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedBlock {
    /// The loop.
    pub loop_id: LoopId,
    /// The kind of the block.
    pub kind: BlockKind,
    /// The turns of the loop that the text replaces; `None` if the block only keeps and shortens turns.
    pub turns: Option<Turns>,
    /// The text that replaces the turns; `None` if the block has none.
    pub text: Option<String>,
}

/// The decision of a hook about a [`Proposal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Commit the blocks.
    Commit,
    /// Do not commit the blocks, for this reason. The run is recorded as vetoed, and the same plan is not proposed
    /// again.
    Refuse(String),
    /// Do not commit the blocks now, for this reason. The run is recorded as vetoed. The next compaction whose trigger
    /// fires proposes them again.
    Postpone(String),
    /// Replace the texts of these blocks, by their positions in [`Proposal::blocks`], and commit. The blocks are
    /// recorded as written by the strategy `person`, with the coverage of the texts that they replace. The run fails if
    /// a position has no text, if a text is not smaller than the turns that it replaces or longer than the
    /// configuration allows, or if the context does not fit the window with the new texts.
    Rewrite(Vec<(usize, String)>),
}

/// The decision about a candidate, with the texts in place.
pub(super) enum Decided {
    Commit(Box<CompactionCandidate>),
    Refused(String),
    Postponed(String),
}

/// Calls the hooks for a candidate, one after another; each sees the texts of the hooks before it.
pub(super) fn decide(
    planner: &CandidatePlanner<'_>,
    run: &PendingRun<'_>,
    mut candidate: CompactionCandidate,
) -> Result<Decided, StrategyError> {
    let request = planner.request;
    for hook in request.policy.hooks.iter() {
        if !run.would_commit(candidate.after) {
            break;
        }
        let approval = {
            let blocks: Vec<&NewBlock> = candidate.blocks.iter().map(|p| &p.block).collect();
            let context = || {
                store::read(planner.store, |read| {
                    messages_with(read, &candidate.chain, &blocks)
                })
            };
            let proposal = Proposal {
                session_id: &run.started.session_id,
                loop_id: &run.started.loop_id,
                strategy: &run.started.strategy,
                before: planner.snapshot.before,
                after: candidate.after,
                blocks: proposed(planner, &candidate)?,
                cancel: &request.cancel,
                context: &context,
            };
            // Another attempt would run without hooks: nothing is committed that a hook did not approve.
            guarded(|| hook.approve(&proposal)).unwrap_or_else(Approval::Postpone)
        };
        planner.check_wanted()?;
        match approval {
            Approval::Commit => {}
            Approval::Refuse(reason) => return Ok(Decided::Refused(reason)),
            Approval::Postpone(reason) => return Ok(Decided::Postponed(reason)),
            Approval::Rewrite(texts) => candidate = rewritten(planner, &candidate, texts)?,
        }
    }
    Ok(Decided::Commit(Box::new(candidate)))
}

fn proposed(
    planner: &CandidatePlanner<'_>,
    candidate: &CompactionCandidate,
) -> StoreResult<Vec<ProposedBlock>> {
    let blocks = candidate.blocks.iter().map(|placed| {
        let row = &placed.block.row;
        Ok(ProposedBlock {
            loop_id: planner.snapshot.chain.links[placed.depth]
                .row
                .loop_id
                .clone(),
            kind: row.core.kind,
            turns: row.core.layout.compacted,
            text: text_of(planner, &placed.block)?,
        })
    });
    blocks.collect()
}

/// Returns the text that a block shows in place of turns, without the quotes of pinned messages.
fn text_of(planner: &CandidatePlanner<'_>, block: &NewBlock) -> StoreResult<Option<String>> {
    let own = |section, quotes: bool| section == Section::Compacted && !quotes;
    let messages = block.messages.iter();
    let bodies = messages.filter(|m| own(m.section, m.quotes.is_some()));
    let bodies = bodies.filter_map(|m| m.body.clone());
    let texts = store::read(planner.store, |read| {
        let mut texts = Vec::new();
        for body in bodies {
            let message = store::decode(read, body)?;
            texts.extend(message.message().map(|m| {
                let texts: Vec<&str> = m.texts().collect();
                texts.join("\n\n")
            }));
        }
        Ok(texts)
    })?;
    Ok(match texts.is_empty() {
        true => None,
        false => Some(texts.join("\n\n")),
    })
}

/// Makes the candidate of the same step again, with other texts.
fn rewritten(
    planner: &CandidatePlanner<'_>,
    candidate: &CompactionCandidate,
    texts: Vec<(usize, String)>,
) -> Result<CompactionCandidate, StrategyError> {
    let mut depths = Vec::new();
    for (at, text) in texts {
        let depth = candidate.blocks.get(at).map(|placed| placed.depth);
        let replaced = depth.filter(|depth| {
            planner.texts.replace(*depth, PERSON, |message| {
                *message = with_text(message, &text);
            })
        });
        match replaced {
            Some(depth) => depths.push((depth, text)),
            None => {
                let error = format!("block {at} of the proposal has no text to replace");
                return Err(StrategyError::Failed(error));
            }
        }
    }
    let candidate = planner.candidate(candidate.step.clone())?;
    // A plan keeps turns whose text is not smaller, and a step may replace a text that is too long.
    for (depth, text) in depths {
        let mut blocks = candidate
            .blocks
            .iter()
            .filter(|placed| placed.depth == depth);
        let shown = blocks.next().map(|placed| text_of(planner, &placed.block));
        if shown.transpose()?.flatten().as_deref() != Some(&*text) {
            let loop_id = &planner.snapshot.chain.links[depth].row.loop_id;
            let error = format!(
                "the new text for loop `{loop_id}` is not smaller than the turns that it replaces, or longer than the \
                 configuration allows"
            );
            return Err(StrategyError::Failed(error));
        }
    }
    Ok(candidate)
}

/// Returns a message of the same role with this text alone.
fn with_text(message: &AgentMessage, text: &str) -> AgentMessage {
    match message.message() {
        Some(Message::Assistant(_)) => Message::assistant(text).into(),
        _ => Message::user(text).into(),
    }
}
