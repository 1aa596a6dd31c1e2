//! `loopstore eval recall`

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use loopstore::model::Role;
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done};

use super::{bad_file, distinct, read_text};
use crate::{RecallCase, search_recall};

/// Measure the share of questions whose evidence a search finds among its first results
///
/// Each file is JSON: {"sessions": [{"id": "s1", "messages": [{"id": "m1", "author": "user", "text": "…"}]}],
/// "questions": [{"question": "…", "evidence": ["m1"]}]}. The messages of a file are stored in memory, and each
/// question is searched as `search` does, by messages and by sessions. `any` counts the questions of whose evidence
/// one is found, `all` those of whose evidence all are found. Questions without evidence are skipped and counted. The
/// database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalRecallArgs {
    /// Files with sessions and questions.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A number of first results; may be repeated.
    #[arg(long, value_name = "N", default_values = ["1", "5", "10"], value_parser = clap::value_parser!(u16).range(1..))]
    at: Vec<u16>,
    /// Only search for messages of this role.
    #[arg(long, value_name = "ROLE", value_parser = role())]
    role: Option<Role>,
}

fn role() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["user", "assistant"]).map(|word| match word.as_str() {
        "user" => Role::User,
        _ => Role::Assistant,
    })
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalRecallArgs) -> Result<Done, CliError> {
    let mut cases = Vec::new();
    for path in &args.files {
        let read = RecallCase::from_json(&read_text(path)?);
        cases.push(read.map_err(|error| bad_file(path, error))?);
    }
    let mut at: Vec<usize> = distinct(args.at.iter().map(|at| usize::from(*at)));
    at.sort_unstable();
    let report = search_recall(&cases, &at, args.role);
    let report = report.map_err(|error| CliError::Failed(error.into()))?;
    app.print(&report, || report.table().trim_end().to_owned())?;
    if report.questions == 0 {
        note("note: no question has evidence, so the figures say nothing");
    }
    Ok(Done::Well)
}
