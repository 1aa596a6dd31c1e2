//! The transcripts on disk, compared with what is stored.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use loopstore::Database;
use loopstore::extend::{self as store, StoreError, StoreResult};
use loopstore::model::{AgentMessage, LoopId, LoopRecord, Time};
use loopstore_export::NativeAgent;
use loopstore_terminal::text;
use loopstore_transcripts::{
    FoundCompaction, ImportError, ImportOptions, SessionHead, Sink, Source, importers,
    read_transcript,
};
use serde::Serialize;

use super::SetupProblem;
use crate::found::{self, FoundFile, FoundTranscripts};
use crate::imported::ImportMemory;
use crate::install::record::InstallRecord;

/// The milliseconds for which a transcript may be newer than what is stored of it. An agent also writes records that
/// are in no turn, and a hook is called after a turn.
const TOLERANCE: i64 = 60 * 60 * 1000;
/// The number of transcripts that are read to see if they contain a conversation.
const EXAMINED: usize = 20;
/// The days before a deletion in which transcripts that are not stored are a problem.
const SOON: u64 = 7;

/// The transcripts of an agent, and the time until which they are stored.
#[derive(Serialize)]
pub struct RecordedTranscripts {
    #[serde(flatten)]
    found: FoundTranscripts,
    /// The time of the newest stored message of the agent's format.
    stored_at: Option<String>,
    /// The transcripts that are not stored, or are longer than what is stored of them.
    #[serde(skip)]
    behind: Vec<PathBuf>,
}

/// The transcripts that are stored, of all databases.
#[derive(Default)]
pub struct StoredTranscripts {
    formats: BTreeMap<String, StoredFormat>,
    memories: Vec<ImportMemory>,
}

/// The stored transcripts of a format. All times have the same width.
#[derive(Default)]
struct StoredFormat {
    /// The time of the newest message.
    newest: String,
    /// The names of imported files, with the time of the newest message of each.
    names: HashMap<String, String>,
    /// The sizes of kept files.
    kept: HashMap<PathBuf, u64>,
}

impl StoredTranscripts {
    /// Adds the transcripts that are stored in a database.
    pub fn add(&mut self, store: &dyn Database) -> StoreResult<()> {
        store::read(store, |read| {
            for row in read.sessions()? {
                let Some(format) = row.source else {
                    continue;
                };
                let at = row.last_active_at.unwrap_or_default();
                let stored = self.formats.entry(format).or_default();
                for import in read.imports(row.key)? {
                    let known = stored.names.entry(import.file_name).or_default();
                    *known = at.clone().max(std::mem::take(known));
                }
                for source in read.sources(row.key)? {
                    let bytes = stored.kept.entry(source.path.into()).or_default();
                    *bytes = source.bytes.max(*bytes);
                }
                stored.newest = at.max(std::mem::take(&mut stored.newest));
            }
            Ok::<_, StoreError>(())
        })?;
        let memory = ImportMemory::open(store, &ImportOptions::default())?;
        self.memories.extend(memory);
        Ok(())
    }

    /// Compares the transcripts of all agents with what is stored.
    pub fn compare(&self) -> Vec<RecordedTranscripts> {
        let now = Time::now().millis().unwrap_or_default();
        let compared = found::transcripts().into_iter().map(|found| {
            let stored = self.formats.get(found.agent);
            let is_behind = |file: &&FoundFile| {
                now - file.changed_at > TOLERANCE && self.is_behind(found.agent, file)
            };
            RecordedTranscripts {
                stored_at: stored
                    .map(|stored| stored.newest.clone())
                    .filter(|at| !at.is_empty()),
                behind: found
                    .all
                    .iter()
                    .filter(is_behind)
                    .map(|file| file.path.clone())
                    .collect(),
                found,
            }
        });
        compared.collect()
    }

    /// True if a transcript is not stored, or has grown since.
    fn is_behind(&self, agent: &str, file: &FoundFile) -> bool {
        let none = StoredFormat::default();
        let stored = self.formats.get(agent).unwrap_or(&none);
        let whole = file.path.canonicalize();
        let kept = stored.kept.get(whole.as_deref().unwrap_or(&file.path));
        if kept.is_some_and(|bytes| *bytes >= file.bytes) {
            return false;
        }
        let name = file.path.file_name().and_then(|name| name.to_str());
        let known = name.and_then(|name| stored.names.get(name));
        let newest = match (known, kept) {
            // The hooks of OpenCode name no file.
            _ if agent == NativeAgent::OpenCode.as_str() => &stored.newest,
            // A hook may have stored the end without a copy of the file.
            (Some(at), Some(_)) => at,
            // The size of a file without a copy says nothing.
            (Some(_), None) => return false,
            (None, _) => "",
        };
        let stored_at = Time::from_text(newest).millis();
        stored_at.is_none_or(|stored_at| file.changed_at - stored_at > TOLERANCE)
            && !self
                .memories
                .iter()
                .any(|memory| memory.contains(&file.path))
    }
}

/// True if a file contains a message. An agent also leaves files without one, which no import stores.
fn has_message(format: &str, path: &Path) -> bool {
    let importer = importers().iter().find(|one| one.format() == format);
    let (Some(importer), Ok(file)) = (importer, File::open(path)) else {
        return false;
    };
    let mut found = FirstMessage(false);
    let mut source = Source {
        path,
        reader: &mut BufReader::new(file),
    };
    // The read ends with an error at the first message.
    let _ = read_transcript(*importer, &mut source, &mut found);
    found.0
}

/// A receiver of a transcript that stops at the first message.
struct FirstMessage(bool);

impl Sink for FirstMessage {
    fn session(&mut self, _: SessionHead) -> Result<(), ImportError> {
        Ok(())
    }

    fn begin_loop(&mut self, _: LoopRecord) -> Result<(), ImportError> {
        Ok(())
    }

    fn message(&mut self, _: &LoopId, _: AgentMessage, _: &[u8]) -> Result<(), ImportError> {
        self.0 = true;
        Err(ImportError::Refused("one message is enough".into()))
    }

    fn compaction(&mut self, _: FoundCompaction) -> Result<(), ImportError> {
        Ok(())
    }

    fn skip(&mut self, _: Option<u64>, _: String) {}
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
        let is_expected = own.peek().is_some();
        if let Some(one) = self.example().filter(|_| is_expected) {
            let what = format!(
                "{} of {agent} not stored, or longer than what is stored, such as {}",
                text::count(self.behind.len() as u64, "transcript"),
                text::line(&one.display().to_string()),
            );
            let redact = match own.any(|record| record.redact) {
                true => "--redact ",
                false => "",
            };
            let path = text::quoted(&path);
            let hint = format!("`loopstore import {redact}{path}` stores what is new");
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

    /// Returns a transcript that is not stored and contains a conversation.
    fn example(&self) -> Option<&Path> {
        let mut behind = self.behind.iter().take(EXAMINED).map(PathBuf::as_path);
        behind.find(|path| has_message(self.found.agent, path))
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
