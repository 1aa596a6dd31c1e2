//! Writes sessions of loopstore in the formats of other programs.
//!
//! [`export`] writes a session to a writer, message by message if the form allows it. A new format is one file here,
//! its name in [`ExportForm`] and its line in [`export`]. [`export_source`] writes a file that was kept by an import,
//! byte for byte. [`write_native`] writes a conversation as a transcript of another coding agent, in the files from
//! which that agent resumes it.
//!
//! The crate changes nothing in a store. It makes no pages for people: `loopstore-report` does. The files that
//! this crate writes, `loopstore-transcripts` reads.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod atif;
mod markdown;
mod native;
mod omissions;
mod otlp;
mod phi_core;
mod session_jsonl;
mod visible;

use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::str::FromStr;

use loopstore::compaction::UnknownWord;
use loopstore::extend as store;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::source::SourceError;
use loopstore::extend::{
    LoopKey, LoopRow, MessageRow, SessionRow, SessionStore, SourceRow, StoreError, StoreRead,
    StoreResult, Visit, active_blocks, leaf_of, session_of, source,
};
use loopstore::internal::{LiveCompaction, live_compaction};
use loopstore::model::{AgentMessage, LoopId, SessionId};
use loopstore::provider::{Form, Mending, ProviderRequest};

pub use native::{MendingCount, NativeAgent, NativeReport, NativeSession, originals, write_native};
pub use omissions::{Omission, OmissionKind};
pub use otlp::{OtlpContent, OtlpGap, OtlpReport};
pub use visible::visible;

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportForm {
    /// One JSON document of the whole session: phi-core's, and loopstore's own.
    PhiCore,
    /// The originals of a chain as the messages of a provider's request.
    Request(Form),
    /// Markdown, for people.
    Markdown,
    /// Lines of JSON that an import reads without loss; of a chain only its messages.
    Lines,
    /// Traces of OpenTelemetry, with or without content.
    Otlp(OtlpContent),
    /// A trajectory in Harbor's ATIF 1.8, which an import reads without loss; of a chain only its steps.
    Atif,
}

/// The changes and omissions of an export.
#[derive(Debug, Default)]
pub struct ExportReport {
    /// The changes that were made to the messages so that a provider accepts the request.
    pub mended: Vec<Mending>,
    /// The content that the form cannot represent, by kind.
    pub omitted: Vec<Omission>,
    /// The numbers of spans and events of traces, and the values that were guessed; `None` for other forms.
    pub traces: Option<OtlpReport>,
}

impl FromStr for ExportForm {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "phi-core" => Ok(Self::PhiCore),
            "markdown" => Ok(Self::Markdown),
            "jsonl" => Ok(Self::Lines),
            "atif" => Ok(Self::Atif),
            "otlp-json" => Ok(Self::Otlp(OtlpContent::Included)),
            "otlp-json-without-content" => Ok(Self::Otlp(OtlpContent::Omitted)),
            _ => text.parse().map(Self::Request).map_err(|_| {
                UnknownWord::new(
                    text,
                    "phi-core, openai, responses, anthropic, markdown, jsonl, atif, otlp-json, \
                     otlp-json-without-content",
                )
            }),
        }
    }
}

/// An error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store failed, or the session or loop does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writer failed.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for ExportError {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}

impl From<SourceError> for ExportError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Store(error) => Self::Store(error),
            SourceError::Io(error) => Self::Write(error),
        }
    }
}

