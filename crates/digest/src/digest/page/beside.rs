//! A page that stands beside a summary of another's: what that leaves out and the agent will miss.

use std::collections::HashMap;

use super::super::filling::{Filling, Told};
use super::{DocumentPage, OPEN_ERROR, PageWriter, attempt_rank, share};
use crate::activity::Plan;

/// What the line takes that counts the files without one.
const COUNT_BYTES: usize = 64;

impl PageWriter<'_> {
    /// Leaves out what a reader knows already.
    pub(in super::super) fn leave_out(&mut self, known: &Told) {
        let (work, facts) = (self.record.activity.work(), &self.record.values.facts);
        for values in [&mut self.sought, &mut self.used_once] {
            values.retain(|at| !known.has(&facts[*at].value));
        }
        let mut named: HashMap<&str, usize> = HashMap::new();
        for file in &work.files {
            *named.entry(name_of(&file.path)).or_default() += 1;
        }
        self.changed.retain(|at| {
            let path = &work.files[*at].path;
            let name = name_of(path);
            !(known.has(path) || named.get(name) == Some(&1) && known.has(name))
        });
        self.attempts.retain(|at| {
            let attempt = &work.attempts[*at];
            let error = attempt.failure.as_ref().map(|(_, error)| error);
            let is_known = known.has(&attempt.what) && error.is_some_and(|error| known.has(error));
            attempt_rank(attempt) == OPEN_ERROR && !is_known
        });
        self.instructions
            .retain(|(_, instruction)| !known.says_after(0, &instruction.text));
        let tells = |plan: &Plan| plan.items.iter().all(|item| known.has(&item.text));
        self.is_plan_known = work.plan.as_ref().is_some_and(tells);
    }

    /// Returns a page of at most `most` bytes: plan, open errors, changed files, instructions, values. Of
    /// values only those that calls took, or whose name they know: what was merely seen costs room and is
    /// hardly ever asked for.
    pub(in super::super) fn beside(&self, headers: &[String], most: usize) -> DocumentPage {
        let mut filling = Filling::new(self.record, self.is_talk, self.tool_bytes, most);
        filling.header(headers);
        let held = filling.hold_back(COUNT_BYTES);
        if !self.is_plan_known {
            self.plan(&mut filling, most / share::PLAN_BESIDE);
        }
        self.attempts(&mut filling, most / share::ERRORS_BESIDE);
        self.files(&mut filling, most / share::FILES);
        self.standing(&mut filling, most / share::INSTRUCTIONS);
        filling.values(&self.sought, usize::MAX);
        filling.values(&self.used_once, usize::MAX);
        self.files(&mut filling, usize::MAX);
        self.attempts(&mut filling, usize::MAX);
        filling.give_back(held);
        let rest = self.changed.iter().filter(|at| !filling.shows_file(**at));
        filling.files_left_out(&rest.copied().collect::<Vec<_>>());
        filling.written()
    }
}

/// Returns the last part of a path.
fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
