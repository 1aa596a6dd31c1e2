//! The rows of a session as its text.

use std::collections::HashMap;

use loopstore::extend::{LoopKey, SessionRow, StoreRead, StoreResult};
use loopstore::model::{LoopId, SessionId};
use loopstore_export::write_lines;

use crate::document::{Attachment, SessionText, text_of};
use crate::peer::{PeerError, PeerResult};

/// Reads the text of a session; `None` if the session does not exist.
pub(crate) fn read_text(
    read: &dyn StoreRead,
    counter: &str,
    id: &SessionId,
) -> PeerResult<Option<SessionText>> {
    let Some(row) = read.session(id)? else {
        return Ok(None);
    };
    let mut out = Vec::new();
    write_lines(read, counter, &row, &mut out)?;
    let text = String::from_utf8(out).map_err(|error| PeerError::Session(error.to_string()))?;
    let mut text = SessionText::of(&text);
    let attachments = attachments(read, &row)?;
    text.lines.extend(attachments.iter().map(text_of));
    Ok(Some(text))
}

/// Returns the rows of a session that are not in its lines, in the order of a text.
pub(crate) fn attachments(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<Vec<Attachment>> {
    let mut rows = Vec::new();
    let flags = read.flags(row.key)?;
    if flags.redacts || flags.protected_at.is_some() {
        rows.push(Attachment::Flags {
            redacts: flags.redacts,
            protected_at: flags.protected_at,
        });
    }
    for import in read.imports(row.key)? {
        rows.push(Attachment::Import {
            format: import.format,
            path: import.path,
            file_name: import.file_name,
            record_key: import.record_key,
        });
    }
    let mut loops: HashMap<LoopKey, LoopId> = HashMap::new();
    for key in read.append_keys(row.key)? {
        let loop_id = match loops.get(&key.loop_key) {
            Some(id) => id.clone(),
            None => {
                let owner = read.loop_by_key(key.loop_key)?;
                loops
                    .entry(key.loop_key)
                    .or_insert(owner.core.loop_id)
                    .clone()
            }
        };
        rows.push(Attachment::AppendKey {
            name: key.name,
            loop_id,
            seqs: (key.seqs.start, key.seqs.end),
            turns: (key.turns.start, key.turns.end),
            tokens: key.tokens,
        });
    }
    rows.sort();
    rows.dedup();
    Ok(rows)
}
