//! The promises of the store, one test each, on every backend.
//!
//! A sentence added to `SessionStore`, `StoreRead` or `StoreWrite` arrives with a case here.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::histories::{History, answer, loop_id, result, user};
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
    PinRequest, SqliteStore, TokenCounter, compact_session_loops, pin, pins, unpin,
};
use loopstore_admin::retention::{ArchiveRequest, UnarchiveRequest, archive, unarchive};

#[path = "conformance/listed.rs"]
mod listed;
#[path = "conformance/quoted.rs"]
mod quoted;
#[path = "conformance/redacted.rs"]
mod redacted;
#[path = "conformance/sealed.rs"]
mod sealed;
#[path = "conformance/titles.rs"]
mod titles;

use quoted::what_a_block_quotes_is_not_told_as_hidden;
use sealed::a_providers_compaction_counts_for_it_alone;

promises! {
    a_read_shows_one_moment,
    a_write_is_all_or_nothing,
    a_panic_leaves_no_trace_and_a_store_that_works,
    a_write_reads_what_it_wrote,
    what_a_provider_counted_stands_with_the_loop_until_a_compaction_or_an_undo,
    writes_come_one_after_another,
    the_counter_is_that_of_the_database,
    a_count_that_no_row_holds_is_refused,
    sessions_are_found_by_id_and_last_active_first,
    ids_of_sessions_come_in_the_order_of_their_bytes,
    keys_without_a_row_are_damage,
    loops_are_found_by_id_and_in_order_of_creation,
    lengths_of_loops_are_told_without_the_loops,
    a_walk_goes_from_the_leaf_to_the_root_and_stops_when_told,
    a_parent_in_another_session_ends_the_walk,
    turns_come_in_order,
    answers_name_the_turns_of_the_calls,
    messages_come_in_order_and_stop_when_told,
    what_messages_say_is_what_is_stored,
    whose_words_a_message_is_is_stored_beside_it,
    a_session_or_loop_with_content_is_refused,
    length_at_counts_what_had_come,
    blobs_are_stored_once_and_found_by_name,
    generations_come_newest_first,
    a_walk_meets_the_newest_block_of_each_loop,
    runs_come_newest_first_and_flips_in_order,
    pins_come_in_order_and_each_is_audited,
    a_quote_is_stored_with_its_place_and_its_size,
    what_a_block_quotes_is_not_told_as_hidden,
    a_providers_compaction_counts_for_it_alone,
    marks_are_those_of_the_runs,
    the_current_loop_is_found_by_the_id_of_its_session,
    blocks_come_by_run_and_by_loop,
    coverage_and_messages_of_a_block_come_in_order,
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
    an_index_takes_in_what_comes_next,
    an_index_finds_words_phrases_and_beginnings,
    an_index_looks_only_at_what_it_is_told_to,
    what_leaves_the_index_is_not_found_and_can_come_again,
    a_removed_message_leaves_the_index,
    a_cleared_index_is_empty,
    an_index_tells_which_message_a_word_finds,
    some_loops_are_picked_at_random,
    a_lease_is_as_it_was_last_written_and_its_token_never_goes_back,
    a_lease_is_taken_once_renewed_and_lost,
    a_holder_is_gone_only_when_its_guard_is,
    loops_at_work_are_those_that_have_not_ended,
    loops_with_system_messages_are_found_newest_first,
    a_started_call_is_open_until_it_is_finished,
    notes_come_in_order_and_go_together,
    usage_is_summed_by_loop_and_model,
    sessions_are_found_by_the_one_that_started_them,
    what_was_decided_about_a_session_is_kept,
    a_hidden_session_takes_the_id_that_its_row_names,
    named_appends_come_in_the_order_of_their_bytes,
    an_archived_message_reads_as_before_until_its_pack_is_taken_apart,
    a_compaction_cancelled_before_its_commit_leaves_no_block,
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

/// A session of one loop with `turns` turns of three messages.
fn told<'a>(store: &'a dyn SessionStore, id: &str, turns: u32) -> History<'a> {
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

fn a_read_shows_one_moment(store: &dyn SessionStore) {
    let history = told(store, "s", 1);
    let loop_key = history.row(0).key;
    std::thread::scope(|scope| {
        let (done, wait) = mpsc::channel();
        read(store, |snapshot| {
            assert_eq!(length(snapshot, loop_key), 3);
            scope.spawn(move || {
                write(store, |write| {
                    add(write, loop_key, turn(1));
                    Ok(())
                })
                .unwrap();
                // The reader may have gone.
                let _ = done.send(());
            });
            // A backend may let the writer wait for the reader.
            let _ = wait.recv_timeout(Duration::from_millis(200));
            assert_eq!(length(snapshot, loop_key), 3);
            Ok(())
        })
        .unwrap();
    });
    assert_eq!(history.row(0).totals.next_seq, 6);
}

fn a_write_is_all_or_nothing(store: &dyn SessionStore) {
    let history = told(store, "s", 1);
    let (before, loop_key) = (history.row(0), history.row(0).key);
    let failed = write(store, |write| {
        add(write, loop_key, turn(1));
        Err::<(), _>(StoreError::Invalid("no".into()))
    });
    assert!(matches!(failed, Err(StoreError::Invalid(text)) if text == "no"));
    assert_eq!(history.row(0), before);
    let count = |seqs| read(store, |read| count(read, loop_key, seqs)).unwrap();
    assert_eq!(count(0..100), 3);
}

fn count(read: &dyn StoreRead, loop_key: LoopKey, seqs: std::ops::Range<u32>) -> StoreResult<u32> {
    let mut count = 0;
    read.messages(loop_key, seqs, &mut |_| {
        count += 1;
        GO
    })?;
    Ok(count)
}

fn a_panic_leaves_no_trace_and_a_store_that_works(store: &dyn SessionStore) {
    let history = told(store, "s", 1);
    let (before, loop_key) = (history.row(0), history.row(0).key);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        write(store, |write| -> StoreResult<()> {
            add(write, loop_key, turn(1));
            panic!("in the middle of a write");
        })
    }));
    assert!(panicked.is_err());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        read(store, |_| -> StoreResult<()> {
            panic!("in the middle of a read")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(history.row(0), before);
    history.append(0, turn(1));
    assert_eq!(history.row(0).totals.next_seq, 6);
}

fn a_write_reads_what_it_wrote(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 1).row(0).key;
    write(store, |write| {
        add(write, loop_key, turn(1));
        assert_eq!(length(write, loop_key), 6);
        assert_eq!(count(write, loop_key, 0..100)?, 6);
        Ok(())
    })
    .unwrap();
}

