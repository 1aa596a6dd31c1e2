//! `loopstore verify`

use loopstore::inspect::{VerifyReport, verify};
use loopstore::{OpenError, StoreError};
use serde::Serialize;
use serde_json::json;

use super::error::CliError;
use super::{App, Done, text};

/// How many problems are told to people one by one.
const LISTED: usize = 50;

/// Check that the database is what it was: every digest, total and reference
///
/// Exits with 3 if there is damage. Nothing is repaired.
#[derive(clap::Args)]
pub struct Args {}

/// Verifies the database.
pub fn run(app: &mut App, _: &Args) -> Result<Done, CliError> {
    let report = match app.open_to_read() {
        Ok(store) => verify(&store),
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

/// Tells of a database that is too damaged to be checked.
fn unreadable(app: &mut App, detail: &str) -> Result<Done, CliError> {
    let problem = json!({"kind": "sqlite", "where": "database", "detail": detail});
    if app.json {
        app.out
            .json(&json!({"ok": false, "checked": {}, "problems": [problem]}))?;
    } else {
        let detail = text::line(detail);
        app.out.text(&format!(
            "The database cannot be read: {detail}. Restore a backup."
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
    let checked = serde_json::to_value(report.checked)?;
    let counts = checked.as_object().into_iter().flatten();
    let counts: Vec<String> = counts.map(|(what, n)| format!("{what} {n}")).collect();
    let counts = counts.join(", ").replace('_', " ");
    lines.push(match report.problems.len() as u64 {
        0 => "No damage found.".into(),
        found => format!("{} found. Restore a backup.", text::count(found, "problem")),
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

/// Returns the word that stands for a value in JSON.
fn word(value: &impl Serialize) -> Result<String, CliError> {
    Ok(serde_json::to_value(value)?
        .as_str()
        .unwrap_or_default()
        .to_owned())
}
