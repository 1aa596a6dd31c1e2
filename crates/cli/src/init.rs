//! `loopstore init`

use std::io::IsTerminal;

use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use loopstore::Database;
use loopstore::extend::search::Indexed;
use loopstore::extend::{self as store, prompt};
use loopstore::search::{SearchQuery, SearchResults};
use loopstore_agents::found::{self, FoundTranscripts};
use loopstore_agents::install::{self, InstallRequest, record};
use loopstore_export::NativeAgent;
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, confirm, progress, select, text};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use serde::Serialize;

use super::{import, index, search};

/// The words of the example of a search: their number, and the length of the shortest.
const WORDS: usize = 4;
const LETTERS: usize = 5;
/// The number of its hits.
const HITS: u32 = 3;
const REFUSAL: &str = "this imports the transcripts into the database; add --yes to confirm, or --dry-run to only \
    show what was found";

/// Begin: find the transcripts of agents on this machine, import and index them, and set the agents up
///
/// Shows what each agent has and when it deletes it, and asks before the import and before each change of an
/// agent's configuration. Secrets are replaced before anything is stored, by the import and by the agents that it sets
/// up. Run again, it adds what is new.
#[derive(clap::Args)]
pub struct InitArgs {
    /// Only the transcripts of this agent, such as claude-code. May be repeated.
    #[arg(long, value_name = "AGENT", value_parser = PossibleValuesParser::new(found::AGENTS))]
    agent: Vec<String>,
    /// Read files too that are unchanged since an earlier import, by size, times and inode.
    #[arg(long)]
    reread: bool,
    /// Do not replace secrets, and store the transcripts themselves too, so that they can be restored.
    #[arg(long)]
    no_redact: bool,
    /// Set up the agents that were found to record from now on, without asking.
    #[arg(long)]
    install: bool,
    /// Only show what was found.
    #[arg(long)]
    dry_run: bool,
    /// Import without asking. Agents are set up only with --install.
    #[arg(long)]
    yes: bool,
}

/// The JSON of the command.
#[derive(Serialize)]
struct InitReport<'a> {
    database: String,
    agents: &'a [FoundTranscripts],
    redacted: bool,
    imported: Option<ImportReport>,
    indexed: Option<Indexed>,
    /// The agents that do not record into loopstore yet; `loopstore install AGENT` sets each up.
    not_installed: Vec<&'static str>,
    /// A search over what was imported.
    query: Option<String>,
    search: Option<SearchResults>,
}

/// Finds, imports, indexes, offers to install, and searches.
pub fn run(app: &mut App, args: &InitArgs) -> Result<Done, CliError> {
    if args.install && app.json {
        let text = "--install prints what it changes; with --json, run `loopstore install AGENT --json` after this";
        return Err(CliError::Usage(text.into()));
    }
    let found = transcripts(args)?;
    if !app.json {
        app.out.text(&listed(&found))?;
        app.out.text(redaction(args))?;
        app.out.flush()?;
    }
    let mut report = InitReport {
        database: app.place(),
        agents: &found,
        redacted: !args.no_redact,
        imported: None,
        indexed: None,
        not_installed: missing(&found).iter().map(|one| one.as_str()).collect(),
        query: None,
        search: None,
    };
    if args.dry_run {
        if app.json {
            app.out.json(&report)?;
        }
        return Ok(Done::Well);
    }
    let question = || Ok(question(app, &found));
    confirm::ask(args.yes, REFUSAL, "nothing was imported", question)?;
    let (imported, indexed, query, results) = import::with_database(app, |app, store| {
        let imported = imported(app, args, store, &found)?;
        let indexed = index::update(store)?;
        let query = example(store);
        let query_of_example = query.as_ref().filter(|_| app.json).map(|query| {
            let mut query = SearchQuery::new(query);
            query.limit = Some(HITS as usize);
            query
        });
        let results = query_of_example.map(|query| loopstore::search(store, &query));
        Ok((imported, indexed, query, results.transpose()?))
    })?;
    let mut done = match imported.failed.is_empty() {
        true => Done::Well,
        false => Done::Badly,
    };
    if !app.json {
        app.out.text(&import::summary(&imported))?;
        import::warn_of_unredacted(&imported);
        import::note_other_conversations(&imported);
        import::note_failed(&imported);
        import::note_left_out(&imported);
    }
    (report.imported, report.indexed) = (Some(imported), Some(indexed));
    (report.query, report.search) = (query, results);
    if app.json {
        app.out.json(&report)?;
        return Ok(done);
    }
    let left = set_up(app, args, missing(&found))?;
    if args.install && !left.is_empty() {
        done = Done::Badly;
    }
    if let Some(query) = report.query {
        let words: Vec<String> = query.split(' ').map(str::to_owned).collect();
        let command: Vec<String> = std::iter::once("search".to_owned())
            .chain(words.iter().cloned())
            .collect();
        let command = app.command_line(&command);
        app.out
            .text(&format!("\nAll of it can be searched: {command}\n"))?;
        search::run(app, &search::SearchArgs::of(words, HITS))?;
    }
    app.out.text(&next(app, args, &left))?;
    Ok(done)
}