fn writes_come_one_after_another(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 0).row(0).key;
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            scope.spawn(move || {
                for number in 0..5 {
                    write(store, |write| {
                        add(write, loop_key, turn(thread * 100 + number));
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
    });
    read(store, |read| {
        let row = read.loop_by_key(loop_key)?;
        assert_eq!((row.totals.next_seq, row.totals.turns), (60, 20));
        assert_eq!(count(read, loop_key, 0..100)?, 60);
        // One moment for the loop's start and one for each append.
        assert_eq!(read.session_by_key(row.session)?.tick, 21);
        Ok(())
    })
    .unwrap();
}

fn a_count_that_no_row_holds_is_refused(store: &dyn SessionStore) {
    /// Counts as much in each message.
    struct Always(u64);

    impl TokenCounter for Always {
        fn name(&self) -> &str {
            "always"
        }

        fn text_tokens(&self, _text: &str) -> u64 {
            self.0
        }

        fn message_tokens(&self, _message: &AgentMessage) -> u64 {
            self.0
        }
    }

    let history = told(store, "s", 1);
    let (before, loop_key) = (history.row(0), history.row(0).key);
    let append = |tokens| {
        let messages = turn(1).into_iter().map(NewMessage::from).collect();
        write(store, |write| {
            append::append(write, loop_key, messages, &Always(tokens))
        })
    };
    for tokens in [u64::MAX, i64::MAX as u64, (1 << 48) + 1] {
        let refused = append(tokens).map(drop);
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "{refused:?}"
        );
    }
    // Each fits, the sum does not.
    assert!(append(1 << 48).is_err());
    assert_eq!(history.row(0), before);
    append(1 << 40).unwrap();
    assert_eq!(
        history.row(0).totals.tokens,
        before.totals.tokens + 3 * (1 << 40)
    );
}

fn the_counter_is_that_of_the_database(store: &dyn SessionStore) {
    assert_eq!(store.counter().name(), "heuristic");
}

fn sessions_are_found_by_id_and_last_active_first(store: &dyn SessionStore) {
    for (id, at) in [
        ("a", "2026-01-01"),
        ("b", "2026-01-03"),
        ("c", "2026-01-02"),
    ] {
        let key = History::new(store, id).row(0).session;
        write(store, |write| {
            let mut row = write.session_by_key(key)?;
            row.last_active_at = Some(format!("{at}T00:00:00Z"));
            write.update_session(&row)
        })
        .unwrap();
    }
    read(store, |read| {
        assert!(read.session(&SessionId::new("none").unwrap())?.is_none());
        let row = read.session_by_key(key(read, "b"))?;
        assert_eq!(row.session_id.as_str(), "b");
        let sessions = read.sessions()?;
        let ids: Vec<&str> = sessions.iter().map(|row| row.session_id.as_str()).collect();
        assert_eq!(ids, ["b", "c", "a"]);
        Ok(())
    })
    .unwrap();
}

fn ids_of_sessions_come_in_the_order_of_their_bytes(store: &dyn SessionStore) {
    for id in ["b", "a-2", "B", "a_1", "é", "a"] {
        History::new(store, id);
    }
    let from = |first: &str, limit| -> Vec<String> {
        let ids = read(store, |read| read.session_ids(first, limit)).unwrap();
        ids.iter().map(ToString::to_string).collect()
    };
    assert_eq!(from("", 9), ["B", "a", "a-2", "a_1", "b", "é"]);
    assert_eq!(from("a-", 2), ["a-2", "a_1"]);
    assert!(from("ê", 9).is_empty() && from("", 0).is_empty());
}

fn keys_without_a_row_are_damage(store: &dyn SessionStore) {
    // Keys of another store, which has more of everything.
    let other = SqliteStore::in_memory().unwrap();
    told(&other, "x", 1);
    let mut history = told(&other, "s", 6);
    history.compact(0, (1, 1), false);
    let (session, loop_key) = (history.row(0).session, history.row(0).key);
    let run = runs(&other, session)[0].key;
    let block = read(&other, |read| Ok(read.blocks_of_run(run)?[0].key)).unwrap();
    read(store, |read| {
        let damage = |error| matches!(error, Some(StoreError::Damaged(_)));
        assert!(damage(read.session_by_key(session).err()));
        assert!(damage(read.loop_by_key(loop_key).err()));
        assert!(damage(read.run_by_key(run).err()));
        assert!(damage(read.block_by_key(block).err()));
        assert!(damage(read.loop_meta(loop_key).err()));
        Ok(())
    })
    .unwrap();
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

fn loops_are_found_by_id_and_in_order_of_creation(store: &dyn SessionStore) {
    let mut history = told(store, "s", 3);
    told(store, "t", 1);
    history.start_loop(Some(0), Some(1));
    history.start_loop(None, None);
    read(store, |read| {
        let session = key(read, "s");
        let loops = read.loops(session)?;
        let ids: Vec<&str> = loops.iter().map(|row| row.loop_id.as_str()).collect();
        assert_eq!(ids, ["loop-0", "loop-1", "loop-2"]);
        let row = read.loop_by_id(session, &loop_id(1))?.unwrap();
        assert_eq!((row.parent, row.parent_turn), (Some(loops[0].key), Some(1)));
        assert_eq!(read.loop_by_key(row.key)?, row);
        assert!(read.loop_by_id(session, &loop_id(9))?.is_none());
        assert!(read.loop_meta(row.key)?.meta.contains("loop-1"));
        Ok(())
    })
    .unwrap();
}

fn lengths_of_loops_are_told_without_the_loops(store: &dyn SessionStore) {
    let mut history = told(store, "s", 2);
    history.start_loop(None, None);
    let rows = [history.row(0), history.row(1)];
    let lengths = read(store, |read| read.loop_lengths(rows[0].session)).unwrap();
    assert_eq!(lengths, [(rows[0].key, 6), (rows[1].key, 0)]);
}

fn a_walk_goes_from_the_leaf_to_the_root_and_stops_when_told(store: &dyn SessionStore) {
    let mut history = told(store, "s", 1);
    (0..4).for_each(|at| history.start_loop(Some(at), None));
    let leaf = history.row(4).key;
    read(store, |read| {
        let mut ids = Vec::new();
        read.walk(leaf, &mut |row| {
            ids.push(row.core.loop_id);
            GO
        })?;
        assert_eq!(ids, [4, 3, 2, 1, 0].map(loop_id));
        ids.clear();
        read.walk(leaf, &mut |row| {
            ids.push(row.core.loop_id);
            if ids.len() == 2 { STOP } else { GO }
        })?;
        assert_eq!(ids, [4, 3].map(loop_id));
        let failed = read.walk(leaf, &mut |_| Err(StoreError::Conflict));
        assert!(matches!(failed, Err(StoreError::Conflict)));
        Ok(())
    })
    .unwrap();
}

fn a_parent_in_another_session_ends_the_walk(store: &dyn SessionStore) {
    let parent = told(store, "s", 2).row(0);
    let history = told(store, "t", 1);
    let mut row = history.row(0);
    row.loop_id = loop_id(7);
    row.parent = Some(parent.key);
    let leaf = write(store, |write| write.insert_loop(&row, &LoopMeta::default())).unwrap();
    read(store, |read| {
        let mut met = 0;
        read.walk(leaf, &mut |row| {
            met += 1;
            assert_eq!(row.key, leaf);
            GO
        })?;
        assert_eq!(met, 1);
        Ok(())
    })
    .unwrap();
}

fn turns_come_in_order(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 5).row(0).key;
    told(store, "t", 5);
    read(store, |read| {
        let numbers = |turns: Vec<TurnRow>| turns.iter().map(|t| t.turn).collect::<Vec<_>>();
        assert_eq!(numbers(read.turns(loop_key, 1..4)?), [1, 2, 3]);
        assert_eq!(numbers(read.turns(loop_key, 3..99)?), [3, 4]);
        assert!(read.turns(loop_key, 3..3)?.is_empty());
        let row = read.turn(loop_key, 2)?.unwrap();
        assert_eq!((row.first_seq, row.messages, row.prompts), (6, 9, 3));
        assert!(read.turn(loop_key, 5)?.is_none());
        Ok(())
    })
    .unwrap();
}

fn answers_name_the_turns_of_the_calls(store: &dyn SessionStore) {
    let history = told(store, "s", 0);
    history.append(0, vec![user("a", 0), answer("b", &["late"], 0)]);
    history.append(0, turn(1));
    history.append(
        0,
        vec![
            result("late", vec![Content::text("c")], 2),
            answer("d", &[], 2),
        ],
    );
    let loop_key = history.row(0).key;
    read(store, |read| {
        let site = CallSite { loop_key, turn: 0 };
        assert_eq!(read.answers(loop_key, 0..9)?, [(2, vec![site])]);
        assert!(read.answers(loop_key, 0..2)?.is_empty());
        Ok(())
    })
    .unwrap();
}

fn messages_come_in_order_and_stop_when_told(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 4).row(0).key;
    told(store, "t", 4);
    read(store, |read| {
        let (mut whole, mut sizes) = (Vec::new(), Vec::new());
        read.messages(loop_key, 2..9, &mut |row| {
            whole.push((row.seq, row.turn, row.body.role, row.body.tokens));
            if whole.len() == 5 { STOP } else { GO }
        })?;
        read.sizes(loop_key, 2..9, &mut |row| {
            sizes.push((row.seq, row.turn, row.role, row.size.tokens));
            if sizes.len() == 5 { STOP } else { GO }
        })?;
        assert_eq!(whole, sizes);
        let seqs: Vec<u32> = whole.iter().map(|(seq, ..)| *seq).collect();
        assert_eq!(seqs, [2, 3, 4, 5, 6]);
        assert_eq!(count(read, loop_key, 7..7)?, 0);
        assert_eq!(count(read, loop_key, 11..99)?, 1);
        let failed = read.messages(loop_key, 0..9, &mut |_| Err(StoreError::Conflict));
        assert!(matches!(failed, Err(StoreError::Conflict)));
        Ok(())
    })
    .unwrap();
}

fn what_messages_say_is_what_is_stored(store: &dyn SessionStore) {
    let long = "line\n".repeat(3_000);
    let history = told(store, "s", 3);
    let loop_key = history.row(0).key;
    let note = AgentMessage::extension("note", Json::null());
    history.append(0, vec![user(&long, 3), note]);
    read(store, |read| {
        let mut rows = Vec::new();
        read.messages(loop_key, 1..99, &mut |row| {
            rows.push(row);
            GO
        })?;
        let mut left = rows.iter();
        read.message_refs(loop_key, 1..99, true, &mut |said| {
            let row = left.next().unwrap();
            assert_eq!((said.seq, said.turn), (row.seq, row.turn));
            assert_eq!(said.message, row.body.as_stored_ref());
            GO
        })?;
        assert_eq!(left.len(), 0);
        assert!(rows.iter().any(|row| row.body.text.as_ref() == Some(&long)));
        read.message_refs(loop_key, 1..99, false, &mut |said| {
            assert_eq!(said.message.proof, None);
            GO
        })?;
        let mut met = 0;
        read.message_refs(loop_key, 1..99, true, &mut |_| {
            met += 1;
            STOP
        })?;
        assert_eq!(met, 1);
        read.message_refs(loop_key, 3..3, true, &mut |_| Err(StoreError::Conflict))?;
        let failed = read.message_refs(loop_key, 0..9, true, &mut |_| Err(StoreError::Conflict));
        assert!(matches!(failed, Err(StoreError::Conflict)));
        Ok(())
    })
    .unwrap();
}

fn whose_words_a_message_is_is_stored_beside_it(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    let said = |author| AgentMessage::from(Message::user("now").with_author(author));
    let mut messages: Vec<AgentMessage> = Author::ALL.map(said).into();
    messages.push(Message::user("then").into());
    messages.push(Message::assistant("so").into());
    messages.push(
        Message::assistant("API error")
            .with_author(Author::Harness)
            .into(),
    );
    messages.push(AgentMessage::extension("note", Json::null()));
    let turn = |message: AgentMessage| message.in_turn(TurnId::new("l", 0));
    history.append(0, messages.clone().into_iter().map(turn).collect());
    let loop_key = history.row(0).key;
    let (mut rows, mut sizes, mut prompts) = (Vec::new(), Vec::new(), 0);
    read(store, |read| {
        read.messages(loop_key, 0..9, &mut |row| {
            rows.push((row.body.author, decode(read, row.body)?.author()));
            GO
        })?;
        read.sizes(loop_key, 0..9, &mut |size| {
            sizes.push(size.author);
            GO
        })?;
        prompts = read.turn(loop_key, 0)?.unwrap().prompts;
        Ok(())
    })
    .unwrap();
    let expected: Vec<Author> = messages.iter().map(AgentMessage::author).collect();
    assert_eq!(sizes, expected);
    assert_eq!(
        rows,
        expected
            .iter()
            .map(|author| (*author, *author))
            .collect::<Vec<_>>()
    );
    // A person's, a parent agent's, and one of whom nothing is said.
    assert_eq!(prompts, 3);
}

