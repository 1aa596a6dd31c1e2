//! `loopstore copy`

use std::path::PathBuf;

use loopstore::copy::{CopyError, CopyReport, copy};

use super::error::CliError;
use super::output::note;
use super::{App, Done, progress, text};

/// Bring all sessions into another database: a file or a server, in either direction
///
/// Each session goes with every run, block and undo, and is compared byte for byte when it is there. A
/// copy that was cut off goes on where it was, and one that is made again brings what came since. The
/// other database is created if it is not there.
#[derive(clap::Args)]
pub struct Args {
    /// The other database: a file, or `postgres://USER@HOST:PORT/NAME`.
    #[arg(long, value_name = "PATH|URL")]
    to: PathBuf,
}

/// Copies and tells how much.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let from = app.open_to_read()?;
    let other = App {
        db: args.to.clone(),
        json: app.json,
        key: app.key.clone(),
        out: super::Out::new(),
    };
    let to = other.open_or_create(from.counter().name())?;
    if from.place() == to.place() {
        return Err(CliError::Usage("a database is not copied to itself".into()));
    }
    let bar = progress::bar("sessions");
    let copied = copy(&*from, &*to, &std::env::temp_dir(), &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = copied?;
    for id in &report.differ {
        note(&format!(
            "error: session {} is not the same there",
            text::line(id.as_str())
        ));
    }
    match app.json {
        true => app.out.json(&report)?,
        false => app.out.text(&told(&report))?,
    }
    Ok(match report.differ.is_empty() {
        true => Done::Well,
        false => Done::Badly,
    })
}

fn told(report: &CopyReport) -> String {
    format!(
        "Copied {}, {} there already ({}, {:.1} s).",
        text::count(report.copied, "session"),
        text::number(report.same),
        text::bytes(report.bytes),
        report.seconds
    )
}

impl From<CopyError> for CliError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Store(error) => error.into(),
            CopyError::Export(error) => error.into(),
            CopyError::Import(error) => error.into(),
            other => Self::Failed(Box::new(other)),
        }
    }
}
