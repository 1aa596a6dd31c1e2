//! A database behind a stream: the side that asks ([`RemotePeer`]) and the side that answers ([`answer`]).

use std::io::{Read, Write};

use loopstore::Database;
use loopstore::model::SessionId;
use serde::{Deserialize, Serialize};

use crate::delta;
use crate::document::SessionText;
use crate::local::LocalPeer;
use crate::peer::{
    FileName, Peer, PeerEntry, PeerError, PeerInfo, PeerResult, RemovalReceipt, RemoveOutcome,
    StoreOutcome, SyncError, SyncFilter,
};
use crate::wire::{PeerWire, WireError};

/// The first message: the database that the other side is to open, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRequest {
    /// The database as the user named it; empty for the default one.
    pub database: String,
    /// The token counter of a database that does not exist yet.
    pub counter: String,
    /// True if nothing is to be written.
    pub dry_run: bool,
    /// The sessions to bring together.
    pub filter: SyncFilter,
}

/// A request; some are followed by content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
enum Request {
    Open(OpenRequest),
    Buckets,
    Entries {
        buckets: Vec<u16>,
    },
    Receipts,
    Has {
        id: SessionId,
    },
    /// The content has the hashes of the lines that the asking side has.
    Load {
        id: SessionId,
    },
    /// The content has the difference to the present text.
    Store {
        id: SessionId,
        expected: Option<String>,
        digest: String,
        #[serde(default)]
        is_apart: bool,
    },
    /// The content has the text with the hides, as the difference to an empty text.
    FollowHides {
        id: SessionId,
        digest: String,
    },
    Remove(RemovalReceipt),
    PlaceReceipt(RemovalReceipt),
    Files {
        id: SessionId,
    },
    File {
        id: SessionId,
        name: FileName,
    },
    /// The content has the bytes of the file.
    Offer {
        id: SessionId,
        name: FileName,
    },
    /// The content has the bytes of the file.
    Keep {
        id: SessionId,
        name: FileName,
    },
    Finish,
}

/// An answer; some are followed by content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "snake_case")]
enum PeerAnswer {
    Info(PeerInfo),
    Buckets(Vec<String>),
    /// The content has the entries as JSON.
    Entries,
    /// The content has the receipts as JSON.
    Receipts,
    Has(bool),
    /// With the digest of the text; the content has the difference. `None` if there is no such session.
    Loaded(Option<String>),
    Stored(StoreOutcome),
    Followed(bool),
    Removed(RemoveOutcome),
    Placed,
    Files(Vec<FileName>),
    /// The content has the bytes.
    File,
    Kept,
    Finished,
    /// The operation failed for its session only.
    Failed(String),
    /// The other side cannot continue.
    Fatal(String),
}

/// A database behind a stream.
pub(crate) struct RemotePeer<R, W> {
    wire: PeerWire<R, W>,
    info: PeerInfo,
}

fn unexpected(answer: &PeerAnswer) -> PeerError {
    WireError::Protocol(format!("an unexpected answer: {answer:?}")).into()
}

impl<R: Read + Send, W: Write + Send> RemotePeer<R, W> {
    /// Greets the other side and makes it open its database.
    pub(crate) fn open(input: R, output: W, request: &OpenRequest) -> Result<Self, SyncError> {
        let mut wire = PeerWire::new(input, output);
        // The last words of the other side say more than the failure to write to it.
        let greeted = wire.greet();
        wire.expect_greeting()?;
        greeted?;
        wire.send(&Request::Open(request.clone()))?;
        match wire.receive()? {
            Some(PeerAnswer::Info(info)) => Ok(Self { wire, info }),
            Some(PeerAnswer::Failed(reason) | PeerAnswer::Fatal(reason)) => {
                Err(SyncError::Other(reason))
            }
            _ => Err(WireError::Protocol("it did not open a database".into()).into()),
        }
    }

