//! Recording an agent: what is durable when, who may write, what a crash leaves behind.

mod drivers;
mod events;
#[path = "../keyed/mod.rs"]
mod keyed;
mod killed;
mod links;
mod model;
mod stage;
mod unconfirmed;
mod window;