/// Returns the transcripts of the agents that were asked for.
fn transcripts(args: &InitArgs) -> Result<Vec<FoundTranscripts>, CliError> {
    let mut found = found::transcripts();
    if !args.agent.is_empty() {
        found.retain(|one| args.agent.iter().any(|agent| agent == one.agent));
        let has_none = |agent: &&String| !found.iter().any(|one| one.agent == agent.as_str());
        for agent in args
            .agent
            .iter()
            .filter(has_none)
            .filter(|_| !found.is_empty())
        {
            note(&format!("no transcripts of {agent} found"));
        }
    }
    if found.is_empty() {
        let whose = match args.agent.is_empty() {
            true => "any agent in its usual folder".to_owned(),
            false => args.agent.join(" or "),
        };
        let text = format!(
            "no transcripts of {} found; `loopstore import PATH` imports those of another folder, \
             `loopstore install AGENT` records from now on",
            text::line(&whose)
        );
        return Err(CliError::Failed(text.into()));
    }
    Ok(found)
}

/// Returns a line for each agent, and one about what it deletes.
fn listed(found: &[FoundTranscripts]) -> String {
    let mut lines = Vec::new();
    for one in found {
        lines.push(format!(
            "{:<12} {:>17}  {:>10}  {}",
            one.agent,
            text::count(one.files, "transcript"),
            text::bytes(one.bytes),
            text::line(&one.path.display().to_string())
        ));
        lines.extend(deletion(one));
    }
    lines.join("\n")
}

fn deletion(found: &FoundTranscripts) -> Option<String> {
    let (after, left) = (found.deletes_after_days?, found.oldest_deleted_in_days?);
    let oldest = match left {
        0 => "the oldest at its next start".to_owned(),
        left => format!("the oldest in {}", text::count(left, "day")),
    };
    let after = text::count(after, "day");
    Some(format!(
        "{:<12} deletes transcripts {after} after their last change, {oldest}",
        ""
    ))
}

/// Returns the line about secrets.
fn redaction(args: &InitArgs) -> &'static str {
    match args.no_redact {
        true => "Secrets are stored as they are, and so are the transcripts (--no-redact).",
        false => {
            "Secrets are replaced with markers before anything is stored, and the transcripts themselves are \
             not stored (--no-redact stores both)."
        }
    }
}

fn question(app: &App, found: &[FoundTranscripts]) -> String {
    let files: u64 = found.iter().map(|one| one.files).sum();
    let bytes: u64 = found.iter().map(|one| one.bytes).sum();
    format!(
        "Import {} ({}) into {}?",
        text::count(files, "transcript"),
        text::bytes(bytes),
        text::line(&app.place())
    )
}

