//! A session as one file for another person: redacted, readable in a browser, and importable.
//!
//! [`SharedSession::prepare`] copies a session into a database in memory, whole or cut to some turns. There it is
//! redacted; the original is only read, and no unredacted text is written to a disk. [`SharedSession::preview`] lists
//! what would be replaced, [`SharedSession::redact`] replaces it. [`SharedSession::write`] writes a page of
//! `loopstore-report` that also carries the lines of the session, compressed and as base64, so that no text of a
//! session is markup. `loopstore import` reads the lines from the page. [`SharedSession::check`] reads a written page
//! again.
//!
//! The crate has no rules for secrets (`loopstore-redact` does), and draws no page (`loopstore-report` does).

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cut;
mod error;

use std::io::{Cursor, Write};
use std::path::Path;

use loopstore::extend::{Database, SessionStore};
use loopstore::model::SessionId;
use loopstore::tokens::counter_named;
use loopstore::{SqliteOptions, SqliteStore, StoreError};
use loopstore_admin::retention::{Leftover, RedactReport, RedactRequest, redact_session};
use loopstore_export::{ExportForm, export};
use loopstore_redact::RedactionPolicy;
use loopstore_report::{ReportAttachment, ReportOptions, write_report_with};
use loopstore_transcripts::internal::page::{PAGE_MEDIA_TYPE, PAGE_NAME};
use loopstore_transcripts::{ReadSeek, SessionLines, Source, import_source};
use serde::Serialize;

pub use cut::{CutReport, ShareCut};
pub use error::ShareError;

/// A request to share a session.
#[derive(Clone, Debug)]
pub struct ShareRequest {
    /// The session.
    pub session: SessionId,
    /// The turns to share; the whole session if `None`.
    pub cut: Option<ShareCut>,
    /// The policy that selects the secrets to replace.
    pub policy: RedactionPolicy,
    /// True to replace images and other attached files by a line of text.
    pub without_images: bool,
}

impl ShareRequest {
    /// Returns a request to share a whole session with its images, redacted by the default policy.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            cut: None,
            policy: RedactionPolicy::default(),
            without_images: false,
        }
    }
}

/// The content of a shared file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareReport {
    /// The session.
    pub session_id: SessionId,
    /// The cut; `None` for a whole session.
    pub cut: Option<CutReport>,
    /// The secrets that were replaced.
    pub redaction: RedactReport,
}

/// A copy of a session in memory that can be changed before it is written.
pub struct SharedSession {
    copy: SqliteStore,
    request: RedactRequest,
    cut: Option<CutReport>,
}

impl SharedSession {
    /// Copies a session from one snapshot.
    ///
    /// # Errors
    /// If the session, or a loop or turn of the cut, does not exist, or the store fails.
    ///
    /// # Examples
    /// ```
    /// use loopstore_share::{ShareRequest, SharedSession};
    /// use loopstore::*;
    /// use std::io::Cursor;
    /// use std::path::Path;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// chat.append([Message::user("git clone https://me:hunter2@example.org/x")])?;
    /// let mut shared = SharedSession::prepare(store.database(), &ShareRequest::new(chat.id().clone()))?;
    /// assert_eq!(shared.preview()?.secrets["url-password"], 1);
    /// shared.redact()?;
    /// let mut page = Vec::new();
    /// shared.write(&mut page)?;
    /// shared.check(Path::new("weather.html"), &mut Cursor::new(&page))?;
    /// assert!(page.starts_with(b"<!doctype html>"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare(store: &dyn Database, request: &ShareRequest) -> Result<Self, ShareError> {
        let copy = empty_like(store)?;
        let mut cut = None;
        match &request.cut {
            Some(range) => cut = Some(cut::copy(store, &request.session, range, &copy)?),
            None => {
                let lines = lines_of(store, &request.session)?;
                import_lines(&copy, Path::new("the session"), &mut Cursor::new(lines))?;
            }
        }
        Ok(Self {
            copy,
            request: RedactRequest {
                policy: request.policy.clone(),
                without_images: request.without_images,
                ..RedactRequest::new(request.session.clone())
            },
            cut,
        })
    }

    /// Returns what [`redact`](Self::redact) will replace, each secret masked and with its places.
    ///
    /// # Errors
    /// If the copy is damaged.
    pub fn preview(&self) -> Result<RedactReport, ShareError> {
        let request = RedactRequest {
            dry_run: true,
            ..self.request.clone()
        };
        Ok(redact_session(&self.copy, &request)?)
    }

    /// Replaces the secrets, and images if the request asks for it.
    ///
    /// # Errors
    /// If the copy is damaged, or part of a secret remains.
    pub fn redact(&mut self) -> Result<ShareReport, ShareError> {
        let redaction = redact_session(&self.copy, &self.request)?;
        if redaction.leftover == Leftover::InContent {
            let places = redaction.left.iter().map(|left| left.place.clone());
            return Err(ShareError::Remains(places.collect::<Vec<_>>().join(", ")));
        }
        Ok(ShareReport {
            session_id: self.request.session.clone(),
            cut: self.cut.clone(),
            redaction,
        })
    }

    /// Writes the page.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> Result<(), ShareError> {
        let lines = lines_of(&self.copy, &self.request.session)?;
        let attachment = ReportAttachment {
            name: PAGE_NAME,
            media_type: PAGE_MEDIA_TYPE,
            data: &lines,
        };
        let (session, options) = (&self.request.session, ReportOptions::default());
        write_report_with(&self.copy, session, &options, &attachment, out)?;
        Ok(())
    }

    /// Reads a page that was written: its session must be equal to the copy in every byte, and no rule may find a
    /// secret that is to be replaced.
    ///
    /// # Errors
    /// If the page cannot be imported, differs, or contains a secret.
    pub fn check(&self, path: &Path, page: &mut dyn ReadSeek) -> Result<(), ShareError> {
        let session = &self.request.session;
        let read = empty_like(&self.copy)?;
        import_lines(&read, path, page)?;
        if lines_of(&read, session)? != lines_of(&self.copy, session)? {
            return Err(ShareError::Differs);
        }
        let again = RedactRequest {
            dry_run: true,
            ..self.request.clone()
        };
        let found = redact_session(&read, &again)?;
        match found.secrets.is_empty() && found.images == 0 {
            true => Ok(()),
            false => {
                let rules = found.secrets.keys().cloned();
                Err(ShareError::Remains(rules.collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

/// Returns an empty database with the token counter of another one. A counter that only the caller knows is not
/// available; the lines of a session are refused then, with the names of both counters.
fn empty_like(store: &dyn SessionStore) -> Result<SqliteStore, ShareError> {
    let options = SqliteOptions::default();
    let options = match counter_named(store.counter().name()) {
        Some(counter) => options.counter(counter),
        None => options,
    };
    Ok(SqliteStore::in_memory_with(options)?)
}

fn lines_of(store: &dyn SessionStore, session: &SessionId) -> Result<Vec<u8>, ShareError> {
    let mut lines = Vec::new();
    export(store, session, None, ExportForm::Lines, &mut lines)?;
    Ok(lines)
}

fn import_lines(
    store: &SqliteStore,
    path: &Path,
    reader: &mut dyn ReadSeek,
) -> Result<(), ShareError> {
    let mut source = Source { path, reader };
    let report = import_source(store, &SessionLines, &mut source, None)?;
    match report.sessions.is_empty() {
        true => Err(StoreError::Invalid("the page has no session".into()).into()),
        false => Ok(()),
    }
}
