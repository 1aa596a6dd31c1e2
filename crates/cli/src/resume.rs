//! `loopstore resume`

use std::io::BufWriter;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use loopstore::compact::compacted_messages;
use loopstore::context::{BuildError, system_tokens};
use loopstore::extend::{SessionRow, prompt, read};
use loopstore::{AgentMessage, BuildOptions, Database, build_context_from_session};
use loopstore_admin::backup::is_part_of;
use loopstore_agents::homes;
use loopstore_export::{
    MendingCount, NativeAgent, NativeReport, NativeSession, originals, write_native,
};
use loopstore_files::WholeFile;
use loopstore_terminal::output::remove_unfinished_copies;
use loopstore_terminal::{App, CliError, Done, amount, select, text};
use serde::Serialize;

use super::compact;
use super::context;

/// Hand a session to a coding agent: write it as a transcript of the agent's own, to go on with
///
/// Prompts, answers, calls with their results, images and errors are written as the agent reads them, to the
/// place where it looks for them, under an id of their own: no file is ever replaced. What only another
/// provider can read is left out and counted. The session itself stays as it is.
#[derive(clap::Args)]
pub struct ResumeArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The agent.
    #[arg(long = "for", value_name = "AGENT", value_parser = agent())]
    agent: NativeAgent,
    /// The loop whose chain is written [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The window of the agent's model in tokens, its system prompt included: write the context as it is
    /// compacted, and as it would be compacted where that does not fit [default: the originals, all of them].
    #[arg(long, value_name = "N", value_parser = amount::some_tokens)]
    max_tokens: Option<u64>,
    /// The folder that the agent is to work in [default: that of the session if it is here, else this one].
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    cwd: Option<PathBuf>,
    /// Another file, which must not exist [default: the path at which the agent looks for it].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn agent() -> impl TypedValueParser<Value = NativeAgent> {
    let names = NativeAgent::ALL.map(NativeAgent::as_str);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<NativeAgent>())
}

/// The output of the command.
#[derive(Serialize)]
struct ResumedSession<'a> {
    session_id: &'a str,
    agent: &'static str,
    agent_session_id: &'a str,
    file: &'a str,
    #[serde(flatten)]
    report: NativeReport,
    tokens: u64,
    start: String,
    /// True if the file has all messages, and not a context that fits a window.
    #[serde(skip)]
    is_whole: bool,
}

/// Writes the transcript and prints the command that starts the agent with it.
pub fn run(app: &mut App, args: &ResumeArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let messages = messages(&*store, &session, args)?;
    let title = read(&*store, |read| prompt::session_title(read, &session))?;
    let folder = folder(args.cwd.as_deref(), session.project.as_deref())?;
    let native = NativeSession::new(args.agent, folder).with_title(title);
    let home = homes::file_of(&native);
    let (file, home) = match &args.output {
        Some(path) => (std::path::absolute(path)?, home.ok()),
        None => (home?, None),
    };
    let shown = file.display().to_string();
    let failed = |why: &dyn std::fmt::Display| {
        CliError::Failed(format!("cannot write {}: {why}", text::line(&shown)).into())
    };
    if is_part_of(&file, &app.db) {
        return Err(failed(&"it is the database"));
    }
    if args.output.is_none() {
        create_folder(&file).map_err(|error| failed(&error))?;
    }
    let report = write(&native, &messages, &file).map_err(|error| failed(&error))?;
    let counter = store.counter();
    let counts = messages
        .iter()
        .map(|message| counter.message_tokens(message));
    let resumed = ResumedSession {
        session_id: session.session_id.as_str(),
        agent: args.agent.as_str(),
        agent_session_id: native.id(),
        file: &shown,
        report,
        tokens: counts.sum(),
        start: start(args, &native, &shown, home.as_deref()),
        is_whole: args.max_tokens.is_none(),
    };
    app.print(&resumed, || summary(&resumed))?;
    Ok(Done::Well)
}

