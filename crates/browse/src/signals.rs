//! Signals that end the program: the terminal is given back first.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Held by whoever draws.
static SCREEN: Mutex<()> = Mutex::new(());

/// Keeps signals from ending the program in the middle of what is drawn.
pub fn screen() -> MutexGuard<'static, ()> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program at a signal as it would end without this, but leaves the terminal as it was. On a
/// thread of its own, as the other one may be at a long query.
pub fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let end = move || {
        if let Some(signal) = signals.forever().next() {
            // Not let go: nothing is drawn any more.
            let _screen = screen();
            let _ = ratatui::try_restore();
            let _ = execute!(io::stdout(), Show);
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(end)
        .map(drop)
}
