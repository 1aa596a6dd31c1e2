//! Lines of JSON that a Python script validates with the types of other programs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Lines that are collected for a script, which reads them on standard input.
pub struct ValidatedLines {
    file: tempfile::NamedTempFile,
}

impl ValidatedLines {
    #[expect(clippy::new_without_default, reason = "it creates a file")]
    pub fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        Self { file }
    }

    /// Adds text that ends with the end of a line.
    pub fn add(&mut self, lines: &str) {
        assert!(lines.ends_with('\n'), "{lines}");
        self.file.write_all(lines.as_bytes()).unwrap();
    }

    /// Runs the script. It prints a line for each rejected value and a last line of JSON, which is returned.
    ///
    /// # Panics
    ///
    /// If a value is rejected.
    pub fn validate(mut self, python: &Path, script: &Path) -> Value {
        self.file.flush().unwrap();
        let output = Command::new(python)
            .arg(script)
            .stdin(self.file.reopen().unwrap())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut rejected: Vec<&str> = printed.lines().collect();
        let last = serde_json::from_str(rejected.pop().unwrap_or("null")).unwrap();
        let count = rejected.len();
        rejected.truncate(12);
        assert!(count == 0, "{count} rejected:\n{}", rejected.join("\n"));
        last
    }
}