fn a_session_or_loop_with_content_is_refused(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    let of = |change: &dyn Fn(&mut LoopRecord)| {
        let mut record = LoopRecord::new(LoopId::new("full").unwrap(), None);
        change(&mut record);
        let created = write(store, |write| {
            let session = key(&*write, history.session.as_str());
            session::create_loop(write, session, &record)
        });
        created.unwrap_err().to_string()
    };
    let message = AgentMessage::from(Message::user("now"));
    let said = of(&|record| record.messages = vec![message.clone()]);
    assert!(said.contains("`full` comes with 1 messages"), "{said}");
    let said = of(&|record| record.events = vec![Json::null(), Json::null()]);
    assert!(said.contains("comes with 2 events"), "{said}");
    let said = of(&|record| {
        record.compaction_block = Some(CompactionBlock {
            keep_first: None,
            keep_compacted: None,
            keep_recent: None,
            created_at: None,
            extra: Extra::default(),
        });
    });
    assert!(said.contains("comes with 1 block"), "{said}");
    let mut session = Session::new(SessionId::new("full").unwrap(), "agent");
    session.loops = vec![LoopRecord::new(LoopId::new("l").unwrap(), None)];
    let created = write(store, |write| {
        session::create_session(write, &session, None, None)
    });
    let said = created.unwrap_err().to_string();
    assert!(said.contains("session `full` comes with 1 loops"), "{said}");
    let id = SessionId::new("full").unwrap();
    assert!(read(store, |read| read.session(&id)).unwrap().is_none());
}

fn length_at_counts_what_had_come(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 3).row(0).key;
    read(store, |read| {
        // The loop began at tick 1, each append came a tick later.
        let lengths: Vec<u32> = (0..7)
            .map(|tick| read.length_at(loop_key, tick).unwrap())
            .collect();
        assert_eq!(lengths, [0, 0, 3, 6, 9, 9, 9]);
        Ok(())
    })
    .unwrap();
}

fn blobs_are_stored_once_and_found_by_name(store: &dyn SessionStore) {
    use sha2::{Digest, Sha256};
    let loop_key = told(store, "s", 3).row(0).key;
    read(store, |read| {
        let name: [u8; 32] = Sha256::digest(b"hello").into();
        assert_eq!(read.blob(&name)?.as_deref(), Some(&b"hello"[..]));
        assert!(read.blob(&[0; 32])?.is_none());
        assert_eq!(read.blob_names(&[0; 32], &[255; 32])?, [name]);
        assert_eq!(read.blob_names(&name, &name)?, [name]);
        assert!(read.blob_names(&[0; 32], &[1; 32])?.is_empty());
        let mut decoded = Vec::new();
        read.messages(loop_key, 2..3, &mut |row| {
            assert!(!row.body.head.as_deref().unwrap().contains("aGVsbG8="));
            decoded.push(decode(read, row.body)?);
            GO
        })?;
        let json = |message: &AgentMessage| serde_json::to_string(message).unwrap();
        assert_eq!(json(&decoded[0]), json(&turn(0)[2]));
        Ok(())
    })
    .unwrap();
}

/// A loop with two generations, of which the first is undone.
fn compacted(store: &dyn SessionStore) -> History<'_> {
    let mut history = told(store, "s", 6);
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    assert!(history.flip(0, false));
    assert!(history.flip(0, true));
    assert!(history.flip(0, false));
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    history
}

fn generations_come_newest_first(store: &dyn SessionStore) {
    let loop_key = compacted(store).row(0).key;
    read(store, |read| {
        let mut met = Vec::new();
        read.generations(loop_key, &mut |found| {
            assert_eq!(found.point.loop_key, loop_key);
            met.push(found.block.generation);
            GO
        })?;
        assert_eq!(met, [2, 1]);
        met.clear();
        read.generations(loop_key, &mut |found| {
            met.push(found.block.generation);
            STOP
        })?;
        assert_eq!(met, [2]);
        Ok(())
    })
    .unwrap();
}

/// Returns of each loop from the leaf on: its newest block if that is settled, and whether it is not.
fn met(store: &dyn SessionStore, leaf: LoopKey) -> Vec<(LoopKey, Option<u32>, bool)> {
    read(store, |read| {
        let mut met = Vec::new();
        read.loops_with_blocks(leaf, &mut |standing| {
            // What a chain needs is read by itself, and must be what the whole rows say.
            assert_eq!(standing.row, read.loop_by_key(standing.row.key)?.core);
            if let Some(newest) = &standing.newest {
                assert_eq!(newest.block, read.block_by_key(newest.block.key)?.core);
            }
            let newest = standing.newest.map(|newest| newest.block.generation);
            met.push((standing.row.key, newest, standing.is_disputed));
            GO
        })?;
        let mut rows = met.iter();
        read.chain(leaf, &mut |row| {
            assert_eq!(Some(&row.key), rows.next().map(|(key, ..)| key));
            assert_eq!(row, read.loop_by_key(row.key)?.core);
            GO
        })?;
        assert!(rows.next().is_none());
        Ok(met)
    })
    .unwrap()
}

fn a_walk_meets_the_newest_block_of_each_loop(store: &dyn SessionStore) {
    let mut history = compacted(store);
    let first = history.row(0).key;
    history.start_loop(Some(0), None);
    let leaf = history.row(1).key;
    assert_eq!(
        met(store, leaf),
        [(leaf, None, false), (first, Some(2), false)]
    );
    assert!(history.flip(0, false));
    assert_eq!(met(store, leaf), [(leaf, None, false), (first, None, true)]);
    assert!(history.flip(0, true));
    assert_eq!(met(store, first), [(first, None, true)]);
    let turns = history.row(1).parent_turns();
    read(store, |read| {
        let cut = Cut {
            whole: turns,
            part: None,
        };
        assert_eq!(read.parent_of(leaf)?, Some((first, cut)));
        assert_eq!(read.parent_of(first)?, None);
        Ok(())
    })
    .unwrap();
    read(store, |read| {
        let mut loops = 0;
        read.loops_with_blocks(leaf, &mut |_| {
            loops += 1;
            STOP
        })?;
        assert_eq!(loops, 1);
        Ok(())
    })
    .unwrap();
}

fn marks_are_those_of_the_runs(store: &dyn SessionStore) {
    let session = compacted(store).row(0).session;
    let mut runs = runs(store, session).into_iter();
    read(store, |read| {
        read.run_summaries(session, &mut |mark| {
            let run = runs.next().unwrap();
            assert_eq!((mark.key, mark.point), (run.key, run.point));
            assert_eq!((mark.tick, mark.round), (run.tick, run.round));
            assert_eq!(mark.is_committed, run.outcome == Outcome::Committed);
            assert_eq!(mark.is_flipped, !read.flips(run.key)?.is_empty());
            assert_eq!(mark.older_loops, run.older_loops);
            GO
        })?;
        assert_eq!(runs.len(), 0);
        let mut met = 0;
        read.run_summaries(session, &mut |_| {
            met += 1;
            STOP
        })?;
        assert_eq!(met, 1);
        Ok(())
    })
    .unwrap();
}

fn the_current_loop_is_found_by_the_id_of_its_session(store: &dyn SessionStore) {
    let row = told(store, "s", 1).row(0);
    write(store, |write| {
        let empty = Session::new(SessionId::new("empty").unwrap(), "agent");
        session::create_session(write, &empty, None, None)
    })
    .unwrap();
    read(store, |read| {
        let current = |id: &str| read.current(&SessionId::new(id).unwrap());
        assert_eq!(current("s")?, Some((row.session, row.key)));
        assert_eq!(current("empty")?, None);
        assert_eq!(current("other")?, None);
        Ok(())
    })
    .unwrap();
}

fn runs_come_newest_first_and_flips_in_order(store: &dyn SessionStore) {
    let session = compacted(store).row(0).session;
    let found = runs(store, session);
    assert_eq!(found.len(), 2);
    assert!(found[0].tick > found[1].tick);
    read(store, |read| {
        let mut met = 0;
        read.runs(session, &mut |_| {
            met += 1;
            STOP
        })?;
        assert_eq!(met, 1);
        assert_eq!(read.run_by_key(found[0].key)?, found[0]);
        assert!(read.flips(found[0].key)?.is_empty());
        let flips = read.flips(found[1].key)?;
        let redo: Vec<bool> = flips.iter().map(|flip| flip.redo).collect();
        assert_eq!(redo, [false, true, false]);
        assert!(flips.is_sorted_by_key(|flip| flip.tick));
        Ok(())
    })
    .unwrap();
}

