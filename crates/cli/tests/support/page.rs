//! Decodes a report page.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use loopstore::{SessionId, SessionStore};
use loopstore_report::{ReportOptions, write_report};
use serde_json::Value;

pub struct Page {
    pub html: String,
    pub index: Value,
}

impl Page {
    pub fn of(store: &dyn SessionStore, session: &str) -> Self {
        Self::with(store, session, &ReportOptions::default())
    }

    pub fn with(store: &dyn SessionStore, session: &str, options: &ReportOptions) -> Self {
        let mut html = Vec::new();
        let id = SessionId::new(session).unwrap();
        write_report(store, &id, options, &mut html).unwrap();
        Self::read(String::from_utf8(html).unwrap())
    }

    pub fn read(html: String) -> Self {
        let index = unpacked(&html, "index").unwrap();
        Self { html, index }
    }

    /// Returns all entries, piece by piece.
    pub fn pieces(&self) -> Vec<Vec<Value>> {
        let piece = |at| unpacked(&self.html, &format!("piece-{at}"));
        let pieces = (0..).map_while(piece);
        pieces.map(|p| p.as_array().unwrap().clone()).collect()
    }

    pub fn entries(&self) -> Vec<Value> {
        self.pieces().concat()
    }
}

fn unpacked(html: &str, id: &str) -> Option<Value> {
    let begin = format!("<script type=\"application/octet-stream\" id=\"{id}\">");
    let (_, rest) = html.split_once(&begin)?;
    let (packed, _) = rest.split_once("</script>").unwrap();
    let mut json = String::new();
    ZlibDecoder::new(&*STANDARD.decode(packed).unwrap())
        .read_to_string(&mut json)
        .unwrap();
    Some(serde_json::from_str(&json).unwrap())
}
