//! Reading ahead of the writer: a transcript is parsed on a thread of its own, which also makes the
//! stored form of its messages, so that the writer is left with the rows. What is told, and in which
//! order, does not depend on how far ahead the reader is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::{mem, panic};

use super::matching::{Digest, Digests};
use super::said::Said;
use super::{FoundCompaction, ImportError, SessionHead, Sink};
use crate::model::{AgentMessage, LoopId, LoopRecord};
use crate::tokens::TokenCounter;

/// A batch is handed over when it holds this much of records, in bytes …
const BATCH_BYTES: usize = 128 << 10;
/// … or so many of them.
const BATCH_CALLS: usize = 64;
/// Batches that wait for the writer at most: little memory, however large the transcript, and enough to
/// go on with while it waits for the disk.
const WAITING: usize = 16;

/// One call of a sink.
enum Call {
    Session(Box<SessionHead>),
    Loop(Box<LoopRecord>),
    Message(LoopId, Said, Digest, usize),
    Compaction(Box<FoundCompaction>),
    Skip(Option<u64>, String),
}

/// A sink that is told of messages whose digests are made.
pub(super) trait Listener: Sink {
    /// Takes a message whose record has this digest and so many bytes.
    fn said(
        &mut self,
        loop_key: LoopId,
        said: Said,
        origin: Digest,
        bytes: usize,
    ) -> Result<(), ImportError>;
}

impl Call {
    fn tell(self, listener: &mut dyn Listener) -> Result<(), ImportError> {
        match self {
            Self::Session(head) => listener.session(*head),
            Self::Loop(record) => listener.begin_loop(*record),
            Self::Message(loop_key, said, origin, bytes) => {
                listener.said(loop_key, said, origin, bytes)
            }
            Self::Compaction(found) => listener.compaction(*found),
            Self::Skip(line, reason) => {
                listener.skip(line, reason);
                Ok(())
            }
        }
    }
}

/// Said by the writer when stored forms are not worth making: the session is known, or redacted.
#[derive(Clone, Default)]
pub(super) struct Plain(Arc<AtomicBool>);

impl Plain {
    /// One that was said already.
    pub(super) fn said() -> Self {
        let plain = Self::default();
        plain.say();
        plain
    }

    pub(super) fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a reader needs to make digests and stored forms.
#[derive(Clone)]
pub(super) struct Forms<'a> {
    pub(super) digests: Digests,
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) plain: Plain,
}

/// A transcript that is being read on another thread.
pub(super) struct Reading<'scope> {
    calls: Receiver<Vec<Call>>,
    reader: ScopedJoinHandle<'scope, Result<(), ImportError>>,
}

impl<'scope> Reading<'scope> {
    /// Begins to run `read`.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        forms: Forms<'scope>,
        read: impl FnOnce(&mut dyn Sink) -> Result<(), ImportError> + Send + 'scope,
    ) -> Self {
        let (send, calls) = sync_channel(WAITING);
        let reader = scope.spawn(move || {
            let mut ahead = Ahead::new(send, forms);
            let done = read(&mut ahead);
            ahead.hand_over().and(done)
        });
        Self { calls, reader }
    }

    /// Tells `listener` on this thread what is read, in order.
    ///
    /// # Errors
    /// What the listener or the importer returns.
    pub(super) fn tell(self, listener: &mut dyn Listener) -> Result<(), ImportError> {
        let mut calls = self.calls.iter().flatten();
        let told = calls.try_for_each(|call| call.tell(listener));
        drop(calls);
        // Without this a reader that is ahead would wait for a writer that has given up.
        drop(self.calls);
        let read = match self.reader.join() {
            Ok(read) => read,
            Err(panicked) => panic::resume_unwind(panicked),
        };
        told.and(read)
    }
}

/// The sink on the reader's side.
struct Ahead<'a> {
    send: SyncSender<Vec<Call>>,
    forms: Forms<'a>,
    batch: Vec<Call>,
    bytes: usize,
}

