//! Calls, notes, usage, decisions, and the names of sessions and appends.

use super::*;
use crate::refusals::is_of_a_trigger;

pub fn loops_with_system_messages_are_found_newest_first(store: &dyn SessionStore) {
    let mut one = session_of_turns(store, "s", 1);
    let other = session_of_turns(store, "t", 1);
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

pub fn a_started_call_is_open_until_it_is_finished(store: &dyn SessionStore) {
    let row = session_of_turns(store, "s", 1).row(0);
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

pub fn notes_come_in_order_and_go_together(store: &dyn SessionStore) {
    let (one, other) = (
        session_of_turns(store, "s", 0).row(0).key,
        session_of_turns(store, "t", 0).row(0).key,
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

pub fn usage_is_summed_by_loop_and_model(store: &dyn SessionStore) {
    let history = session_of_turns(store, "s", 1);
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
        .map(|row| (row.model.as_deref(), row.spent.input, row.spent.total))
        .collect();
    assert_eq!(rows[0], (Some("m"), 11, 43));
    assert_eq!(usage[0].spent.cost, 1.5);
    assert_eq!(rows[1], (Some("n"), 0, u64::MAX));
}

pub fn sessions_are_found_by_the_one_that_started_them(store: &dyn SessionStore) {
    let parent = session_of_turns(store, "s", 0).row(0).session;
    let key = write(store, |write| {
        let json = r#"{"session_id":"sub","parent_spawn_ref":{"parent_session_id":"s"}}"#;
        let session: Session = serde_json::from_str(json).unwrap();
        session::create_session(write, &session, None, None)
    })
    .unwrap();
    assert_eq!(read(store, |read| read.started_by(parent)).unwrap(), [key]);
    assert_eq!(read(store, |read| read.started_by(key)).unwrap(), []);
}

pub fn a_hidden_session_takes_the_id_that_its_row_names(store: &dyn SessionStore) {
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
    // An id that is taken is rejected, and so is an id that the session does not have.
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

pub fn named_appends_come_in_the_order_of_their_bytes(store: &dyn SessionStore) {
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
    // A hidden session is not found.
    write(store, |write| session::hide(write, other.0)).unwrap();
    assert_eq!(everywhere("cp/"), mine);
}

pub fn what_was_decided_about_a_session_is_kept(store: &dyn SessionStore) {
    let (one, other) = (
        session_of_turns(store, "s", 0).row(0).session,
        session_of_turns(store, "t", 0).row(0).session,
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
    // The protection may be released; the redaction flag never is.
    let released = SessionFlags {
        protected_at: None,
        ..pinned
    };
    write(store, |write| write.put_flags(one, &released)).unwrap();
    assert_eq!(flags(one), released);
    let refused = write(store, |write| {
        write.put_flags(one, &SessionFlags::default())
    });
    assert!(refused.is_err_and(|error| is_of_a_trigger(&error.to_string())));
    write(store, |write| write.put_flags(one, &pinned)).unwrap();
    let moved = SessionFlags {
        protected_at: Some("later".into()),
        ..pinned
    };
    assert!(write(store, |write| write.put_flags(one, &moved)).is_err());
    assert_eq!(flags(one), pinned);
}
