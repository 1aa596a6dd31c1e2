//! The help: commands in groups, and the options of a long command behind `--help-all`.
//!
//! The texts of commands and options are those of their structs; only what is listed where is decided here.

use std::ffi::OsString;

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Command};
use loopstore_terminal::output::width;
use loopstore_terminal::text::columns;

/// The option that shows every option of a command.
const ALL: &str = "--help-all";

/// The groups of commands. A command that is in none is listed under [`OTHER`].
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Read",
        &[
            "sessions", "show", "read", "search", "recall", "expand", "context", "history", "diff",
            "blame", "replay", "report", "browse",
        ],
    ),
    (
        "Compact and edit",
        &[
            "compact", "undo", "redo", "repair", "pin", "unpin", "drop", "clear", "replace",
            "restore", "fork", "switch",
        ],
    ),
    (
        "Move",
        &[
            "import",
            "watch",
            "append",
            "export",
            "resume",
            "restore-transcript",
            "share",
            "copy",
            "sync",
        ],
    ),
    (
        "Remove",
        &[
            "redact", "hide", "unhide", "protect", "prune", "erase", "receipts",
        ],
    ),
    (
        "Operate",
        &[
            "stats",
            "sql",
            "verify",
            "backup",
            "index",
            "recount",
            "recover",
            "archive",
            "unarchive",
            "schema",
            "eval",
            "demo",
            "completions",
            "man",
        ],
    ),
    (
        "Agents",
        &["init", "install", "doctor", "hook", "mcp", "acp"],
    ),
];
const OTHER: &str = "Other";

/// The commands of the short help.
const FIRST: [&str; 10] = [
    "init", "import", "sessions", "read", "search", "recall", "compact", "context", "undo",
    "report",
];

/// The commands of which `--help` shows some options, and `--help-all` all.
const LONG: [&str; 2] = ["compact", "repair"];
/// These options.
const SHOWN: [&str; 16] = [
    "session",
    "loop_id",
    "strategy",
    "policy",
    "model",
    "max_tokens",
    "keep_first",
    "keep_recent",
    "dry_run",
    "preview",
    "edit",
    "force",
    "command",
    "instructions",
    "provider",
    "config",
];

/// The column at which the texts begin, and the widest line.
const INDENT: usize = 15;
const WIDEST: usize = 100;

const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

/// Returns the command line with its help, and whether all options are shown.
pub fn shaped(command: Command, shows_all: bool) -> Command {
    let (short, long) = (listed(&command, &FIRST), groups(&command));
    let mut command = command
        .help_template(TEMPLATE)
        .override_usage("loopstore [OPTIONS] [COMMAND]")
        .before_help(short + "\n`loopstore --help` lists all commands, `loopstore COMMAND --help` the options of one.")
        .before_long_help(long);
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    for name in names {
        command = command.mut_subcommand(&name, |one| {
            let one = one.hide(true);
            match LONG.contains(&&*name) && !shows_all {
                true => cut(one),
                false => one,
            }
        });
    }
    command
}

/// Hides the options of a command that few need.
fn cut(command: Command) -> Command {
    let is_hidden = |arg: &Arg| !SHOWN.contains(&arg.get_id().as_str());
    let hidden = command.get_arguments().filter(|arg| is_hidden(arg)).count();
    let name = command.get_name().to_owned();
    let none = || Resettable::<StyledStr>::Reset;
    command
        .long_about(none())
        .mut_args(|arg| {
            let hide = is_hidden(&arg);
            let values = match arg.get_action().takes_values() {
                true => arg.get_possible_values(),
                false => Vec::new(),
            };
            let arg = match values.is_empty() {
                true => arg,
                // Names alone; what each means would take a screen of its own.
                false => {
                    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
                    let help = arg.get_help().map(StyledStr::to_string);
                    let help = format!("{} [{}]", help.unwrap_or_default(), names.join(", "));
                    arg.help(help).hide_possible_values(true)
                }
            };
            arg.hide(hide).long_help(none())
        })
        .after_help(format!(
            "{hidden} more options: `loopstore {name} {ALL}`. Those of every command: `loopstore --help`."
        ))
}

/// Removes the option for all options from the arguments, and returns true if it was there.
pub fn take_all(args: &mut [OsString]) -> bool {
    let options = args.iter_mut().take_while(|arg| *arg != "--");
    let mut found = options.filter(|arg| *arg == ALL).peekable();
    let is_found = found.peek().is_some();
    found.for_each(|arg| *arg = "--help".into());
    is_found
}

/// Returns the groups with a line for each command.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n{}\n", listed(command, names)));
    }
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command.get_subcommands().map(Command::get_name);
    let others: Vec<&str> = others.filter(|name| !is_grouped(name)).collect();
    if !others.is_empty() {
        text.push_str(&format!("{OTHER}:\n{}\n", listed(command, &others)));
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns a line for each of the commands that the program has.
fn listed(command: &Command, names: &[&str]) -> String {
    let mut text = String::new();
    for name in names {
        let found = command
            .get_subcommands()
            .find(|one| one.get_name() == *name);
        let Some(found) = found else { continue };
        let about = found
            .get_about()
            .map(StyledStr::to_string)
            .unwrap_or_default();
        let aliases: Vec<&str> = found.get_visible_aliases().collect();
        let aliases = match aliases.is_empty() {
            true => String::new(),
            false => format!(" [aliases: {}]", aliases.join(", ")),
        };
        let indent = format!("\n{}", " ".repeat(INDENT));
        let about = wrapped(&format!("{about}{aliases}")).join(&indent);
        // A longer name has a line of its own.
        let gap = match name.len() < INDENT - 2 {
            true => " ",
            false => &indent,
        };
        text.push_str(&format!("  {name:<12}{gap}{about}\n"));
    }
    text
}

/// Breaks a text into lines that fit beside the names of commands.
fn wrapped(text: &str) -> Vec<String> {
    let width = width().unwrap_or(WIDEST).min(WIDEST);
    let room = width.saturating_sub(INDENT).max(20);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if columns(line) + 1 + columns(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_command_is_missing_or_in_two_groups() {
        let command = crate::Cli::command();
        let text = groups(&command);
        for one in command.get_subcommands() {
            let name = one.get_name();
            let first = |line: &&str| {
                line.strip_prefix("  ")
                    .and_then(|line| line.split(' ').next())
                    == Some(name)
            };
            assert_eq!(text.lines().filter(first).count(), 1, "{name}");
        }
        assert!(!text.contains("\nOther:"), "put it into a group: {text}");
        let first = listed(&command, &FIRST);
        let names = first.lines().filter(|line| !line.starts_with("   "));
        assert_eq!(names.count(), FIRST.len());
    }

    #[test]
    fn the_options_that_are_shown_exist() {
        let command = crate::Cli::command();
        let compact = command.find_subcommand("compact").unwrap();
        for id in SHOWN {
            // Options of features that this build may lack.
            let is_optional = matches!(id, "provider");
            let is_known = compact.get_arguments().any(|arg| arg.get_id() == id);
            assert!(is_known || is_optional, "{id}");
        }
    }

    #[test]
    fn the_option_for_all_is_found_before_two_dashes() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let mut given = args("loopstore compact --help-all");
        assert!(take_all(&mut given));
        assert_eq!(given, args("loopstore compact --help"));
        assert!(!take_all(&mut args("loopstore search -- --help-all")));
    }
}
