//! Signals that end the program: the terminal is restored first.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Locked while the screen is drawn.
static SCREEN: Mutex<()> = Mutex::new(());

/// Locks the screen, so that no signal ends the program while it is drawn.
pub fn screen() -> MutexGuard<'static, ()> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program at a signal as by default, but restores the terminal first. This runs on a separate thread, since
/// the main one may be in a long query.
pub fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let end = move || {
        if let Some(signal) = signals.forever().next() {
            // Never released, so that nothing is drawn any more.
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
