//! `loopstore blame`

use std::path::{Path, PathBuf};

use loopstore_blame::{
    AgentTraceOptions, Attribution, Blame, BlameRequest, ChangeEntry, FileText, TurnEntry,
    agent_trace, blame, read_file, spellings,
};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, select, text};

/// The most changes that are named one by one as not followed.
const MOST_NAMED: usize = 10;
/// The number of characters of a commit id that a table shows.
const SHORT_COMMIT: usize = 10;

/// Show which session, turn and prompt wrote each line of a file
///
/// The lines are those of the file on disk, or, if it does not exist, those that the recorded changes leave. A line
/// that no recorded change wrote is unknown. Changes that could not be followed are counted and named.
#[derive(clap::Args)]
pub struct BlameArgs {
    /// The file, with a line or a range of lines: FILE, FILE:LINE or FILE:FROM-TO.
    #[arg(value_name = "FILE[:LINE]")]
    file: String,
    /// Only changes of this session: its id or a unique prefix.
    #[arg(long)]
    session: Option<String>,
    /// Only sessions whose project folder has this in its path, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    project: Option<String>,
    /// The path that the sessions recorded, if it is another than FILE; can be given several times.
    #[arg(long, value_name = "PATH")]
    recorded: Vec<String>,
    /// List every recorded change of the file, also of lines that are gone.
    #[arg(long)]
    changes: bool,
    /// Print a record of Agent Trace 0.1 (JSON).
    #[arg(long, conflicts_with = "changes")]
    agent_trace: bool,
    /// The git commit whose file this is, for the record: the whole id.
    #[arg(long, value_name = "COMMIT", requires = "agent_trace", value_parser = commit_id)]
    revision: Option<String>,
}

/// A file, and the lines of it that were asked for.
#[derive(Debug, PartialEq)]
struct GivenLines<'a> {
    file: &'a str,
    lines: Option<(u32, u32)>,
}

/// Reads the whole id of a commit.
fn commit_id(given: &str) -> Result<String, String> {
    let is_id = matches!(given.len(), 40 | 64) && given.bytes().all(|b| b.is_ascii_hexdigit());
    match is_id {
        true => Ok(given.to_ascii_lowercase()),
        false => Err("expected the whole id of a commit, as `git rev-parse HEAD` prints it".into()),
    }
}

/// Splits `FILE:LINE`. A file that exists under the whole name has no line.
fn given_lines(given: &str) -> Result<GivenLines<'_>, String> {
    let whole = GivenLines {
        file: given,
        lines: None,
    };
    let Some((file, lines)) = given.rsplit_once(':') else {
        return Ok(whole);
    };
    let is_range = !lines.is_empty() && lines.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if file.is_empty() || !is_range || Path::new(given).exists() {
        return Ok(whole);
    }
    let number = |text: &str| text.parse::<u32>().ok().filter(|line| *line > 0);
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(GivenLines {
            file,
            lines: Some((first, last)),
        }),
        _ => Err(format!(
            "`{lines}` is no line or range of lines; expected FILE:LINE or FILE:FROM-TO, counted from 1"
        )),
    }
}

/// Prints the turns that wrote the lines.
pub fn run(app: &mut App, args: &BlameArgs) -> Result<Done, CliError> {
    let given = given_lines(&args.file).map_err(CliError::Usage)?;
    if given.file.is_empty() {
        return Err(CliError::Usage("expected a file".into()));
    }
    let path = Path::new(given.file);
    let disk = read_file(path)?;
    let store = app.open_to_read()?;
    let folder = std::env::current_dir().unwrap_or_default();
    let request = BlameRequest {
        file: given.file.to_owned(),
        absolute: spellings(path, &folder),
        recorded: args.recorded.clone(),
        text: disk,
        lines: given.lines,
        session: select::session_id(&*store, args.session.as_deref())?,
        project: args.project.clone(),
    };
    let found = blame(&*store, &request)?;
    if args.agent_trace {
        let options = trace_options(args, &request);
        app.out.json(&agent_trace(&found, &options))?;
    } else if app.json {
        app.out.json(&found)?;
    } else {
        print(app, args, &found, &mut ShortNames::new(&*store))?;
    }
    Ok(Done::Well)
}

fn trace_options(args: &BlameArgs, request: &BlameRequest) -> AgentTraceOptions {
    let relative = request.absolute.last().and_then(|path| {
        let root = repository_of(Path::new(path))?;
        let path = Path::new(path).strip_prefix(root).ok()?;
        path.to_str().map(str::to_owned)
    });
    AgentTraceOptions {
        path: relative,
        revision: args.revision.clone(),
        timestamp: loopstore::Time::now().as_str().to_owned(),
        text: request
            .text
            .as_ref()
            .map(|FileText { text, .. }| text.clone()),
    }
}

/// Returns the folder of the repository that a file is in.
fn repository_of(path: &Path) -> Option<PathBuf> {
    let mut folders = path.ancestors().skip(1);
    folders
        .find(|folder| folder.join(".git").exists())
        .map(Path::to_owned)
}

fn print(
    app: &mut App,
    args: &BlameArgs,
    found: &Blame,
    names: &mut ShortNames<'_>,
) -> Result<(), CliError> {
    if args.changes {
        app.out.table(&change_table(&found.changes, names))?;
    } else if found.lines.is_none() {
        app.out.text(match found.deleted {
            true => "The file was deleted or moved away, and is not on disk.",
            false => {
                "The lines are not known: the file is not on disk, and no change wrote all of it."
            }
        })?;
        app.out.table(&change_table(&found.changes, names))?;
    } else if found.ranges.is_empty() {
        app.out.text("The file has no lines.")?;
    } else {
        app.out.table(&range_table(found, names))?;
    }
    for note in notes(found, names) {
        app.out.text(&note)?;
    }
    Ok(())
}

