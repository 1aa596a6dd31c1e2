//! The stored form of a message: small JSON (`head`), its largest text separate, its images in blobs.
//!
//! JSON is most of the cost of reading a context, so large texts stay out of it. The digest of a
//! message is SHA-256 over salt, role, head, the number of the text's block and the text, each
//! with its length; the chain of a loop is SHA-256 over the chain before and the digest.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::error::{StoreError, StoreResult};
use super::reading::StoredMessageRef;
use super::rows::{Blob, StoredMessage};
use crate::failpoints::{self, Failpoint};
use crate::model::{
    AgentMessage, Author, Content, Image, Json, Message, Role, extension_kinds, fast_parse,
    image_data,
};
use crate::tokens::{MAX_AMOUNT, TokenCounter};

/// Texts shorter than this stay in the JSON: parsing them costs less than another column.
const MIN_TEXT_BYTES: usize = 64;

/// Finds a blob by its SHA-256.
pub type FindBlob<'a> = dyn FnMut(&[u8; 32]) -> StoreResult<Option<Vec<u8>>> + 'a;

/// Counts the tokens of a message, in the form of a column.
///
/// # Errors
/// If the counter returns more than a column can store.
#[doc(hidden)]
pub fn count_message(message: &AgentMessage, counter: &dyn TokenCounter) -> StoreResult<u64> {
    let tokens = counter.message_tokens(message);
    if tokens > MAX_AMOUNT {
        let name = counter.name();
        let reason = format!("the token counter \"{name}\" counts {tokens} tokens in one message");
        return Err(StoreError::Invalid(reason));
    }
    Ok(tokens)
}

/// Turns a message into its stored form, and returns the blobs that it shows.
///
/// # Errors
/// If the message cannot be written as JSON, or the system returns no random salt.
pub fn encode(
    mut message: AgentMessage,
    counter: &dyn TokenCounter,
) -> StoreResult<(StoredMessage, Vec<Blob>)> {
    let tokens = count_message(&message, counter)?;
    let has_images = message.message().is_some_and(has_images);
    let whole = has_images.then(|| json_bytes(&message)).transpose()?;
    let lines = tool_result_lines(&message);
    let mut blobs = Vec::new();
    let mut text = None;
    if let Some(inner) = message.message_mut() {
        let content = inner.content_mut();
        for block in content.iter_mut() {
            if let Content::Image(image) = block {
                blobs.extend(take_image(image));
            }
        }
        text = take_text(content);
    }
    let head = to_json(&message)?;
    failpoints::panic_at(head.len() + text.as_ref().map_or(0, |(_, text)| text.len()));
    // In the JSON, the text is between quotes that the head has already.
    let of_text = text.as_ref().map_or(0, |(_, text)| escaped_bytes(text));
    let bytes = whole.unwrap_or(head.len() as u64 + of_text);
    let (text_block, text) = text.map_or((None, None), |(at, text)| (Some(at), Some(text)));
    let salt = random_salt()?;
    let role = message.role();
    let digest = message_digest(&salt, role, &head, text_block, text.as_deref());
    let stored = StoredMessage {
        role,
        author: message.author(),
        tokens,
        bytes,
        lines,
        text_block,
        salt: Some(salt),
        digest,
        head: Some(head),
        text,
    };
    Ok((stored, blobs))
}

/// Turns the stored form back into the message; `blob` finds a blob by its SHA-256.
///
/// # Errors
/// If the stored JSON is not a message or a blob is missing: the database is damaged.
pub fn decode(stored: StoredMessage, blob: &mut FindBlob<'_>) -> StoreResult<AgentMessage> {
    let text = stored.text_block.zip(stored.text);
    put_together(stored.head.as_deref(), text, blob)
}

/// Decodes a message that is borrowed from its row: its text is copied once.
///
/// # Errors
/// As [`decode`].
pub fn decode_ref(
    message: &StoredMessageRef<'_>,
    blob: &mut FindBlob<'_>,
) -> StoreResult<AgentMessage> {
    put_together(message.head, message.text_block.zip(message.text), blob)
}

fn put_together(
    head: Option<&str>,
    text: Option<(u32, impl Into<String>)>,
    blob: &mut FindBlob<'_>,
) -> StoreResult<AgentMessage> {
    let Some(head) = head else {
        return Ok(AgentMessage::extension(
            extension_kinds::REMOVED,
            Json::null(),
        ));
    };
    let mut message = match fast_parse::message(head) {
        Some(message) => message,
        None => serde_json::from_str(head)
            .map_err(|error| StoreError::Damaged(format!("a message cannot be read: {error}")))?,
    };
    if let Some(inner) = message.message_mut() {
        let content = inner.content_mut();
        if let Some((at, text)) = text {
            match content.get_mut(at as usize) {
                Some(Content::Text(block)) => block.text = text.into(),
                _ => return Err(StoreError::Damaged("a text without its block".into())),
            }
        }
        for block in content.iter_mut() {
            if let Content::Image(image) = block {
                put_image(image, blob)?;
            }
        }
    }
    Ok(message)
}

