//! Returns everything that can be read of a session, as text.

use loopstore::context::{AsOf, build_context_from_session};
use loopstore::extend::sqlite::QueryLimits;
use loopstore::provider::Form;
use loopstore::{extend as store, *};
use loopstore_admin::inspect::{DiffRequest, DiffSide, ExpandRequest, diff, expand};
use loopstore_admin::replay::Replay;
use loopstore_export::{ExportForm, export};

use crate::support::histories::{History, loop_id};

/// Views whose columns do not depend on whether a loop is archived, or only those columns.
const VIEWS: [&str; 11] = [
    "SELECT * FROM v_sessions",
    "SELECT loop_id, turns, messages, tokens, status FROM v_loops ORDER BY loop_id",
    "SELECT * FROM v_turns ORDER BY loop_id, turn",
    "SELECT loop_id, seq, turn, turn_index, role, tokens, bytes, created_at FROM v_messages
     ORDER BY loop_id, seq",
    "SELECT loop_id, turn, tool_call_id, tool_name, call_seq, result_seq, is_error, result_loop_id
     FROM v_tool_calls ORDER BY loop_id, call_seq, tool_call_id",
    "SELECT * FROM v_context ORDER BY leaf_loop_id, ordinal",
    "SELECT * FROM v_compaction_blocks ORDER BY loop_id, generation",
    "SELECT * FROM v_coverage ORDER BY block_loop_id, generation, loop_id, from_seq",
    "SELECT * FROM v_usage ORDER BY loop_id, model",
    "SELECT * FROM v_session_tree",
    "SELECT * FROM v_manifests ORDER BY manifest_id",
];

fn exported(
    store: &dyn Database,
    id: &SessionId,
    leaf: Option<&LoopId>,
    form: ExportForm,
) -> String {
    let mut bytes = Vec::new();
    export(store, id, leaf, form, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

pub fn lines(store: &dyn Database, id: &SessionId) -> String {
    exported(store, id, None, ExportForm::Lines)
}

fn context(store: &dyn Database, id: &SessionId, options: &BuildOptions) -> String {
    let context = build_context_from_session(store, id, options).unwrap();
    let messages = serde_json::to_string(&context.messages).unwrap();
    format!("{messages} {:?} {:?}", context.parts, context.faults)
}

/// Returns the context of each loop, now and as of each of its turns.
pub fn contexts(store: &dyn Database, history: &History<'_>) -> Vec<String> {
    let mut seen = Vec::new();
    for at in 0..history.loops {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            check: true,
            ..BuildOptions::default()
        };
        seen.push(context(store, &history.session, &options));
        for turn in 0..history.row(at).totals.turns {
            let moment = AsOf::Turn {
                loop_id: loop_id(at),
                turn,
            };
            let options = BuildOptions {
                as_of: Some(moment),
                ..BuildOptions::default()
            };
            seen.push(context(store, &history.session, &options));
        }
    }
    seen
}

/// Returns everything that can be read of one loop.
fn of_loop(store: &dyn Database, id: &SessionId, at: usize, turns: u32) -> Vec<String> {
    let leaf = loop_id(at);
    let forms = [
        ExportForm::Lines,
        ExportForm::Markdown,
        ExportForm::Request(Form::OpenAiChat),
        ExportForm::Request(Form::Anthropic),
    ];
    let mut seen: Vec<String> = forms
        .into_iter()
        .map(|form| exported(store, id, Some(&leaf), form))
        .collect();
    if turns > 0 {
        let request = ExpandRequest {
            loop_id: Some(leaf.clone()),
            ..ExpandRequest::turns(turns / 2, turns - 1)
        };
        let expanded = expand(store, id, &request).unwrap();
        seen.push(serde_json::to_string(&expanded).unwrap());
        let hidden = DiffRequest {
            from: Some(DiffSide::Raw),
            leaf: Some(leaf.clone()),
            ..DiffRequest::default()
        };
        seen.push(serde_json::to_string(&diff(store, id, &hidden).unwrap()).unwrap());
    }
    let replay = Replay::new(store, id, Some(&leaf)).unwrap();
    let steps = replay.with_contexts(turns < 8);
    seen.extend(steps.map(|step| format!("{:?}", step.unwrap())));
    seen
}

/// Returns everything that can be read of a history.
pub fn everything(store: &dyn Database, history: &History<'_>) -> Vec<String> {
    let id = &history.session;
    let mut seen = contexts(store, history);
    for form in [ExportForm::Lines, ExportForm::PhiCore, ExportForm::Markdown] {
        seen.push(exported(store, id, None, form));
    }
    for at in 0..history.loops {
        seen.extend(of_loop(store, id, at, history.row(at).totals.turns));
    }
    for query in ["line", "word -note", "\"long line\"", "1*"] {
        let query = SearchQuery {
            limit: Some(1000),
            ..SearchQuery::new(query)
        };
        seen.push(serde_json::to_string(&search(store, &query).unwrap()).unwrap());
    }
    for sql in VIEWS {
        let rows = store.query_within(sql, QueryLimits::default()).unwrap();
        seen.push(format!("{sql} {:?}", rows.rows));
    }
    let usage = store::read(store, |read| {
        let key = read.session(id)?.unwrap().key;
        read.usage(key)
    });
    seen.push(format!("{:?}", usage.unwrap()));
    seen
}
