//! Ways in: transcripts that other tools wrote.
//!
//! An [`Importer`] reads one format and hands a [`Sink`] what it finds, in the order of the
//! transcript: sessions, loops, messages and the compactions that the tool itself made. It holds
//! one message at a time (and an index of where records stand, where the format needs one), never
//! a database. The sink decides what is new.
//!
//! A new format is a room here with an `Importer`, its line in [`importers`], hand-written
//! transcripts in `tests/fixtures/` and a room in `tests/transcripts/`.

mod activity;
pub(crate) mod adk;
pub(crate) mod aider;
mod appended;
mod authors;
pub(crate) mod claude_code;
pub(crate) mod cline;
pub(crate) mod codex;
pub(crate) mod contract;
pub(crate) mod copilot;
pub(crate) mod decode;
mod detect;
mod extension;
pub(crate) mod fields;
mod files;
pub(crate) mod gemini;
mod glued;
pub(crate) mod goose;
mod identity;
mod json_stream;
mod key_outline;
mod lines;
mod loops;
mod matching;
pub(crate) mod mini_swe_agent;
pub(crate) mod one_file;
pub(crate) mod openai_agents;
pub(crate) mod openai_chat;
pub(crate) mod opencode;
pub(crate) mod openhands;
mod pending;
pub(crate) mod phi_core;
pub(crate) mod pi;
mod pipeline;
pub(crate) mod provider_form;
mod queue;
pub(crate) mod qwen;
mod records;
mod report;
mod responses;
mod revised;
pub(crate) mod runs;
mod secrets;
pub(crate) mod session_jsonl;
mod sniff;
pub(crate) mod state;
pub(crate) mod swe_agent;
mod transcript;
mod unread;
mod values;
mod watch;
pub(crate) mod writer;

use std::path::Path;

pub(crate) use adk::Adk;
pub(crate) use aider::Aider;
pub use appended::import_appended;
pub(crate) use claude_code::ClaudeCode;
pub(crate) use cline::{Cline, RooCode};
pub(crate) use codex::Codex;
pub(crate) use contract::{
    FoundCompaction, FoundEffect, Identity, Importer, MAX_RECORD_BYTES, ReadSeek, SessionHead,
    Sink, Source,
};
pub(crate) use copilot::CopilotCli;
pub(crate) use decode::read_transcript;
pub use decode::{JsonLine, JsonLines};
pub use detect::importers;
pub use files::{FileProgress, ImportOptions, import_paths, import_paths_with};
pub(crate) use gemini::GeminiCli;
pub(crate) use goose::Goose;
pub(crate) use mini_swe_agent::MiniSweAgent;
pub(crate) use one_file::import_source;
pub(crate) use openai_agents::OpenAiAgents;
pub(crate) use openai_chat::OpenAiChat;
pub(crate) use opencode::OpenCode;
pub(crate) use openhands::OpenHands;
pub(crate) use phi_core::PhiCore;
pub(crate) use pi::Pi;
pub(crate) use provider_form::ProviderForm;
pub(crate) use qwen::QwenCode;
pub use report::{
    CompletedCall, ImportReport, ImportedBranch, Repaired, SeparatedSession, Skipped,
};
pub(crate) use session_jsonl::{Restore, StoredLines};
pub(crate) use swe_agent::SweAgent;
pub use watch::{Growth, Watch};
pub(crate) use writer::Origin;
#[cfg(feature = "phi-core")]
pub(crate) use writer::StoreSink;

/// Returns where SQLite keeps the write-ahead log of a file.
pub(crate) fn log_of(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// How an SQLite file begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Refuses a file without a conversation.
fn holds_conversation(does: bool) -> Result<(), ImportError> {
    match does {
        true => Ok(()),
        false => Err(ImportError::NoTranscript("it holds no conversation".into())),
    }
}

/// Says of a file that it could not be read.
fn unread(path: &Path) -> impl Fn(std::io::Error) -> ImportError + Copy {
    move |source| ImportError::Read {
        path: path.to_owned(),
        source,
    }
}

/// Why an import stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The transcript could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no transcript of the format.
    #[error("{0}")]
    NoTranscript(String),
    /// The store refuses what was found; another file may do.
    #[error("{0}")]
    Refused(String),
    /// The store cannot take anything now: the disk is full, say. The import ends there; what came in
    /// before stays, and importing again goes on.
    #[error(transparent)]
    Store(crate::store::StoreError),
}

impl From<crate::store::StoreError> for ImportError {
    fn from(error: crate::store::StoreError) -> Self {
        use crate::store::StoreError as E;
        match error {
            E::Busy
            | E::Damaged(_)
            | E::ReadOnly
            | E::FileReplaced
            | E::Full
            | E::Io(_)
            | E::Other(_) => Self::Store(error),
            E::Connection(_)
            | E::Unconfirmed(_)
            | E::SerializationFailure
            | E::TimedOut
            | E::PoolTimeout(_) => Self::Store(error),
            refused => Self::Refused(refused.to_string()),
        }
    }
}
