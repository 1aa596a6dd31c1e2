//! Recording an agent: durability, leases, and recovery after a crash.

mod applied_edits;
#[cfg(feature = "tokio")]
mod asynchronous;
mod drivers;
mod events;
mod killed;
mod links;
mod model;
mod unconfirmed;
mod window;

use loopstore_testing as support;
