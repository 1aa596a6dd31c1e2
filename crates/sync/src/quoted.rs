//! The sizes of the quotes in blocks. A quote names the place of its message, so its size changes with the place.

use std::collections::HashMap;

use loopstore::counter_named;
use loopstore::extend::codec::json_bytes;
use loopstore::internal::quote_of;
use loopstore::model::{AgentMessage, LoopId};
use loopstore::tokens::TokenCounter;
use loopstore_transcripts::internal::form::{BlockLine, Sizes};

use crate::document::SessionDocument;

/// Removes the sizes of the quotes from those of the blocks.
///
/// # Errors
/// If the token counter of the session is not known here, or a message is malformed.
pub(crate) fn remove_sizes(document: &mut SessionDocument) -> Result<(), String> {
    change_sizes(document, subtract)
}

/// Adds the sizes of the quotes at their present places to those of the blocks.
///
/// # Errors
/// As [`remove_sizes`].
pub(crate) fn add_sizes(document: &mut SessionDocument) -> Result<(), String> {
    change_sizes(document, add)
}

/// Returns the difference of two sizes. It wraps around, as does [`add`]: a quote of a message that an edit made shorter
/// is counted as if it were not, and only what its place changes remains in the end.
pub(crate) fn subtract(all: Sizes, part: Sizes) -> Sizes {
    Sizes {
        tokens: all.tokens.wrapping_sub(part.tokens),
        bytes: all.bytes.wrapping_sub(part.bytes),
        messages: all.messages.wrapping_sub(part.messages),
    }
}

fn add(all: Sizes, part: Sizes) -> Sizes {
    Sizes {
        tokens: all.tokens.wrapping_add(part.tokens),
        bytes: all.bytes.wrapping_add(part.bytes),
        messages: all.messages.wrapping_add(part.messages),
    }
}

fn change_sizes(
    document: &mut SessionDocument,
    change: impl Fn(Sizes, Sizes) -> Sizes,
) -> Result<(), String> {
    let blocks = || document.runs.iter().flat_map(|run| &run.blocks);
    if !blocks().any(|block| block.line.shows.iter().any(|shown| shown.quotes.is_some())) {
        return Ok(());
    }
    let name = &document.line.counter;
    let unknown = || format!("tokens are counted with {name}, which is not known here");
    let counter = counter_named(name).ok_or_else(unknown)?;
    let loops = document.loop_index();
    let sizes = blocks().map(|block| size_of_quotes(document, &loops, &*counter, &block.line));
    let sizes: Vec<Sizes> = sizes.collect::<Result<_, String>>()?;
    let blocks = document.runs.iter_mut().flat_map(|run| &mut run.blocks);
    for (block, size) in blocks.zip(sizes) {
        block.line.size = change(block.line.size, size);
    }
    Ok(())
}

/// Returns the size of the quotes of a block, as if no edit had changed their messages.
fn size_of_quotes(
    document: &SessionDocument,
    loops: &HashMap<&LoopId, usize>,
    counter: &dyn TokenCounter,
    line: &BlockLine,
) -> Result<Sizes, String> {
    let mut sum = Sizes {
        tokens: 0,
        bytes: 0,
        messages: 0,
    };
    for shown in &line.shows {
        let (Some(loop_id), Some(seq)) = (&shown.quotes, shown.replaces) else {
            continue;
        };
        let owner = loops.get(loop_id).map(|at| &document.loops[*at]);
        let stored = owner.and_then(|one| one.messages.get(seq as usize));
        let Some((stored, json)) = stored.and_then(|line| Some((line, line.message.as_ref()?)))
        else {
            continue;
        };
        let message: AgentMessage =
            serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
        let other = (*loop_id != line.loop_id).then_some(loop_id);
        let quote = quote_of(stored.turn.unwrap_or_default(), other, message);
        let size = Sizes {
            tokens: counter.message_tokens(&quote),
            bytes: json_bytes(&quote).map_err(|error| error.to_string())?,
            messages: 1,
        };
        sum = add(sum, size);
    }
    Ok(sum)
}
