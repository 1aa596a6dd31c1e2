//! Archived messages.

use super::*;

/// Returns the messages of a loop, read in two ways.
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

pub fn an_archived_message_reads_as_before_until_its_pack_is_taken_apart(store: &dyn Database) {
    let history = session_of_turns(store, "s", 3);
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
    // Nothing is packed or unpacked without a receipt.
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
