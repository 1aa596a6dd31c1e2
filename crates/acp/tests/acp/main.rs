//! The proxy between an editor and an agent, with scripted agents: what passes, what is recorded, what the store
//! answers.

mod passing;
mod recording;
mod serving;
mod stage;

use loopstore_testing as support;
