//! `loopstore compact`

mod summarize;

use clap::ValueEnum;
use loopstore::compact::{BlockReport, CompactOutcome};
use loopstore::context::system_tokens;
use loopstore::extend::{Disposition, Turns};
use loopstore::{
    CompactReport, CompactRequest, CompactTrigger, CompactionConfig, CompactionPolicy,
    CompactionScope, ContextConfig, Database, KeepRecent, OlderLoops, RecentWindow,
    compact_session_loops,
};

use super::error::CliError;
use super::nearest::nearest;
use super::table::{Column, TextTable};
use super::{App, Done, amount, select, text};

/// Compact a session: put blocks over its loops, so that its context becomes smaller
///
/// Nothing recorded is changed; `loopstore undo` deactivates the blocks. A context with enough headroom
/// is left alone, unless --force is given. What does not fit is given up step by step, and no more than it
/// takes: thinking, images and long outputs of the turns kept at the end, then turns kept at the start,
/// then all but the last turns that fit.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop to compact from [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// How summaries are made.
    #[arg(long, default_value = "digest")]
    strategy: Strategy,
    /// When to compact, and down to which size.
    #[arg(long, default_value = "headroom")]
    policy: PolicyName,
    /// A parameter of the policy, as often as needed: compact_at_pct and compact_budget_threshold_pct of
    /// headroom; system, output, safety and share of reserves; trigger, target and max_attempts of
    /// target.
    #[arg(long = "policy-param", value_name = "NAME=VALUE")]
    policy_params: Vec<PolicyParam>,
    /// The context window in tokens, system prompt included [default: 128000; 64000 with --policy
    /// target].
    #[arg(long, value_name = "N", value_parser = amount::some_tokens)]
    max_tokens: Option<u64>,
    /// The most bytes of JSON for the messages [default: no limit].
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
    /// The most tokens for the summary of a loop.
    #[arg(long, value_name = "N", default_value = "2000", value_parser = amount::tokens)]
    max_summary_tokens: u64,
    /// The most tokens for the rollup of loops before the scope; 0 leaves these loops as they are.
    #[arg(long, value_name = "N", default_value = "2000", value_parser = amount::tokens)]
    max_rollup_tokens: u64,
    /// Lines kept of a tool output in the turns kept at the end.
    #[arg(long, value_name = "N", default_value_t = 50)]
    tool_output_lines: usize,
    /// The earlier loops to include: fixed:N or token-budget.
    #[arg(long, value_name = "SCOPE", default_value_t = CompactionScope::FixedCount(3))]
    scope: CompactionScope,
    /// What to do with loops before the scope: skip or rollup.
    #[arg(long, value_name = "HOW", default_value_t = OlderLoops::Rollup)]
    older_loops: OlderLoops,
    /// Where the turns kept at the end may be: in the loop, or in the chain of loops.
    #[arg(long, value_name = "WHERE", default_value_t = RecentWindow::Chain)]
    recent_window: RecentWindow,
    /// Only report what would be done. With --strategy summarize no model is called: the digest
    /// stands in for its summaries.
    #[arg(long)]
    dry_run: bool,
    /// Compact even if there is headroom, ignoring the active blocks.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    summaries: summarize::SummarizeArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Strategy {
    /// One line for each answer.
    OneLiner,
    /// Facts, each with its turn.
    Digest,
    /// A summary by a model; needs the feature `http`.
    Summarize,
}

#[derive(Clone, Copy, ValueEnum)]
enum PolicyName {
    /// Less than 5 % of the window left below 90 % of it.
    Headroom,
    /// 80 % of the window less 11,000 tokens kept free.
    Reserves,
    /// 75 % of the window, down to 50 %.
    Target,
}

impl PolicyName {
    fn config(self) -> CompactionConfig {
        match self {
            Self::Headroom => CompactionConfig::default(),
            Self::Reserves => CompactionConfig::reserves(),
            Self::Target => CompactionConfig::target(),
        }
    }

    fn window(self) -> u64 {
        match self {
            Self::Headroom | Self::Reserves => 128_000,
            Self::Target => 64_000,
        }
    }
}

/// A parameter of a policy, by the name of its field.
#[derive(Clone, Debug)]
struct PolicyParam {
    name: String,
    value: serde_json::Number,
}

impl std::str::FromStr for PolicyParam {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
        let value = value.trim().parse();
        Ok(Self {
            name: name.trim().replace('-', "_"),
            value: value.map_err(|_| "the value is not a number")?,
        })
    }
}

/// Returns a policy with these parameters.
fn with_params(
    policy: CompactionPolicy,
    params: &[PolicyParam],
) -> Result<CompactionPolicy, CliError> {
    let refused = |reason: String| CliError::Usage(format!("--policy-param: {reason}"));
    let json = serde_json::to_value(policy).map_err(|error| refused(error.to_string()))?;
    let serde_json::Value::Object(mut fields) = json else {
        return Err(refused(format!("{} has no parameters", policy.name())));
    };
    for PolicyParam { name, value } in params {
        let names = fields.keys().filter(|key| *key != "kind");
        let names: Vec<String> = names.cloned().collect();
        if !names.contains(name) {
            let near = nearest(name, &names);
            let named = if near.is_empty() { names } else { near };
            let (of, named) = (policy.name(), named.join(", "));
            return Err(refused(format!(
                "`{of}` has no parameter `{name}`; it has {named}"
            )));
        }
        fields.insert(name.clone(), value.clone().into());
    }
    serde_json::from_value(fields.into()).map_err(|error| refused(error.to_string()))
}

