//! `loopstore stats --by`: the tokens that providers reported, and their cost, by day, project, model or session.
//!
//! A fork or a resume copies answers into another transcript. An answer is recognised by the id of its response, else by
//! its time, model and usage, and counts once: in the session that is older.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use loopstore::UsageCost;
use loopstore::extend::{self as store, LoopKey, MessageRow, SessionRow, StoreRead, StoreResult};
use loopstore::model::{Int, Json, Usage};
use loopstore::{Database, Role, StoreError, Time};
use loopstore_report::Prices;
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::text;
use serde::{Deserialize, Serialize};

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    Day,
    Project,
    Model,
    Session,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Project => "project",
            Self::Model => "model",
            Self::Session => "session_id",
        }
    }
}

/// The answers to count.
#[derive(Default)]
pub struct UsageFilter {
    /// The earliest and the latest time in milliseconds; answers without a time are counted only without both.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// A part of the project's path, in upper or lower case.
    pub project: Option<String>,
}

/// The usage of a store.
#[derive(Debug, Serialize)]
pub struct UsageReport {
    by: &'static str,
    /// The currency of the price table; `None` if the costs are those of the transcripts.
    currency: Option<String>,
    /// The date of the price table.
    prices_date: Option<String>,
    rows: Vec<UsageLine>,
    total: UsageCost,
    /// The answers that are counted.
    answers: u64,
    /// The answers that another transcript contains too.
    repeated: u64,
    /// The answers that do not say what they used.
    without_usage: u64,
    /// The answers of which nothing is left.
    removed: u64,
    /// The models without a price, and without a cost in the transcript.
    unpriced: Vec<String>,
}

#[derive(Debug, Serialize)]
struct UsageLine {
    /// The day, project, model or session, under its name.
    #[serde(flatten)]
    key: BTreeMap<&'static str, String>,
    answers: u64,
    #[serde(flatten)]
    spent: UsageCost,
}

/// The fields of an answer that are counted.
#[derive(Deserialize)]
struct AnswerHead {
    model: Option<String>,
    usage: Option<Usage>,
    #[serde(rename = "responseId")]
    response: Option<String>,
}

