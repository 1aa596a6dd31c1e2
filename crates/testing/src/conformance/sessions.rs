//! Sessions and loops: found by id and by key, in order, and visited from leaf to root.

use super::*;

pub fn sessions_are_found_by_id_and_last_active_first(store: &dyn SessionStore) {
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

pub fn ids_of_sessions_come_in_the_order_of_their_bytes(store: &dyn SessionStore) {
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

pub fn keys_without_a_row_are_damage(store: &dyn SessionStore) {
    // The keys of another store, which has more rows.
    let other = SqliteStore::in_memory().unwrap();
    session_of_turns(&other, "x", 1);
    let mut history = session_of_turns(&other, "s", 6);
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

pub fn loops_are_found_by_id_and_in_order_of_creation(store: &dyn SessionStore) {
    let mut history = session_of_turns(store, "s", 3);
    session_of_turns(store, "t", 1);
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

pub fn lengths_of_loops_are_told_without_the_loops(store: &dyn SessionStore) {
    let mut history = session_of_turns(store, "s", 2);
    history.start_loop(None, None);
    let rows = [history.row(0), history.row(1)];
    let lengths = read(store, |read| read.loop_lengths(rows[0].session)).unwrap();
    assert_eq!(lengths, [(rows[0].key, 6), (rows[1].key, 0)]);
}

pub fn a_walk_goes_from_the_leaf_to_the_root_and_stops_when_told(store: &dyn SessionStore) {
    let mut history = session_of_turns(store, "s", 1);
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

pub fn a_parent_in_another_session_ends_the_walk(store: &dyn SessionStore) {
    let parent = session_of_turns(store, "s", 2).row(0);
    let history = session_of_turns(store, "t", 1);
    let mut row = history.row(0);
    row.loop_id = loop_id(7);
    row.parent = Some(parent.key);
    let leaf = write(store, |write| write.insert_loop(&row, &LoopMeta::default())).unwrap();
    read(store, |read| {
        let mut visited = 0;
        read.walk(leaf, &mut |row| {
            visited += 1;
            assert_eq!(row.key, leaf);
            GO
        })?;
        assert_eq!(visited, 1);
        Ok(())
    })
    .unwrap();
}
