//! Where code of users is called: a panic in it ends an attempt and goes no further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; `Err` says what it panicked with.
///
/// What `work` may leave half done is its own: a transaction in which it panics is taken back, and the
/// locks of a store do not mind.
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
