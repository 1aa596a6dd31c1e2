//! Sessions as shared pages: nothing secret is in them, nothing in them is markup, and they import as the session.

mod cuts;
mod pages;
mod secrets;
mod stage;

use loopstore_testing as support;
