//! `loopstore compact`

mod person;
mod summarize;

use std::str::FromStr;
use std::sync::{Arc, PoisonError};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use loopstore::compact::{BlockReport, CompactOutcome, NotNeeded, TokenSource, compacted_messages};
use loopstore::context::system_tokens;
use loopstore::extend::{Disposition, Turns};
use loopstore::{
    AgentMessage, ClearToolResults, CompactReport, CompactRequest, CompactTrigger,
    CompactionPolicy, CompactionScope, Database, KeepRecent, LoopId, OlderLoops, RecentWindow,
    SessionId, Settings, SettingsError, StrategyName, SummaryPrompt, UnknownWord,
    compact_session_loops,
};
use loopstore_terminal::output::note;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, amount, context_text, select, text};
use serde::Serialize;

use super::config::ConfigArgs;

/// Compact a session: put blocks over its loops, so that its context becomes smaller
///
/// Nothing recorded is changed; `loopstore undo` deactivates the blocks. A context with enough headroom
/// is left alone, unless --force is given. What does not fit is given up step by step, and no more than it
/// takes: thinking, images and long outputs of the turns kept at the end, then turns kept at the start,
/// then all but the last turns that fit, then these too. The result leaves room for several turns; if it
/// cannot, nothing is compacted while the window fits the context. A window of less than 500 tokens is a size
/// to hand the session over in: the summary gets all of it.
#[derive(clap::Args)]
pub struct CompactArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop to compact from [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The strategy that writes the summaries [default: digest].
    #[arg(long, value_parser = words::<StrategyName>(&STRATEGIES))]
    strategy: Option<StrategyName>,
    /// The policy that decides when to compact, and to which size [default: headroom].
    #[arg(long, value_parser = words::<CompactionPolicy>(&POLICIES))]
    policy: Option<CompactionPolicy>,
    /// A parameter of the policy, as often as needed: compact_at_pct and compact_budget_threshold_pct of
    /// headroom; system, output, safety and share of reserves; trigger, target and max_attempts of
    /// target.
    #[arg(long = "policy-param", value_name = "NAME=VALUE", value_parser = policy_param)]
    policy_params: Vec<(String, serde_json::Number)>,
    #[command(flatten)]
    config: ConfigArgs,
    /// The context window in tokens, system prompt included [default: that of --model; without one
    /// 128000, 64000 with --policy target].
    #[arg(long, value_name = "N", value_parser = amount::some_tokens)]
    max_tokens: Option<u64>,
    /// The maximum size of the messages as JSON, in bytes [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_bytes: Option<u64>,
    /// Tokens of the system prompt [default: as recorded].
    #[arg(long, value_name = "N", value_parser = amount::tokens)]
    system_tokens: Option<u64>,
    /// Turns kept verbatim at the start of the loop [default: 2; 0 with another policy than
    /// headroom].
    #[arg(long, value_name = "N")]
    keep_first: Option<u32>,
    /// Turns kept at the end, with long outputs cut; user-turns:N and messages:N keep the turns that
    /// hold as many of these [default: 10; messages:10 with --policy reserves, user-turns:6 with
    /// --policy target].
    #[arg(long, value_name = "N")]
    keep_recent: Option<KeepRecent>,
    /// The typical turns that the compaction leaves room for; 0 uses the target size whole [default: 6].
    #[arg(long, value_name = "N")]
    room_turns: Option<u32>,
    /// Keep the newest prompts of people verbatim, up to this number of tokens, wherever they are; 2k is 2000
    /// [default: 0].
    #[arg(long, value_name = "N", value_parser = amount::tokens)]
    keep_prompts: Option<u64>,
    /// The maximum number of tokens of the summary of a loop [default: 2000 for one-liner, else a quarter of the
    /// target size, at least 2000; then the first summary of the current loop also gets the tokens that the kept
    /// turns leave free].
    #[arg(long, value_name = "N", value_parser = amount::tokens)]
    max_summary_tokens: Option<u64>,
    /// The maximum number of tokens of the rollup of loops before the scope; 0 leaves these loops unchanged [default:
    /// as for a summary].
    #[arg(long, value_name = "N", value_parser = amount::tokens)]
    max_rollup_tokens: Option<u64>,
    /// Lines kept of a tool output in the turns kept at the end [default: 50].
    #[arg(long, value_name = "N")]
    tool_output_lines: Option<usize>,
    /// The earlier loops to include: fixed:N or token-budget [default: fixed:3].
    #[arg(long, value_name = "SCOPE")]
    scope: Option<CompactionScope>,
    /// The treatment of loops before the scope: skip or rollup [default: rollup].
    #[arg(long, value_name = "HOW")]
    older_loops: Option<OlderLoops>,
    /// The range of the turns kept at the end: the loop, or the chain of loops [default: chain].
    #[arg(long, value_name = "WHERE")]
    recent_window: Option<RecentWindow>,
    /// Before anything is compacted, clear the results of old tool calls, except the newest KEEP; compact only if
    /// that is not enough. `loopstore undo` takes the clearing back.
    #[arg(long, value_name = "KEEP", conflicts_with = "force")]
    clear_tool_results: Option<u32>,
    /// The tokens that clearing must free, else nothing is cleared [default: 1000].
    #[arg(long, value_name = "N", value_parser = amount::tokens, requires = "clear_tool_results")]
    clear_at_least: Option<u64>,
    /// A tool whose results are not cleared, as often as needed.
    #[arg(long, value_name = "TOOL", requires = "clear_tool_results")]
    clear_exclude_tool: Vec<String>,
    /// Only report what would be done. With --strategy summarize no model is called: the digest replaces its
    /// summaries.
    #[arg(long)]
    dry_run: bool,
    /// Print the context as it would be, message by message; nothing is written. With --strategy summarize no model
    /// is called: the digest replaces its summaries.
    #[arg(long, conflicts_with = "dry_run")]
    preview: bool,
    /// Before the commit, open the texts of the summaries in an editor [env: VISUAL, EDITOR]; what is saved is
    /// committed as written by a person. An emptied file or a failing editor stops the compaction.
    #[arg(long, conflicts_with_all = ["dry_run", "preview"])]
    edit: bool,
    /// Compact even if there is headroom, ignoring the active blocks.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    summaries: summarize::SummarizeArgs,
}

