//! Reading ahead of the writer: a transcript is parsed on a thread of its own, so that parsing and
//! writing share the work of an import.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::{mem, panic, thread};

use super::{FoundCompaction, ImportError, Importer, SessionHead, Sink, Source};
use crate::model::{AgentMessage, LoopId, LoopRecord};

/// A batch is handed over when it holds this much of records, in bytes …
const BATCH_BYTES: usize = 128 << 10;
/// … or so many of them.
const BATCH_CALLS: usize = 64;
/// Batches that wait for the writer at most: little memory, however large the transcript.
const WAITING: usize = 4;

/// One call of a sink.
enum Call {
    Session(Box<SessionHead>),
    Loop(Box<LoopRecord>),
    Message(LoopId, Box<AgentMessage>, Vec<u8>),
    Compaction(Box<FoundCompaction>),
    Skip(Option<u64>, String),
}

impl Call {
    fn tell(self, sink: &mut dyn Sink) -> Result<(), ImportError> {
        match self {
            Self::Session(head) => sink.session(*head),
            Self::Loop(record) => sink.begin_loop(*record),
            Self::Message(loop_id, message, raw) => sink.message(&loop_id, *message, &raw),
            Self::Compaction(found) => sink.compaction(*found),
            Self::Skip(line, reason) => {
                sink.skip(line, reason);
                Ok(())
            }
        }
    }
}

/// Imports a transcript: reads it on another thread and tells `sink` on this one, in order.
///
/// # Errors
/// What the sink or the importer returns.
pub(super) fn import(
    importer: &dyn Importer,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<(), ImportError> {
    let (send, receive) = sync_channel::<Vec<Call>>(WAITING);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut ahead = Ahead::new(send);
            let read = importer.import(source, &mut ahead);
            ahead.hand_over().and(read)
        });
        let mut calls = receive.iter().flatten();
        let told = calls.try_for_each(|call| call.tell(sink));
        drop(calls);
        // Without this a reader that is ahead would wait for a writer that has given up.
        drop(receive);
        let read = match reader.join() {
            Ok(read) => read,
            Err(panicked) => panic::resume_unwind(panicked),
        };
        told.and(read)
    })
}

/// The sink on the reader's side.
struct Ahead {
    send: SyncSender<Vec<Call>>,
    batch: Vec<Call>,
    bytes: usize,
}

impl Ahead {
    fn new(send: SyncSender<Vec<Call>>) -> Self {
        Self {
            send,
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
        let stopped = |_| ImportError::Store("the writer has stopped".into());
        self.send.send(batch).map_err(stopped)
    }
}

impl Sink for Ahead {
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
        let call = Call::Message(loop_id.clone(), Box::new(message), raw.to_vec());
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
    use std::io::Cursor;
    use std::path::Path;

    const MESSAGES: usize = 5_000;

    /// Tells so many messages, and fails or panics at the end if its path says so.
    struct Many;

    impl Importer for Many {
        fn format(&self) -> &'static str {
            "many"
        }

        fn detect(&self, _: &Path, _: &[u8]) -> bool {
            true
        }

        fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
            let id = LoopId::new("l").unwrap();
            sink.begin_loop(LoopRecord::new(id.clone(), None))?;
            for number in 0..MESSAGES {
                let message = Message::user(number.to_string()).into();
                sink.message(&id, message, &vec![b'x'; number])?;
                sink.skip(Some(number as u64), "odd".into());
            }
            match source.path.to_str() {
                Some("fails") => Err(ImportError::NoTranscript("it ends here".into())),
                Some("panics") => panic!("out of order"),
                _ => Ok(()),
            }
        }
    }

    /// Notes what it is told, and refuses after so many messages.
    struct Notes {
        told: Vec<String>,
        most: usize,
    }

    impl Sink for Notes {
        fn session(&mut self, _: SessionHead) -> Result<(), ImportError> {
            Ok(())
        }

        fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
            self.told.push(record.loop_id.to_string());
            Ok(())
        }

        fn message(
            &mut self,
            _: &LoopId,
            message: AgentMessage,
            raw: &[u8],
        ) -> Result<(), ImportError> {
            if self.told.len() > self.most {
                return Err(ImportError::Store("full".into()));
            }
            let texts = message.message().unwrap().texts().collect::<String>();
            self.told.push(format!("{texts} {}", raw.len()));
            Ok(())
        }

        fn compaction(&mut self, _: FoundCompaction) -> Result<(), ImportError> {
            Ok(())
        }

        fn skip(&mut self, line: Option<u64>, reason: String) {
            self.told.push(format!("{reason} {}", line.unwrap()));
        }
    }

    fn run(path: &str, most: usize) -> (Vec<String>, Result<(), ImportError>) {
        let mut notes = Notes {
            told: Vec::new(),
            most,
        };
        let mut source = Source {
            path: Path::new(path),
            reader: &mut Cursor::new(Vec::new()),
        };
        let done = import(&Many, &mut source, &mut notes);
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
