//! Packs: the content of archived messages, with consecutive messages compressed together.
//!
//! A pack has a few hundred KiB, so that reading a turn unpacks little. Unpacked content must match the digest of its
//! pack. The messages also keep their own digests, which `verify` compares as for any message.

use std::cell::RefCell;
use std::io::Read as _;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use brotli::enc::BrotliEncoderParams;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::codec::to_json;
use super::scan::{MessagePlace, StoreScan};
use super::{
    LoopKey, MessageRow, StoreError, StoreResult, StoredMessage, StoredMessageRef, prompt,
};
use crate::model::Role;

/// The largest size of a pack's content before compression, unless the pack has a single message. Reading one message
/// unpacks the whole pack.
#[doc(hidden)]
pub const MAX_PACK_BYTES: usize = 512 << 10;

/// The bytes before the content: two lengths for each message.
const LENGTHS: u64 = 8;

/// The compression level of packs, about a MiB a second. The highest, 11, saves another fiftieth and takes
/// three times as long.
const QUALITY: i32 = 10;

/// The window of the compression as a power of two: repetitions further apart are stored again.
const WINDOW_BITS: i32 = 22;

/// The number of compressed bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// A row of `packs` without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRow {
    /// Its first message.
    pub first: u32,
    /// Its last message; the pack has all messages between the two.
    pub last: u32,
    /// The bytes of its content before compression.
    pub bytes: u64,
    /// SHA-256 of its loop, the fields above and the content.
    pub digest: [u8; 32],
}

impl PackRow {
    /// Returns the number of messages in the pack.
    pub fn messages(&self) -> u64 {
        u64::from(self.last.saturating_sub(self.first)) + 1
    }

    /// Returns the size of their content in bytes.
    #[doc(hidden)]
    pub fn content_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.messages() * LENGTHS)
    }
}

/// The compressed content of consecutive messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its row.
    pub row: PackRow,
    /// The content of its messages, compressed.
    pub content: Vec<u8>,
    /// The fields that the views show of archived messages, by sequence.
    pub heads: Vec<(u32, String)>,
}

impl Pack {
    /// Packs consecutive messages; returns `None` if there are none.
    ///
    /// # Errors
    /// If one of the messages has no content, or too much.
    #[doc(hidden)]
    pub fn of(loop_key: LoopKey, rows: &[MessageRow]) -> StoreResult<Option<Self>> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(None);
        };
        let mut heads = Vec::new();
        for row in rows {
            heads.extend(view_head(&row.body)?.map(|head| (row.seq, head)));
        }
        let content = content_of(rows)?;
        let packed = compressed(&content)?;
        let mut row = PackRow {
            first: first.seq,
            last: last.seq,
            bytes: content.len() as u64,
            digest: [0; 32],
        };
        row.digest = digest(loop_key, &row, &packed);
        Ok(Some(Self {
            row,
            content: packed,
            heads,
        }))
    }

    /// Returns the size of the pack in bytes.
    #[doc(hidden)]
    pub fn size(&self) -> u64 {
        let heads: usize = self.heads.iter().map(|(_, head)| head.len()).sum();
        (self.content.len() + heads) as u64
    }
}

fn compressed(mut content: &[u8]) -> StoreResult<Vec<u8>> {
    let mut packed = Vec::new();
    let params = BrotliEncoderParams {
        quality: QUALITY,
        lgwin: WINDOW_BITS,
        size_hint: content.len(),
        ..BrotliEncoderParams::default()
    };
    brotli::BrotliCompress(&mut content, &mut packed, &params)
        .map_err(|error| StoreError::Other(Box::new(error)))?;
    Ok(packed)
}

