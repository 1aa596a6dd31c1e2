//! The process of the agent, and the pumps between it and the editor.

use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::counts::{PassedCounts, Unrecorded, add};
use crate::gate::{AgentGate, EditorGate};
use crate::outlet::Outlet;
use crate::queue::{Direction, LineQueue};
use crate::shared::Shared;
use crate::worker::{StoreOpener, Worker, WorkerReport};

/// The size of the pieces that are passed on.
const PIECE: usize = 64 << 10;
/// The bytes that wait for the recorder at most.
const MAX_WAITING: usize = 64 << 20;
/// The time that another process which has the agent's stdout may be silent after the agent has ended.
const SILENCE: Duration = Duration::from_secs(2);
/// The niceness of the thread that records.
#[cfg(target_os = "linux")]
const RECORDER_NICENESS: i32 = 10;
/// The time that the recorder has after the agent has ended.
const TIME_TO_FINISH: Duration = Duration::from_secs(10);

/// The options of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOptions {
    /// True to replace secrets by markers before anything is stored.
    pub redact: bool,
    /// True to pass every byte on unchanged, and to answer nothing from the store.
    pub record_only: bool,
    /// The maximum number of tokens of a stored conversation that a new session of the agent continues.
    pub max_tokens: u64,
    /// The name of the agent until it tells its own.
    pub agent: String,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            redact: false,
            record_only: false,
            max_tokens: 30_000,
            agent: "agent".into(),
        }
    }
}

/// A number of parts that were passed on and not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnrecordedCount {
    /// The reason.
    pub reason: Unrecorded,
    /// The number of lines, messages or bytes, as the reason says.
    pub count: u64,
}

/// The result of a connection.
#[derive(Debug)]
pub struct ProxyReport {
    /// The exit status of the agent.
    pub status: ExitStatus,
    /// The number of prompts that were recorded.
    pub prompts: u64,
    /// The parts that were not recorded.
    pub unrecorded: Vec<UnrecordedCount>,
    /// The first error of the store.
    pub error: Option<String>,
}

/// A handle on the agent's process for another thread, which passes signals on.
#[derive(Clone, Debug, Default)]
pub struct AgentProcess(Arc<Mutex<ProcessState>>);

#[derive(Debug)]
enum ProcessState {
    /// The process does not run yet; it gets these signals when it does.
    Starting(Vec<i32>),
    Running(Pid),
    Ended,
}

impl Default for ProcessState {
    fn default() -> Self {
        Self::Starting(Vec::new())
    }
}