fn turn_columns() -> Vec<Column> {
    vec![
        Column::id("SESSION"),
        Column::id("TURN"),
        Column::text("TIME", 19).optional(),
        Column::text("AGENT", 6).optional(),
        Column::text("COMMIT", 7).optional(),
    ]
}

fn turn_cells(turn: &TurnEntry, names: &mut ShortNames<'_>) -> Vec<String> {
    let model = turn.model.as_deref();
    let agent = match (turn.agent.as_deref(), model) {
        (Some(agent), Some(model)) => format!("{agent} {model}"),
        (one, other) => one.or(other).unwrap_or_default().to_owned(),
    };
    let commit = turn.commit.as_ref();
    let commit = commit.map_or("", |commit| {
        let id = &commit.commit_id;
        &id[..id.floor_char_boundary(SHORT_COMMIT)]
    });
    vec![
        names.session(&turn.session_id),
        place(turn, names),
        turn.time.as_deref().map(text::time).unwrap_or_default(),
        agent,
        commit.to_owned(),
    ]
}

/// Returns `LOOP:TURN`.
fn place(turn: &TurnEntry, names: &mut ShortNames<'_>) -> String {
    let loop_id = names.loop_id(&turn.session_id, &turn.loop_id);
    match turn.turn {
        Some(number) => format!("{loop_id}:{number}"),
        None => loop_id,
    }
}

fn range_table(found: &Blame, names: &mut ShortNames<'_>) -> TextTable {
    let mut columns = vec![Column::text("LINES", 9)];
    columns.extend(turn_columns());
    columns.push(Column::text("PROMPT", 16));
    let mut table = TextTable::new(columns);
    for range in &found.ranges {
        let lines = match range.from_line == range.to_line {
            true => range.from_line.to_string(),
            false => format!("{}-{}", range.from_line, range.to_line),
        };
        let mark = match range.attribution {
            Some(Attribution::Found) => "~",
            _ => "",
        };
        let mut row = vec![format!("{lines}{mark}")];
        match &range.turn {
            Some(turn) => {
                row.extend(turn_cells(turn, names));
                row.push(turn.prompt.clone().unwrap_or_default());
            }
            None => {
                row.push("unknown".to_owned());
                row.extend(std::iter::repeat_n(String::new(), 5));
            }
        }
        table.row(row);
    }
    table
}

fn change_table(changes: &[ChangeEntry], names: &mut ShortNames<'_>) -> TextTable {
    let mut columns = vec![Column::text("CHANGE", 8), Column::number("LINES")];
    columns.extend(turn_columns());
    columns.push(Column::text("PROMPT", 16));
    let mut table = TextTable::new(columns);
    for change in changes {
        let mut row = vec![change.action.to_owned(), text::number(change.lines)];
        row.extend(turn_cells(&change.turn, names));
        row.push(change.turn.prompt.clone().unwrap_or_default());
        table.row(row);
    }
    table
}

/// Returns lines about what the tables do not show.
fn notes(found: &Blame, names: &mut ShortNames<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let ranges = &found.ranges;
    if ranges
        .iter()
        .any(|range| range.attribution == Some(Attribution::Found))
    {
        notes.push("~ the text of the edit was found there; the record has no place for it".into());
    }
    if !found.on_disk && found.lines.is_some() {
        notes.push(
            "The file is not on disk; the lines are those that the recorded changes leave.".into(),
        );
    }
    let unfollowed: u64 = found.unfollowed.iter().map(|one| one.count).sum();
    if unfollowed > 0 {
        notes.push(format!(
            "{} could not be followed:",
            text::count(unfollowed, "change")
        ));
        let named = found.changes.iter().filter_map(|change| {
            let reason = change.unfollowed?;
            Some(format!(
                "  {} {}, {}: {}",
                names.session(&change.turn.session_id),
                place(&change.turn, names),
                change.action,
                reason.text()
            ))
        });
        let named: Vec<String> = named.collect();
        notes.extend(text::at_most(named.into_iter(), MOST_NAMED));
    }
    let counts = [
        (
            found.unplaced_lines,
            "line",
            "of edits: changed since, or at several places",
        ),
        (found.not_utf8_lines, "line", "on disk: not UTF-8"),
        (
            found.removed_messages,
            "message",
            "of these sessions: redacted or removed, and not read",
        ),
        (
            found.untimed_changes,
            "change",
            "without a time: taken as the oldest",
        ),
        (
            found.repeated_calls,
            "call",
            "of a session repeated in another: counted once",
        ),
    ];
    for (count, noun, what) in counts {
        if count > 0 {
            notes.push(format!("{} {what}", text::count(count, noun)));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_from_its_file() {
        let read = |given| given_lines(given).map(|given| (given.file, given.lines));
        assert_eq!(read("a.rs"), Ok(("a.rs", None)));
        assert_eq!(read("a.rs:7"), Ok(("a.rs", Some((7, 7)))));
        assert_eq!(read("a:b.rs:7-9"), Ok(("a:b.rs", Some((7, 9)))));
        assert_eq!(read("a.rs:x"), Ok(("a.rs:x", None)));
        assert_eq!(read(":7"), Ok((":7", None)));
        for wrong in ["a:0", "a:9-7", "a:1-", "a:-", "a:1-2-3", "a:99999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
