//! The scripts that create and change the tables of a database, and the checks that a database's history of scripts
//! matches them.
//!
//! Each backend has its scripts under `migrations/`, and `refinery` records in the database which of them it applied.
//! Until 0.1.0 is released, V1 is edited in place, and a database with another V1 is refused. After that, a released
//! script never changes, and each change of the schema is a new script.

use std::path::Path;

use refinery::{Migration, Runner};

use super::error::OpenError;

/// The scripts that a program knows, in order.
pub struct Migrations(Vec<Migration>);

/// A script in the history of a database.
pub struct Applied {
    /// The number of the script.
    pub version: i64,
    /// The name of the script.
    pub name: Option<String>,
    /// The time when the script was applied.
    pub applied_on: Option<String>,
    /// The checksum of the script.
    pub checksum: Option<String>,
}

impl Migrations {
    /// Returns the scripts that `embedded` contains.
    pub fn embedded(embedded: &Runner) -> Self {
        let mut scripts = embedded.get_migrations().clone();
        scripts.sort();
        Self(scripts)
    }

    /// Adds a script that no database has; tests use it to open older formats.
    #[cfg(debug_assertions)]
    pub fn and_later(mut self, sql: &str) -> Self {
        let name = format!("V{}__made_up", self.newest() + 1);
        self.0.extend(Migration::unapplied(&name, sql));
        self
    }

    /// Returns the number of the last one.
    pub fn newest(&self) -> i64 {
        self.0.last().map_or(0, |last| i64::from(last.version()))
    }

    /// Returns the scripts in order.
    pub fn scripts(&self) -> &[Migration] {
        &self.0
    }

    /// Returns a runner that applies the missing scripts in one transaction. Otherwise refinery commits a script and
    /// its record separately, and a process that is killed between the two leaves a database that cannot be opened.
    pub fn runner(&self) -> Runner {
        Runner::new(&self.0).set_grouped(true)
    }

    /// Returns the number of the last script that was applied to the database at `path`, 0 for none. The history is
    /// checked here before refinery reads it, since refinery panics at rows that it did not write.
    ///
    /// # Errors
    /// If the history has other scripts, or does not match the tables.
    pub fn last_applied(
        &self,
        path: &Path,
        history: &[Applied],
        has_tables: bool,
    ) -> Result<i64, OpenError> {
        let damaged = |detail: String| OpenError::Damaged {
            path: path.to_owned(),
            detail,
        };
        if has_tables == history.is_empty() {
            let missing = if has_tables { "history" } else { "tables" };
            return Err(damaged(format!("the {missing} of its format is missing")));
        }
        for (script, applied) in self.0.iter().zip(history) {
            let version = i64::from(script.version());
            let (Some(name), Some(checksum)) = (&applied.name, &applied.checksum) else {
                return Err(damaged(format!(
                    "the note of its migration {version} is cut off"
                )));
            };
            if applied.version != version {
                return Err(damaged(format!("its migration {version} is not noted")));
            }
            if name != script.name() || *checksum != script.checksum().to_string() {
                return Err(OpenError::Unreleased {
                    path: path.to_owned(),
                });
            }
            let at = applied.applied_on.as_deref().unwrap_or_default();
            if chrono::DateTime::parse_from_rfc3339(at).is_err() {
                return Err(damaged(format!(
                    "the time of its migration {version} is no time"
                )));
            }
        }
        Ok(history.last().map_or(0, |last| last.version))
    }
}
