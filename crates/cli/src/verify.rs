//! `loopstore verify`

use std::path::{Path, PathBuf};

use loopstore::{OpenError, StoreError};
use loopstore_admin::salvage::{SalvageReport, salvage};
use loopstore_terminal::output::remove_unfinished_copies;
use loopstore_terminal::{App, CliError, Done, progress, text};
use loopstore_verify::{Checked, Head, VerifyReport, take_head, verify, verify_against};
use serde::Serialize;
use serde_json::json;

/// The maximum number of problems in the list.
const LISTED: usize = 50;

/// Check the integrity of the database: every digest, total and reference
///
/// Exits with 3 if there is damage. Nothing is repaired.
///
/// With --salvage, everything readable and intact is copied to a new database, and what is lost is
/// listed: a loop ends before its first damaged message, and a compaction with a damaged block is
/// dropped with all its blocks. Exits with 3 if something was lost. The damaged database is not
/// written to.
///
/// With --head, a short text that identifies all final content is printed instead, to be kept elsewhere. --against
/// checks later that this content is unchanged: it also finds a removed end and a rewritten database.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// Print a text that identifies all final content, to be kept elsewhere.
    #[arg(long, conflicts_with_all = ["salvage", "against"])]
    head: bool,
    /// Check that the content that this text identifies is unchanged.
    #[arg(long, value_name = "HEAD", conflicts_with = "salvage")]
    against: Option<Head>,
    /// Sign the head with the key in this file, or check that it is signed with it.
    #[arg(long, value_name = "FILE", conflicts_with = "salvage")]
    key_file: Option<PathBuf>,
    /// Copy the intact rows to a new database.
    #[arg(long, value_name = "DEST")]
    salvage: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "salvage")]
    force: bool,
}

/// Verifies the database.
pub fn run(app: &mut App, args: &VerifyArgs) -> Result<Done, CliError> {
    if let Some(to) = &args.salvage {
        remove_unfinished_copies(to);
        let report = salvage(&app.db, app.key.as_ref(), to, args.force)?;
        app.print(&report, || salvaged(to, &report))?;
        return Ok(done(report.ok));
    }
    let key = args.key_file.as_deref().map(key_in).transpose()?;
    if args.head {
        let head = take_head(&*app.open_to_write()?, key.as_deref())?.to_string();
        app.print(&json!({ "head": head }), || head.clone())?;
        return Ok(Done::Well);
    }
    let report = match app.open_to_read() {
        Ok(store) => {
            let line = progress::waiting("checking");
            let report = match &args.against {
                Some(head) => verify_against(&*store, head, key.as_deref()),
                None => verify(&*store),
            };
            line.finish_and_clear();
            report
        }
        Err(OpenError::Damaged { detail, .. }) => Err(StoreError::Damaged(detail)),
        Err(error) => return Err(error.into()),
    };
    match report {
        Ok(report) => {
            app.print(&report, || summary(&report))?;
            Ok(done(report.ok))
        }
        Err(StoreError::Damaged(detail)) => unreadable(app, &detail),
        Err(error) => Err(error.into()),
    }
}

/// Reads the key of heads, without its line ending.
fn key_in(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut key = std::fs::read(file)
        .map_err(|error| CliError::Usage(format!("cannot read {}: {error}", file.display())))?;
    let end = key.trim_ascii_end().len();
    key.truncate(end);
    match key.is_empty() {
        true => Err(CliError::Usage(format!("{} is empty", file.display()))),
        false => Ok(key),
    }
}

fn done(ok: bool) -> Done {
    if ok { Done::Well } else { Done::Damaged }
}

fn salvaged(to: &Path, report: &SalvageReport) -> String {
    let lost = report.lost.iter().map(|lost| {
        let place = text::line(&lost.place);
        let (kind, reason) = (text::line(&lost.kind), text::line(&lost.reason));
        format!("lost {kind}: {place}: {reason}")
    });
    let mut lines = text::at_most(lost, LISTED);
    lines.push(format!(
        "Wrote {}, {}, checked.",
        text::line(&to.display().to_string()),
        text::bytes(report.bytes)
    ));
    lines.push(match report.lost.len() as u64 {
        0 => "Nothing was lost.".into(),
        lost => format!("{} lost.", text::count(lost, "item")),
    });
    lines.push(format!("Kept: {}.", counted(report.kept)));
    lines.join("\n")
}

/// Reports a database that is too damaged to be checked.
fn unreadable(app: &mut App, detail: &str) -> Result<Done, CliError> {
    let problem = json!({"kind": "sqlite", "where": "database", "detail": detail});
    let report = json!({"ok": false, "checked": {}, "problems": [problem]});
    app.print(&report, || {
        let detail = text::line(detail);
        format!("Cannot read the database: {detail}. Restore a backup, or try --salvage.")
    })?;
    Ok(Done::Damaged)
}

fn summary(report: &VerifyReport) -> String {
    let problems = report.problems.iter().map(|problem| {
        let (place, detail) = (text::line(&problem.place), text::line(&problem.detail));
        format!("{}: {place}: {detail}", word(&problem.kind))
    });
    let mut lines = text::at_most(problems, LISTED);
    let counts = counted(report.checked);
    lines.push(match report.problems.len() as u64 {
        0 => "No damage found.".into(),
        found => {
            let found = text::count(found, "problem");
            format!("{found} found. Restore a backup, or save what is intact with --salvage.")
        }
    });
    lines.push(format!("Checked: {counts}."));
    if report.unscrubbed {
        lines.push(
            "Bytes of removed content are still in the file: a removal was cut off. The next write removes them."
                .into(),
        );
    }
    lines.extend(report.copies.iter().map(|copy| {
        let (path, bytes) = (copy.path.display().to_string(), text::bytes(copy.bytes));
        format!(
            "Unfinished copy of the database, left by a killed process: {} ({bytes}). The next backup there, or \
             `redact`, removes it.",
            text::line(&path)
        )
    }));
    lines.extend(report.explained.iter().map(|line| text::line(line)));
    if let Some(first) = report.index.first() {
        let first = text::line(first);
        lines.push(format!(
            "The search index is damaged ({first}); `loopstore index --rebuild` rebuilds it."
        ));
    }
    lines.join("\n")
}

fn counted(checked: Checked) -> String {
    let checked = serde_json::to_value(checked).unwrap_or_default();
    let counts = checked.as_object().into_iter().flatten();
    let counts: Vec<String> = counts.map(|(what, n)| format!("{what} {n}")).collect();
    counts.join(", ").replace('_', " ")
}

/// Returns the word for a value in JSON.
fn word(value: &impl Serialize) -> String {
    let word = serde_json::to_value(value).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