/// Writes a session from one snapshot. Returns the changes that were made to messages, and what the form cannot
/// represent.
///
/// With `leaf`, the chain that ends in this loop is written. Without `leaf`, a request has the chain of the current
/// loop, and the other forms have all loops. The interchange form always has all loops. A trajectory also contains the
/// sessions of sub-agents.
///
/// # Errors
/// If the session or the loop does not exist, the store fails, or `out` fails.
///
/// # Examples
/// ```
/// use loopstore_export::{ExportForm, export};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// let mut text = Vec::new();
/// export(store.database(), chat.id(), None, ExportForm::Markdown, &mut text)?;
/// assert!(String::from_utf8(text)?.contains("Will it rain?"));
/// // Or what goes to a provider.
/// let mut request = Vec::new();
/// let report = export(store.database(), chat.id(), None, "openai".parse()?, &mut request)?;
/// assert!(report.mended.is_empty());
/// // Or traces, without any text of the session.
/// use loopstore_export::{OtlpContent, OtlpGap};
/// let (mut lines, traces) = (Vec::new(), ExportForm::Otlp(OtlpContent::Omitted));
/// let report = export(store.database(), chat.id(), None, traces, &mut lines)?.traces;
/// assert!(!String::from_utf8(lines)?.contains("rain"));
/// assert_eq!(report.unwrap_or_default().gaps[&OtlpGap::InputUnanswered], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
    form: ExportForm,
    out: &mut dyn Write,
) -> Result<ExportReport, ExportError> {
    store::read(store, |read| {
        let counter = store.counter().name();
        Ok(export_from(read, counter, session, leaf, form, out))
    })?
}

/// Writes the lines of a session from a snapshot or a transaction, as [`ExportForm::Lines`] does; `counter` is the name
/// of the token counter of the database.
#[doc(hidden)]
pub fn write_lines(
    read: &dyn StoreRead,
    counter: &str,
    session: &SessionRow,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    session_jsonl::write(read, session, counter, out)
}

fn export_from(
    read: &dyn StoreRead,
    counter: &str,
    session: &SessionId,
    leaf: Option<&LoopId>,
    form: ExportForm,
    out: &mut dyn Write,
) -> Result<ExportReport, ExportError> {
    let session = session_of(read, session)?;
    let mut report = ExportReport::default();
    match form {
        ExportForm::PhiCore => phi_core::write(read, &session, out)?,
        ExportForm::Request(form) => {
            let chain = stretches(read, &session, leaf, true)?;
            report.mended = request(read, &chain, form, out)?;
        }
        ExportForm::Markdown => {
            markdown::write(
                read,
                &session,
                &stretches(read, &session, leaf, false)?,
                out,
            )?;
        }
        ExportForm::Lines => match leaf {
            None => session_jsonl::write(read, &session, counter, out)?,
            Some(_) => {
                let chain = stretches(read, &session, leaf, true)?;
                session_jsonl::write_chain(read, &session, &chain, out)?;
            }
        },
        ExportForm::Otlp(content) => {
            report.traces = Some(otlp::write(read, &session, leaf, content, out)?);
        }
        ExportForm::Atif => report.omitted = atif::write(read, &session, counter, leaf, out)?,
    }
    Ok(report)
}

/// The messages of one loop that are written.
struct ExportRange {
    row: LoopRow,
    end_seq: u32,
}

/// Returns the loops to write: a chain, or all of them.
fn stretches(
    read: &dyn StoreRead,
    session: &SessionRow,
    leaf: Option<&LoopId>,
    is_chain: bool,
) -> StoreResult<Vec<ExportRange>> {
    if leaf.is_none() && !is_chain {
        let whole = |row: LoopRow| ExportRange {
            end_seq: row.totals.next_seq,
            row,
        };
        return Ok(read.loops(session.key)?.into_iter().map(whole).collect());
    }
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let links = active_blocks::chain(read, leaf_of(read, session, leaf)?.key, raw)?;
    let cut = |link: active_blocks::ChainLink| {
        Ok(ExportRange {
            row: read.loop_by_key(link.row.key)?,
            end_seq: link.end_seq,
        })
    };
    links.into_iter().map(cut).collect()
}

/// Visits the messages of a loop; an error of `visit` ends it.
fn each_message(
    read: &dyn StoreRead,
    stretch: &ExportRange,
    visit: &mut dyn FnMut(MessageRow) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    each_message_of(read, stretch.row.key, 0..stretch.end_seq, visit)
}

