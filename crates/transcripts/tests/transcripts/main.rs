//! Imports of other tools' transcripts and of exported lines: whole, grown, damaged and repeated.

mod agents;
mod atif;
mod authors;
mod claude_code;
mod compaction_events;
mod decoded;
mod edited;
mod forged;
mod identity;
mod last_active;
mod many;
mod native;
mod openai_chat;
mod phi_core;
mod provider_form;
mod provider_trips;
mod provider_types;
mod rewritten;
mod session_jsonl;
mod titles;
mod tools;
mod watched;
mod writer;

use loopstore_testing as support;
