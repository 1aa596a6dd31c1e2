//! Output: results on stdout, notes on stderr, files.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anstyle::AnsiColor;
use loopstore::Database;
use loopstore::search::SearchError;
use loopstore_admin::backup::is_part_of;
use loopstore_files::copies::UnfinishedCopy;
use loopstore_files::{WholeFile, unfinished_files};
use serde::Serialize;

use super::pager::PagedOutput;
use super::table::TextTable;
use super::{App, CliError, text};

/// Standard output, written in large pieces.
pub struct Out {
    writer: BufWriter<PagedOutput>,
    has_begun: bool,
}

impl Out {
    /// Returns standard output without a pager.
    pub fn plain() -> Self {
        Self::of(PagedOutput::plain())
    }

    /// Returns standard output, which a pager shows if it is longer than the terminal.
    pub fn paged() -> Self {
        Self::of(PagedOutput::paged())
    }

    fn of(output: PagedOutput) -> Self {
        Self {
            writer: BufWriter::with_capacity(64 << 10, output),
            has_begun: false,
        }
    }

    /// True if anything was printed.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the writer, to print something.
    fn begun(&mut self) -> &mut BufWriter<PagedOutput> {
        self.has_begun = true;
        &mut self.writer
    }

    /// Prints lines for people. Control characters of a transcript are escaped.
    pub fn text(&mut self, lines: &str) -> Result<(), CliError> {
        self.begun().write_all(text::clean(lines).as_bytes())?;
        Ok(self.begun().write_all(b"\n")?)
    }

    /// Prints a line for people in a colour, if the terminal takes colours.
    pub fn coloured(&mut self, line: &str, colour: Option<AnsiColor>) -> Result<(), CliError> {
        match colour.filter(|_| takes_colours()) {
            None => self.text(line),
            Some(colour) => {
                let style = colour.on_default();
                Ok(writeln!(
                    self.begun(),
                    "{style}{}{style:#}",
                    text::clean(line)
                )?)
            }
        }
    }

    /// Prints a table within the width of the terminal.
    pub fn table(&mut self, table: &TextTable) -> Result<(), CliError> {
        self.text(&table.lines(width()))
    }

    /// Prints one JSON document.
    pub fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), CliError> {
        serde_json::to_writer_pretty(self.begun(), value)?;
        Ok(self.begun().write_all(b"\n")?)
    }

    /// Prints bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        Ok(self.begun().write_all(bytes)?)
    }

    /// Writes an element of a JSON array. `first` is true for the first element.
    pub fn element(
        &mut self,
        first: bool,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), CliError> {
        self.begun()
            .write_all(if first { b"[\n" } else { b",\n" })?;
        Ok(serde_json::to_writer(self.begun(), value)?)
    }

    /// Ends an array that [`Out::element`] began, or writes an empty one.
    pub fn end_elements(&mut self, is_empty: bool) -> Result<(), CliError> {
        Ok(self
            .begun()
            .write_all(if is_empty { b"[]\n" } else { b"\n]\n" })?)
    }

    /// Prints a line of JSON.
    pub fn json_line(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), CliError> {
        serde_json::to_writer(self.begun(), value)?;
        Ok(self.begun().write_all(b"\n")?)
    }

    /// Returns the writer of stdout.
    pub fn writer(&mut self) -> &mut dyn Write {
        self.begun()
    }

    /// Writes everything that is buffered.
    pub fn flush(&mut self) -> Result<(), CliError> {
        Ok(self.writer.flush()?)
    }

    /// Writes everything that is buffered, and waits for the pager.
    pub fn finish(&mut self) -> Result<(), CliError> {
        let flushed = self.writer.flush();
        self.writer.get_mut().finish()?;
        Ok(flushed?)
    }
}

/// True if stdout is a terminal that takes colours, and nothing in the environment forbids them.
pub fn takes_colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Writes a file, replacing it, but never the database.
///
/// # Errors
/// If the file is the database, or cannot be written.
pub fn write_file(app: &App, path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |why: &dyn std::fmt::Display| {
        let text = format!("cannot write {}: {why}", path.display());
        CliError::Failed(text.into())
    };
    let whole = |path: &Path| path.canonicalize().ok();
    if whole(path).is_some_and(|path| Some(path) == whole(&app.db)) {
        return Err(failed(&"it is the database"));
    }
    std::fs::write(path, bytes).map_err(|error| failed(&error))
}

