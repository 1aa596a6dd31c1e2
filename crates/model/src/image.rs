//! The bytes of an image, and the name under which they are stored once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::Image;

/// Returns an image's bytes, if its base64 can be made again from them.
#[doc(hidden)]
pub fn image_data(image: &Image) -> Option<Vec<u8>> {
    if image.data.is_empty() || image.extra.get("blob").is_some() {
        return None;
    }
    let data = STANDARD.decode(&image.data).ok()?;
    (STANDARD.encode(&data) == image.data).then_some(data)
}

/// Returns the id of the blob that holds an image, if one does: the SHA-256 of its bytes.
#[doc(hidden)]
pub fn blob_id(image: &Image) -> Option<String> {
    match image.extra.get("blob") {
        Some(blob) => blob.read().ok(),
        None => image_data(image).map(|data| hex::encode(Sha256::digest(data))),
    }
}
