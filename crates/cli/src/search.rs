//! `loopstore search`

use std::collections::HashMap;
use std::io::IsTerminal;

use loopstore::extend::{self as store, prompt};
use loopstore::search::{
    SearchHit, SearchQuery, SearchResults, SessionResults, Snippet, search_sessions,
};
use loopstore::{Database, Role, SessionId};
use loopstore_terminal::amount::Edge;
use loopstore_terminal::hits::{hit_address, hit_line};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, amount, select, text};

use super::index;

/// The maximum width of a title, and the width of a date.
const TITLE: usize = 60;
const DAY: usize = 10;

/// Find messages and sessions by what they say, including what a compaction hid
///
/// Ask as you would ask a colleague: `loopstore search why did the flaky test fail`. Any of the words may
/// occur, in any of their forms (fail, failed, failing); case and accents do not matter, and words such as
/// `why` and `the` do not count. Messages come first that hold more of the words, rarer ones and close
/// together, and prompts and answers before the output of tools. Identifiers are found whole and in parts.
///
/// To insist: `"two words"` must occur as they stand, `+word` must occur, `-word` must not, `word*` is the
/// beginning of a word that must, and of `a OR b` one must. In a shell: `search '"two words" -draft'`, or
/// `search flaky test -- -draft`.
#[derive(clap::Args)]
pub struct SearchArgs {
    /// The question, or what must occur; several words need no quotes.
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
    /// List messages, or sessions with their best messages.
    #[arg(long, value_enum, default_value_t = By::Message)]
    by: By,
    #[command(flatten)]
    filter: FilterArgs,
    /// The maximum number of matches to list.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// The number of best matches to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u32,
}

impl SearchArgs {
    /// Returns the arguments of a search for messages without filters.
    pub fn of(query: Vec<String>, limit: u32) -> Self {
        Self {
            query,
            by: By::Message,
            filter: FilterArgs::default(),
            limit,
            offset: 0,
        }
    }
}

/// The filters of a search.
#[derive(clap::Args, Default)]
pub struct FilterArgs {
    /// Only this session: its id or a unique prefix.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only sessions imported from this format, as `sessions` names it.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only sessions whose project folder has this in its path; case does not matter.
    #[arg(long, value_name = "TEXT")]
    project: Option<String>,
    /// Only messages of this role.
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Only calls of this tool, and their results.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only messages at or after this time, such as 2026-01-31, yesterday or 7d (seven days ago).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only messages at or before this time; a date includes the whole day.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only messages that the context does not contain.
    #[arg(long, conflicts_with = "visible")]
    hidden: bool,
    /// Only messages that the context contains.
    #[arg(long)]
    visible: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Message,
    Session,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RoleName {
    User,
    Assistant,
    #[value(alias = "toolResult")]
    ToolResult,
    Extension,
}

/// Searches and lists the hits.
pub fn run(app: &mut App, args: &SearchArgs) -> Result<Done, CliError> {
    let store = open(app)?;
    let mut query = query(&*store, &joined(&args.query), &args.filter)?;
    query.limit = Some(args.limit as usize);
    query.offset = args.offset as usize;
    index::catch_up_with_bar(&*store);
    if args.by == By::Session {
        return sessions(app, &*store, &search_sessions(&*store, &query)?);
    }
    let results = loopstore::search(&*store, &query)?;
    if app.json {
        app.out.json(&results)?;
        return Ok(Done::Well);
    }
    let mut lister = Lister::new(&*store);
    for hit in &results.hits {
        let about = lister.session(hit.session_id.as_str());
        app.out.text(&about)?;
        lister.list(app, hit)?;
        app.out.text("")?;
    }
    app.out.text(&summary(&results))?;
    Ok(Done::Well)
}

/// Lists sessions, each with its best messages.
fn sessions(
    app: &mut App,
    store: &dyn Database,
    results: &SessionResults,
) -> Result<Done, CliError> {
    if app.json {
        app.out.json(results)?;
        return Ok(Done::Well);
    }
    let mut lister = Lister::new(store);
    for session in &results.sessions {
        let about = lister.session(session.session_id.as_str());
        app.out.text(&about)?;
        for hit in &session.hits {
            lister.list(app, hit)?;
        }
        app.out.text("")?;
    }
    let found = results.sessions.len() as u64;
    let count = match found {
        0 => "Nothing found.".into(),
        _ => format!("{}.", text::count(found, "session")),
    };
    let more = results
        .next
        .map(|next| format!(" Use --offset {next} for more."));
    app.out.text(&(count + &more.unwrap_or_default()))?;
    Ok(Done::Well)
}

/// Lists hits below their sessions.
struct Lister<'a> {
    store: &'a dyn Database,
    names: ShortNames<'a>,
    /// The lines about the sessions.
    sessions: HashMap<String, String>,
}

impl<'a> Lister<'a> {
    fn new(store: &'a dyn Database) -> Self {
        Self {
            store,
            names: ShortNames::new(store),
            sessions: HashMap::new(),
        }
    }

