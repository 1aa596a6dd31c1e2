//! The contract between importers and sinks: the things that an importer of one format finds.

use std::path::Path;

use loopstore::model::{AgentMessage, Json, LoopId, LoopRecord, Session, SessionId, Time};

pub use loopstore_decode::ReadSeek;

use super::{ImportError, Restore};

/// Records longer than this are skipped.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The identity of a session in its transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The transcript names its session.
    Own(SessionId),
    /// It does not: the key of the record within its file (`task_id/trial`, else its index).
    /// Together with the format and the file's name it finds earlier imports.
    Key(String),
    /// It does not, and is spread over many files: a key made from how they all begin. Together with
    /// the format it finds earlier imports, whatever the files are called.
    Series(String),
}

/// A session as an importer announces it; `session.loops` is empty.
#[derive(Clone, Debug)]
pub struct SessionHead {
    /// The identity of the session.
    pub identity: Identity,
    /// Its metadata. Without an id of its own the sink replaces `session_id`.
    pub session: Session,
    /// A title for people, if the transcript has one.
    pub title: Option<String>,
    /// The folder that the agent worked in, if the transcript has it.
    pub project: Option<String>,
}

/// A compaction that the tool which wrote the transcript made, at the point where it happened.
#[derive(Clone, Debug)]
pub struct FoundCompaction {
    /// The loop in which it happened, after the messages sent so far.
    pub loop_id: LoopId,
    /// The tool, as name of the strategy: `claude-code`, `phi-core`, `pi` …
    pub strategy: String,
    /// `auto` or `manual`, as far as the transcript says.
    pub trigger: Option<String>,
    /// The effect of the compaction.
    pub effect: FoundEffect,
    /// When it happened.
    pub at: Option<Time>,
    /// The tool's own figures and record, kept with the run.
    pub record: Json,
}

/// The effect of a found compaction on the context.
#[derive(Clone, Debug)]
pub enum FoundEffect {
    /// Everything before the first kept turn was replaced by these messages.
    Summary {
        /// The messages in its place.
        messages: Vec<AgentMessage>,
        /// Loop and turn (the group's position in the loop) from which on turns were kept; `None`:
        /// nothing was kept.
        first_kept: Option<(LoopId, u32)>,
    },
    /// As [`FoundEffect::Summary`], but of the first kept turn the first messages are gone too.
    SummaryWithin {
        /// The messages in their place.
        message: Box<AgentMessage>,
        /// Loop and turn of the first kept message.
        first_kept: (LoopId, u32),
        /// The number of messages of that turn before it.
        dropped: u32,
    },
    /// The results of these tool calls were emptied; all else stayed.
    ClearedResults {
        /// Ids of the calls.
        tool_call_ids: Vec<String>,
        /// The text that replaces each result.
        placeholder: String,
    },
    /// The tool's own block for exactly this loop (phi-core's `compaction_block`).
    Block(Box<loopstore::model::CompactionBlock>),
}

/// Takes what an importer finds.
///
/// Calls come in the order of the transcript. A session must be begun before its loops, a parent
/// loop before its children, a loop before its messages; messages may alternate between loops.
pub trait Sink {
    /// Begins a session, or goes on with one begun before.
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError>;

    /// Begins a loop of the session begun last; `record.messages` is empty. Called again for the
    /// same loop it updates the metadata (a status or an end that is known only later).
    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError>;

    /// Adds a message to a loop of the session begun last. `raw` is the record (or the records)
    /// that it was made from, as they are in the file: a later import compares them.
    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError>;

    /// Adds a compaction that the tool itself made.
    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError>;

    /// Ends a document of the file: a session that begins afterwards, under whatever id, is another transcript.
    ///
    /// # Errors
    /// If the store refuses what came in.
    fn end_document(&mut self) -> Result<(), ImportError> {
        Ok(())
    }

    /// Reports a record that could not be used; `line` counts from 1.
    fn skip(&mut self, line: Option<u64>, reason: String);

