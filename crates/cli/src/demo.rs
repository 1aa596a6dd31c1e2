//! `loopstore demo`

use std::path::{Path, PathBuf};

use loopstore::compact::{FlipReport, FlipRequest};
use loopstore::context::{Part, PartSection};
use loopstore::extend::sqlite::{Record, Stats};
use loopstore::{
    BuildOptions, CompactReport, CompactRequest, CompactionConfig, Content, Context, ContextConfig,
    EditAction, EditReport, EditRequest, EditTarget, Message, Policy, SessionId, SqliteStore,
    build_context_from_session, compact_session_loops, edit, redo, restore, undo,
};
use loopstore_terminal::edits::result_line;
use loopstore_terminal::output::width;
use loopstore_terminal::runs::flip_summary;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, context_text, text};
use serde::Serialize;

use super::sql;

/// The window of the demonstration, slightly too small for its session.
const WINDOW: u64 = 64_000;

/// The call whose output is cleared: a long file that the context shows in full.
const CLEARED: &str = "call-4-1";

/// The number of lines shown of the context and of a document.
const FIRST_MESSAGES: usize = 4;
const DOCUMENT_LINES: usize = 40;
const LINE_CHARS: usize = 88;

const QUERY: &str = "SELECT tool_name, count(*) AS calls, sum(is_error) AS failed,
       max(length(result_text)) AS longest FROM v_tool_calls
       GROUP BY tool_name ORDER BY calls DESC";

/// Walk through a generated session: record, compact, context, undo, edit, SQL
///
/// Works in memory and leaves nothing behind, unless --keep names a file.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// Keep the database in this new file.
    #[arg(long, value_name = "PATH")]
    keep: Option<PathBuf>,
}

/// The reports of the demonstration.
#[derive(Serialize)]
struct DemoReport {
    session_id: SessionId,
    recorded: Stats,
    before: DemoContext,
    compaction: CompactReport,
    after: DemoContext,
    undo: FlipReport,
    redo: FlipReport,
    edit: EditReport,
    restore: Vec<FlipReport>,
    query: &'static str,
    rows: Vec<Record>,
    kept: Option<PathBuf>,
    /// The first messages before, and the document of a loop after; for people.
    #[serde(skip)]
    begins: Vec<String>,
    #[serde(skip)]
    document: String,
    /// The text that the model reads in place of the cleared output; for people.
    #[serde(skip)]
    marker: String,
}

/// A context without its messages.
#[derive(Serialize)]
struct DemoContext {
    tokens: u64,
    messages: usize,
    parts: Vec<Part>,
}

impl From<Context> for DemoContext {
    fn from(context: Context) -> Self {
        Self {
            tokens: context.tokens,
            messages: context.messages.len(),
            parts: context.parts,
        }
    }
}

/// Runs the demonstration and prints it.
pub fn run(app: &mut App, args: &DemoArgs) -> Result<Done, CliError> {
    let store = open(app, args)?;
    let story = play(&store, args)?;
    if app.json {
        app.out.json(&story)?;
    } else {
        app.out.text(&summary(&store, &story)?)?;
    }
    Ok(Done::Well)
}

fn open(app: &App, args: &DemoArgs) -> Result<SqliteStore, CliError> {
    let Some(path) = &args.keep else {
        return Ok(SqliteStore::in_memory()?);
    };
    if path.symlink_metadata().is_ok() {
        let text = format!("{} already exists; name a new file", path.display());
        return Err(CliError::Failed(text.into()));
    }
    Ok(SqliteStore::open_with(path, app.options())?)
}

fn play(store: &SqliteStore, args: &DemoArgs) -> Result<DemoReport, CliError> {
    let session = loopstore_demo::record(store)?;
    let context = || build_context_from_session(store, &session, &BuildOptions::default());
    let flip = FlipRequest::default();
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: WINDOW,
                ..ContextConfig::default()
            },
            CompactionConfig::default(),
        ),
        ..CompactRequest::default()
    };
    let recorded = store.stats()?;
    let before = context()?;
    let compaction = compact_session_loops(store, &session, &request)?;
    let after = context()?;
    let (undo, redo) = (undo(store, &session, &flip)?, redo(store, &session, &flip)?);
    let output = EditTarget::Call(CLEARED.into());
    let edit = edit(store, &session, &EditRequest::clear([output.clone()]))?;
    let marker = marker(&context()?);
    Ok(DemoReport {
        recorded,
        begins: first_lines(&before),
        document: document(&after),
        before: before.into(),
        compaction,
        after: after.into(),
        undo,
        redo,
        edit,
        marker,
        restore: restore(store, &session, None, &[output])?,
        query: QUERY,
        rows: store.query(QUERY)?.records(),
        kept: args.keep.clone(),
        session_id: session,
    })
}

