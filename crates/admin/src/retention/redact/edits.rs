//! The edits of messages that a redaction changes: their texts, their sizes, and the numbers of their parts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::TokenCounter;
use loopstore::extend::{
    EditRow, LoopKey, RunKey, SessionKey, StoreResult, StoreWrite, edit_sizes, scan::MessagePlace,
};
use loopstore::model::AgentMessage;
use loopstore_redact::{Redactor, sealed_parts};

/// The messages of a session that change, and the parts that they lose.
#[derive(Default)]
pub(super) struct EditChanges {
    lost: BTreeMap<(LoopKey, u32), Vec<u32>>,
}

impl EditChanges {
    /// Records the change of a message.
    pub(super) fn note(
        &mut self,
        place: MessagePlace,
        before: &AgentMessage,
        after: &AgentMessage,
    ) {
        let MessagePlace::InLoop(key, seq) = place else {
            return;
        };
        let count = |message: &AgentMessage| message.message().map_or(0, |m| m.content().len());
        let fewer = count(before).saturating_sub(count(after));
        // Only sealed items go, all of them or the compactions among them.
        let parts = [true, false].map(|all| sealed_parts(before, all));
        let parts = parts.into_iter().find(|parts| parts.len() == fewer);
        let parts = parts.unwrap_or_default().into_iter();
        let lost = parts.filter_map(|part| u32::try_from(part).ok()).collect();
        self.lost.insert((key, seq), lost);
    }

    /// Redacts the texts of a session's edits and writes the edits that change; returns the number of changed texts.
    pub(super) fn settle(
        &self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        session: SessionKey,
        redactor: &mut Redactor,
    ) -> StoreResult<u64> {
        let mut changed = 0;
        if write.edit_count(session)? == 0 {
            return Ok(changed);
        }
        for run in runs_with_edits(write, session)? {
            let before = write.edits_of_run(run)?;
            let mut after = Vec::with_capacity(before.len());
            for edit in &before {
                let Some(mut edit) = self.renumbered(edit.clone()) else {
                    continue;
                };
                if let Some(text) = edit.text.as_deref().and_then(|text| redactor.json(text)) {
                    edit.text = Some(text);
                    changed += 1;
                }
                edit_sizes::measure(&*write, counter, &mut edit)?;
                after.push(edit);
            }
            if after != before {
                write.rewrite_edits(run, &after)?;
            }
        }
        Ok(changed)
    }

    /// Returns an edit with the number that its part has now; `None` if the part is gone.
    fn renumbered(&self, mut edit: EditRow) -> Option<EditRow> {
        let (Some(part), Some(lost)) =
            (&mut edit.part, self.lost.get(&(edit.loop_key, edit.seqs.0)))
        else {
            return Some(edit);
        };
        if lost.contains(&part.number) {
            return None;
        }
        let before = lost.iter().filter(|number| **number < part.number).count();
        part.number -= u32::try_from(before).unwrap_or(0);
        part.of -= u32::try_from(lost.len()).unwrap_or(0);
        Some(edit)
    }
}

/// Returns the runs that have edits.
fn runs_with_edits(write: &dyn StoreWrite, session: SessionKey) -> StoreResult<BTreeSet<RunKey>> {
    let mut runs = BTreeSet::new();
    let loops = write.loops(session)?;
    for row in loops.iter().filter(|row| row.edits > 0) {
        write.edits_of_loop(row.key, &mut |found| {
            runs.insert(found.run);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(runs)
}
