//! Resolves paths to files, and records the events of each file.

use std::collections::HashMap;

use super::patch::{FileEffect, FileOperation};
use super::work::{FileAct, FileEvent, FileWork, SourceTurn};

/// The most files, and the most events of one file.
const MOST_FILES: usize = 4_096;
const MOST_EVENTS: usize = 100;

/// Finds the file of a path in any spelling.
#[derive(Default)]
pub(super) struct FileIndex {
    by_path: HashMap<String, usize>,
    /// The files whose path ends with a name.
    by_name: HashMap<String, Vec<usize>>,
    /// The resolved path of each file.
    paths: Vec<String>,
}

impl FileIndex {
    pub(super) fn of(files: &[FileWork]) -> Self {
        let mut index = Self::default();
        files.iter().for_each(|file| index.add(normal(&file.path)));
        index
    }

    fn add(&mut self, path: String) {
        let at = self.paths.len();
        let name = last_part(&path).to_owned();
        self.by_name.entry(name).or_default().push(at);
        self.by_path.insert(path.clone(), at);
        self.paths.push(path);
    }

    fn find(&self, path: &str, given: &str) -> Option<usize> {
        if let Some(at) = self.by_path.get(path) {
            return Some(*at);
        }
        // The path may have been recorded before the working folder was known.
        if let Some(at) = self.by_path.get(given) {
            return Some(*at);
        }
        // A relative path with a folder is the file that ends with it, if only one does.
        let ends = |long: &str, short: &str| {
            !short.starts_with('/')
                && short.contains('/')
                && long
                    .strip_suffix(short)
                    .is_some_and(|rest| rest.ends_with('/'))
        };
        let named = self.by_name.get(last_part(given))?;
        let same = |at: &&usize| {
            let known = &self.paths[**at];
            ends(known, given) || ends(path, known)
        };
        let mut found = named.iter().take(256).filter(same);
        found.next().filter(|_| found.next().is_none()).copied()
    }

    /// Records an effect on a file. `created`: whether the file is new, if the result says so.
    pub(super) fn record(
        &mut self,
        files: &mut Vec<FileWork>,
        change: FileEffect,
        folder: Option<&str>,
        created: Option<bool>,
        place: &SourceTurn,
    ) {
        let given = normal(&change.path);
        let path = resolved(&given, folder);
        if matches!(last_part(&path), "" | "." | "..") {
            return;
        }
        let known = self.find(&path, &given);
        if let FileOperation::MoveFrom(from) = &change.change {
            let source = normal(from);
            let source = self.find(&resolved(&source, folder), &source);
            let event = event(FileAct::MovedFrom(from.clone()), place, change.symbols);
            return self.moved(files, source, known, (path, change.path), event);
        }
        if change.change == FileOperation::Delete {
            self.delete_contents(files, &path, known, place);
        }
        let is_there = known.is_some_and(|at| {
            files[at]
                .events
                .last()
                .is_none_or(|event| event.act != FileAct::Deleted)
        });
        let was_written = is_there
            && known.is_some_and(|at| {
                files[at]
                    .events
                    .iter()
                    .any(|event| event.act != FileAct::Read)
            });
        let act = match change.change {
            FileOperation::Touch if is_there => return,
            FileOperation::Touch => FileAct::Created,
            FileOperation::Create if was_written && created != Some(true) => FileAct::Written,
            FileOperation::Create => FileAct::Created,
            FileOperation::Write if created.unwrap_or(!is_there) => FileAct::Created,
            FileOperation::Write => FileAct::Written,
            FileOperation::Edit => FileAct::Edited,
            FileOperation::Delete => FileAct::Deleted,
            FileOperation::Revert => FileAct::Reverted,
            FileOperation::Read | FileOperation::MoveFrom(_) => FileAct::Read,
        };
        let at = known.unwrap_or_else(|| self.add_file(files, path));
        if let Some(file) = files.get_mut(at) {
            file.path = change.path;
            add_event(file, event(act, place, change.symbols));
        }
        self.forget_some(files);
    }

    fn add_file(&mut self, files: &mut Vec<FileWork>, path: String) -> usize {
        files.push(FileWork {
            path: path.clone(),
            events: Vec::new(),
        });
        self.add(path);
        files.len() - 1
    }

    /// Records the deletion of all files in a deleted folder.
    fn delete_contents(
        &self,
        files: &mut [FileWork],
        path: &str,
        known: Option<usize>,
        place: &SourceTurn,
    ) {
        if known.is_some() {
            return;
        }
        for (file, known) in files.iter_mut().zip(&self.paths) {
            let is_within = known
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('/'));
            let is_gone = file
                .events
                .last()
                .is_some_and(|event| event.act == FileAct::Deleted);
            if is_within && !is_gone {
                add_event(file, event(FileAct::Deleted, place, Vec::new()));
            }
        }
    }

    /// Records a move; the file keeps its earlier events.
    fn moved(
        &mut self,
        files: &mut Vec<FileWork>,
        source: Option<usize>,
        known: Option<usize>,
        (path, shown): (String, String),
        event: FileEvent,
    ) {
        let at = match (source, known) {
            (Some(source), known) => {
                // The move overwrote the file at its target.
                if let Some(known) = known.filter(|known| *known != source) {
                    files[known].events.clear();
                    files[known].path.clear();
                }
                source
            }
            (None, Some(known)) => known,
            (None, None) => self.add_file(files, path),
        };
        files[at].path = shown;
        add_event(&mut files[at], event);
        files.retain(|file| !file.path.is_empty());
        *self = Self::of(files);
        self.forget_some(files);
    }

    /// Removes files beyond the limit: those that were only read first, the oldest first.
    fn forget_some(&mut self, files: &mut Vec<FileWork>) {
        if files.len() <= MOST_FILES {
            return;
        }
        let mut over = files.len() - MOST_FILES * 3 / 4;
        for only_read in [true, false] {
            files.retain(|file| {
                let is_read = file.events.iter().all(|event| event.act == FileAct::Read);
                let goes = over > 0 && (is_read || !only_read);
                over -= usize::from(goes);
                !goes
            });
        }
        *self = Self::of(files);
    }
}

