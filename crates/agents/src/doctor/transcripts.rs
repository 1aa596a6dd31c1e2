//! The transcripts on disk, compared with what is stored.

use std::collections::BTreeMap;

use loopstore::Database;
use loopstore::extend::{self as store, StoreResult};
use loopstore::model::Time;
use loopstore_terminal::text;
use serde::Serialize;

use super::SetupProblem;
use crate::found::{self, FoundTranscripts};
use crate::install::record::InstallRecord;

/// The milliseconds by which a transcript may be newer than the newest stored turn of its agent. An agent also writes
/// records that are in no turn, and a hook is called after a turn.
const TOLERANCE: i64 = 60 * 60 * 1000;
/// The days before a deletion in which transcripts that are not stored are a problem.
const SOON: u64 = 7;

/// The transcripts of an agent, and the time until which they are stored.
#[derive(Serialize)]
pub struct RecordedTranscripts {
    #[serde(flatten)]
    found: FoundTranscripts,
    /// The time of the newest stored message of the agent's format.
    stored_at: Option<String>,
}

/// The time of the newest message of each format, in a database.
pub type NewestStored = BTreeMap<String, String>;

/// Reads the time of the newest message of each format.
pub fn newest_stored(store: &dyn Database) -> StoreResult<NewestStored> {
    let rows = store::read(store, |read| read.sessions())?;
    let mut newest = NewestStored::new();
    for row in rows {
        if let (Some(format), Some(at)) = (row.source, row.last_active_at) {
            let known = newest.entry(format).or_default();
            // All times have the same width.
            *known = at.max(std::mem::take(known));
        }
    }
    Ok(newest)
}

/// Compares the transcripts of all agents with what is stored.
pub fn compare(stored: &NewestStored) -> Vec<RecordedTranscripts> {
    let compared = found::transcripts()
        .into_iter()
        .map(|found| RecordedTranscripts {
            stored_at: stored.get(found.agent).cloned(),
            found,
        });
    compared.collect()
}

impl RecordedTranscripts {
    /// Returns the problem with these transcripts, if there is one.
    pub fn problem(&self, records: &[InstallRecord]) -> Option<SetupProblem> {
        let found = &self.found;
        let agent = found.agent;
        let path = text::line(&found.path.display().to_string());
        let mut own = records
            .iter()
            .filter(|record| record.agent == agent)
            .peekable();
        if own.peek().is_some() && self.is_behind() {
            let newest = found.newest.as_deref().unwrap_or(&found.path);
            let what = format!(
                "{} was written at {}, and the newest stored turn of {agent} is {}",
                text::line(&newest.display().to_string()),
                shown(found.newest_at),
                self.stored_at
                    .as_deref()
                    .map_or_else(|| "none".to_owned(), |at| format!("of {}", text::time(at))),
            );
            let redact = match own.any(|record| record.redact) {
                true => "--redact ",
                false => "",
            };
            let path = text::quoted(&path);
            let hint = format!("`loopstore import {redact}{path}` reads it");
            return Some(SetupProblem { what, hint });
        }
        let left = found.oldest_deleted_in_days.filter(|left| *left <= SOON)?;
        if self.stored_at.is_some() {
            return None;
        }
        let when = match left {
            0 => "at its next start".to_owned(),
            left => format!("in {}", text::count(left, "day")),
        };
        let what = format!("{agent} deletes its oldest transcript {when}, and none is stored");
        let hint = "`loopstore init` imports them".to_owned();
        Some(SetupProblem { what, hint })
    }

    /// True if a transcript is newer than what is stored.
    fn is_behind(&self) -> bool {
        let stored = self
            .stored_at
            .as_deref()
            .and_then(|at| Time::from_text(at).millis());
        let newest = self.found.newest_at;
        newest.is_some_and(|newest| stored.is_none_or(|stored| newest - stored > TOLERANCE))
    }

    /// Returns a line about the transcripts.
    pub fn line(&self) -> String {
        let found = &self.found;
        let stored = match &self.stored_at {
            Some(at) => format!("stored until {}", text::time(at)),
            None => "none stored".to_owned(),
        };
        let deleted = match found.oldest_deleted_in_days {
            Some(0) => "; the oldest is deleted at the next start".to_owned(),
            Some(left) => format!("; the oldest is deleted in {}", text::count(left, "day")),
            None => String::new(),
        };
        format!(
            "{:<12} {}, {}, newest of {}; {stored}{deleted}",
            found.agent,
            text::count(found.files, "transcript"),
            text::bytes(found.bytes),
            shown(found.newest_at),
        )
    }
}

/// Returns a time for people.
fn shown(millis: Option<i64>) -> String {
    let time = millis.and_then(Time::from_millis);
    time.map_or_else(
        || "an unknown time".to_owned(),
        |time| text::time(time.as_str()),
    )
}
