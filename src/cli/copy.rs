//! `loopstore copy`

use std::path::PathBuf;
use std::time::Duration;

use loopstore::copy::{CopyError, CopyReport, copy, copy_at_rest};

use super::error::CliError;
use super::output::note;
use super::{App, Done, progress, text};

/// Bring all sessions into another database: a file or a server, in either direction
///
/// Each session goes with every run, block, undo, kept file and receipt, and is compared byte for byte
/// when it is there. A copy that was cut off goes on where it was, and one that is made again brings what
/// came since. The other database is created if it is not there; what it has of its own stays.
///
/// Agents may go on meanwhile: each session comes as it stood at one moment. --final ends with both the
/// same. Leases stay behind, and so do the marks by which `import` knows a transcript again: import it
/// where it was imported first.
#[derive(clap::Args)]
pub struct Args {
    /// The other database: a file, or `postgres://USER@HOST:PORT/NAME`.
    #[arg(long, value_name = "PATH|URL")]
    to: PathBuf,

    /// In the end bring each session once more while nobody drives it: wait for its agents, take the
    /// leases of its loops, bring what came since, compare, and let go. Writes leases to this database;
    /// killed, it leaves the last one for up to 30 seconds.
    #[arg(long = "final")]
    is_final: bool,

    /// How long --final waits for agents altogether; who still drives a session then is told, and the
    /// command fails.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "is_final"
    )]
    wait: u32,
}

/// Copies and tells how much.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let from = match args.is_final {
        true => app.open_to_write()?,
        false => app.open_to_read()?,
    };
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
    let progress = &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let folder = std::env::temp_dir();
    let copied = match args.is_final {
        true => {
            let patience = Duration::from_secs(args.wait.into());
            copy_at_rest(&*from, &*to, &folder, patience, progress)
        }
        false => copy(&*from, &*to, &folder, progress),
    };
    bar.finish_and_clear();
    let report = copied?;
    complain(&report, &other.place());
    match app.json {
        true => app.out.json(&report)?,
        false => app.out.text(&told(&report))?,
    }
    Ok(match report.is_whole() {
        true => Done::Well,
        false => Done::Badly,
    })
}

fn complain(report: &CopyReport, place: &str) {
    for differing in &report.differ {
        let id = text::line(differing.session.as_str());
        note(&match &differing.reason {
            Some(reason) => format!("error: session {id} is not the same there: {reason}"),
            None => format!("error: session {id} is not the same there"),
        });
    }
    for at_work in &report.at_work {
        note(&format!("error: {}", text::line(&at_work.to_string())));
    }
    if !report.at_work.is_empty() {
        note("hint: end or wait for these agents (--wait), then run the command again");
    }
    for id in &report.erased {
        let (id, place) = (text::line(id.as_str()), text::line(place));
        note(&format!(
            "error: session {id} was erased here and is still there; `loopstore --db {place} erase {id}`"
        ));
    }
}

fn told(report: &CopyReport) -> String {
    let receipts = match report.receipts {
        0 => String::new(),
        count => format!(", {}", text::count(count, "receipt")),
    };
    format!(
        "Copied {}, {} there already{receipts} ({}, {:.1} s).",
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
