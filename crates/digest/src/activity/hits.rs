//! The files that the output of a search names, recognised by the form of its lines.

use std::cmp::Reverse;
use std::collections::HashMap;

/// The most lines of an output that are read.
const MOST_LINES: usize = 2_000;
/// The most files that are listed, and the bytes of the list.
const MOST_NAMED: usize = 8;
const LONGEST: usize = 320;
/// Words up to this length, in characters, are not compared with names: they occur in many.
const SHORT_WORD: usize = 3;
/// A longer common folder is named once for all files, in bytes.
const SHORT_FOLDER: usize = 24;
/// The longest path, in bytes.
const LONGEST_PATH: usize = 200;

/// Returns the list of the files that the output of a search names line by line: files with a word of the search in
/// their name first, then the most frequent. `None` if the output is something else, such as the text of a file or
/// names without folders.
pub(super) fn files_found(search: &str, output: &str) -> Option<String> {
    let mut order: Vec<&str> = Vec::new();
    let mut times: HashMap<&str, usize> = HashMap::new();
    let (mut hits, mut placed, mut others) = (0_usize, 0_usize, 0_usize);
    let lines = output.lines().map(str::trim_end);
    let mut lines = lines.filter(|line| !line.is_empty() && *line != "--");
    for line in lines.by_ref().take(MOST_LINES) {
        let Some((path, is_numbered)) = file_of(line) else {
            others += 1;
            continue;
        };
        hits += 1;
        placed += usize::from(is_numbered || path.contains('/'));
        *times.entry(path).or_insert_with(|| {
            order.push(path);
            0
        }) += 1;
    }
    if placed == 0 || others > hits || placed * 2 < hits {
        return None;
    }
    let words = words_of(search);
    let matches_search = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
        words.iter().any(|word| name.contains(word))
    };
    order.sort_by_cached_key(|path| (!matches_search(path), Reverse(times[path])));
    let folder = folder_of(&order);
    let files = match (lines.next(), order.len()) {
        (Some(_), _) => "or more files",
        (None, 1) => "file",
        (None, _) => "files",
    };
    let mut named = match folder {
        "" => format!("{} {files}: ", order.len()),
        folder => format!("{} {files} in {folder}: ", order.len()),
    };
    for (nth, path) in order.iter().enumerate() {
        let name = path.get(folder.len()..).filter(|_| nth < MOST_NAMED);
        let Some(name) = name.filter(|name| nth == 0 || named.len() + name.len() <= LONGEST) else {
            named.push_str(", …");
            break;
        };
        if nth > 0 {
            named.push_str(", ");
        }
        named.push_str(name);
    }
    Some(named)
}

/// Returns the words of a search that are compared with file names. Short words are left out, and with them most
/// flags and file extensions.
fn words_of(search: &str) -> Vec<String> {
    let words = search.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| word.chars().nth(SHORT_WORD).is_some());
    words.map(str::to_lowercase).collect()
}

/// Returns the common folder of several paths with its `/`; empty if there is none or it is short.
fn folder_of<'a>(paths: &[&'a str]) -> &'a str {
    let Some((first, rest)) = paths.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return "";
    };
    let shared = rest.iter().fold(first.len(), |shared, path| {
        let same = first.bytes().zip(path.bytes());
        same.take(shared)
            .take_while(|(one, other)| one == other)
            .count()
    });
    let end = first.as_bytes()[..shared]
        .iter()
        .rposition(|byte| *byte == b'/');
    end.filter(|end| *end > SHORT_FOLDER)
        .map_or("", |end| &first[..=end])
}

/// Returns the path at the beginning of a line, and whether a line number follows.
fn file_of(line: &str) -> Option<(&str, bool)> {
    let (path, rest) = line.split_once(':').unwrap_or((line, ""));
    let digits = rest.find(|c: char| !c.is_ascii_digit());
    let is_numbered = digits.is_some_and(|end| end > 0 && rest[end..].starts_with(':'));
    is_path(path).then_some((path, is_numbered))
}

fn is_path(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "/._-+@~[]()$".contains(c);
    let name = text.rsplit('/').next().unwrap_or(text);
    let ends_in_kind = name.rsplit_once('.').is_some_and(|(stem, kind)| {
        !stem.is_empty() && kind.len() <= 8 && kind.contains(|c: char| c.is_ascii_alphabetic())
    });
    text.len() <= LONGEST_PATH
        && text.chars().all(is_part)
        && text.contains(|c: char| c.is_alphabetic())
        && !name.is_empty()
        && (ends_in_kind || text.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::files_found;

    #[test]
    fn a_search_names_files_by_how_often_they_were_hit() {
        let output = "src/a.rs:3:fn a\nsrc/b.rs:1:use a\nsrc/b.rs:9:a()\n--\nsrc/b.rs-10-}\n";
        assert_eq!(
            files_found("rg a", output).as_deref(),
            Some("2 files: src/b.rs, src/a.rs")
        );
        let output = "src/b.rs:1:Kite\nsrc/b.rs:2:Kite\nsrc/kites.rs:3:Kite\n";
        assert_eq!(
            files_found("rg -n 'Kite|Wind' src", output).as_deref(),
            Some("2 files: src/kites.rs, src/b.rs")
        );
        let listed = "./docs/x.md\nsrc/y\nFound 2 files\n";
        assert_eq!(
            files_found("ls", listed).as_deref(),
            Some("2 files: ./docs/x.md, src/y")
        );
        let deep = "/home/ada/kite/packages/core/a.rs\n/home/ada/kite/packages/core/b/c.rs\n";
        assert_eq!(
            files_found("ls", deep).as_deref(),
            Some("2 files in /home/ada/kite/packages/core/: a.rs, b/c.rs")
        );
        // The common folder must be that of all files.
        let elsewhere: String = (0..8)
            .map(|n| format!("/home/ada/kite/packages/core/{n}.rs\n"))
            .collect();
        let named = files_found("ls", &(elsewhere + "/tmp/x.rs\n")).unwrap();
        assert!(
            named.starts_with("9 files: /home/ada/kite/packages/core/0.rs, "),
            "{named}"
        );
        assert_eq!(
            files_found("rg x", "a.rs:12:x").as_deref(),
            Some("1 file: a.rs")
        );
        let long = "src/a.rs:1:x\n".repeat(2_001);
        assert_eq!(
            files_found("rg x", &long).as_deref(),
            Some("1 or more files: src/a.rs")
        );
        let many: String = (0..40).map(|n| format!("src/f{n}.rs\n")).collect();
        let named = files_found("ls", &many).unwrap();
        assert!(
            named.starts_with("40 files: src/f0.rs, ") && named.ends_with("src/f7.rs, …"),
            "{named}"
        );
    }

    #[test]
    fn what_is_no_list_of_files_names_none() {
        for other in [
            "",
            "\n--\n",
            "Cargo.toml\nREADME.md",
            "fn main() {\n    run();\n}\nsrc/a.rs:1:x",
            "12:fn a\n14:fn b",
            "error: it broke\nhttps://example.com/a/b",
            "2031/04/01\n2031/04/02",
            "{\"path\": \"src/a.rs\"}",
            "src/\ndocs/",
        ] {
            assert_eq!(files_found("ls", other), None, "{other}");
        }
        let long = format!("src/{}.rs\n", "a".repeat(300));
        assert_eq!(files_found("ls", &long), None);
    }
}