impl AgentProcess {
    /// Sends a signal to the agent; at its start if it is not running yet.
    pub fn signal(&self, number: i32) {
        match &mut *self.state() {
            ProcessState::Starting(signals) => signals.push(number),
            ProcessState::Running(pid) => send(*pid, number),
            ProcessState::Ended => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, child: &Child) {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let state = pid.map_or(ProcessState::Ended, ProcessState::Running);
        let before = std::mem::replace(&mut *self.state(), state);
        if let ProcessState::Starting(signals) = before {
            signals.into_iter().for_each(|number| self.signal(number));
        }
    }

    fn end(&self) {
        *self.state() = ProcessState::Ended;
    }
}

fn send(pid: Pid, number: i32) {
    if let Some(signal) = Signal::from_named_raw(number) {
        // The agent may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// A connection between an editor and an agent.
pub struct Proxy {
    /// The command that starts the agent.
    pub command: Command,
    /// The options.
    pub options: ProxyOptions,
    /// The process of the agent, once it runs.
    pub process: AgentProcess,
    /// A function that reports at once that nothing is recorded, with the reason.
    pub warn: Box<dyn Fn(&str) + Send>,
}

impl Proxy {
    /// Returns a proxy for the agent that a command starts.
    pub fn new(command: Command, options: ProxyOptions) -> Self {
        Self {
            command,
            options,
            process: AgentProcess::default(),
            warn: Box::new(|_| {}),
        }
    }

    /// Starts the agent and passes bytes on until it ends. `input` and `output` are the streams of the editor.
    ///
    /// # Errors
    /// If the agent cannot be started. Nothing else fails: errors of the store are in the report.
    pub fn run(
        mut self,
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
        open: StoreOpener,
    ) -> io::Result<ProxyReport> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = self.command.spawn()?;
        self.process.start(&child);
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let shared = Arc::new(Shared::new(
            LineQueue::new(MAX_WAITING),
            Outlet::new(Box::new(stdin)),
            Outlet::new(Box::new(output)),
            !self.options.record_only,
        ));
        let reports = self.start_worker(&shared, open);
        pump_editor(&shared, input);
        let passed = Arc::new(AtomicU64::new(0));
        let ended = pump_agent(&shared, stdout, &passed);
        let status = child.wait();
        self.process.end();
        wait_for_end(&ended, &passed);
        shared.to_editor.close();
        shared.queue.finish();
        let report = match reports.recv_timeout(TIME_TO_FINISH) {
            Ok(report) => report,
            Err(_) => unfinished(&shared),
        };
        Ok(ProxyReport {
            status: status?,
            prompts: report.prompts,
            unrecorded: counted(report.counts),
            error: report.error,
        })
    }

    fn start_worker(&mut self, shared: &Arc<Shared>, open: StoreOpener) -> Receiver<WorkerReport> {
        let (sender, reports) = channel();
        let (shared, options) = (Arc::clone(shared), self.options.clone());
        let warn = std::mem::replace(&mut self.warn, Box::new(|_| {}));
        thread::spawn(move || {
            let limits = (options.redact, options.max_tokens);
            let worker = Worker::open(shared, open, &options.agent, limits);
            if let Some(error) = worker.error() {
                warn(error);
            }
            yield_to_pumps();
            let _ = sender.send(worker.run());
        });
        reports
    }
}

/// Lowers the priority of this thread, so that recording delays no message on a busy machine.
#[cfg(target_os = "linux")]
fn yield_to_pumps() {
    use rustix::process::{getpriority_process, setpriority_process};
    // Priorities are those of threads on Linux. Without the change it records all the same.
    let own = getpriority_process(None).unwrap_or(0);
    let _ = setpriority_process(None, own.max(RECORDER_NICENESS));
}

#[cfg(not(target_os = "linux"))]
fn yield_to_pumps() {}

/// Passes the editor's bytes on in a thread, which ends with the process if the editor sends nothing more.
fn pump_editor(shared: &Arc<Shared>, input: impl Read + Send + 'static) {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut gate = EditorGate::new(Arc::clone(&shared));
        let passed = pump(input, |bytes| {
            shared.queue.push_bytes(Direction::ToAgent, bytes);
            let passed = gate.pass(bytes);
            shared.queue.wake();
            passed
        });
        // An agent that reads no more gets nothing more.
        let _ = passed.and_then(|()| gate.finish());
        shared.to_agent.close();
    });
}

/// Passes the agent's bytes on in a thread. The channel closes at the end of the stream.
fn pump_agent(
    shared: &Arc<Shared>,
    output: impl Read + Send + 'static,
    count: &Arc<AtomicU64>,
) -> Receiver<()> {
    let (sender, ended) = channel();
    let (shared, count) = (Arc::clone(shared), Arc::clone(count));
    thread::spawn(move || {
        let mut gate = AgentGate::new(Arc::clone(&shared));
        let passed = pump(output, |bytes| {
            count.fetch_add(1, Ordering::Relaxed);
            // Before the write: what the editor sends next must come after it in the queue.
            shared.queue.push_bytes(Direction::ToEditor, bytes);
            let passed = gate.pass(bytes);
            shared.queue.wake();
            passed
        });
        let _ = passed.and_then(|()| gate.finish());
        drop(sender);
    });
    ended
}

/// Reads a stream to its end.
fn pump(mut input: impl Read, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => each(&piece[..length])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the end of the agent's stream. A process that the agent has started may still have the stream.
fn wait_for_end(ended: &Receiver<()>, passed: &AtomicU64) {
    let mut before = passed.load(Ordering::Relaxed);
    while ended.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
        let now = passed.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

/// Returns the report on a worker that is not done.
fn unfinished(shared: &Shared) -> WorkerReport {
    let mut report = WorkerReport::default();
    let waiting = shared.queue.waiting_bytes();
    add(&mut report.counts, Unrecorded::DroppedBytes, waiting);
    let seconds = TIME_TO_FINISH.as_secs();
    report.error = Some(format!("the store did not finish within {seconds} seconds"));
    report
}

fn counted(counts: PassedCounts) -> Vec<UnrecordedCount> {
    let counts = counts.into_iter();
    counts
        .map(|(reason, count)| UnrecordedCount { reason, count })
        .collect()
}