impl<'a> Ahead<'a> {
    fn new(send: SyncSender<Vec<Call>>, forms: Forms<'a>) -> Self {
        Self {
            send,
            forms,
            batch: Vec::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, call: Call, bytes: usize) -> Result<(), ImportError> {
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
        // The writer's own error is the one that is told.
        let stopped = |_| ImportError::Refused("the writer has stopped".into());
        self.send.send(batch).map_err(stopped)
    }
}

impl Sink for Ahead<'_> {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        self.push(Call::Session(Box::new(head)), 0)
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        self.push(Call::Loop(Box::new(record)), 0)
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let origin = self.forms.digests.of(raw);
        let said = match self.forms.plain.is_said() {
            true => message.into(),
            false => Said::ready(message, origin, self.forms.counter)?,
        };
        let call = Call::Message(loop_id.clone(), said, origin, raw.len());
        self.push(call, raw.len())
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        self.push(Call::Compaction(Box::new(found)), 0)
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        // A writer that has stopped is met again at the next call.
        self.push(Call::Skip(line, reason), 0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LoopRecord, Message};
    use crate::tokens::HeuristicTokenCounter;

    const MESSAGES: usize = 5_000;

    /// Tells so many messages, and fails or panics at the end if it is to.
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

    /// Notes what it is told, and refuses after so many messages.
    struct Notes {
        told: Vec<String>,
        most: usize,
        plain: Plain,
    }

    impl Sink for Notes {
        fn session(&mut self, _: SessionHead) -> Result<(), ImportError> {
            Ok(())
        }

        fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
            self.told.push(record.loop_id.to_string());
            Ok(())
        }

        fn message(&mut self, _: &LoopId, _: AgentMessage, _: &[u8]) -> Result<(), ImportError> {
            Err(ImportError::Refused("a message without its digest".into()))
        }

        fn compaction(&mut self, _: FoundCompaction) -> Result<(), ImportError> {
            Ok(())
        }

        fn skip(&mut self, line: Option<u64>, reason: String) {
            self.told.push(format!("{reason} {}", line.unwrap()));
        }
    }

    impl Listener for Notes {
        fn said(
            &mut self,
            _: LoopId,
            said: Said,
            _: Digest,
            bytes: usize,
        ) -> Result<(), ImportError> {
            if self.told.len() > self.most {
                return Err(ImportError::Refused("full".into()));
            }
            if self.told.len() > MESSAGES {
                self.plain.say();
            }
            let message = said.into_message()?;
            let texts = message.message().unwrap().texts().collect::<String>();
            self.told.push(format!("{texts} {bytes}"));
            Ok(())
        }
    }

    fn run(end: &str, most: usize) -> (Vec<String>, Result<(), ImportError>) {
        let plain = Plain::default();
        let mut notes = Notes {
            told: Vec::new(),
            most,
            plain: plain.clone(),
        };
        let forms = Forms {
            digests: Digests::default(),
            counter: &HeuristicTokenCounter,
            plain,
        };
        let done = std::thread::scope(|scope| {
            Reading::start(scope, forms, |sink| read(end, sink)).tell(&mut notes)
        });
        (notes.told, done)
    }

    #[test]
    fn everything_is_told_in_order() {
        let each = |n: usize| [format!("{n} {n}"), format!("odd {n}")];
        let all = std::iter::once("l".to_owned()).chain((0..MESSAGES).flat_map(each));
        let (told, done) = run("a", usize::MAX);
        assert!(done.is_ok() && told.into_iter().eq(all.clone()));
        let (told, done) = run("fails", usize::MAX);
        assert_eq!(done.unwrap_err().to_string(), "it ends here");
        assert!(told.into_iter().eq(all), "what was told before");
    }

    #[test]
    fn a_writer_that_gives_up_stops_the_reader() {
        let (told, done) = run("a", 3);
        assert_eq!(done.unwrap_err().to_string(), "full");
        assert_eq!(told.len(), 5);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn a_reader_that_panics_panics_here() {
        let _ = run("panics", usize::MAX);
    }
}
