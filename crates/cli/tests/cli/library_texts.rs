//! The texts of the libraries name no command and no option of the command line, since their callers may have neither.

use std::path::{Path, PathBuf};

use crate::commands::every_command::commands;
use crate::commands::stage::Stage;

/// Collects the source files of a library.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension() == Some("rs".as_ref()) && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns the string literals of a source before its tests, continued lines joined.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, after) = (&rest[..at], &rest[at..]);
        rest = if after.starts_with("//") {
            after.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(body) = after.strip_prefix('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let is_raw = before.trim_end_matches('#').ends_with('r');
            let end = match is_raw {
                true => body.find(&format!("\"{}", "#".repeat(hashes))),
                false => end_of(body),
            };
            let end = end.expect("a literal ends");
            found.push(joined(&body[..end]));
            &body[end + 1..]
        } else if after.starts_with("'\\") || after.chars().nth(2) == Some('\'') {
            // A character literal, which may be a quote.
            let escape = usize::from(after.starts_with("'\\"));
            let mut body = after[1..].char_indices().skip(1 + escape);
            let end = body.find(|(_, c)| *c == '\'');
            &after[1 + end.map_or(0, |(at, _)| at + 1)..]
        } else {
            &after[1..]
        };
    }
    found
}

fn end_of(body: &str) -> Option<usize> {
    let mut is_escaped = false;
    body.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

fn joined(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

/// True if a text contains an option: `--` and a letter, at the beginning of a word.
fn names_an_option(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + 2..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '-')
            && after.is_some_and(|c| c.is_ascii_lowercase())
    })
}

/// True if a text contains `loopstore` and a command.
fn names_a_command(text: &str, commands: &[String]) -> bool {
    // The title of a page is not a command.
    let text = text.replace("<title>loopstore report</title>", "");
    let mut after = text.split("loopstore ").skip(1);
    after.any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase());
        let word = &rest[..end.unwrap_or(rest.len())];
        commands.iter().any(|name| name == word)
    })
}

#[test]
fn no_text_of_the_libraries_names_a_command_or_an_option() {
    let mut files = Vec::new();
    for folder in [
        "src",
        "crates/acp/src",
        "crates/checkpoints/src",
        "crates/copy/src",
        "crates/digest/src",
        "crates/export/src",
        "crates/files/src",
        "crates/model/src",
        "crates/postgres/src",
        "crates/provider/src",
        "crates/redact/src",
        "crates/report/src",
        "crates/share/src",
        "crates/summarize/src",
        "crates/sync/src",
        "crates/transcripts/src",
        "integrations/phi/src",
    ] {
        sources(&crate::support::root::path(folder), &mut files);
    }
    let commands = commands(&Stage::empty());
    let (mut seen, mut wrong) = (0, Vec::new());
    // Patterns for the commands and patches of agents are never shown.
    files.retain(|file| {
        !file
            .to_string_lossy()
            .contains("crates/digest/src/activity/")
    });
    for file in files {
        for text in literals(&std::fs::read_to_string(&file).unwrap()) {
            seen += 1;
            if names_an_option(&text) || names_a_command(&text, &commands) {
                wrong.push(format!("{}: {text}", file.display()));
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn literals_are_found_in_code_alone() {
    let source = r##"// "no" 
        let a = "one \"two\" \
                 three"; let b = '"'; let c = r#"f"o"#; fn d<'a>(e: &'a str) {} let f = b"g";
#[cfg(test)]
mod tests { const T: &str = "--flag"; }"##;
    assert_eq!(literals(source), ["one \\\"two\\\" three", "f\"o", "g"]);
    assert!(names_an_option("use --db") && !names_an_option("a--b") && !names_an_option("-- b"));
}
