//! Recording an agent: what is durable when, who may write, what a crash leaves behind.

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
