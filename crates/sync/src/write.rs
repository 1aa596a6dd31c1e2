//! Writes a session in one transaction: new rows beside those that are stored or, if what is stored has to change, all
//! rows anew.

use std::io::Cursor;
use std::ops::ControlFlow;

use loopstore::extend::receipt::Receipt;
use loopstore::extend::{
    AppendKey, Database, ImportRow, SessionFlags, SessionKey, SourceKey, StoreError, StoreRead,
    StoreResult, StoreWrite, codec, lease,
};
use loopstore::internal::{OpenReceipt, database};
use loopstore::model::SessionId;
use loopstore::tokens::TokenCounter;
use loopstore_model::clock::now;
use loopstore_transcripts::internal::{RecordOrigins, restore_session};

use crate::document::{Attachment, SessionDocument, SessionText};
use crate::files::{ImportMarks, OfferedFile, keep};
use crate::merge::content_key;
use crate::peer::{PeerError, PeerResult, StoreOutcome};
use crate::rows::{attachments, read_text};

/// The reason in the receipt of a session whose rows were written anew.
const REASON: &str = "two continuations of the session were brought together";

/// The result of writing a session.
pub(crate) struct WrittenSession {
    pub(crate) outcome: StoreOutcome,
    /// True if bytes of redacted content may remain in the file.
    pub(crate) has_leftovers: bool,
}

/// Writes the text of a session, if the digest of its present text is `expected`.
pub(crate) fn write_session(
    database: &dyn Database,
    id: &SessionId,
    expected: Option<[u8; 32]>,
    text: &SessionText,
    files: &[OfferedFile],
) -> PeerResult<WrittenSession> {
    let document = SessionDocument::parse(id, text).map_err(PeerError::Session)?;
    let is_redacted = document.loops.iter().flat_map(|one| &one.messages);
    let has_leftovers = is_redacted
        .into_iter()
        .any(|message| message.salt.is_none());
    let target = WriteTarget {
        counter: database.counter(),
        id,
        expected,
        text,
        document: &document,
        files,
    };
    // Most sessions only grow.
    let added = transaction(database, |write| target.add_rows(write));
    let written = match added {
        Ok(outcome) => Ok(outcome),
        Err(PeerError::Session(_)) if expected.is_some() => {
            transaction(database, |write| target.write_anew(write, has_leftovers))
        }
        Err(error) => Err(error),
    };
    Ok(WrittenSession {
        outcome: written?,
        has_leftovers,
    })
}

/// Runs work in a transaction, which commits only if the session was stored.
fn transaction(
    database: &dyn Database,
    work: impl FnOnce(&mut dyn StoreWrite) -> PeerResult<StoreOutcome>,
) -> PeerResult<StoreOutcome> {
    let mut result = None;
    let written = database::removing(database, |write| {
        let outcome = result.insert(work(write));
        match outcome {
            Ok(StoreOutcome::Stored) => Ok(()),
            _ => Err(StoreError::Invalid("nothing was stored".into())),
        }
    });
    match (written, result) {
        (Ok(()), Some(result)) => result,
        (Err(error), Some(Ok(StoreOutcome::Stored)) | None) => Err(error.into()),
        (Err(_), Some(failed)) => failed,
        (Ok(()), None) => Err(PeerError::Session("the store did not run the write".into())),
    }
}

/// The session to write.
struct WriteTarget<'a> {
    counter: &'a dyn TokenCounter,
    id: &'a SessionId,
    expected: Option<[u8; 32]>,
    text: &'a SessionText,
    document: &'a SessionDocument,
    /// Kept files that are stored with it.
    files: &'a [OfferedFile],
}

