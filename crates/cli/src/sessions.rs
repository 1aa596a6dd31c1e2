//! `loopstore sessions`

use loopstore::extend::sqlite::Record;
use loopstore::extend::{self as store, Database, SessionCursor, SessionFilter};
use loopstore_agents::doctor;
use loopstore_terminal::amount::Edge;
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, amount, select, text};

/// The width of the column with the project.
const PROJECT: usize = 20;

/// List the sessions, most recently active first
///
/// A session without a title of its own shows what it was first asked.
#[derive(Default, clap::Args)]
pub struct SessionsArgs {
    /// The maximum number of sessions to list [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Only sessions after this session in the list: with --limit, the next page.
    #[arg(long, value_name = "SESSION")]
    after: Option<String>,
    /// Only sessions imported from this format, such as claude-code.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only sessions whose project folder has this in its path, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    project: Option<String>,
    /// Only sessions that have this in their title, first prompt or id, in upper or lower case.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    grep: Option<String>,
    /// Only sessions that are hidden.
    #[arg(long)]
    hidden: bool,
    /// Only sessions active at or after this time, such as 2026-01-31, yesterday or 7d (seven days ago).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

impl SessionsArgs {
    fn filter(&self, store: &dyn Database) -> Result<SessionFilter, CliError> {
        let after = select::session_id(store, self.after.as_deref())?;
        let place = |id| store::read(store, |read| SessionCursor::behind(read, &id));
        let since = self.since.as_deref();
        let since = since.map(|given| amount::parse_time(given, Edge::Start));
        Ok(SessionFilter {
            source: self.source.clone(),
            project: self.project.clone(),
            text: self.grep.clone(),
            since: since.transpose().map_err(CliError::Usage)?,
            hidden: self.hidden,
            after: after.map(place).transpose()?.flatten(),
            offset: 0,
            limit: self.limit.map(|limit| limit as usize),
        })
    }
}

/// Lists the sessions.
pub fn run(app: &mut App, args: &SessionsArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let filter = args.filter(&*store)?;
    let rows = store.session_rows(&filter)?;
    if app.json {
        app.out.json(&rows)?;
    } else if !rows.is_empty() {
        app.out
            .table(&table(&rows, &mut ShortNames::new(&*store)))?;
    } else if filter == SessionFilter::default() {
        app.out
            .text("No sessions yet; `loopstore import` adds some.")?;
    } else {
        app.out.text("No session fits.")?;
    }
    doctor::warn(app, &*store);
    Ok(Done::Well)
}

/// Returns the table of the sessions. The title is the last column: it may be long, and columns after it would be
/// padded.
fn table(rows: &[Record], names: &mut ShortNames<'_>) -> TextTable {
    let mut table = TextTable::new(vec![
        Column::id("SESSION"),
        Column::text("LAST ACTIVE", 19).optional(),
        Column::text("PROJECT", 8).optional(),
        Column::text("SOURCE", 6).optional(),
        Column::number("LOOPS").optional(),
        Column::number("TURNS"),
        Column::number("TOKENS"),
        Column::number("MESSAGES").optional(),
        Column::text("TITLE", 24),
    ]);
    for row in rows {
        let word = |column| row.text(column).unwrap_or_default();
        let number = |column| row.number(column).map(text::number).unwrap_or_default();
        table.row(vec![
            names.session(&word("session_id")),
            text::time(&word("last_active_at")),
            text::fit(text::folder(&word("project")), PROJECT).into_owned(),
            word("source"),
            number("loops"),
            number("turns"),
            number("tokens"),
            number("messages"),
            word("title"),
        ]);
    }
    table
}
