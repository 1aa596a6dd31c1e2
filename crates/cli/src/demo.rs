//! `loopstore demo`

use std::path::PathBuf;

use loopstore::compact::{FlipReport, FlipRequest};
use loopstore::context::Part;
use loopstore::extend::sqlite::{Record, Stats};
use loopstore::{
    BuildOptions, CompactReport, CompactRequest, Context, ContextConfig, SessionId, SqliteStore,
    build_context_from_session, compact_session_loops, redo, undo,
};
use serde::Serialize;

use super::error::CliError;
use super::output::width;
use super::table::{Column, TextTable};
use super::{App, Done, compact, demo_session, sql, text};

/// The window of the story: its session is a little too long for it.
const WINDOW: u64 = 64_000;

const QUERY: &str = "SELECT tool_name, count(*) AS calls, sum(is_error) AS failed,
       max(length(result_text)) AS longest FROM v_tool_calls
       GROUP BY tool_name ORDER BY calls DESC";

/// Walk through a generated session: record, compact, context, undo, SQL
///
/// Works in memory and leaves nothing behind, unless --keep names a file.
#[derive(clap::Args)]
pub struct Args {
    /// Keep the database in this new file.
    #[arg(long, value_name = "PATH")]
    keep: Option<PathBuf>,
}

/// What happened.
#[derive(Serialize)]
struct Story {
    session_id: SessionId,
    recorded: Stats,
    before: ShownContext,
    compaction: CompactReport,
    after: ShownContext,
    undo: FlipReport,
    redo: FlipReport,
    query: &'static str,
    rows: Vec<Record>,
    kept: Option<PathBuf>,
}

/// A context without its messages.
#[derive(Serialize)]
struct ShownContext {
    tokens: u64,
    messages: usize,
    parts: Vec<Part>,
}

impl From<Context> for ShownContext {
    fn from(context: Context) -> Self {
        Self {
            tokens: context.tokens,
            messages: context.messages.len(),
            parts: context.parts,
        }
    }
}

/// Plays the story and prints it.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = open(app, args)?;
    let story = play(&store, args)?;
    if app.json {
        app.out.json(&story)?;
    } else {
        app.out.text(&summary(&store, &story)?)?;
    }
    Ok(Done::Well)
}

fn open(app: &App, args: &Args) -> Result<SqliteStore, CliError> {
    let Some(path) = &args.keep else {
        return Ok(SqliteStore::in_memory()?);
    };
    if path.symlink_metadata().is_ok() {
        let text = format!("{} already exists; name a new file", path.display());
        return Err(CliError::Failed(text.into()));
    }
    Ok(SqliteStore::open_with(path, app.options())?)
}

fn play(store: &SqliteStore, args: &Args) -> Result<Story, CliError> {
    let session = demo_session::record(store)?;
    let context = || build_context_from_session(store, &session, &BuildOptions::default());
    let flip = FlipRequest::default();
    let request = CompactRequest {
        window: ContextConfig {
            max_context_tokens: WINDOW,
            ..ContextConfig::default()
        },
        ..CompactRequest::default()
    };
    Ok(Story {
        recorded: store.stats()?,
        before: context()?.into(),
        compaction: compact_session_loops(store, &session, &request)?,
        after: context()?.into(),
        undo: undo(store, &session, &flip)?,
        redo: redo(store, &session, &flip)?,
        query: QUERY,
        rows: store.query(QUERY)?.records(),
        kept: args.keep.clone(),
        session_id: session,
    })
}

fn summary(store: &SqliteStore, story: &Story) -> Result<String, CliError> {
    let recorded = &story.recorded;
    let mut lines = vec![
        format!(
            "1. Recorded an agent at work: {}, {}, {}.",
            text::count(recorded.loops, "loop"),
            text::count(recorded.turns, "turn"),
            text::count(recorded.messages, "message"),
        ),
        String::new(),
        format!(
            "2. The context before, for a window of {} tokens:",
            text::number(WINDOW)
        ),
        parts(&story.before),
        String::new(),
        format!("3. loopstore compact demo --max-tokens {WINDOW}"),
        compact::summary(&story.compaction, false),
        compact::table(&story.compaction.blocks).lines(width()),
        String::new(),
        "4. The context after:".into(),
        parts(&story.after),
        String::new(),
        "5. loopstore undo demo; loopstore redo demo".into(),
        super::undo::summary(&story.undo),
        super::undo::summary(&story.redo),
        String::new(),
        "6. All originals are still there, including those hidden from the context:".into(),
        format!("   {QUERY}"),
        sql::table(&store.query(QUERY)?).lines(width()),
    ];
    if let Some(path) = &story.kept {
        lines.push(format!(
            "\nKept: try `loopstore --db {} show demo`.",
            path.display()
        ));
    }
    Ok(lines.join("\n"))
}

fn parts(shown: &ShownContext) -> String {
    let mut table = TextTable::new(vec![
        Column::text("LOOP", 6),
        Column::text("SECTION", 9),
        Column::text("TURNS", 5),
        Column::number("MESSAGES"),
        Column::number("TOKENS"),
    ]);
    for part in &shown.parts {
        table.row(vec![
            part.loop_id.to_string(),
            serde_json::to_string(&part.section)
                .map(|word| word.trim_matches('"').to_owned())
                .unwrap_or_default(),
            text::turns(part.from_turn, part.to_turn),
            text::number(part.messages),
            text::number(part.tokens),
        ]);
    }
    table.row(vec![
        "all".into(),
        String::new(),
        String::new(),
        text::number(shown.messages as u64),
        text::number(shown.tokens),
    ]);
    table.lines(width())
}
