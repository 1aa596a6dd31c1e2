//! Confirmation before content is removed permanently, or a file of the user is changed.

use std::io::{self, BufRead, IsTerminal};

use super::error::CliError;
use super::output;

/// Asks for a confirmation on the terminal. Without a terminal, `--yes` is required. The question is built only if it
/// is shown.
pub fn confirm(
    yes: bool,
    question: impl FnOnce() -> Result<String, CliError>,
) -> Result<(), CliError> {
    let refusal = "this permanently removes content; add --yes to confirm";
    ask(yes, refusal, "nothing was removed", question)
}

/// Asks for a confirmation on the terminal. Fails without a terminal and without `--yes`, and with `declined` if the
/// answer is no.
pub fn ask(
    yes: bool,
    refusal: &str,
    declined: &'static str,
    question: impl FnOnce() -> Result<String, CliError>,
) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(CliError::Usage(refusal.into()));
    }
    output::note(&format!("{} Type `yes` to continue:", question()?));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" | "y" => Ok(()),
        _ => Err(CliError::Failed(declined.into())),
    }
}