/// Imports what was found, with a bar of bytes.
fn imported(
    app: &App,
    args: &InitArgs,
    store: &dyn Database,
    found: &[FoundTranscripts],
) -> Result<ImportReport, CliError> {
    let mut options = ImportOptions {
        redact: !args.no_redact,
        ..ImportOptions::default()
    };
    let memory = match args.reread {
        true => None,
        false => import::memory(app, store, &mut options)?,
    };
    let paths: Vec<_> = found.iter().map(|one| one.path.clone()).collect();
    let bar = progress::bytes_bar();
    let (mut total, mut before) = (found.iter().map(|one| one.bytes).sum(), 0);
    let result = import_paths(store, &paths, &options, &mut |seen| {
        // Files that are unchanged since an earlier import are not among those that are read.
        total = u64::max(total, before + seen.bytes);
        show(&bar, before, total);
        bar.set_message(format!("file {} of {}", seen.file, seen.files));
        before += seen.bytes;
    });
    bar.finish_and_clear();
    if let Some(memory) = memory {
        // Without the memory, the next import reads the files again.
        let _ = memory.save();
    }
    Ok(result?)
}

fn show(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

/// Returns the agents with transcripts that do not record into loopstore yet.
fn missing(found: &[FoundTranscripts]) -> Vec<NativeAgent> {
    let installed = record::all();
    let is_missing = |agent: &NativeAgent| {
        let name = agent.as_str();
        found.iter().any(|one| one.agent == name)
            && !installed.iter().any(|record| record.agent == name)
    };
    NativeAgent::ALL.into_iter().filter(is_missing).collect()
}

/// Sets agents up, each after a question. Returns those that were not.
fn set_up(
    app: &mut App,
    args: &InitArgs,
    agents: Vec<NativeAgent>,
) -> Result<Vec<NativeAgent>, CliError> {
    let asks = !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !(args.install || asks) {
        return Ok(agents);
    }
    let mut left = Vec::new();
    for agent in agents {
        app.out.text(&format!(
            "\nTo record from now on, {} calls loopstore:",
            agent.as_str()
        ))?;
        let request = InstallRequest {
            agent,
            mcp: false,
            allow: Vec::new(),
            redact: !args.no_redact,
            dry_run: false,
            yes: args.install,
            uninstall: false,
        };
        if let Err(error) = install::run(app, &request) {
            // The import stands; the agent can be set up later.
            note(&format!(
                "{} is not set up: {}",
                agent.as_str(),
                error.reason()
            ));
            left.push(agent);
        }
    }
    Ok(left)
}

/// Returns the first words of the newest session's title that say something, for a search.
fn example(store: &dyn Database) -> Option<String> {
    let session = select::session(store, "@").ok()?;
    let title = store::read(store, |read| prompt::session_title(read, &session));
    let title = title.ok().flatten()?;
    // A marker of a replaced secret says nothing, and what follows it may be cut.
    let title = title.split("[REDACTED").next().unwrap_or_default();
    let words = title.split(|c: char| !c.is_alphanumeric());
    let mut words: Vec<&str> = words
        .filter(|word| word.chars().count() >= LETTERS)
        .collect();
    words.dedup();
    words.truncate(WORDS);
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns the lines about what else there is to do.
fn next(app: &App, args: &InitArgs, left: &[NativeAgent]) -> String {
    let command = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        app.command_line(&words)
    };
    let mut lines = vec![format!(
        "\n{} reads the newest session, {} lists all.",
        command(&["read", "@"]),
        command(&["sessions"])
    )];
    for agent in left {
        let name = agent.as_str();
        let install: &[&str] = match args.no_redact {
            true => &["install", name],
            false => &["install", name, "--redact"],
        };
        lines.push(format!("{} records {name} from now on.", command(install)));
    }
    lines.join("\n")
}
