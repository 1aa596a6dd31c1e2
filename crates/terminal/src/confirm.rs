//! Confirmation before content is removed for good, or a file of the user is changed.

use std::io::{self, BufRead, IsTerminal};

use super::error::CliError;
use super::output;

/// Asks on the terminal whether to continue; without one, `--yes` must be given. The question is put
/// together only if it is asked.
pub fn confirm(
    yes: bool,
    question: impl FnOnce() -> Result<String, CliError>,
) -> Result<(), CliError> {
    let refusal = "this permanently removes content; add --yes to confirm";
    ask(yes, refusal, "nothing was removed", question)
}

/// Asks on the terminal whether to continue. Without one, and without `--yes`, it is refused; where the answer
/// is no, it is `declined`.
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
