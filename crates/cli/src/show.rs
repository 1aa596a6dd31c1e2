//! `loopstore show`

use loopstore::extend::sqlite::{Record, SessionView};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::show_tree::{TreeState, tree};

/// The maximum width of a title.
const TITLE: usize = 400;

/// Show a session: its tree of loops, with their blocks and edits
#[derive(clap::Args)]
pub struct ShowArgs {
    /// The session: its id or a unique prefix.
    session: String,
}

/// Prints the session.
pub fn run(app: &mut App, args: &ShowArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let view = store.session_view(&session.session_id)?;
    if app.json {
        app.out.json(&SessionJson(&view))?;
        return Ok(Done::Well);
    }
    app.out.text(&head(&view.session))?;
    let now = TreeState::of(&*store, &session)?;
    for line in tree(&view, &now, &mut ShortNames::new(&*store)) {
        app.out.text(&line)?;
    }
    Ok(Done::Well)
}

fn head(session: &Record) -> String {
    let word = |column| session.text(column).map(|text| text::line(&text));
    let number = |column| session.number(column).unwrap_or(0);
    let mut first = format!("Session {}", word("session_id").unwrap_or_default());
    if let Some(title) = word("title") {
        first.push_str(&format!(": {}", text::fit(&title, TITLE)));
    }
    if let Some(prompt) = word("prompt").filter(|prompt| Some(prompt) != word("title").as_ref()) {
        first.push_str(&format!("\nFirst prompt: {prompt}"));
    }
    if let Some(project) = word("project") {
        first.push_str(&format!("\nProject: {project}"));
    }
    let mut facts = Vec::new();
    facts.extend(word("agent_id").map(|agent| format!("agent {agent}")));
    facts.extend(word("source").map(|source| format!("from {source}")));
    facts.extend(word("created_at").map(|time| format!("created {}", text::time(&time))));
    facts.extend(word("last_active_at").map(|time| format!("last active {}", text::time(&time))));
    let totals = [
        text::count(number("loops"), "loop"),
        text::count(number("turns"), "turn"),
        text::count(number("messages"), "message"),
        text::count(number("tokens"), "token"),
    ];
    format!("{first}\n{}\n{}\n", facts.join(", "), totals.join(", "))
}

/// The JSON of a session: its row, with the loops in place of their number.
struct SessionJson<'a>(&'a SessionView);

impl Serialize for SessionJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, value) in self.0.session.iter() {
            // Here `loops` are the loops themselves.
            let column = if column == "loops" {
                "loop_count"
            } else {
                column
            };
            map.serialize_entry(column, value)?;
        }
        map.serialize_entry("loops", &LoopList(&self.0.loops))?;
        map.serialize_entry("edits", &self.0.edits)?;
        map.end()
    }
}

struct LoopList<'a>(&'a [(Record, Vec<Record>)]);

impl Serialize for LoopList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(row, blocks)| Loop { row, blocks }))
    }
}

struct Loop<'a> {
    row: &'a Record,
    blocks: &'a [Record],
}

impl Serialize for Loop<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, value) in self.row.iter() {
            map.serialize_entry(column, value)?;
        }
        map.serialize_entry("blocks", self.blocks)?;
        map.end()
    }
}
