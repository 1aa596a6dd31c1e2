//! Cline and Roo Code: a folder for each task, whose `api_conversation_history.json` is the list of messages for the
//! model and is rewritten with each message. Other files in the folder contain the costs, the hidden messages and the
//! title of the task. Cline's newer sessions are documents `<id>.messages.json`.
//!
//! The reader of Cline's messages was checked against recordings. The readers of Roo Code's messages, of the messages
//! that Cline hides, and of the compaction state of newer sessions follow the sources of those programs; no recordings
//! were available.

mod condensed;
mod content;
mod emit;
mod prompt;
mod task_files;
mod words;
mod xml;

use std::path::{Path, PathBuf};

use loopstore::model::{SessionId, Time};
use sha2::{Digest as _, Sha256};

use self::emit::TaskEmitter;
use self::task_files::TaskFiles;
use self::words::{CLINE_FOLDERS, MARKS, ROO_FOLDERS, ROO_MARKS};
use super::fields::Fields;
use super::json_stream::{JsonStream, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::signs::{contains, is_task};
use super::transcript::session;
use super::{Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation};

/// Reads the tasks and sessions of Cline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cline;

/// Reads the tasks of Roo Code.
#[derive(Clone, Copy, Debug, Default)]
pub struct RooCode;

impl Importer for Cline {
    fn format(&self) -> &'static str {
        "cline"
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        is_session(head) || is_task(path, head) && !is_roo(path, head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        read(self.format(), source, sink)
    }

    fn is_companion(&self, path: &Path) -> bool {
        task_files::is_task_file(path)
    }

    fn other_files(&self, _path: &Path) -> Option<Vec<PathBuf>> {
        None
    }

    fn rewrites(&self) -> bool {
        true
    }
}

impl Importer for RooCode {
    fn format(&self) -> &'static str {
        "roo-code"
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        is_task(path, head) && is_roo(path, head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        read(self.format(), source, sink)
    }

    fn is_companion(&self, path: &Path) -> bool {
        task_files::is_task_file(path)
    }

    fn other_files(&self, _path: &Path) -> Option<Vec<PathBuf>> {
        None
    }

    fn rewrites(&self) -> bool {
        true
    }
}

/// True if a task is Roo Code's, or was imported from Roo Code.
fn is_roo(path: &Path, head: &[u8]) -> bool {
    let is_within = |folders: [&str; 2]| {
        let mut names = path.iter().filter_map(|name| name.to_str());
        names.any(|name| folders.contains(&name))
    };
    if is_within(ROO_FOLDERS) || is_within(CLINE_FOLDERS) {
        return is_within(ROO_FOLDERS);
    }
    folder_of(path).is_some_and(|name| uuid::Uuid::try_parse(name).is_ok())
        || ROO_MARKS.iter().any(|mark| contains(head, mark))
}

/// True if a file is one of Cline's newer sessions.
fn is_session(head: &[u8]) -> bool {
    let outline = KeyOutline::of(head);
    let keys = ["version", "updated_at", "agent", "sessionId", "messages"];
    keys.iter().all(|key| outline.has(key)) && !outline.has("projectHash")
}

/// Returns the name of the folder that contains a file.
fn folder_of(path: &Path) -> Option<&str> {
    path.parent()?.file_name()?.to_str()
}

/// Returns the id of the task whose folder this is: a number of milliseconds, or a UUID.
fn task_id(path: &Path) -> Option<&str> {
    let is_number = |name: &str| name.len() >= 10 && name.bytes().all(|byte| byte.is_ascii_digit());
    folder_of(path).filter(|name| is_number(name) || uuid::Uuid::try_parse(name).is_ok())
}

fn read(
    tool: &'static str,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<(), ImportError> {
    let mut blank = source.reader.fill_buf().unwrap_or_default();
    blank = blank.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(blank);
    holds_conversation(match blank.trim_ascii_start().starts_with(b"{") {
        true => session_documents(tool, source, sink)?,
        false => task(tool, source, sink)?,
    })
}

/// The first facts of a task.
#[derive(Default)]
struct TaskStart {
    /// The first message.
    first: Option<String>,
    /// The beginning of the task in milliseconds since the epoch.
    started: Option<i64>,
}

/// Reads a task.
fn task(
    tool: &'static str,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let path = source.path;
    let start = read_start(source)?;
    let files = TaskFiles::of_task(path, task_id(path), sink);
    let head = task_head(tool, path, &start, &files)?;
    let mut emitter = TaskEmitter::new(tool, sink, head, files);
    let mut stream = JsonStream::new(source)?;
    while let Some(item) = stream.next()? {
        match (item.list, item.text) {
            (_, Err(reason)) => emitter.skip(item.line, reason.to_owned()),
            (Some(0), Ok(text)) => emitter.record(&text, item.line)?,
            (_, Ok(_)) => emitter.skip(item.line, "no message of the task".to_owned()),
        }
    }
    emitter.finish()
}

/// Finds the first message of a person.
fn read_start(source: &mut Source<'_>) -> Result<TaskStart, ImportError> {
    let mut stream = JsonStream::new(source)?;
    while let Some(item) = stream.next()? {
        let Ok(text) = item.text else { continue };
        let Ok(mut fields) = Fields::parse(&text) else {
            continue;
        };
        if fields.text("role").as_deref() == Some("user") {
            fields.retain(|key| !MARKS.contains(&key));
            return Ok(TaskStart {
                first: Some(fields.to_text()),
                started: fields.read("ts"),
            });
        }
    }
    Ok(TaskStart::default())
}

fn task_head(
    tool: &str,
    path: &Path,
    start: &TaskStart,
    files: &TaskFiles,
) -> Result<SessionHead, ImportError> {
    let own = files.id.as_deref().or(task_id(path));
    let own = own.and_then(|id| SessionId::new(id).ok());
    let first = start.first.as_deref().unwrap_or_default();
    let identity = match &own {
        Some(id) => Identity::Own(id.clone()),
        None => Identity::Series(hex::encode(Sha256::digest(first))),
    };
    let id = own.map_or_else(|| SessionId::new(tool), Ok);
    let id = id.map_err(|error| ImportError::NoTranscript(error.to_string()))?;
    let by_name = || task_id(path)?.parse().ok();
    let started = start.started.or_else(by_name).and_then(Time::from_millis);
    let mut session = session(id, tool, started);
    session.last_active_at = files.updated.and_then(Time::from_millis);
    session.parent_spawn_ref = files
        .parent
        .as_deref()
        .and_then(super::transcript::started_by);
    Ok(SessionHead {
        identity,
        session,
        title: files.title.clone(),
        project: files.project.clone().or_else(|| project(first)),
    })
}

/// Returns the working folder of the agent, from the state of the editor.
fn project(message: &str) -> Option<String> {
    // Escaped as in JSON.
    let marks = [
        "# Current Working Directory (",
        "# Current Workspace Directory (",
    ];
    let rest = marks.iter().find_map(|mark| message.split_once(mark))?.1;
    let (folder, _) = rest.split_once(") Files")?;
    let folder: String = serde_json::from_str(&format!("\"{folder}\"")).ok()?;
    (!folder.is_empty() && folder.len() < 4_096).then_some(folder)
}

/// Reads Cline's newer sessions.
fn session_documents(
    tool: &'static str,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let path = source.path;
    documents(source, sink, &mut |document, sink| {
        let fields = &document.fields;
        let Some(messages) = fields.get("messages").and_then(super::fields::list) else {
            sink.skip(Some(document.line), "it has no list of messages".into());
            return Ok(false);
        };
        let files = TaskFiles::of_session(path, sink);
        let own = fields.text("sessionId");
        let own = own.and_then(|id| SessionId::new(id).ok());
        let placeholder = || SessionId::new(tool);
        let id = own.clone().map_or_else(placeholder, Ok);
        let id = id.map_err(|error| ImportError::NoTranscript(error.to_string()))?;
        let mut session = session(id.clone(), tool, files.created.clone());
        session.last_active_at = fields.text("updated_at").map(Time::from_text);
        // The id of a sub-agent's session begins with that of its parent.
        let parent = id
            .as_str()
            .split_once("__")
            .map(|(parent, _)| parent.to_owned());
        session.parent_spawn_ref = parent.as_deref().and_then(super::transcript::started_by);
        let head = SessionHead {
            identity: own.map_or_else(|| Identity::Key(document.nth.to_string()), Identity::Own),
            session,
            title: files.title.clone(),
            project: files.project.clone(),
        };
        let mut emitter = TaskEmitter::new(tool, sink, head, files);
        if let Some(prompt) = fields.get("system_prompt") {
            emitter.system(prompt)?;
        }
        let mut lines = LineCounter::new(document.text, document.line);
        for raw in messages {
            emitter.record(raw.get(), lines.of(raw.get()))?;
        }
        emitter.finish()
    })
}
