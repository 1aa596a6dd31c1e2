//! The texts that a command line writes into files, as far as the line contains them.

use super::super::actions::texts::{TextChange, patch_texts};
use super::words::{SimpleCommand, commands};
use super::{LONGEST_LINE, join_path, program_of, without_wrappers};

/// Returns the texts of heredocs and patches, by path. The output of other programs is not known.
pub(in super::super) fn texts(line: &str) -> Vec<(String, TextChange)> {
    let line = &line[..line.floor_char_boundary(LONGEST_LINE)];
    let mut found = Vec::new();
    let mut folder: Option<String> = None;
    for command in commands(line) {
        let words = without_wrappers(&command.words);
        let program = words.first().map_or("", program_of);
        let arguments = words.get(1..).unwrap_or_default();
        if program == "cd" || program == "pushd" {
            if let Some(to) = arguments.first().filter(|word| word.is_plain()) {
                folder = Some(join_path(folder.as_deref(), &to.text).into_owned());
            }
            continue;
        }
        let literal = command.heredoc.as_deref().filter(|_| command.is_literal);
        let argument = |at: usize| arguments.get(at).map(|word| word.text.as_str());
        let texts = match program {
            "cat" if arguments.iter().all(|word| word.text == "-") => {
                literal.map_or_else(Vec::new, |text| written(&command, text))
            }
            "tee" => literal.map_or_else(Vec::new, |text| {
                let adds = arguments.iter().any(|word| word.text == "-a");
                let files = arguments.iter().filter(|word| word.is_plain());
                let files = files.filter(|word| !word.text.starts_with('-'));
                files
                    .map(|word| (word.text.clone(), change(adds, text)))
                    .collect()
            }),
            "apply_patch" | "applypatch" | "patch" => {
                let text = literal.or_else(|| argument(0).filter(|_| command.heredoc.is_none()));
                text.map(patch_texts).unwrap_or_default()
            }
            "git" if argument(0) == Some("apply") => literal.map(patch_texts).unwrap_or_default(),
            _ => Vec::new(),
        };
        let joined = texts.into_iter().map(|(path, text)| {
            let path = join_path(folder.as_deref(), &path).into_owned();
            (path, text)
        });
        found.extend(joined);
    }
    found
}

/// Returns the text that `cat` writes into the file of its redirection.
fn written(command: &SimpleCommand, text: &str) -> Vec<(String, TextChange)> {
    match command.redirects.as_slice() {
        [(kind @ ('>' | 'a'), to)] if to.is_plain() => {
            vec![(to.text.clone(), change(*kind == 'a', text))]
        }
        _ => Vec::new(),
    }
}

fn change(adds: bool, text: &str) -> TextChange {
    match adds {
        true => TextChange::Append(text.to_owned()),
        false => TextChange::Write(text.to_owned()),
    }
}
