//! The index of a search.

use super::*;

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

/// Returns the messages found: loops and sequences in order.
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

/// Returns two sessions of a loop with six messages each; the words of their first three are in the index.
fn indexed(store: &dyn SessionStore) -> [LoopRow; 2] {
    let rows = [
        session_of_turns(store, "s", 2).row(0),
        session_of_turns(store, "t", 2).row(0),
    ];
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

pub fn an_index_tells_which_message_a_word_finds(store: &dyn SessionStore) {
    for row in indexed(store) {
        let found_by = |word: &str| -> Vec<u32> {
            let is_found =
                |seq: &u32| read(store, |read| read.is_indexed(row.key, *seq, word)).unwrap();
            (0..7).filter(is_found).collect()
        };
        assert_eq!(found_by("two"), [0, 1]);
        assert_eq!(found_by("退"), [1]);
        assert_eq!(found_by("onest"), [2]);
        // A part of a word, a word of no message, and a text that is no word.
        for word in ["on", "three", "two\" OR \"one", "'"] {
            assert!(found_by(word).is_empty(), "{word}");
        }
    }
    let [row, _] = [
        session_of_turns(store, "u", 1).row(0),
        session_of_turns(store, "v", 1).row(0),
    ];
    assert!(!read(store, |read| read.is_indexed(row.key, 0, "two")).unwrap());
}

pub fn some_loops_are_picked_at_random(store: &dyn SessionStore) {
    let pick = |most| read(store, |read| read.sampled_loops(most)).unwrap();
    assert!(pick(3).is_empty());
    let keys = indexed(store).map(|row| row.key);
    for _ in 0..20 {
        let picked = pick(1);
        assert!(picked.len() == 1 && keys.contains(&picked[0]), "{picked:?}");
    }
    assert!(pick(0).is_empty() && pick(9).len() <= 2);
}

pub fn an_index_takes_in_what_comes_next(store: &dyn SessionStore) {
    let rows = [
        session_of_turns(store, "s", 2).row(0),
        session_of_turns(store, "t", 1).row(0),
    ];
    let (first, other) = (rows[0].key, rows[1].key);
    let open = || read(store, |read| read.unindexed()).unwrap();
    let seqs = |key| read(store, |read| read.unindexed_seqs(key)).unwrap();
    assert_eq!(open(), [first, other]);
    // Before the index was first filled, every loop is searched; from here on only recorded loops are.
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

pub fn an_index_finds_words_phrases_and_beginnings(store: &dyn SessionStore) {
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
    // Nothing is interpreted in the backend's own query language.
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

pub fn an_index_looks_only_at_what_it_is_told_to(store: &dyn SessionStore) {
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
    // These messages have the time of their append.
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

pub fn what_leaves_the_index_is_not_found_and_can_come_again(store: &dyn SessionStore) {
    let [row, other] = indexed(store);
    let any = IndexFilter::default();
    write(store, |write| remove_loop(write, row.key, 1)).unwrap();
    // The whole index may be dropped, but the store must know what is missing.
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

pub fn a_removed_message_leaves_the_index(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 1);
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

pub fn a_cleared_index_is_empty(store: &dyn SessionStore) {
    let [row, other] = indexed(store);
    write(store, |write| write.clear_index(7)).unwrap();
    let state = read(store, |read| read.index_state()).unwrap();
    assert_eq!((state.indexed, state.total), (0, 12));
    assert_eq!(read(store, |read| read.index_version()).unwrap(), Some(7));
    assert_eq!(finds(store, &asks("two"), &IndexFilter::default()), []);
    let open = read(store, |read| read.unindexed()).unwrap();
    assert_eq!(open, [row.key, other.key]);
}
