//! One of the two streams that the proxy writes.

use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memchr::memchr;

/// The pause before a write to a full pipe that does not block is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// A writer of bytes that are passed on, with lines of the proxy inserted between whole lines.
pub(crate) struct Outlet(Mutex<OutletState>);

struct OutletState {
    writer: Option<Box<dyn Write + Send>>,
    /// True if the last byte that was passed on did not end a line.
    is_within_line: bool,
    /// Lines that wait for the end of the current line.
    waiting: Vec<u8>,
}

impl Outlet {
    pub fn new(writer: Box<dyn Write + Send>) -> Self {
        Self(Mutex::new(OutletState {
            writer: Some(writer),
            is_within_line: false,
            waiting: Vec::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, OutletState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes bytes on.
    pub fn pass(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let mut rest = bytes;
        if !state.waiting.is_empty()
            && let Some(at) = memchr(b'\n', rest)
        {
            state.write(&rest[..=at])?;
            let waiting = std::mem::take(&mut state.waiting);
            state.write(&waiting)?;
            rest = &rest[at + 1..];
        }
        state.write(rest)?;
        if let Some(last) = bytes.last() {
            state.is_within_line = *last != b'\n';
        }
        Ok(())
    }

    /// Writes a whole line of the proxy, once the line that is being passed on has ended.
    pub fn insert(&self, line: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        match state.is_within_line {
            true => {
                state.waiting.extend_from_slice(line);
                Ok(())
            }
            false => state.write(line),
        }
    }

    /// Closes the stream.
    pub fn close(&self) {
        self.state().writer = None;
    }
}

impl OutletState {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let writer = self.writer.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        while !bytes.is_empty() {
            match writer.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // As a pipe that takes a few bytes at a time.
            let taken = bytes.len().min(3);
            self.0.lock().unwrap().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_inserted_line_never_splits_a_line_that_is_passed_on() {
        let kept = Kept::default();
        let outlet = Outlet::new(Box::new(kept.clone()));
        outlet.insert(b"first\n").unwrap();
        outlet.pass(b"abc").unwrap();
        outlet.insert(b"second\n").unwrap();
        outlet.pass(b"def").unwrap();
        outlet.pass(b"ghi\njkl\n").unwrap();
        outlet.insert(b"third\n").unwrap();
        outlet.close();
        assert!(outlet.pass(b"x").is_err());
        let kept = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(kept, "first\nabcdefghi\nsecond\njkl\nthird\n");
    }
}
