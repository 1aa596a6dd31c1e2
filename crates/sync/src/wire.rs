//! The stream between two programs: frames with a kind, a length and that many bytes.
//!
//! A message is one frame of JSON. Content follows its message as frames of data, at most [`MAX_DATA`] bytes each,
//! and an empty frame that ends it. Nothing that the other side sends is trusted: each length is compared with
//! its limit before memory is used for it.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first line of each direction. A shell that prints something first is thus recognised.
pub(crate) const GREETING: &[u8] = b"loopstore-sync 1\n";
/// The largest message in bytes.
const MAX_MESSAGE: usize = 16 << 20;
/// The largest frame of data in bytes.
const MAX_DATA: usize = 1 << 20;
/// The largest content that a message announces, in bytes: one session, or one kept file.
pub(crate) const MAX_CONTENT: u64 = 2 << 30;

/// An error of the stream.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream ended or failed.
    #[error("the connection to the other database ended: {0}")]
    Io(#[from] io::Error),
    /// The other side wrote something that is not part of the protocol.
    #[error("the other side does not speak the protocol: {0}")]
    Protocol(String),
}

/// A stream in both directions, which counts its bytes.
pub(crate) struct PeerWire<R, W> {
    input: R,
    output: W,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

const MESSAGE: u8 = b'M';
const DATA: u8 = b'D';

impl<R: Read, W: Write> PeerWire<R, W> {
    pub(crate) fn new(input: R, output: W) -> Self {
        Self {
            input,
            output,
            received: 0,
            sent: 0,
        }
    }

    /// Writes the greeting.
    pub(crate) fn greet(&mut self) -> Result<(), WireError> {
        self.write(GREETING)?;
        Ok(self.output.flush()?)
    }

    /// Reads the greeting of the other side.
    pub(crate) fn expect_greeting(&mut self) -> Result<(), WireError> {
        let mut read = vec![0; GREETING.len()];
        let mut at = 0;
        while at < read.len() {
            match self.input.read(&mut read[at..])? {
                0 => break,
                count => at += count,
            }
        }
        self.received += at as u64;
        read.truncate(at);
        if read == GREETING {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&read);
        let shown: String = text.chars().filter(|char| !char.is_control()).collect();
        Err(WireError::Protocol(match shown.is_empty() {
            true => "it ended without an answer".into(),
            false => format!("it begins with `{shown}`"),
        }))
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), WireError> {
        let text = serde_json::to_vec(message).map_err(io::Error::from)?;
        if text.len() > MAX_MESSAGE {
            let bytes = text.len();
            return Err(WireError::Protocol(format!(
                "a message of {bytes} bytes is too large"
            )));
        }
        self.frame(MESSAGE, &text)?;
        Ok(self.output.flush()?)
    }

    /// Sends content after a message.
    pub(crate) fn send_data(&mut self, data: &[u8]) -> Result<(), WireError> {
        for chunk in data.chunks(MAX_DATA) {
            self.frame(DATA, chunk)?;
        }
        self.frame(DATA, &[])?;
        Ok(self.output.flush()?)
    }

    /// Receives a message; `None` if the stream ended before it.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        let mut kind = [0];
        if self.input.read(&mut kind)? == 0 {
            return Ok(None);
        }
        self.received += 1;
        if kind[0] != MESSAGE {
            return Err(WireError::Protocol("a message is missing".into()));
        }
        let text = self.rest(MAX_MESSAGE)?;
        let message = serde_json::from_slice(&text);
        let wrong = |error| WireError::Protocol(format!("an unknown message: {error}"));
        message.map(Some).map_err(wrong)
    }

    /// Receives the content after a message.
    pub(crate) fn receive_data(&mut self) -> Result<Vec<u8>, WireError> {
        let mut data = Vec::new();
        loop {
            let mut kind = [0];
            self.input.read_exact(&mut kind)?;
            self.received += 1;
            if kind[0] != DATA {
                return Err(WireError::Protocol("content is missing".into()));
            }
            let chunk = self.rest(MAX_DATA)?;
            if chunk.is_empty() {
                return Ok(data);
            }
            if (data.len() + chunk.len()) as u64 > MAX_CONTENT {
                return Err(WireError::Protocol("its content is too large".into()));
            }
            data.extend_from_slice(&chunk);
        }
    }

    fn frame(&mut self, kind: u8, bytes: &[u8]) -> Result<(), WireError> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.write(&[kind])?;
        self.write(&length.to_le_bytes())?;
        self.write(bytes)
    }

    /// Reads the length of a frame and its bytes.
    fn rest(&mut self, most: usize) -> Result<Vec<u8>, WireError> {
        let mut length = [0; 4];
        self.input.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            return Err(WireError::Protocol(format!(
                "a frame of {length} bytes, at most {most} are allowed"
            )));
        }
        // The memory grows with what really arrives.
        let mut bytes = Vec::new();
        (&mut self.input)
            .take(length as u64)
            .read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.received += 4 + length as u64;
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.output.write_all(bytes)?;
        self.sent += bytes.len() as u64;
        Ok(())
    }
}
