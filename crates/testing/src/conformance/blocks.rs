//! Runs, blocks, pins and quotes.

use super::*;

pub fn generations_come_newest_first(store: &dyn SessionStore) {
    let loop_key = compacted(store).row(0).key;
    read(store, |read| {
        let mut visited = Vec::new();
        read.generations(loop_key, &mut |found| {
            assert_eq!(found.point.loop_key, loop_key);
            visited.push(found.block.generation);
            GO
        })?;
        assert_eq!(visited, [2, 1]);
        visited.clear();
        read.generations(loop_key, &mut |found| {
            visited.push(found.block.generation);
            STOP
        })?;
        assert_eq!(visited, [2]);
        Ok(())
    })
    .unwrap();
}

/// Returns for each loop from the leaf on its newest block if the block is settled, and true if it is not.
fn walked_blocks(store: &dyn SessionStore, leaf: LoopKey) -> Vec<(LoopKey, Option<u32>, bool)> {
    read(store, |read| {
        let mut visited = Vec::new();
        read.loops_with_blocks(leaf, &mut |standing| {
            // The columns that a chain needs are read separately, and must equal those of the whole rows.
            assert_eq!(standing.row, read.loop_by_key(standing.row.key)?.core);
            if let Some(newest) = &standing.newest {
                assert_eq!(newest.block, read.block_by_key(newest.block.key)?.core);
            }
            let newest = standing.newest.map(|newest| newest.block.generation);
            visited.push((standing.row.key, newest, standing.is_disputed));
            GO
        })?;
        let mut rows = visited.iter();
        read.chain(leaf, &mut |row| {
            assert_eq!(Some(&row.key), rows.next().map(|(key, ..)| key));
            assert_eq!(row, read.loop_by_key(row.key)?.core);
            GO
        })?;
        assert!(rows.next().is_none());
        Ok(visited)
    })
    .unwrap()
}

pub fn a_walk_meets_the_newest_block_of_each_loop(store: &dyn SessionStore) {
    let mut history = compacted(store);
    let first = history.row(0).key;
    history.start_loop(Some(0), None);
    let leaf = history.row(1).key;
    assert_eq!(
        walked_blocks(store, leaf),
        [(leaf, None, false), (first, Some(2), false)]
    );
    assert!(history.flip(0, false));
    assert_eq!(
        walked_blocks(store, leaf),
        [(leaf, None, false), (first, None, true)]
    );
    assert!(history.flip(0, true));
    assert_eq!(walked_blocks(store, first), [(first, None, true)]);
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

pub fn marks_are_those_of_the_runs(store: &dyn SessionStore) {
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
        let mut visited = 0;
        read.run_summaries(session, &mut |_| {
            visited += 1;
            STOP
        })?;
        assert_eq!(visited, 1);
        Ok(())
    })
    .unwrap();
}

pub fn the_current_loop_is_found_by_the_id_of_its_session(store: &dyn SessionStore) {
    let row = session_of_turns(store, "s", 1).row(0);
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

pub fn runs_come_newest_first_and_flips_in_order(store: &dyn SessionStore) {
    let session = compacted(store).row(0).session;
    let found = runs(store, session);
    assert_eq!(found.len(), 2);
    assert!(found[0].tick > found[1].tick);
    read(store, |read| {
        let mut visited = 0;
        read.runs(session, &mut |_| {
            visited += 1;
            STOP
        })?;
        assert_eq!(visited, 1);
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

pub fn pins_come_in_order_and_each_is_audited(store: &dyn SessionStore) {
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
    let expected = |pinned| made.iter().map(move |message| (message.seq, pinned));
    let all: Vec<(u32, bool)> = expected(true)
        .chain(expected(false))
        .chain(expected(true))
        .collect();
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

pub fn a_quote_is_stored_with_its_place_and_its_size(store: &dyn SessionStore) {
    let history = compacted(store);
    let (row, session) = (history.row(0), &history.session);
    let of = PinRef::turn(row.loop_id.as_str(), 1);
    pin(store, session, &PinRequest { of, leaf: None }).unwrap();
    let seq = read(store, |read| Ok(read.pins(row.session)?[0].seq)).unwrap();
    let request = CompactRequest {
        policy: loopstore::Policy::of(
            loopstore::ContextConfig::default(),
            loopstore::CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(1),
                ..loopstore::CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
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
        let derived = quote_body(
            read,
            &HeuristicTokenCounter,
            block.quoting(),
            (row.key, seq),
        )?;
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

pub fn blocks_come_by_run_and_by_loop(store: &dyn SessionStore) {
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

pub fn coverage_and_messages_of_a_block_come_in_order(store: &dyn SessionStore) {
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