fn summary(store: &SqliteStore, story: &DemoReport) -> Result<String, CliError> {
    let recorded = &story.recorded;
    let compaction = &story.compaction;
    let mut lines = vec![
        "loopstore keeps every message of an agent, and decides which of them its model reads.".into(),
        "This is a made-up session: an agent repairs a web shop. Indented lines are what is stored.".into(),
        String::new(),
        format!(
            "1. Recorded: {}, {}, {}.",
            text::count(recorded.loops, "loop"),
            text::count(recorded.turns, "turn"),
            text::count(recorded.messages, "message"),
        ),
        "A session is one conversation with an agent. A loop is what one prompt sets off; a turn is".into(),
        "one answer of the model with the results of the tools that it called.".into(),
        String::new(),
        "2. The context before: the messages that the model reads.".into(),
        format!(
            "It has {} tokens, too near to the window of {} that the model can take. It begins:",
            text::number(story.before.tokens),
            text::number(WINDOW)
        ),
    ];
    lines.extend(story.begins.iter().map(|line| format!("   {line}")));
    lines.extend([
        String::new(),
        format!("3. A compaction makes room (loopstore compact demo --max-tokens {WINDOW}):"),
        format!(
            "{} -> {} tokens, {} -> {} messages.",
            text::number(compaction.before.tokens),
            text::number(compaction.after.tokens),
            text::number(compaction.before.messages),
            text::number(compaction.after.messages),
        ),
        "It lays a block over each loop: which turns are read as they are (first), with long outputs".into(),
        "cut (recent), or as a short document in their place (compacted). No model was asked.".into(),
        parts(&story.after),
        String::new(),
        "4. What the model reads in place of loop-2 now; t3 is turn 3 of it:".into(),
    ]);
    lines.extend(shown_document(&story.document));
    lines.extend([
        String::new(),
        "5. Undo takes a compaction back, redo lays it on again (loopstore undo demo; loopstore redo demo):".into(),
        flip_summary(&story.undo),
        flip_summary(&story.redo),
        String::new(),
        format!("6. An edit takes a single output out, and puts it back (loopstore clear demo {CLEARED};"),
        format!("loopstore restore demo {CLEARED}). The model then reads one line in its place:"),
        result_line(&story.edit, EditAction::Cleared),
        format!("   {}", story.marker),
    ]);
    lines.extend(story.restore.iter().map(flip_summary));
    lines.extend([
        String::new(),
        "7. All originals are still there, whatever the model reads; any SQL can ask for them:"
            .into(),
        format!("   {QUERY}"),
        sql::table(&store.query(QUERY)?).lines(width()),
        String::new(),
        "What to type next:".into(),
    ]);
    lines.extend(next(story.kept.as_deref()));
    Ok(lines.join("\n"))
}

fn next(kept: Option<&Path>) -> Vec<String> {
    let mut lines = Vec::new();
    let file = match kept {
        Some(path) => text::quoted(&path.display().to_string()),
        None => {
            lines.push(
                "   loopstore demo --keep demo.db           keep this session in a file".into(),
            );
            "demo.db".into()
        }
    };
    lines.extend([
        format!(
            "   loopstore --db {file} report demo      see it as a page, summaries beside originals"
        ),
        format!("   loopstore --db {file} recall 40312     ask for what a document left out"),
        "   loopstore import ~/.claude/projects     read sessions of your own".into(),
    ]);
    lines
}

/// Returns the document in lines that fit on a screen.
fn shown_document(document: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in document.lines().map(text::clean) {
        let mut rest = &*line;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(end_of_line(rest));
            lines.push(format!("   | {}", head.trim_end()));
            rest = tail.trim_start();
        }
    }
    let most = DOCUMENT_LINES.min(lines.len());
    let more = lines.len() - most;
    lines.truncate(most);
    if more > 0 {
        lines.push(format!("   … and {}", text::count(more, "line")));
    }
    lines
}

/// Returns the end of a line: after the last space that fits, or within a word that fills the line.
fn end_of_line(line: &str) -> usize {
    let Some((most, _)) = line.char_indices().nth(LINE_CHARS) else {
        return line.len();
    };
    line[..most]
        .rfind(' ')
        .filter(|end| *end > 0)
        .unwrap_or(most)
}

/// Returns the first messages of a context, one per line.
fn first_lines(context: &Context) -> Vec<String> {
    let first = context.messages.iter().take(FIRST_MESSAGES);
    let mut lines: Vec<String> = first
        .map(|message| {
            text::fit(
                &text::line(&context_text::alone(message).replace('\n', " ")),
                LINE_CHARS,
            )
            .into_owned()
        })
        .collect();
    let more = context.messages.len().saturating_sub(FIRST_MESSAGES);
    lines.push(format!("… and {}", text::count(more, "message")));
    lines
}

/// Returns the text in place of the cleared output.
fn marker(context: &Context) -> String {
    let results = context
        .messages
        .iter()
        .filter_map(|message| match message.message() {
            Some(Message::ToolResult(result)) => Some(result),
            _ => None,
        });
    let cleared = results.filter(|result| result.tool_call_id == CLEARED);
    let texts = cleared
        .flat_map(|result| &result.content)
        .filter_map(|block| match block {
            Content::Text(block) => Some(text::line(&block.text)),
            _ => None,
        });
    texts.collect()
}

/// Returns the document that replaces the second loop.
fn document(context: &Context) -> String {
    let mut at = 0;
    for part in &context.parts {
        if part.loop_id.as_str() == "loop-2" && part.section == PartSection::Compacted {
            break;
        }
        at += usize::try_from(part.messages).unwrap_or(usize::MAX);
    }
    let message = context
        .messages
        .get(at)
        .and_then(|message| message.message());
    let blocks = message.map_or(&[][..], Message::content);
    let texts = blocks.iter().filter_map(|block| match block {
        Content::Text(block) => Some(block.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn parts(shown: &DemoContext) -> String {
    let mut table = TextTable::new(vec![
        Column::id("LOOP"),
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
