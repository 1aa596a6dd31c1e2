//! The handback: the text that an agent gets from the record when it compacts. No other module writes to a model.

use std::ops::ControlFlow;

use loopstore::extend::{self as store, Outcome, StoreResult, leaf_of, session_of};
use loopstore::handback::{Handback, SummaryRelation, handback, working_state};
use loopstore::{Database, SessionId};
use loopstore_terminal::{CliError, text};

/// Returns the introduction of the handback, with the session's id for the tools.
fn introduction(session: &SessionId) -> String {
    let id = text::line(session.as_str());
    format!(
        "The conversation was just compacted. This is the working state from the record kept by loopstore \
         (session_id `{id}`), which the summary may lack:\n\n"
    )
}

/// The minimum number of messages: a session with fewer fits its summary.
const MIN_MESSAGES: usize = 10;

/// Returns the handback text for a session's agent after a compaction, of at most the given number of tokens; `None`
/// if there is no text.
pub fn after_compaction(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    let introduction = introduction(session);
    let spent = store.counter().text_tokens(&introduction);
    let left = max_tokens.saturating_sub(spent);
    // Claude Code writes its summary into the transcript only after this hook, so the summary is not known yet.
    let state = match is_recorded(store, session)? {
        true => handback(store, session, None, left)?.map(|back| back.text),
        false => worth_telling(working_state(
            store,
            session,
            SummaryRelation::Supplements,
            left,
        )?),
    };
    Ok(state.map(|state| format!("{introduction}{state}")))
}

/// Returns the working state of a session, of at most the given number of tokens, as a replacement for a summary.
pub fn in_place(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    let state = working_state(store, session, SummaryRelation::Replaces, max_tokens)?;
    Ok(worth_telling(state))
}

fn worth_telling(state: Option<Handback>) -> Option<String> {
    let state = state.filter(|state| state.messages >= MIN_MESSAGES)?;
    Some(state.text)
}

/// True if the agent's compaction is recorded: no message follows the newest run.
fn is_recorded(store: &dyn Database, session: &SessionId) -> StoreResult<bool> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        if owner.current_loop.is_none() {
            return Ok(false);
        }
        let leaf = leaf_of(read, &owner, None)?;
        let mut is_last = false;
        read.runs(owner.key, &mut |run| {
            if run.outcome != Outcome::Committed {
                return Ok(ControlFlow::Continue(()));
            }
            is_last = run.point.loop_key == leaf.key && run.point.turns == leaf.totals.turns;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_last)
    })
}