/// Returns the lengths of heads and texts, then all heads, then all texts: similar bytes next to each other
/// compress better.
fn content_of(rows: &[MessageRow]) -> StoreResult<Vec<u8>> {
    let mut lengths = Vec::with_capacity(rows.len() * 8);
    let (mut heads, mut texts) = (String::new(), String::new());
    for row in rows {
        let Some(head) = &row.body.head else {
            let why = format!("message {} has no content to archive", row.seq);
            return Err(StoreError::Invalid(why));
        };
        // 0: there is no text.
        let text = row.body.text.as_ref().map_or(0, |text| text.len() + 1);
        for length in [head.len(), text] {
            let length = u32::try_from(length)
                .map_err(|_| StoreError::Invalid(format!("message {} is too large", row.seq)))?;
            lengths.extend_from_slice(&length.to_le_bytes());
        }
        heads.push_str(head);
        texts.push_str(row.body.text.as_deref().unwrap_or_default());
    }
    lengths.extend_from_slice(heads.as_bytes());
    lengths.extend_from_slice(texts.as_bytes());
    Ok(lengths)
}

fn digest(loop_key: LoopKey, row: &PackRow, content: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(loop_key.0.to_le_bytes());
    hash.update(row.first.to_le_bytes());
    hash.update(row.last.to_le_bytes());
    hash.update(row.bytes.to_le_bytes());
    hash.update(content);
    hash.finalize().into()
}

/// The fields of a head that the views read.
#[derive(Serialize, Deserialize)]
struct ViewHead<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    model: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "toolCallId")]
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "isError")]
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    content: Vec<ViewBlock<'a>>,
}

/// The fields of a usage that the views read.
#[derive(Serialize, Deserialize)]
struct ViewUsage<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cache_read: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cache_write: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cost: Option<&'a RawValue>,
}

/// A prompt as a line.
#[derive(Serialize)]
struct ViewPrompt {
    prompt: String,
}

#[derive(Serialize, Deserialize)]
struct ViewBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: &'a RawValue,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
}

/// Returns the fields of a usage that the views read; `None` if it has another form.
fn usage_of(usage: &RawValue) -> StoreResult<Option<Box<RawValue>>> {
    let Ok(read) = serde_json::from_str::<ViewUsage<'_>>(usage.get()) else {
        return Ok(None);
    };
    let json = RawValue::from_string(to_json(&read)?);
    json.map(Some)
        .map_err(|error| StoreError::Other(Box::new(error)))
}

/// Returns the fields that the views show of an archived message; `None` if there are none.
#[doc(hidden)]
pub fn view_head(message: &StoredMessage) -> StoreResult<Option<String>> {
    let role = message.role;
    if message.is_prompt() {
        let prompt = prompt::line_of(&message.as_stored_ref());
        let view = prompt.map(|prompt| ViewPrompt { prompt });
        return view.as_ref().map(to_json).transpose();
    }
    let head = message.head.as_deref();
    let Some(head) = head.filter(|_| matches!(role, Role::Assistant | Role::ToolResult)) else {
        return Ok(None);
    };
    let usage;
    // A head that is another form of JSON has nothing for the views.
    let Ok(mut view) = serde_json::from_str::<ViewHead<'_>>(head) else {
        return Ok(None);
    };
    view.content
        .retain(|block| block.kind.get() == "\"toolCall\"");
    match role {
        Role::Assistant => (view.call, view.is_error) = (None, None),
        _ => (view.model, view.usage, view.content) = (None, None, Vec::new()),
    }
    if let Some(all) = view.usage {
        usage = usage_of(all)?;
        view.usage = usage.as_deref().or(Some(all));
    }
    let is_any = view.usage.is_some() || view.call.is_some() || !view.content.is_empty();
    is_any.then(|| to_json(&view)).transpose()
}

