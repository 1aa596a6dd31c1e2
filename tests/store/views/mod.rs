//! The SQL contract: the views, queried by the plain `sqlite3` program and by the store.

mod content;
mod cost;
mod overlays;
mod random;
mod stage;

use stage::Stage;

/// The promised columns, in order. New ones may only come after them.
const CONTRACT: [(&str, &str); 19] = [
    (
        "v_sessions",
        "session_id agent_id title created_at last_active_at current_loop_id loops turns messages
         tokens source prompt project",
    ),
    (
        "v_loops",
        "session_id loop_id parent_loop_id parent_turn continuation_kind status started_at
         ended_at turns messages tokens archived prompt",
    ),
    (
        "v_turns",
        "session_id loop_id turn turn_index triggered_by started_at ended_at messages tokens
         input_tokens output_tokens",
    ),
    (
        "v_messages",
        "session_id loop_id seq turn turn_index role text tokens bytes created_at payload
         author",
    ),
    (
        "v_tool_calls",
        "session_id loop_id turn tool_call_id tool_name arguments call_seq result_seq result_text
         is_error",
    ),
    (
        "v_file_changes",
        "session_id loop_id turn tool_call_id tool_name path action call_seq result_seq is_error
         result_loop_id",
    ),
    (
        "v_commits",
        "session_id loop_id turn tool_call_id commit_id branch subject call_seq result_seq
         result_loop_id",
    ),
    ("v_chain", "session_id leaf_loop_id loop_id depth"),
    (
        "v_compaction_runs",
        "session_id run_id loop_id trigger strategy round outcome is_live fallback error
         tokens_before tokens_after bytes_before bytes_after messages_before messages_after
         started_at duration_ms config",
    ),
    (
        "v_compaction_events",
        "session_id run_id loop_id tick kind at payload",
    ),
    (
        "v_compaction_blocks",
        "session_id loop_id generation run_id kind extends keep_first_start keep_first_end
         keep_compacted_start keep_compacted_end keep_recent_start keep_recent_end tokens_covered
         tokens_block ratio is_active created_at",
    ),
    (
        "v_coverage",
        "session_id block_loop_id generation loop_id from_seq to_seq from_turn to_turn
         disposition",
    ),
    (
        "v_edits",
        "session_id run_id loop_id from_turn to_turn from_seq to_seq part action text tokens_before
         tokens_after is_live created_at",
    ),
    (
        "v_pins",
        "session_id loop_id turn seq pinned author created_at is_last from_loop_id from_turns",
    ),
    (
        "v_context",
        "session_id leaf_loop_id ordinal loop_id section from_turn to_turn messages tokens",
    ),
    (
        "v_usage",
        "session_id loop_id model input output cache_read cache_write reasoning total",
    ),
    (
        "v_manifests",
        "session_id manifest_id loop_id recorded_at older_loops messages tokens bytes counter
         sha256 parts",
    ),
    (
        "v_session_tree",
        "session_id parent_session_id parent_loop_id tool_call_id input output total cost
         tree_sessions tree_input tree_output tree_total tree_cost",
    ),
    (
        "v_receipts",
        "session_id receipt kind opened_at closed_at reason messages sources detail",
    ),
];

#[test]
fn every_view_has_the_promised_columns_in_their_order() {
    let stage = Stage::new("s");
    for (view, columns) in CONTRACT {
        let promised: Vec<&str> = columns.split_whitespace().collect();
        let found = stage.lines(&format!("SELECT name FROM pragma_table_info('{view}')"));
        assert!(found.len() >= promised.len(), "{view} lost a column");
        assert_eq!(found[..promised.len()], promised, "{view}");
        let asked = stage.store.query(&format!("SELECT * FROM {view}")).unwrap();
        assert_eq!(asked.columns, found, "{view}");
    }
}

#[test]
fn every_view_has_a_comment_in_its_migration() {
    let text = include_str!("../../../migrations/sqlite/V1__store.sql");
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("CREATE VIEW") {
            assert!(lines[at - 1].starts_with("--"), "{line}");
        }
    }
}

#[test]
fn an_empty_database_has_empty_views() {
    let stage = Stage::new("only a session");
    for (view, _) in CONTRACT {
        let rows = stage.rows(&format!("SELECT count(*) FROM {view}"));
        assert_eq!(
            rows[0][0],
            usize::from(["v_sessions", "v_session_tree"].contains(&view)),
            "{view}"
        );
    }
}

pub fn all_views() -> impl Iterator<Item = &'static str> {
    CONTRACT.into_iter().map(|(view, _)| view)
}