/// Fails if a file is the database, or exists and `force` is not set.
///
/// # Errors
/// If the file must not be written.
pub fn check_target(app: &App, path: &Path, force: bool) -> Result<(), CliError> {
    if is_part_of(path, &app.db) {
        return Err(cannot_write(path, &"it is the database"));
    }
    if !force && path.symlink_metadata().is_ok() {
        let why = "it already exists; use another name, or --force to replace it";
        return Err(cannot_write(path, &why));
    }
    Ok(())
}

/// Writes a file whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub fn write_whole_file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    remove_unfinished_copies(path);
    let written = WholeFile::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.finish()
    });
    written.map_err(|error| cannot_write(path, &error))
}

/// Returns the error of a file that cannot be written.
pub fn cannot_write(path: &Path, why: &dyn std::fmt::Display) -> CliError {
    let shown = text::line(&path.display().to_string());
    CliError::Failed(format!("cannot write {shown}: {why}").into())
}

/// Returns a text that has at most the given number of tokens in its final form: with the text around it, and escaped
/// for a terminal.
pub fn within(
    store: &dyn Database,
    most: Option<u64>,
    around: &str,
    mut make: impl FnMut(Option<u64>) -> Result<String, SearchError>,
) -> Result<String, CliError> {
    let Some(most) = most else {
        return Ok(make(None)?);
    };
    let around = store.counter().text_tokens(around);
    let mut given = most.saturating_sub(around);
    loop {
        let text = make(Some(given)).map_err(|error| match error {
            // The texts around the answer use the rest.
            SearchError::TooFewTokens { needed, .. } => SearchError::TooFewTokens {
                needed: needed.saturating_add(around.max(most - given)),
                given: most,
            },
            other => other,
        })?;
        let tokens = store.counter().text_tokens(&text::clean(&text));
        if tokens <= most {
            return Ok(text);
        }
        if given == 0 {
            let (needed, given) = (tokens, most);
            return Err(SearchError::TooFewTokens { needed, given }.into());
        }
        let share = u128::from(given) * u128::from(most) / u128::from(tokens);
        given = u64::try_from(share).unwrap_or(given).min(given - 1);
    }
}

/// A writer that counts the bytes written.
pub struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W> Counted<W> {
    /// Returns a writer that has counted no bytes.
    pub fn new(out: W) -> Self {
        Self { out, bytes: 0 }
    }

    /// Returns the inner writer, and the number of bytes written.
    pub fn into_parts(self) -> (W, u64) {
        (self.out, self.bytes)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Removes unfinished files of killed processes from the folder of a new file, and prints a note about each of them.
pub fn remove_unfinished_copies(path: &Path) {
    let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(folder) = folder.parent() else {
        return;
    };
    for file in unfinished_files(folder) {
        let (path, bytes) = (file.path.clone(), file.bytes);
        let removed = file.remove().is_ok();
        note_unfinished(&path, bytes, removed);
    }
}

/// Prints a note about each unfinished copy of a database that a removal found.
pub fn note_copies(copies: &[UnfinishedCopy]) {
    for copy in copies {
        note_unfinished(&copy.path, copy.bytes, copy.removed);
    }
}

fn note_unfinished(path: &Path, bytes: u64, removed: bool) {
    let (path, bytes) = (text::line(&path.display().to_string()), text::bytes(bytes));
    note(&match removed {
        true => format!("removed {path} ({bytes}), which a killed process left half written"),
        false => format!(
            "warning: {path} ({bytes}) was left half written by a killed process; remove it"
        ),
    });
}

/// Prints a note on stderr. Failing to write there is not an error.
pub fn note(lines: &str) {
    let _ = writeln!(io::stderr(), "{}", text::clean(lines));
}

/// Returns the maximum width of lines: the width of the terminal, else the value of `COLUMNS`, else no limit.
pub fn width() -> Option<usize> {
    let from_env = || std::env::var("COLUMNS").ok()?.parse().ok();
    if !io::stdout().is_terminal() {
        return from_env();
    }
    match terminal_size::terminal_size() {
        Some((terminal_size::Width(width), _)) => Some(usize::from(width)),
        None => from_env(),
    }
}
