//! Everything that reads, applied to a file that may be damaged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use loopstore::context::AsOf;
use loopstore::{
    BuildOptions, OpenError, SearchQuery, SessionId, SqliteStore, build_context_from_session,
    search,
};
use loopstore_admin::inspect::{DiffRequest, diff};
use loopstore_export::{ExportForm, export};
use loopstore_verify::verify;

use crate::support::hang::HUNG;
use crate::support::histories::loop_id;

/// The answer of each command; `Err` is a typed error.
pub type Answers = BTreeMap<String, Result<String, String>>;

/// The errors in the answers of a file, and true if `verify` reports damage.
pub struct Found {
    pub answers: Result<Answers, OpenError>,
    pub is_named: bool,
}

pub fn read(path: &Path) -> Found {
    let begun = Instant::now();
    let store = match crate::support::plain::try_open(path) {
        Ok(store) => store,
        Err(error) => {
            return Found {
                answers: Err(error),
                is_named: true,
            };
        }
    };
    let answers = answers(&store);
    let report = verify(&store);
    let is_named = report
        .as_ref()
        .map_or(true, |report| !report.ok || !report.index.is_empty());
    assert!(begun.elapsed() < HUNG, "{:?}", begun.elapsed());
    Found {
        answers: Ok(answers),
        is_named,
    }
}

pub fn answers(store: &SqliteStore) -> Answers {
    let mut answers = Answers::new();
    for session in ["s", "t"] {
        of_session(store, session, &mut answers);
    }
    let mut ask = |name: &str, sql: &str| {
        let rows = store.query(sql).map(|rows| format!("{:?}", rows.rows));
        answers.insert(name.into(), rows.map_err(|error| error.to_string()));
    };
    ask("sessions", "SELECT * FROM v_sessions ORDER BY session_id");
    ask("show", "SELECT * FROM v_loops ORDER BY session_id, loop_id");
    ask("history", "SELECT * FROM v_compaction_runs ORDER BY run_id");
    let query = SearchQuery {
        text: "kite".into(),
        ..SearchQuery::default()
    };
    let hits = search(store, &query).map(|found| {
        let places = found.hits.iter().map(|hit| format!("{hit:?}"));
        let mut places: Vec<String> = places.collect();
        places.sort();
        places.join("\n")
    });
    answers.insert("search".into(), hits.map_err(|error| error.to_string()));
    answers
}

fn of_session(store: &SqliteStore, session: &str, answers: &mut Answers) {
    let id = SessionId::new(session).unwrap();
    let now = BuildOptions::default();
    let then = BuildOptions {
        as_of: Some(AsOf::Turn {
            loop_id: loop_id(0),
            turn: 5,
        }),
        ..BuildOptions::default()
    };
    for (name, options) in [("now", now), ("then", then)] {
        let built = build_context_from_session(store, &id, &options);
        let told = built.map(|context| {
            let messages = serde_json::to_string(&context.messages).unwrap();
            format!("{messages} {:?} {}", context.parts, context.tokens)
        });
        let told = told.map_err(|error| error.to_string());
        answers.insert(format!("context {session} {name}"), told);
    }
    for form in [ExportForm::PhiCore, ExportForm::Lines] {
        let mut bytes = Vec::new();
        let told = export(store, &id, None, form, &mut bytes)
            .map(|_| String::from_utf8_lossy(&bytes).into_owned());
        let told = told.map_err(|error| error.to_string());
        answers.insert(format!("export {session} {form:?}"), told);
    }
    let told = diff(store, &id, &DiffRequest::default()).map(|diff| format!("{diff:?}"));
    let told = told.map_err(|error| error.to_string());
    answers.insert(format!("diff {session}"), told);
}

/// Returns the commands whose answer is neither correct nor an error.
pub fn wrong(right: &Answers, found: &Answers) -> Vec<String> {
    let differs = |(name, answer): &(&String, &Result<String, String>)| {
        answer.is_ok() && right.get(*name) != Some(*answer)
    };
    let wrong = found.iter().filter(differs);
    wrong.map(|(name, _)| name.clone()).collect()
}
