//! The digests of a bare ceiling: SHA-256 of a random salt and the bytes, chained.

use sha2::{Digest, Sha256};

use super::Outcome;

/// Salts from random bytes that are requested for many at once.
#[derive(Default)]
pub struct Salts(Vec<u8>);

impl Salts {
    pub fn next_salt(&mut self) -> Outcome<[u8; 16]> {
        if self.0.is_empty() {
            self.0.resize(4096, 0);
            getrandom::fill(&mut self.0).map_err(|error| error.to_string())?;
        }
        let at = self.0.len() - 16;
        let salt = self.0[at..].try_into()?;
        self.0.truncate(at);
        Ok(salt)
    }
}

pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}
