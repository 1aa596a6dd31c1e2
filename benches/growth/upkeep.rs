//! Operations other than recording: search, list, erase and prune, in two databases alternately.

use std::time::{Duration, Instant};

use loopstore::extend::sqlite::{QueryLimits, QueryRows, Record, ScrubState, SessionView, Stats};
use loopstore::extend::{self as store, Database, append, session};
use loopstore::*;
use loopstore_admin::retention::{EraseRequest, PruneRequest, erase, prune};

use crate::workload::turns::{Turns, of_messages};
use crate::workload::{Outcome, median};

/// The number of messages of a session that is removed.
const IN_A_SESSION: usize = 100;
/// The number of sessions that are erased one by one, and of those that are pruned at once: 10,000 messages.
const ERASED: usize = 12;
const PRUNED: usize = 100;
/// The number of rounds of pruning.
const PRUNES: usize = 3;
/// The number of rows of a page.
const PAGE: usize = 50;
/// The number of queries of each kind, and the longest time that they take together.
const QUERIES: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);

/// Words of one message alone, and words of a tenth and more of all messages.
const RARE: &str = "why does the marmot whistle at the quarry";
const COMMON: &str = "quick brown fox jumps over the file";

/// The name of an operation, and the ratio of its time in the larger database to that in the smaller one.
pub type Ratio = (&'static str, f64);

/// Adds the messages to search for, and the sessions to remove.
pub fn furnish(store: &dyn Database) -> Outcome<()> {
    let mut turns = Turns::small(5);
    let found = |at: usize| {
        let text = format!("The marmot whistles {at} times at the quarry when the kite circles.");
        vec![
            AgentMessage::from(Message::user(text)),
            AgentMessage::from(Message::assistant("Noted.")),
        ]
    };
    add(store, "found", (0..20).map(found).collect(), None)?;
    for at in 0..ERASED {
        let some = of_messages(&mut turns, IN_A_SESSION);
        add(store, &format!("erased-{at}"), some, None)?;
    }
    for (round, at) in (0..PRUNES).flat_map(|round| (0..PRUNED).map(move |at| (round, at))) {
        let some = of_messages(&mut turns, IN_A_SESSION);
        let year = format!("{}-01-01T00:00:00Z", 2001 + round);
        add(store, &format!("pruned-{round}-{at}"), some, Some(year))?;
    }
    index(store)
}

/// Updates the index to the end.
pub fn index(store: &dyn Database) -> Outcome<()> {
    recall(store, &SearchQuery::new("anything"), 2_000)?;
    Ok(())
}

/// A session of one loop, in one transaction.
pub fn add(
    store: &dyn Database,
    name: &str,
    turns: Vec<Vec<AgentMessage>>,
    last_active_at: Option<String>,
) -> Outcome<()> {
    let record = Session::new(SessionId::new(name)?, "agent");
    let mut first = LoopRecord::new(LoopId::new(format!("{name}.1"))?, None);
    first.status = LoopStatus::Completed;
    let messages: Vec<append::NewMessage> = turns.into_iter().flatten().map(Into::into).collect();
    store::write(store, |write| {
        let key = session::create_session(write, &record, None, None)?;
        let loop_key = session::create_loop(write, key, &first)?;
        append::append(write, loop_key, messages, &HeuristicTokenCounter)?;
        if last_active_at.is_some() {
            let mut row = write.session_by_key(key)?;
            row.last_active_at = last_active_at;
            write.touch_session(&(&row).into())?;
        }
        Ok(())
    })?;
    Ok(())
}

fn ask(store: &dyn Database, question: &str, session: Option<&str>) -> Outcome<usize> {
    let mut query = SearchQuery::new(question);
    query.session = session.map(SessionId::new).transpose()?;
    let answer = recall(store, &query, 2_000)?;
    match answer.parts.len() {
        0 => Err(format!("nothing was found for {question:?}").into()),
        found => Ok(found),
    }
}

/// Measures an operation in both databases alternately; returns the ratio of the second time to the first.
fn in_turns<'a>(
    both: [&'a dyn Database; 2],
    rounds: usize,
    mut work: impl FnMut(&'a dyn Database, usize) -> Outcome<()>,
) -> Outcome<f64> {
    let mut times = [Vec::new(), Vec::new()];
    let all = Instant::now();
    for round in 0..rounds {
        // A few rounds are enough for an operation that takes seconds.
        if round >= 3 && all.elapsed() > PATIENCE {
            break;
        }
        for (times, store) in times.iter_mut().zip(both) {
            let begun = Instant::now();
            work(store, round)?;
            times.push(begun.elapsed());
        }
    }
    let [young, old] = times.map(|times: Vec<Duration>| median(times.into_iter()));
    println!("    {young:.3} ms, {old:.3} ms");
    Ok(old / young)
}

/// Reads a page of the list after a position.
fn page(store: &dyn Database, after: Option<&SessionCursor>) -> Outcome<()> {
    let filter = SessionFilter {
        after: after.cloned(),
        limit: Some(PAGE),
        ..SessionFilter::default()
    };
    match store.listed_sessions(&filter)?.len() {
        PAGE => Ok(()),
        rows => Err(format!("a page has {rows} rows").into()),
    }
}

/// Returns the position after `offset` sessions.
fn place(store: &dyn Database, offset: usize) -> Outcome<SessionCursor> {
    let filter = SessionFilter {
        offset,
        limit: Some(1),
        ..SessionFilter::default()
    };
    let found = store.listed_sessions(&filter)?.pop();
    Ok(found.ok_or("no such place")?.0)
}

/// Runs the same operations in both databases.
pub fn compare(young: &dyn Database, old: &dyn Database) -> Outcome<Vec<Ratio>> {
    let both = [young, old];
    let mut ratios: Vec<Ratio> = Vec::new();
    let mut note = |what, ratio| {
        println!("    {what}: {ratio:.2}");
        ratios.push((what, ratio));
    };
    for (what, question, session) in [
        ("recall, rare words", RARE, None),
        (
            "recall in a session of ten messages more",
            RARE,
            Some("found"),
        ),
        ("recall, words of a tenth of all", COMMON, None),
    ] {
        let ratio = in_turns(both, QUERIES, |store, _| {
            ask(store, question, session).map(drop)
        });
        note(what, ratio?);
    }
    for (what, part) in [("first", 0), ("middle", 1), ("last", 2)] {
        let places = both.map(|store| -> Outcome<_> {
            let sessions = usize::try_from(store.stats()?.sessions)?;
            let offset = part * (sessions - PAGE - 1) / 2;
            (part > 0).then(|| place(store, offset)).transpose()
        });
        let [of_young, of_old] = places;
        let places = [of_young?, of_old?];
        let mut at = 0;
        let ratio = in_turns(both, QUERIES, |store, _| {
            at += 1;
            page(store, places[(at - 1) % 2].as_ref())
        })?;
        let what = match what {
            "first" => "sessions, first page",
            "middle" => "sessions, middle page",
            _ => "sessions, last page",
        };
        note(what, ratio);
    }
    let unscrubbed = both.map(Unscrubbed);
    let [a, b] = unscrubbed.each_ref().map(|store| store as &dyn Database);
    note(
        "erase of a session",
        in_turns([a, b], ERASED, |store, round| {
            let request = EraseRequest::new(SessionId::new(format!("erased-{round}"))?);
            erase(store, &request)?;
            Ok(())
        })?,
    );
    note(
        "prune of 10,000 messages",
        in_turns([a, b], PRUNES, |store, round| {
            let until = Time::from_text(format!("{}-06-01T00:00:00Z", 2001 + round));
            let now = Time::now().millis().ok_or("no time")?;
            let request = PruneRequest {
                older_than: until.millis().map(|until| now - until),
                ..PruneRequest::default()
            };
            match prune(store, &request)?.pruned.len() {
                PRUNED => Ok(()),
                other => Err(format!("{other} sessions were pruned").into()),
            }
        })?,
    );
    Ok(ratios)
}

/// Scrubs removed content from both files once: the cost grows with their content.
pub fn scrub(young: &dyn Database, old: &dyn Database) -> Outcome<f64> {
    in_turns([young, old], 1, |store, _| {
        store.scrub()?;
        Ok(())
    })
}

/// A store whose removals do not scrub.
struct Unscrubbed<'a>(&'a dyn Database);

impl SessionStore for Unscrubbed<'_> {
    fn read(&self, work: store::ReadWork<'_>) -> store::StoreResult<()> {
        self.0.read(work)
    }

    fn write(&self, work: store::WriteWork<'_>) -> store::StoreResult<()> {
        self.0.write(work)
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.0.counter()
    }
}

