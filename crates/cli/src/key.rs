//! The key of an encrypted database: never an argument, which every user of the machine could read.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use loopstore::Key;
use loopstore_terminal::CliError;
use zeroize::Zeroize;

/// The environment variable that names the variable with the key, if no option selects a source.
const ENV: &str = "LOOPSTORE_KEY_ENV";
/// The environment variable with the command that prints the key, if no option selects a source.
const COMMAND: &str = "LOOPSTORE_KEY_COMMAND";
/// The maximum size of a key.
const MAX_BYTES: u64 = 4096;

/// The source of the key. The key itself is never an argument, and is never shown.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct KeyArgs {
    /// Read the key of an encrypted database from this file descriptor.
    #[arg(long, global = true, value_name = "N", help_heading = super::COMMON)]
    key_fd: Option<String>,
    /// Read it from this environment variable [env: LOOPSTORE_KEY_ENV].
    #[arg(long, global = true, value_name = "NAME", help_heading = super::COMMON)]
    key_env: Option<String>,
    /// Run this shell command and read it from its output [env: LOOPSTORE_KEY_COMMAND].
    #[arg(
        long,
        global = true,
        value_name = "COMMAND",
        help_heading = super::COMMON
    )]
    key_command: Option<String>,
}

impl KeyArgs {
    /// True if an option selects a source.
    pub fn is_given(&self) -> bool {
        self.key_fd.is_some() || self.key_env.is_some() || self.key_command.is_some()
    }

    /// Returns the options for a program that must find the same key. A file descriptor cannot be passed on.
    pub fn as_args(&self) -> Vec<String> {
        let named = [
            ("--key-env", &self.key_env),
            ("--key-command", &self.key_command),
        ];
        let given = named
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given
            .flat_map(|(name, value)| [name.to_owned(), value.clone()])
            .collect()
    }

    /// Reads the key from a variable; runs no command and never prompts.
    pub fn read_silently(&self) -> Option<Key> {
        if self.key_fd.is_some() || self.key_command.is_some() {
            return None;
        }
        let name = match &self.key_env {
            Some(name) => name.clone(),
            None => setting(ENV).ok()??,
        };
        Key::parse(from_variable(&name).ok()?).ok()
    }

    /// Reads the key; `None` if there is no source. No message repeats the arguments, since they may be the key itself.
    pub fn read(&self) -> Result<Option<Key>, CliError> {
        let bytes = if let Some(number) = &self.key_fd {
            from_descriptor(number)?
        } else if let Some(name) = &self.key_env {
            from_variable(name)?
        } else if let Some(line) = &self.key_command {
            from_command(line)?
        } else if let Some(name) = setting(ENV)? {
            from_variable(&name)?
        } else if let Some(line) = setting(COMMAND)? {
            from_command(&line)?
        } else {
            return Ok(None);
        };
        let key = Key::parse(bytes).map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Some(key))
    }
}

/// Returns the variable that replaces an option; an empty variable counts as unset.
fn setting(name: &str) -> Result<Option<String>, CliError> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(_) => Err(CliError::Usage(format!("{name} is not valid UTF-8"))),
    }
}

fn from_descriptor(number: &str) -> Result<Vec<u8>, CliError> {
    let Ok(number) = number.parse::<u16>() else {
        return Err(CliError::Usage("--key-fd expects a number".into()));
    };
    let unread = |error| {
        CliError::Usage(format!(
            "cannot read a key from file descriptor {number}: {error}"
        ))
    };
    let file = File::open(format!("/dev/fd/{number}")).map_err(unread)?;
    read_all(file).map_err(unread)
}

fn from_variable(name: &str) -> Result<Vec<u8>, CliError> {
    match std::env::var_os(name) {
        Some(value) => Ok(value.into_encoded_bytes()),
        None => Err(CliError::Usage(
            "the environment variable for the key is not set".into(),
        )),
    }
}

fn from_command(line: &str) -> Result<Vec<u8>, CliError> {
    let failed = |why: String| CliError::Usage(format!("the key command {why}"));
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    let read = child.stdout.take().map(read_all);
    let ended = child.wait();
    let mut bytes = match read {
        Some(Ok(bytes)) => bytes,
        Some(Err(error)) => return Err(failed(format!("cannot be read: {error}"))),
        None => Vec::new(),
    };
    match ended {
        Ok(status) if status.success() => Ok(bytes),
        ended => {
            bytes.zeroize();
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(failed(format!("failed ({how})")))
        }
    }
}

fn read_all(from: impl Read) -> std::io::Result<Vec<u8>> {
    // Allocated at once: a vector that grows leaves copies of the key in memory.
    let mut bytes = Vec::with_capacity(MAX_BYTES as usize + 32);
    from.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
