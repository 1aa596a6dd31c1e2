//! A page: the frame, the pieces of data, the script.
//!
//! Text of a transcript is in the page only as base64. The policy in its head lets the browser
//! run this script only, use this style only, and load nothing.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde::Serialize;

use crate::{ReportAttachment, ReportError};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("report.css");
const SHARED: &str = include_str!("shared.js");
const SESSION: &str = include_str!("session.html");
const SESSION_SCRIPTS: [&str; 6] = [
    SHARED,
    include_str!("lists.js"),
    include_str!("charts.js"),
    include_str!("documents.js"),
    include_str!("conversation.js"),
    include_str!("session.js"),
];
const OVERVIEW: &str = include_str!("overview.html");
const OVERVIEW_SCRIPTS: [&str; 2] = [SHARED, include_str!("overview.js")];
const COMPACTIONS: &str = include_str!("compactions.html");
const COMPACTIONS_SCRIPTS: [&str; 2] = [SHARED, include_str!("compactions.js")];

/// The bytes of JSON after which the next piece begins.
const PIECE_BYTES: usize = 192 << 10;

/// The page of a session while it is written: its entries come first, its index last.
pub(super) struct HtmlPage<'a> {
    out: &'a mut dyn Write,
    piece: Vec<u8>,
    count: usize,
}

impl<'a> HtmlPage<'a> {
    /// Begins a page. The head names the attachment, if there will be one.
    pub(super) fn begin(
        out: &'a mut dyn Write,
        attachment: Option<&ReportAttachment<'_>>,
    ) -> io::Result<Self> {
        let meta = attachment.map(|attachment| {
            let (name, kind) = (attachment.name, attachment.media_type);
            format!("<meta name=\"{name}\" content=\"{kind}\">\n")
        });
        let meta = meta.unwrap_or_default();
        frame(out, &meta, SESSION, &SESSION_SCRIPTS.concat())?;
        Ok(Self {
            out,
            piece: Vec::new(),
            count: 0,
        })
    }

    /// Adds an entry and returns the number of its piece.
    pub(super) fn entry(&mut self, entry: &impl Serialize) -> Result<usize, ReportError> {
        let begins = self.piece.is_empty();
        self.piece.push(if begins { b'[' } else { b',' });
        serde_json::to_writer(&mut self.piece, entry)?;
        let number = self.count;
        if self.piece.len() >= PIECE_BYTES {
            self.end_piece()?;
        }
        Ok(number)
    }

    fn end_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.piece.push(b']');
        data(self.out, &format!("piece-{}", self.count), &self.piece)?;
        self.piece.clear();
        self.count += 1;
        Ok(())
    }

    /// Writes data for other programs, compressed; the page does not read it.
    pub(super) fn attach(&mut self, attachment: &ReportAttachment<'_>) -> io::Result<()> {
        self.end_piece()?;
        let (name, kind) = (attachment.name, attachment.media_type);
        write!(self.out, "<script type=\"{kind}\" id=\"{name}\">")?;
        let text = EncoderWriter::new(&mut *self.out, &STANDARD);
        let mut packed = GzEncoder::new(text, Compression::default());
        packed.write_all(attachment.data)?;
        packed.finish()?.finish()?;
        writeln!(self.out, "</script>")
    }

    /// Writes the index and the script.
    pub(super) fn finish(mut self, index: &impl Serialize) -> Result<(), ReportError> {
        self.end_piece()?;
        data(self.out, "index", &serde_json::to_vec(index)?)?;
        Ok(end(self.out, &SESSION_SCRIPTS.concat())?)
    }
}

/// Writes a page that lists sessions.
pub(super) fn overview(index: &impl Serialize, out: &mut dyn Write) -> Result<(), ReportError> {
    whole(OVERVIEW, &OVERVIEW_SCRIPTS.concat(), index, out)
}

/// Writes a page of recorded compactions.
pub(super) fn compactions(index: &impl Serialize, out: &mut dyn Write) -> Result<(), ReportError> {
    whole(COMPACTIONS, &COMPACTIONS_SCRIPTS.concat(), index, out)
}

fn whole(
    body: &str,
    script: &str,
    index: &impl Serialize,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    frame(out, "", body, script)?;
    data(out, "index", &serde_json::to_vec(index)?)?;
    Ok(end(out, script)?)
}

fn frame(out: &mut dyn Write, meta: &str, body: &str, script: &str) -> io::Result<()> {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let (style, script) = (hash(STYLE), hash(script));
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{meta}\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>loopstore report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}"
    )
}

/// Writes a piece of data, compressed; nothing in base64 can end the element.
fn data(out: &mut dyn Write, id: &str, json: &[u8]) -> io::Result<()> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(json)?;
    let text = STANDARD.encode(packed.finish()?);
    writeln!(
        out,
        "<script type=\"application/octet-stream\" id=\"{id}\">{text}</script>"
    )
}

fn end(out: &mut dyn Write, script: &str) -> io::Result<()> {
    write!(out, "<script>{script}</script>\n</body>\n</html>\n")
}
