//! A guard for code of users: a panic in it ends the attempt, and does not unwind further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; a panic becomes an `Err` with its message.
///
/// State of `work` may be inconsistent after a panic: a transaction in which it panics is rolled back, and the
/// locks of a store are not poisoned.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = text_of(&*panic);
        format!("the strategy, a hook or the token counter panicked: {text}")
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
