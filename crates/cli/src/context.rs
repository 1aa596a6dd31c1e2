//! `loopstore context`

use std::collections::BTreeMap;

use clap::ValueEnum;
use loopstore::context::{BuildError, ContextFault, Part, SystemPrompts, system_tokens};
use loopstore::extend::sqlite::Record;
use loopstore::provider::context_management::ContextManagement;
use loopstore::provider::{Form, Mending, MendingKind, ProviderRequest};
use loopstore::{
    AgentMessage, BuildOptions, CompactionScope, Context, Database, LoopId, OlderLoops,
    SealingProvider, Settings, SettingsError, build_context_from_session,
};
use loopstore_admin::inspect::{RunEdits, live_edits};
use loopstore_terminal::output::note;
use loopstore_terminal::runs::run_state;
use loopstore_terminal::select::GivenAsOf;
use loopstore_terminal::{App, CliError, Done, amount, context_text, select, text};
use serde::Serialize;

use super::config::ConfigArgs;

/// The maximum number of messages that a note lists.
const NAMED: usize = 5;

/// Show what the next model call would see
///
/// Each loop is read through its active block. With --max-tokens or --model a context that does not fit is an error:
/// compact first. Of a file of settings only the size of the window applies, and the setting that the provider clears
/// tool results: older loops are shown as they were compacted.
#[derive(clap::Args)]
pub struct ContextArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop to read from [default: the current one, or that of --as-of].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// The window in tokens, the system prompt included [default: that of --model].
    #[arg(long, value_name = "N", value_parser = amount::tokens)]
    max_tokens: Option<u64>,
    /// The maximum size of the messages as JSON, in bytes.
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// The treatment of loops before the scope: skip or rollup [default: as compacted].
    #[arg(long, value_name = "HOW")]
    older_loops: Option<OlderLoops>,
    /// The earlier loops to include with --older-loops skip: fixed:N or token-budget [default: as
    /// compacted].
    #[arg(long, value_name = "SCOPE")]
    scope: Option<CompactionScope>,
    /// The point in time: just after a run, just after a turn (LOOP:TURN), or a date or time, which means just after
    /// the last turn or run before it. A date alone means its end; times without a zone are UTC. With the id of a
    /// manifest, the context that it was recorded of.
    #[arg(long, value_name = "RUN|LOOP:TURN|TIME|MANIFEST")]
    as_of: Option<GivenAsOf>,
    /// The format [default: text; json with --json].
    #[arg(long)]
    format: Option<ContextFormat>,
    /// The provider that the context is sent to: a compaction that only this provider can read then replaces the
    /// messages before it [default: that of --format responses or anthropic].
    #[arg(long = "for", value_name = "PROVIDER", value_parser = select::provider)]
    provider: Option<SealingProvider>,
    /// With --format responses or anthropic, leave out the reasoning that only the provider can read: for a provider
    /// that reports that it can no longer decrypt it. Stored messages are unchanged.
    #[arg(long)]
    drop_reasoning: bool,
    /// The system prompts that a request for a provider may begin with: appended (the newest that the agent
    /// appended itself), all (also those of imported transcripts) or none [default: appended].
    #[arg(long, value_name = "WHICH")]
    system_prompts: Option<SystemPrompts>,
    /// Record a manifest, a list of the messages of the context; `verify` checks it later.
    #[arg(long)]
    record: bool,
    /// Check each message against its digest, as `verify` does; a mismatch is an error.
    #[arg(long)]
    check: bool,
}

impl ContextArgs {
    /// Returns the form of the selected provider.
    fn form(&self) -> Option<Form> {
        match self.format? {
            ContextFormat::Json | ContextFormat::Text => None,
            ContextFormat::Openai => Some(Form::OpenAiChat),
            ContextFormat::Responses => Some(Form::OpenAiResponses),
            ContextFormat::Anthropic => Some(Form::Anthropic),
        }
    }

