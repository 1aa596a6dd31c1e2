//! The recorder between messages and at the end: complete answers, leases, counts, and open prompts.

use std::collections::BTreeMap;
use std::time::Instant;

use loopstore::model::LoopId;
use serde_json::json;

use super::prompt::{ActivePrompt, PromptEnd};
use super::{PAUSE, Recorder, SessionState, notes};
use crate::counts::add;

impl Recorder {
    /// Stores the numbers of what was not recorded since the previous note.
    pub(super) fn note_unrecorded(&mut self, id: &str) {
        if self.counts == self.noted {
            return;
        }
        let before = |reason| self.noted.get(reason).copied().unwrap_or_default();
        let new: BTreeMap<String, u64> = self
            .counts
            .iter()
            .map(|(reason, count)| (reason.to_string(), count - before(reason)))
            .filter(|(_, count)| *count > 0)
            .collect();
        self.noted = self.counts.clone();
        self.note(id, notes::UNRECORDED, json!(new).into());
    }

    /// Returns the time at which an answer is complete if nothing else comes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let active = self
            .sessions
            .values()
            .filter_map(|session| session.active.as_ref());
        let since = active.filter_map(ActivePrompt::complete_since).min()?;
        Some(since + PAUSE)
    }

    /// Stores the answers that are complete.
    pub fn store_complete(&mut self) {
        let now = Instant::now();
        let is_due = |session: &SessionState| {
            let since = session
                .active
                .as_ref()
                .and_then(ActivePrompt::complete_since);
            since.is_some_and(|since| since + PAUSE <= now)
        };
        let due = self.sessions.iter().filter(|(_, session)| is_due(session));
        let due: Vec<String> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            let unrecorded = self.write(&id, |active, recorder| {
                active.flush(recorder, None)?;
                Ok(None)
            });
            if let Some(reason) = unrecorded {
                add(&mut self.counts, reason, 1);
            }
        }
    }

    /// Renews the leases of running prompts, for agents that write nothing for long.
    pub fn heartbeat(&mut self) {
        let active = self
            .sessions
            .values()
            .filter_map(|session| session.active.as_ref());
        let loops: Vec<LoopId> = active.map(|active| active.loop_id().clone()).collect();
        for loop_id in loops {
            // The next write reports a lease that was lost.
            let _ = self.recorder.heartbeat(&loop_id);
        }
    }

    /// Ends the prompts that the agent did not answer.
    pub fn finish(&mut self) {
        let ids: Vec<String> = self.sessions.keys().cloned().collect();
        for id in ids {
            let end = PromptEnd {
                is_aborted: true,
                ..PromptEnd::default()
            };
            if let Some(reason) = self.end(&id, end) {
                add(&mut self.counts, reason, 1);
            }
        }
    }
}
