//! Progress on stderr.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar on stderr, hidden if that is no terminal; `template` is in indicatif's words.
pub fn bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
