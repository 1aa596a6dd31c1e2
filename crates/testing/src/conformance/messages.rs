//! Turns and messages: their order, their texts, and rejected input.

use super::*;

pub fn turns_come_in_order(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 5).row(0).key;
    session_of_turns(store, "t", 5);
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

pub fn answers_name_the_turns_of_the_calls(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 0);
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

pub fn messages_come_in_order_and_stop_when_told(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 4).row(0).key;
    session_of_turns(store, "t", 4);
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

pub fn what_messages_say_is_what_is_stored(store: &dyn SessionStore) {
    let long = "line\n".repeat(3_000);
    let history = session_of_turns(store, "s", 3);
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
        read.message_refs(loop_key, 1..99, true, &mut |found| {
            let row = left.next().unwrap();
            assert_eq!((found.seq, found.turn), (row.seq, row.turn));
            assert_eq!(found.message, row.body.as_stored_ref());
            GO
        })?;
        assert_eq!(left.len(), 0);
        assert!(rows.iter().any(|row| row.body.text.as_ref() == Some(&long)));
        read.message_refs(loop_key, 1..99, false, &mut |found| {
            assert_eq!(found.message.proof, None);
            GO
        })?;
        let mut visited = 0;
        read.message_refs(loop_key, 1..99, true, &mut |_| {
            visited += 1;
            STOP
        })?;
        assert_eq!(visited, 1);
        read.message_refs(loop_key, 3..3, true, &mut |_| Err(StoreError::Conflict))?;
        let failed = read.message_refs(loop_key, 0..9, true, &mut |_| Err(StoreError::Conflict));
        assert!(matches!(failed, Err(StoreError::Conflict)));
        Ok(())
    })
    .unwrap();
}

pub fn whose_words_a_message_is_is_stored_beside_it(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    let prompt_by = |author| AgentMessage::from(Message::user("now").with_author(author));
    let mut messages: Vec<AgentMessage> = Author::ALL.map(prompt_by).into();
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
    // One of a person, one of a parent agent, and one of an unknown author.
    assert_eq!(prompts, 3);
}

pub fn a_session_or_loop_with_content_is_refused(store: &dyn SessionStore) {
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
    let error = of(&|record| record.messages = vec![message.clone()]);
    assert!(error.contains("`full` comes with 1 messages"), "{error}");
    let error = of(&|record| record.events = vec![Json::null(), Json::null()]);
    assert!(error.contains("comes with 2 events"), "{error}");
    let error = of(&|record| {
        record.compaction_block = Some(CompactionBlock {
            keep_first: None,
            keep_compacted: None,
            keep_recent: None,
            created_at: None,
            extra: Extra::default(),
        });
    });
    assert!(error.contains("comes with 1 block"), "{error}");
    let mut session = Session::new(SessionId::new("full").unwrap(), "agent");
    session.loops = vec![LoopRecord::new(LoopId::new("l").unwrap(), None)];
    let created = write(store, |write| {
        session::create_session(write, &session, None, None)
    });
    let error = created.unwrap_err().to_string();
    assert!(
        error.contains("session `full` comes with 1 loops"),
        "{error}"
    );
    let id = SessionId::new("full").unwrap();
    assert!(read(store, |read| read.session(&id)).unwrap().is_none());
}

pub fn length_at_counts_what_had_come(store: &dyn SessionStore) {
    let loop_key = session_of_turns(store, "s", 3).row(0).key;
    read(store, |read| {
        // The loop began at tick 1; each append has the next tick.
        let lengths: Vec<u32> = (0..7)
            .map(|tick| read.length_at(loop_key, tick).unwrap())
            .collect();
        assert_eq!(lengths, [0, 0, 3, 6, 9, 9, 9]);
        Ok(())
    })
    .unwrap();
}

pub fn blobs_are_stored_once_and_found_by_name(store: &dyn SessionStore) {
    use sha2::{Digest, Sha256};
    let loop_key = session_of_turns(store, "s", 3).row(0).key;
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
