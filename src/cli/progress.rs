//! Progress on stderr.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner shows no bar that [`slow_bar`] made.
const SLOW: Duration = Duration::from_secs(1);

/// Returns a bar on stderr that counts `what`, with its rate and the time that is left; hidden if that is
/// no terminal.
pub fn bar(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template =
        format!("{{bar:30}} {{pos}}/{{len}} {what}, {{per_sec}}, {{eta}} left  {{wide_msg}}");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Returns a bar as [`bar`] does, which [`show_if_slow`] shows.
pub fn slow_bar(what: &str) -> ProgressBar {
    let bar = bar(what);
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar
}

/// Returns a line on stderr that says how long something takes of which nobody knows how much is left;
/// hidden if that is no terminal.
pub fn waiting(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_message(what.to_owned());
    let bar = match ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    bar.enable_steady_tick(SLOW / 5);
    bar
}

/// Shows a bar once it took longer than a second.
pub fn show_if_slow(bar: &ProgressBar) {
    let is_slow = bar.elapsed() > SLOW;
    if is_slow && bar.is_hidden() && std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}
