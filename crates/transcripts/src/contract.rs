//! The contract between importers and sinks: the types that an importer passes to a sink.

use std::path::{Path, PathBuf};

use loopstore::model::{AgentMessage, Json, LoopId, LoopRecord, Session, SessionId, Time};

pub use loopstore_decode::ReadSeek;

use super::{ImportError, SessionRestorer};

/// Records longer than this are skipped.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The identity of a session in its transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The transcript names its session.
    Own(SessionId),
    /// The transcript has no session id. The key is that of the record within its file (`task_id/trial`, else its
    /// index). The format, the file's name and the key identify earlier imports.
    Key(String),
    /// The transcript has no session id and consists of several files. The key is derived from their common
    /// beginning. The format and the key identify earlier imports, whatever the names of the files.
    Series(String),
}

/// A session that an importer begins; `session.loops` is empty.
#[derive(Clone, Debug)]
pub struct SessionHead {
    /// The identity of the session.
    pub identity: Identity,
    /// The metadata of the session. The sink replaces `session_id` unless `identity` is [`Identity::Own`].
    pub session: Session,
    /// The title, if the transcript has one.
    pub title: Option<String>,
    /// The folder that the agent worked in, if the transcript has it.
    pub project: Option<String>,
}

/// A compaction in a transcript, made by the tool that wrote the transcript.
#[derive(Clone, Debug)]
pub struct FoundCompaction {
    /// The loop in which the compaction happened, after the messages that the sink has received so far.
    pub loop_id: LoopId,
    /// The name of the tool, stored as the strategy: `claude-code`, `phi-core`, `pi` …
    pub strategy: String,
    /// `auto` or `manual`, if the transcript has it.
    pub trigger: Option<String>,
    /// The effect of the compaction.
    pub effect: FoundEffect,
    /// The time of the compaction.
    pub at: Option<Time>,
    /// The tool's own figures and record, kept with the run.
    pub record: Json,
}

/// The effect of a found compaction on the context.
#[derive(Clone, Debug)]
pub enum FoundEffect {
    /// Everything before the first kept turn was replaced by these messages.
    Summary {
        /// The messages that replace it.
        messages: Vec<AgentMessage>,
        /// The loop and the turn (its position in the loop) from which turns were kept; `None` if no turn was kept.
        first_kept: Option<(LoopId, u32)>,
    },
    /// As [`FoundEffect::Summary`], but the first messages of the first kept turn were replaced too.
    SummaryWithin {
        /// The message that replaces them.
        message: Box<AgentMessage>,
        /// The loop and the turn of the first kept message.
        first_kept: (LoopId, u32),
        /// The number of messages of this turn before the first kept message.
        dropped: u32,
    },
    /// The results of these tool calls were cleared or replaced; all other content stayed. This becomes a run of edits.
    EditedResults {
        /// Ids of the calls.
        tool_call_ids: Vec<String>,
        /// The texts that replaced results, as the transcript has them, each with the id of its call. Other results are
        /// cleared.
        replaced: Vec<(String, String)>,
    },
    /// The tool's own block for exactly this loop (phi-core's `compaction_block`).
    Block(Box<loopstore::model::CompactionBlock>),
}

/// The receiver of the sessions, loops and messages of a transcript.
///
/// An importer calls the methods in the order of the transcript: a session before its loops, a parent loop before its
/// children, a loop before its messages. Messages may alternate between loops.
pub trait Sink {
    /// Begins a session, or continues one that was begun before.
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError>;

    /// Begins a loop of the session that was begun last; `record.messages` is empty. A second call for the same loop
    /// updates its metadata, such as a status or an end that is known only later.
    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError>;

    /// Adds a message to a loop of the session that was begun last. `raw` contains the bytes of the records that the
    /// message was made from: a later import compares them.
    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError>;

    /// Adds a compaction that was made by the tool that wrote the transcript.
    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError>;

    /// Ends a document of the file. A session that begins afterwards belongs to another transcript, whatever its id.
    ///
    /// # Errors
    /// If the store rejects the document.
    fn end_document(&mut self) -> Result<(), ImportError> {
        Ok(())
    }

    /// Reports a record that could not be used; `line` counts from 1.
    fn skip(&mut self, line: Option<u64>, reason: String);

    /// Reports damage that was repaired: its first line, the number of places, and a description of the repair.
    fn repaired(&mut self, _line: Option<u64>, _count: u64, _what: &str) {}
}

/// A transcript to read.
pub struct Source<'a> {
    /// The path, for messages and for formats whose ids are part of the path.
    pub path: &'a Path,
    /// The bytes of the transcript; an importer may read them more than once.
    pub reader: &'a mut dyn ReadSeek,
}

/// Reads one format.
///
/// ```
/// use loopstore_transcripts::{Identity, ImportError, Importer, SessionHead, Sink, Source, import_source};
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
    /// Returns the name of the format, which is also the value of `--format`.
    fn format(&self) -> &'static str;

    /// True if a file that begins with `head` is of this format. `head` has up to 64 KiB and may end within a line.
    fn detect(&self, path: &Path, head: &[u8]) -> bool;

    /// Reads the transcript into `sink`.
    ///
    /// # Errors
    /// If the source cannot be read, or the sink returns an error. A record that cannot be read is skipped and is no
    /// error.
    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError>;

    /// True if a file is a part of the transcript in another file and is read with that file. Such a file is not
    /// reported as unread.
    fn is_companion(&self, _path: &Path) -> bool {
        false
    }

    /// Returns the other files that are read with a transcript; `None` if its path does not tell them. A transcript is
    /// not read again while none of these files changes.
    fn other_files(&self, _path: &Path) -> Option<Vec<PathBuf>> {
        Some(Vec::new())
    }

    /// True if the tool rewrites the whole file as the session grows, so that the last turn may change between
    /// imports. The last turn stays open until another turn follows it.
    fn rewrites(&self) -> bool {
        false
    }

    /// True if the end of a transcript can be read without the records before it. The end begins with the first
    /// record of the loop `first`; `title` is the title of the session. If the importer returns false, the whole
    /// transcript is read.
    fn is_readable_alone(&self, _end: &[u8], _first: &LoopId, _title: Option<&str>) -> bool {
        false
    }

    /// True if the format contains the rows of a store and is read by [`Importer::restore`].
    fn holds_rows(&self) -> bool {
        false
    }

    /// Reads a format that contains the rows of a store. The rows are written into the store unchanged, without a
    /// sink, and no copy of the file is kept. Returns `None` if the format has transcripts, which
    /// [`Importer::import`] reads.
    fn restore(
        &self,
        _source: &mut Source<'_>,
        _into: &mut SessionRestorer<'_>,
    ) -> Option<Result<(), ImportError>> {
        None
    }
}