/// Sums the usage of all sessions that are not hidden.
pub fn usage(
    database: &dyn Database,
    by: Group,
    filter: &UsageFilter,
    prices: Option<&Prices>,
) -> Result<UsageReport, StoreError> {
    let mut sum = UsageSum {
        by,
        filter,
        prices,
        rows: BTreeMap::new(),
        seen: HashSet::new(),
        unpriced: BTreeMap::new(),
        report: UsageReport {
            by: by.name(),
            currency: prices.and_then(|prices| prices.currency().map(str::to_owned)),
            prices_date: prices.and_then(|prices| prices.date().map(str::to_owned)),
            rows: Vec::new(),
            total: UsageCost::default(),
            answers: 0,
            repeated: 0,
            without_usage: 0,
            removed: 0,
            unpriced: Vec::new(),
        },
    };
    store::read(database, |read| {
        let mut sessions = read.sessions()?;
        let hidden: HashSet<_> = read.hidden_sessions()?.into_iter().collect();
        sessions.retain(|row| !hidden.contains(&row.key));
        // The older session keeps what a later one repeats.
        sessions
            .sort_by(|one, other| (&one.created_at, one.key).cmp(&(&other.created_at, other.key)));
        let projects = projects(&sessions);
        for row in &sessions {
            let project = projects
                .get(row.session_id.as_str())
                .copied()
                .unwrap_or_default();
            if sum.takes(project) {
                sum.session(read, row, project)?;
            }
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(sum.finish())
}

/// Returns the project of each session; a sub-agent has that of the session that started it.
fn projects(sessions: &[SessionRow]) -> HashMap<&str, &str> {
    let of: HashMap<&str, &SessionRow> = sessions
        .iter()
        .map(|row| (row.session_id.as_str(), row))
        .collect();
    let project = |row: &SessionRow| {
        let mut row = of.get(row.session_id.as_str()).copied();
        // Sessions may start each other in a cycle.
        for _ in 0..of.len().min(64) {
            if let Some(project) = row?.project.as_deref() {
                return Some(project);
            }
            row = of.get(&*row?.started_by()?).copied();
        }
        None
    };
    let named = sessions
        .iter()
        .filter_map(|row| Some((row.session_id.as_str(), project(row)?)));
    named.collect()
}

struct UsageSum<'a> {
    by: Group,
    filter: &'a UsageFilter,
    prices: Option<&'a Prices>,
    rows: BTreeMap<String, UsageLine>,
    /// The answers that were counted, by a hash of what identifies them.
    seen: HashSet<u64>,
    unpriced: BTreeMap<String, u64>,
    report: UsageReport,
}

impl UsageSum<'_> {
    /// True if the filter takes a project.
    fn takes(&self, project: &str) -> bool {
        let wanted = self.filter.project.as_deref();
        wanted.is_none_or(|wanted| project.to_lowercase().contains(&wanted.to_lowercase()))
    }

    fn session(
        &mut self,
        read: &dyn StoreRead,
        row: &SessionRow,
        project: &str,
    ) -> StoreResult<()> {
        for row_of_loop in read.loops(row.key)? {
            self.one_loop(
                read,
                row,
                project,
                (row_of_loop.key, row_of_loop.totals.next_seq),
            )?;
        }
        Ok(())
    }

    fn one_loop(
        &mut self,
        read: &dyn StoreRead,
        session: &SessionRow,
        project: &str,
        (key, end): (LoopKey, u32),
    ) -> StoreResult<()> {
        read.messages(key, 0..end, &mut |message| {
            if message.body.role == Role::Assistant {
                self.answer(session, project, &message);
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn answer(&mut self, session: &SessionRow, project: &str, message: &MessageRow) {
        let at = message.created_at;
        let is_late = self
            .filter
            .since
            .is_none_or(|since| at.is_some_and(|at| at >= since));
        let is_early = self
            .filter
            .until
            .is_none_or(|until| at.is_some_and(|at| at <= until));
        if !(is_late && is_early) {
            return;
        }
        let Some(head) = &message.body.head else {
            self.report.removed += 1;
            return;
        };
        let Ok(AnswerHead {
            model,
            usage,
            response,
        }) = serde_json::from_str(head)
        else {
            self.report.without_usage += 1;
            return;
        };
        let Some(usage) = usage else {
            self.report.without_usage += 1;
            return;
        };
        let mut spent = spent(&usage);
        if !self.is_new(at, model.as_deref(), response.as_deref(), &spent) {
            self.report.repeated += 1;
            return;
        }
        let priced = self
            .prices
            .and_then(|prices| prices.cost(model.as_deref(), &spent));
        spent.cost = priced.unwrap_or(spent.cost);
        let model = model.unwrap_or_else(|| "no model named".to_owned());
        if priced.is_none() && spent.cost == 0.0 && spent.total > 0 {
            *self.unpriced.entry(model.clone()).or_default() += 1;
        }
        let key = match self.by {
            Group::Day => at.and_then(Time::from_millis).map_or_else(
                || "no date".to_owned(),
                |time| time.as_str().chars().take(10).collect(),
            ),
            Group::Project if project.is_empty() => "no project".to_owned(),
            Group::Project => project.to_owned(),
            Group::Model => model,
            Group::Session => session.session_id.to_string(),
        };
        let name = self.by.name();
        let line = self.rows.entry(key.clone()).or_insert_with(|| UsageLine {
            key: BTreeMap::from([(name, key)]),
            answers: 0,
            spent: UsageCost::default(),
        });
        line.answers += 1;
        line.spent.add(&spent);
        self.report.answers += 1;
        self.report.total.add(&spent);
    }

    /// True if the answer was not counted yet. An answer that nothing identifies is always new.
    fn is_new(
        &mut self,
        at: Option<i64>,
        model: Option<&str>,
        response: Option<&str>,
        spent: &UsageCost,
    ) -> bool {
        let mut hasher = DefaultHasher::new();
        match (response, at) {
            (Some(response), _) => (0_u8, response).hash(&mut hasher),
            (None, Some(at)) => {
                let tokens = [
                    spent.input,
                    spent.output,
                    spent.cache_read,
                    spent.cache_write,
                ];
                (1_u8, at, model, tokens).hash(&mut hasher);
            }
            (None, None) => return true,
        }
        self.seen.insert(hasher.finish())
    }

    fn finish(mut self) -> UsageReport {
        self.report.rows = self.rows.into_values().collect();
        if self.by != Group::Day {
            // Days are in order; of the others the largest come first.
            self.report.rows.sort_by(|one, other| {
                let cost = other.spent.cost.total_cmp(&one.spent.cost);
                cost.then(other.spent.total.cmp(&one.spent.total))
            });
        }
        self.report.unpriced = self.unpriced.into_keys().collect();
        self.report
    }
}

/// Returns the usage of an answer, with the cost that the transcript has.
fn spent(usage: &Usage) -> UsageCost {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ReportedCost {
        Number(f64),
        Parts { total: f64 },
    }
    // Reported usage may be any number.
    let tokens = |value: i64| value.max(0).unsigned_abs();
    let maybe = |value: &Option<Int>| value.as_ref().map_or(0, |value| tokens(value.get()));
    let (input, output) = (tokens(usage.input.get()), tokens(usage.output.get()));
    let (cache_read, cache_write) = (maybe(&usage.cache_read), maybe(&usage.cache_write));
    let reasoning = maybe(&usage.reasoning);
    let sum = [input, output, cache_read, cache_write]
        .into_iter()
        .fold(0, u64::saturating_add);
    let cost = usage.extra.get("cost").map(Json::read::<ReportedCost>);
    let cost = match cost.and_then(Result::ok) {
        Some(ReportedCost::Number(cost) | ReportedCost::Parts { total: cost }) => cost,
        None => 0.0,
    };
    UsageCost {
        input,
        output,
        cache_read,
        cache_write,
        reasoning,
        total: match maybe(&usage.total_tokens) {
            0 => sum,
            total => total,
        },
        cost: if cost.is_finite() && cost >= 0.0 {
            cost
        } else {
            0.0
        },
    }
}

/// Returns the table of a report and the lines below it.
pub fn shown(report: &UsageReport, names: &mut ShortNames<'_>) -> (TextTable, Vec<String>) {
    let is_session = report.by == Group::Session.name();
    let first = match is_session {
        true => Column::id("SESSION"),
        false => Column::text(report.by.to_uppercase(), 10),
    };
    let mut columns = vec![first];
    columns.extend(["INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"].map(Column::number));
    columns.extend([
        Column::number("REASONING").optional(),
        Column::number("ANSWERS").optional(),
        Column::number("COST"),
    ]);
    let mut table = TextTable::new(columns);
    let mut row = |key: String, answers: u64, spent: &UsageCost| {
        table.row(vec![
            key,
            text::number(spent.input),
            text::number(spent.output),
            text::number(spent.cache_read),
            text::number(spent.cache_write),
            text::number(spent.reasoning),
            text::number(answers),
            format!("{:.2}", spent.cost),
        ]);
    };
    for line in &report.rows {
        let key = line.key.values().next().cloned().unwrap_or_default();
        let key = match is_session {
            true => names.session(&key),
            false => key,
        };
        row(key, line.answers, &line.spent);
    }
    row("all".to_owned(), report.answers, &report.total);
    (table, notes(report))
}

fn notes(report: &UsageReport) -> Vec<String> {
    let date = report.prices_date.as_deref().map(text::line);
    let date = date.map_or_else(String::new, |date| format!(", prices of {date}"));
    let mut lines = vec![match &report.currency {
        Some(currency) => format!("Cost in {}{date}.", text::line(currency)),
        None if report.total.cost > 0.0 => {
            format!("Cost in the currency of the transcripts or of the price table{date}.")
        }
        None => "No cost is known: give a price table with --prices.".to_owned(),
    }];
    let counts = [
        (
            report.repeated,
            "repeated answer",
            "in other transcripts, counted once",
        ),
        (report.without_usage, "answer", "without a usage"),
        (
            report.removed,
            "answer",
            "redacted or removed, and not counted",
        ),
    ];
    for (count, what, why) in counts {
        if count > 0 {
            lines.push(format!("{} {why}.", text::count(count, what)));
        }
    }
    if report.total.cost > 0.0 && !report.unpriced.is_empty() {
        let models = report.unpriced.iter().map(|model| text::line(model));
        lines.push(format!(
            "Without a price: {}.",
            models.collect::<Vec<_>>().join(", ")
        ));
    }
    lines
}
