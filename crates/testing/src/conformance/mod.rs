//! The tests of the store's contract and of the front door that every backend passes, one for each promise.
//!
//! A sentence that is added to `SessionStore`, `StoreRead` or `StoreWrite` comes with a function here and its name
//! in [`conformance!`](crate::conformance!), which defines the tests for one backend:
//!
//! ```ignore
//! loopstore_testing::conformance!(in_memory, Some(FreshStore::in_memory()));
//! ```

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use crate::histories::{self, History, answer, loop_id, result, user};
use loopstore::compact::CompactOutcome;
use loopstore::extend::append::{self, NewMessage};
use loopstore::extend::index::{
    IndexEntry, IndexFilter, IndexQuery, Phrase, remove_loop, remove_session,
};
use loopstore::extend::session;
use loopstore::extend::*;
use loopstore::model::*;
use loopstore::{
    CancelFlag, CompactRequest, CompactTrigger, HeuristicTokenCounter, KeepRecent, PinRef,
    PinRequest, SqliteStore, Store, TokenCounter, compact_session_loops, pin, pins, unpin,
};
use loopstore_admin::retention::{ArchiveRequest, UnarchiveRequest, archive, unarchive};
use tempfile::TempDir;

pub mod archive;
pub mod blocks;
pub mod compaction;
pub mod edit_restores;
pub mod edits;
pub mod entries;
pub mod hidden;
pub mod index;
pub mod kept_files;
pub mod keys;
pub mod leases;
pub mod listed;
pub mod messages;
pub mod parts;
pub mod pins;
pub mod quoted;
pub mod redacted;
pub mod redacted_edits;
pub mod sealed;
pub mod sealed_runs;
pub mod session_rows;
pub mod sessions;
pub mod times;
pub mod titles;
pub mod transactions;
pub mod written;

