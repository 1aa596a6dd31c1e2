//! Reads transcripts that other agents and tools wrote into a store of loopstore.
//!
//! An [`Importer`] reads one format and passes sessions, loops, messages and the tool's own compactions to a
//! [`Sink`], in the order of the transcript. An importer holds one message in memory at a time (and an index of the
//! records, if the format needs one), and never a database. The sink decides which messages are new. [`import_paths`]
//! finds the format of each file, [`import_source`] reads one with a given importer, and [`Watch`] reads files as
//! they grow. Loopstore's own lines are read back row by row, by [`SessionLines`].
//!
//! Each format is behind a cargo feature; `detect.rs` lists them. A new format is a module here with an `Importer`, a
//! feature, its lines in `detect.rs`, hand-written transcripts in
//! `tests/fixtures/` and a module of the tests of transcripts.
//!
//! The crate writes no transcripts (`loopstore-export` does), compacts nothing, and has no SQL for the store. It
//! reads only the SQLite files of other programs.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
// Shared helpers may be unused if some formats are left out.
#![cfg_attr(not(feature = "default"), allow(dead_code, unused_imports))]

mod activity;
#[cfg(feature = "adk")]
mod adk;
#[cfg(feature = "aider")]
mod aider;
mod appended;
#[cfg(feature = "atif")]
mod atif;
mod authors;
#[cfg(feature = "claude-code")]
mod claude_code;
#[cfg(feature = "cline")]
mod cline;
#[cfg(feature = "codex")]
mod codex;
mod contract;
#[cfg(feature = "copilot-cli")]
mod copilot;
mod decode;
mod detect;
mod edits;
mod extension;
mod fields;
mod files;
#[cfg(feature = "gemini-cli")]
mod gemini;
mod glued;
#[cfg(feature = "goose")]
mod goose;
mod identity;
mod json_lines;
mod json_stream;
mod key_outline;
mod known;
mod lines;
mod loops;
mod matching;
#[cfg(feature = "mini-swe-agent")]
mod mini_swe_agent;
mod one_file;
#[cfg(feature = "openai-agents")]
mod openai_agents;
#[cfg(feature = "openai-chat")]
mod openai_chat;
#[cfg(feature = "opencode")]
mod opencode;
#[cfg(feature = "openhands")]
mod openhands;
mod origin;
mod pending;
#[cfg(feature = "phi-core")]
mod phi_core;
#[cfg(feature = "pi")]
mod pi;
mod pipeline;
#[cfg(feature = "provider-forms")]
mod provider_form;
mod queue;
#[cfg(feature = "qwen-code")]
mod qwen;
mod records;
mod report;
mod responses;
mod revised;
mod runs;
mod secrets;
mod session_jsonl;
mod signs;
mod sniff;
#[cfg(feature = "sqlite")]
mod sqlite_file;
mod state;
#[cfg(feature = "swe-agent")]
mod swe_agent;
mod transcript;
mod unread;
mod values;
mod watch;
mod writer;

use std::path::Path;

pub(crate) use loopstore_decode::SQLITE_MAGIC;

#[cfg(feature = "adk")]
pub use adk::Adk;
#[cfg(feature = "aider")]
pub use aider::Aider;
pub use appended::import_appended;
#[cfg(feature = "atif")]
pub use atif::Atif;
#[cfg(feature = "claude-code")]
pub use claude_code::ClaudeCode;
#[cfg(feature = "cline")]
pub use cline::{Cline, RooCode};
#[cfg(feature = "codex")]
pub use codex::Codex;
pub use contract::{
    FoundCompaction, FoundEffect, Identity, Importer, MAX_RECORD_BYTES, ReadSeek, SessionHead,
    Sink, Source,
};
#[cfg(feature = "copilot-cli")]
pub use copilot::CopilotCli;
pub use decode::read_transcript;
pub use detect::importers;
pub use files::{FileProgress, ImportOptions, import_paths, import_paths_with};
#[cfg(feature = "gemini-cli")]
pub use gemini::GeminiCli;
#[cfg(feature = "goose")]
pub use goose::Goose;
pub use json_lines::{JsonLine, JsonLines};
pub use known::ImportedFiles;
#[cfg(feature = "mini-swe-agent")]
pub use mini_swe_agent::MiniSweAgent;
pub use one_file::{import_source, import_source_with};
#[cfg(feature = "openai-agents")]
pub use openai_agents::OpenAiAgents;
#[cfg(feature = "openai-chat")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "opencode")]
pub use opencode::OpenCode;
#[cfg(feature = "openhands")]
pub use openhands::OpenHands;
pub use origin::Origin;
#[cfg(feature = "phi-core")]
pub use phi_core::PhiCore;
#[cfg(feature = "pi")]
pub use pi::Pi;
#[cfg(feature = "provider-forms")]
pub use provider_form::ProviderForm;
#[cfg(feature = "qwen-code")]
pub use qwen::QwenCode;
pub use report::{
    CompletedCall, FileRepair, ImportReport, ImportedBranch, SeparatedSession, Skipped,
};
pub use session_jsonl::{SessionLines, SessionRestorer};
#[cfg(feature = "swe-agent")]
pub use swe_agent::SweAgent;
pub use watch::{Watch, WatchedImport};
pub use writer::StoreSink;

/// The parts of formats that `loopstore-export`, `loopstore-share` and `loopstore-sync` use, without a promise for others.
#[doc(hidden)]
pub mod internal {
    pub use crate::fields::Fields;
    pub use crate::matching::record_digest;
    pub use crate::session_jsonl::{RecordOrigins, form, page, restore_session};
    pub use crate::values::reports_failure;
}

/// Returns the path of the write-ahead log of an SQLite file.
pub(crate) fn log_of(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Returns an error for a file without a conversation.
fn holds_conversation(does: bool) -> Result<(), ImportError> {
    match does {
        true => Ok(()),
        false => Err(ImportError::NoTranscript("it holds no conversation".into())),
    }
}

/// Returns the error for a file that could not be read.
fn unread(path: &Path) -> impl Fn(std::io::Error) -> ImportError + Copy {
    move |source| ImportError::Read {
        path: path.to_owned(),
        source,
    }
}

/// An error that ends an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The transcript could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file contains no transcript of the format.
    #[error("{0}")]
    NoTranscript(String),
    /// The store rejects the content of this file; other files may be accepted.
    #[error("{0}")]
    Refused(String),
    /// The store cannot be written to, for example because the disk is full. The import ends. Files imported before
    /// stay, and the next import continues.
    #[error(transparent)]
    Store(loopstore::extend::StoreError),
}

impl From<loopstore::extend::StoreError> for ImportError {
    fn from(error: loopstore::extend::StoreError) -> Self {
        use loopstore::extend::StoreError as E;
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
