//! Detection of a pooler between this program and the server, which may hand each transaction to another
//! process of the server, as PgBouncer does with `pool_mode = transaction`.
//!
//! A server reports the id of the process of a connection twice: when the connection is made, for a later
//! request to cancel, and in a query. A pooler invents the first, as its connections to the server are its own.
//! It must be detected: a prepared statement of another process is not found, or, since every program with this
//! driver numbers its statements from `s0`, is the statement of another program.
//!
//! The driver does not expose the first id, but writes it into a request to cancel, and does so to any stream.

use std::future::Ready;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The value of an address's setting for a pooler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pooling {
    /// Not set: the pooler is detected.
    #[default]
    Unknown,
    /// A connection keeps its server process.
    Session,
    /// Each transaction may run in another server process.
    Transaction,
}

impl Pooling {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "session" => Some(Self::Session),
            "transaction" => Some(Self::Transaction),
            _ => None,
        }
    }
}

/// A connection that keeps the written bytes instead of sending them, and accepts TLS.
#[derive(Default)]
struct WrittenBytes(Vec<u8>);

impl AsyncRead for WrittenBytes {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        into.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WrittenBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for &mut WrittenBytes {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct Plain;

impl<'a> TlsConnect<&'a mut WrittenBytes> for Plain {
    type Stream = &'a mut WrittenBytes;
    type Error = std::io::Error;
    type Future = Ready<Result<Self::Stream, Self::Error>>;

    fn connect(self, stream: &'a mut WrittenBytes) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

/// Returns the process id that was reported when the connection was made.
pub(super) fn named_process(token: &CancelToken) -> Option<i32> {
    let mut page = WrittenBytes::default();
    let written = {
        let request = pin!(token.cancel_query_raw(&mut page, Plain));
        // Nothing in the future waits.
        request.poll(&mut Context::from_waker(Waker::noop()))
    };
    let Poll::Ready(Ok(())) = written else {
        return None;
    };
    // The request: its length and its kind, four bytes each, the process id, and a secret of four bytes.
    let start = page.0.len().checked_sub(8)?;
    let process = page.0.get(start..start + 4)?;
    Some(i32::from_be_bytes(process.try_into().ok()?))
}
