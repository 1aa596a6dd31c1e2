//! The effects of a patch on files, and the declarations that it changes.

/// An operation of a call on one file, as the arguments of the call say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// The tool creates a new file.
    Create,
    /// The tool writes the whole file, which may exist.
    Write,
    /// The file is created if it does not exist; else nothing happens.
    Touch,
    /// A part of the file is changed.
    Edit,
    /// The file is deleted.
    Delete,
    /// The uncommitted changes of the file are discarded.
    Revert,
    /// The file is moved here from this path.
    MoveFrom(String),
    /// The file is read.
    Read,
}

/// A file and the operation on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEffect {
    pub(super) path: String,
    pub(super) change: FileOperation,
    pub(super) symbols: Vec<String>,
}

impl FileEffect {
    pub(super) fn new(path: impl Into<String>, change: FileOperation) -> Self {
        Self {
            path: path.into(),
            change,
            symbols: Vec::new(),
        }
    }
}

/// The most symbols of one event, and the longest symbol in bytes.
const MOST_SYMBOLS: usize = 4;
const LONGEST_SYMBOL: usize = 60;
/// The most files of one patch.
const MOST_FILES: usize = 500;

/// Returns the effects of a patch: between `*** Begin Patch` and `*** End Patch`, or a unified diff. Empty for any
/// other text.
pub(super) fn changes(text: &str) -> Vec<FileEffect> {
    if let Some(at) = text.find("*** Begin Patch") {
        return marked(&text[at..]);
    }
    match text.contains("+++ ") || text.contains("rename to ") {
        true => unified(text),
        false => Vec::new(),
    }
}

fn marked(text: &str) -> Vec<FileEffect> {
    let mut found: Vec<FileEffect> = Vec::new();
    let mut hunk = PatchHunk::default();
    for line in text.lines() {
        let header = |name: &str| line.strip_prefix(name).map(str::trim);
        let begun = header("*** Add File:")
            .map(|path| (path, FileOperation::Create))
            .or_else(|| header("*** Update File:").map(|path| (path, FileOperation::Edit)))
            .or_else(|| header("*** Delete File:").map(|path| (path, FileOperation::Delete)));
        if let Some((path, change)) = begun {
            if found.len() == MOST_FILES {
                break;
            }
            hunk = PatchHunk::default();
            found.push(FileEffect::new(path, change));
        } else if line.starts_with("*** End Patch") {
            break;
        } else if let Some(file) = found.last_mut() {
            if let Some(to) = header("*** Move to:") {
                let from = std::mem::replace(&mut file.path, to.to_owned());
                file.change = FileOperation::MoveFrom(from);
            } else if file.change != FileOperation::Create {
                hunk.line(line, file);
            }
        }
    }
    found
}

fn unified(text: &str) -> Vec<FileEffect> {
    let mut found: Vec<FileEffect> = Vec::new();
    let mut hunk = PatchHunk::default();
    let (mut old, mut from) = (None, None);
    for line in text.lines() {
        let name = |rest: &str| {
            let path = rest.split('\t').next().unwrap_or(rest).trim();
            let bare = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
            bare.unwrap_or(path).to_owned()
        };
        if found.len() == MOST_FILES {
            break;
        } else if let Some(rest) = line.strip_prefix("--- ") {
            old = Some(name(rest));
        } else if let Some(rest) = line.strip_prefix("+++ ") {
            let Some(before) = old.take() else { continue };
            let path = name(rest);
            let is_moved = found.last().is_some_and(|file| {
                file.path == path && matches!(file.change, FileOperation::MoveFrom(_))
            });
            hunk = PatchHunk::default();
            if is_moved {
                continue;
            }
            found.push(match (&*before, &*path) {
                (_, "/dev/null") => FileEffect::new(before, FileOperation::Delete),
                ("/dev/null", _) => FileEffect::new(path, FileOperation::Create),
                _ => FileEffect::new(path, FileOperation::Edit),
            });
        } else if let Some(rest) = line.strip_prefix("rename from ") {
            from = Some(rest.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            if let Some(from) = from.take() {
                found.push(FileEffect::new(rest.trim(), FileOperation::MoveFrom(from)));
            }
        } else if let Some(file) = found.last_mut()
            && file.change != FileOperation::Create
            && !line.starts_with("diff --git")
        {
            hunk.line(line, file);
        }
    }
    found
}

/// The state of the reader within a hunk.
#[derive(Default)]
struct PatchHunk {
    /// The last unchanged declaration above the line.
    enclosing: Option<String>,
}

impl PatchHunk {
    fn line(&mut self, line: &str, file: &mut FileEffect) {
        if let Some(rest) = line.strip_prefix("@@") {
            let named = rest.rsplit("@@").next().unwrap_or("").trim();
            self.enclosing = declaration(named, &file.path);
            return;
        }
        let Some(kind) = line.chars().next() else {
            return;
        };
        let text = &line[kind.len_utf8()..];
        match kind {
            '+' | '-' => {
                if let Some(symbol) = declaration(text, &file.path) {
                    add_symbol(&mut file.symbols, symbol.clone());
                    self.enclosing = Some(symbol);
                } else if !text.trim().is_empty()
                    && let Some(symbol) = &self.enclosing
                {
                    add_symbol(&mut file.symbols, symbol.clone());
                }
            }
            ' ' => {
                if let Some(symbol) = declaration(text, &file.path) {
                    self.enclosing = Some(symbol);
                }
            }
            _ => {}
        }
    }
}

/// Adds the declarations that differ between `old` and `new`, or the nearest one above the difference.
pub(super) fn add_symbols(symbols: &mut Vec<String>, old: &str, new: &str, path: &str) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let shorter = old.len().min(new.len());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let before = old.iter().zip(&new).take_while(same).count();
    let behind = old.iter().rev().zip(new.iter().rev());
    let behind = behind.take(shorter - before).take_while(same).count();
    let had = symbols.len();
    // In a fenced example of Markdown, comments look like headings.
    let is_fence = |line: &&&str| line.trim_start().starts_with("```");
    let mut fenced = new[..before].iter().filter(is_fence).count() % 2 == 1;
    for line in &new[before..new.len() - behind] {
        fenced ^= is_fence(&line);
        if !fenced && let Some(symbol) = declaration(line, path) {
            add_symbol(symbols, symbol);
        }
    }
    let above = |lines: &[&str]| lines.iter().rev().find_map(|line| declaration(line, path));
    if symbols.len() == had
        && let Some(symbol) =
            above(&new[..before]).or_else(|| above(&old[before..old.len() - behind]))
    {
        add_symbol(symbols, symbol);
    }
}