/// Defines a module with a test of every promise of the contract, for the backend whose empty stores an expression
/// makes: an `Option` of a [`FreshStore`](crate::conformance::FreshStore), `None` if the tests are to be skipped.
#[macro_export]
macro_rules! conformance {
    ($backend:ident, $store:expr) => {
        mod $backend {
            #[allow(unused_imports)]
            use super::*;

            $crate::promises! { $store,
                transactions: {
                    a_read_shows_one_moment,
                    a_write_is_all_or_nothing,
                    a_panic_leaves_no_trace_and_a_store_that_works,
                    a_write_reads_what_it_wrote,
                    writes_come_one_after_another,
                    a_count_that_no_row_holds_is_refused,
                    the_counter_is_that_of_the_database,
                }
                sessions: {
                    sessions_are_found_by_id_and_last_active_first,
                    ids_of_sessions_come_in_the_order_of_their_bytes,
                    keys_without_a_row_are_damage,
                    loops_are_found_by_id_and_in_order_of_creation,
                    lengths_of_loops_are_told_without_the_loops,
                    a_walk_goes_from_the_leaf_to_the_root_and_stops_when_told,
                    a_parent_in_another_session_ends_the_walk,
                }
                listed: {
                    pages_of_sessions_hold_each_once_and_in_order,
                    a_list_longer_than_what_is_read_at_once_is_whole,
                    a_filtered_list_comes_in_pages_too,
                    a_place_in_the_list_stays_when_its_session_moves_or_goes,
                    a_place_that_is_none_is_refused,
                    sessions_that_go_on_from_each_other_are_known_from_both_sides,
                }
                titles: {
                    a_title_is_the_sessions_own_else_what_it_was_first_asked,
                    what_a_harness_says_is_no_title,
                    a_sub_agent_is_known_by_its_task,
                    the_views_show_prompts_as_the_library_does,
                    an_archived_prompt_is_read_from_its_pack,
                    a_redacted_prompt_is_in_no_list,
                    a_project_is_kept_and_lists_are_filtered,
                }
                messages: {
                    turns_come_in_order,
                    answers_name_the_turns_of_the_calls,
                    messages_come_in_order_and_stop_when_told,
                    what_messages_say_is_what_is_stored,
                    whose_words_a_message_is_is_stored_beside_it,
                    a_session_or_loop_with_content_is_refused,
                    length_at_counts_what_had_come,
                    blobs_are_stored_once_and_found_by_name,
                }
                blocks: {
                    generations_come_newest_first,
                    a_walk_meets_the_newest_block_of_each_loop,
                    marks_are_those_of_the_runs,
                    the_current_loop_is_found_by_the_id_of_its_session,
                    runs_come_newest_first_and_flips_in_order,
                    pins_come_in_order_and_each_is_audited,
                    a_quote_is_stored_with_its_place_and_its_size,
                    blocks_come_by_run_and_by_loop,
                    coverage_and_messages_of_a_block_come_in_order,
                }
                quoted: {
                    what_a_block_quotes_is_not_told_as_hidden,
                }
                sealed: {
                    a_providers_compaction_counts_for_it_alone,
                }
                written: {
                    manifests_come_newest_first_and_are_added_once,
                    the_import_key_stays,
                    imports_are_found_by_what_they_were_imported_from,
                    a_session_or_loop_is_added_once,
                    what_changes_in_a_session_and_a_loop_is_written,
                    what_an_append_changes_is_written_and_nothing_else,
                    a_seal_is_never_lifted,
                    a_message_is_added_once,
                    only_unsealed_messages_are_removed,
                    a_turn_is_written_over,
                    a_run_and_a_generation_are_added_once,
                }
                index: {
                    an_index_tells_which_message_a_word_finds,
                    some_loops_are_picked_at_random,
                    an_index_takes_in_what_comes_next,
                    an_index_finds_words_phrases_and_beginnings,
                    an_index_looks_only_at_what_it_is_told_to,
                    what_leaves_the_index_is_not_found_and_can_come_again,
                    a_removed_message_leaves_the_index,
                    a_cleared_index_is_empty,
                }
                leases: {
                    a_lease_is_as_it_was_last_written_and_its_token_never_goes_back,
                    a_lease_is_taken_once_renewed_and_lost,
                    a_holder_is_gone_only_when_its_guard_is,
                    loops_at_work_are_those_that_have_not_ended,
                }
                session_rows: {
                    loops_with_system_messages_are_found_newest_first,
                    a_started_call_is_open_until_it_is_finished,
                    notes_come_in_order_and_go_together,
                    usage_is_summed_by_loop_and_model,
                    sessions_are_found_by_the_one_that_started_them,
                    a_hidden_session_takes_the_id_that_its_row_names,
                    named_appends_come_in_the_order_of_their_bytes,
                    what_was_decided_about_a_session_is_kept,
                }
                redacted: {
                    keys_of_appends_and_owners_of_leases_are_redacted_one_by_one,
                }
                archive: {
                    an_archived_message_reads_as_before_until_its_pack_is_taken_apart,
                }
                compaction: {
                    a_compaction_cancelled_before_its_commit_leaves_no_block,
                    what_a_provider_counted_stands_with_the_loop_until_a_compaction_or_an_undo,
                }
                entries: {
                    a_line_is_told_up_to_its_cuts_and_a_session_whole,
                    what_a_compaction_hides_is_told_all_the_same,
                    a_time_is_that_of_the_message_else_that_of_its_append,
                    a_session_that_is_not_there_has_none_and_a_place_must_be_there,
                }
                keys: {
                    a_batch_is_one_commit_and_each_key_counts_once,
                    a_batch_with_a_bad_part_leaves_nothing,
                    messages_of_a_batch_make_turns_and_loops_as_single_appends_do,
                    keys_of_one_session_are_not_those_of_another,
                }
                times: {
                    every_message_of_an_append_gets_its_time_and_comes_back_as_it_was,
                    what_was_appended_is_found_by_its_time,
                    sessions_are_listed_by_instants_whatever_their_offsets,
                    times_survive_a_trip_through_lines_and_are_in_no_other_form,
                    other_messages_under_a_known_key_are_refused_and_the_first_are_named,
                    an_append_over_several_loops_is_known_again_whole,
                }
                parts: {
                    what_comes_behind_the_cut_is_not_on_the_branch,
                    a_cut_at_the_end_of_a_turn_is_that_of_the_turn,
                    a_run_counts_as_for_a_cut_at_the_turn_before,
                    a_cut_inside_a_turn_is_copied_and_comes_back_from_lines,
                }
                hidden: {
                    what_is_hidden_is_in_no_list_and_its_id_is_free,
                    what_was_hidden_comes_back_whole,
                    what_cannot_be_hidden_is_refused,
                    a_hidden_session_can_be_erased_and_pruned,
                    a_copy_follows_what_was_hidden,
                }
                edits: {
                    a_removed_message_goes_with_its_pair_and_comes_back,
                    a_cleared_result_shows_its_size_and_the_way_to_it,
                    a_replaced_text_is_shown_in_its_place,
                    edits_of_two_runs_combine_and_each_comes_back_alone,
                    a_context_as_of_before_an_edit_does_not_have_it,
                    a_fork_before_an_edit_does_not_have_it,
                    a_summary_made_from_a_removed_message_is_not_shown,
                    coverage_says_what_was_removed_before_a_summary,
                    edits_apply_to_what_a_block_keeps,
                    a_kept_context_follows_edits,
                    a_commit_after_an_edit_is_a_conflict,
                    a_manifest_of_a_context_with_edits_is_derived_again,
                    a_closed_run_takes_no_edits,
                    what_cannot_be_edited_is_refused,
                    a_context_is_never_emptied,
                    an_edit_takes_bound_thinking_with_it,
                    contexts_of_random_histories_equal_the_models,
                    contexts_with_many_edits_equal_the_models,
                }
                edit_restores: {
                    a_part_is_restored_without_the_other_edits_of_its_message,
                    a_restore_of_a_part_names_what_else_would_come_back,
                    a_restore_that_would_leave_a_fault_is_refused,
                    what_was_recorded_with_a_fault_comes_back,
                }
                redacted_edits: {
                    a_redaction_reaches_the_texts_and_the_sizes_of_edits,
                }
                pins: {
                    an_archived_session_shows_its_quotes,
                    a_redaction_reaches_quotes_and_what_blocks_cover,
                    what_is_erased_or_pruned_leaves_no_pin_behind,
                }
                kept_files: {
                    a_file_goes_with_its_last_session,
                    a_file_of_several_goes_at_once_if_that_is_asked_for,
                    a_redaction_tells_of_a_file_that_still_holds_the_secret,
                    a_file_goes_when_all_its_sessions_are_pruned,
                }
                sealed_runs: {
                    it_stands_for_what_is_before_for_its_provider_and_for_nobody_else,
                    undo_and_redo_turn_it_over_and_repair_compacts_the_originals,
                    redacting_a_message_takes_the_sealed_state_with_it,
                }
            }
        }
    };
}