/// True if a stored message matches its digest. A redacted message has another digest, which only
/// `verify` looks up.
pub(crate) fn fits_digest(message: &StoredMessageRef<'_>) -> bool {
    let (Some(proof), Some(head)) = (&message.proof, message.head) else {
        return true;
    };
    let Some(salt) = &proof.salt else {
        return true;
    };
    message_digest(salt, message.role, head, message.text_block, message.text) == proof.digest
        || failpoints::is_active(Failpoint::UncheckedDigest)
}

/// Returns the digest of a stored message.
pub fn message_digest(
    salt: &[u8; 16],
    role: Role,
    head: &str,
    text_block: Option<u32>,
    text: Option<&str>,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update([role_number(role)]);
    hash.update((head.len() as u64).to_le_bytes());
    hash.update(head);
    hash.update(text_block.map_or(0, |at| u64::from(at) + 1).to_le_bytes());
    hash.update(text.unwrap_or_default());
    hash.finalize().into()
}

/// Returns the chain after a message with this digest. `stamp` is the time that the store assigned to a
/// message without its own time, as the digest of the message does not include it.
pub fn chain(before: &[u8; 32], digest: &[u8; 32], stamp: Option<i64>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(digest);
    if let Some(stamp) = stamp {
        hash.update(stamp.to_le_bytes());
    }
    hash.finalize().into()
}

/// Returns the number of an author in the tables.
pub fn author_number(author: Author) -> u8 {
    match author {
        Author::Human => 0,
        Author::Agent => 1,
        Author::Harness => 2,
    }
}

/// Returns the author with this number.
///
/// # Errors
/// If no author has the number.
pub fn author_from_number(number: i64) -> StoreResult<Author> {
    let author = Author::ALL
        .into_iter()
        .find(|author| i64::from(author_number(*author)) == number);
    author.ok_or_else(|| StoreError::Damaged(format!("author {number}")))
}

/// Returns the number of a role in the tables.
pub fn role_number(role: Role) -> u8 {
    match role {
        Role::User => 0,
        Role::Assistant => 1,
        Role::ToolResult => 2,
        Role::Extension => 3,
    }
}

/// Returns the role with this number.
///
/// # Errors
/// If no role has the number.
pub fn role_from_number(number: i64) -> StoreResult<Role> {
    match number {
        0 => Ok(Role::User),
        1 => Ok(Role::Assistant),
        2 => Ok(Role::ToolResult),
        3 => Ok(Role::Extension),
        _ => Err(StoreError::Damaged(format!("role {number}"))),
    }
}

/// Returns 16 random bytes. Many are requested from the system at once, as a call for each message slows
/// an import measurably.
#[doc(hidden)]
pub fn random_salt() -> StoreResult<[u8; 16]> {
    thread_local!(static LEFT: RefCell<Vec<[u8; 16]>> = const { RefCell::new(Vec::new()) });
    LEFT.with_borrow_mut(|left| {
        if left.is_empty() {
            let mut bytes = [0; 64 * 16];
            let failed = |error: getrandom::Error| StoreError::Other(error.to_string().into());
            getrandom::fill(&mut bytes).map_err(failed)?;
            left.extend_from_slice(bytes.as_chunks().0);
        }
        left.pop()
            .ok_or_else(|| StoreError::Other("no random bytes".into()))
    })
}

/// Returns the size of a message as compact JSON.
#[doc(hidden)]
pub fn json_bytes(message: &AgentMessage) -> StoreResult<u64> {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, message).map_err(|e| StoreError::Invalid(e.to_string()))?;
    Ok(count.0)
}

/// Parses stored JSON.
#[doc(hidden)]
pub fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("stored JSON: {error}")))
}

#[doc(hidden)]
pub fn to_json<T: serde::Serialize>(value: &T) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|e| StoreError::Invalid(e.to_string()))
}

