//! A `loopstore append` process, which gets one message after the other.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A child process that appends the messages that it reads from stdin.
pub struct AppendProcess {
    process: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl AppendProcess {
    pub fn open(database: impl AsRef<OsStr>, session: &str) -> Self {
        let mut command = crate::support::command::loopstore();
        command.args(["append", session, "--format", "openai", "--db"]);
        let command = command.arg(database).stdin(Stdio::piped());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        Self {
            lines: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Sends a message, if the process is still running.
    pub fn tell(&mut self, text: &str) {
        let line = serde_json::json!({"role": "user", "content": text});
        let _ = writeln!(self.lines, "{line}");
    }

    /// Waits for the answer to a line; any other output is an error.
    pub fn acknowledged(&mut self) -> Result<(), String> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let is_stored = answer.contains("\"seqs\"");
        is_stored.then_some(()).ok_or(answer)
    }

    /// Returns the proportional memory of the process, in KiB: shared pages count in parts.
    pub fn memory(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// Closes its input. Returns its output on stderr.
    pub fn close(mut self) -> String {
        drop(self.lines);
        let mut errors = String::new();
        let mut pipe = self.process.stderr.take().unwrap();
        pipe.read_to_string(&mut errors).unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.success(), errors.is_empty(), "{errors}");
        errors
    }
}
