//! The command lines in the configuration of an agent that call this program.

use std::path::{Path, PathBuf};

use loopstore_export::NativeAgent;
use loopstore_terminal::{App, CliError, folders, text};

use crate::program;

/// The command line of this program in an agent's configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The agent.
    pub agent: NativeAgent,
    /// The program.
    pub program: String,
    /// The options before the command: the database, and the source of its key.
    pub options: Vec<String>,
    /// The database.
    pub database: String,
    /// The tools that write and are allowed, if the server of tools is to be set up too.
    pub mcp: Option<Vec<String>>,
    /// True if hooks replace secrets with markers before anything is stored.
    pub redact: bool,
}

impl Setup {
    /// Returns the setup of an agent.
    pub fn new(
        app: &App,
        agent: NativeAgent,
        mcp: Option<Vec<String>>,
        redact: bool,
    ) -> Result<Self, CliError> {
        let database = named(&database(app)?)?;
        let mut options = vec!["--db".to_owned(), database.clone()];
        options.extend(app.key_args.iter().cloned());
        Ok(Self {
            agent,
            program: named(&program::path()?)?,
            options,
            database,
            mcp,
            redact,
        })
    }

    /// Returns the arguments that call the hook, with `event` at the end.
    pub fn hook(&self, event: &str) -> Vec<String> {
        let call = ["hook", self.agent.as_str(), event].map(str::to_owned);
        self.words(call)
    }

    /// Returns the arguments that start the server of tools.
    pub fn server(&self) -> Option<Vec<String>> {
        let allowed = self.mcp.as_ref()?;
        let mut call = vec!["mcp".to_owned(), "--all".to_owned()];
        if !allowed.is_empty() {
            call.extend(["--allow".to_owned(), allowed.join(",")]);
        }
        Some(self.words(call))
    }

    fn words(&self, call: impl IntoIterator<Item = String>) -> Vec<String> {
        let program = std::iter::once(self.program.clone());
        program
            .chain(self.options.iter().cloned())
            .chain(call)
            .collect()
    }

    /// Returns the call of a hook as a shell command.
    pub fn hook_line(&self, event: &str) -> String {
        let words = self.hook(event);
        let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        quoted.join(" ")
    }
}

/// Returns a word quoted for a shell.
fn quoted(word: &str) -> String {
    match word.strip_prefix("--") {
        Some(option) if text::is_plain(option) => word.to_owned(),
        _ => text::quoted(word),
    }
}

/// Returns the database that hooks write to: the named one, else one in the user's data folder.
fn database(app: &App) -> Result<PathBuf, CliError> {
    if let Some(address) = app.address() {
        let (_, rest) = address.split_once("://").unwrap_or_default();
        let who = rest.rsplit_once('@').map_or("", |(who, _)| who);
        if who.contains(':') || rest.contains("password=") {
            let text = "the address holds a password, which would stand in the agent's configuration; \
                        put it into the file of passwords that PGPASSFILE names, and leave it out here";
            return Err(CliError::Usage(text.into()));
        }
        return Ok(app.db.clone());
    }
    if app.is_named() {
        return Ok(std::path::absolute(&app.db)?);
    }
    let own = folders::user_database();
    let own =
        own.ok_or_else(|| CliError::Usage("name the database with --db: HOME is not set".into()))?;
    Ok(std::path::absolute(own)?)
}

/// Returns a path as text, since configurations contain only text.
fn named(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let shown = text::line(&path.to_string_lossy());
        CliError::Usage(format!(
            "the name of {shown} is not UTF-8; use another path"
        ))
    })
}