/// Defines a test for each function of the modules of [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! promises {
    ($store:expr, $($room:ident: { $($promise:ident,)* })*) => {
        $(mod $room {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $promise() {
                use $crate::conformance::PromiseArgument as _;

                let store: Option<$crate::conformance::FreshStore> = $store;
                if let Some(store) = store {
                    $crate::conformance::$room::$promise(store.argument());
                }
            })*
        })*
    };
}

/// An empty store that a promise is tried on.
pub struct FreshStore {
    store: Store,
    /// The folder of the store's file, which is removed with it.
    _folder: Option<TempDir>,
}

impl FreshStore {
    /// Returns a store in memory.
    pub fn in_memory() -> Self {
        Self::new(SqliteStore::in_memory().unwrap())
    }

    /// Returns a store in a file.
    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: histories::open(&folder.path().join("agent.db")).into(),
            _folder: Some(folder),
        }
    }

    /// Returns an empty store of another backend.
    pub fn new(store: impl Into<Store>) -> Self {
        Self {
            store: store.into(),
            _folder: None,
        }
    }
}

/// The argument of a promise, borrowed from the store that it is tried on.
pub trait PromiseArgument<'a, T: ?Sized + 'a> {
    /// Returns the store as the type of the promise's parameter.
    fn argument(&'a self) -> &'a T;
}

impl<'a> PromiseArgument<'a, Store> for FreshStore {
    fn argument(&'a self) -> &'a Store {
        &self.store
    }
}

impl<'a> PromiseArgument<'a, dyn Database + 'a> for FreshStore {
    fn argument(&'a self) -> &'a (dyn Database + 'a) {
        self.store.database()
    }
}

impl<'a> PromiseArgument<'a, dyn SessionStore + 'a> for FreshStore {
    fn argument(&'a self) -> &'a (dyn SessionStore + 'a) {
        self.store.database()
    }
}

const GO: StoreResult<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
const STOP: StoreResult<ControlFlow<()>> = Ok(ControlFlow::Break(()));

fn key(read: &(impl StoreRead + ?Sized), id: &str) -> SessionKey {
    let id = SessionId::new(id).unwrap();
    read.session(&id).unwrap().unwrap().key
}

fn turn(turn: u32) -> Vec<AgentMessage> {
    let call = format!("call-{turn}");
    let output = vec![
        Content::text("line\n".repeat(40)),
        Content::image("aGVsbG8=", "image/png"),
    ];
    vec![
        user("please", turn),
        answer(&"words ".repeat(30), &[&call], turn),
        result(&call, output, turn),
    ]
}

/// Returns a session of one loop with `turns` turns of three messages.
fn session_of_turns<'a>(store: &'a dyn SessionStore, id: &str, turns: u32) -> History<'a> {
    let history = History::new(store, id);
    for number in 0..turns {
        history.append(0, turn(number));
    }
    history
}

