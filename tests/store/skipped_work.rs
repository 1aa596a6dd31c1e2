//! A backend runs the closure of a transaction exactly once. A backend that drops the closure must not report success.

use loopstore::extend::{self as store, ReadWork, StoreResult, WriteWork, session};
use loopstore::*;

/// A store that commits without running the closure.
struct Skips<'a>(&'a SqliteStore);

impl SessionStore for Skips<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        drop(work);
        self.0.read(Box::new(|_| Ok(())))
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        drop(work);
        self.0.write(Box::new(|_| Ok(())))
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.0.counter()
    }
}

#[test]
fn work_that_was_not_run_is_an_error() {
    let file = SqliteStore::in_memory().unwrap();
    let id = SessionId::new("s").unwrap();
    let new = Session::new(id.clone(), "agent");
    let mut runs = 0;
    let written = store::write(&Skips(&file), |write| {
        runs += 1;
        session::create_session(write, &new, None, None)
    });
    assert!(
        matches!(written, Err(StoreError::Invalid(_))),
        "{written:?}"
    );
    let read = store::read(&Skips(&file), |read| {
        runs += 1;
        read.session(&id)
    });
    assert!(matches!(read, Err(StoreError::Invalid(_))), "{read:?}");
    assert_eq!(runs, 0);
    assert_eq!(store::read(&file, |read| read.session(&id)).unwrap(), None);
}
