//! The effects of a command line on files, derived without running it.
//!
//! Paths that depend on a variable, a pattern or the output of another command are left out, not guessed.

mod effects;
mod texts;
mod words;

use std::borrow::Cow;

use super::patch::{FileEffect, FileOperation};
use super::tables::programs;
use effects::{effects, redirected};
pub(super) use texts::texts;
use words::{Word, commands};

/// The longest command line that is read, in bytes.
const LONGEST_LINE: usize = 256 << 10;

/// The effects of a command line.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    pub(super) files: Vec<FileEffect>,
    /// True if the line builds, tests or runs something; false if it only runs utilities.
    pub(super) runs: bool,
    /// The programs that its exit code covers, each with its targets.
    pub(super) runners: Vec<Runner>,
    /// The first folder that it changes to.
    pub(super) folder: Option<String>,
    /// True if the exit code is that of a viewer at the end of a pipe.
    pub(super) hides_exit: bool,
    pub(super) git: GitUse,
}

/// The calls of git in a command line whose output names a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GitUse {
    /// True if a call makes a commit (`git commit`, `git cherry-pick`).
    pub(super) commits: bool,
    /// True if a call prints the current commit (`git rev-parse HEAD`).
    pub(super) prints_head: bool,
}

/// A program that builds, tests or runs something, and its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Runner {
    /// The program and its command: `cargo test`.
    pub(super) name: String,
    pub(super) targets: Vec<String>,
    /// The folder that it runs in, if that is known.
    pub(super) folder: Option<String>,
}

impl GitUse {
    fn add(&mut self, arguments: &[Word]) {
        let Some((command, rest)) = git_subcommand("git", arguments) else {
            return;
        };
        self.commits |= programs::COMMITTING_GIT.contains(&&*command);
        self.prints_head |= command == "git rev-parse" && rest.contains(&"HEAD");
    }
}

impl Runner {
    /// True if this run covers all targets of `other`.
    pub(super) fn covers(&self, other: &Runner) -> bool {
        let within = |wide: &String, narrow: &String| {
            let wide = wide.trim_end_matches("...").trim_start_matches("./");
            let narrow = narrow.trim_start_matches("./");
            let behind = narrow.strip_prefix(wide.trim_end_matches('/'));
            wide.is_empty()
                || behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
        };
        let is_flag = |target: &&String| target.starts_with('-');
        let same = |flag: &String| other.targets.contains(flag);
        // A run with other flags is another run, unless the flags only select some of its targets.
        let chooses = |flag: &String| self.targets.contains(flag) || is_choice(flag);
        let wide: Vec<&String> = self.targets.iter().filter(|t| !is_flag(t)).collect();
        let mut narrow = other.targets.iter().filter(|t| !is_flag(t)).peekable();
        let has_all = match narrow.peek() {
            None => wide
                .iter()
                .all(|wide| wide.starts_with("./...") || *wide == "."),
            Some(_) => {
                narrow.all(|narrow| wide.is_empty() || wide.iter().any(|wide| within(wide, narrow)))
            }
        };
        self.name == other.name
            && !are_different_folders(self.folder.as_deref(), other.folder.as_deref())
            && self.targets.iter().filter(is_flag).all(same)
            && other.targets.iter().filter(is_flag).all(chooses)
            && has_all
    }
}

/// True if two folders are known to be different. One path may be relative to a parent of the other.
pub(super) fn are_different_folders(one: Option<&str>, other: Option<&str>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return false;
    };
    let is_unknown = |folder: &str| {
        folder.contains("..") || folder.starts_with(['~', '-', '$']) || folder == "."
    };
    if is_unknown(one) || is_unknown(other) {
        return false;
    }
    let plain = |folder: &str| {
        folder
            .trim_start_matches("./")
            .trim_end_matches('/')
            .to_owned()
    };
    let (one, other) = (plain(one), plain(other));
    let ends_with = |long: &str, short: &str| {
        let rest = long.strip_suffix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    !ends_with(&one, &other) && !ends_with(&other, &one)
}