    fn ask(&mut self, request: &Request, content: Option<&[u8]>) -> PeerResult<PeerAnswer> {
        self.wire.send(request)?;
        if let Some(content) = content {
            self.wire.send_data(content)?;
        }
        match self.wire.receive()? {
            Some(PeerAnswer::Failed(reason)) => Err(PeerError::Session(reason)),
            Some(PeerAnswer::Fatal(reason)) => Err(PeerError::Fatal(SyncError::Other(reason))),
            Some(answer) => Ok(answer),
            None => Err(WireError::Protocol("it ended".into()).into()),
        }
    }

    fn content<T: serde::de::DeserializeOwned>(&mut self) -> PeerResult<T> {
        let data = self.wire.receive_data()?;
        let wrong = |error| WireError::Protocol(format!("unknown content: {error}"));
        Ok(serde_json::from_slice(&data).map_err(wrong)?)
    }
}

fn digest_of(text: &str) -> Result<[u8; 32], WireError> {
    let bytes = hex::decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| WireError::Protocol("a digest is malformed".into()))
}

impl<R: Read + Send, W: Write + Send> Peer for RemotePeer<R, W> {
    fn info(&mut self) -> PeerResult<PeerInfo> {
        Ok(self.info.clone())
    }

    fn buckets(&mut self) -> PeerResult<Vec<String>> {
        match self.ask(&Request::Buckets, None)? {
            PeerAnswer::Buckets(hashes) => Ok(hashes),
            other => Err(unexpected(&other)),
        }
    }

    fn entries(&mut self, buckets: &[u16]) -> PeerResult<Vec<PeerEntry>> {
        let buckets = buckets.to_vec();
        match self.ask(&Request::Entries { buckets }, None)? {
            PeerAnswer::Entries => self.content(),
            other => Err(unexpected(&other)),
        }
    }

    fn receipts(&mut self) -> PeerResult<Vec<RemovalReceipt>> {
        match self.ask(&Request::Receipts, None)? {
            PeerAnswer::Receipts => self.content(),
            other => Err(unexpected(&other)),
        }
    }

    fn has(&mut self, id: &SessionId) -> PeerResult<bool> {
        match self.ask(&Request::Has { id: id.clone() }, None)? {
            PeerAnswer::Has(has) => Ok(has),
            other => Err(unexpected(&other)),
        }
    }

