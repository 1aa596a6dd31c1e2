//! What an agent is told of the record when it compacts. The only place that says so.

use loopstore::compact::compacted_messages;
use loopstore::extend::compaction::{DigestInput, digest_of};
use loopstore::{AgentMessage, CompactRequest, Database, KeepRecent, Role, SessionId, Settings};

use crate::error::CliError;

/// How the document of a working state begins.
const OPENING: &str = "[Working state";
/// What stands before what is handed back.
const INTRODUCTION: &str = "The conversation was just compacted. This is the working state from the record \
    kept by loopstore, which the summary may lack:\n\n";

/// Returns what a session's agent is handed back after a compaction, in at most so many tokens; `None` if
/// there is nothing to say.
pub fn after_compaction(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    let spent = store.counter().text_tokens(INTRODUCTION);
    let state = working_state(store, session, max_tokens.saturating_sub(spent))?;
    Ok(state.map(|state| format!("{INTRODUCTION}{state}")))
}

/// Returns the working state of a session in at most so many tokens, in place of a summary.
pub fn working_state(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    let messages = compacted_messages(store, session, &request(max_tokens)?)?;
    let documents = messages.iter().filter_map(document);
    let mut parts = documents.map(|text| DigestInput::Summary {
        of: None,
        turn: 0,
        text,
    });
    let digest = digest_of(&mut parts, max_tokens, store.counter());
    Ok(Some(digest.text).filter(|text| !text.is_empty()))
}

/// Asks for a document that covers all but the last turn.
fn request(max_tokens: u64) -> Result<CompactRequest, CliError> {
    let settings = Settings {
        keep_first: Some(0),
        keep_recent: Some(KeepRecent::Turns(1)),
        max_summary_tokens: Some(max_tokens),
        max_rollup_tokens: Some(max_tokens),
        ..Settings::default()
    };
    let policy = settings
        .policy()
        .map_err(|error| CliError::Failed(Box::new(error)))?;
    Ok(policy.request())
}

fn document(message: &AgentMessage) -> Option<String> {
    let message = message
        .message()
        .filter(|message| message.role() == Role::User)?;
    let text: String = message.texts().collect();
    text.starts_with(OPENING).then_some(text)
}
