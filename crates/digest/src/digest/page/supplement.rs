//! A supplement to the summary of another program: facts that the summary leaves out and the agent will need.

use std::collections::HashMap;

use super::super::page_draft::KnownText;
use super::{DocumentPage, OPEN_ERROR, PageWriter, call_rank, share};
use crate::activity::AgentPlan;

/// The bytes of the line that counts the files without a line.
const COUNT_BYTES: usize = 64;

impl PageWriter<'_> {
    /// Leaves out everything that the reader already has.
    pub(in super::super) fn leave_out(&mut self, known: &KnownText) {
        let (work, facts) = (self.record.activity.work(), &self.record.values.facts);
        for values in [&mut self.likely_needed, &mut self.rarely_needed] {
            values.retain(|at| !known.has_value(&facts[*at].value));
        }
        let mut named: HashMap<&str, usize> = HashMap::new();
        for file in &work.files {
            *named.entry(name_of(&file.path)).or_default() += 1;
        }
        self.changed.retain(|at| {
            let path = &work.files[*at].path;
            let name = name_of(path);
            !(known.has_value(path) || named.get(name) == Some(&1) && known.has_value(name))
        });
        self.calls.retain(|at| {
            let history = &work.calls[*at];
            let error = history.failure.as_ref().map(|(_, error)| error);
            let is_known = known.has_value(&history.description)
                && error.is_some_and(|error| known.has_value(error));
            call_rank(history) == OPEN_ERROR && !is_known
        });
        self.instructions
            .retain(|line| !known.contains_after(0, &line.instruction.text));
        let tells = |plan: &AgentPlan| plan.items.iter().all(|item| known.has_value(&item.text));
        self.is_plan_known = work.plan.as_ref().is_some_and(tells);
    }

    /// Returns a page of at most `most` bytes: plan, open errors, changed files, instructions, values. Values that were
    /// only seen are left out: they are hardly ever needed.
    pub(in super::super) fn supplement(&self, headers: &[String], most: usize) -> DocumentPage {
        let mut draft = self.draft(most);
        draft.header(headers);
        let held = draft.hold_back(COUNT_BYTES);
        if !self.is_plan_known {
            self.plan(&mut draft, most / share::PLAN_OF_SUPPLEMENT);
        }
        self.calls(&mut draft, most / share::ERRORS_OF_SUPPLEMENT);
        self.files(&mut draft, most / share::FILES);
        self.instructions(&mut draft, most / share::INSTRUCTIONS);
        draft.values(&self.likely_needed, usize::MAX);
        draft.values(&self.rarely_needed, usize::MAX);
        self.files(&mut draft, usize::MAX);
        self.calls(&mut draft, usize::MAX);
        draft.give_back(held);
        let rest = self.changed.iter().filter(|at| !draft.shows_file(**at));
        draft.files_left_out(&rest.copied().collect::<Vec<_>>());
        draft.render()
    }
}

/// Returns the last part of a path.
fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