/// An unpacked pack.
#[doc(hidden)]
pub struct Unpacked {
    loop_key: LoopKey,
    row: PackRow,
    content: String,
    /// The ranges of head and text of each message.
    places: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl Unpacked {
    /// Unpacks a pack.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the content does not match the digest.
    #[doc(hidden)]
    pub fn open(loop_key: LoopKey, row: PackRow, content: &[u8]) -> StoreResult<Self> {
        let damaged = |why: &str| {
            let (first, last) = (row.first, row.last);
            StoreError::Damaged(format!("the pack of messages {first} to {last} {why}"))
        };
        if digest(loop_key, &row, content) != row.digest {
            return Err(damaged("is not what its digest says"));
        }
        let mut raw = Vec::new();
        brotli::Decompressor::new(content, READ_BYTES)
            .take(row.bytes.saturating_add(1))
            .read_to_end(&mut raw)
            .map_err(|_| damaged("cannot be unpacked"))?;
        let opened = (raw.len() as u64 == row.bytes).then(|| Self::read(loop_key, row, raw));
        opened.flatten().ok_or_else(|| damaged("has another form"))
    }

    fn read(loop_key: LoopKey, row: PackRow, mut raw: Vec<u8>) -> Option<Self> {
        let count = (row.last.checked_sub(row.first)? as usize).checked_add(1)?;
        let table = count.checked_mul(8)?;
        let content = String::from_utf8(raw.split_off(table.min(raw.len()))).ok()?;
        let (pairs, rest) = raw.as_chunks::<8>();
        if pairs.len() != count || !rest.is_empty() {
            return None;
        }
        let length = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize);
        let heads = pairs.iter().map(|pair| length(&pair[..4]));
        let mut text_at: usize = heads.sum::<Option<usize>>()?;
        let mut head_at = 0;
        let mut places = Vec::with_capacity(count);
        for pair in pairs {
            let (head, text) = (length(&pair[..4])?, length(&pair[4..])?);
            let text = text.checked_sub(1).map(|length| text_at..text_at + length);
            text_at = text.as_ref().map_or(text_at, |text| text.end);
            places.push((head_at..head_at + head, text));
            head_at += head;
        }
        let is_whole = text_at == content.len();
        is_whole.then_some(Self {
            loop_key,
            row,
            content,
            places,
        })
    }

    /// Returns head and text of a message, `None` if it is not in this pack.
    #[doc(hidden)]
    pub fn get(&self, seq: u32) -> Option<(&str, Option<&str>)> {
        let at = seq.checked_sub(self.row.first)? as usize;
        let (head, text) = self.places.get(at)?;
        let text = match text {
            Some(text) => Some(self.content.get(text.clone())?),
            None => None,
        };
        Some((self.content.get(head.clone())?, text))
    }
}

impl Unpacked {
    /// Returns head and text of a message that must be in this pack.
    fn must_get(&self, seq: u32) -> StoreResult<(&str, Option<&str>)> {
        let why = || StoreError::Damaged(format!("message {seq} is not in its pack"));
        self.get(seq).ok_or_else(why)
    }
}

/// A cache of the pack that was read last in a transaction, since neighbouring messages are mostly read one after
/// another.
#[derive(Default)]
pub struct LastPack(RefCell<Option<Rc<Unpacked>>>);

impl LastPack {
    fn open(
        &self,
        scan: &dyn StoreScan,
        loop_key: LoopKey,
        row: PackRow,
    ) -> StoreResult<Rc<Unpacked>> {
        let last = self.0.borrow().clone();
        if let Some(last) = last.filter(|last| last.loop_key == loop_key && last.row == row) {
            return Ok(last);
        }
        let content = scan.pack_content(loop_key, row.first)?;
        let opened = Rc::new(Unpacked::open(loop_key, row, &content)?);
        *self.0.borrow_mut() = Some(opened.clone());
        Ok(opened)
    }
}

/// Returns the pack of a message whose row has no content; `None` if it has none any more.
///
/// # Errors
/// [`StoreError::Damaged`] if the pack is missing, or does not match its digest.
pub(crate) fn pack_of(
    scan: &dyn StoreScan,
    last: &LastPack,
    (loop_key, seq): (LoopKey, u32),
    has_salt: bool,
) -> StoreResult<Option<Rc<Unpacked>>> {
    if let Some(row) = scan.pack_at(loop_key, seq)? {
        return last.open(scan, loop_key, row).map(Some);
    }
    let place = MessagePlace::InLoop(loop_key, seq);
    if has_salt || scan.redaction(place)?.is_some() {
        let why = format!("message {seq} has no content and is in no pack");
        return Err(StoreError::Damaged(why));
    }
    Ok(None)
}