    /// Returns the id, the title, the project and the date of a session on a line.
    fn session(&mut self, id: &str) -> String {
        if let Some(line) = self.sessions.get(id) {
            return line.clone();
        }
        let about = store::read(self.store, |read| {
            let Some(row) = SessionId::new(id)
                .ok()
                .map(|id| read.session(&id))
                .transpose()?
                .flatten()
            else {
                return Ok(Vec::new());
            };
            let title = prompt::session_title(read, &row)?;
            let title = title.map(|title| text::fit(&text::line(&title), TITLE).into_owned());
            let project = row
                .project
                .as_deref()
                .map(|path| text::line(text::folder(path)));
            let day = row.last_active_at.as_deref().map(text::time);
            let day = day.map(|time| time.chars().take(DAY).collect());
            Ok::<_, loopstore::StoreError>([title, project, day].into_iter().flatten().collect())
        });
        let mut parts = vec![text::line(&self.names.session(id))];
        // A hit without its title is still a hit.
        parts.extend(about.unwrap_or_default());
        let line = parts.join(", ");
        self.sessions.insert(id.to_owned(), line.clone());
        line
    }

    /// Prints a hit: an excerpt, its near duplicates, and the command that reads it.
    fn list(&mut self, app: &mut App, hit: &SearchHit) -> Result<(), CliError> {
        let is_terminal = std::io::stdout().is_terminal();
        let heading = hit_line(hit, &mut self.names);
        app.out.text(&format!("  {heading}"))?;
        let snippet = shown(&hit.snippet, is_terminal);
        let also = match hit.also.len() as u64 {
            0 => String::new(),
            count => format!("    also in {}\n", text::count(count, "more message")),
        };
        let lines = format!("    {snippet}\n{also}");
        app.out.bytes(lines.as_bytes())?;
        let command = self.command(app, hit);
        app.out.text(&format!("    {command}"))
    }

    /// Returns the command that reads the turn of a hit. Notes are in no turn that people read.
    fn command(&mut self, app: &App, hit: &SearchHit) -> String {
        let session = self.names.session(hit.session_id.as_str());
        let mut words = vec!["read".to_owned(), session];
        match hit_address(hit, &mut self.names) {
            Some(address) => words.extend(["--turn".to_owned(), address]),
            None => {
                let loop_id = self
                    .names
                    .loop_id(hit.session_id.as_str(), hit.loop_id.as_str());
                words.extend(["--loop".to_owned(), loop_id]);
            }
        }
        if hit.role == Role::Extension {
            words.push("--full".to_owned());
        }
        app.command_line(&words)
    }
}

/// Joins the words of a query; a word with a space, if it is one of several, was quoted in the shell and becomes a
/// phrase.
pub fn joined(words: &[String]) -> String {
    let is_phrase = |word: &&String| word.contains(char::is_whitespace) && !word.contains('"');
    let word = |word: &String| match Some(word).filter(is_phrase) {
        Some(phrase) if words.len() > 1 => format!("\"{phrase}\""),
        _ => word.clone(),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Opens the database for writing, so that the index can be updated, or else for reading.
pub fn open(app: &App) -> Result<Box<dyn Database>, CliError> {
    match app.open_to_write() {
        Err(loopstore::OpenError::Other { .. } | loopstore::OpenError::ReadOnly { .. }) => {
            Ok(app.open_to_read()?)
        }
        opened => Ok(opened?),
    }
}

/// Reads a query of these messages.
pub fn query(
    store: &dyn Database,
    text: &str,
    filter: &FilterArgs,
) -> Result<SearchQuery, CliError> {
    let mut query = SearchQuery::new(text);
    query.session = select::session_id(store, filter.session.as_deref())?;
    query.source.clone_from(&filter.source);
    query.project.clone_from(&filter.project);
    query.role = filter.role.map(|role| match role {
        RoleName::User => Role::User,
        RoleName::Assistant => Role::Assistant,
        RoleName::ToolResult => Role::ToolResult,
        RoleName::Extension => Role::Extension,
    });
    query.tool.clone_from(&filter.tool);
    let moment = |given: &Option<String>, edge| {
        let given = given.as_deref();
        given.map(|given| time_millis(given, edge)).transpose()
    };
    query.since = moment(&filter.since, Edge::Start)?;
    query.until = moment(&filter.until, Edge::End)?;
    query.hidden = match (filter.hidden, filter.visible) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    Ok(query)
}

fn time_millis(given: &str, edge: Edge) -> Result<i64, CliError> {
    let time = amount::parse_time(given, edge).map_err(CliError::Usage)?;
    // A parsed time always has milliseconds.
    Ok(time.millis().unwrap_or_default())
}

fn shown(snippet: &Snippet, is_terminal: bool) -> String {
    let (open, close) = if is_terminal {
        ("\u{1b}[1m", "\u{1b}[22m")
    } else {
        ("«", "»")
    };
    let (mut out, mut at) = (String::new(), 0);
    for mark in &snippet.marks {
        out += &text::line(&snippet.text[at..mark.start]);
        out += open;
        out += &text::line(&snippet.text[mark.clone()]);
        out += close;
        at = mark.end;
    }
    out + &text::line(&snippet.text[at..])
}

fn summary(results: &SearchResults) -> String {
    let found = results.hits.len() as u64;
    if found == 0 {
        return "Nothing found.".into();
    }
    let hidden = results.hits.iter().filter(|hit| hit.hidden);
    let mut lines = vec![format!(
        "{}, {} of them not in the context.",
        text::count(found, "message"),
        text::number(hidden.count() as u64)
    )];
    if let Some(next) = results.next {
        lines.push(format!("Use --offset {next} for more."));
    }
    lines.join("\n")
}
