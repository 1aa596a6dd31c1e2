//! The terminal browser of loopstore: sessions, loops, turns, compactions and a search, on one screen.
//!
//! [`run`] uses the terminal until the user quits. The module `state` has the state of the screens and its changes by
//! keys, without a terminal and without a store. `data` reads the content of a screen from the store, and `draw`
//! draws it. A new screen needs a variant of `Screen`, a request in `data` and a function in `draw`.
//!
//! The crate only reads, unless an undo, a redo or an edit is confirmed. It parses no arguments: `loopstore-cli` does.
//! `loopstore-report` writes pages for a browser.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cursor;
mod data;
mod draw;
mod lists;
mod loops;
mod reader;
mod session;
mod signals;
mod state;
#[cfg(test)]
mod tests;
mod turns;

use std::io::{self, IsTerminal};

use loopstore::failpoints::{self, Failpoint};
use loopstore_terminal::{App, CliError, Done, output, select, with_causes};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::data::Data;
use self::draw::Palette;
use self::state::{Browser, KeyPress};

/// The error of a process without a terminal.
#[derive(Debug, thiserror::Error)]
#[error("`browse` needs a terminal for input and output")]
pub struct NoTerminal;

/// Shows the list of sessions, or the given session, until the user quits.
///
/// # Errors
/// If there is no terminal, the database cannot be read, or the session does not exist.
pub fn run(app: &mut App, session: Option<&str>) -> Result<Done, CliError> {
    if app.json {
        let text = "`browse` does not support --json; use `loopstore show SESSION --json`";
        return Err(CliError::Usage(text.into()));
    }
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(CliError::Failed(Box::new(NoTerminal)));
    }
    let open = |writes: bool| app.open_for(writes);
    let mut data = Data::new(&open)?;
    let session = match session {
        Some(given) => Some(select::session(data.store()?, given)?.session_id),
        None => None,
    };
    let palette = Palette::new(output::takes_colours());
    // Created before the screen is taken: it restores the terminal in every case, and the hook that `try_init` sets
    // before a panic is reported.
    let _guard = Guard;
    signals::watch()?;
    let mut terminal = ratatui::try_init()?;
    let size = terminal.size()?;
    let mut browser = Browser::new(app.place(), session, (size.width, size.height));
    browse(&mut terminal, &mut browser, &mut data, palette)?;
    Ok(Done::Well)
}

/// Restores the terminal on drop.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        // In a panic the hook has done it; doing it again would move the cursor over the report.
        if !std::thread::panicking() {
            // If that fails, nothing can be shown.
            let _ = ratatui::try_restore();
        }
    }
}

fn browse(
    terminal: &mut DefaultTerminal,
    browser: &mut Browser,
    data: &mut Data<'_>,
    palette: Palette,
) -> io::Result<()> {
    while !browser.is_over {
        fill(browser, data);
        {
            let _screen = signals::screen();
            terminal.draw(|frame| draw::draw(frame, browser, palette))?;
        }
        match event::read()? {
            Event::Key(pressed) => {
                if let Some(key) = key_of(pressed) {
                    if key == KeyPress::Again && failpoints::is_active(Failpoint::Panic) {
                        #[expect(clippy::panic, reason = "a fault that tests build in")]
                        std::panic::panic_any("a fault that is built in");
                    }
                    browser.press(key);
                }
            }
            Event::Resize(width, height) => browser.resize((width, height)),
            _ => {}
        }
    }
    Ok(())
}

/// Reads the missing content of the screen.
fn fill(browser: &mut Browser, data: &mut Data<'_>) {
    while let Some(want) = browser.next_request() {
        match data.read(&want) {
            Ok(found) => browser.apply(found),
            Err(CliError::Failed(error)) => browser.fail(with_causes(&*error)),
            Err(CliError::Usage(why)) => browser.fail(why),
            Err(CliError::Pipe) => browser.fail("the terminal is gone".into()),
        }
    }
}

fn key_of(pressed: KeyEvent) -> Option<KeyPress> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if control => KeyPress::Stop,
        KeyCode::Char('l') if control => KeyPress::Again,
        KeyCode::Char('d' | 'f') if control => KeyPress::PageDown,
        KeyCode::Char('u' | 'b') if control => KeyPress::PageUp,
        KeyCode::Char(c) if !control => KeyPress::Char(c),
        KeyCode::F(5) => KeyPress::Again,
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::Left => KeyPress::Left,
        KeyCode::Right => KeyPress::Right,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Tab | KeyCode::BackTab => KeyPress::Tab,
        KeyCode::Esc => KeyPress::Escape,
        KeyCode::Backspace => KeyPress::Erase,
        _ => return None,
    })
}
