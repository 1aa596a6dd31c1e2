//! A message in its stored form: its digest, its size, and the blobs that it shows.

use loopstore::extend::{
    ReceiptRow, StoreResult, StoredMessage, codec,
    scan::{BlobOwner, MessagePlace},
};
use loopstore::model::AgentMessage;

use super::report::{ProblemKind, short};
use super::sessions::SessionScope;
use super::verify::Verify;

/// Checks the digest of a stored message; a removed message needs a receipt.
pub(super) fn check_digest(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    body: &StoredMessage,
    at: MessagePlace,
    place: &str,
) -> StoreResult<()> {
    match (&body.salt, &body.head) {
        (Some(salt), Some(head)) => {
            let text = body.text.as_deref();
            let derived = codec::message_digest(salt, body.role, head, body.text_block, text);
            if derived != body.digest {
                let detail = format!("{} should be {}", short(&body.digest), short(&derived));
                verify.found.add(ProblemKind::Digest, place, detail);
            }
        }
        (_, None) if body.text.is_none() => {
            if !verify.has_receipt(scope.key, &["redact", "prune"]) {
                let detail = "its content was removed and there is no receipt";
                verify.found.add(ProblemKind::Receipt, place, detail);
            }
        }
        (None, Some(head)) => return check_redacted(verify, scope, body, head, at, place),
        _ => {
            let detail = "a part of it is there, and what its digest needs is not";
            verify.found.add(ProblemKind::Digest, place, detail);
        }
    }
    Ok(())
}

/// Checks a message without a salt: its content must be one that a redaction wrote.
fn check_redacted(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    body: &StoredMessage,
    head: &str,
    at: MessagePlace,
    place: &str,
) -> StoreResult<()> {
    let redaction = verify.scan.redaction(at);
    let Some(redaction) = verify.found.readable(place, redaction)? else {
        return Ok(());
    };
    let Some(redaction) = redaction else {
        let detail = "a part of it is there, and what its digest needs is not";
        verify.found.add(ProblemKind::Digest, place, detail);
        return Ok(());
    };
    let (block, text) = (body.text_block, body.text.as_deref());
    let derived = codec::message_digest(&redaction.salt, body.role, head, block, text);
    if derived != redaction.digest {
        let (stored, derived) = (short(&redaction.digest), short(&derived));
        let detail = format!("redacted as {stored}, it should be {derived}");
        verify.found.add(ProblemKind::Digest, place, detail);
    }
    let is_recorded = |receipt: &ReceiptRow| {
        let own = receipt.session == scope.key && receipt.kind == "redact";
        own && receipt.key == redaction.receipt
    };
    if !verify.receipts.iter().any(is_recorded) {
        let detail = "it was redacted and there is no receipt";
        verify.found.add(ProblemKind::Receipt, place, detail);
    }
    Ok(())
}

/// Decodes a stored message, and compares its role, its size and the blobs that it shows.
pub(super) fn decoded(
    verify: &mut Verify<'_>,
    owner: BlobOwner,
    body: &StoredMessage,
    place: &str,
) -> StoreResult<Option<AgentMessage>> {
    let scan = verify.scan;
    let (mut shown, mut missing) = (Vec::new(), Vec::new());
    let message = codec::decode(body.clone(), &mut |name| {
        let data = scan.blob(name)?;
        shown.push(*name);
        if data.is_none() {
            missing.push(*name);
        }
        Ok(data)
    });
    let Some(message) = verify.found.readable(place, message)? else {
        return Ok(None);
    };
    let bytes = codec::json_bytes(&message)?;
    check_blobs(verify, owner, &shown, &missing, bytes == body.bytes, place)?;
    if !missing.is_empty() {
        return Ok(Some(message));
    }
    let tokens = verify.counter.message_tokens(&message);
    let (found, kind) = (&mut verify.found, ProblemKind::Count);
    found.compare(kind, place, "role", &body.role, &message.role());
    found.compare(kind, place, "tokens", &body.tokens, &tokens);
    found.compare(kind, place, "bytes", &body.bytes, &bytes);
    Ok(Some(message))
}

/// Checks that the blobs of a message exist and are recorded. A source may itself name a blob that was never
/// stored: then the size of the message excludes the blob.
fn check_blobs(
    verify: &mut Verify<'_>,
    owner: BlobOwner,
    shown: &[[u8; 32]],
    missing: &[[u8; 32]],
    is_complete: bool,
    place: &str,
) -> StoreResult<()> {
    if shown.is_empty() {
        return Ok(());
    }
    let recorded = verify.scan.blobs_of(owner);
    let recorded = verify.found.readable(place, recorded)?.unwrap_or_default();
    for name in shown {
        let detail = match (missing.contains(name), recorded.contains(name)) {
            (true, true) => "is not there",
            (true, false) if !is_complete => "is not there",
            (false, false) => "is not noted as shown here",
            _ => continue,
        };
        let detail = format!("blob {} {detail}", short(name));
        verify.found.add(ProblemKind::Blob, place, detail);
    }
    Ok(())
}