    fn load(
        &mut self,
        id: &SessionId,
        have: Option<&SessionText>,
    ) -> PeerResult<Option<SessionText>> {
        let hashes = have.map(delta::hashes).unwrap_or_default();
        let request = Request::Load { id: id.clone() };
        match self.ask(&request, Some(&hashes))? {
            PeerAnswer::Loaded(None) => Ok(None),
            PeerAnswer::Loaded(Some(digest)) => {
                let digest = digest_of(&digest)?;
                let delta = self.wire.receive_data()?;
                let empty = SessionText::default();
                let text = delta::decode(&delta, have.unwrap_or(&empty), &digest);
                text.map(Some).map_err(PeerError::Session)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn store(
        &mut self,
        id: &SessionId,
        expected: Option<&SessionText>,
        text: &SessionText,
        is_apart: bool,
    ) -> PeerResult<StoreOutcome> {
        let request = Request::Store {
            id: id.clone(),
            expected: expected.map(|text| hex::encode(text.digest())),
            digest: hex::encode(text.digest()),
            is_apart,
        };
        let delta = delta::encode(text, &expected.map(delta::hashes).unwrap_or_default());
        match self.ask(&request, Some(&delta))? {
            PeerAnswer::Stored(outcome) => Ok(outcome),
            other => Err(unexpected(&other)),
        }
    }

    fn follow_hides(&mut self, text: &SessionText, id: &SessionId) -> PeerResult<bool> {
        let request = Request::FollowHides {
            id: id.clone(),
            digest: hex::encode(text.digest()),
        };
        match self.ask(&request, Some(&delta::encode(text, &[])))? {
            PeerAnswer::Followed(followed) => Ok(followed),
            other => Err(unexpected(&other)),
        }
    }

    fn remove(&mut self, receipt: &RemovalReceipt) -> PeerResult<RemoveOutcome> {
        match self.ask(&Request::Remove(receipt.clone()), None)? {
            PeerAnswer::Removed(outcome) => Ok(outcome),
            other => Err(unexpected(&other)),
        }
    }

    fn place_receipt(&mut self, receipt: &RemovalReceipt) -> PeerResult<()> {
        match self.ask(&Request::PlaceReceipt(receipt.clone()), None)? {
            PeerAnswer::Placed => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn files(&mut self, id: &SessionId) -> PeerResult<Vec<FileName>> {
        match self.ask(&Request::Files { id: id.clone() }, None)? {
            PeerAnswer::Files(names) => Ok(names),
            other => Err(unexpected(&other)),
        }
    }

    fn file(&mut self, id: &SessionId, name: &FileName) -> PeerResult<Vec<u8>> {
        let (id, name) = (id.clone(), name.clone());
        match self.ask(&Request::File { id, name }, None)? {
            PeerAnswer::File => Ok(self.wire.receive_data()?),
            other => Err(unexpected(&other)),
        }
    }

    fn offer(&mut self, id: &SessionId, name: &FileName, bytes: Vec<u8>) -> PeerResult<()> {
        let (id, name) = (id.clone(), name.clone());
        match self.ask(&Request::Offer { id, name }, Some(&bytes))? {
            PeerAnswer::Kept => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn keep(&mut self, id: &SessionId, name: &FileName, bytes: &[u8]) -> PeerResult<()> {
        let (id, name) = (id.clone(), name.clone());
        match self.ask(&Request::Keep { id, name }, Some(bytes))? {
            PeerAnswer::Kept => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn finish(&mut self) -> PeerResult<()> {
        match self.ask(&Request::Finish, None)? {
            PeerAnswer::Finished => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn traffic(&self) -> (u64, u64) {
        (self.wire.sent, self.wire.received)
    }
}

/// A function that opens the database that the asking side named.
pub type DatabaseOpener<'a> = dyn FnMut(&OpenRequest) -> Result<Box<dyn Database>, String> + 'a;

/// Answers the requests of a sync that runs elsewhere, until it ends. `open` opens the database. With `keeps_removed`,
/// sessions that the other database removed or redacted stay as they are.
///
/// # Errors
/// If the stream fails, or the other side sends something that is not part of the protocol. Each session is one
/// transaction, so that none is half written.
///
/// # Examples
/// ```
/// use loopstore_sync::{OpenRequest, serve};
/// use std::io::Cursor;
///
/// // The other side begins with a greeting and a request.
/// let mut answer = Vec::new();
/// let open = &mut |request: &OpenRequest| Err(format!("{} is not a database", request.database));
/// assert!(serve(Cursor::new("not the protocol"), &mut answer, false, open).is_err());
/// ```
pub fn serve(
    input: impl Read,
    output: impl Write,
    keeps_removed: bool,
    open: &mut DatabaseOpener<'_>,
) -> Result<(), SyncError> {
    let mut wire = PeerWire::new(input, output);
    wire.greet()?;
    wire.expect_greeting()?;
    let request = match wire.receive()? {
        Some(Request::Open(request)) => request,
        None => return Ok(()),
        Some(_) => {
            return Err(WireError::Protocol("the first request opens nothing".into()).into());
        }
    };
    let database = match open(&request) {
        Ok(database) => database,
        Err(reason) => return Ok(wire.send(&PeerAnswer::Fatal(reason))?),
    };
    let (filter, dry_run) = (request.filter, request.dry_run);
    let mut peer = LocalPeer::new(&*database, filter, keeps_removed, dry_run);
    match peer.info() {
        Ok(info) => wire.send(&PeerAnswer::Info(info))?,
        Err(PeerError::Session(reason)) => return Ok(wire.send(&PeerAnswer::Fatal(reason))?),
        Err(PeerError::Fatal(error)) => {
            return Ok(wire.send(&PeerAnswer::Fatal(error.to_string()))?);
        }
    }
    while let Some(request) = wire.receive()? {
        match answer(&mut peer, &mut wire, request) {
            Ok((answer, content)) => {
                wire.send(&answer)?;
                if let Some(content) = content {
                    wire.send_data(&content)?;
                }
            }
            Err(PeerError::Session(reason)) => wire.send(&PeerAnswer::Failed(reason))?,
            Err(PeerError::Fatal(SyncError::PeerWire(error))) => return Err(error.into()),
            Err(PeerError::Fatal(error)) => {
                wire.send(&PeerAnswer::Fatal(error.to_string()))?;
                return Err(error);
            }
        }
    }
    Ok(())
}

type AnswerWithContent = (PeerAnswer, Option<Vec<u8>>);

/// Answers one request; its content has to be read in any case.
fn answer<R: Read, W: Write>(
    peer: &mut LocalPeer<'_>,
    wire: &mut PeerWire<R, W>,
    request: Request,
) -> PeerResult<AnswerWithContent> {
    let json = |value: Result<Vec<u8>, serde_json::Error>| {
        value.map_err(|error| PeerError::Session(error.to_string()))
    };
    Ok(match request {
        Request::Open(_) => {
            return Err(WireError::Protocol("a second request to open".into()).into());
        }
        Request::Buckets => (PeerAnswer::Buckets(peer.buckets()?), None),
        Request::Entries { buckets } => {
            let entries = peer.entries(&buckets)?;
            (
                PeerAnswer::Entries,
                Some(json(serde_json::to_vec(&entries))?),
            )
        }
        Request::Receipts => {
            let receipts = peer.receipts()?;
            (
                PeerAnswer::Receipts,
                Some(json(serde_json::to_vec(&receipts))?),
            )
        }
        Request::Has { id } => (PeerAnswer::Has(peer.has(&id)?), None),
        Request::Load { id } => {
            let have = wire.receive_data()?;
            match peer.load(&id, None)? {
                None => (PeerAnswer::Loaded(None), None),
                Some(text) => {
                    let digest = hex::encode(text.digest());
                    (
                        PeerAnswer::Loaded(Some(digest)),
                        Some(delta::encode(&text, &have)),
                    )
                }
            }
        }
        Request::Store {
            id,
            expected,
            digest,
            is_apart,
        } => {
            let delta = wire.receive_data()?;
            let digest = digest_of(&digest)?;
            let stored = peer.load(&id, None)?;
            if stored.as_ref().map(|text| hex::encode(text.digest())) != expected {
                return Ok((PeerAnswer::Stored(StoreOutcome::Changed), None));
            }
            let base = stored.clone().unwrap_or_default();
            let text = delta::decode(&delta, &base, &digest).map_err(PeerError::Session)?;
            let outcome = peer.store(&id, stored.as_ref(), &text, is_apart)?;
            (PeerAnswer::Stored(outcome), None)
        }
        Request::FollowHides { id, digest } => {
            let delta = wire.receive_data()?;
            let (digest, base) = (digest_of(&digest)?, SessionText::default());
            let text = delta::decode(&delta, &base, &digest).map_err(PeerError::Session)?;
            (PeerAnswer::Followed(peer.follow_hides(&text, &id)?), None)
        }
        Request::Remove(receipt) => (PeerAnswer::Removed(peer.remove(&receipt)?), None),
        Request::PlaceReceipt(receipt) => {
            peer.place_receipt(&receipt)?;
            (PeerAnswer::Placed, None)
        }
        Request::Files { id } => (PeerAnswer::Files(peer.files(&id)?), None),
        Request::File { id, name } => (PeerAnswer::File, Some(peer.file(&id, &name)?)),
        Request::Offer { id, name } => {
            let bytes = wire.receive_data()?;
            peer.offer(&id, &name, bytes)?;
            (PeerAnswer::Kept, None)
        }
        Request::Keep { id, name } => {
            let bytes = wire.receive_data()?;
            peer.keep(&id, &name, &bytes)?;
            (PeerAnswer::Kept, None)
        }
        Request::Finish => {
            peer.finish()?;
            (PeerAnswer::Finished, None)
        }
    })
}