impl Database for Unscrubbed<'_> {
    fn place(&self) -> String {
        self.0.place()
    }

    fn query_within(&self, sql: &str, limits: QueryLimits) -> store::StoreResult<QueryRows> {
        self.0.query_within(sql, limits)
    }

    fn listed_sessions(
        &self,
        filter: &SessionFilter,
    ) -> store::StoreResult<Vec<(SessionCursor, Record)>> {
        self.0.listed_sessions(filter)
    }

    fn run_rows(&self, session: Option<&SessionId>) -> store::StoreResult<Vec<Record>> {
        self.0.run_rows(session)
    }

    fn session_view(&self, session: &SessionId) -> store::StoreResult<SessionView> {
        self.0.session_view(session)
    }

    fn stats(&self) -> store::StoreResult<Stats> {
        self.0.stats()
    }

    fn scan(&self, work: store::ScanWork<'_>) -> store::StoreResult<()> {
        self.0.scan(work)
    }

    fn removing(&self, work: store::WriteWork<'_>) -> store::StoreResult<()> {
        self.0.removing(work)
    }

    fn recounting(&self, work: store::RecountWork<'_>) -> store::StoreResult<()> {
        self.0.recounting(work)
    }

    fn scrub(&self) -> store::StoreResult<ScrubState> {
        Ok(ScrubState::Clean)
    }

    fn integrity_problems(&self) -> store::StoreResult<Vec<String>> {
        self.0.integrity_problems()
    }

    fn schema_problems(&self) -> store::StoreResult<Vec<String>> {
        self.0.schema_problems()
    }

    fn index_problems(&self) -> store::StoreResult<Vec<String>> {
        self.0.index_problems()
    }
}
