//! Random sessions that change files with the tools of many agents.

use std::collections::BTreeMap;

use loopstore_blame::{Attribution, UnfollowedReason};
use loopstore_testing::histories::Random;
use serde_json::{Value, json};

use crate::reference::ReferenceFile;
use crate::stage::{Stage, lines};

const SESSIONS: [&str; 3] = ["one", "two", "three"];
const FILES: [&str; 3] = ["/repo/src/a.rs", "/repo/src/b.rs", "/repo/c.md"];

/// Makes the lines that changes write.
struct Lines {
    random: Random,
    written: u32,
    /// True if no line is written twice, so that there is one longest common sequence.
    are_unique: bool,
}

impl Lines {
    fn line(&mut self) -> String {
        self.written += 1;
        match self.are_unique {
            true => format!("let value_{} = {};", self.written, self.random.below(9)),
            false => ["}", "", "    work();", "fn a() {", "// é"][self.random.below(5) as usize]
                .to_owned(),
        }
    }

    fn lines(&mut self, most: u64) -> Vec<String> {
        let count = self.random.below(most);
        (0..count).map(|_| self.line()).collect()
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A call, and the text that it leaves.
struct Change {
    tool: &'static str,
    arguments: Value,
    text: String,
}

/// Returns a random change of a file with this text.
fn change(path: &str, text: &str, make: &mut Lines) -> Change {
    let old: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = old.len() as u64;
    let first = make.random.below(count + 1) as usize;
    let last = first + make.random.below(count - first as u64 + 1).min(6) as usize;
    let new = make.lines(5);
    let mut lines = old.clone();
    lines.splice(first..last, new.iter().cloned());
    let spliced = joined(&lines);
    let relative = path.strip_prefix("/repo/").unwrap();
    let call = |tool, arguments, text: &str| Change {
        tool,
        arguments,
        text: text.to_owned(),
    };
    let kind = make.random.below(10);
    let part = joined(&old[first..last]);
    // Places may overlap: three equal lines have two of them twice.
    let places = text
        .char_indices()
        .filter(|(at, _)| text[*at..].starts_with(&part));
    let is_once = !part.is_empty() && places.count() == 1;
    match kind {
        0 => call(
            "Write",
            json!({"file_path": path, "content": spliced}),
            &spliced,
        ),
        1 if is_once => {
            let edit = json!({"file_path": path, "old_string": part, "new_string": joined(&new)});
            call("Edit", edit, &spliced)
        }
        2 if is_once && make.are_unique => {
            // A part of a line, and a second edit of what the first wrote.
            let head = part.trim_end_matches('\n');
            let (mark, word) = (make.line(), make.line());
            let edits = json!([
                {"old_string": head, "new_string": format!("{mark} + {head}")},
                {"old_string": mark, "new_string": word},
            ]);
            let text = text.replacen(head, &format!("{mark} + {head}"), 1);
            let text = text.replacen(&mark, &word, 1);
            call(
                "MultiEdit",
                json!({"file_path": path, "edits": edits}),
                &text,
            )
        }
        3 if text.contains("value") => {
            let edit =
                json!({"path": path, "oldText": "value", "newText": "amount", "replace_all": true});
            call("edit", edit, &text.replace("value", "amount"))
        }
        4 if !new.is_empty() => {
            let mut lines = old;
            lines.splice(first..first, new.iter().cloned());
            let insert = json!({"command": "insert", "path": path, "insert_line": first, "new_str": new.join("\n")});
            call("str_replace_editor", insert, &joined(&lines))
        }
        // Editors differ in what an empty last line of the new text is.
        5 if last > first && new.last().is_some_and(|line| !line.is_empty()) => {
            let edit = json!({"path": path, "start_line": first + 1, "end_line": last, "replacement": new.join("\n")});
            call("edit_lines", edit, &spliced)
        }
        6 if last > first => {
            let hunk = format!(
                "--- a/{relative}\n+++ b/{relative}\n@@ -{},{} +{},{} @@\n{}{}",
                first + 1,
                last - first,
                first + 1,
                new.len(),
                marked(&old[first..last], '-'),
                marked(&new, '+')
            );
            call(
                "apply_diff",
                json!({"diff": hunk, "cwd": "/repo"}),
                &spliced,
            )
        }
        7 if is_once => {
            let patch = format!(
                "*** Begin Patch\n*** Update File: {relative}\n@@\n{}{}*** End Patch",
                marked(&old[first..last], '-'),
                marked(&new, '+')
            );
            let command = json!({"command": ["apply_patch", patch], "workdir": "/repo"});
            call("shell", command, &spliced)
        }
        8 => {
            let added = joined(&new);
            let line = format!("cd /repo && cat >> {relative} <<'END'\n{added}END\n");
            call(
                "Bash",
                json!({"command": line}),
                &(text.to_owned() + &added),
            )
        }
        _ => {
            let content = joined(&lines);
            let write = json!({"command": "create", "path": path, "file_text": content});
            call("str_replace_editor", write, &content)
        }
    }
}

fn marked(lines: &[String], mark: char) -> String {
    lines.iter().map(|line| format!("{mark}{line}\n")).collect()
}

/// Runs a random history, and compares each file after it.
fn check(seed: u64, are_unique: bool) {
    let mut make = Lines {
        random: Random::new(seed),
        written: 0,
        are_unique,
    };
    let mut stage = Stage::new();
    for session in SESSIONS {
        stage.prompt(session, &format!("Work of {session}"));
    }
    let mut files: BTreeMap<String, ReferenceFile> = BTreeMap::new();
    let mut wrote: BTreeMap<String, String> = BTreeMap::new();
    let steps = 4 + make.random.below(30);
    for _ in 0..steps {
        let session = SESSIONS[make.random.below(3) as usize];
        let path = FILES[make.random.below(3) as usize];
        let known = files.get(path).cloned();
        let text = known.as_ref().map(|file| file.text.clone());
        match (make.random.below(14), text) {
            (0, Some(_)) => {
                let call = json!({"command": format!("rm {path}")});
                stage.call(session, "Bash", call, "");
                files.remove(path);
            }
            (1, Some(_)) => {
                let to = FILES[make.random.below(3) as usize];
                if to != path {
                    let call = json!({"command": format!("git mv {path} {to}")});
                    stage.call(session, "Bash", call, "");
                    let moved = files.remove(path).unwrap();
                    files.insert(to.to_owned(), moved);
                }
            }
            (2, Some(text)) => {
                let failed = change(path, &text, &mut make);
                if failed.tool != "Bash" && failed.tool != "shell" {
                    stage.failed(
                        session,
                        failed.tool,
                        failed.arguments,
                        "String to replace not found",
                    );
                }
            }
            (3, Some(_)) => {
                let call = json!({"file_path": path, "limit": 9});
                stage.call(session, "Read", call, "text");
            }
            (_, Some(text)) => {
                let made = change(path, &text, &mut make);
                let id = stage.call(session, made.tool, made.arguments, "done");
                files.get_mut(path).unwrap().become_text(&made.text, &id);
                wrote.insert(id, made.text);
            }
            (_, None) => {
                let content = joined(&make.lines(12));
                let call = json!({"file_path": path, "content": content});
                let id = stage.call(session, "Write", call, "File created successfully");
                files
                    .entry(path.to_owned())
                    .or_default()
                    .become_text(&content, &id);
                wrote.insert(id, content);
            }
        }
    }
    let turns = stage.turns();
    for (path, file) in &files {
        for text in [None, Some(&*file.text)] {
            let found = stage.blame(path, text).unwrap();
            assert_eq!(
                found.unfollowed.len(),
                0,
                "seed {seed}: {:?}",
                found.changes
            );
            let found_lines = lines(&found);
            let expected = file.lines();
            assert_eq!(found_lines.len(), expected.len(), "seed {seed}: {path}");
            for ((line, by), turn) in expected.iter().zip(&found_lines) {
                let turn = turn
                    .as_ref()
                    .unwrap_or_else(|| panic!("seed {seed}: {path}: {line}"));
                if are_unique {
                    assert_eq!(turn, &turns[*by], "seed {seed}: {path}: {line}");
                    continue;
                }
                // Of equal lines, another may be the one that stayed: the turn wrote such a line.
                let call = turns.iter().find(|(_, name)| *name == turn).unwrap().0;
                assert!(
                    wrote[call].lines().any(|own| own == *line),
                    "seed {seed}: {path}: {line}"
                );
            }
        }
    }
}

#[test]
fn every_line_belongs_to_the_turn_that_wrote_it_last() {
    (0..150).for_each(|seed| check(seed, true));
}

#[test]
fn equal_lines_belong_to_a_turn_that_wrote_one() {
    (1_000..1_100).for_each(|seed| check(seed, false));
}

#[test]
fn lines_of_people_are_unknown() {
    for seed in 0..60 {
        let mut make = Lines {
            random: Random::new(seed),
            written: 0,
            are_unique: true,
        };
        let mut stage = Stage::new();
        stage.prompt("one", "Write it");
        let before = make.lines(9);
        let own = make.lines(9);
        // The file of a person, in which the agent only edits.
        let mut text: Vec<String> = (0..20).map(|_| make.line()).collect();
        let at = make.random.below(19) as usize;
        let old = format!("{}\n{}", text[at], text[at + 1]);
        let mut new = vec![text[at].clone()];
        new.extend(own.iter().cloned());
        new.push(text[at + 1].clone());
        let edit = json!({"file_path": "/repo/x", "old_string": old, "new_string": new.join("\n")});
        stage.call("one", "Edit", edit, "The file has been updated");
        text.splice(at..at + 2, new);
        // And the person edits around it later.
        text.splice(0..0, before);
        text.push(make.line());
        let found = stage.blame("/repo/x", Some(&joined(&text))).unwrap();
        for (line, turn) in text.iter().zip(lines(&found)) {
            assert_eq!(turn.is_some(), own.contains(line), "seed {seed}: {line}");
        }
        let found_ranges = found.ranges.iter().filter(|range| range.turn.is_some());
        assert!(
            found_ranges
                .clone()
                .all(|range| range.attribution == Some(Attribution::Found))
        );
        assert_eq!(found.unplaced_lines, 0);
    }
}

#[test]
fn what_cannot_be_followed_is_counted_and_named() {
    let mut stage = Stage::new();
    stage.prompt("one", "Write it");
    let write = |text: &str| json!({"file_path": "/repo/x", "content": text});
    let run = |line: &str| json!({"command": line});
    stage.call(
        "one",
        "Write",
        write("first line\nsecond line\n"),
        "File created",
    );
    stage.call("one", "Bash", run("sed -i s/first/third/ /repo/x"), "");
    let edit = json!({"file_path": "/repo/x", "old_string": "third line", "new_string": "third line\nnew line"});
    stage.call("one", "Edit", edit, "The file has been updated");
    stage.failed(
        "one",
        "Bash",
        run("echo a >> /repo/x && cargo test"),
        "exit code: 101",
    );
    stage.open_call("one", "Write", write("never"));
    stage.prompt("one", "Go on");
    stage.call("one", "Bash", run("git checkout -- /repo/y"), "");
    let found = stage
        .blame("/repo/x", Some("third line\nnew line\nsecond line\n"))
        .unwrap();
    let counts: Vec<_> = found
        .unfollowed
        .iter()
        .map(|one| (one.reason, one.count))
        .collect();
    assert_eq!(
        counts,
        [
            (UnfollowedReason::OldTextNotFound, 1),
            (UnfollowedReason::TextNotRecorded, 1),
            (UnfollowedReason::FailedCommand, 1),
            (UnfollowedReason::NoResult, 1),
        ]
    );
    // The line of the edit is found in the file; the line of `sed` is unknown.
    let known: Vec<bool> = lines(&found).iter().map(Option::is_some).collect();
    assert_eq!(known, [false, true, true]);
    // Nothing is known of a file that a command wrote over.
    stage.call("one", "Bash", run("make > /repo/x"), "");
    let found = stage.blame("/repo/x", None).unwrap();
    assert_eq!((found.lines, found.ranges.len()), (None, 0));
    assert_eq!(found.changes.len(), 6);
}
