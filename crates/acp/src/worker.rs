//! The worker: records what the pumps have passed on, and answers from the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopstore::Store;

use crate::counts::{PassedCounts, Unrecorded, add};
use crate::gate::own_key;
use crate::lines::{Line, LineReader, SkippedLine};
use crate::queue::{Direction, Item, Popped};
use crate::record::Recorder;
use crate::serve::{ServeRequest, Server};
use crate::shared::{Offered, Phase, Shared};

/// The time between two renewals of leases.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// A function that opens the store.
pub type StoreOpener = Box<dyn FnOnce() -> Result<Store, String> + Send>;

/// The state of the worker's thread.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// `None` if the store did not open, or the recorder has stopped.
    recorder: Option<Recorder>,
    to_agent: LineReader,
    to_editor: LineReader,
    max_tokens: u64,
    requests: u64,
    counts: PassedCounts,
    error: Option<String>,
}

/// The result of the worker.
#[derive(Default)]
pub(crate) struct WorkerReport {
    pub prompts: u64,
    pub counts: PassedCounts,
    pub error: Option<String>,
}

impl Worker {
    /// Opens the store.
    pub fn open(
        shared: Arc<Shared>,
        open: StoreOpener,
        agent: &str,
        (redact, max_tokens): (bool, u64),
    ) -> Self {
        let opened = catch_unwind(AssertUnwindSafe(open));
        let opened = opened.unwrap_or_else(|_| Err("opening the store panicked".into()));
        shared.set_store(opened.is_ok());
        let (recorder, error) = match opened {
            Ok(store) => (Some(Recorder::new(store, agent, redact)), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            shared,
            recorder,
            to_agent: LineReader::default(),
            to_editor: LineReader::default(),
            max_tokens,
            requests: 0,
            counts: PassedCounts::new(),
            error,
        }
    }

    /// Returns the reason that nothing is recorded.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Works until the queue is finished.
    pub fn run(mut self) -> WorkerReport {
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            let deadline = self.recorder.as_ref().and_then(Recorder::next_deadline);
            let deadline = deadline.map_or(beat, |deadline| deadline.min(beat));
            let time = deadline.saturating_duration_since(Instant::now());
            match self.shared.queue.pop(Some(time)) {
                Popped::Item(item) => self.item(item),
                Popped::TimedOut => {}
                Popped::Finished => break,
            }
            let deadline = self.recorder.as_ref().and_then(Recorder::next_deadline);
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.guarded(Recorder::store_complete);
            }
            if Instant::now() >= beat {
                self.guarded(Recorder::heartbeat);
                beat = Instant::now() + HEARTBEAT;
            }
        }
        for direction in [Direction::ToAgent, Direction::ToEditor] {
            self.lines(direction, |reader, each| reader.finish(each));
        }
        self.guarded(Recorder::finish);
        self.stop(None);
        WorkerReport {
            prompts: self.requests_recorded(),
            counts: self.counts,
            error: self.error,
        }
    }

    fn requests_recorded(&self) -> u64 {
        self.recorder
            .as_ref()
            .map_or(0, |recorder| recorder.prompts)
    }

    fn item(&mut self, item: Item) {
        match item {
            Item::Bytes(direction, bytes) => self.lines(direction, |reader, each| {
                reader.feed(&bytes, each);
            }),
            Item::Dropped(direction, bytes) => {
                add(&mut self.counts, Unrecorded::DroppedBytes, bytes);
                self.reader(direction).skip();
            }
            Item::Serve(request) => self.serve(request),
        }
    }

    fn reader(&mut self, direction: Direction) -> &mut LineReader {
        match direction {
            Direction::ToAgent => &mut self.to_agent,
            Direction::ToEditor => &mut self.to_editor,
        }
    }

    fn lines(
        &mut self,
        direction: Direction,
        read: impl FnOnce(&mut LineReader, &mut dyn FnMut(Line<'_>)),
    ) {
        let mut reader = std::mem::take(self.reader(direction));
        read(&mut reader, &mut |line| self.line(direction, line));
        *self.reader(direction) = reader;
    }

    fn line(&mut self, direction: Direction, line: Line<'_>) {
        match line {
            Line::Whole(line) if self.recorder.is_some() => {
                self.guarded(|recorder| recorder.line(direction, line));
            }
            Line::Whole(line) => {
                let bytes = line.len() as u64 + 1;
                add(&mut self.counts, Unrecorded::DroppedBytes, bytes);
            }
            Line::Skipped(SkippedLine::TooLong) => add(&mut self.counts, Unrecorded::TooLong, 1),
            Line::Skipped(SkippedLine::Incomplete) => {
                add(&mut self.counts, Unrecorded::Incomplete, 1);
            }
        }
    }

    /// Calls the recorder; after a panic nothing more is recorded.
    fn guarded(&mut self, work: impl FnOnce(&mut Recorder)) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| work(recorder))).is_err() {
            self.stop(Some("the recorder panicked"));
            self.recorder = None;
        }
    }

    /// Takes over the counts of the recorder.
    fn stop(&mut self, error: Option<&str>) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        for (reason, count) in std::mem::take(&mut recorder.counts) {
            add(&mut self.counts, reason, count);
        }
        let error = error.map(str::to_owned).or(recorder.error.take());
        self.error = self.error.take().or(error);
    }

    fn serve(&mut self, request: ServeRequest) {
        let loads_itself = match self.shared.serving().phase {
            Phase::Ready(Offered { load, .. }) => !load,
            _ => false,
        };
        let key = own_key(&request.id);
        if let (Some(recorder), Some(key)) = (&mut self.recorder, &key) {
            recorder.forget_request(key);
        }
        let recorder = self.recorder.as_ref();
        let agent = recorder.map(|recorder| recorder.agent().to_owned());
        let mut server = Server {
            shared: &self.shared,
            store: recorder.map(Recorder::store),
            agent: agent.filter(|_| loads_itself),
            max_tokens: self.max_tokens,
            requests: &mut self.requests,
        };
        let begun = server.answer(request);
        if let (Some(begun), Some(recorder)) = (begun, &mut self.recorder) {
            recorder.expect_session(begun.key, begun.session_id);
        }
    }
}