/// Returns the lines of the longest text of a tool result.
#[doc(hidden)]
pub fn tool_result_lines(message: &AgentMessage) -> Option<u32> {
    if message.role() != Role::ToolResult {
        return None;
    }
    let most = message.message()?.texts().map(lines).max().unwrap_or(0);
    Some(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Returns the number of lines of `text.lines()`.
fn lines(text: &str) -> u64 {
    let is_open = !text.is_empty() && !text.ends_with('\n');
    count(text.as_bytes(), |byte| byte == b'\n') + u64::from(is_open)
}

/// Counts bytes. The small inner sums become vector instructions.
fn count(bytes: &[u8], counts: impl Fn(u8) -> bool) -> u64 {
    let few = |few: &[u8]| few.iter().map(|byte| u8::from(counts(*byte))).sum::<u8>();
    bytes.chunks(255).map(|chunk| u64::from(few(chunk))).sum()
}

fn take_text(content: &mut [Content]) -> Option<(u32, String)> {
    let size = |block: &Content| match block {
        Content::Text(text) => text.text.len(),
        _ => 0,
    };
    let (at, block) = content
        .iter_mut()
        .enumerate()
        .max_by_key(|(_, block)| size(block))?;
    match block {
        Content::Text(text) if text.text.len() >= MIN_TEXT_BYTES => {
            Some((u32::try_from(at).ok()?, std::mem::take(&mut text.text)))
        }
        _ => None,
    }
}

fn has_images(message: &Message) -> bool {
    let is_image = |block: &Content| matches!(block, Content::Image(_));
    message.content().iter().any(is_image)
}

/// Returns the bytes of a text within JSON, without its quotes.
fn escaped_bytes(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let escaped = count(bytes, |byte| {
        (byte < 0x20) | (byte == b'"') | (byte == b'\\')
    });
    // `\u00XX` instead of `\n` and the like.
    let is_long = |byte| (byte < 0x08) | (byte == 0x0B) | (byte > 0x0D) & (byte < 0x20);
    bytes.len() as u64 + escaped + 4 * count(bytes, is_long)
}

/// Moves an image's data to a blob, if encoding the bytes restores its base64 exactly.
fn take_image(image: &mut Image) -> Option<Blob> {
    let data = image_data(image)?;
    let sha256: [u8; 32] = Sha256::digest(&data).into();
    image.data.clear();
    image.extra.mark_absent("data");
    image
        .extra
        .insert("blob", Json::string(&hex::encode(sha256)));
    image
        .extra
        .insert("bytes", Json::of(&data.len()).unwrap_or_default());
    Some(Blob { sha256, data })
}

fn put_image(image: &mut Image, blob: &mut FindBlob<'_>) -> StoreResult<()> {
    let name = image
        .extra
        .get("blob")
        .and_then(|json| json.read::<String>().ok());
    let Some(sha256) = name.as_deref().and_then(unhex) else {
        return Ok(());
    };
    if let Some(data) = blob(&sha256)? {
        image.data = STANDARD.encode(data);
        image.extra.remove("blob");
        image.extra.remove("bytes");
    }
    Ok(())
}

/// Reads exactly `N` bytes of hexadecimal text.
#[doc(hidden)]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::HeuristicTokenCounter;

    fn round_trip(json: &str) -> (StoredMessage, Vec<Blob>) {
        let message: AgentMessage = serde_json::from_str(json).unwrap();
        let (stored, blobs) = encode(message.clone(), &HeuristicTokenCounter).unwrap();
        let mut find = |sha: &[u8; 32]| {
            Ok(blobs
                .iter()
                .find(|blob| blob.sha256 == *sha)
                .map(|blob| blob.data.clone()))
        };
        let back = decode(stored.clone(), &mut find).unwrap();
        assert_eq!(
            serde_json::to_string(&back).unwrap(),
            serde_json::to_string(&message).unwrap()
        );
        assert_eq!(
            stored.bytes,
            serde_json::to_string(&message).unwrap().len() as u64
        );
        (stored, blobs)
    }

    #[test]
    fn lines_are_counted_as_rust_does() {
        let long = "x\n".repeat(600);
        for text in ["", "\n", "a", "a\n", "a\n\n", "\r\n\r", &long, &long[1..]] {
            assert_eq!(lines(text), text.lines().count() as u64);
        }
    }

    #[test]
    fn the_bytes_of_a_text_are_those_of_its_json() {
        let every: String = (0..=0x2FF_u32).filter_map(char::from_u32).collect();
        let json = serde_json::to_string(&every).unwrap();
        assert_eq!(escaped_bytes(&every), json.len() as u64 - 2);
        round_trip(&format!(
            r#"{{"role":"user","content":[{{"type":"text","text":{json}}}],"timestamp":1}}"#
        ));
    }

    #[test]
    fn the_largest_text_and_images_stand_apart_and_come_back() {
        let long = "line\\n".repeat(100);
        let (stored, blobs) = round_trip(&format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"a"}},{{"type":"text","text":"{long}"}},
            {{"type":"image","data":"aGVsbG8=","mimeType":"image/png"}}],"timestamp":1}}"#
        ));
        assert_eq!(stored.text_block, Some(1));
        assert_eq!(stored.text.map(|text| text.len()), Some(500));
        assert!(stored.head.unwrap().len() < 300);
        assert_eq!(blobs[0].data, b"hello");
    }

    #[test]
    fn base64_that_is_not_canonical_stays_as_it_is() {
        for data in ["aGVsbG8", "aGVs bG8=", "aGVsbG9=", "???"] {
            let (_, blobs) = round_trip(&format!(
                r#"{{"role":"user","content":[{{"type":"image","data":"{data}","mimeType":"x"}}]}}"#
            ));
            assert!(blobs.is_empty(), "{data}");
        }
    }

    #[test]
    fn equal_messages_have_unequal_digests() {
        let json = r#"{"role":"user","content":[]}"#;
        assert_ne!(round_trip(json).0.digest, round_trip(json).0.digest);
    }
}