/// Visits a range of the messages of a loop; an error of `visit` ends it.
fn each_message_of(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seqs: Range<u32>,
    visit: &mut dyn FnMut(MessageRow) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let mut failed = None;
    let visit: &mut Visit<'_, MessageRow> = &mut |row| {
        Ok(match visit(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })
    };
    read.messages(loop_key, seqs, visit)?;
    failed.map_or(Ok(()), Err)
}

fn request(
    read: &dyn StoreRead,
    stretches: &[ExportRange],
    form: Form,
    out: &mut dyn Write,
) -> Result<Vec<Mending>, ExportError> {
    let leaf = stretches.last().map(|stretch| stretch.row.key);
    let mut live = match (leaf, form.sealing_provider()) {
        (Some(leaf), Some(provider)) => live_compaction(read, leaf, provider)?,
        _ => None,
    };
    let (mut messages, mut compaction): (Vec<AgentMessage>, _) = (Vec::new(), None);
    for stretch in stretches {
        let key = stretch.row.key;
        each_message(read, stretch, &mut |row| {
            if let Some(came) = take_compaction_before(&mut live, key, row.seq) {
                compaction = Some(messages.len());
                messages.push(came);
            }
            let message = store::decode(read, row.body)?;
            // A prompt that is set again for each loop is written once.
            let is_shown = match &message {
                AgentMessage::Llm(_) => true,
                AgentMessage::Extension(note) => {
                    note.kind == "system" && !messages.contains(&message)
                }
            };
            if is_shown {
                if matches!(live, Some(LiveCompaction::InMessage(of, seq)) if (of, seq) == (key, row.seq))
                {
                    compaction = Some(messages.len());
                }
                messages.push(message);
            }
            Ok(())
        })?;
        if let Some(came) = take_compaction_before(&mut live, key, u32::MAX) {
            compaction = Some(messages.len());
            messages.push(came);
        }
    }
    let in_flight = (stretches.last()).is_some_and(|last| !last.row.status.is_ended());
    let request = ProviderRequest::with_compaction(form, &[], &messages, compaction, in_flight);
    serde_json::to_writer_pretty(&mut *out, &request)?;
    out.write_all(b"\n")?;
    Ok(request.mended)
}

/// Takes the compaction after the messages of a loop before `seq`.
fn take_compaction_before(
    live: &mut Option<LiveCompaction>,
    key: LoopKey,
    seq: u32,
) -> Option<AgentMessage> {
    let came = live.take_if(|live| {
        matches!(live, LiveCompaction::Behind(of, end_seq, _) if *of == key && seq >= *end_seq)
    })?;
    match came {
        LiveCompaction::Behind(_, _, message) => Some(*message),
        LiveCompaction::InMessage(..) => None,
    }
}

/// Writes a kept file byte for byte, and returns the number of its bytes.
///
/// # Errors
/// If the file is damaged, or `out` fails.
///
/// # Examples
/// ```
/// use loopstore::Store;
/// use loopstore_export::export_source;
/// use loopstore::extend::source::sources;
/// use loopstore_transcripts::{ImportOptions, import_paths};
///
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("chat.json");
/// # let chat = r#"[{"role":"user","content":"Will it rain?"}]"#;
/// # std::fs::write(&file, chat)?;
/// let store = Store::in_memory()?;
/// let report = import_paths(store.database(), &[file], &ImportOptions::default(), &mut |_| {})?;
/// let kept = sources(store.database(), &report.sessions[0])?;
/// let mut bytes = Vec::new();
/// export_source(store.database(), &kept[0], &mut bytes)?;
/// assert_eq!(bytes, chat.as_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export_source(
    store: &dyn SessionStore,
    source: &SourceRow,
    out: &mut dyn Write,
) -> Result<u64, ExportError> {
    let written = store::read(store, |read| Ok(source::write_out(read, source, out)))?;
    Ok(written?)
}
