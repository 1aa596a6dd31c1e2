//! Reading settings from a TOML file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Settings, SettingsError, nearest};

/// No file of settings is larger.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// The keys of a file, as serde lists them.
pub(super) const KEYS: [&str; 20] = [
    "policy",
    "policy_param",
    "max_tokens",
    "max_bytes",
    "system_tokens",
    "system_prompts",
    "model",
    "models",
    "keep_first",
    "keep_recent",
    "room_turns",
    "keep_prompts",
    "max_summary_tokens",
    "max_rollup_tokens",
    "tool_output_lines",
    "scope",
    "older_loops",
    "recent_window",
    "strategy",
    "clear_tool_results",
];

impl Settings {
    /// Reads settings from TOML. Needs the feature `toml`.
    ///
    /// ```
    /// use loopstore::Settings;
    ///
    /// let settings = Settings::from_toml(
    ///     r#"
    ///     model = "my-model-large"
    ///     keep_recent = "user-turns:6"
    ///
    ///     [models]
    ///     "my-model" = 64_000
    ///     "#,
    /// )?;
    /// let policy = settings.policy()?;
    /// # drop(policy);
    /// let error = Settings::from_toml("keep_recnt = 6").unwrap_err();
    /// assert_eq!(error.to_string(), "line 1: unknown key `keep_recnt`; did you mean `keep_recent`?");
    /// # Ok::<(), loopstore::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// [`SettingsError::Invalid`] with the line, if the text is not TOML or has an unknown key.
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        let invalid = |at: usize, reason: String| SettingsError::Invalid {
            path: None,
            line: line_of(text.as_bytes(), at),
            reason,
        };
        let settings: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            invalid(at, reason(error.message()))
        })?;
        if let Err(SettingsError::Parameter { name, reason }) = settings.compaction_policy() {
            return Err(invalid(place_of(text, "policy_param", &name), reason));
        }
        // A line that is added at the end belongs to the last table.
        if let Some(key) = KEYS.iter().find(|key| settings.models.contains_key(**key)) {
            let reason = format!("`{key}` is a setting, not a model; move it above `[models]`");
            return Err(invalid(place_of(text, "models", key), reason));
        }
        Ok(settings)
    }

    /// Reads settings from a TOML file. Needs the feature `toml`.
    ///
    /// # Errors
    /// As [`Settings::from_toml`], and if the file cannot be read, is too large or is not UTF-8.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SettingsError> {
        let path = path.as_ref();
        let bytes = read(path).map_err(|source| SettingsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let read = match std::str::from_utf8(&bytes) {
            Ok(text) => Self::from_toml(text),
            Err(error) => Err(SettingsError::Invalid {
                path: None,
                line: line_of(&bytes, error.valid_up_to()),
                reason: "the text is not UTF-8".into(),
            }),
        };
        read.map_err(|error| match error {
            SettingsError::Invalid { line, reason, .. } => SettingsError::Invalid {
                path: Some(path.to_owned()),
                line,
                reason,
            },
            other => other,
        })
    }
}

/// Returns the reason of an error in one line.
fn reason(message: &str) -> String {
    // serde names the unknown key first.
    let unknown = message.strip_prefix("unknown field `");
    match unknown.and_then(|rest| rest.split_once("`, expected ")) {
        Some((key, expected)) => {
            // Those of the settings, or of one of their tables.
            let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            format!("unknown key `{key}`; {}", nearest(key, &known))
        }
        None => message.lines().collect::<Vec<_>>().join(", "),
    }
}

/// Returns the line of a byte, from 1.
fn line_of(text: &[u8], at: usize) -> usize {
    let before = &text[..at.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the position of a key of a table.
fn place_of(text: &str, table: &str, key: &str) -> usize {
    let place = || {
        let whole = toml::de::DeTable::parse(text).ok()?;
        let table = whole.get_ref().get(table)?.get_ref().as_table()?;
        let (key, _) = table.get_key_value(key)?;
        Some(key.span().start)
    };
    place().unwrap_or(0)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {MAX_BYTES} bytes"),
        )),
        false => Ok(bytes),
    }
}
