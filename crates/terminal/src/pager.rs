//! A pager for output that is longer than the terminal.
//!
//! No pager is started before the output exceeds one screen. Existing crates either fork this process or are pagers
//! themselves, while the user's pager is a separate program.

use std::env;
use std::io::{self, IsTerminal, Stdout, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The variable that names the pager of loopstore; `PAGER` applies to many programs.
const OWN: &str = "LOOPSTORE_PAGER";

/// Standard output: direct, held back, or through a pager.
pub enum PagedOutput {
    /// Written directly.
    Plain(Stdout),
    /// Held back while it fits the screen.
    Held(Box<HeldBack>),
    /// Written to the pager.
    Paged(Paged),
}

/// Output that is held back: less than a screen.
pub struct HeldBack {
    bytes: Vec<u8>,
    screen: ScreenFill,
    pager: Command,
}

/// A running pager.
pub struct Paged {
    input: Option<ChildStdin>,
    pager: Child,
}

/// The filled part of a screen.
#[derive(Clone, Copy)]
struct ScreenFill {
    rows: usize,
    columns: usize,
    /// The column in an unfinished line.
    column: usize,
}

impl PagedOutput {
    /// Standard output.
    pub fn plain() -> Self {
        Self::Plain(io::stdout())
    }

    /// Returns standard output that goes through the pager of the environment, if it is a terminal and the output is
    /// longer than the screen.
    pub fn paged() -> Self {
        let is_plain = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_plain || !io::stdout().is_terminal() {
            return Self::plain();
        }
        let named = |name| env::var(name).ok();
        let size = terminal_size::terminal_size();
        match (pager(named(OWN).or_else(|| named("PAGER"))), size) {
            (Some(pager), Some((columns, rows))) if rows.0 > 0 && columns.0 > 0 => {
                Self::Held(Box::new(HeldBack {
                    bytes: Vec::new(),
                    screen: ScreenFill {
                        // The prompt of the shell follows the output.
                        rows: usize::from(rows.0) - 1,
                        columns: usize::from(columns.0),
                        column: 0,
                    },
                    pager,
                }))
            }
            _ => Self::plain(),
        }
    }

    /// Writes the held output, or waits until the user leaves the pager.
    pub fn finish(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::plain()) {
            Self::Plain(_) => self.flush(),
            Self::Held(held) => {
                self.write_all(&held.bytes)?;
                self.flush()
            }
            Self::Paged(mut paged) => {
                // Closes the pipe to the pager.
                drop(paged.input.take());
                paged.pager.wait().map(drop)
            }
        }
    }

    /// Starts the pager, if possible, and passes it the held output.
    fn turn_over(&mut self) -> io::Result<()> {
        let Self::Held(mut held) = std::mem::replace(self, Self::plain()) else {
            return Ok(());
        };
        if let Ok(mut pager) = held.pager.stdin(Stdio::piped()).spawn() {
            // Ctrl-C is for the pager now: if this program ended, the pager and the shell would both read from the
            // terminal.
            let _ = ctrlc::set_handler(|| {});
            let input = pager.stdin.take();
            *self = Self::Paged(Paged { input, pager });
        }
        self.write_all(&held.bytes)
    }
}

/// Returns the command for a pager; `None` if no pager is requested.
fn pager(named: Option<String>) -> Option<Command> {
    let mut pager = match named.as_deref().map(str::trim) {
        Some("" | "cat") => return None,
        Some(line) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        }
        None => {
            let mut less = Command::new("less");
            less.arg("-FRX");
            less
        }
    };
    // The default of git: colours are shown, and output that fits the screen needs no key.
    if env::var_os("LESS").is_none() {
        pager.env("LESS", "FRX");
    }
    Some(pager)
}

impl Write for PagedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Held(held) => {
                held.bytes.extend_from_slice(bytes);
                if !held.screen.fits(bytes) {
                    self.turn_over()?;
                }
                Ok(bytes.len())
            }
            Self::Paged(paged) => match &mut paged.input {
                Some(input) => input.write(bytes),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            // It is not decided yet where the output goes.
            Self::Held(_) | Self::Paged(_) => Ok(()),
        }
    }
}

impl ScreenFill {
    /// Fills the screen with bytes. Returns true if they fit. Bytes count as columns, so that wide letters and colours
    /// may fill the screen early; a pager handles those cases too.
    fn fits(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if *byte == b'\n' || self.column == self.columns {
                let Some(rows) = self.rows.checked_sub(1) else {
                    return false;
                };
                (self.rows, self.column) = (rows, 0);
            }
            if *byte != b'\n' {
                self.column += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(text: &str) -> bool {
        let mut screen = ScreenFill {
            rows: 3,
            columns: 4,
            column: 0,
        };
        text.as_bytes().chunks(2).all(|bytes| screen.fits(bytes))
    }

    #[test]
    fn a_screen_takes_its_lines_and_no_more() {
        assert!(fits("") && fits("a\nb\nc\n") && fits("abcd\nabcd\nabcd\n"));
        assert!(fits("abcdabcd\nb\n"), "a long line takes two");
        assert!(!fits("a\nb\nc\nd\n"));
        assert!(!fits("abcdabcd\nb\nc\n"));
    }

    #[test]
    fn an_empty_pager_and_cat_mean_none() {
        for none in ["", " ", "cat"] {
            assert!(pager(Some(none.into())).is_none());
        }
        let less = pager(None).unwrap();
        assert_eq!(less.get_program(), "less");
        let own = pager(Some("bat -p | more".into())).unwrap();
        assert_eq!(own.get_program(), "sh");
    }
}
