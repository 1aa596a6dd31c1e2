//! Applies the recorded changes of one file in order.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use loopstore::extend::codec::decode;
use loopstore::extend::{StoreRead, StoreResult};
use loopstore::model::{AgentMessage, Message};
use loopstore_digest::activity::{CallEnd, FileChange, FileOperation, message_changes};

use crate::collect::{RecordedChange, moved_path};
use crate::document::{Document, UnfollowedReason};

/// Applies the changes of the files that `names` contains: the last names of the file, and its earlier ones. Returns
/// the file under its last names, which are spellings of one path.
pub(crate) fn replay(
    read: &dyn StoreRead,
    changes: &[RecordedChange],
    names: &HashSet<String>,
    last: &[String],
) -> StoreResult<Document> {
    let mut files = Files {
        documents: HashMap::new(),
        last,
    };
    let mut texts = TextReader::default();
    for (number, change) in changes.iter().enumerate() {
        if !concerns(change, names) {
            continue;
        }
        let name = files.name_of(&change.path);
        if let Some(reason) = not_made(change) {
            let file = files.documents.entry(name).or_default();
            file.history.push((number, Some(reason)));
            continue;
        }
        match &change.operation {
            FileOperation::Delete => files.delete(&name, number),
            FileOperation::MoveFrom(from) => {
                let from = files.name_of(from);
                files.move_all(&from, &name, number);
                let text = texts.of(read, change)?.and_then(|change| change.text);
                let file = files.documents.entry(name).or_default();
                let reason = text.and_then(|text| file.change(&text, number as u32));
                if let Some(last) = file.history.last_mut().filter(|last| last.0 == number) {
                    last.1 = reason;
                }
            }
            operation => {
                let written = texts.of(read, change)?;
                let file = files.documents.entry(name).or_default();
                let reason = apply(file, operation, written, number as u32);
                file.history.push((number, reason));
            }
        }
    }
    let document = last.first().and_then(|name| files.documents.remove(name));
    Ok(document.unwrap_or_default())
}

/// True if a change touches one of the files, or a folder that contains one.
fn concerns(change: &RecordedChange, names: &HashSet<String>) -> bool {
    let is_within = |folder: &str| {
        let mut names = names.iter();
        names.any(|name| moved_path(name, folder, "").is_some())
    };
    match &change.operation {
        FileOperation::Delete => is_within(&change.path),
        FileOperation::MoveFrom(from) => is_within(&change.path) || is_within(from),
        _ => names.contains(&change.path),
    }
}

/// The files by their paths.
struct Files<'a> {
    documents: HashMap<String, Document>,
    /// The spellings of the path of the file that is followed.
    last: &'a [String],
}

impl Files<'_> {
    /// Returns the path under which a file is kept: spellings of one path are one file.
    fn name_of(&self, path: &str) -> String {
        match self.last.iter().any(|last| last == path) {
            true => self.last[0].clone(),
            false => path.to_owned(),
        }
    }

    /// Returns the paths of a file, or of the files in a folder.
    fn within(&self, path: &str) -> Vec<String> {
        let paths = self.documents.keys();
        paths
            .filter(|known| moved_path(known, path, "").is_some())
            .cloned()
            .collect()
    }

    fn delete(&mut self, path: &str, number: usize) {
        let mut paths = self.within(path);
        if paths.is_empty() {
            paths.push(path.to_owned());
        }
        for path in paths {
            let file = self.documents.entry(path).or_default();
            file.forget();
            file.is_deleted = true;
            file.history.push((number, None));
        }
    }

    fn move_all(&mut self, from: &str, to: &str, number: usize) {
        let mut paths = self.within(from);
        if paths.is_empty() {
            paths.push(from.to_owned());
        }
        for path in paths {
            let Some(target) = moved_path(&path, from, to) else {
                continue;
            };
            let target = self.name_of(&target);
            let mut moved = self.documents.remove(&path).unwrap_or_default();
            moved.history.push((number, None));
            let left = Document {
                is_deleted: true,
                history: vec![(number, None)],
                ..Document::default()
            };
            self.documents.insert(path, left);
            self.documents.insert(target, moved);
        }
    }
}

/// Returns the reason if it is not known that the change was made.
fn not_made(change: &RecordedChange) -> Option<UnfollowedReason> {
    match change.end {
        CallEnd::Succeeded => None,
        CallEnd::Failed => Some(UnfollowedReason::FailedCommand),
        CallEnd::NoResult => Some(UnfollowedReason::NoResult),
    }
}

fn apply(
    file: &mut Document,
    operation: &FileOperation,
    written: Option<FileChange>,
    by: u32,
) -> Option<UnfollowedReason> {
    let Some(written) = written else {
        file.forget();
        return Some(UnfollowedReason::Removed);
    };
    match (operation, written.text) {
        (FileOperation::Touch, _) => {
            if file.is_deleted {
                file.change(&empty(), by);
            }
            None
        }
        (FileOperation::Revert, _) => {
            file.forget();
            Some(UnfollowedReason::Reverted)
        }
        (_, Some(text)) => file.change(&text, by),
        // A tool that creates a file without a text, for an editor.
        (FileOperation::Create, None) => {
            file.change(&empty(), by);
            None
        }
        (FileOperation::Write, None) => {
            file.forget();
            Some(UnfollowedReason::TextNotRecorded)
        }
        (_, None) => Some(UnfollowedReason::TextNotRecorded),
    }
}

fn empty() -> loopstore_digest::activity::TextChange {
    loopstore_digest::activity::TextChange::Write(String::new())
}

/// Reads the texts of changes from their messages.
#[derive(Default)]
struct TextReader {
    /// The last message, since many changes are in one.
    message: Option<((i64, u32), Option<Message>)>,
}

impl TextReader {
    /// Returns the change with its text; `None` if the message was removed meanwhile.
    fn of(
        &mut self,
        read: &dyn StoreRead,
        change: &RecordedChange,
    ) -> StoreResult<Option<FileChange>> {
        let key = (change.loop_key.0, change.seq);
        if self.message.as_ref().is_none_or(|(known, _)| *known != key) {
            let mut found = None;
            let seqs = change.seq..change.seq.saturating_add(1);
            read.messages(change.loop_key, seqs, &mut |row| {
                if let AgentMessage::Llm(llm) = decode(row.body, &mut |_| Ok(None))? {
                    found = Some(llm.message);
                }
                Ok(ControlFlow::Break(()))
            })?;
            self.message = Some((key, found));
        }
        let message = self
            .message
            .as_ref()
            .and_then(|(_, message)| message.as_ref());
        let mut changes =
            message.map_or_else(Vec::new, |message| message_changes(message, change.call));
        Ok((change.file < changes.len()).then(|| changes.swap_remove(change.file)))
    }
}