fn pins_come_in_order_and_each_is_audited(store: &dyn SessionStore) {
    let history = compacted(store);
    let (row, session) = (history.row(0), &history.session);
    let of = PinRef::turn(row.loop_id.as_str(), 1);
    let request = PinRequest { of, leaf: None };
    let made = pin(store, session, &request).unwrap().messages;
    assert!(!made.is_empty());
    unpin(store, session, &request).unwrap();
    pin(store, session, &request).unwrap();
    let rows = read(store, |read| read.pins(row.session)).unwrap();
    assert_eq!(rows.len(), 3 * made.len());
    assert!(rows.is_sorted_by(|one, next| one.tick < next.tick));
    let last: Vec<(u32, bool)> = rows.iter().map(|row| (row.seq, row.pinned)).collect();
    let said = |pinned| made.iter().map(move |message| (message.seq, pinned));
    let all: Vec<(u32, bool)> = said(true).chain(said(false)).chain(said(true)).collect();
    assert_eq!(last, all);
    let listed = pins(store, session, None).unwrap().pins;
    let seqs: Vec<u32> = listed.iter().map(|pin| pin.seq).collect();
    assert_eq!(
        seqs,
        made.iter().map(|message| message.seq).collect::<Vec<_>>()
    );
    // A session of another store has none.
    let nobody = read(store, |read| read.pins(SessionKey::default())).unwrap();
    assert_eq!(nobody, []);
}

fn a_quote_is_stored_with_its_place_and_its_size(store: &dyn SessionStore) {
    let history = compacted(store);
    let (row, session) = (history.row(0), &history.session);
    let of = PinRef::turn(row.loop_id.as_str(), 1);
    pin(store, session, &PinRequest { of, leaf: None }).unwrap();
    let seq = read(store, |read| Ok(read.pins(row.session)?[0].seq)).unwrap();
    let request = CompactRequest {
        trigger: CompactTrigger::Force,
        config: loopstore::CompactionConfig {
            keep_first_turns: 0,
            keep_recent: KeepRecent::Turns(1),
            ..loopstore::CompactionConfig::default()
        },
        ..CompactRequest::default()
    };
    let report = compact_session_loops(store, session, &request).unwrap();
    assert_eq!(report.error, None);
    read(store, |read| {
        let block = read.blocks_of_loop(row.key)?.pop().unwrap();
        let messages = read.block_messages(block.key)?;
        let quote = messages
            .into_iter()
            .find(|message| message.quotes.is_some());
        let quote = quote.unwrap();
        assert_eq!(quote.quoted(), Some((row.key, seq)));
        let derived = quote_body(read, &HeuristicTokenCounter, row.key, (row.key, seq))?;
        assert_eq!(quote.body, Some(derived));
        let kept = read.coverage(block.key)?.into_iter().any(|row| {
            row.disposition == Disposition::Kept
                && row
                    .seqs
                    .is_some_and(|(from, to)| (from..=to).contains(&seq))
        });
        assert!(kept);
        Ok(())
    })
    .unwrap();
}

fn blocks_come_by_run_and_by_loop(store: &dyn SessionStore) {
    let row = compacted(store).row(0);
    let newest = runs(store, row.session).remove(0);
    read(store, |read| {
        let of_loop = read.blocks_of_loop(row.key)?;
        let generations: Vec<u32> = of_loop.iter().map(|block| block.generation).collect();
        assert_eq!(generations, [1, 2]);
        assert_eq!(read.blocks_of_run(newest.key)?, of_loop[1..]);
        Ok(())
    })
    .unwrap();
}

fn coverage_and_messages_of_a_block_come_in_order(store: &dyn SessionStore) {
    let row = compacted(store).row(0);
    read(store, |read| {
        let block = read.blocks_of_loop(row.key)?.remove(1);
        let coverage = read.coverage(block.key)?;
        assert!(coverage.len() > 2 && coverage.is_sorted_by_key(|row| row.seqs));
        let messages = read.block_messages(block.key)?;
        assert!(messages.is_sorted_by_key(|message| message.section == Section::Recent));
        assert!(messages.is_sorted_by_key(|message| message.replaces));
        assert!(messages.iter().any(|message| message.replaces.is_some()));
        Ok(())
    })
    .unwrap();
}

fn manifests_come_newest_first_and_are_added_once(store: &dyn SessionStore) {
    let history = compacted(store);
    let row = history.row(0);
    let block = read(store, |read| Ok(read.blocks_of_loop(row.key)?[0].key)).unwrap();
    let part = |section: &str, block, seqs| ManifestPart {
        loop_key: row.key,
        section: section.into(),
        block,
        seqs,
        messages: 2,
    };
    let mut manifest = ManifestRow {
        key: ManifestKey::default(),
        manifest_id: "one".into(),
        session: row.session,
        leaf: row.key,
        tick: 3,
        recorded_at: "2026-01-05T09:00:00Z".into(),
        older_loops: "rollup".into(),
        parts: vec![
            part("compacted", Some(block), None),
            part("tail", None, Some((4, 5))),
        ],
        size: Size {
            tokens: 7,
            bytes: 8,
            messages: 4,
        },
        counter: "heuristic".into(),
        sha256: [9; 32],
    };
    manifest.key = write(store, |write| write.insert_manifest(&manifest)).unwrap();
    is_refused(store, |write| write.insert_manifest(&manifest));
    let mut second = manifest.clone();
    second.manifest_id = "two".into();
    second.key = write(store, |write| write.insert_manifest(&second)).unwrap();
    read(store, |read| {
        let found = read.manifests(row.session)?;
        assert_eq!(found, [second.clone(), manifest.clone()]);
        Ok(())
    })
    .unwrap();
}

fn the_import_key_stays(store: &dyn SessionStore) {
    let first = read(store, |read| read.import_key()).unwrap();
    told(store, "s", 1);
    assert_eq!(first.len(), 32);
    assert_eq!(read(store, |read| read.import_key()).unwrap(), first);
}