const STRATEGIES: [(&str, &str); 3] = [
    ("one-liner", "One line for each answer"),
    (
        "digest",
        "A document of the working state, each line with its turns",
    ),
    (
        "summarize",
        "A summary by a model: a command or a server, with files and values from the record",
    ),
];
const POLICIES: [(&str, &str); 3] = [
    (
        "headroom",
        "When system prompt and context take more than 85 % of the window",
    ),
    (
        "reserves",
        "When it takes more than 80 % of what the window has beside 11,000 tokens kept free",
    ),
    (
        "target",
        "When it takes more than 75 % of the window; down to 50 %",
    ),
];

/// A parameter of a policy, by the name of its field.
fn policy_param(text: &str) -> Result<(String, serde_json::Number), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = value.trim().parse();
    let value = value.map_err(|_| "the value is not a number")?;
    Ok((name.trim().replace('-', "_"), value))
}

/// Returns a parser of these words, each with a line of help.
fn words<T>(words: &'static [(&'static str, &'static str)]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = UnknownWord> + Clone + Send + Sync + 'static,
{
    let value = |(word, help): &(&'static str, &'static str)| PossibleValue::new(*word).help(*help);
    let values: Vec<PossibleValue> = words.iter().map(value).collect();
    PossibleValuesParser::new(values).try_map(|word| word.parse::<T>())
}

/// The JSON of the command.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a CompactReport,
    /// With --show-prompt, the prompts for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<&'a [SummaryPrompt]>,
}

/// Compacts and prints the audit row.
pub fn run(app: &mut App, args: &CompactArgs) -> Result<Done, CliError> {
    let prompts = summarize::SharedPrompts::default();
    let (store, session, request) = args.opened_with(app, &prompts)?;
    if args.preview {
        return preview(app, &*store, &session.session_id, &request);
    }
    let report = compact_session_loops(&*store, &session.session_id, &request)?;
    let prompts = prompts.lock().unwrap_or_else(PoisonError::into_inner);
    if app.json {
        let prompts = args.summaries.shows_prompts().then_some(&**prompts);
        app.out.json(&Printed {
            report: &report,
            prompts,
        })?;
    } else {
        if !prompts.is_empty() {
            app.out.text(&summarize::shown_prompts(&prompts))?;
        }
        let window = request.policy.window.max_context_tokens;
        app.out
            .text(&summary(&report, args.dry_run, Some(window)))?;
        if !report.blocks.is_empty() {
            app.out.text("")?;
            app.out.table(&table(&report.blocks))?;
        }
    }
    if report.too_small.is_some() && report.in_flight {
        let id = text::line(session.session_id.as_str());
        note(&format!(
            "hint: the last turn waits for an answer or for tool results, and is kept whole until it has them; \
             append them, or, if its agent is gone, `loopstore recover {id} --all` ends it"
        ));
    }
    Ok(if went_well(&report) {
        Done::Well
    } else {
        Done::Badly
    })
}

