//! The native part of the Node package `loopstore`.
//!
//! It contains handles and passes JSON; the public classes, options and objects are TypeScript in `ts`. Each
//! call runs on a worker thread, and a panic in it becomes an error: `work.rs`.

// First: the other modules refer to the JavaScript names of its classes.
mod work;

mod callback;
mod checkpoints;
mod hooks;
mod policy;
mod session;
mod store;
mod summarizer;

use loopstore_bindings::{CallError, caught};
use napi_derive::napi;

use crate::work::thrown;

/// The version of the package.
#[napi]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns `true` if another copy of SQLite in this process may have the same database open.
#[napi]
pub fn allows_other_copies() -> bool {
    loopstore::SqliteStore::allows_other_copies()
}

/// The names of the token counters of this build.
#[napi]
pub fn counters() -> Vec<&'static str> {
    loopstore::COUNTERS.to_vec()
}

/// Runs the command line and returns its exit code.
#[napi]
pub fn run_command(args: Vec<String>) -> napi::Result<u32> {
    let code = caught(|| {
        Ok(loopstore_cli::run(
            args.into_iter().map(Into::into).collect(),
        ))
    });
    Ok(code.map_err(thrown)?.into())
}

/// Panics on a worker thread, for tests of the error of a panic.
#[napi(ts_return_type = "Promise<void>")]
pub fn panic_on_thread(message: String) -> work::Promised<()> {
    work::promised(None, move || -> Result<(), CallError> {
        std::panic::resume_unwind(Box::new(message))
    })
}