impl WriteTarget<'_> {
    /// Returns why the session cannot be written now.
    fn obstacle(&self, read: &dyn StoreRead) -> PeerResult<Option<StoreOutcome>> {
        let stored = self.read(read)?;
        if stored.map(|text| text.digest()) != self.expected {
            return Ok(Some(StoreOutcome::Changed));
        }
        let Some(row) = read.session(self.id)? else {
            return Ok(None);
        };
        let now = now();
        for one in read.loops(row.key)? {
            if let Some(held) = lease::held(read, one.key, now)? {
                let (id, owner) = (&one.loop_id, held.owner);
                let detail = format!("loop `{id}` is driven by `{owner}`");
                return Ok(Some(StoreOutcome::InUse(detail)));
            }
        }
        let open = !read.open_runs(Some(row.key))?.is_empty();
        Ok(open.then(|| StoreOutcome::InUse("a compaction of it is running".into())))
    }

    fn read(&self, read: &dyn StoreRead) -> PeerResult<Option<SessionText>> {
        read_text(read, self.counter.name(), self.id)
    }

    /// Adds the rows that are not stored.
    fn add_rows(&self, write: &mut dyn StoreWrite) -> PeerResult<StoreOutcome> {
        if let Some(obstacle) = self.obstacle(write)? {
            return Ok(obstacle);
        }
        let mut origins = RecordOrigins::new();
        self.complete(write, &mut origins)?;
        self.restore(write, &origins)?;
        self.check(write)?;
        Ok(StoreOutcome::Stored)
    }

    /// Removes the session's rows and writes all of them again. Its kept files and the origins of its messages stay.
    fn write_anew(
        &self,
        write: &mut dyn StoreWrite,
        has_leftovers: bool,
    ) -> PeerResult<StoreOutcome> {
        if let Some(obstacle) = self.obstacle(write)? {
            return Ok(obstacle);
        }
        let row = write.session(self.id)?;
        let row = row.ok_or_else(|| StoreError::NoSession(self.id.to_string()))?;
        let mut origins = self.stored_origins(write, row.key)?;
        self.complete(write, &mut origins)?;
        let files = write.sources(row.key)?;
        let mut receipt = Receipt::of(write, row.key, row.session_id, Some(REASON))?;
        let open = OpenReceipt::new(write, row.key, "archive")?;
        for file in &files {
            write.unlink_source(row.key, file.key)?;
        }
        let removed = write.remove_session(row.key)?;
        receipt.counts = (removed.rows.into_iter())
            .map(|(table, rows)| (table.to_owned(), rows))
            .collect();
        open.close(write, &receipt)?;
        let key = self.restore(write, &origins)?;
        if !write.flags(key)?.redacts {
            let files: Vec<SourceKey> = files.into_iter().map(|file| file.key).collect();
            files
                .into_iter()
                .try_for_each(|file| write.link_source(key, file))?;
        }
        if has_leftovers {
            write.note_scrub()?;
        }
        self.check(write)?;
        Ok(StoreOutcome::Stored)
    }

    /// Adds the origins of records that the offered files have.
    fn complete(&self, read: &dyn StoreRead, origins: &mut RecordOrigins) -> StoreResult<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let (key, mut marks) = (read.import_key()?, ImportMarks::default());
        self.files.iter().for_each(|file| marks.read(&key, file));
        marks.complete(self.document, origins);
        Ok(())
    }

    /// Returns the origins of the stored messages, also for messages with the same content and another salt.
    fn stored_origins(
        &self,
        read: &dyn StoreRead,
        session: SessionKey,
    ) -> PeerResult<RecordOrigins> {
        let mut origins = RecordOrigins::new();
        for one in read.loops(session)? {
            read.messages(one.key, 0..one.totals.next_seq, &mut |row| {
                origins.extend(row.origin.map(|origin| (row.body.digest, origin)));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let Some(text) = self.read(read)?.filter(|_| !origins.is_empty()) else {
            return Ok(origins);
        };
        let stored = SessionDocument::parse(self.id, &text).map_err(PeerError::Session)?;
        let mut marks = ImportMarks::default();
        for message in stored.loops.iter().flat_map(|one| &one.messages) {
            let digest = codec::unhex(&message.digest);
            if let Some(origin) = digest.and_then(|digest| origins.get(&digest)) {
                marks.add(content_key(message), *origin);
            }
        }
        marks.complete(self.document, &mut origins);
        Ok(origins)
    }

    /// Restores the lines and the attachments; returns the key of the session.
    fn restore(
        &self,
        write: &mut dyn StoreWrite,
        origins: &RecordOrigins,
    ) -> PeerResult<SessionKey> {
        let mut lines = Cursor::new(self.text.session_lines());
        restore_session(write, self.counter, self.id, &mut lines, origins)?;
        let row = write.session(self.id)?;
        let row = row.ok_or_else(|| StoreError::NoSession(self.id.to_string()))?;
        let stored = attachments(write, &row)?;
        for new in self
            .document
            .attachments
            .iter()
            .filter(|new| !stored.contains(new))
        {
            add_attachment(write, row.key, new)?;
        }
        for file in self.files {
            keep(write, row.key, file)?;
        }
        Ok(row.key)
    }

    /// Checks that the stored session is the one to write.
    fn check(&self, read: &dyn StoreRead) -> PeerResult<()> {
        let stored = self.read(read)?;
        if stored.as_ref() == Some(self.text) {
            return Ok(());
        }
        let lines = stored.map(|text| text.lines).unwrap_or_default();
        let pairs = lines.iter().zip(&self.text.lines);
        let line = pairs.take_while(|(stored, own)| stored == own).count() + 1;
        let detail = format!("its line {line} would be stored otherwise");
        Err(PeerError::Session(detail))
    }
}

fn add_attachment(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    new: &Attachment,
) -> StoreResult<()> {
    match new {
        Attachment::Flags {
            redacts,
            protected_at,
        } => write.put_flags(
            session,
            &SessionFlags {
                protected_at: protected_at.clone(),
                redacts: *redacts,
            },
        ),
        Attachment::Import {
            format,
            path,
            file_name,
            record_key,
        } => write.insert_import(
            session,
            &ImportRow {
                format: format.clone(),
                path: path.clone(),
                file_name: file_name.clone(),
                record_key: record_key.clone(),
            },
        ),
        Attachment::AppendKey {
            name,
            loop_id,
            seqs,
            turns,
            tokens,
        } => {
            let owner = write.loop_by_id(session, loop_id)?;
            let missing = || StoreError::Invalid(format!("append key `{name}` has no loop"));
            write.insert_append_key(
                session,
                &AppendKey {
                    name: name.clone(),
                    loop_key: owner.ok_or_else(missing)?.key,
                    seqs: seqs.0..seqs.1,
                    turns: turns.0..turns.1,
                    tokens: *tokens,
                },
            )
        }
    }
}
