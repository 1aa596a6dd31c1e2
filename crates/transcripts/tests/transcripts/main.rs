//! Imports: the transcripts of other tools and the lines of exports, whole, grown, damaged and again.

mod agents;
mod authors;
mod claude_code;
mod compaction_events;
mod decoded;
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
