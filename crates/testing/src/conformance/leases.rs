//! Leases, their holders, and the running loops.

use super::*;

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

pub fn a_lease_is_as_it_was_last_written_and_its_token_never_goes_back(store: &dyn SessionStore) {
    let key = session_of_turns(store, "s", 1).row(0).key;
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

pub fn a_lease_is_taken_once_renewed_and_lost(store: &dyn SessionStore) {
    let key = session_of_turns(store, "s", 1).row(0).key;
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

pub fn a_holder_is_gone_only_when_its_guard_is(store: &dyn SessionStore) {
    let key = session_of_turns(store, "s", 1).row(0).key;
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
    // Whether or not the backend can detect it: a dead holder holds nothing.
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

pub fn loops_at_work_are_those_that_have_not_ended(store: &dyn SessionStore) {
    let mut one = session_of_turns(store, "s", 1);
    one.start_loop(Some(0), None);
    let other = session_of_turns(store, "t", 0);
    let at_work = |session| read(store, |read| read.loops_at_work(session)).unwrap();
    let keys = [one.row(0).key, one.row(1).key, other.row(0).key];
    assert_eq!(at_work(None), keys);
    assert_eq!(at_work(Some(one.row(0).session)), keys[..2]);
    for (at, status) in [(0, LoopStatus::Completed), (1, LoopStatus::Pending)] {
        write(store, |write| append::set_status(write, keys[at], status)).unwrap();
    }
    assert_eq!(at_work(None), keys[1..]);
}
