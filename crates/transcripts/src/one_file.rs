//! Imports one transcript in one transaction, which also stores its file.

use std::thread;

use loopstore::extend::source::SourceError;
use loopstore::extend::{SessionStore, StoreError, StoreWrite, source};
use loopstore::internal::{LastTurn, SourcePieces};
use loopstore::model::SessionId;

use super::decode::{DecodedSource, read_transcript};
use super::files::ImportOptions;
use super::origin::Origin;
use super::pipeline::ReaderThread;
use super::queue::OpenedTranscript;
use super::report::ImportReport;
use super::writer::StoreSink;
use super::{ImportError, Importer, SessionRestorer, Sink, Source, unread};

/// Imports one transcript in one transaction. With `only`, only this session of the transcript is imported. No copy
/// of the file is kept.
///
/// The report counts sessions, loops, turns and messages, and lists the skipped records. It counts no files.
///
/// # Errors
/// If the importer or the store fails. Nothing is written then.
///
/// # Examples
/// ```
/// use loopstore::Store;
/// use loopstore_transcripts::{OpenAiChat, Source, import_source};
/// use std::io::Cursor;
/// use std::path::Path;
///
/// let mut chat = Cursor::new(r#"[{"role":"user","content":"Will it rain?"}]"#);
/// let mut source = Source { path: Path::new("chat.json"), reader: &mut chat };
/// let store = Store::in_memory()?;
/// let report = import_source(store.database(), &OpenAiChat, &mut source, None)?;
/// assert_eq!((report.sessions.len(), report.messages), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import_source(
    store: &dyn SessionStore,
    importer: &dyn Importer,
    source: &mut Source<'_>,
    only: Option<SessionId>,
) -> Result<ImportReport, ImportError> {
    let options = ImportOptions {
        session: only,
        ..ImportOptions::default()
    };
    import_source_with(store, importer, source, options)
}

/// Imports one transcript as [`import_source`] does, with these options. No copy of the file is kept.
///
/// # Errors
/// As [`import_source`].
pub fn import_source_with(
    store: &dyn SessionStore,
    importer: &dyn Importer,
    source: &mut Source<'_>,
    mut options: ImportOptions,
) -> Result<ImportReport, ImportError> {
    options.without_source = true;
    import_and_keep(store, importer, source, None, &options)
}

/// Imports one transcript in one transaction, and stores its file if the options ask for it.
pub(super) fn import_and_keep(
    store: &dyn SessionStore,
    importer: &dyn Importer,
    source: &mut Source<'_>,
    mut ahead: Option<OpenedTranscript<'_>>,
    options: &ImportOptions,
) -> Result<ImportReport, ImportError> {
    let only = &options.session;
    let origin = Origin::new(importer.format(), source.path);
    let mut result = None;
    let written = store.write(Box::new(|write| {
        let mut import = || -> Result<ImportReport, ImportError> {
            if options.redact && importer.holds_rows() {
                let why = "it holds what is stored, row by row, and cannot be redacted during \
                           import; import it without redaction, then redact the session";
                return Err(ImportError::NoTranscript(why.into()));
            }
            let mut into = SessionRestorer::new(write, store.counter(), only.as_ref());
            if importer.holds_rows() {
                let mut decoded = DecodedSource::without_repairs(source)?;
                if let Some(restored) = importer.restore(&mut decoded.source(source), &mut into) {
                    return restored.map(|()| into.finish());
                }
            }
            let sink = StoreSink::new(write, store.counter(), origin.clone(), only.clone())?;
            let sink = sink
                .redacting(options.redact, &options.redaction)
                .with_last_turn(match importer.rewrites() {
                    true => LastTurn::Open,
                    false => LastTurn::Final,
                });
            let (report, mut pieces) = match ahead.take() {
                Some(opened) => {
                    let mut sink = sink.skipping(opened.skip_encoding);
                    opened.reading.run(&mut sink)?;
                    (sink.finish()?, opened.pieces)
                }
                None => (read_here(importer, source, sink)?, None),
            };
            if options.keeps_files() && !report.sessions.is_empty() {
                let none = &mut std::iter::empty();
                let pieces = match &mut pieces {
                    Some(pieces) => pieces as &mut SourcePieces<'_>,
                    None => none,
                };
                keep(write, source, pieces, importer.format(), &report.sessions)?;
            }
            Ok(report)
        };
        match result.insert(import()) {
            Ok(_) => Ok(()),
            Err(error) => Err(StoreError::Invalid(error.to_string())),
        }
    }));
    if let (Ok(()), Some(Ok(report))) = (&written, &result) {
        for ended in &report.compactions {
            // The import is committed, whatever a hook returns.
            let _ = options.hooks.after(ended);
        }
    }
    match (written, result) {
        (Ok(()), Some(result)) => result,
        (Err(_), Some(Err(error))) => Err(error),
        (Err(error), _) => Err(error.into()),
        (Ok(()), None) => Err(ImportError::Refused(
            "the store did not run the write".into(),
        )),
    }
}

/// Reads a transcript that no thread reads ahead.
fn read_here(
    importer: &dyn Importer,
    source: &mut Source<'_>,
    mut sink: StoreSink<'_>,
) -> Result<ImportReport, ImportError> {
    thread::scope(|scope| {
        let read = |ahead: &mut dyn Sink| read_transcript(importer, source, ahead);
        ReaderThread::start(scope, sink.encoder(), read).run(&mut sink)
    })?;
    sink.finish()
}

/// Stores the file for its sessions.
fn keep(
    write: &mut dyn StoreWrite,
    source: &mut Source<'_>,
    pieces: &mut SourcePieces<'_>,
    format: &str,
    ids: &[SessionId],
) -> Result<(), ImportError> {
    let mut sessions = Vec::new();
    for id in ids {
        sessions.extend(write.session(id)?.map(|row| row.key));
    }
    for session in &sessions {
        // The file contains the texts that were redacted in the session.
        if write.flags(*session)?.redacts {
            return Ok(());
        }
    }
    let whole = source.path.canonicalize();
    let whole = whole.as_deref().unwrap_or(source.path).to_string_lossy();
    let mut file = &mut *source.reader;
    let kept = source::keep_packed(write, &mut file, pieces, format, &whole, &sessions);
    kept.map_err(|error| match error {
        SourceError::Store(error) => error.into(),
        SourceError::Io(error) => unread(source.path)(error),
    })
}
