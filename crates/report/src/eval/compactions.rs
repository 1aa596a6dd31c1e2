//! Compactions that transcripts record, and ours in their place.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use loopstore::compaction::{Placed, StrategyError};
use loopstore::context::{AsOf, BuildError, PartSection, TurnState};
use loopstore::extend::{
    self as store, Disposition, SessionStore, moment_of, session_of, shown_chain,
};
use loopstore::model::{AgentMessage, LoopId, SessionId};
use loopstore::{BuildOptions, build_context_from_session};

use super::exam::Candidate;
use super::{
    EvalStrategy, History, StateCounts, StateFacts, committed_runs, context_text, distinct,
    needed_values, share,
};

/// What [`compactions`] found; serialises to the JSON that `eval compactions --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionsReport {
    /// Values that were needed after a compaction, over all of them.
    pub needed: usize,
    /// The recorded texts and each strategy, over all compactions.
    pub results: Vec<CompactionResult>,
    /// One by one.
    pub compactions: Vec<ComparedCompaction>,
}

/// A recorded compaction beside ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedCompaction {
    /// The session.
    pub session_id: String,
    /// The run that stands for the recorded compaction.
    pub run_id: String,
    /// Tokens of the originals that its text stands for.
    pub originals: u64,
    /// Values that were needed afterwards and that nothing kept beside the text holds.
    pub needed: usize,
    /// The recorded text first, then each strategy.
    pub results: Vec<CompactionResult>,
}

/// What a text keeps of what it stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionResult {
    /// `recorded`, or the strategy.
    pub candidate: String,
    /// Its tokens.
    pub tokens: u64,
    /// Needed values found in it.
    pub kept: usize,
    /// Needed values found ÷ needed values; 1 if nothing was needed.
    pub recall: f64,
    /// What it states of the work that the originals did.
    pub state: StateCounts,
}

/// Puts each strategy in the place of every compaction that the sessions record with a text: it gets the
/// originals that the text stands for, and as many tokens. Needed is what later calls take from these
/// originals, as [`needed_values`] says, and what is not kept beside the text.
///
/// # Errors
/// If a session cannot be read or a strategy fails.
pub fn compactions(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    strategies: &[&dyn EvalStrategy],
) -> Result<CompactionsReport, StrategyError> {
    let mut report = CompactionsReport::default();
    for session in sessions {
        for run in committed_runs(store, session)? {
            if let Some(recorded) = RecordedCompaction::load(store, session, &run)? {
                let compared = recorded.compare(store, strategies)?;
                report.compactions.push(compared);
            }
        }
    }
    report.sum_up();
    Ok(report)
}

impl CompactionsReport {
    fn sum_up(&mut self) {
        self.needed = self.compactions.iter().map(|one| one.needed).sum();
        let all = || self.compactions.iter().flat_map(|one| &one.results);
        let names = distinct(all().map(|result| result.candidate.clone()));
        let sum = |name: String| {
            let of_name = || all().filter(|result| result.candidate == name);
            let mut state = StateCounts::default();
            of_name().for_each(|result| state.add(&result.state));
            let kept = of_name().map(|result| result.kept).sum();
            CompactionResult {
                candidate: name.clone(),
                tokens: of_name().map(|result| result.tokens).sum(),
                kept,
                recall: share(kept, self.needed),
                state,
            }
        };
        self.results = names.into_iter().map(sum).collect();
    }
}

/// A compaction that a transcript records with its text.
struct RecordedCompaction {
    session: SessionId,
    run: String,
    /// The originals that the text stands for.
    originals: History,
    text: Vec<AgentMessage>,
    /// What the context shows beside the text.
    kept: Vec<AgentMessage>,
    after: Vec<Placed>,
}