fn length(read: &dyn StoreRead, loop_key: LoopKey) -> u32 {
    read.loop_by_key(loop_key).unwrap().totals.next_seq
}

fn add(write: &mut dyn StoreWrite, loop_key: LoopKey, messages: Vec<AgentMessage>) {
    let new = messages.into_iter().map(NewMessage::from).collect();
    append::append(write, loop_key, new, &HeuristicTokenCounter).unwrap();
}

fn count(read: &dyn StoreRead, loop_key: LoopKey, seqs: std::ops::Range<u32>) -> StoreResult<u32> {
    let mut count = 0;
    read.messages(loop_key, seqs, &mut |_| {
        count += 1;
        GO
    })?;
    Ok(count)
}

fn runs(store: &dyn SessionStore, session: SessionKey) -> Vec<RunRow> {
    let mut runs = Vec::new();
    read(store, |read| {
        read.runs(session, &mut |run| {
            runs.push(run);
            GO
        })
    })
    .unwrap();
    runs
}

fn is_refused<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&mut dyn StoreWrite) -> StoreResult<T>,
) {
    let refused = write(store, work);
    assert!(
        matches!(refused, Err(StoreError::Invalid(_))),
        "{:?}",
        refused.err()
    );
}

/// Returns a loop with two generations, of which the first is undone.
fn compacted(store: &dyn SessionStore) -> History<'_> {
    let mut history = session_of_turns(store, "s", 6);
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    assert!(history.flip(0, false));
    assert!(history.flip(0, true));
    assert!(history.flip(0, false));
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    history
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// A promise that is missing in the list would be tested on no backend.
    #[test]
    fn every_promise_is_in_the_list() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
        let list = include_str!("mod.rs");
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for signature in text.split("\npub fn ").skip(1) {
                let (signature, _) = signature.split_once(" {\n").unwrap();
                let (name, arguments) = signature.split_once('(').unwrap();
                // A function that returns a value is a helper.
                let is_promise =
                    arguments.trim_start().starts_with("store: &") && !arguments.contains("->");
                let is_listed = list.contains(&format!("                {name},\n"));
                assert!(is_listed || !is_promise, "`{name}` is not in the list");
            }
        }
    }
}
