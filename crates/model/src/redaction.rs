//! The markers that replace redacted text.

use sha2::{Digest as _, Sha256};

/// The beginning of a marker.
pub const MARKER: &str = "[REDACTED:";

/// Returns the hexadecimal digits that replace a secret. They are from a digest keyed with the key of the database:
/// equal secrets have equal digits, and a secret cannot be found by testing values.
pub fn secret_id(key: &[u8], secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"loopstore redaction");
    hash.update((key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(secret);
    hex::encode(&hash.finalize()[..8])
}

/// Returns the key that replaces an append key with secrets. It is derived from the whole key, not from the secrets
/// in it, so that the append is found again with the original key of the caller.
pub fn append_key_marker(key: &[u8], name: &str) -> String {
    let id = secret_id(key, &format!("append key {name}"));
    format!("{MARKER}append-key:{id}]")
}
