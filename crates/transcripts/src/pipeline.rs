//! A reader thread ahead of the writer: it parses a transcript and encodes its messages, so that the writer only writes
//! rows. The calls that the writer receives and their order do not depend on how far ahead the reader is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::{mem, panic};

use loopstore::model::{AgentMessage, LoopId, LoopRecord};
use loopstore::tokens::TokenCounter;
use loopstore_model::received;

use super::matching::{Digests, RecordDigest};
use super::pending::PendingMessage;
use super::{FoundCompaction, ImportError, SessionHead, Sink};

/// A batch is passed on when its records reach this many bytes …
const BATCH_BYTES: usize = 128 << 10;
/// … or this number of calls.
const BATCH_CALLS: usize = 64;
/// The maximum number of batches that wait for the writer: little memory for any transcript, and enough work while the
/// writer waits for the disk.
const WAITING: usize = 16;

/// One call of a sink.
pub(super) enum SinkCall {
    Session(Box<SessionHead>),
    Loop(Box<LoopRecord>),
    Message(LoopId, PendingMessage, RecordDigest, usize),
    Compaction(Box<FoundCompaction>),
    EndOfDocument,
    Skip(Option<u64>, String),
    Repaired(Option<u64>, u64, String),
    Note(String),
}

/// A sink that accepts messages whose digests were computed.
pub(super) trait EncodedSink: Sink {
    /// Receives a note about a message that was completed.
    fn note(&mut self, _note: String) {}

    /// Receives a message whose record has this digest and this many bytes.
    fn encoded(
        &mut self,
        loop_id: LoopId,
        message: PendingMessage,
        origin: RecordDigest,
        bytes: usize,
    ) -> Result<(), ImportError>;
}

impl SinkCall {
    pub(super) fn send_to(self, sink: &mut dyn EncodedSink) -> Result<(), ImportError> {
        match self {
            Self::Session(head) => sink.session(*head),
            Self::Loop(record) => sink.begin_loop(*record),
            Self::Message(loop_id, message, origin, bytes) => {
                sink.encoded(loop_id, message, origin, bytes)
            }
            Self::Compaction(found) => sink.compaction(*found),
            Self::EndOfDocument => sink.end_document(),
            Self::Skip(line, reason) => {
                sink.skip(line, reason);
                Ok(())
            }
            Self::Repaired(line, count, what) => {
                sink.repaired(line, count, &what);
                Ok(())
            }
            Self::Note(note) => {
                sink.note(note);
                Ok(())
            }
        }
    }
}

/// Set by the writer when encoding ahead is wasted: the session is stored already, or redacted.
#[derive(Clone, Default)]
pub(super) struct SkipEncoding(Arc<AtomicBool>);

impl SkipEncoding {
    /// Returns a flag that is set from the beginning.
    pub(super) fn always() -> Self {
        let skip = Self::default();
        skip.set();
        skip
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state that a reader thread needs to compute digests and encode messages.
#[derive(Clone)]
pub(super) struct Encoder<'a> {
    pub(super) digests: Digests,
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) skip_encoding: SkipEncoding,
}

/// A transcript that is being read on another thread.
pub(super) struct ReaderThread<'scope> {
    calls: Receiver<Vec<SinkCall>>,
    reader: ScopedJoinHandle<'scope, Result<(), ImportError>>,
}

impl<'scope> ReaderThread<'scope> {
    /// Starts a thread that runs `read`.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        encoder: Encoder<'scope>,
        read: impl FnOnce(&mut dyn Sink) -> Result<(), ImportError> + Send + 'scope,
    ) -> Self {
        let (send, calls) = sync_channel(WAITING);
        let reader = scope.spawn(move || {
            let mut queue = QueueSink::new(send, encoder);
            let done = read(&mut queue);
            queue.hand_over().and(done)
        });
        Self { calls, reader }
    }

    /// Passes everything that is read to `sink` on this thread, in order.
    ///
    /// # Errors
    /// Returns the error of the sink or of the importer.
    pub(super) fn run(self, sink: &mut dyn EncodedSink) -> Result<(), ImportError> {
        let mut calls = self.calls.iter().flatten();
        let written = calls.try_for_each(|call| call.send_to(sink));
        drop(calls);
        // Otherwise a reader that is ahead would wait for a writer that has stopped.
        drop(self.calls);
        let read = match self.reader.join() {
            Ok(read) => read,
            Err(panicked) => panic::resume_unwind(panicked),
        };
        written.and(read)
    }
}

/// The sink on the side of the reader.
struct QueueSink<'a> {
    send: SyncSender<Vec<SinkCall>>,
    encoder: Encoder<'a>,
    batch: Vec<SinkCall>,
    bytes: usize,
}