/// Prints the sizes before and after, and the messages of the context as it would be.
fn preview(
    app: &mut App,
    store: &dyn Database,
    session: &SessionId,
    request: &CompactRequest,
) -> Result<Done, CliError> {
    let request = &CompactRequest {
        dry_run: true,
        ..request.clone()
    };
    let report = compact_session_loops(store, session, request)?;
    let is_made = report.outcome == CompactOutcome::Committed;
    let messages = match is_made {
        true => compacted_messages(store, session, request)?,
        false => Vec::new(),
    };
    if app.json {
        app.out.json(&PrintedPreview {
            report: &report,
            messages: &messages,
        })?;
    } else {
        let window = request.policy.window.max_context_tokens;
        app.out.text(&summary(&report, true, Some(window)))?;
        for message in &messages {
            app.out.text("")?;
            app.out.text(&context_text::message(message))?;
        }
    }
    Ok(match went_well(&report) {
        true => Done::Well,
        false => Done::Badly,
    })
}

/// The JSON of a preview.
#[derive(Serialize)]
struct PrintedPreview<'a> {
    #[serde(flatten)]
    report: &'a CompactReport,
    /// The messages of the context as it would be.
    messages: &'a [AgentMessage],
}

/// Returns a request for a window, its system prompt included, with the defaults of everything else.
pub fn request_for(
    window: Option<u64>,
    system_tokens: u64,
    leaf: Option<LoopId>,
) -> Result<CompactRequest, SettingsError> {
    let settings = Settings {
        max_tokens: window,
        system_tokens: Some(system_tokens),
        ..Settings::default()
    };
    Ok(CompactRequest {
        leaf,
        ..settings.policy()?.request()
    })
}

/// True if the attempt did what the arguments ask for.
pub fn went_well(report: &CompactReport) -> bool {
    let failed = matches!(
        report.outcome,
        CompactOutcome::Failed | CompactOutcome::Conflict | CompactOutcome::Vetoed
    );
    !failed && report.too_small.is_none()
}

/// A store, its session, and the request.
type OpenedSession = (
    Box<dyn Database>,
    loopstore::extend::SessionRow,
    CompactRequest,
);

impl CompactArgs {
    /// Opens the store and reads the request.
    pub fn opened(&self, app: &mut App) -> Result<OpenedSession, CliError> {
        self.opened_with(app, &summarize::SharedPrompts::default())
    }

    fn opened_with(
        &self,
        app: &mut App,
        prompts: &summarize::SharedPrompts,
    ) -> Result<OpenedSession, CliError> {
        // The edits of a dry run are written and taken back.
        let is_written = self
            .config
            .settings(self.settings())?
            .clear_tool_results
            .is_some();
        let store = app.open_for(is_written || !self.writes_nothing())?;
        let session = select::session(&*store, &self.session)?;
        let request = self.request(&*store, &session, prompts)?;
        Ok((store, session, request))
    }

    fn request(
        &self,
        store: &dyn Database,
        session: &loopstore::extend::SessionRow,
        prompts: &summarize::SharedPrompts,
    ) -> Result<CompactRequest, CliError> {
        let mut settings = self.config.settings(self.settings())?;
        let strategy = settings.strategy.unwrap_or_default();
        // The requirements of the model are not part of the settings.
        settings.strategy = settings.strategy.filter(|s| *s != StrategyName::Summarize);
        let leaf = select::loop_id(store, session, self.loop_id.as_deref())?;
        if settings.system_tokens.is_none() {
            let recorded = system_tokens(store, &session.session_id, leaf.as_ref())?;
            settings.system_tokens = Some(recorded);
        }
        let mut request = settings.policy()?.request();
        request.policy.compaction.block_strategy = Some(self.summaries.made(
            strategy,
            self.writes_nothing(),
            prompts,
        )?);
        request.policy.compaction.summary_prompt = self.summaries.instructions()?;
        if self.edit {
            request.policy.hooks.push(Arc::new(person::Editing));
        }
        request.leaf = leaf;
        request.dry_run = self.dry_run;
        if self.force {
            request.trigger = CompactTrigger::Force;
        }
        Ok(request)
    }