    /// True if the context is shown to people.
    pub fn is_text(&self) -> bool {
        matches!(self.format, None | Some(ContextFormat::Text))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ContextFormat {
    /// Messages, parts and faults as JSON.
    Json,
    /// For people.
    Text,
    /// The messages of a Chat Completions request.
    Openai,
    /// The items of a Responses request.
    Responses,
    /// The messages of an Anthropic request.
    Anthropic,
}

/// Prints the context.
pub fn run(app: &mut App, args: &ContextArgs) -> Result<Done, CliError> {
    let format = match (args.format, app.json) {
        (Some(ContextFormat::Text), true) => {
            let text = "--json cannot be used with --format text";
            return Err(CliError::Usage(text.into()));
        }
        (Some(format), _) => format,
        (None, true) => ContextFormat::Json,
        (None, false) => ContextFormat::Text,
    };
    let sealing = args.form().and_then(Form::sealing_provider);
    if args.drop_reasoning && sealing.is_none() {
        let text = "--drop-reasoning needs --format responses or anthropic";
        return Err(CliError::Usage(text.into()));
    }
    let store = app.open_for(args.record)?;
    let (context, edits) = build(&*store, args)?;
    if let (Some(manifest), true) = (&context.manifest, format != ContextFormat::Json) {
        note(&format!("Manifest {manifest} recorded."));
    }
    match format {
        ContextFormat::Json => app
            .out
            .json(&ContextOutput::of(&context).with_edits(&edits))?,
        ContextFormat::Text => {
            note_unread(&*store, args, &context)?;
            context_text::print_edited(&mut app.out, &context, &edits)?;
        }
        ContextFormat::Openai => print_for(app, args, &context, Form::OpenAiChat)?,
        ContextFormat::Responses => print_for(app, args, &context, Form::OpenAiResponses)?,
        ContextFormat::Anthropic => print_for(app, args, &context, Form::Anthropic)?,
    }
    Ok(Done::Well)
}

/// Builds the context, and lists the edits that are live in it.
fn build(store: &dyn Database, args: &ContextArgs) -> Result<(Context, Vec<RunEdits>), CliError> {
    let settings = args.config.settings(Settings {
        max_tokens: args.max_tokens,
        max_bytes: args.max_bytes,
        system_prompts: args.system_prompts,
        ..Settings::default()
    })?;
    let session = select::session(store, &args.session)?;
    let mut leaf = select::loop_id(store, &session, args.loop_id.as_deref())?;
    let mut as_of = None;
    if let Some(moment) = &args.as_of {
        let (moment, of_moment) = select::as_of(store, &session, moment, leaf.as_ref())?;
        as_of = Some(moment);
        check_loop(leaf.as_ref(), &of_moment)?;
        leaf = Some(of_moment);
    }
    let id = &session.session_id;
    let budget = match (
        settings.window().map_err(SettingsError::from)?,
        settings.system_tokens,
    ) {
        (Some(window), Some(system)) => Some(window.saturating_sub(system)),
        (Some(window), None) => {
            Some(window.saturating_sub(system_tokens(store, id, leaf.as_ref())?))
        }
        (None, _) => None,
    };
    let options = BuildOptions {
        leaf,
        as_of,
        provider: args.provider.or_else(|| args.form()?.sealing_provider()),
        budget,
        max_bytes: settings.max_bytes,
        older_loops: args.older_loops,
        scope: args.scope,
        system_prompts: settings.system_prompts.unwrap_or_default(),
        context_management: cleared_by_provider(&settings)?,
        record: args.record,
        check: args.check,
    };
    let context = build_context_from_session(store, id, &options).map_err(|error| match error {
        BuildError::NeedsCompaction { .. } | BuildError::NeedsFewerBytes { .. }
            if args.as_of.is_some() =>
        {
            let error = error.to_string().replace("; compact it first", "");
            CliError::Failed(format!("{error}; it is past, and no compaction changes it").into())
        }
        error => error.into(),
    })?;
    let edits = live_edits(store, id, options.leaf.as_ref(), options.as_of.as_ref())?;
    Ok((context, edits))
}

/// Prints a note on the provider that reads a different context, if the last compaction is its own.
fn note_unread(
    store: &dyn Database,
    args: &ContextArgs,
    context: &Context,
) -> Result<(), CliError> {
    if context.provider.is_some() || args.as_of.is_some() {
        return Ok(());
    }
    let runs = store.run_rows(Some(&context.session))?;
    let is_active = |run: &&Record| run_state(run) == "active";
    let Some(provider) = runs.iter().find(is_active).and_then(select::sealed_by) else {
        return Ok(());
    };
    let options = BuildOptions {
        leaf: Some(context.leaf.clone()),
        provider: Some(provider),
        ..BuildOptions::default()
    };
    let read = build_context_from_session(store, &context.session, &options)?;
    if read.compaction.is_some() {
        let name = provider.as_str();
        note(&format!(
            "note: {name} compacted this session itself, and reads {} of it; --for {name} shows them",
            text::count(read.tokens, "token")
        ));
    }
    Ok(())
}

/// Returns the setting of requests of a file of settings that leaves the clearing of tool results to the provider.
fn cleared_by_provider(settings: &Settings) -> Result<ContextManagement, SettingsError> {
    let clear = settings.clear_tool_results.as_ref();
    if !clear.is_some_and(|clear| clear.by_provider) {
        return Ok(ContextManagement::default());
    }
    // A strategy may need a model, which a context does not.
    let settings = Settings {
        strategy: None,
        ..settings.clone()
    };
    Ok(settings.policy()?.context_management())
}

fn check_loop(given: Option<&LoopId>, of_moment: &LoopId) -> Result<(), CliError> {
    match given.filter(|given| *given != of_moment) {
        Some(given) => Err(CliError::Usage(format!(
            "--as-of names a moment of loop `{of_moment}`, but --loop is `{given}`; omit --loop"
        ))),
        None => Ok(()),
    }
}

/// The JSON of a context.
#[derive(Serialize)]
pub struct ContextOutput<'a> {
    session_id: &'a str,
    loop_id: &'a str,
    messages: &'a [AgentMessage],
    tokens: u64,
    bytes: u64,
    parts: &'a [Part],
    faults: &'a [ContextFault],
    #[serde(skip_serializing_if = "<[RunEdits]>::is_empty")]
    edits: &'a [RunEdits],
    #[serde(skip_serializing_if = "<[AgentMessage]>::is_empty")]
    system: &'a [AgentMessage],
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_id: Option<&'a str>,
}

impl<'a> ContextOutput<'a> {
    /// The JSON of this context.
    pub fn of(context: &'a Context) -> Self {
        Self {
            session_id: context.session.as_str(),
            loop_id: context.leaf.as_str(),
            messages: &context.messages,
            tokens: context.tokens,
            bytes: context.bytes,
            parts: &context.parts,
            faults: &context.faults,
            edits: &[],
            system: &context.system.messages,
            manifest_id: context.manifest.as_deref(),
        }
    }