/// Returns the originals, or the context that fits the window.
fn messages(
    store: &dyn Database,
    session: &SessionRow,
    args: &ResumeArgs,
) -> Result<Vec<AgentMessage>, CliError> {
    let id = &session.session_id;
    let leaf = select::loop_id(store, session, args.loop_id.as_deref())?;
    let Some(window) = args.max_tokens else {
        return Ok(originals(store, id, leaf.as_ref())?);
    };
    let system = system_tokens(store, id, leaf.as_ref())?;
    let options = BuildOptions {
        leaf: leaf.clone(),
        budget: Some(window.saturating_sub(system)),
        ..BuildOptions::default()
    };
    match build_context_from_session(store, id, &options) {
        Ok(context) => Ok(context.messages),
        Err(BuildError::NeedsCompaction { .. }) => {
            let request = compact::request_for(Some(window), system, leaf)?;
            Ok(compacted_messages(store, id, &request)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the folder in which the agent works. A transcript from another machine may name any folder.
fn folder(given: Option<&Path>, recorded: Option<&str>) -> Result<String, CliError> {
    let recorded = recorded.map(Path::new);
    let here = recorded.filter(|path| path.is_absolute() && path.is_dir());
    let path = match given.or(here) {
        Some(path) => path.canonicalize().map_err(|error| {
            let shown = text::line(&path.display().to_string());
            CliError::Failed(format!("{shown} is no folder to work in: {error}").into())
        })?,
        None => std::env::current_dir()?,
    };
    if !path.is_dir() {
        let shown = text::line(&path.display().to_string());
        return Err(CliError::Failed(
            format!("{shown} is no folder to work in").into(),
        ));
    }
    path.into_os_string().into_string().map_err(|path| {
        let shown = text::line(&path.to_string_lossy());
        CliError::Failed(format!("the name of {shown} is not UTF-8; name another --cwd").into())
    })
}

fn create_folder(file: &Path) -> std::io::Result<()> {
    let mut folders = std::fs::DirBuilder::new();
    folders.recursive(true).mode(0o700);
    file.parent()
        .map_or(Ok(()), |folder| folders.create(folder))
}

fn write(
    native: &NativeSession,
    messages: &[AgentMessage],
    path: &Path,
) -> std::io::Result<NativeReport> {
    remove_unfinished_copies(path);
    let file = WholeFile::create_new(path)?;
    let mut out = BufWriter::with_capacity(64 << 10, file);
    let report = write_native(native, messages, &mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    file.finish()?;
    Ok(report)
}

/// Returns the command that starts the agent; `home` is the folder in which it finds a file that is elsewhere.
fn start(args: &ResumeArgs, native: &NativeSession, file: &str, home: Option<&Path>) -> String {
    let (file, id) = (text::quoted(file), native.id());
    let mut steps = Vec::new();
    let is_here = std::env::current_dir().is_ok_and(|here| here == Path::new(native.folder()));
    if !is_here {
        steps.push(format!("cd {}", text::quoted(native.folder())));
    }
    // These agents find a session only by the path of its file.
    let finds_by_place = matches!(args.agent, NativeAgent::ClaudeCode | NativeAgent::Codex);
    if let (Some(home), true) = (home, finds_by_place) {
        let folder = home.parent().unwrap_or(home).display().to_string();
        let place = home.display().to_string();
        steps.push(format!("mkdir -p {}", text::quoted(&folder)));
        steps.push(format!("cp {file} {}", text::quoted(&place)));
    }
    match args.agent {
        NativeAgent::ClaudeCode => steps.push(format!("claude --resume {id}")),
        NativeAgent::Codex => steps.push(format!("codex resume {id}")),
        NativeAgent::Pi => steps.push(format!("pi --session {file}")),
        NativeAgent::OpenCode => {
            steps.push(format!("opencode import {file}"));
            steps.push(format!("opencode --session {id}"));
        }
    }
    steps.join(" && ")
}

fn summary(resumed: &ResumedSession<'_>) -> String {
    let report = &resumed.report;
    let mut lines = vec![
        format!(
            "Wrote {} ({}) for {} to {}",
            text::count(report.messages, "message"),
            text::count(resumed.tokens, "token"),
            resumed.agent,
            text::line(resumed.file)
        ),
        format!("Start it with: {}", text::line(&resumed.start)),
    ];
    if resumed.is_whole {
        lines.push(
            "It is all that was said; --max-tokens N writes the compacted context that fits N."
                .into(),
        );
    }
    lines.extend(report.left_out.iter().map(counted));
    lines.extend(report.mended.iter().map(counted));
    lines.join("\n")
}

/// Returns a line on the parts that were left out or mended, with their number.
fn counted(count: &MendingCount) -> String {
    let what = context::label(count.kind);
    let of = match (&count.item, &count.provider) {
        (Some(item), Some(provider)) => format!(" ({item} of {provider})"),
        (None, Some(provider)) => format!(" (of {provider})"),
        _ => String::new(),
    };
    let times = text::count(count.count, "time");
    text::line(&format!("{times}: {what}{of}"))
}
