//! The state that every command has: the database that it is called with, and its output.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use loopstore::{Database, Key, OpenError, SqliteOptions, SqliteStore, counter_named};
use serde::Serialize;

use super::CliError;
use super::folders;
use super::output::{Out, note};
use super::server::{self, Access};
use super::text;

/// The reason why a command uses its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseSource {
    /// An option names it.
    Option,
    /// The variable `LOOPSTORE_DB` names it.
    Environment,
    /// It is the file `loopstore.db` in the current folder or in one above.
    Found,
    /// It is the database of the user.
    Default,
}

/// The outcome of a command that printed its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The command succeeded.
    Well,
    /// The command did not succeed; its output has the reason.
    Badly,
    /// The database is damaged.
    Damaged,
}

/// A function that returns the hint for an error, if there is one. Hints name commands, so the command line supplies
/// them.
pub type Hints = fn(&(dyn Error + 'static)) -> Option<&'static str>;

/// The database and the output of a command.
pub struct App {
    /// The database: a file, or the address of a server.
    pub db: PathBuf,
    /// The reason why it is this one.
    pub source: DatabaseSource,
    /// The key of an encrypted database.
    pub key: Option<Key>,
    /// The options that name the source of the key, for other programs.
    pub key_args: Vec<String>,
    /// True if results are printed as JSON.
    pub json: bool,
    /// Standard output.
    pub out: Out,
    hints: Hints,
}

impl App {
    /// Returns the state of a command. Without `db` the environment names the database, else it is found in the folders
    /// from the current one upwards, else it is the database of the user.
    pub fn new(
        db: Option<PathBuf>,
        key: Option<Key>,
        key_args: Vec<String>,
        json: bool,
        out: Out,
    ) -> Self {
        let (db, source) = database(db);
        let mut app = Self {
            db,
            source,
            key,
            key_args,
            json,
            out,
            hints: |_| None,
        };
        if app.address().is_some() {
            // A key in the environment is meant for files.
            app.key = None;
        }
        app
    }

    /// True if an option or the environment names the database.
    pub fn is_named(&self) -> bool {
        matches!(
            self.source,
            DatabaseSource::Option | DatabaseSource::Environment
        )
    }

    /// Returns the same state with hints for errors.
    pub fn with_hints(self, hints: Hints) -> Self {
        Self { hints, ..self }
    }

    /// Returns the state of a command with another database, under the same key.
    pub fn with_database(&self, db: PathBuf) -> Self {
        Self::new(Some(db), self.key.clone(), Vec::new(), false, Out::plain())
            .with_hints(self.hints)
    }

    /// Returns the hint for an error, if there is one.
    pub fn hint(&self, error: &CliError) -> Option<&'static str> {
        error.hint(self.hints)
    }

    /// Opens the database with the token counter that it was written with.
    pub fn open(&self, access: Access<'_>) -> Result<Box<dyn Database>, OpenError> {
        match self.address() {
            Some(address) => server::open(address, access),
            None => Ok(Box::new(self.open_file(access)?)),
        }
    }

    /// Opens an existing database for reading.
    pub fn open_to_read(&self) -> Result<Box<dyn Database>, OpenError> {
        self.open(Access::Read)
    }

    /// Opens an existing database for writing.
    pub fn open_to_write(&self) -> Result<Box<dyn Database>, OpenError> {
        self.open(Access::Write)
    }

    /// Opens an existing database for writing or for reading.
    pub fn open_for(&self, writes: bool) -> Result<Box<dyn Database>, OpenError> {
        self.open(if writes { Access::Write } else { Access::Read })
    }

    /// Opens the database as a file.
    pub fn open_file(&self, access: Access<'_>) -> Result<SqliteStore, OpenError> {
        let options = self.options().stored_counter();
        let open = |options| SqliteStore::open_with(&self.db, options);
        match access {
            Access::Create(counter) => {
                self.create_folder().map_err(|error| OpenError::Other {
                    path: self.db.clone(),
                    cause: Box::new(error),
                })?;
                open(match counter_named(counter) {
                    Some(counter) => options.counter(counter),
                    None => options,
                })
            }
            Access::Write => open(options.create(false)),
            Access::Read => match open(options.clone().read_only(true)) {
                // Only opening for writing upgrades an older file, rolls back the journal of a killed process, or
                // completes an interrupted creation.
                Err(
                    unfinished @ (OpenError::Older { .. }
                    | OpenError::LogUnread { .. }
                    | OpenError::Missing { .. }),
                ) if self.db.is_file() => match self.open_file(Access::Write) {
                    Err(OpenError::Other { .. } | OpenError::ReadOnly { .. }) => Err(unfinished),
                    Err(error) => Err(error),
                    Ok(_) => open(options.read_only(true)),
                },
                opened => opened,
            },
        }
    }

    /// Creates the folder of the user's database, and says so where the database begins.
    fn create_folder(&self) -> io::Result<()> {
        let is_new = self.source == DatabaseSource::Default && self.db.symlink_metadata().is_err();
        if let Some(folder) = self.db.parent().filter(|_| is_new) {
            std::fs::create_dir_all(folder)?;
            note(&format!("the database is {}", self.place()));
        }
        Ok(())
    }

    /// Prints a result: as JSON with `--json`, else as text.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn print(
        &mut self,
        value: &(impl Serialize + ?Sized),
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        match self.json {
            true => self.out.json(value),
            false => self.out.text(&text()),
        }
    }

    /// Returns the address of the server, if `--db` is an address.
    pub fn address(&self) -> Option<&str> {
        self.db.to_str().filter(|text| server::is_address(text))
    }

    /// Returns the name of the database for output: an address without its password.
    pub fn place(&self) -> String {
        match self.address() {
            Some(address) => server::place(address),
            None => self.db.display().to_string(),
        }
    }

    /// Returns a command of loopstore on this database, to be pasted into a shell.
    pub fn command_line(&self, words: &[String]) -> String {
        let mut line = "loopstore".to_owned();
        if self.db != usual_database() {
            line = format!("{line} --db {}", text::quoted(&text::line(&self.place())));
        }
        for word in words {
            line.push(' ');
            let is_option = word.strip_prefix("--").is_some_and(text::is_plain);
            match is_option {
                true => line.push_str(word),
                false => line.push_str(&text::quoted(&text::line(word))),
            }
        }
        line
    }

    /// Returns the options that are common to all ways of opening the database.
    pub fn options(&self) -> SqliteOptions {
        match &self.key {
            Some(key) => SqliteOptions::new().key(key.clone()),
            None => SqliteOptions::new(),
        }
    }
}

/// Returns the database that a command uses if no option names one.
pub fn usual_database() -> PathBuf {
    database(None).0
}

fn database(given: Option<PathBuf>) -> (PathBuf, DatabaseSource) {
    if let Some(path) = given {
        return (path, DatabaseSource::Option);
    }
    if let Some(path) = folders::set("LOOPSTORE_DB") {
        return (path, DatabaseSource::Environment);
    }
    match folders::found_database() {
        Some(path) => (path, DatabaseSource::Found),
        None => (folders::default_database(), DatabaseSource::Default),
    }
}
