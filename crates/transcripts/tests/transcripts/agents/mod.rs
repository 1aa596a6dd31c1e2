//! Transcripts of agents that are neither lines nor plain chats: the imported messages, the messages that a grown file
//! adds, and the effect of damage.

mod aider;
mod cline;
mod goose;
mod mini_swe_agent;
mod newest_and_oldest;
pub mod openai_agents;
mod opencode;
mod openhands;
mod qwen;
mod real;
mod reserved;
pub mod stage;
mod swe_agent;
