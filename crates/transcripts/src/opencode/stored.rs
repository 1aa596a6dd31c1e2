//! Reads sessions from OpenCode's own storage: its SQLite file, or in older versions a folder with a file for each
//! session, message and part. Both are converted to the document that `opencode export` writes.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use loopstore::model::Json;

use super::database::{JsonColumn, OpencodeFile, OpencodeRow, OpencodeSession};
use super::projected::Projection;
use super::words::{JSON, NAMES, TIME};
use crate::decode::{DecodedSource, repaired};
use crate::fields::Fields;
use crate::{ImportError, MAX_RECORD_BYTES, Sink, Source, unread};

/// Reads a document with its number in the file. Returns true if there was a conversation.
type EachDocument<'a> = dyn FnMut(&str, u64, &mut dyn Sink) -> Result<bool, ImportError> + 'a;

/// Calls `each` with the sessions of a SQLite file, as numbered documents.
pub(super) fn of_database(
    path: &Path,
    sink: &mut dyn Sink,
    each: &mut EachDocument<'_>,
) -> Result<bool, ImportError> {
    let file = OpencodeFile::open(path).map_err(ImportError::NoTranscript)?;
    let mut any = false;
    for (nth, session) in (0..).zip(file.sessions().map_err(ImportError::NoTranscript)?) {
        let id = session.id.clone();
        let mut read = document(&file, session.clone(), sink);
        let records = file.count_records(&id);
        if records > 0 && matches!(read, Ok((_, 0))) {
            read = projected(&file, session, sink);
        }
        match read {
            Ok((_, 0)) if records > 0 => sink.skip(
                None,
                format!(
                    "session `{id}` has {records} records in `session_message`, none of which can be read; \
                     `opencode export {id}` writes a file that can"
                ),
            ),
            Ok((text, messages)) => any |= messages > 0 && each(&text, nth, sink)?,
            Err(reason) => sink.skip(None, format!("session `{id}`: {reason}")),
        }
    }
    Ok(any)
}

