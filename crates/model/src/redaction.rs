//! The markers that stand in place of redacted text.

use sha2::{Digest as _, Sha256};

/// The beginning of a marker.
pub const MARKER: &str = "[REDACTED:";

/// Returns the hexadecimal digits that stand for a secret: of a digest that is keyed with the key of the database,
/// so that equal secrets have equal digits and nobody finds a secret by trying values.
pub fn secret_id(key: &[u8], secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"loopstore redaction");
    hash.update((key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(secret);
    hex::encode(&hash.finalize()[..8])
}

/// Returns the key that stands for the key of an append in which secrets were found. It is made of the whole key,
/// whatever rules find in it, so that the append is found again by the key that its caller has.
pub fn append_key_marker(key: &[u8], name: &str) -> String {
    let id = secret_id(key, &format!("append key {name}"));
    format!("{MARKER}append-key:{id}]")
}
