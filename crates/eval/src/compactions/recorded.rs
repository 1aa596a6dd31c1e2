//! A compaction that a transcript records.

use std::collections::HashSet;

use loopstore::compaction::{LoopMessage, StrategyError};
use loopstore::context::{AsOf, BuildError, PartSection};
use loopstore::extend::{self as store, SessionStore, moment_of, session_of, shown_chain};
use loopstore::handback::handback;
use loopstore::model::{AgentMessage, LoopId, Message, SessionId};
use loopstore::{BuildOptions, build_context_from_session};

use super::super::exam::ExamCandidate;
use super::super::{EvalStrategy, History, StateFacts, context_text, needed_values, share};
use super::{
    CompactionResult, ComparedCompaction, ForgottenValue, HANDBACK_TOKENS, repeated_calls,
};

/// A compaction that a transcript records with its text.
pub(super) struct RecordedCompaction {
    session: SessionId,
    run: String,
    /// The history up to the compaction.
    before: History,
    /// The hidden turns.
    hidden: HashSet<u32>,
    /// The originals that the text replaces.
    originals: History,
    text: Vec<AgentMessage>,
    /// The messages that the context keeps in addition to the text.
    kept: Vec<AgentMessage>,
    after: Vec<LoopMessage>,
}

impl RecordedCompaction {
    /// Reads a compaction; `None` if it has no text or replaces nothing.
    pub(super) fn load(
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
                let gone = states.filter(|(_, state)| state.is_hidden());
                hidden.extend(gone.map(|(turn, _)| (of_loop.loop_id.clone(), turn)));
            }
            // The session may have continued from another loop.
            let own = History::of_chain(read, leaf.key, Default::default())?;
            Ok((before, hidden, own))
        })?;
        let after = current.after(&before).or_else(|| own.after(&before));
        let after = after.unwrap_or_default().to_vec();
        let hidden = before.numbers(&hidden);
        let mut originals = before.clone();
        originals
            .messages
            .retain(|placed| hidden.contains(&placed.turn));
        let recorded = Self {
            session: session.clone(),
            run: run.to_owned(),
            before,
            hidden,
            originals,
            text,
            kept,
            after,
        };
        let is_empty = recorded.text.is_empty() || recorded.originals.messages.is_empty();
        Ok((!is_empty).then_some(recorded))
    }

    pub(super) fn compare(
        self,
        store: &dyn SessionStore,
        next: Option<&Self>,
        strategies: &[&dyn EvalStrategy],
    ) -> Result<ComparedCompaction, StrategyError> {
        let counter = store.counter();
        let mut needed = needed_values(&self.originals.messages, &self.after);
        let kept = context_text(&self.kept);
        needed.retain(|value| !kept.contains(value));
        let as_of = AsOf::run(&self.run);
        let handed = handback(store, &self.session, Some(&as_of), HANDBACK_TOKENS);
        let handed = handed.map_err(|error| StrategyError::Failed(error.to_string()))?;
        let handed = handed.map_or_else(String::new, |handed| handed.text);
        let recorded = ExamCandidate::new(ExamCandidate::RECORDED, self.text.clone(), counter);
        let mut beside = self.text.clone();
        if !handed.is_empty() {
            beside.push(Message::user(handed.as_str()).into());
        }
        let beside = ExamCandidate::new(ExamCandidate::HANDED_BACK, beside, counter);
        let ours = ExamCandidate::all(&self.originals, recorded.tokens, strategies, counter)?;
        let facts = StateFacts::of(&self.originals.messages);
        let said = context_text(&self.text);
        let is_hidden = |placed: &LoopMessage| self.hidden.contains(&placed.turn);
        let again = repeated_calls(&self.before.messages, &is_hidden, self.until(next), counter);
        let forgotten = needed.iter().filter(|value| !said.contains(*value));
        let forgotten = forgotten.map(|value| ForgottenValue {
            value: value.clone(),
            is_handed_back: handed.contains(value),
        });
        let forgotten = forgotten.collect();
        let lost = facts.missing_in(&(said + &kept));
        let result = |candidate: ExamCandidate| {
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
        let all = [recorded, beside].into_iter().chain(ours);
        Ok(ComparedCompaction {
            session_id: self.session.to_string(),
            run_id: self.run.clone(),
            originals: self.originals.tokens(counter),
            needed: needed.len(),
            results: all.map(result).collect(),
            forgotten,
            lost,
            again,
            handback: handed,
        })
    }

    /// Returns the messages until the next compaction, or until the end.
    fn until(&self, next: Option<&Self>) -> &[LoopMessage] {
        let next = next.map(|next| next.before.messages.len());
        let end = next.and_then(|next| next.checked_sub(self.before.messages.len()));
        self.after
            .get(..end.unwrap_or(self.after.len()))
            .unwrap_or(&self.after)
    }
}

/// Returns the context just after a run: the texts that replace turns, and the other messages.
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