/// Returns the document of a session, and the number of its messages.
fn document(
    file: &OpencodeFile,
    session: OpencodeSession,
    sink: &mut dyn Sink,
) -> Result<(String, u64), String> {
    let id = session.id.clone();
    let mut document = ExportDocument::begin(&info(session), id.clone());
    let mut failed = None;
    file.messages(&id, &mut |message| {
        let mut parts = Vec::new();
        let read = file.parts(&message.id, &mut |part| {
            parts.push(part);
            ControlFlow::Continue(())
        });
        if let Err(reason) = read {
            failed = Some(reason);
            return ControlFlow::Break(());
        }
        document.message(message, parts, sink);
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(reason) => Err(reason),
        None => Ok(document.end()),
    }
}

/// Returns the document of a session of a newer version, and the number of its messages.
fn projected(
    file: &OpencodeFile,
    session: OpencodeSession,
    sink: &mut dyn Sink,
) -> Result<(String, u64), String> {
    let id = session.id.clone();
    let mut document = ExportDocument::begin(&info(session), id.clone());
    let mut projection = Projection::new(&id);
    file.records(&id, &mut |record| {
        match projection.messages(&record) {
            Ok(messages) => messages.iter().for_each(|message| document.add(message)),
            Err(reason) => {
                let record = &record.id;
                sink.skip(None, format!("`{record}` of session `{id}`: {reason}"));
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(document.end())
}

fn info(session: OpencodeSession) -> String {
    let (mut fields, mut times) = (Vec::new(), Vec::new());
    let mut add = |name: &str, value: String| {
        let list = match name.strip_prefix(TIME) {
            Some(_) => &mut times,
            None => &mut fields,
        };
        let name = name.strip_prefix(TIME).unwrap_or(name);
        let known = NAMES.iter().find(|(column, _)| *column == name);
        let name = known.map_or(name, |(_, name)| name);
        list.push(format!("{}:{value}", Json::string(name).as_str()));
    };
    add("id", Json::string(&session.id).as_str().to_owned());
    for (name, value) in session.columns {
        let value = match value {
            JsonColumn::Integer(number) => number.to_string(),
            JsonColumn::Real(number) => Json::of(&number).unwrap_or_default().as_str().to_owned(),
            JsonColumn::Text(text) if JSON.contains(&name.as_str()) => {
                let text = repaired(text.as_bytes()).0;
                let json = Json::parse(&text).unwrap_or_else(|_| Json::string(&text));
                json.as_str().to_owned()
            }
            JsonColumn::Text(text) => Json::string(&text).as_str().to_owned(),
        };
        add(&name, value);
    }
    format!("{{{},\"time\":{{{}}}}}", fields.join(","), times.join(","))
}

/// A document that is being written.
struct ExportDocument {
    text: String,
    session: String,
    messages: u64,
}

impl ExportDocument {
    fn begin(info: &str, session: String) -> Self {
        Self {
            text: format!("{{\"info\":{info},\"messages\":["),
            session,
            messages: 0,
        }
    }

    /// Adds a message; parts that cannot be read are reported.
    fn message(&mut self, message: OpencodeRow, parts: Vec<OpencodeRow>, sink: &mut dyn Sink) {
        let ids = [("sessionID", self.session.as_str())];
        let Some(info) = self.object(&message, &ids, sink) else {
            return;
        };
        let ids = [
            ("messageID", message.id.as_str()),
            ("sessionID", self.session.as_str()),
        ];
        let parts = parts
            .iter()
            .filter_map(|part| self.object(part, &ids, sink));
        let parts: Vec<String> = parts.collect();
        self.add(&format!(
            "{{\"info\":{info},\"parts\":[{}]}}",
            parts.join(",")
        ));
    }

    /// Adds the text of a message.
    fn add(&mut self, message: &str) {
        if self.messages > 0 {
            self.text.push(',');
        }
        self.messages += 1;
        self.text.push_str(message);
    }

    /// Returns the object of a message or a part, with its ids, which are stored separately.
    fn object(
        &self,
        row: &OpencodeRow,
        ids: &[(&str, &str)],
        sink: &mut dyn Sink,
    ) -> Option<String> {
        let (text, repairs) = repaired(row.data.as_bytes());
        for repair in repairs {
            sink.repaired(None, repair.count, repair.damage.reason());
        }
        let fields = match Fields::parse(&text) {
            Ok(fields) => fields,
            Err(reason) => {
                let (session, id) = (&self.session, &row.id);
                sink.skip(None, format!("`{id}` of session `{session}`: {reason}"));
                return None;
            }
        };
        let mut all = vec![("id", row.id.as_str())];
        all.extend(ids);
        let ids = all.iter().filter(|(key, _)| fields.get(key).is_none());
        let ids = ids.map(|(key, id)| {
            format!(
                "{}:{}",
                Json::string(key).as_str(),
                Json::string(id).as_str()
            )
        });
        let mut members: Vec<String> = ids.collect();
        for (key, value) in fields.iter() {
            members.push(format!("{}:{}", Json::string(key).as_str(), value.get()));
        }
        Some(format!("{{{}}}", members.join(",")))
    }

    fn end(mut self) -> (String, u64) {
        self.text.push_str("]}");
        (self.text, self.messages)
    }
}

/// The folders of the messages and parts of a session.
struct Storage {
    messages: PathBuf,
    /// The folders that may contain the folder of a message's parts.
    parts: Vec<PathBuf>,
}

impl Storage {
    /// Finds the folders for the file of a session, in either layout.
    fn of(session: &Path, id: &str) -> Option<Self> {
        let sessions = session.parent()?.parent()?;
        let root = sessions.parent()?;
        let of = |folder: &Path| {
            let messages = folder.join("message").join(id);
            messages.is_dir().then(|| Self {
                messages,
                parts: vec![folder.join("part"), folder.join("part").join(id)],
            })
        };
        of(root).or_else(|| of(sessions))
    }

    fn parts_of(&self, message: &str) -> Vec<PathBuf> {
        let folders = self.parts.iter().map(|folder| folder.join(message));
        folders.flat_map(|folder| files_in(&folder)).collect()
    }
}

/// True if a path is the file of a session in such a folder.
pub(super) fn is_session(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::parent);
    folder.is_some_and(|folder| folder.ends_with("session"))
}

/// True if a file is within such a folder, whatever it contains.
pub(super) fn is_within(path: &Path) -> bool {
    let mut folders = path.ancestors().skip(1);
    folders.any(|folder| folder.ends_with("storage") && folder.join("session").is_dir())
}

/// Returns the document of the session whose file this is.
pub(super) fn of_folder(
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<String, ImportError> {
    let path = source.path;
    let mut info = String::new();
    let limit = MAX_RECORD_BYTES as u64;
    let mut reader = (&mut *source.reader).take(limit);
    reader.read_to_string(&mut info).map_err(unread(path))?;
    let fields = Fields::parse(&info).map_err(ImportError::NoTranscript)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let id = fields.text("id").unwrap_or_else(|| stem.into_owned());
    let Some(storage) = Storage::of(path, &id) else {
        let reason = format!("session `{id}` has no folder of messages beside it");
        return Err(ImportError::NoTranscript(reason));
    };
    let mut document = ExportDocument::begin(info.trim(), id);
    for path in files_in(&storage.messages) {
        let Some(message) = row(&path, sink) else {
            continue;
        };
        let parts = storage.parts_of(&message.id);
        let parts = parts.iter().filter_map(|path| row(path, sink)).collect();
        document.message(message, parts, sink);
    }
    Ok(document.end().0)
}

/// Returns the JSON files of a folder by name; the names begin with the time.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "json") && path.is_file());
    files.sort();
    files
}

/// Reads a message or a part; a file that cannot be read is reported.
fn row(path: &Path, sink: &mut dyn Sink) -> Option<OpencodeRow> {
    let name = path.file_stem()?.to_string_lossy().into_owned();
    match text_of(path, sink) {
        Ok(data) => Some(OpencodeRow { id: name, data }),
        Err(error) => {
            sink.skip(None, format!("{}: {error}", path.display()));
            None
        }
    }
}

fn text_of(path: &Path, sink: &mut dyn Sink) -> Result<String, ImportError> {
    let failed = unread(path);
    let file = File::open(path).map_err(failed)?;
    let mut source = Source {
        path,
        reader: &mut BufReader::new(file),
    };
    let mut decoded = DecodedSource::of(&mut source)?;
    decoded.report(sink);
    let mut text = String::new();
    let source = decoded.source(&mut source);
    let mut reader = source.reader.take(MAX_RECORD_BYTES as u64);
    reader.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
