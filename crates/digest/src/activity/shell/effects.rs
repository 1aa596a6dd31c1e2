//! The effects of one program of a command line on files.

use super::super::patch::{self, FileEffect, FileOperation};
use super::words::{SimpleCommand, Word};

/// Returns the arguments that are plain paths, without flags.
fn paths(arguments: &[Word]) -> impl Iterator<Item = &str> {
    let plain = arguments
        .iter()
        .filter(|word| !word.text.starts_with('-') || word.text == "-");
    plain
        .filter(|word| word.is_plain() && is_path(&word.text))
        .map(|word| word.text.as_str())
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && text != "-" && !text.contains('\n') && !text.starts_with("/dev/")
}

fn has_flag(arguments: &[Word], flag: char) -> bool {
    arguments.iter().any(|word| {
        word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains(flag)
    })
}

pub(super) fn redirected(command: &SimpleCommand, program: &str, files: &mut Vec<FileEffect>) {
    for (kind, to) in &command.redirects {
        if !to.is_plain() || !is_path(&to.text) {
            continue;
        }
        let change = match kind {
            '>' => FileOperation::Write,
            'a' => FileOperation::Edit,
            _ if program == "cat" => FileOperation::Read,
            _ => continue,
        };
        files.push(FileEffect::new(&to.text, change));
    }
}

pub(super) fn effects(
    program: &str,
    arguments: &[Word],
    command: &SimpleCommand,
    editor: bool,
    files: &mut Vec<FileEffect>,
) {
    let first = arguments.first().map_or("", |word| word.text.as_str());
    let all = |change: FileOperation, arguments: &[Word], files: &mut Vec<FileEffect>| {
        files.extend(paths(arguments).map(|path| FileEffect::new(path, change.clone())));
    };
    let rest = arguments.get(1..).unwrap_or_default();
    match program {
        "cat" | "nl" | "less" | "more" | "bat" | "tac" if !command.writes() => {
            all(FileOperation::Read, arguments, files);
        }
        "head" | "tail" => {
            // `-n 5`, `-c 5`: the number is no file.
            let takes =
                |at: usize| at > 0 && matches!(arguments[at - 1].text.as_str(), "-n" | "-c");
            let given = (0..arguments.len())
                .filter(|at| !takes(*at))
                .map(|at| arguments[at].clone());
            let given: Vec<Word> = given.filter(|word| !word.text.starts_with('+')).collect();
            all(FileOperation::Read, &given, files);
        }
        "sed" | "gsed" | "perl" => edited_in_place(program, arguments, files),
        "tee" => {
            let change = if has_flag(arguments, 'a') {
                FileOperation::Edit
            } else {
                FileOperation::Write
            };
            all(change, arguments, files);
        }
        "rm" | "unlink" => all(FileOperation::Delete, arguments, files),
        "touch" => all(FileOperation::Touch, arguments, files),
        "mv" => moved(arguments, files),
        "cp" => {
            let given: Vec<&str> = paths(arguments).collect();
            if let [from @ .., to] = given.as_slice()
                && !has_flag(arguments, 'r')
                && !has_flag(arguments, 'R')
                && !has_flag(arguments, 'a')
            {
                files.extend(from.iter().map(|from| {
                    FileEffect::new(
                        target(from, to, from.len() > 1 && given.len() > 2),
                        FileOperation::Write,
                    )
                }));
            }
        }
        "git" => git(first, rest, command, files),
        "apply_patch" | "applypatch" | "patch" => {
            let text = command.heredoc.as_deref().unwrap_or(first);
            files.extend(patch::changes(text));
        }
        "str_replace_editor" | "edit_anthropic" => {
            let change = match first {
                "view" => FileOperation::Read,
                "create" => FileOperation::Write,
                _ => FileOperation::Edit,
            };
            files.extend(
                paths(rest)
                    .take(1)
                    .map(|path| FileEffect::new(path, change.clone())),
            );
        }
        "open" | "create" if editor => {
            let change = if program == "open" {
                FileOperation::Read
            } else {
                FileOperation::Create
            };
            files.extend(
                paths(arguments)
                    .take(1)
                    .map(|path| FileEffect::new(path, change.clone())),
            );
        }
        _ => {}
    }
}

fn edited_in_place(program: &str, arguments: &[Word], files: &mut Vec<FileEffect>) {
    let in_place = match program {
        "perl" => has_flag(arguments, 'i'),
        _ => arguments.iter().any(|word| {
            word.text == "--in-place"
                || word.text.starts_with("-i")
                || word.text == "-Ei"
                || word.text == "-ni"
        }),
    };
    let takes = |word: &Word| {
        word.text == "-f"
            || word.text.starts_with('-')
                && !word.text.starts_with("--")
                && word.text.ends_with('e')
    };
    let mut has_script = false;
    let mut given: Vec<Word> = Vec::new();
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        if takes(word) {
            has_script = true;
            at += 1;
        } else if word.text.is_empty() {
            // `sed -i ''`
        } else if !word.text.starts_with('-') {
            given.push(word.clone());
        }
        at += 1;
    }
    let from = usize::from(!has_script);
    let change = if in_place {
        FileOperation::Edit
    } else {
        FileOperation::Read
    };
    if program == "perl" && !in_place {
        return;
    }
    let found = paths(given.get(from..).unwrap_or_default());
    files.extend(found.map(|path| FileEffect::new(path, change.clone())));
}

fn moved(arguments: &[Word], files: &mut Vec<FileEffect>) {
    let given: Vec<&str> = paths(arguments).collect();
    let count = arguments
        .iter()
        .filter(|word| !word.text.starts_with('-'))
        .count();
    if given.len() != count {
        return;
    }
    if let [from @ .., to] = given.as_slice() {
        let many = from.len() > 1;
        let each = from.iter().map(|from| {
            FileEffect::new(
                target(from, to, many),
                FileOperation::MoveFrom((*from).to_owned()),
            )
        });
        files.extend(each);
    }
}

/// Returns the path of a file after it is moved or copied: in the folder `to`, or `to` itself.
fn target(from: &str, to: &str, is_folder: bool) -> String {
    if !is_folder && !to.ends_with('/') && to != "." && to != ".." {
        return to.to_owned();
    }
    let name = from
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(from);
    format!("{}/{name}", to.trim_end_matches('/'))
}

fn git(first: &str, rest: &[Word], command: &SimpleCommand, files: &mut Vec<FileEffect>) {
    match first {
        "mv" => moved(rest, files),
        "rm" if !rest.iter().any(|word| word.text == "--cached") => {
            files.extend(paths(rest).map(|path| FileEffect::new(path, FileOperation::Delete)));
        }
        "checkout" => {
            let behind = rest
                .iter()
                .position(|word| word.text == "--")
                .map(|at| &rest[at + 1..]);
            files.extend(
                paths(behind.unwrap_or_default())
                    .map(|path| FileEffect::new(path, FileOperation::Revert)),
            );
        }
        "restore" if !rest.iter().any(|word| word.text == "--staged") => {
            files.extend(paths(rest).map(|path| FileEffect::new(path, FileOperation::Revert)));
        }
        "apply" => files.extend(
            command
                .heredoc
                .as_deref()
                .map(patch::changes)
                .unwrap_or_default(),
        ),
        _ => {}
    }
}
