//! Errors and panics are returned to the caller, and leave the store usable.

use loopstore::extend as store;
use loopstore::*;

use crate::support::asynchronous::*;

#[test]
fn an_error_of_the_store_is_returned() {
    let store = store_with(&["l"]);
    let undone = runtime().block_on(store.session("nobody").unwrap().undo());
    let error = undone.unwrap_err();
    assert!(
        matches!(&error, Error::NotFound { what: "session", id } if id == "nobody"),
        "{error:?}"
    );
}

#[test]
fn an_error_of_the_callers_own_is_returned() {
    let store = store_with(&["l"]);
    let failed = runtime().block_on(store.call(|_| Err::<(), _>("no thanks")));
    assert!(matches!(failed, Ok(Err("no thanks"))));
}

#[test]
fn a_panic_is_returned_and_its_transaction_leaves_nothing() {
    let (store, runtime) = (store_with(&["l"]), runtime());
    let panicked = runtime.block_on(store.call(|store| {
        store::write(store.database(), |write| -> Result<(), StoreError> {
            let key = write.session(&session_id())?.unwrap().key;
            let row = write.loop_by_id(key, &loop_id("l"))?.unwrap();
            let new = turn("l", 0).into_iter().map(Into::into).collect();
            store::append::append(write, row.key, new, store.database().counter())?;
            panic!("after {} messages", 3)
        })
    }));
    match panicked {
        Err(Error::Panicked(told)) => assert_eq!(told, "after 3 messages"),
        other => panic!("{other:?}"),
    }
    assert!(stored(&store, "l").is_empty());
    runtime.block_on(chat(&store).append(turn("l", 1))).unwrap();
    assert_eq!(stored(&store, "l"), [1, 1, 1]);
}