/// True if a flag only selects which tests run, or of which part.
fn is_choice(flag: &str) -> bool {
    let name = flag.split('=').next().unwrap_or(flag);
    programs::SELECTING_FLAGS.contains(&name)
}

/// Returns the effects of a command line. `editor`: the shell has the commands of an editor (`open`, `create`).
pub(super) fn read(line: &str, editor: bool) -> CommandLine {
    let line = &line[..line.floor_char_boundary(LONGEST_LINE)];
    let mut found = CommandLine::default();
    let mut folder: Option<String> = None;
    let mut begin = 0;
    for command in commands(line) {
        // The exit code of a line is that of its last part.
        if command.begins_part {
            begin = found.runners.len();
            found.hides_exit = false;
        }
        let words = without_wrappers(&command.words);
        let program = words.first().map_or("", |word| program_of(word));
        let arguments = words.get(1..).unwrap_or_default();
        let mut files = Vec::new();
        if program == "cd" || program == "pushd" {
            if let Some(to) = arguments.first().filter(|word| word.is_plain()) {
                let to = join_path(folder.as_deref(), &to.text).into_owned();
                if found.folder.is_none() && found.files.is_empty() {
                    found.folder = Some(to.clone());
                }
                folder = Some(to);
            }
            continue;
        }
        effects(program, arguments, &command, editor, &mut files);
        redirected(&command, program, &mut files);
        for mut file in files {
            file.path = join_path(folder.as_deref(), &file.path).into_owned();
            if let FileOperation::MoveFrom(from) = &mut file.change {
                *from = join_path(folder.as_deref(), from).into_owned();
            }
            found.files.push(file);
        }
        let asks = |word: &Word| programs::ASKING_FLAGS.contains(&word.text.as_str());
        found.hides_exit |= command.is_piped_into && is_viewer(program);
        if program == "git" {
            found.git.add(arguments);
        }
        let runs = !is_utility(program) || changes_a_repository(program, arguments);
        if !program.is_empty() && runs && !arguments.iter().any(asks) {
            found.runs = true;
            if !command.is_piped_into {
                let folder = folder.clone();
                found.runners.push(runner(program, arguments, folder));
            }
        }
    }
    found.runners.drain(..begin.min(found.runners.len()));
    found
}

/// Returns the normalised form of a line, for comparisons: without its first `cd`, viewers at its end and repeated
/// spaces.
pub(super) fn normalised(line: &str) -> String {
    let mut rest = line.trim();
    while let Some(behind) = rest.strip_prefix("cd ") {
        let Some((_, next)) = behind.split_once("&&") else {
            break;
        };
        rest = next.trim_start();
    }
    while let Some((before, last)) = rest.rsplit_once('|') {
        let program = last.split_whitespace().next().unwrap_or("");
        let is_view = programs::TRIMMING_VIEWERS.contains(&program);
        if !is_view || before.ends_with('|') || last.contains(['\n', ';', '&']) {
            break;
        }
        rest = before.trim_end();
    }
    let rest = rest.strip_suffix("2>&1").unwrap_or(rest);
    let mut words = String::with_capacity(rest.len());
    for word in rest.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    words
}

fn join_path<'a>(folder: Option<&str>, path: &'a str) -> Cow<'a, str> {
    match folder {
        Some(folder) if !path.starts_with(['/', '~']) => {
            Cow::Owned(format!("{}/{path}", folder.trim_end_matches('/')))
        }
        _ => Cow::Borrowed(path),
    }
}

fn program_of(word: &Word) -> &str {
    let text = word.text.as_str();
    text.rsplit('/').next().unwrap_or(text)
}