fn imports_are_found_by_what_they_were_imported_from(store: &dyn SessionStore) {
    let sessions = ["a", "b", "c"].map(|id| told(store, id, 0).row(0).session);
    let from = |record: &str| ImportRow {
        format: "chat".into(),
        path: "/tmp/runs.json".into(),
        file_name: "runs.json".into(),
        record_key: Some(record.into()),
    };
    write(store, |write| {
        write.insert_import(sessions[1], &from("1"))?;
        write.insert_import(sessions[0], &from("1"))?;
        write.insert_import(sessions[1], &from("1"))?;
        write.insert_import(sessions[2], &from("2"))
    })
    .unwrap();
    read(store, |read| {
        let found = read.imported("chat", "runs.json", "1")?;
        assert_eq!(found, sessions[..2]);
        assert!(read.imported("chat", "runs.json", "3")?.is_empty());
        assert!(read.imported("other", "runs.json", "1")?.is_empty());
        Ok(())
    })
    .unwrap();
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

fn a_session_or_loop_is_added_once(store: &dyn SessionStore) {
    let row = told(store, "s", 1).row(0);
    let session = read(store, |read| read.session_by_key(row.session)).unwrap();
    is_refused(store, |write| write.insert_session(&session));
    is_refused(store, |write| write.insert_loop(&row, &LoopMeta::default()));
    let mut other = row.clone();
    other.loop_id = loop_id(5);
    let key = write(store, |write| {
        write.insert_loop(&other, &LoopMeta::default())
    })
    .unwrap();
    let stored = read(store, |read| read.loop_by_key(key)).unwrap();
    assert!(key > row.key);
    assert_eq!((stored.totals.next_seq, stored.totals.turns), (0, 0));
    let again = write(store, |write| {
        session::create_session(
            write,
            &Session::new(session.session_id.clone(), "a"),
            None,
            None,
        )
    });
    assert!(matches!(again, Err(StoreError::SessionExists(_))));
}

fn what_changes_in_a_session_and_a_loop_is_written(store: &dyn SessionStore) {
    let mut row = told(store, "s", 1).row(0);
    let mut session = read(store, |read| read.session_by_key(row.session)).unwrap();
    session.title = Some("a title".into());
    session.tick += 4;
    row.status = LoopStatus::Aborted;
    row.ended_at = Some("2026-01-01T00:00:00Z".into());
    let meta = LoopMeta {
        meta: "{}".into(),
        history: Some("[]".into()),
    };
    write(store, |write| {
        write.update_session(&session)?;
        write.update_loop(&row)?;
        write.update_loop_meta(row.key, &meta)
    })
    .unwrap();
    read(store, |read| {
        assert_eq!(read.session_by_key(row.session)?, session);
        assert_eq!(read.loop_by_key(row.key)?, row);
        assert_eq!(read.loop_meta(row.key)?, meta);
        Ok(())
    })
    .unwrap();
}

fn what_an_append_changes_is_written_and_nothing_else(store: &dyn SessionStore) {
    let mut row = told(store, "s", 1).row(0);
    let mut session = read(store, |read| read.session_by_key(row.session)).unwrap();
    for status in [row.status.clone(), LoopStatus::Aborted] {
        row.status = status;
        row.totals.generation += 1;
        row.totals.tokens += 3;
        row.progress.system_tokens += 1;
        row.progress.last_turn_index = Some(-7);
        row.progress.open_calls.insert("a".into(), 0);
        row.progress.chain = [7; 32];
        session.tick += 1;
        session.last_active_at = Some("2027-01-01T00:00:00Z".into());
        session.current_loop = None;
        // What else a row says is not even sent.
        write(store, |write| {
            write.update_totals(&row, &row.progress)?;
            write.touch_session(&(&session).into())
        })
        .unwrap();
        read(store, |read| {
            assert_eq!(read.loop_by_key(row.key)?, row);
            assert_eq!(read.session_by_key(row.session)?, session);
            Ok(())
        })
        .unwrap();
    }
    row.status = LoopStatus::Completed;
    row.totals.next_seq += 1;
    row.ended_at = Some("2027-01-01T00:00:00Z".into());
    write(store, |write| {
        write.end_loop(&row, &row.progress, "2027-01-01T00:00:00Z")
    })
    .unwrap();
    let stored = read(store, |read| read.loop_by_key(row.key)).unwrap();
    assert_eq!(stored, row);
}

fn a_seal_is_never_lifted(store: &dyn SessionStore) {
    let mut row = told(store, "s", 2).row(0);
    row.totals.sealed_seq -= 1;
    is_refused(store, |write| write.update_loop(&row));
    is_refused(store, |write| write.update_totals(&row, &row.progress));
    row.status = LoopStatus::Aborted;
    is_refused(store, |write| write.update_totals(&row, &row.progress));
    is_refused(store, |write| {
        write.end_loop(&row, &row.progress, "2027-01-01T00:00:00Z")
    });
}

fn a_message_is_added_once(store: &dyn SessionStore) {
    let row = told(store, "s", 2).row(0);
    let mut first = None;
    read(store, |read| {
        read.messages(row.key, 0..1, &mut |message| {
            first = Some(message);
            STOP
        })
    })
    .unwrap();
    let mut message = first.unwrap();
    is_refused(store, |write| write.insert_message(row.key, &message, &[]));
    message.body.head = None;
    is_refused(store, |write| write.insert_message(row.key, &message, &[]));
    message.seq = 99;
    write(store, |write| write.insert_message(row.key, &message, &[])).unwrap();
}

fn only_unsealed_messages_are_removed(store: &dyn SessionStore) {
    let mut history = told(store, "s", 2);
    history.start_loop(None, None);
    history.append(1, turn(0));
    history.append(1, vec![user("and", 1), answer("so", &["open"], 1)]);
    let (row, other) = (history.row(1), history.row(0));
    assert_eq!((row.totals.sealed_seq, row.totals.next_seq), (3, 5));
    is_refused(store, |write| write.remove_unsealed(row.key, 2, 0));
    write(store, |write| write.remove_unsealed(row.key, 3, 1)).unwrap();
    read(store, |read| {
        assert_eq!(count(read, row.key, 0..99)?, 3);
        assert!(read.turn(row.key, 1)?.is_none());
        assert_eq!(count(read, other.key, 0..99)?, 6);
        Ok(())
    })
    .unwrap();
}

fn a_turn_is_written_over(store: &dyn SessionStore) {
    let loop_key = told(store, "s", 2).row(0).key;
    let mut row = read(store, |read| read.turn(loop_key, 1)).unwrap().unwrap();
    row.tokens += 5;
    row.answers = vec![CallSite { loop_key, turn: 0 }];
    write(store, |write| write.put_turn(loop_key, &row)).unwrap();
    let stored = read(store, |read| read.turn(loop_key, 1)).unwrap();
    assert_eq!(stored, Some(row));
}

fn a_run_and_a_generation_are_added_once(store: &dyn SessionStore) {
    let row = compacted(store).row(0);
    let mut run = runs(store, row.session).remove(0);
    is_refused(store, |write| write.insert_run(&run));
    run.run_id = "another".into();
    run.tick += 1;
    let key = write(store, |write| write.insert_run(&run)).unwrap();
    run.key = key;
    let mut block = read(store, |read| {
        let row = read.blocks_of_loop(row.key)?.remove(0);
        Ok(NewBlock {
            messages: read.block_messages(row.key)?,
            coverage: read.coverage(row.key)?,
            blobs: Vec::new(),
            row,
        })
    })
    .unwrap();
    block.row.run = key;
    is_refused(store, |write| write.insert_block(&block));
    block.row.generation = 3;
    let key = write(store, |write| write.insert_block(&block)).unwrap();
    write(store, |write| write.close_run(&run, None)).unwrap();
    read(store, |read| {
        let stored = read.blocks_of_loop(row.key)?.remove(2);
        assert_eq!((stored.key, stored.generation), (key, 3));
        assert_eq!(read.block_messages(key)?, block.messages);
        assert_eq!(read.coverage(key)?, block.coverage);
        Ok(())
    })
    .unwrap();
}

fn entry(seq: u32, words: &str) -> IndexEntry {
    IndexEntry {
        seq,
        words: words.into(),
        tools: Vec::new(),
    }
}

fn phrase(words: &str) -> Phrase {
    Phrase {
        words: words.split(' ').map(str::to_owned).collect(),
        is_prefix: false,
    }
}

fn asks(words: &str) -> IndexQuery {
    IndexQuery {
        all: vec![vec![phrase(words)]],
    }
}

/// Returns what is found: loops and sequences in order.
fn finds(
    store: &dyn SessionStore,
    query: &IndexQuery,
    filter: &IndexFilter,
) -> Vec<(LoopKey, u32)> {
    let mut found = Vec::new();
    read(store, |read| {
        read.find(query, filter, u32::MAX, &mut |hit| {
            assert_eq!(read.loop_by_key(hit.loop_key)?.session, hit.session);
            assert!(hit.bytes > 0 && hit.tick > 0);
            found.push((hit.loop_key, hit.seq));
            GO
        })
    })
    .unwrap();
    found.sort();
    found
}

/// Two sessions of a loop with six messages each; the words of their first three are in the index.
fn indexed(store: &dyn SessionStore) -> [LoopRow; 2] {
    let rows = [told(store, "s", 2).row(0), told(store, "t", 2).row(0)];
    write(store, |write| {
        for row in &rows {
            let mut all = [
                entry(0, "one two"),
                entry(1, "two 退 款 two"),
                entry(2, "onest"),
            ];
            all[2].tools = vec!["read file".into(), "x".into()];
            write.index(row.key, 0..3, &all)?;
        }
        Ok(())
    })
    .unwrap();
    rows
}

fn an_index_tells_which_message_a_word_finds(store: &dyn SessionStore) {
    for row in indexed(store) {
        let found_by = |word: &str| -> Vec<u32> {
            let is_found =
                |seq: &u32| read(store, |read| read.is_indexed(row.key, *seq, word)).unwrap();
            (0..7).filter(is_found).collect()
        };
        assert_eq!(found_by("two"), [0, 1]);
        assert_eq!(found_by("退"), [1]);
        assert_eq!(found_by("onest"), [2]);
        // A part of a word, one that no message has, and what is none.
        for word in ["on", "three", "two\" OR \"one", "'"] {
            assert!(found_by(word).is_empty(), "{word}");
        }
    }
    let [row, _] = [told(store, "u", 1).row(0), told(store, "v", 1).row(0)];
    assert!(!read(store, |read| read.is_indexed(row.key, 0, "two")).unwrap());
}

fn some_loops_are_picked_at_random(store: &dyn SessionStore) {
    let pick = |most| read(store, |read| read.sampled_loops(most)).unwrap();
    assert!(pick(3).is_empty());
    let keys = indexed(store).map(|row| row.key);
    for _ in 0..20 {
        let picked = pick(1);
        assert!(picked.len() == 1 && keys.contains(&picked[0]), "{picked:?}");
    }
    assert!(pick(0).is_empty() && pick(9).len() <= 2);
}

fn an_index_takes_in_what_comes_next(store: &dyn SessionStore) {
    let rows = [told(store, "s", 2).row(0), told(store, "t", 1).row(0)];
    let (first, other) = (rows[0].key, rows[1].key);
    let open = || read(store, |read| read.unindexed()).unwrap();
    let seqs = |key| read(store, |read| read.unindexed_seqs(key)).unwrap();
    assert_eq!(open(), [first, other]);
    // Before it was ever filled an index may ask every loop; from here on only what is noted counts.
    write(store, |write| write.clear_index(1)).unwrap();
    assert_eq!(open(), [first, other]);
    assert_eq!(seqs(first), 0..6);
    let backwards = std::ops::Range { start: 3, end: 0 };
    for wrong in [1..2, 0..7, backwards] {
        is_refused(store, |write| write.index(first, wrong.clone(), &[]));
    }
    is_refused(store, |write| write.index(first, 0..1, &[entry(1, "a")]));
    write(store, |write| write.index(first, 0..2, &[entry(1, "a")])).unwrap();
    is_refused(store, |write| write.index(first, 0..2, &[entry(1, "a")]));
    assert_eq!((seqs(first), open()), (2..6, vec![first, other]));
    write(store, |write| write.index(first, 2..6, &[])).unwrap();
    assert_eq!((seqs(first), open()), (6..6, vec![other]));
    let state = read(store, |read| read.index_state()).unwrap();
    assert_eq!((state.indexed, state.total), (6, 9));
    write(store, |write| {
        add(write, first, turn(2));
        Ok(())
    })
    .unwrap();
    assert_eq!((seqs(first), open()), (6..9, vec![first, other]));
}

fn an_index_finds_words_phrases_and_beginnings(store: &dyn SessionStore) {
    let key = indexed(store)[0].key;
    let only = IndexFilter {
        sessions: Some(vec![
            read(store, |read| read.loop_by_key(key)).unwrap().session,
        ]),
        ..IndexFilter::default()
    };
    let seqs = |query: &IndexQuery| -> Vec<u32> {
        let found = finds(store, query, &only);
        found.into_iter().map(|(_, seq)| seq).collect()
    };
    assert_eq!(seqs(&asks("two")), [0, 1]);
    assert_eq!(seqs(&asks("one")), [0]);
    assert_eq!(seqs(&asks("one two")), [0]);
    assert!(seqs(&asks("two one")).is_empty());
    assert_eq!(seqs(&asks("退 款")), [1]);
    assert!(seqs(&asks("款 退")).is_empty());
    let mut query = asks("on");
    assert!(seqs(&query).is_empty());
    query.all[0][0].is_prefix = true;
    assert_eq!(seqs(&query), [0, 2]);
    let mut either = asks("onest");
    either.all[0].push(phrase("退"));
    assert_eq!(seqs(&either), [1, 2]);
    either.all.push(vec![phrase("two")]);
    assert_eq!(seqs(&either), [1]);
    // Nothing of a backend's own language is passed on.
    for words in [
        "one OR two",
        "\"",
        "one\" OR \"two",
        "*",
        "NEAR(one)",
        "tools : x",
        "';--",
    ] {
        assert!(seqs(&asks(words)).is_empty(), "{words}");
    }
    for nothing in [IndexQuery::default(), IndexQuery { all: vec![vec![]] }] {
        let refused = read(store, |read| read.find(&nothing, &only, 1, &mut |_| GO));
        assert!(matches!(refused, Err(StoreError::Invalid(_))));
    }
    let mut newest = Vec::new();
    read(store, |read| {
        read.find(&asks("two"), &only, 1, &mut |hit| {
            newest.push(hit.seq);
            GO
        })
    })
    .unwrap();
    assert_eq!(newest, [1]);
    let holders = |words, most| read(store, |read| read.holders(&phrase(words), most)).unwrap();
    assert_eq!((holders("two", 9), holders("two", 3)), (4, 3));
    assert_eq!((holders("one two", 9), holders("tow", 9)), (2, 0));
    assert_eq!(holders("\"", 9), 0);
    let mut seen = 0;
    read(store, |read| {
        read.find(&asks("two"), &IndexFilter::default(), 9, &mut |_| {
            seen += 1;
            STOP
        })
    })
    .unwrap();
    assert_eq!(seen, 1);
    let handed_on = read(store, |read| {
        read.find(&asks("two"), &only, 9, &mut |_| {
            Err(StoreError::Damaged("own".into()))
        })
    });
    assert!(matches!(handed_on, Err(StoreError::Damaged(own)) if own == "own"));
}

fn an_index_looks_only_at_what_it_is_told_to(store: &dyn SessionStore) {
    let rows = indexed(store);
    let (first, other) = (rows[0].key, rows[1].key);
    let any = IndexFilter::default();
    let two = |filter: IndexFilter| finds(store, &asks("two"), &filter);
    assert_eq!(
        two(any.clone()),
        [(first, 0), (first, 1), (other, 0), (other, 1)]
    );
    let of = |sessions: &[SessionKey]| {
        two(IndexFilter {
            sessions: Some(sessions.to_vec()),
            ..any.clone()
        })
    };
    assert_eq!(of(&[rows[1].session]), [(other, 0), (other, 1)]);
    assert_eq!(of(&[rows[1].session, rows[0].session]).len(), 4);
    assert!(of(&[]).is_empty());
    let role = Some(Role::Assistant);
    assert_eq!(
        two(IndexFilter {
            role,
            ..any.clone()
        }),
        [(first, 1), (other, 1)]
    );
    let mut query = asks("onest");
    query.all[0].push(phrase("one"));
    let tool = |name: &str| {
        let tool = Some(name.to_owned());
        finds(
            store,
            &query,
            &IndexFilter {
                tool,
                ..any.clone()
            },
        )
    };
    assert_eq!(tool("read file"), [(first, 2), (other, 2)]);
    assert_eq!(tool("x"), [(first, 2), (other, 2)]);
    assert_eq!(
        (tool("read"), tool("X"), tool("")),
        (vec![], vec![], vec![])
    );
    // They have the time of their append.
    let between = |since, until| {
        two(IndexFilter {
            since: Some(since),
            until: Some(until),
            ..any.clone()
        })
    };
    let now = loopstore::Time::now().millis().unwrap();
    assert_eq!(between(now - 60_000, now), two(any.clone()));
    assert_eq!(between(0, now - 60_000), []);
    assert_eq!(between(now + 60_000, i64::MAX), []);
}

fn what_leaves_the_index_is_not_found_and_can_come_again(store: &dyn SessionStore) {
    let [row, other] = indexed(store);
    let any = IndexFilter::default();
    write(store, |write| remove_loop(write, row.key, 1)).unwrap();
    // An index may be thrown away whole, but must know what it lacks.
    let rest = [(row.key, 0), (other.key, 0), (other.key, 1)];
    let left = finds(store, &asks("two"), &any);
    assert!(left.iter().all(|place| rest.contains(place)), "{left:?}");
    let seqs = read(store, |read| read.unindexed_seqs(row.key)).unwrap();
    assert!(seqs.start <= 1 && seqs.end == 6, "{seqs:?}");
    write(store, |write| {
        write.index(row.key, seqs.start..2, &[entry(1, "three")])
    })
    .unwrap();
    assert_eq!(finds(store, &asks("three"), &any), [(row.key, 1)]);
    let again = finds(store, &asks("two"), &any);
    assert!(!again.contains(&(row.key, 1)), "{again:?}");
    write(store, |write| remove_session(write, other.session)).unwrap();
    let left = finds(store, &asks("two"), &any);
    assert!(left.iter().all(|(key, _)| *key == row.key), "{left:?}");
    let open = read(store, |read| read.unindexed()).unwrap();
    assert_eq!(open, [row.key, other.key]);
}

fn a_removed_message_leaves_the_index(store: &dyn SessionStore) {
    let history = told(store, "s", 1);
    history.append(0, vec![user("and", 1), answer("so", &["open"], 1)]);
    let key = history.row(0).key;
    let any = IndexFilter::default();
    write(store, |write| {
        write.index(
            key,
            0..5,
            &[entry(2, "old"), entry(3, "old"), entry(4, "old")],
        )
    })
    .unwrap();
    write(store, |write| write.remove_unsealed(key, 3, 1)).unwrap();
    let left = finds(store, &asks("old"), &any);
    assert!(left.is_empty() || left == [(key, 2)], "{left:?}");
    let seqs = read(store, |read| read.unindexed_seqs(key)).unwrap();
    assert!(
        seqs.start == if left.is_empty() { 0 } else { 3 },
        "{seqs:?}"
    );
    assert_eq!(read(store, |read| read.unindexed()).unwrap(), [key]);
}

fn a_cleared_index_is_empty(store: &dyn SessionStore) {
    let [row, other] = indexed(store);
    write(store, |write| write.clear_index(7)).unwrap();
    let state = read(store, |read| read.index_state()).unwrap();
    assert_eq!((state.indexed, state.total), (0, 12));
    assert_eq!(read(store, |read| read.index_version()).unwrap(), Some(7));
    assert_eq!(finds(store, &asks("two"), &IndexFilter::default()), []);
    let open = read(store, |read| read.unindexed()).unwrap();
    assert_eq!(open, [row.key, other.key]);
}

fn lease_of(loop_key: LoopKey, token: i64) -> LeaseRow {
    LeaseRow {
        loop_key,
        owner: "me".into(),
        token,
        ttl: 10,
        renewed_at: 100,
        expires_at: 110,
        released: false,
    }
}

fn a_lease_is_as_it_was_last_written_and_its_token_never_goes_back(store: &dyn SessionStore) {
    let key = told(store, "s", 1).row(0).key;
    let lease = || read(store, |read| read.lease(key)).unwrap();
    assert_eq!(lease(), None);
    write(store, |write| write.put_lease(&lease_of(key, 2))).unwrap();
    let released = LeaseRow {
        released: true,
        owner: "you".into(),
        ..lease_of(key, 2)
    };
    write(store, |write| write.put_lease(&released)).unwrap();
    assert_eq!(lease(), Some(released.clone()));
    write(store, |write| write.put_lease(&lease_of(key, 1))).unwrap_err();
    assert_eq!(lease(), Some(released));
}

fn a_lease_is_taken_once_renewed_and_lost(store: &dyn SessionStore) {
    let key = told(store, "s", 1).row(0).key;
    let take = |owner: &str, now| {
        write(store, |write| lease::acquire(write, key, owner, 10, now)).unwrap()
    };
    let lease::Acquire::Acquired(first) = take("first", 0) else {
        panic!("it is free");
    };
    assert!(matches!(
        take("second", 9),
        lease::Acquire::Held(StoreError::LeaseHeld { .. })
    ));
    write(store, |write| lease::renew(write, &first, 9)).unwrap();
    assert!(matches!(take("second", 18), lease::Acquire::Held(_)));
    let lease::Acquire::Acquired(second) = take("second", 19) else {
        panic!("it has ended");
    };
    assert!(second.token() > first.token());
    for lost in [lease::renew, lease::release] {
        let error = write(store, |write| lost(write, &first, 20)).unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    }
    write(store, |write| lease::release(write, &second, 20)).unwrap();
    let lease::Acquire::Acquired(third) = take("third", 20) else {
        panic!("it was let go");
    };
    assert!(third.token() > second.token());
    write(store, |write| lease::revoke(write, key)).unwrap();
    let error = write(store, |write| lease::renew(write, &third, 21)).unwrap_err();
    assert!(
        matches!(error, StoreError::LeaseLost { to: None, .. }),
        "{error}"
    );
}

fn a_holder_is_gone_only_when_its_guard_is(store: &dyn SessionStore) {
    let key = told(store, "s", 1).row(0).key;
    let take =
        |owner: &str| write(store, |write| lease::acquire(write, key, owner, 10, 0)).unwrap();
    let is_gone = || {
        read(store, |read| {
            let row = read.lease(key)?.unwrap();
            Ok((read.is_holder_gone(&row)?, lease::held(read, key, 9)?))
        })
        .unwrap()
    };
    let lease::Acquire::Acquired(first) = take("first") else {
        panic!("it is free");
    };
    assert_eq!(first.taken_over_from(), None);
    let other = first.clone();
    drop(first);
    assert!(matches!(is_gone(), (false, Some(_))), "a clone is left");
    drop(other);
    // Whether the backend can know or not: a holder that is gone holds nothing.
    let (gone, held) = is_gone();
    assert_eq!(gone, held.is_none());
    match take("second") {
        lease::Acquire::Acquired(second) => {
            assert!(gone);
            assert_eq!(second.taken_over_from(), Some("first"));
        }
        lease::Acquire::Held(_) => assert!(!gone),
    }
}

fn loops_at_work_are_those_that_have_not_ended(store: &dyn SessionStore) {
    let mut one = told(store, "s", 1);
    one.start_loop(Some(0), None);
    let other = told(store, "t", 0);
    let at_work = |session| read(store, |read| read.loops_at_work(session)).unwrap();
    let keys = [one.row(0).key, one.row(1).key, other.row(0).key];
    assert_eq!(at_work(None), keys);
    assert_eq!(at_work(Some(one.row(0).session)), keys[..2]);
    for (at, status) in [(0, LoopStatus::Completed), (1, LoopStatus::Pending)] {
        write(store, |write| append::set_status(write, keys[at], status)).unwrap();
    }
    assert_eq!(at_work(None), keys[1..]);
}

fn loops_with_system_messages_are_found_newest_first(store: &dyn SessionStore) {
    let mut one = told(store, "s", 1);
    let other = told(store, "t", 1);
    (1..5).for_each(|_| one.start_loop(Some(0), Some(0)));
    let prompt = || vec![AgentMessage::extension("system", Json::string("Be brief."))];
    [1, 3, 4]
        .into_iter()
        .for_each(|at| one.append(at, prompt()));
    other.append(0, prompt());
    let keys: Vec<LoopKey> = (0..5).map(|at| one.row(at).key).collect();
    let session = one.row(0).session;
    let found = |until: usize, most| {
        let ask =
            |read: &dyn StoreRead| read.loops_with_system_messages(session, keys[until], most);
        read(store, ask).unwrap()
    };
    assert_eq!(found(4, 9), [keys[4], keys[3], keys[1]]);
    assert_eq!(found(4, 2), [keys[4], keys[3]]);
    assert_eq!(found(3, 9), [keys[3], keys[1]]);
    assert_eq!(found(0, 9), []);
}

fn a_started_call_is_open_until_it_is_finished(store: &dyn SessionStore) {
    let row = told(store, "s", 1).row(0);
    let call = CallRow {
        loop_key: row.key,
        call_id: "c".into(),
        nth: 0,
        tool_name: "pay".into(),
        arguments: Some("{}".into()),
        idempotency_key: "k".into(),
        turn_index: None,
        started_at: "then".into(),
        attempts: 1,
        finished_at: None,
    };
    write(store, |write| write.insert_call(&call)).unwrap();
    write(store, |write| write.insert_call(&call)).unwrap_err();
    let open = |session| read(store, |read| read.open_calls(session)).unwrap();
    assert_eq!(open(None), std::slice::from_ref(&call));
    assert_eq!(open(Some(SessionKey::default())), []);
    let other = CallRow {
        arguments: Some("[]".into()),
        ..call.clone()
    };
    write(store, |write| write.update_call(&other)).unwrap_err();
    let again = CallRow {
        attempts: 2,
        turn_index: Some(7),
        ..call
    };
    write(store, |write| write.update_call(&again)).unwrap();
    assert_eq!(open(Some(row.session)), std::slice::from_ref(&again));
    let done = CallRow {
        arguments: None,
        finished_at: Some("now".into()),
        ..again.clone()
    };
    write(store, |write| write.update_call(&done)).unwrap();
    assert_eq!(open(None), []);
    assert_eq!(
        read(store, |read| read.calls(row.key, "c")).unwrap(),
        [done]
    );
    write(store, |write| write.update_call(&again)).unwrap_err();
}

fn notes_come_in_order_and_go_together(store: &dyn SessionStore) {
    let (one, other) = (
        told(store, "s", 0).row(0).key,
        told(store, "t", 0).row(0).key,
    );
    let notes = [
        Note::Event("1".into()),
        Note::Turn("2".into()),
        Note::Event("3".into()),
    ];
    write(store, |write| {
        write.insert_note(other, &notes[2])?;
        notes
            .iter()
            .try_for_each(|note| write.insert_note(one, note))
    })
    .unwrap();
    assert_eq!(read(store, |read| read.notes(one)).unwrap(), notes);
    write(store, |write| write.remove_notes(one)).unwrap();
    assert_eq!(read(store, |read| read.notes(one)).unwrap(), []);
    assert_eq!(read(store, |read| read.notes(other)).unwrap(), notes[2..]);
}

fn usage_is_summed_by_loop_and_model(store: &dyn SessionStore) {
    let history = told(store, "s", 1);
    let spent = |model: &str, usage: &str| -> AgentMessage {
        let text =
            format!(r#"{{"role":"assistant","content":[],"model":"{model}","usage":{usage}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    history.append(
        0,
        vec![
            spent("m", r#"{"input":1,"output":2,"cost":0.5}"#),
            spent(
                "m",
                r#"{"input":10,"output":20,"total_tokens":40,"cost":{"total":1}}"#,
            ),
            spent("n", r#"{"input":0,"output":1e30,"cost":"free"}"#),
        ],
    );
    let session = history.row(0).session;
    let usage = read(store, |read| read.usage(session)).unwrap();
    let rows: Vec<_> = usage
        .iter()
        .map(|row| (row.model.as_deref(), row.input, row.total))
        .collect();
    assert_eq!(rows[0], (Some("m"), 11, 43));
    assert_eq!(usage[0].cost, 1.5);
    assert_eq!(rows[1], (Some("n"), 0, u64::MAX));
}

fn sessions_are_found_by_the_one_that_started_them(store: &dyn SessionStore) {
    let parent = told(store, "s", 0).row(0).session;
    let key = write(store, |write| {
        let json = r#"{"session_id":"sub","parent_spawn_ref":{"parent_session_id":"s"}}"#;
        let session: Session = serde_json::from_str(json).unwrap();
        session::create_session(write, &session, None, None)
    })
    .unwrap();
    assert_eq!(read(store, |read| read.started_by(parent)).unwrap(), [key]);
    assert_eq!(read(store, |read| read.started_by(key)).unwrap(), []);
}

fn a_hidden_session_takes_the_id_that_its_row_names(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    History::new(store, "other");
    let (session, other) = (
        SessionId::new("s").unwrap(),
        SessionId::new("other").unwrap(),
    );
    let one = read(store, |read| Ok(key(read, "s"))).unwrap();
    assert_eq!(read(store, |read| read.hidden_sessions()).unwrap(), []);
    let row = |hidden: bool, was: &str, id: &str, tick| HideRow {
        hidden,
        was: SessionId::new(was).unwrap(),
        session_id: SessionId::new(id).unwrap(),
        tick,
        at: "2026-01-01T00:00:00Z".into(),
    };
    // Neither an id that is taken nor another one than it has.
    for bad in [row(true, "s", "other", 9), row(true, "x", "y", 9)] {
        assert!(write(store, |write| write.insert_hide(one, &bad)).is_err());
    }
    assert_eq!(read(store, |read| read.hides(one)).unwrap(), []);
    let (hide, unhide) = (row(true, "s", "s~1", 9), row(false, "s~1", "t", 10));
    write(store, |write| write.insert_hide(one, &hide)).unwrap();
    read(store, |read| {
        assert_eq!(read.session(&session)?, None);
        assert_eq!(key(read, "s~1"), one);
        assert_eq!(read.hidden_sessions()?, [one]);
        assert_eq!(read.renamed_from(&session)?, [one]);
        assert_eq!(read.renamed_from(&other)?, []);
        Ok(())
    })
    .unwrap();
    // The id is free.
    History::new(store, "s");
    write(store, |write| write.insert_hide(one, &unhide)).unwrap();
    read(store, |read| {
        assert_eq!(key(read, "t"), one);
        assert_ne!(key(read, "s"), one);
        assert_eq!(read.hidden_sessions()?, []);
        assert_eq!(read.hides(one)?, [hide, unhide]);
        Ok(())
    })
    .unwrap();
    drop(history);
}

fn named_appends_come_in_the_order_of_their_bytes(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    let (session, loop_key) = (history.row(0).session, history.row(0).key);
    let names = ["a", "B", "cp/1", "cp/10", "cp/2", "cp0", "\u{e4}"];
    write(store, |write| {
        for name in names.iter().rev() {
            let row = AppendKey {
                name: (*name).into(),
                loop_key,
                seqs: 0..1,
                turns: 0..1,
                tokens: 1,
            };
            write.insert_append_key(session, &row)?;
        }
        Ok(())
    })
    .unwrap();
    let listed = |range: AppendKeyRange| -> Vec<String> {
        let rows = read(store, |read| read.append_keys_within(session, &range)).unwrap();
        rows.into_iter().map(|row| row.name).collect()
    };
    let all = AppendKeyRange::default;
    assert_eq!(
        listed(all()),
        ["B", "a", "cp/1", "cp/10", "cp/2", "cp0", "\u{e4}"]
    );
    let prefix = || AppendKeyRange {
        prefix: "cp/".into(),
        ..all()
    };
    assert_eq!(listed(prefix()), ["cp/1", "cp/10", "cp/2"]);
    let last = AppendKeyRange {
        descending: true,
        limit: Some(2),
        ..prefix()
    };
    assert_eq!(listed(last), ["cp/2", "cp/10"]);
    let between = AppendKeyRange {
        after: Some("cp/1".into()),
        before: Some("cp/2".into()),
        ..all()
    };
    assert_eq!(listed(between), ["cp/10"]);
    let none = AppendKeyRange {
        limit: Some(0),
        ..all()
    };
    assert_eq!(listed(none), [""; 0]);
    let other = History::new(store, "t");
    let other = (other.row(0).session, other.row(0).key);
    write(store, |write| {
        let row = AppendKey {
            name: "cp/3".into(),
            loop_key: other.1,
            seqs: 0..1,
            turns: 0..1,
            tokens: 1,
        };
        write.insert_append_key(other.0, &row)
    })
    .unwrap();
    let everywhere = |prefix: &str| -> Vec<(SessionKey, String)> {
        let rows = read(store, |read| read.append_keys_of_all(prefix)).unwrap();
        let named = rows.into_iter().map(|(session, row)| (session, row.name));
        named.collect()
    };
    let mine = ["cp/1", "cp/10", "cp/2"].map(|name| (session, name.to_owned()));
    let all: Vec<_> = mine
        .iter()
        .cloned()
        .chain([(other.0, "cp/3".into())])
        .collect();
    assert_eq!(everywhere("cp/"), all);
    assert_eq!(everywhere("").len(), names.len() + 1);
    assert_eq!(everywhere("no"), []);
    // What is hidden is not found.
    write(store, |write| session::hide(write, other.0)).unwrap();
    assert_eq!(everywhere("cp/"), mine);
}

fn what_was_decided_about_a_session_is_kept(store: &dyn SessionStore) {
    let (one, other) = (
        told(store, "s", 0).row(0).session,
        told(store, "t", 0).row(0).session,
    );
    let flags = |key| read(store, |read| read.flags(key)).unwrap();
    assert_eq!(flags(one), SessionFlags::default());
    let pinned = SessionFlags {
        protected_at: Some("then".into()),
        redacts: true,
    };
    write(store, |write| write.put_flags(one, &pinned)).unwrap();
    assert_eq!(flags(one), pinned);
    assert_eq!(flags(other), SessionFlags::default());
    // It may be released; that it redacts never ends, and neither changes but so.
    let released = SessionFlags {
        protected_at: None,
        ..pinned
    };
    write(store, |write| write.put_flags(one, &released)).unwrap();
    assert_eq!(flags(one), released);
    let refused = write(store, |write| {
        write.put_flags(one, &SessionFlags::default())
    });
    assert!(refused.is_err_and(|error| error.to_string().contains("never")));
    write(store, |write| write.put_flags(one, &pinned)).unwrap();
    let moved = SessionFlags {
        protected_at: Some("later".into()),
        ..pinned
    };
    assert!(write(store, |write| write.put_flags(one, &moved)).is_err());
    assert_eq!(flags(one), pinned);
}

/// What the messages of a loop are, read in both ways.
fn whole(read: &dyn StoreRead, loop_key: LoopKey) -> Vec<String> {
    let mut seen = Vec::new();
    read.messages(loop_key, 0..u32::MAX, &mut |row| {
        seen.push(format!("{row:?}"));
        GO
    })
    .unwrap();
    read.message_refs(loop_key, 1..4, true, &mut |row| {
        seen.push(format!("{row:?}"));
        GO
    })
    .unwrap();
    seen
}

fn an_archived_message_reads_as_before_until_its_pack_is_taken_apart(store: &dyn Database) {
    let history = told(store, "s", 3);
    history.append(0, vec![user(&"\0 and \u{1} ".repeat(20), 3)]);
    history.end_loop(0);
    let key = history.row(0).key;
    let before = read(store, |read| Ok(whole(read, key))).unwrap();
    let request = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    let report = archive(store, &request).unwrap();
    assert_eq!((report.messages, report.receipts.len()), (10, 1));
    assert_eq!(read(store, |read| Ok(whole(read, key))).unwrap(), before);
    let mut packs = Vec::new();
    store
        .scan(Box::new(|scan| {
            assert_eq!(whole(scan, key), before);
            packs.extend([scan.pack_at(key, 0)?, scan.pack_at(key, 9)?]);
            assert_eq!(scan.next_pack(key, 0)?, packs[0]);
            assert_eq!(
                (scan.next_pack(key, 1)?, scan.pack_at(key, 10)?),
                (None, None)
            );
            assert_eq!(scan.unpacked(key, 0)?, None);
            // Four prompts, and three answers with a call and its result.
            assert_eq!(scan.packed_heads(key, 0..u32::MAX)?.len(), 10);
            Ok(())
        }))
        .unwrap();
    assert_eq!(packs[0], packs[1]);
    // Nothing is packed or taken apart without a receipt.
    let refused = store.removing(Box::new(|write| write.take_pack(key, 0)));
    assert!(
        matches!(refused, Err(StoreError::Invalid(_))),
        "{refused:?}"
    );
    assert_eq!(read(store, |read| Ok(whole(read, key))).unwrap(), before);
    let back = unarchive(store, &UnarchiveRequest::default()).unwrap();
    assert_eq!(back.messages, 10);
    assert_eq!(read(store, |read| Ok(whole(read, key))).unwrap(), before);
    let left = |scan: &dyn scan::StoreScan| {
        assert_eq!(scan.unpacked(key, 2)?, Some(2..10));
        assert_eq!(
            (scan.pack_at(key, 0)?, scan.packed_heads(key, 0..9)?),
            (None, Vec::new())
        );
        Ok(())
    };
    store.scan(Box::new(left)).unwrap();
    assert!(loopstore_verify::verify(store).unwrap().ok);
}

/// A store whose first write comes after the compaction was cancelled.
struct Cancels<'a> {
    store: &'a dyn SessionStore,
    flag: CancelFlag,
}

impl SessionStore for Cancels<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.store.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        self.flag.cancel();
        self.store.write(work)
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.store.counter()
    }
}

fn a_compaction_cancelled_before_its_commit_leaves_no_block(store: &dyn Database) {
    let history = told(store, "s", 30);
    let runs = || store.run_rows(Some(&history.session)).unwrap();
    let mut request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    request.config.keep_recent = KeepRecent::Turns(2);
    let cancels = Cancels {
        store,
        flag: request.cancel.clone(),
    };
    let report = compact_session_loops(&cancels, &history.session, &request).unwrap();
    assert_eq!(report.error.as_deref(), Some("cancelled"));
    assert!(report.blocks.is_empty() && report.after == report.before);
    assert_eq!(runs().len(), 1);
    let key = history.row(0).key;
    let blocks = read(store, |read| read.blocks_of_loop(key)).unwrap();
    assert!(blocks.is_empty());
    // The same plan may be tried again.
    request.cancel = CancelFlag::new();
    let report = compact_session_loops(store, &history.session, &request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
}

fn what_a_provider_counted_stands_with_the_loop_until_a_compaction_or_an_undo(
    store: &dyn SessionStore,
) {
    let mut history = History::new(store, "s");
    let counted = |turn, input: u64| {
        let mut message = answer("so be it", &["c"], turn);
        let Some(Message::Assistant(inner)) = message.message_mut() else {
            unreachable!("an answer");
        };
        let usage = format!(r#"{{"input":{input},"output":20,"cache_read":3}}"#);
        inner.usage = Some(serde_json::from_str(&usage).unwrap());
        message
    };
    let reported = || history.row(0).totals.reported;
    assert_eq!(reported(), None);
    history.append(0, vec![user("go", 0), counted(0, 100)]);
    let first = ReportedTokens {
        seq: 1,
        tokens: 123,
    };
    assert_eq!(reported(), Some(first));
    history.append(0, vec![user("on", 1), answer("no report", &[], 1)]);
    assert_eq!(reported(), Some(first));
    history.append(0, vec![user("and on", 2), counted(2, 200)]);
    assert_eq!(
        reported(),
        Some(ReportedTokens {
            seq: 5,
            tokens: 223
        })
    );
    let key = history.row(0).key;
    write(store, |write| {
        let new = vec![user("instead", 2).into()];
        append::replace_last_turn(write, key, new, &HeuristicTokenCounter)
    })
    .unwrap();
    assert_eq!(
        reported(),
        None,
        "the answer is gone, and the one before it is not looked for"
    );
    history.append(0, vec![counted(2, 300)]);
    let is_overlaid = |history: &History<'_>, seq| {
        let row = history.row(0);
        let asked = |read: &dyn StoreRead| read.is_overlaid_since(row.session, row.key, seq);
        read(store, asked).unwrap()
    };
    history.append(0, vec![user("more", 3)]);
    assert_eq!(is_overlaid(&history, 5), Some(false));
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    assert_eq!(is_overlaid(&history, 5), Some(true));
    history.append(0, vec![counted(3, 100)]);
    assert_eq!(is_overlaid(&history, 7), Some(false));
    assert!(history.flip(0, false));
    assert_eq!(is_overlaid(&history, 7), Some(true));
    assert_eq!(is_overlaid(&history, 99), None);
}
