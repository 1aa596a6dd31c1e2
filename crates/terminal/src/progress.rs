//! Progress on stderr.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The duration of work after which [`slow_bar`] shows a bar.
const SLOW: Duration = Duration::from_secs(1);

/// Returns a progress bar on stderr that counts `what`, with the rate and the remaining time. The bar is hidden if
/// stderr is no terminal.
pub fn bar(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template =
        format!("{{bar:30}} {{pos}}/{{len}} {what}, {{rate}}, {{eta}} left  {{wide_msg}}");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style.with_key("rate", rate)),
        Err(_) => bar,
    }
}

/// Returns a progress bar on stderr that counts bytes, with the rate and the remaining time. The bar is hidden if stderr
/// is no terminal.
pub fn bytes_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left  {wide_msg}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // A failure to write is ignored.
    let _ = write!(out, "{:.0}/s", state.per_sec());
}

/// Returns a bar as [`bar`] does, which [`show_if_slow`] shows.
pub fn slow_bar(what: &str) -> ProgressBar {
    let bar = bar(what);
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar
}

/// Returns a spinner on stderr with the elapsed time, for work of unknown length. The spinner is shown after a second,
/// and hidden if stderr is not a terminal.
pub fn waiting(what: &str) -> ProgressBar {
    let bar = ProgressBar::hidden();
    if !std::io::stderr().is_terminal() {
        return bar;
    }
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    let shown = bar.downgrade();
    std::thread::spawn(move || {
        std::thread::sleep(SLOW);
        // Work that has finished no longer has a bar.
        if let Some(bar) = shown.upgrade().filter(|bar| !bar.is_finished()) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(SLOW / 5);
        }
    });
    bar
}

/// Shows a bar after one second.
pub fn show_if_slow(bar: &ProgressBar) {
    let is_slow = bar.elapsed() > SLOW;
    if is_slow && bar.is_hidden() && std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}
