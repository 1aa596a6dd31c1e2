//! Recording an agent: what is durable when, who may write, what a crash leaves behind.

mod drivers;
mod events;
mod killed;
mod links;
mod model;
mod unconfirmed;
mod window;
