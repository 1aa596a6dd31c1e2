//! Asking before something is removed for good.

use std::io::{self, BufRead, IsTerminal};

use super::error::CliError;
use super::output;

/// Asks on the terminal whether to continue; without one, `--yes` must be given. The question is put
/// together only if it is asked.
pub fn confirm(
    yes: bool,
    question: impl FnOnce() -> Result<String, CliError>,
) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let text = "this permanently removes content; add --yes to confirm";
        return Err(CliError::Usage(text.into()));
    }
    output::note(&format!("{} Type `yes` to continue:", question()?));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" | "y" => Ok(()),
        _ => Err(CliError::Failed("nothing was removed".into())),
    }
}