fn event(act: FileAct, place: &SourceTurn, symbols: Vec<String>) -> FileEvent {
    FileEvent {
        act,
        place: place.clone(),
        symbols,
    }
}

fn add_event(file: &mut FileWork, event: FileEvent) {
    if event.act == FileAct::Read {
        file.events.retain(|event| event.act != FileAct::Read);
    }
    match file.events.last_mut() {
        Some(last) if last.act == event.act && last.place == event.place => {
            event
                .symbols
                .into_iter()
                .for_each(|symbol| super::patch::add_symbol(&mut last.symbols, symbol));
        }
        _ => file.events.push(event),
    }
    if file.events.len() > MOST_EVENTS {
        file.events.remove(1);
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns a normalised path within the folder that it is relative to.
pub fn resolved(path: &str, folder: Option<&str>) -> String {
    match folder {
        Some(folder) if !path.starts_with(['/', '~']) && !path.contains(":/") => {
            normal(&format!("{folder}/{path}"))
        }
        _ => path.to_owned(),
    }
}

/// Returns a path without `.`, `..` and doubled slashes.
pub fn normal(path: &str) -> String {
    let path = path.trim().strip_prefix("file://").unwrap_or(path.trim());
    let path = path.replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(turn: u32) -> SourceTurn {
        SourceTurn {
            loop_name: None,
            turn,
        }
    }

    fn after(
        changes: &[(&str, FileOperation)],
        folder: Option<&str>,
    ) -> Vec<(String, Vec<FileAct>)> {
        let (mut index, mut files) = (FileIndex::default(), Vec::new());
        for (turn, (path, change)) in (0..).zip(changes) {
            index.record(
                &mut files,
                FileEffect::new(*path, change.clone()),
                folder,
                None,
                &place(turn),
            );
        }
        let acts = |file: FileWork| {
            (
                file.path,
                file.events.into_iter().map(|event| event.act).collect(),
            )
        };
        files.into_iter().map(acts).collect()
    }

    #[test]
    fn two_spellings_are_one_file() {
        use FileAct::{Created, Edited};
        use FileOperation::{Edit, Read, Write};
        let one = [("a.rs".to_owned(), vec![Created, Edited])];
        assert_eq!(
            after(&[("/repo/a.rs", Write), ("a.rs", Edit)], Some("/repo")),
            one
        );
        assert_eq!(
            after(
                &[("/repo/x/../a.rs", Write), ("./a.rs", Edit)],
                Some("/repo/")
            )
            .len(),
            1
        );
        assert_eq!(
            after(&[("/repo/src/a.rs", Write), ("src/a.rs", Edit)], None).len(),
            1
        );
        assert_eq!(
            after(&[("src/a.rs", Write), ("/repo/src/a.rs", Edit)], None).len(),
            1
        );
        assert_eq!(
            after(
                &[
                    ("/x/src/a.rs", Write),
                    ("/y/src/a.rs", Read),
                    ("src/a.rs", Edit)
                ],
                None
            )
            .len(),
            3
        );
        assert_eq!(
            after(&[("/repo/a.rs", Write), ("a.rs", Edit)], None).len(),
            2
        );
        assert_eq!(after(&[("..", Edit), (".", Read), ("/", Read)], None), []);
    }

    #[test]
    fn events_follow_each_other() {
        use FileOperation::{Create, Delete, Edit, MoveFrom, Read, Touch, Write};
        let acts = |changes: &[(&str, FileOperation)]| after(changes, None).remove(0).1;
        assert_eq!(
            acts(&[("a", Read), ("a", Write), ("a", Read)]),
            [FileAct::Written, FileAct::Read]
        );
        assert_eq!(
            acts(&[("a", Create), ("a", Touch), ("a", Write)]),
            [FileAct::Created, FileAct::Written]
        );
        assert_eq!(
            acts(&[("a", Write), ("a", Delete), ("a", Write)]),
            [FileAct::Created, FileAct::Deleted, FileAct::Created]
        );
        let moved = after(
            &[
                ("b", Read),
                ("a", Edit),
                ("b", MoveFrom("a".into())),
                ("b", Edit),
            ],
            None,
        );
        assert_eq!(
            moved,
            [(
                "b".to_owned(),
                vec![
                    FileAct::Edited,
                    FileAct::MovedFrom("a".into()),
                    FileAct::Edited
                ]
            )]
        );
        let gone = after(&[("d/a", Edit), ("d", Delete)], None);
        assert_eq!(gone[0].1, [FileAct::Edited, FileAct::Deleted]);
    }

    #[test]
    fn memory_is_bounded_and_what_was_changed_stays() {
        let (mut index, mut files) = (FileIndex::default(), Vec::new());
        for turn in 0..20_000 {
            let (path, change) = match turn % 10 {
                0 => ("kept/a".to_owned(), FileOperation::Edit),
                _ => (format!("read/{turn}"), FileOperation::Read),
            };
            index.record(
                &mut files,
                FileEffect::new(path, change),
                None,
                None,
                &place(turn),
            );
        }
        assert!(files.len() <= MOST_FILES);
        assert_eq!(files[0].path, "kept/a");
        assert_eq!(files[0].events.len(), MOST_EVENTS);
        assert_eq!(files[0].events[0].place, place(0));
    }
}
