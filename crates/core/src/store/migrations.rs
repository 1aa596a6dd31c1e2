//! The scripts that create the tables of a database, and the errors of a history that does not match them.
//!
//! Both backends keep theirs under `migrations/`, and `refinery` notes in the database which it applied.
//! Until 0.1.0 is released V1 is edited in place: then a database of another V1 is refused. Afterwards a
//! script that was released never changes, and a change is one more script.

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
    /// The scripts that are embedded.
    pub fn embedded(embedded: &Runner) -> Self {
        let mut scripts = embedded.get_migrations().clone();
        scripts.sort();
        Self(scripts)
    }

    /// Returns these and one more, which no database has: the tests open older formats with it.
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

    /// Returns a runner that applies the missing scripts, all in one transaction: one by one, refinery commits
    /// a script and the record of it separately, and a process that is killed between the two leaves a
    /// database that never opens again.
    pub fn runner(&self) -> Runner {
        Runner::new(&self.0).set_grouped(true)
    }

    /// Returns the number of the last script that was applied to the database at `path`, 0 for none. The
    /// history must be in order, and be checked before refinery reads it, which panics at rows that it did
    /// not write itself.
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
