//! Rows that are written once, and rows that change.

use super::*;

pub fn manifests_come_newest_first_and_are_added_once(store: &dyn SessionStore) {
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
        assert_eq!(read.manifest(row.session, "one")?, Some(manifest.clone()));
        assert_eq!(read.manifest(row.session, "on")?, None);
        assert_eq!(read.manifest(SessionKey(row.session.0 + 1), "one")?, None);
        Ok(())
    })
    .unwrap();
}

pub fn the_import_key_stays(store: &dyn SessionStore) {
    let first = read(store, |read| read.import_key()).unwrap();
    session_of_turns(store, "s", 1);
    assert_eq!(first.len(), 32);
    assert_eq!(read(store, |read| read.import_key()).unwrap(), first);
}

pub fn imports_are_found_by_what_they_were_imported_from(store: &dyn SessionStore) {
    let sessions = ["a", "b", "c"].map(|id| session_of_turns(store, id, 0).row(0).session);
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

pub fn a_session_or_loop_is_added_once(store: &dyn SessionStore) {
    let row = session_of_turns(store, "s", 1).row(0);
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

pub fn what_changes_in_a_session_and_a_loop_is_written(store: &dyn SessionStore) {
    let mut row = session_of_turns(store, "s", 1).row(0);
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

pub fn what_an_append_changes_is_written_and_nothing_else(store: &dyn SessionStore) {
    let mut row = session_of_turns(store, "s", 1).row(0);
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
        // The other columns of a row are not sent at all.
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

pub fn a_seal_is_never_lifted(store: &dyn SessionStore) {
    let mut row = session_of_turns(store, "s", 2).row(0);
    row.totals.sealed_seq -= 1;
    is_refused(store, |write| write.update_loop(&row));
    is_refused(store, |write| write.update_totals(&row, &row.progress));
    row.status = LoopStatus::Aborted;
    is_refused(store, |write| write.update_totals(&row, &row.progress));
    is_refused(store, |write| {
        write.end_loop(&row, &row.progress, "2027-01-01T00:00:00Z")
    });
}

pub fn a_message_is_added_once(store: &dyn SessionStore) {
    let row = session_of_turns(store, "s", 2).row(0);
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

pub fn only_unsealed_messages_are_removed(store: &dyn SessionStore) {
    let mut history = session_of_turns(store, "s", 2);
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

pub fn a_turn_is_written_over(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 2).row(0).key;
    let mut row = read(store, |read| read.turn(loop_key, 1)).unwrap().unwrap();
    row.tokens += 5;
    row.answers = vec![CallSite { loop_key, turn: 0 }];
    write(store, |write| write.put_turn(loop_key, &row)).unwrap();
    let stored = read(store, |read| read.turn(loop_key, 1)).unwrap();
    assert_eq!(stored, Some(row));
}

pub fn a_run_and_a_generation_are_added_once(store: &dyn SessionStore) {
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
