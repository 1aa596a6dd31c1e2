//! Transactions: isolation of reads, atomicity of writes, and their order.

use super::*;

pub fn a_read_shows_one_moment(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 1);
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
                // The receiver may have been dropped.
                let _ = done.send(());
            });
            // A backend may make the writer wait for the reader.
            let _ = wait.recv_timeout(Duration::from_millis(200));
            assert_eq!(length(snapshot, loop_key), 3);
            Ok(())
        })
        .unwrap();
    });
    assert_eq!(history.row(0).totals.next_seq, 6);
}

pub fn a_write_is_all_or_nothing(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 1);
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

pub fn a_panic_leaves_no_trace_and_a_store_that_works(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 1);
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

pub fn a_write_reads_what_it_wrote(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 1).row(0).key;
    write(store, |write| {
        add(write, loop_key, turn(1));
        assert_eq!(length(write, loop_key), 6);
        assert_eq!(count(write, loop_key, 0..100)?, 6);
        Ok(())
    })
    .unwrap();
}

pub fn writes_come_one_after_another(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 0).row(0).key;
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
        // One tick for the start of the loop and one for each append.
        assert_eq!(read.session_by_key(row.session)?.tick, 21);
        Ok(())
    })
    .unwrap();
}

pub fn a_count_that_no_row_holds_is_refused(store: &dyn SessionStore) {
    /// A counter that returns the same number for each message.
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

    let history = session_of_turns(store, "s", 1);
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
    // Each number fits, the sum does not.
    assert!(append(1 << 48).is_err());
    assert_eq!(history.row(0), before);
    append(1 << 40).unwrap();
    assert_eq!(
        history.row(0).totals.tokens,
        before.totals.tokens + 3 * (1 << 40)
    );
}

pub fn the_counter_is_that_of_the_database(store: &dyn SessionStore) {
    assert_eq!(store.counter().name(), "heuristic");
}
