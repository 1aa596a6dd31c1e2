//! A summariser that runs a command, with the prompt on its stdin and the summary on its stdout.
//!
//! A command may start other processes, may not read its input, and may never end or stop writing. So it runs in a
//! process group of its own, which is killed as a whole, and each of its three pipes has a thread.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::summarizer::{LOOK, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// The bytes at the end of stderr that are kept.
const STDERR_BYTES: usize = 4_096;
/// The most characters of the last line of stderr in an error.
const REASON_CHARS: usize = 200;
/// The time to wait for the pipes of a command that has ended; processes that it started may keep them open.
const PIPES: Duration = Duration::from_secs(2);

/// A [`Summarizer`] that runs a command with `sh -c` for each summary. The command reads the system text, an empty line
/// and the prompt from stdin, and writes the summary to stdout. An exit code other than 0 is an error with the last
/// line of stderr. At the request's deadline, or when the request is cancelled, the command and all processes that it
/// started are killed.
///
/// ```
/// use loopstore_summarize::{CommandSummarizer, SummarizeCompaction};
/// use std::sync::Arc;
///
/// let model = CommandSummarizer::new("llm -m local");
/// let strategy = SummarizeCompaction::new(Arc::new(model));
/// # drop(strategy);
/// ```
#[derive(Clone, Debug)]
pub struct CommandSummarizer {
    name: String,
    command: String,
    max_answer_bytes: u64,
}

impl CommandSummarizer {
    /// Returns a summariser that runs this shell command line.
    pub fn new(command: impl Into<String>) -> Self {
        let command = command.into();
        Self {
            name: name_of(&command),
            command,
            max_answer_bytes: 1_000_000,
        }
    }

    /// Sets the most bytes of an answer (default 1,000,000); a command that writes more is killed.
    #[must_use]
    pub fn max_answer_bytes(mut self, bytes: u64) -> Self {
        self.max_answer_bytes = bytes;
        self
    }

    fn start(&self) -> Result<Child, SummarizerError> {
        let mut command = Command::new("sh");
        command
            .args(["-c", &self.command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn();
        child.map_err(|error| SummarizerError::Failed(format!("cannot run the command: {error}")))
    }
}

/// Returns the name of a command without its arguments, which may contain a secret; different lines have different
/// names.
fn name_of(command: &str) -> String {
    let is_variable = |word: &&str| word.contains('=');
    let program = command.split_whitespace().find(|word| !is_variable(word));
    let program = program.unwrap_or("sh");
    let program = program.rsplit('/').next().unwrap_or(program);
    let digest = Sha256::digest(command.as_bytes());
    let [a, b, c, ..] = <[u8; 32]>::from(digest);
    format!("command {program} {a:02x}{b:02x}{c:02x}")
}

impl Summarizer for CommandSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let begun = Instant::now();
        request.time_left()?;
        let mut running = Running::of(self.start()?, self.max_answer_bytes, request)?;
        let status = running.wait(request)?;
        // Processes that it left running would keep the pipes open.
        running.kill();
        let (answer, stderr) = running.output();
        if !status.success() {
            return Err(failed(status, &stderr));
        }
        Ok(SummaryAnswer {
            text: answer?,
            duration: begun.elapsed(),
            ..SummaryAnswer::default()
        })
    }
}

/// A running command; dropping it kills its process group.
struct Running {
    child: Child,
    answer: Receiver<Result<Vec<u8>, SummarizerError>>,
    stderr: Receiver<Vec<u8>>,
    answered: Option<Result<Vec<u8>, SummarizerError>>,
    is_ended: bool,
}

impl Running {
    fn of(mut child: Child, most: u64, request: &SummaryRequest) -> Result<Self, SummarizerError> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (send_answer, answer) = mpsc::channel();
        let (send_stderr, stderr) = mpsc::channel();
        let running = Self {
            child,
            answer,
            stderr,
            answered: None,
            is_ended: false,
        };
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(SummarizerError::Failed("the command has no pipes".into()));
        };
        let prompt = format!("{}\n\n{}\n", request.system, request.prompt);
        // These threads are not joined: they end with the pipes. A command need not read its prompt.
        spawn(move || {
            let _ = stdin.write_all(prompt.as_bytes());
        })?;
        spawn(move || {
            let _ = send_answer.send(read_bounded(stdout, most));
        })?;
        spawn(move || {
            let _ = send_stderr.send(read_end(stderr));
        })?;
        Ok(running)
    }

    /// Waits until the command has ended.
    fn wait(&mut self, request: &SummaryRequest) -> Result<ExitStatus, SummarizerError> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.is_ended = true;
                return Ok(status);
            }
            request.time_left()?;
            if self.answered.is_none() {
                self.answered = self.answer.recv_timeout(LOOK).ok();
                if let Some(Err(error)) = &self.answered {
                    return Err(error.clone());
                }
            } else {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Returns its answer, and the end of stderr.
    fn output(&mut self) -> (Result<String, SummarizerError>, Vec<u8>) {
        let silent = || SummarizerError::Failed("the command did not close its output".into());
        let answered = self.answered.take();
        let answer = answered.unwrap_or_else(|| {
            let answer = self.answer.recv_timeout(PIPES);
            answer.unwrap_or_else(|_| Err(silent()))
        });
        let stderr = self.stderr.recv_timeout(PIPES).unwrap_or_default();
        // An answer with an invalid character is still useful.
        let text = answer.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (text, stderr)
    }

    /// Kills the command and the processes that it started.
    fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(group) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // The command may have ended already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        if !self.is_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.is_ended = true;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_ended {
            self.kill();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), SummarizerError> {
    let thread = std::thread::Builder::new().name("summarizer-pipe".into());
    let spawned = thread.spawn(work);
    spawned
        .map(drop)
        .map_err(|error| SummarizerError::Failed(format!("no thread for the command: {error}")))
}

fn read_bounded(from: impl Read, most: u64) -> Result<Vec<u8>, SummarizerError> {
    let mut bytes = Vec::new();
    let read = from.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| SummarizerError::Unreadable(error.to_string()))?;
    match bytes.len() as u64 > most {
        true => Err(SummarizerError::TooLong(most)),
        false => Ok(bytes),
    }
}

/// Reads to the end and returns the last bytes.
fn read_end(mut from: impl Read) -> Vec<u8> {
    let (mut end, mut buffer) = (Vec::new(), [0; STDERR_BYTES]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        end.extend_from_slice(&buffer[..read]);
        end.drain(..end.len().saturating_sub(STDERR_BYTES));
    }
    end
}

fn failed(status: ExitStatus, stderr: &[u8]) -> SummarizerError {
    let stderr = String::from_utf8_lossy(stderr);
    let last = stderr
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let reason: String = last
        .unwrap_or_default()
        .chars()
        .take(REASON_CHARS)
        .collect();
    let ended = match status.code() {
        Some(code) => format!("the command exited with {code}"),
        None => "the command was killed".to_owned(),
    };
    SummarizerError::Failed(match reason.is_empty() {
        true => ended,
        false => format!("{ended}: {reason}"),
    })
}