    fn writes_nothing(&self) -> bool {
        self.dry_run || self.preview
    }

    /// Returns the tool results that the options clear.
    fn cleared(&self) -> Option<ClearToolResults> {
        let clear = ClearToolResults::new().keep(self.clear_tool_results?);
        let clear = clear.exclude_tools(&self.clear_exclude_tool);
        Some(match self.clear_at_least {
            Some(tokens) => clear.at_least(tokens),
            None => clear,
        })
    }

    /// Returns the settings in the options.
    fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            policy_param: self.policy_params.iter().cloned().collect(),
            max_tokens: self.max_tokens,
            max_bytes: self.max_bytes,
            system_tokens: self.system_tokens,
            keep_first: self.keep_first,
            keep_recent: self.keep_recent,
            room_turns: self.room_turns,
            keep_prompts: self.keep_prompts,
            max_summary_tokens: self.max_summary_tokens,
            max_rollup_tokens: self.max_rollup_tokens,
            tool_output_lines: self.tool_output_lines,
            scope: self.scope,
            older_loops: self.older_loops,
            recent_window: self.recent_window,
            strategy: self.strategy,
            clear_tool_results: self.cleared(),
            ..Settings::default()
        }
    }
}

/// Returns the reason why nothing was compacted.
fn nothing_to_do(report: &CompactReport, window: Option<u64>) -> String {
    let tokens = text::count(report.before.tokens, "token");
    if report.cleared.is_some() {
        return format!("Nothing to compact: the context has {tokens} without them.");
    }
    if report.not_needed == Some(NotNeeded::Unchanged) {
        return format!(
            "Nothing to do: the context has {tokens}, and all of its turns are to be kept. \
             --keep-first N and --keep-recent N keep fewer."
        );
    }
    let window = window.map_or(String::new(), |window| {
        format!(" of {}", text::number(window))
    });
    let (asked, counted) = match reported(report) {
        Some(reported) => (
            format!("by the count of its provider the context has {reported}"),
            format!(" By the counter of this database it has {tokens}."),
        ),
        None => (format!("the context has {tokens}"), String::new()),
    };
    format!(
        "Nothing to do: {asked}, which leaves enough headroom in the window{window}.{counted} \
         --max-tokens N names a smaller window, --force compacts all the same."
    )
}

/// Returns the tokens that the provider reported, if the trigger was checked with them.
fn reported(report: &CompactReport) -> Option<String> {
    let asked = report.asked_about;
    let is_reported = asked.source == TokenSource::Reported && asked.tokens != report.before.tokens;
    is_reported.then(|| text::count(asked.tokens, "token"))
}

/// Returns the result of an attempt, and the headroom of the window.
pub fn summary(report: &CompactReport, dry_run: bool, window: Option<u64>) -> String {
    let outcome = match (report.outcome, dry_run) {
        (CompactOutcome::NotNeeded, _) => {
            let why = match &report.error {
                Some(error) => format!("Nothing new to try: {}", text::line(error)),
                None => nothing_to_do(report, window),
            };
            return match cleared(report) {
                Some(cleared) => format!("cleared   {cleared}\n{why}"),
                None => why,
            };
        }
        (CompactOutcome::Committed, false) => "committed",
        (CompactOutcome::Committed, true) => "would be committed",
        (CompactOutcome::NoGain, _) => "no gain; nothing was changed",
        (CompactOutcome::Vetoed, _) => "vetoed",
        (CompactOutcome::Failed, _) => "failed",
        (CompactOutcome::Conflict, _) => {
            "conflict: the session was compacted, redacted or archived meanwhile; try again"
        }
    };
    let run = report
        .run
        .as_deref()
        .map_or("Dry run".into(), |run| format!("Run {run}"));
    let (before, after) = (report.before, report.after);
    let mut tokens = text::number(before.tokens);
    let mut messages = text::number(before.messages);
    // A run without a result has no size after it.
    if matches!(
        report.outcome,
        CompactOutcome::Committed | CompactOutcome::NoGain
    ) {
        let share = text::share(after.tokens, before.tokens);
        tokens.push_str(&format!(" -> {} ({share})", text::number(after.tokens)));
        messages.push_str(&format!(" -> {}", text::number(after.messages)));
    }
    let counted =
        reported(report).map(|tokens| format!("; by the count of its provider it had {tokens}"));
    let counted = counted.unwrap_or_default();
    let mut lines = vec![
        format!("{}: {outcome}", text::line(&run)),
        format!("tokens    {tokens}{counted}"),
        format!("messages  {messages}"),
        format!(
            "strategy  {}, {} ms",
            text::line(&report.strategy),
            report.duration_ms
        ),
    ];
    lines.extend(cleared(report).map(|cleared| format!("cleared   {cleared}")));
    lines.extend(prompts_line(report));
    lines.extend(summarize::cost_line(report));
    lines.extend(
        report
            .fallback
            .iter()
            .map(|step| format!("fallback  {}{}", text::line(step), given_up(step))),
    );
    lines.extend(
        report
            .error
            .iter()
            .map(|error| format!("error     {}", text::line(error))),
    );
    lines.join("\n")
}