    /// Reports damage that was repaired so that its record could be used: the first line of it, how often it
    /// was found, and what was done.
    fn repaired(&mut self, _line: Option<u64>, _count: u64, _what: &str) {}
}

/// A transcript to read.
pub struct Source<'a> {
    /// The path, for messages and for formats whose ids are part of the path.
    pub path: &'a Path,
    /// Its bytes; an importer may read them more than once.
    pub reader: &'a mut dyn ReadSeek,
}

/// Reads one format.
///
/// ```
/// use loopstore_transcripts::*;
/// use loopstore_transcripts::{FoundCompaction, FoundEffect, Identity, Importer, MAX_RECORD_BYTES, ReadSeek, Restore, SessionHead, Sink, Source, import_source};
/// use loopstore::*;
/// use std::io::{BufRead, Cursor};
/// use std::path::Path;
///
/// /// A prompt on each line.
/// struct Prompts;
///
/// impl Importer for Prompts {
///     fn format(&self) -> &'static str {
///         "prompts"
///     }
///
///     fn detect(&self, path: &Path, _: &[u8]) -> bool {
///         path.extension().is_some_and(|end| end == "prompts")
///     }
///
///     fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
///         // The file's name distinguishes its session from others of this format.
///         let (identity, first) = (Identity::Key("0".into()), LoopId::generate());
///         let session = Session::new(SessionId::generate(), "agent");
///         sink.session(SessionHead { identity, session, title: None, project: None })?;
///         sink.begin_loop(LoopRecord::new(first.clone(), None))?;
///         for (line, text) in (1..).zip(BufRead::lines(&mut *source.reader)) {
///             match text {
///                 Ok(text) => sink.message(&first, Message::user(&text).into(), text.as_bytes())?,
///                 Err(error) => sink.skip(Some(line), error.to_string()),
///             }
///         }
///         Ok(())
///     }
/// }
///
/// let mut text = Cursor::new("Will it rain?\nAnd tomorrow?");
/// let mut source = Source { path: Path::new("weather.prompts"), reader: &mut text };
/// let report = import_source(Store::in_memory()?.database(), &Prompts, &mut source, None)?;
/// assert_eq!(report.messages, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Importer: Sync {
    /// The name of the format, as `--format` takes it.
    fn format(&self) -> &'static str;

    /// True if a file that begins with `head` (up to 64 KiB, maybe cut within a line) is of this
    /// format.
    fn detect(&self, path: &Path, head: &[u8]) -> bool;

    /// Reads the transcript into `sink`.
    ///
    /// # Errors
    /// Only if the source cannot be read or the sink refuses; a bad record is skipped.
    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError>;

    /// True if a file is read together with another one, as a part of its transcript. It is no transcript
    /// by itself, and is not reported as unread.
    fn is_companion(&self, _path: &Path) -> bool {
        false
    }

    /// True if a file of the format is written anew as its session grows, so that its last turn may come back
    /// changed. Such a turn stays open until something comes after it.
    fn rewrites(&self) -> bool {
        false
    }

    /// True if the end of a transcript can be read by itself, as if nothing stood before: it begins with the
    /// first record of the loop `first`, and `title` is what the session is called. Where this is not known,
    /// the whole transcript is read.
    fn stands_alone(&self, _end: &[u8], _first: &LoopId, _title: Option<&str>) -> bool {
        false
    }

    /// True if the format holds what is stored, row by row, and is read by [`Importer::restore`].
    fn holds_rows(&self) -> bool {
        false
    }

    /// Reads a format that holds what is stored, row by row: it goes into the store as it is, not
    /// through a sink, and the file itself is not kept. `None`: the format has transcripts, which
    /// [`Importer::import`] reads.
    fn restore(
        &self,
        _source: &mut Source<'_>,
        _into: &mut Restore<'_>,
    ) -> Option<Result<(), ImportError>> {
        None
    }
}
