//! `loopstore import --watch`: importing what is added to transcripts, until Ctrl-C.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use loopstore::{Database, StoreError};
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, text, with_causes};
use loopstore_transcripts::{ImportError, ImportOptions, ImportReport, Watch, WatchedImport};
use serde::Serialize;

use super::import::{note_other_conversations, repaired_line, skipped_line, warn_of_unredacted};

/// The time between two passes.
const PAUSE: Duration = Duration::from_millis(500);

/// One line of `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum WatchLine<'a> {
    /// The first pass is done.
    Watching { files: usize },
    /// Part of a file was imported or skipped, or the file is not read.
    Imported {
        file: String,
        #[serde(flatten)]
        report: &'a ImportReport,
    },
    /// A file could not be imported.
    Failed { file: String, reason: String },
    /// The watch has ended.
    Stopped { added_messages: u64 },
}

/// Watches the paths and prints what was imported.
pub fn run(
    app: &mut App,
    store: &dyn Database,
    paths: &[PathBuf],
    options: ImportOptions,
) -> Result<Done, CliError> {
    let (stop, stopped) = channel();
    let flag = Arc::new(AtomicBool::new(false));
    let own = flag.clone();
    let handler = move || {
        own.store(true, Ordering::Relaxed);
        // The receiver is gone if the program is ending anyway.
        let _ = stop.send(());
    };
    ctrlc::set_handler(handler).map_err(|error| CliError::Failed(Box::new(error)))?;
    let stops = || flag.load(Ordering::Relaxed);
    let mut watch = Watch::new(paths.to_vec(), options);
    let mut printer = Printer {
        app,
        named: paths,
        added: 0,
    };
    let mut is_first = true;
    while !stops() {
        let mut result = Ok(());
        watch.look(store, &stops, &mut |progress| {
            if result.is_ok() {
                result = printer.progress(&progress);
            }
        });
        result?;
        if std::mem::take(&mut is_first) {
            printer.begun(watch.files())?;
        }
        if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    printer.ended()?;
    Ok(Done::Well)
}

/// Prints events at once.
struct Printer<'a> {
    app: &'a mut App,
    /// The paths that the user named; others were found in folders.
    named: &'a [PathBuf],
    added: u64,
}

impl Printer<'_> {
    fn begun(&mut self, files: usize) -> Result<(), CliError> {
        if self.app.json {
            return self.line(&WatchLine::Watching { files });
        }
        let files = text::count(files as u64, "file");
        note(&format!("Watching {files}; press Ctrl-C to stop."));
        Ok(())
    }

    fn progress(&mut self, progress: &WatchedImport) -> Result<(), CliError> {
        match &progress.result {
            Ok(report) => {
                self.added += report.added_messages;
                self.imported(progress, report)
            }
            Err(error) => self.failed(progress, error),
        }
    }

    fn imported(
        &mut self,
        progress: &WatchedImport,
        report: &ImportReport,
    ) -> Result<(), CliError> {
        let file = progress.path.display().to_string();
        if self.app.json {
            return self.line(&WatchLine::Imported { file, report });
        }
        if report.added_messages > 0 || report.revised > 0 {
            let ids: Vec<String> = report
                .sessions
                .iter()
                .map(|id| text::line(id.as_str()))
                .collect();
            let line = format!(
                "{}: {} new (session {})",
                text::line(&file),
                text::count(report.added_messages, "message"),
                ids.join(", "),
            );
            self.app.out.text(&line)?;
            self.app.out.flush()?;
        }
        warn_of_unredacted(report);
        note_other_conversations(report);
        for skipped in &report.skipped {
            note(&format!("skipped: {}", skipped_line(skipped)));
        }
        for unread in &report.unread {
            note(&format!("not read: {}", skipped_line(unread)));
        }
        for repaired in &report.repaired {
            note(&format!("repaired: {}", repaired_line(repaired)));
        }
        Ok(())
    }

    /// A file in a folder that is not a transcript is not a failure.
    fn failed(&mut self, progress: &WatchedImport, error: &ImportError) -> Result<(), CliError> {
        if let ImportError::Store(StoreError::FileReplaced) = error {
            // A replaced file stays replaced.
            return Err(StoreError::FileReplaced.into());
        }
        let is_named = self.named.contains(&progress.path);
        if matches!(error, ImportError::NoTranscript(_)) && !is_named {
            return Ok(());
        }
        let (file, reason) = (progress.path.display().to_string(), with_causes(error));
        if self.app.json {
            return self.line(&WatchLine::Failed { file, reason });
        }
        note(&format!("{}: {}", text::line(&file), text::line(&reason)));
        Ok(())
    }

    fn ended(&mut self) -> Result<(), CliError> {
        if self.app.json {
            let added_messages = self.added;
            return self.line(&WatchLine::Stopped { added_messages });
        }
        let added = text::count(self.added, "message");
        note(&format!("Stopped: {added} imported."));
        Ok(())
    }

    /// Prints a line of JSON and flushes it.
    fn line(&mut self, line: &WatchLine<'_>) -> Result<(), CliError> {
        self.app.out.json_line(line)?;
        self.app.out.flush()
    }
}