impl<'a> QueueSink<'a> {
    fn new(send: SyncSender<Vec<SinkCall>>, encoder: Encoder<'a>) -> Self {
        Self {
            send,
            encoder,
            batch: Vec::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, call: SinkCall, bytes: usize) -> Result<(), ImportError> {
        self.batch.push(call);
        self.bytes += bytes;
        if self.bytes >= BATCH_BYTES || self.batch.len() >= BATCH_CALLS {
            return self.hand_over();
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), ImportError> {
        self.bytes = 0;
        let batch = mem::take(&mut self.batch);
        // The error of the writer itself is the one reported.
        let stopped = |_| ImportError::Refused("the writer has stopped".into());
        self.send.send(batch).map_err(stopped)
    }
}

impl Sink for QueueSink<'_> {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        self.push(SinkCall::Session(Box::new(head)), 0)
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        self.push(SinkCall::Loop(Box::new(record)), 0)
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        for note in received::notes(&message) {
            self.push(SinkCall::Note(note), 0)?;
        }
        let origin = self.encoder.digests.of(raw);
        let message = match self.encoder.skip_encoding.is_set() {
            true => message.into(),
            false => PendingMessage::encoded(message, origin, self.encoder.counter)?,
        };
        let call = SinkCall::Message(loop_id.clone(), message, origin, raw.len());
        self.push(call, raw.len())
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        self.push(SinkCall::Compaction(Box::new(found)), 0)
    }

    fn end_document(&mut self) -> Result<(), ImportError> {
        self.push(SinkCall::EndOfDocument, 0)
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        // If the writer has stopped, the next call returns the error.
        self.push(SinkCall::Skip(line, reason), 0).ok();
    }

    fn repaired(&mut self, line: Option<u64>, count: u64, what: &str) {
        self.push(SinkCall::Repaired(line, count, what.to_owned()), 0)
            .ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::model::{LoopRecord, Message};
    use loopstore::tokens::HeuristicTokenCounter;

    const MESSAGES: usize = 5_000;

    /// Emits this many messages, then fails or panics as `end` says.
    fn read(end: &str, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let id = LoopId::new("l").unwrap();
        sink.begin_loop(LoopRecord::new(id.clone(), None))?;
        for number in 0..MESSAGES {
            let message = Message::user(number.to_string()).into();
            sink.message(&id, message, &vec![b'x'; number])?;
            sink.skip(Some(number as u64), "odd".into());
        }
        match end {
            "fails" => Err(ImportError::NoTranscript("it ends here".into())),
            "panics" => panic!("out of order"),
            _ => Ok(()),
        }
    }

    /// Records its calls, and fails after a number of messages.
    struct Notes {
        seen: Vec<String>,
        most: usize,
        skip_encoding: SkipEncoding,
    }

    impl Sink for Notes {
        fn session(&mut self, _: SessionHead) -> Result<(), ImportError> {
            Ok(())
        }

        fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
            self.seen.push(record.loop_id.to_string());
            Ok(())
        }

        fn message(&mut self, _: &LoopId, _: AgentMessage, _: &[u8]) -> Result<(), ImportError> {
            Err(ImportError::Refused("a message without its digest".into()))
        }

        fn compaction(&mut self, _: FoundCompaction) -> Result<(), ImportError> {
            Ok(())
        }

        fn skip(&mut self, line: Option<u64>, reason: String) {
            self.seen.push(format!("{reason} {}", line.unwrap()));
        }
    }

    impl EncodedSink for Notes {
        fn encoded(
            &mut self,
            _: LoopId,
            message: PendingMessage,
            _: RecordDigest,
            bytes: usize,
        ) -> Result<(), ImportError> {
            if self.seen.len() > self.most {
                return Err(ImportError::Refused("full".into()));
            }
            if self.seen.len() > MESSAGES {
                self.skip_encoding.set();
            }
            let message = message.into_message()?;
            let texts = message.message().unwrap().texts().collect::<String>();
            self.seen.push(format!("{texts} {bytes}"));
            Ok(())
        }
    }

    fn run(end: &str, most: usize) -> (Vec<String>, Result<(), ImportError>) {
        let skip_encoding = SkipEncoding::default();
        let mut notes = Notes {
            seen: Vec::new(),
            most,
            skip_encoding: skip_encoding.clone(),
        };
        let encoder = Encoder {
            digests: Digests::default(),
            counter: &HeuristicTokenCounter,
            skip_encoding,
        };
        let done = std::thread::scope(|scope| {
            ReaderThread::start(scope, encoder, |sink| read(end, sink)).run(&mut notes)
        });
        (notes.seen, done)
    }

    #[test]
    fn everything_comes_in_order() {
        let each = |n: usize| [format!("{n} {n}"), format!("odd {n}")];
        let all = std::iter::once("l".to_owned()).chain((0..MESSAGES).flat_map(each));
        let (seen, done) = run("a", usize::MAX);
        assert!(done.is_ok() && seen.into_iter().eq(all.clone()));
        let (seen, done) = run("fails", usize::MAX);
        assert_eq!(done.unwrap_err().to_string(), "it ends here");
        assert!(seen.into_iter().eq(all), "what came before");
    }

    #[test]
    fn a_writer_that_gives_up_stops_the_reader() {
        let (seen, done) = run("a", 3);
        assert_eq!(done.unwrap_err().to_string(), "full");
        assert_eq!(seen.len(), 5);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn a_reader_that_panics_panics_here() {
        let _ = run("panics", usize::MAX);
    }
}
