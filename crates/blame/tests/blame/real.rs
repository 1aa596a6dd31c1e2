//! Recorded transcripts, if they are available: every file that a plain reading of the tools' arguments follows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use loopstore::extend::QueryLimits;
use loopstore::{Database, Store};
use loopstore_blame::blame;
use loopstore_testing::recording::real_transcripts;
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::Value;

use crate::reference::ReferenceFile;
use crate::stage::{TurnName, lines, request};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// A call of the view, read without any table of tools.
struct Call {
    name: String,
    arguments: Value,
    turn: TurnName,
}

fn calls(store: &dyn Database) -> Vec<Call> {
    let query = "SELECT session_id, loop_id, turn, tool_name, arguments, result_seq, is_error \
                 FROM v_tool_calls";
    let rows = store.query_within(query, QueryLimits::default()).unwrap();
    let call = |row: &loopstore::extend::Record| {
        let text = |column| row.text(column).unwrap();
        row.number("result_seq")?;
        let arguments: Value = serde_json::from_str(&row.text("arguments")?).ok()?;
        if row.number("is_error") == Some(1) {
            return None;
        }
        Some(Call {
            name: text("tool_name"),
            arguments,
            turn: (
                text("session_id"),
                text("loop_id"),
                row.number("turn")? as u32,
            ),
        })
    };
    rows.records().iter().filter_map(call).collect()
}

/// The files of a session as the reference follows them, and the turns that changed each.
#[derive(Default)]
struct Followed {
    files: HashMap<String, ReferenceFile>,
    turns: BTreeMap<String, BTreeSet<TurnName>>,
    /// The texts that edits wrote into files that are not known as a whole.
    edits: Vec<(String, String, String, TurnName)>,
}

impl Followed {
    fn call(&mut self, call: &Call, number: usize) {
        let field = |names: &[&str]| {
            let mut found = names.iter().filter_map(|name| call.arguments.get(*name));
            found.find_map(Value::as_str)
        };
        let by = number.to_string();
        let Some(path) =
            field(&["file_path", "filePath", "path"]).filter(|path| path.starts_with('/'))
        else {
            return;
        };
        let old = field(&["old_string", "oldString", "oldText"]);
        let new = field(&["new_string", "newString", "newText"]);
        let whole = field(&["content", "file_text"]);
        let is_create = call.arguments.get("command") == Some(&"create".into());
        let is_write = ["Write", "write", "write_file"].contains(&&*call.name) || is_create;
        if let Some(text) = whole.filter(|_| is_write) {
            self.files
                .entry(path.to_owned())
                .or_default()
                .become_text(text, &by);
        } else if let (Some(""), Some(text)) = (old, new) {
            self.files
                .entry(path.to_owned())
                .or_default()
                .become_text(text, &by);
        } else if let (Some(old), Some(new)) = (old, new) {
            match self.files.get_mut(path) {
                Some(file) if file.text.matches(old).count() == 1 => {
                    let text = file.text.replacen(old, new, 1);
                    file.become_text(&text, &by);
                }
                Some(_) => drop(self.files.remove(path)),
                None => self
                    .edits
                    .push((path.into(), old.into(), new.into(), call.turn.clone())),
            }
        } else {
            return;
        }
        self.turns
            .entry(path.to_owned())
            .or_default()
            .insert(call.turn.clone());
    }
}

#[test]
fn recorded_files_are_attributed_as_the_reference_does() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    let (mut followed_files, mut followed_lines, mut placed) = (0, 0, 0);
    for path in paths {
        let store = Store::in_memory().unwrap();
        let options = ImportOptions::default();
        if import_paths(
            store.database(),
            std::slice::from_ref(&path),
            &options,
            &mut |_| {},
        )
        .is_err()
        {
            continue;
        }
        let calls = calls(store.database());
        let mut followed = Followed::default();
        for (number, call) in calls.iter().enumerate() {
            followed.call(call, number);
        }
        for (file, turns) in &followed.turns {
            let found = blame(store.database(), &request(file, None))
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let changed: BTreeSet<TurnName> = found
                .changes
                .iter()
                .map(|change| &change.turn)
                .map(|turn| {
                    (
                        turn.session_id.clone(),
                        turn.loop_id.clone(),
                        turn.turn.unwrap(),
                    )
                })
                .collect();
            assert!(turns.is_subset(&changed), "{}: {file}", path.display());
        }
        for (file, reference) in &followed.files {
            let found = blame(store.database(), &request(file, None)).unwrap();
            // A shell may have changed or deleted the file, which only blame sees.
            if !found.unfollowed.is_empty() || found.deleted {
                continue;
            }
            followed_files += 1;
            let expected = reference.lines();
            let found = lines(&found);
            assert_eq!(found.len(), expected.len(), "{}: {file}", path.display());
            for ((line, by), turn) in expected.iter().zip(found) {
                let is_single = expected.iter().filter(|(other, _)| other == line).count() == 1;
                let own = &calls[by.parse::<usize>().unwrap()].turn;
                if is_single {
                    assert_eq!(
                        turn.as_ref(),
                        Some(own),
                        "{}: {file}: {line}",
                        path.display()
                    );
                    followed_lines += 1;
                }
            }
        }
        // The text of the last edit of a file, with the lines of a person around it.
        let mut last: BTreeMap<&str, &(String, String, String, TurnName)> = BTreeMap::new();
        for edit in &followed.edits {
            last.insert(&edit.0, edit);
        }
        for (file, (_, old, new, turn)) in last {
            let text = format!("a line of a person\n{new}\nanother line of a person\n");
            let found = blame(store.database(), &request(file, Some(&text))).unwrap();
            let found = lines(&found);
            assert!(found[0].is_none(), "{}: {file}", path.display());
            let old: BTreeSet<&str> = old.lines().collect();
            for (line, found) in new.lines().zip(&found[1..]) {
                let is_new = !old.contains(line) && line.trim().len() > 12;
                if is_new && let Some(found) = found {
                    assert_eq!(found, turn, "{}: {file}: {line}", path.display());
                    placed += 1;
                }
            }
        }
    }
    assert!(
        followed_files >= 5 && followed_lines >= 100 && placed >= 50,
        "{followed_files} files, {followed_lines} lines, {placed} placed"
    );
}