/// Returns the tool results that were cleared before the compaction, or the reason why none were.
fn cleared(report: &CompactReport) -> Option<String> {
    if let Some(reason) = &report.not_cleared {
        return Some(format!("no tool results: {}", text::line(reason)));
    }
    let cleared = report.cleared.as_ref()?;
    let edits = cleared.edits.iter();
    // A result may have several parts.
    let mut results: Vec<_> = edits.map(|edit| (&edit.loop_id, edit.seq)).collect();
    results.dedup();
    let run = match &cleared.run_id {
        Some(run) => format!("run {}", text::line(run)),
        None => "nothing was written".to_owned(),
    };
    Some(format!(
        "{}, {} -> {} tokens; {run}",
        text::count(results.len(), "tool result"),
        text::number(cleared.tokens_before),
        text::number(cleared.tokens_after)
    ))
}

/// Returns a line about the prompts that are kept verbatim, if prompts are to be kept.
fn prompts_line(report: &CompactReport) -> Option<String> {
    let (kept, left_out) = (report.prompts_kept, report.prompts_left_out);
    (kept + left_out > 0).then(|| {
        let left_out = match left_out {
            0 => String::new(),
            _ => format!("; {} left out", text::number(left_out)),
        };
        format!("prompts   {} kept verbatim{left_out}", text::number(kept))
    })
}

/// Returns the description of a fallback step.
fn given_up(step: &str) -> &'static str {
    match step {
        "digest" => ": it stands in for the strategy's own text",
        "prune" => ": long parts of kept messages are cut",
        "keep_first" => ": fewer turns are kept at the start",
        "last_turns" => ": only the last turns that fit are kept",
        "no_turns" => ": texts replace all turns",
        _ => "",
    }
}

/// Returns a table of the blocks: the turns in each section, and the numbers of messages that were kept, truncated and
/// so on.
pub fn table(blocks: &[BlockReport]) -> TextTable {
    let mut columns = vec![
        Column::id("LOOP"),
        Column::number("BLOCK"),
        Column::text("KIND", 7),
        Column::text("FIRST", 5),
        Column::text("COMPACTED", 9),
        Column::text("RECENT", 6),
    ];
    let counts = ["KEPT", "TRUNCATED", "SUMMARISED", "DROPPED", "ROLLED UP"];
    columns.extend(counts.map(|title| Column::number(title).optional()));
    let mut table = TextTable::new(columns);
    for block in blocks {
        let range = |turns: Option<Turns>| {
            turns.map_or("-".into(), |turns| text::turns(turns.first, turns.last))
        };
        let mut cells = vec![
            block.loop_id.to_string(),
            block
                .generation
                .map_or("-".into(), |number| number.to_string()),
            block.kind.as_str().to_owned(),
            range(block.keep_first),
            range(block.keep_compacted),
            range(block.keep_recent),
        ];
        // The runs of this command make nothing opaque.
        let shown = Disposition::ALL.into_iter();
        let shown = shown.filter(|what| *what != Disposition::Sealed);
        let counts = shown.map(|what| text::number(block.coverage.get(what)));
        cells.extend(counts);
        table.row(cells);
    }
    table
}
