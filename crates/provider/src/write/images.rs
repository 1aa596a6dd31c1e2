//! Checks images against their bytes: a provider rejects an image with a wrong media type, and so every later request
//! of the conversation.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{self, GeneralPurpose, GeneralPurposeConfig};

use super::{Mending, MendingKind};
use loopstore_model::{Content, Image};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Corrects the images of a message: the media type is that of the bytes, the data plain base64. An image that
/// no provider reads becomes a text.
pub(super) fn check(at: usize, content: &mut [Content], mended: &mut Vec<Mending>) {
    for block in content {
        let Content::Image(image) = block else {
            continue;
        };
        // A message without any other content is empty, and left out later.
        if image.data.is_empty() {
            continue;
        }
        let Some((media_type, clean)) = read(image) else {
            *block = Content::text(note(image));
            mended.push(Mending::of(MendingKind::ImageReplaced, at));
            continue;
        };
        if let Some(clean) = clean {
            image.data = clean;
        }
        if type_of(&image.mime_type) != Some(media_type) {
            mended.push(Mending::of(MendingKind::ImageRetyped, at));
        }
        media_type.clone_into(&mut image.mime_type);
    }
}

/// Returns the media type of this name, if all providers read it.
pub(super) fn type_of(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

/// Returns the media type of an image's bytes, and its data in standard base64 if it was in another form; `None` if the
/// bytes are no image that all providers read.
fn read(image: &Image) -> Option<(&'static str, Option<String>)> {
    let (bytes, is_plain) = decode(&image.data)?;
    let clean = (!is_plain).then(|| general_purpose::STANDARD.encode(&bytes));
    Some((type_of_bytes(&bytes)?, clean))
}

/// Decodes base64, also in the URL alphabet, without padding or with white space; the boolean is true if it is in
/// standard form.
fn decode(data: &str) -> Option<(Vec<u8>, bool)> {
    if let Ok(bytes) = general_purpose::STANDARD.decode(data) {
        return Some((bytes, true));
    }
    let dense: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let alphabet = if dense.contains(['-', '_']) {
        &URL_SAFE
    } else {
        &STANDARD
    };
    let bytes = GeneralPurpose::new(alphabet, LENIENT).decode(dense).ok()?;
    Some((bytes, false))
}

fn type_of_bytes(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

/// The most characters of a declared media type in a note.
const SHOWN: usize = 40;

/// Returns the text that replaces an image that no provider reads.
fn note(image: &Image) -> String {
    let declared: String = image.mime_type.chars().take(SHOWN).collect();
    match decode(&image.data) {
        Some((bytes, _)) => format!(
            "[image left out: its {} bytes, declared as {declared}, are not PNG, JPEG, GIF or WebP]",
            bytes.len()
        ),
        None => format!("[image left out: its data, declared as {declared}, is not base64]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(data: &str, media_type: &str) -> (Content, Vec<MendingKind>) {
        let mut mended = Vec::new();
        let mut content = [Content::image(data, media_type)];
        check(0, &mut content, &mut mended);
        let [block] = content;
        (block, mended.iter().map(|mending| mending.kind).collect())
    }

    #[test]
    fn the_media_type_is_that_of_the_bytes() {
        let encode = |bytes: &[u8]| general_purpose::STANDARD.encode(bytes);
        let images: [(&[u8], &str); 5] = [
            (b"\x89PNG\r\n\x1a\nIHDR", "image/png"),
            (b"\xff\xd8\xff\xe0JFIF", "image/jpeg"),
            (b"GIF87a..", "image/gif"),
            (b"GIF89a..", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ];
        for (bytes, right) in images {
            let (same, mended) = checked(&encode(bytes), right);
            assert!(mended.is_empty(), "{right}");
            for wrong in ["image/bmp", "image/svg+xml", "", "text/html"] {
                let (block, mended) = checked(&encode(bytes), wrong);
                assert_eq!(block, same, "{right} declared as {wrong}");
                assert_eq!(mended, [MendingKind::ImageRetyped]);
            }
        }
        let (block, mended) = checked(&encode(images[1].0), "IMAGE/JPG");
        assert!(matches!(block, Content::Image(image) if image.mime_type == "image/jpeg"));
        assert!(mended.is_empty());
    }

    #[test]
    fn base64_of_other_kinds_becomes_plain() {
        let bytes = b"\xff\xd8\xff\xfb\xff\xfe?";
        let plain = general_purpose::STANDARD.encode(bytes);
        let url = general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let wrapped = format!("{}\n{}", &plain[..4], &plain[4..]);
        for data in [url, wrapped] {
            let (block, _) = checked(&data, "image/jpeg");
            assert!(
                matches!(block, Content::Image(image) if image.data == plain),
                "{data}"
            );
        }
    }

    #[test]
    fn what_is_no_image_becomes_a_text() {
        let page = general_purpose::STANDARD.encode("<!DOCTYPE html><title>Not found</title>");
        let (block, mended) = checked(&page, "image/png");
        let text =
            "[image left out: its 39 bytes, declared as image/png, are not PNG, JPEG, GIF or WebP]";
        assert_eq!(block, Content::text(text));
        assert_eq!(mended, [MendingKind::ImageReplaced]);
        let (block, _) = checked("no base64!", &"x".repeat(1_000));
        assert!(matches!(block, Content::Text(text) if text.text.len() < 100));
        assert!(matches!(checked("", "image/png").0, Content::Image(_)));
    }
}