/// Returns a command without the words before its program: `sudo`, `time`, `uv run`, `A=b`.
fn without_wrappers(words: &[Word]) -> &[Word] {
    let mut words = words;
    loop {
        let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
        let name = text(0).split('=').next().unwrap_or("");
        let is_variable = name.len() < text(0).len()
            && !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let skip = match (text(0), text(1)) {
            _ if is_variable => 1,
            (wrapper, _) if programs::WRAPPERS.contains(&wrapper) => 1,
            (wrapper, flag) if programs::TIMEOUTS.contains(&wrapper) => {
                1 + usize::from(words.len() > 1) + usize::from(flag.starts_with('-'))
            }
            both if programs::TWO_WORD_WRAPPERS.contains(&both) => 2,
            (runner, next)
                if programs::PACKAGE_RUNNERS.contains(&runner) && !next.starts_with('-') =>
            {
                1
            }
            _ => return words,
        };
        words = words.get(skip..).unwrap_or_default();
    }
}

/// True if a program shows what it reads, or a part of it.
fn is_viewer(program: &str) -> bool {
    programs::VIEWERS.contains(&program)
}

fn is_utility(program: &str) -> bool {
    programs::UTILITIES.contains(&program)
        || programs::EDITOR_COMMANDS.contains(&program)
        || !program.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
}

/// Returns the program and command of a call of git or of its hosts (`git push`, `gh pr create`), and the other
/// arguments without flags.
fn git_subcommand<'a>(program: &str, arguments: &'a [Word]) -> Option<(String, Vec<&'a str>)> {
    let mut words = Vec::new();
    let mut all = arguments.iter().map(|word| word.text.as_str());
    while let Some(word) = all.next() {
        match word {
            // `-c name=value` and `-C folder` come before the command.
            flag if programs::GIT_FLAGS.contains(&flag) => drop(all.next()),
            flag if flag.starts_with('-') => {}
            word => words.push(word),
        }
    }
    let named = if program == "git" { 1 } else { 2 };
    if !programs::GIT_PROGRAMS.contains(&program) || words.len() < named {
        return None;
    }
    let rest = words.split_off(named);
    Some((format!("{program} {}", words.join(" ")), rest))
}

/// True if a command of git or of its hosts changes a repository; most commands only show it.
fn changes_a_repository(program: &str, arguments: &[Word]) -> bool {
    let Some((command, _)) = git_subcommand(program, arguments) else {
        return false;
    };
    let word = command.rsplit(' ').next().unwrap_or_default();
    match program {
        "git" => programs::CHANGING_GIT.contains(&word),
        _ => programs::CHANGING_HOSTS.contains(&word),
    }
}

fn runner(program: &str, arguments: &[Word], folder: Option<String>) -> Runner {
    if let Some((name, rest)) = git_subcommand(program, arguments) {
        // The remote and branch of a push identify it; the message of a commit does not.
        let is_push = name == "git push";
        let targets = rest.into_iter().filter(|_| is_push);
        return Runner {
            targets: targets.map(str::to_owned).collect(),
            name,
            folder,
        };
    }
    let is_loud = |text: &str| {
        programs::PRINTING_FLAGS.contains(&text)
            || programs::PRINTING_FLAG_STARTS
                .iter()
                .any(|start| text.starts_with(start))
    };
    let mut rest_of_line = arguments
        .iter()
        .map(|word| word.text.as_str())
        .filter(|text| !is_loud(text))
        .peekable();
    let mut name = program.to_owned();
    let takes_script = programs::SCRIPT_RUNNERS.contains(&program);
    let has_commands = takes_script || programs::WITH_COMMANDS.contains(&program);
    if has_commands && let Some(subcommand) = rest_of_line.next_if(|text| !text.starts_with('-')) {
        name.push(' ');
        name.push_str(subcommand);
        if subcommand == "run"
            && takes_script
            && let Some(script) = rest_of_line.next()
        {
            name.push(' ');
            name.push_str(script);
        }
    }
    Runner {
        name,
        folder,
        targets: rest_of_line.map(str::to_owned).take(64).collect(),
    }
}

#[cfg(test)]
mod tests;
