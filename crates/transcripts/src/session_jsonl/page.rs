//! A page with a session: `loopstore share` writes the lines into a page for a browser, in an element of their own.

use std::io::{self, Cursor};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::wrong;
use crate::{ImportError, ReadSeek, Source, unread};

/// The name of the element with the lines, and of the `<meta>` element by which a page is recognised.
pub const PAGE_NAME: &str = "loopstore-session";
/// The media type of the lines in a page: gzip, as base64.
pub const PAGE_MEDIA_TYPE: &str = "application/x-loopstore-session";

/// The beginning of every page.
const DOCTYPE: &[u8] = b"<!doctype html>";

/// True if a file that begins with `head` is a page with a session.
pub(super) fn is_page(head: &[u8]) -> bool {
    let name = format!("<meta name=\"{PAGE_NAME}\"");
    head.starts_with(DOCTYPE) && memchr::memmem::find(head, name.as_bytes()).is_some()
}

/// Returns the compressed lines of a page; `None` if the source is no page. The text of the session is in the page only
/// as base64, so that no part of it can be taken for the element.
pub(super) fn packed_lines(
    source: &mut Source<'_>,
) -> Result<Option<Cursor<Vec<u8>>>, ImportError> {
    let text = match element_text(source.reader).map_err(unread(source.path))? {
        PageText::NoPage => return Ok(None),
        PageText::NoElement => {
            return Err(wrong("the page has no session; it was cut off or altered"));
        }
        PageText::Element(text) => text,
    };
    match STANDARD.decode(text.trim_ascii()) {
        Ok(packed) if !packed.is_empty() => Ok(Some(Cursor::new(packed))),
        _ => Err(wrong(
            "the session in the page was cut off or altered; get the page again",
        )),
    }
}

/// The text of the element with the lines.
enum PageText {
    /// The file is no page; its reader is at the beginning.
    NoPage,
    /// The page has no such element.
    NoElement,
    Element(Vec<u8>),
}

fn element_text(reader: &mut dyn ReadSeek) -> io::Result<PageText> {
    reader.rewind()?;
    if !reader.fill_buf()?.starts_with(DOCTYPE) {
        return Ok(PageText::NoPage);
    }
    let tag = format!("<script type=\"{PAGE_MEDIA_TYPE}\" id=\"{PAGE_NAME}\">");
    let mut text = Vec::new();
    while !text.ends_with(tag.as_bytes()) {
        text.clear();
        if reader.read_until(b'>', &mut text)? == 0 {
            return Ok(PageText::NoElement);
        }
    }
    text.clear();
    reader.read_until(b'<', &mut text)?;
    text.pop_if(|byte| *byte == b'<');
    Ok(PageText::Element(text))
}
