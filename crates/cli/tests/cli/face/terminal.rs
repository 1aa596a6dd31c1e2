//! Runs a program in a pseudo-terminal, which `script` of util-linux opens: the tests contain no unsafe code.

use crate::support::hang::HUNG;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub struct Terminal {
    script: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Vec<u8>>>,
    size: (u16, u16),
}

impl Terminal {
    /// Runs a shell line in a terminal with this number of rows and columns; `$LOOPSTORE` is the program.
    pub fn run(folder: &Path, size: (u16, u16), line: &str) -> Self {
        let line = format!("stty rows {} cols {}; {line}", size.0, size.1);
        let mut command = Command::new("script");
        command
            .args(["-qefc", &line, "/dev/null"])
            .current_dir(folder)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env("LOOPSTORE", super::program());
        for other in [
            "LOOPSTORE_DB",
            "LOOPSTORE_PAGER",
            "PAGER",
            "LESS",
            "COLUMNS",
            "NO_COLOR",
        ] {
            command.env_remove(other);
        }
        let mut script = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, into) = (script.stdout.take().unwrap(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        let keys = script.stdin.take().unwrap();
        Self {
            script,
            keys,
            seen,
            size,
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns all output.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Returns the current screen.
    pub fn screen(&self) -> vt100::Screen {
        let (rows, columns) = self.size;
        let mut parser =
            vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        parser.process(&self.seen.lock().unwrap());
        parser.screen().clone()
    }

    /// Waits until a text is on the screen.
    pub fn wait_for(&self, text: &str) -> vt100::Screen {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contents().contains(text) {
                return screen;
            }
            let shown = screen.contents();
            assert!(begun.elapsed() < HUNG, "no `{text}` in\n{shown}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the line has ended, and returns all output.
    pub fn end(mut self) -> (String, vt100::Screen) {
        let begun = Instant::now();
        while self.script.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < HUNG, "goes on:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
        // The last output may still be buffered.
        thread::sleep(Duration::from_millis(50));
        (self.text(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
