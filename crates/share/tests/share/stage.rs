//! Shared pages, and all the texts in them.

use std::io::{Cursor, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use loopstore::extend::SessionStore;
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_share::{ShareReport, ShareRequest, SharedSession};
use loopstore_transcripts::{ImportError, SessionLines, Source, import_source};

/// A page, and the report on it.
pub struct Shared {
    pub page: Vec<u8>,
    pub report: ShareReport,
}

/// Shares a session, and checks the page.
pub fn share(store: &SqliteStore, request: &ShareRequest) -> Shared {
    let mut shared = SharedSession::prepare(store, request).unwrap();
    let preview = shared.preview().unwrap();
    let report = shared.redact().unwrap();
    assert_eq!(
        preview.secrets, report.redaction.secrets,
        "what was shown is what is replaced"
    );
    assert_eq!(preview.images, report.redaction.images);
    let mut page = Vec::new();
    shared.write(&mut page).unwrap();
    shared
        .check(Path::new("page.html"), &mut Cursor::new(&page))
        .unwrap();
    Shared { page, report }
}

/// Imports a page into a new store.
pub fn imported(page: &[u8]) -> Result<SqliteStore, ImportError> {
    let store = SqliteStore::in_memory().unwrap();
    let mut source = Source {
        path: Path::new("page.html"),
        reader: &mut Cursor::new(page),
    };
    import_source(&store, &SessionLines, &mut source, None)?;
    Ok(store)
}

pub fn lines(store: &dyn SessionStore, id: &SessionId) -> String {
    let mut out = Vec::new();
    export(store, id, None, ExportForm::Lines, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the text of a page, and the texts of its data.
pub fn texts(page: &[u8]) -> Vec<String> {
    let html = String::from_utf8(page.to_vec()).unwrap();
    let mut texts = Vec::new();
    for element in html.split("<script type=\"application/").skip(1) {
        let (_, rest) = element.split_once('>').unwrap();
        let (packed, _) = rest.split_once("</script>").unwrap();
        let packed = STANDARD.decode(packed).unwrap();
        let mut text = String::new();
        match packed.starts_with(&[0x1f, 0x8b]) {
            true => MultiGzDecoder::new(&*packed).read_to_string(&mut text),
            false => ZlibDecoder::new(&*packed).read_to_string(&mut text),
        }
        .unwrap();
        texts.push(text);
    }
    assert!(texts.len() >= 3, "pieces, lines and the index");
    texts.push(html);
    texts
}

/// Returns the forms in which a text may be in a page: as it is, escaped, as hex, and as base64 at each offset.
pub fn forms(text: &str) -> Vec<String> {
    let escaped = serde_json::to_string(text).unwrap();
    let mut forms = vec![
        text.to_owned(),
        escaped[1..escaped.len() - 1].to_owned(),
        text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        text.replace('&', "&amp;").replace('<', "&lt;"),
    ];
    for offset in 0..3 {
        let shifted = ["", "x", "xx"][offset].to_owned() + text;
        let encoded = STANDARD.encode(shifted);
        // The first and the last characters depend on what is next to the text.
        let end = encoded.trim_end_matches('=').len() - 2;
        forms.push(encoded[(offset * 4).min(4)..end].to_owned());
    }
    forms
}

/// Asserts that a text is in no form in a page.
pub fn assert_absent(page: &[u8], secret: &str) {
    for text in texts(page) {
        for form in forms(secret) {
            assert!(!text.contains(&form), "{secret} as {form}");
        }
    }
}
