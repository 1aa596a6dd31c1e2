//! Progress on stderr.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner shows no bar that [`slow_bar`] made.
const SLOW: Duration = Duration::from_secs(1);

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

/// Returns a bar as [`bar`] does, which [`show_if_slow`] shows.
pub fn slow_bar(template: &str) -> ProgressBar {
    let bar = bar(template);
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar
}

/// Shows a bar once it took longer than a second.
pub fn show_if_slow(bar: &ProgressBar) {
    let is_slow = bar.elapsed() > SLOW;
    if is_slow && bar.is_hidden() && std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}
