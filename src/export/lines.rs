//! A line of JSON for each message, with its place.

use std::io::Write;

use serde::Serialize;

use super::{ExportError, Stretch, each_message};
use crate::model::AgentMessage;
use crate::store::{self, SessionRow, StoreRead};

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    session: &'a str,
    #[serde(rename = "loop")]
    in_loop: &'a str,
    turn: Option<u32>,
    seq: u32,
    tokens: u64,
    message: AgentMessage,
}

/// Writes the messages, loop by loop.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    stretches: &[Stretch],
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    for stretch in stretches {
        each_message(read, stretch, &mut |row| {
            let line = Line {
                session: session.session_id.as_str(),
                in_loop: stretch.row.loop_id.as_str(),
                turn: row.turn,
                seq: row.seq,
                tokens: row.body.tokens,
                message: store::decode(read, row.body)?,
            };
            serde_json::to_writer(&mut *out, &line)?;
            Ok(out.write_all(b"\n")?)
        })?;
    }
    Ok(())
}