    /// The JSON with the edits that are live in the context.
    pub fn with_edits(mut self, edits: &'a [RunEdits]) -> Self {
        self.edits = edits;
        self
    }
}

fn print_for(
    app: &mut App,
    args: &ContextArgs,
    context: &Context,
    form: Form,
) -> Result<(), CliError> {
    let request = match args.drop_reasoning {
        true => ProviderRequest::without_reasoning(form, context)?,
        false => ProviderRequest::of_context(form, context)?,
    };
    if app.json {
        app.out.json(&request.with_mended())?;
    } else {
        app.out.json(&request)?;
    }
    note_mended(&request.mended);
    Ok(())
}

/// Prints the mendings on stderr.
pub fn note_mended(mended: &[Mending]) {
    for line in notes(mended) {
        note(&line);
    }
}

/// Returns a line for each kind of mending.
fn notes(mended: &[Mending]) -> Vec<String> {
    let mut kinds: BTreeMap<MendingKind, Vec<usize>> = BTreeMap::new();
    for mending in mended {
        kinds.entry(mending.kind).or_default().push(mending.message);
    }
    let line = |(kind, messages): (MendingKind, Vec<usize>)| {
        let first = messages.iter().take(NAMED).map(usize::to_string);
        let mut named = first.collect::<Vec<_>>().join(", ");
        if messages.len() > NAMED {
            named.push_str(", …");
        }
        let count = messages.len();
        format!("note: {} ({count} times, messages {named})", label(kind))
            .replace("(1 times, messages", "(message")
    };
    kinds.into_iter().map(line).collect()
}

/// Returns the description of a mending.
pub fn label(kind: MendingKind) -> &'static str {
    match kind {
        MendingKind::ResultAdded => "a call has no result; `[no result recorded]` stands in for it",
        MendingKind::ResultDropped => {
            "a result of a call was left out, as a later or an equal one is there"
        }
        MendingKind::ResultTold => {
            "a tool result was written as text, as its call is not in the context or the conversation went on"
        }
        MendingKind::ResultMoved => "a late tool result was moved after its call",
        MendingKind::CallRenamed => "the id of a call was changed, as the provider refuses it",
        MendingKind::ToolRenamed => "the name of a tool was changed, as the provider refuses it",
        MendingKind::EmptyDropped => "an empty message was left out",
        MendingKind::Merged => "a message was merged into the previous one of the same role",
        MendingKind::ThinkingDropped => "thinking that the provider does not accept was left out",
        MendingKind::ReasoningDropped => "reasoning that only the provider can read was left out",
        MendingKind::ThinkingMoved => "thinking was moved before a text of the same answer",
        MendingKind::ForeignDropped => "state or an item of another provider was left out",
        MendingKind::PartedDropped => {
            "a part of a program was left out, as the rest of it is not in the context"
        }
        MendingKind::CompactionDropped => {
            "a compaction of the provider that does not count here was left out"
        }
        MendingKind::CompactedDropped => {
            "what a compaction of the provider stands for was left out"
        }
        MendingKind::BlockDropped => "a block that the provider does not know was left out",
        MendingKind::ImageMoved => "an image of a tool result was moved into a user message",
        MendingKind::ImageRetyped => "the media type of an image was changed to that of its bytes",
        MendingKind::ImageReplaced => {
            "an image that is not PNG, JPEG, GIF or WebP was replaced by a text"
        }
        MendingKind::UserAdded => "a user message was added before the first answer",
        MendingKind::SpaceDropped => "trailing white space of the last answer was left out",
        MendingKind::SystemDropped => {
            "a system prompt was left out: a newer one replaces it, or it was not asked for (--system-prompts)"
        }
        MendingKind::SystemMoved => "a system message was moved before all others",
        _ => "a message was mended",
    }
}