/// Fills in the content of an archived message.
///
/// # Errors
/// If the pack of the message is missing or damaged, or the database cannot be read.
#[cold]
pub fn fill(
    scan: &dyn StoreScan,
    last: &LastPack,
    loop_key: LoopKey,
    row: &mut MessageRow,
) -> StoreResult<()> {
    if row.body.text.is_some() {
        // Half a message is damage, which the check of its digest finds.
        return Ok(());
    }
    let place = (loop_key, row.seq);
    if let Some(pack) = pack_of(scan, last, place, row.body.salt.is_some())? {
        let (head, text) = pack.must_get(row.seq)?;
        row.body.head = Some(head.to_owned());
        row.body.text = text.map(str::to_owned);
    }
    Ok(())
}

/// Calls `visit` with an archived message and its content.
///
/// # Errors
/// If the store fails, or the pack is missing or damaged.
#[cold]
pub fn with_message<T>(
    scan: &dyn StoreScan,
    last: &LastPack,
    place: (LoopKey, u32),
    message: StoredMessageRef<'_>,
    visit: impl FnOnce(StoredMessageRef<'_>) -> StoreResult<T>,
) -> StoreResult<T> {
    let (loop_key, seq) = place;
    let row = match message.text {
        Some(_) => return visit(message),
        None => scan.pack_at(loop_key, seq)?,
    };
    let Some(row) = row else {
        // Only the whole row shows if there should be a pack.
        scan.messages(loop_key, seq..seq.saturating_add(1), &mut |_| {
            Ok(ControlFlow::Break(()))
        })?;
        return visit(message);
    };
    let pack = last.open(scan, loop_key, row)?;
    let (head, text) = pack.must_get(seq)?;
    let head = Some(head);
    visit(StoredMessageRef {
        head,
        text,
        ..message
    })
}

/// Returns the content of a pack.
///
/// # Errors
/// If the pack is missing, or does not match its digest.
#[doc(hidden)]
pub fn open(scan: &dyn StoreScan, loop_key: LoopKey, first: u32) -> StoreResult<Unpacked> {
    let row = scan.pack_at(loop_key, first)?;
    let row = row.filter(|row| row.first == first).ok_or_else(|| {
        StoreError::Damaged(format!(
            "the pack that begins with message {first} is missing"
        ))
    })?;
    Unpacked::open(loop_key, row, &scan.pack_content(loop_key, first)?)
}

/// Called with sequence, head and text of each message of a pack.
pub type VisitPacked<'a> = dyn FnMut(u32, &str, Option<&str>) -> StoreResult<()> + 'a;

impl Unpacked {
    /// Visits its messages: sequence, head, text.
    #[doc(hidden)]
    pub fn each(&self, visit: &mut VisitPacked<'_>) -> StoreResult<()> {
        for seq in self.row.first..=self.row.last {
            let (head, text) = self.must_get(seq)?;
            visit(seq, head, text)?;
        }
        Ok(())
    }

    /// Returns its row.
    #[doc(hidden)]
    pub fn row(&self) -> &PackRow {
        &self.row
    }
}

/// Visits the packs of a loop that begin at `from` or later, in order.
///
/// # Errors
/// If the store or `visit` fails.
#[doc(hidden)]
pub fn each_pack(
    scan: &dyn StoreScan,
    loop_key: LoopKey,
    from: u32,
    visit: &mut dyn FnMut(PackRow) -> StoreResult<ControlFlow<()>>,
) -> StoreResult<()> {
    let mut next = Some(from);
    while let Some(from) = next {
        let Some(row) = scan.next_pack(loop_key, from)? else {
            break;
        };
        next = row.last.max(row.first).checked_add(1);
        if visit(row)?.is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