impl RecordedCompaction {
    /// Reads a compaction; `None` if it has no text or stands for nothing.
    fn load(
        store: &dyn SessionStore,
        session: &SessionId,
        run: &str,
    ) -> Result<Option<Self>, StrategyError> {
        let (text, kept) = shown(store, session, run)?;
        let current = History::load(store, session)?;
        let (before, hidden, own) = store::read(store, |read| {
            let owner = session_of(read, session)?;
            let (leaf, view) = moment_of(read, &owner, &AsOf::run(run))?;
            let before = History::of_chain(read, leaf.key, view)?;
            let mut hidden: HashSet<(LoopId, u32)> = HashSet::new();
            for of_loop in shown_chain(read, &leaf, view)?.states {
                let states = (0..).zip(of_loop.turns);
                let gone = states.filter(|(_, state)| is_hidden(*state));
                hidden.extend(gone.map(|(turn, _)| (of_loop.loop_id.clone(), turn)));
            }
            // A session may have gone on from another loop.
            let own = History::of_chain(read, leaf.key, Default::default())?;
            Ok((before, hidden, own))
        })?;
        let after = current.after(&before).or_else(|| own.after(&before));
        let after = after.unwrap_or_default().to_vec();
        let mut originals = before.clone();
        originals.messages.retain(|placed| {
            let place = before.place(placed.turn);
            place.is_some_and(|(id, turn)| hidden.contains(&(id.clone(), turn)))
        });
        let recorded = Self {
            session: session.clone(),
            run: run.to_owned(),
            originals,
            text,
            kept,
            after,
        };
        let is_empty = recorded.text.is_empty() || recorded.originals.messages.is_empty();
        Ok((!is_empty).then_some(recorded))
    }

    fn compare(
        self,
        store: &dyn SessionStore,
        strategies: &[&dyn EvalStrategy],
    ) -> Result<ComparedCompaction, StrategyError> {
        let counter = store.counter();
        let mut needed = needed_values(&self.originals.messages, &self.after);
        let kept = context_text(&self.kept);
        needed.retain(|value| !kept.contains(value));
        let recorded = Candidate::new(Candidate::RECORDED, self.text, counter);
        let ours = Candidate::all(&self.originals, recorded.tokens, strategies, counter)?;
        let facts = StateFacts::of(&self.originals.messages);
        let result = |candidate: Candidate| {
            let text = context_text(&candidate.messages);
            let kept = needed.iter().filter(|value| text.contains(*value)).count();
            CompactionResult {
                candidate: candidate.name,
                tokens: candidate.tokens,
                kept,
                recall: share(kept, needed.len()),
                state: facts.stated_in(&text),
            }
        };
        let results = std::iter::once(recorded).chain(ours).map(result).collect();
        Ok(ComparedCompaction {
            session_id: self.session.to_string(),
            run_id: self.run,
            originals: self.originals.tokens(counter),
            needed: needed.len(),
            results,
        })
    }
}

/// Returns what the context shows just after a run: the texts that stand for turns, and the rest.
fn shown(
    store: &dyn SessionStore,
    session: &SessionId,
    run: &str,
) -> Result<(Vec<AgentMessage>, Vec<AgentMessage>), StrategyError> {
    let options = BuildOptions {
        as_of: Some(AsOf::run(run)),
        ..BuildOptions::default()
    };
    let context = build_context_from_session(store, session, &options);
    let context = context.map_err(|error| match error {
        BuildError::Store(error) => error.into(),
        other => StrategyError::Failed(other.to_string()),
    })?;
    let (mut text, mut kept) = (Vec::new(), Vec::new());
    let mut messages = context.messages.into_iter();
    for part in context.parts {
        let is_text = matches!(part.section, PartSection::Rollup | PartSection::Compacted);
        let into = if is_text { &mut text } else { &mut kept };
        let count = usize::try_from(part.messages).unwrap_or(usize::MAX);
        into.extend(messages.by_ref().take(count));
    }
    Ok((text, kept))
}

/// Whether a text stands for a turn, or nothing does.
fn is_hidden(state: TurnState) -> bool {
    match state {
        TurnState::Raw => false,
        TurnState::Covered(Disposition::Kept | Disposition::Truncated) => false,
        TurnState::Covered(_) => true,
    }
}
