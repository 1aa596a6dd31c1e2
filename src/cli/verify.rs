//! `loopstore verify`

use std::path::{Path, PathBuf};

use loopstore::inspect::{Checked, VerifyReport, verify};
use loopstore::salvage::{SalvageReport, salvage};
use loopstore::{OpenError, StoreError};
use serde::Serialize;
use serde_json::json;

use super::error::CliError;
use super::{App, Done, progress, text};

/// How many problems are told to people one by one.
const LISTED: usize = 50;

/// Check that the database is what it was: every digest, total and reference
///
/// Exits with 3 if there is damage. Nothing is repaired.
///
/// With --salvage, what can still be read and is whole goes into a new database, and what does not
/// is listed: a loop ends before its first message that is damaged, a compaction goes with all its
/// blocks if one of them is damaged. The exit code is 3 if something was lost. The damaged database
/// is not written to.
#[derive(clap::Args)]
pub struct Args {
    /// Copy what is whole into a new database.
    #[arg(long, value_name = "DEST")]
    salvage: Option<PathBuf>,
    /// Replace a file of that name.
    #[arg(long, requires = "salvage")]
    force: bool,
}

/// Verifies the database.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    if let Some(to) = &args.salvage {
        let report = salvage(&app.db, app.key.as_ref(), to, args.force)?;
        return print_salvaged(app, to, &report);
    }
    let report = match app.open_to_read() {
        Ok(store) => {
            let line = progress::waiting("checking");
            let report = verify(&*store);
            line.finish_and_clear();
            report
        }
        Err(OpenError::Damaged { detail, .. }) => Err(StoreError::Damaged(detail)),
        Err(error) => return Err(error.into()),
    };
    match report {
        Ok(report) => print(app, &report),
        Err(StoreError::Damaged(detail)) => unreadable(app, &detail),
        Err(error) => Err(error.into()),
    }
}

fn print(app: &mut App, report: &VerifyReport) -> Result<Done, CliError> {
    if app.json {
        app.out.json(report)?;
    } else {
        app.out.text(&told(report)?)?;
    }
    Ok(if report.ok { Done::Well } else { Done::Damaged })
}

fn print_salvaged(app: &mut App, to: &Path, report: &SalvageReport) -> Result<Done, CliError> {
    if app.json {
        app.out.json(report)?;
    } else {
        app.out.text(&salvaged(to, report)?)?;
    }
    Ok(if report.ok { Done::Well } else { Done::Damaged })
}

fn salvaged(to: &Path, report: &SalvageReport) -> Result<String, CliError> {
    let mut lines = Vec::new();
    for lost in report.lost.iter().take(LISTED) {
        let place = text::line(&lost.place);
        let (kind, reason) = (text::line(&lost.kind), text::line(&lost.reason));
        lines.push(format!("lost {kind}: {place}: {reason}"));
    }
    if report.lost.len() > LISTED {
        let more = text::number((report.lost.len() - LISTED) as u64);
        lines.push(format!("and {more} more; --json lists them"));
    }
    lines.push(format!(
        "Wrote {}, {}, checked.",
        text::line(&to.display().to_string()),
        text::bytes(report.bytes)
    ));
    lines.push(match report.lost.len() as u64 {
        0 => "Nothing was lost.".into(),
        lost => format!("{} lost.", text::count(lost, "thing")),
    });
    lines.push(format!("Kept: {}.", counted(report.kept)?));
    Ok(lines.join("\n"))
}

/// Tells of a database that is too damaged to be checked.
fn unreadable(app: &mut App, detail: &str) -> Result<Done, CliError> {
    let problem = json!({"kind": "sqlite", "where": "database", "detail": detail});
    if app.json {
        app.out
            .json(&json!({"ok": false, "checked": {}, "problems": [problem]}))?;
    } else {
        let detail = text::line(detail);
        app.out.text(&format!(
            "The database cannot be read: {detail}. Restore a backup, or try --salvage."
        ))?;
    }
    Ok(Done::Damaged)
}

fn told(report: &VerifyReport) -> Result<String, CliError> {
    let mut lines = Vec::new();
    for problem in report.problems.iter().take(LISTED) {
        let place = text::line(&problem.place);
        lines.push(format!(
            "{}: {place}: {}",
            word(&problem.kind)?,
            text::line(&problem.detail)
        ));
    }
    if report.problems.len() > LISTED {
        let more = text::number((report.problems.len() - LISTED) as u64);
        lines.push(format!("and {more} more; --json lists them"));
    }
    let counts = counted(report.checked)?;
    lines.push(match report.problems.len() as u64 {
        0 => "No damage found.".into(),
        found => {
            let found = text::count(found, "problem");
            format!("{found} found. Restore a backup, or save what is whole with --salvage.")
        }
    });
    lines.push(format!("Checked: {counts}."));
    lines.extend(report.explained.iter().map(|line| text::line(line)));
    if let Some(first) = report.index.first() {
        let first = text::line(first);
        lines.push(format!(
            "The search index is damaged ({first}); `loopstore index --rebuild` makes it anew."
        ));
    }
    Ok(lines.join("\n"))
}

fn counted(checked: Checked) -> Result<String, CliError> {
    let checked = serde_json::to_value(checked)?;
    let counts = checked.as_object().into_iter().flatten();
    let counts: Vec<String> = counts.map(|(what, n)| format!("{what} {n}")).collect();
    Ok(counts.join(", ").replace('_', " "))
}

/// Returns the word that stands for a value in JSON.
fn word(value: &impl Serialize) -> Result<String, CliError> {
    Ok(serde_json::to_value(value)?
        .as_str()
        .unwrap_or_default()
        .to_owned())
}
