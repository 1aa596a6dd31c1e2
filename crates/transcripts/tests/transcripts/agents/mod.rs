//! Transcripts of agents that are neither lines nor plain chats: what of each comes in, what a
//! grown file adds, and what damage costs.

mod aider;
mod cline;
mod goose;
mod mini_swe_agent;
pub mod openai_agents;
mod opencode;
mod openhands;
mod qwen;
mod real;
mod reserved;
mod stage;
mod swe_agent;
