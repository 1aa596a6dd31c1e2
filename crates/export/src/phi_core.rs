//! A whole session as one document of the interchange form.
//!
//! Loops are in the order of their creation, the current one last if it has no children. A
//! block is the active one of its loop: seen from the current loop, if that continues the whole
//! loop, else from the loop itself. The form has neither tails nor rollups, so a block includes
//! the turns after it, and a loop that a rollup covers has an empty block.

use std::io::Write;
use std::ops::ControlFlow;

use loopstore::extend::{LoopRow, SessionRow, StoreError, StoreRead, codec, decode};
use loopstore::internal::{SessionRecords, ordered, session_record};
use loopstore::model::{AgentMessage, Json, LoopId, LoopRecord};
use loopstore_transcripts::internal::Fields;

use super::ExportError;

/// Writes the session.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let loops = ordered(read.loops(session.key)?, session.current_loop);
    let mut document = PhiDocument {
        records: SessionRecords::of(read, session, &loops)?,
        out,
    };
    document.session(session, &loops)
}

struct PhiDocument<'a> {
    records: SessionRecords<'a>,
    out: &'a mut dyn Write,
}

/// The placeholder of the messages or loops that are written one by one.
fn placeholder() -> AgentMessage {
    AgentMessage::extension("placeholder", Json::null())
}

impl PhiDocument<'_> {
    fn session(&mut self, row: &SessionRow, loops: &[LoopRow]) -> Result<(), ExportError> {
        let mut session = session_record(row, loops)?;
        if !loops.is_empty() {
            let id = LoopId::new("placeholder").map_err(|e| StoreError::Invalid(e.to_string()))?;
            session.loops = vec![LoopRecord::new(id, None)];
        }
        let text = codec::to_json(&session)?;
        self.object(&text, "loops", &mut |document| {
            document.out.write_all(b"[")?;
            for (at, row) in loops.iter().enumerate() {
                document
                    .out
                    .write_all(if at > 0 { b",\n" } else { b"\n" })?;
                document.one_loop(row)?;
            }
            Ok(document.out.write_all(b"]")?)
        })?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn one_loop(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        let mut record = self.records.loop_record(row)?;
        if row.totals.next_seq > 0 {
            record.messages = vec![placeholder()];
        }
        let text = codec::to_json(&record)?;
        self.object(&text, "messages", &mut |document| document.messages(row))
    }

    /// Writes an object; the value of one of its keys, if the object has it, is written by `write`.
    fn object(
        &mut self,
        text: &str,
        key: &str,
        write: &mut dyn FnMut(&mut Self) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let damaged = |reason| StoreError::Damaged(format!("what a source noted: {reason}"));
        let mut separator = "{";
        for (name, value) in Fields::parse(text).map_err(damaged)?.iter() {
            write!(self.out, "{separator}{}:", Json::string(name).as_str())?;
            separator = ",";
            match name == key && value.get() != "[]" {
                true => write(self)?,
                false => self.out.write_all(value.get().as_bytes())?,
            }
        }
        Ok(self.out.write_all(b"}")?)
    }

    fn messages(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        self.out.write_all(b"[")?;
        let (read, out) = (self.records.read, &mut *self.out);
        let mut failed = None;
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            let separator: &[u8] = if message.seq > 0 { b",\n" } else { b"\n" };
            let text = codec::to_json(&decode(read, message.body)?)?;
            let written = out
                .write_all(separator)
                .and_then(|()| out.write_all(text.as_bytes()));
            match written {
                Ok(()) => Ok(ControlFlow::Continue(())),
                Err(error) => {
                    failed = Some(error);
                    Ok(ControlFlow::Break(()))
                }
            }
        })?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(self.out.write_all(b"]")?),
        }
    }
}
