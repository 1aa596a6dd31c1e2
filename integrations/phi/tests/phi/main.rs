//! The adapters for phi-core, tested with phi-core itself.

mod agent;
mod defects;
mod differential;
mod event_log;
mod example;
mod sessions;
mod stage;
mod strategies;
mod world;

use loopstore_testing as support;
