//! The bytes of an image, and the id of the blob that stores them once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::Image;

/// Returns the bytes of an image; `None` if their base64 would differ from the image's.
#[doc(hidden)]
pub fn image_data(image: &Image) -> Option<Vec<u8>> {
    if image.data.is_empty() || image.extra.get("blob").is_some() {
        return None;
    }
    let data = STANDARD.decode(&image.data).ok()?;
    (STANDARD.encode(&data) == image.data).then_some(data)
}

/// Returns the id of an image's blob, the SHA-256 of its bytes in hexadecimal; `None` if the image has no blob.
#[doc(hidden)]
pub fn blob_id(image: &Image) -> Option<String> {
    match image.extra.get("blob") {
        Some(blob) => blob.read().ok(),
        None => image_data(image).map(|data| hex::encode(Sha256::digest(data))),
    }
}