/// Compacts and prints the audit row.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let session = select::session(&*store, &args.session)?;
    let request = args.request(&*store, &session)?;
    let report = compact_session_loops(&*store, &session.session_id, &request)?;
    if app.json {
        app.out.json(&report)?;
    } else {
        app.out.text(&summary(&report, args.dry_run))?;
        if !report.blocks.is_empty() {
            app.out.text("")?;
            app.out.table(&table(&report.blocks))?;
        }
    }
    Ok(match report.outcome {
        CompactOutcome::Failed | CompactOutcome::Conflict => Done::Badly,
        _ if report.too_small.is_some() => Done::Badly,
        _ => Done::Well,
    })
}

impl Args {
    fn request(
        &self,
        store: &dyn Database,
        session: &loopstore::extend::SessionRow,
    ) -> Result<CompactRequest, CliError> {
        let leaf = select::loop_id(store, session, self.loop_id.as_deref())?;
        let system_prompt_tokens = match self.system_tokens {
            Some(tokens) => tokens,
            None => system_tokens(store, &session.session_id, leaf.as_ref())?,
        };
        let config = self.policy.config();
        let policy = with_params(config.policy, &self.policy_params)?;
        Ok(CompactRequest {
            leaf,
            config: CompactionConfig {
                policy,
                compaction_scope: self.scope,
                older_loops: self.older_loops,
                recent_window: self.recent_window,
                keep_first_turns: self.keep_first.unwrap_or(config.keep_first_turns),
                keep_recent: self.keep_recent.unwrap_or(config.keep_recent),
                max_summary_tokens: self.max_summary_tokens,
                max_rollup_tokens: self.max_rollup_tokens,
                block_strategy: self.summaries.made(self.strategy, self.dry_run)?,
                tool_output_max_lines: self.tool_output_lines,
            },
            window: ContextConfig {
                max_context_tokens: self.max_tokens.unwrap_or(self.policy.window()),
                system_prompt_tokens,
                max_context_bytes: self.max_bytes,
                ..ContextConfig::default()
            },
            trigger: if self.force {
                CompactTrigger::Force
            } else {
                CompactTrigger::Policy
            },
            dry_run: self.dry_run,
            ..CompactRequest::default()
        })
    }
}

/// Says how an attempt ended.
pub fn summary(report: &CompactReport, dry_run: bool) -> String {
    let outcome = match (report.outcome, dry_run) {
        (CompactOutcome::NotNeeded, _) => {
            if let Some(error) = &report.error {
                return format!("Nothing new to try: {}", text::line(error));
            }
            return format!(
                "Nothing to do: the context has {}, which leaves enough headroom, or it holds only \
                 turns to keep. See --max-tokens, --keep-recent and --force.",
                text::count(report.before.tokens, "token")
            );
        }
        (CompactOutcome::Committed, false) => "committed",
        (CompactOutcome::Committed, true) => "would be committed",
        (CompactOutcome::NoGain, _) => "no gain; nothing was changed",
        (CompactOutcome::Vetoed, _) => "vetoed",
        (CompactOutcome::Failed, _) => "failed",
        (CompactOutcome::Conflict, _) => "conflict: another run was committed first; try again",
    };
    let run = report
        .run
        .as_deref()
        .map_or("Dry run".into(), |run| format!("Run {run}"));
    let (before, after) = (report.before, report.after);
    let mut tokens = text::number(before.tokens);
    let mut messages = text::number(before.messages);
    // What came to nothing has no size afterwards.
    if matches!(
        report.outcome,
        CompactOutcome::Committed | CompactOutcome::NoGain
    ) {
        let share = text::share(after.tokens, before.tokens);
        tokens.push_str(&format!(" -> {} ({share})", text::number(after.tokens)));
        messages.push_str(&format!(" -> {}", text::number(after.messages)));
    }
    let mut lines = vec![
        format!("{}: {outcome}", text::line(&run)),
        format!("tokens    {tokens}"),
        format!("messages  {messages}"),
        format!(
            "strategy  {}, {} ms",
            text::line(&report.strategy),
            report.duration_ms
        ),
    ];
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

/// Says what a fallback step gave up.
fn given_up(step: &str) -> &'static str {
    match step {
        "digest" => ": it stands in for the strategy's own text",
        "prune" => ": long parts of kept messages are cut",
        "keep_first" => ": fewer turns are kept at the start",
        "last_turns" => ": only the last turns that fit are kept",
        _ => "",
    }
}

/// Returns the blocks: which turns are in which section, and how many messages were kept, cut and so on.
pub fn table(blocks: &[BlockReport]) -> TextTable {
    let mut columns = vec![
        Column::text("LOOP", 8),
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
        let counts = Disposition::ALL.map(|what| text::number(block.coverage.get(what)));
        cells.extend(counts);
        table.row(cells);
    }
    table
}