/// Adds the symbols of search and replace blocks; returns true if there are any.
pub(super) fn add_block_symbols(symbols: &mut Vec<String>, text: &str, path: &str) -> bool {
    let mut any = false;
    for block in text.split("<<<<<<< SEARCH").skip(1) {
        let Some((old, rest)) = block.split_once("\n=======") else {
            continue;
        };
        let Some((new, _)) = rest.split_once(">>>>>>> REPLACE") else {
            continue;
        };
        any = true;
        add_symbols(symbols, old, new, path);
    }
    any
}

pub(super) fn add_symbol(symbols: &mut Vec<String>, symbol: String) {
    if symbols.len() < MOST_SYMBOLS && !symbols.contains(&symbol) {
        symbols.push(symbol);
    }
}

const MODIFIERS: [&str; 24] = [
    "pub",
    "export",
    "default",
    "async",
    "static",
    "public",
    "private",
    "protected",
    "abstract",
    "final",
    "unsafe",
    "override",
    "inline",
    "internal",
    "suspend",
    "open",
    "data",
    "sealed",
    "declare",
    "virtual",
    "partial",
    "local",
    "extern",
    "const",
];
const DECLARING: [&str; 16] = [
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "interface",
    "function",
    "func",
    "fun",
    "module",
    "namespace",
    "impl",
    "record",
    "protocol",
    "type",
];

/// Returns the declaration of a line: `fn parse`, `class Row`, `## Usage`, a key at the top level.
fn declaration(line: &str, path: &str) -> Option<String> {
    if line.len() > 400 {
        return None;
    }
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let words = line.trim_start();
    match ending {
        "md" | "mdx" | "markdown" => {
            let marks = words.bytes().take_while(|byte| *byte == b'#').count();
            let is_heading = (1..=6).contains(&marks) && words[marks..].starts_with(' ');
            return is_heading.then(|| short(words));
        }
        "json" | "yaml" | "yml" | "toml" | "ini" | "cfg" => return key(line, ending),
        "txt" | "csv" | "rst" | "html" => return None,
        _ => {}
    }
    let mut rest = words;
    loop {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let is_constant_function = word == "const" && behind.trim_start().starts_with("fn ");
        if DECLARING.contains(&word) && behind.starts_with([' ', '*', '<']) {
            return named(word, behind);
        }
        if !MODIFIERS.contains(&word) || word == "const" && !is_constant_function {
            return None;
        }
        rest = behind.trim_start();
        if rest.starts_with('(') {
            rest = rest.split_once(')')?.1.trim_start();
        }
        if let Some(behind) = rest.strip_prefix('"') {
            rest = behind.split_once('"')?.1.trim_start();
        }
    }
}

fn named(word: &str, behind: &str) -> Option<String> {
    let mut name = behind.trim_start_matches([' ', '*']);
    if word == "impl" {
        let end = name.find('{').unwrap_or(name.len());
        let whole = name[..end].trim();
        return (!whole.is_empty()).then(|| short(&format!("impl {whole}")));
    }
    // A method of Go has its receiver before its name.
    if word == "func" && name.starts_with('(') {
        name = name.split_once(')')?.1.trim_start();
    }
    let end = name.find(|c: char| !c.is_alphanumeric() && !"_$:!?.".contains(c));
    let name = name[..end.unwrap_or(name.len())].trim_end_matches([':', '.']);
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$');
    // `type` declares only before `=` or a body; in other languages it is an ordinary word.
    let is_type = word != "type" || behind.contains(['=', '{']) || behind.contains(" struct");
    (is_name && is_type).then(|| short(&format!("{word} {name}")))
}

fn key(line: &str, ending: &str) -> Option<String> {
    if line.starts_with('[') && matches!(ending, "toml" | "ini" | "cfg") {
        let end = line.find(']')?;
        return Some(short(line[..end].trim_start_matches('[')));
    }
    let (key, is_top) = match ending {
        "json" => {
            let spaces = line.len() - line.trim_start().len();
            let quoted = line.trim_start().strip_prefix('"')?;
            let (key, rest) = quoted.split_once('"')?;
            (key, spaces <= 2 && rest.trim_start().starts_with(':'))
        }
        "yaml" | "yml" => (line.split_once(':')?.0, !line.starts_with([' ', '-', '#'])),
        _ => (
            line.split_once('=')?.0.trim_end(),
            !line.starts_with([' ', '#', ';']),
        ),
    };
    let is_word = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    (is_top && !key.is_empty() && key.chars().all(is_word)).then(|| short(key))
}

fn short(text: &str) -> String {
    let text = text.trim();
    text[..text.floor_char_boundary(LONGEST_SYMBOL)]
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests;
