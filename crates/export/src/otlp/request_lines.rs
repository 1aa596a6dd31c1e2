//! The lines of an OTLP JSON file, each a whole `ExportTraceServiceRequest`.

use std::io::Write;

use loopstore::extend::SessionRow;
use serde::Serialize;

use super::OtlpContent;
use super::wire::{OtlpAttributes, OtlpSpan};
use crate::ExportError;

/// The size at which a line ends. The collector's receiver of such files reads lines of at most 1 MiB by default; a
/// single span with large texts may exceed it.
const LINE_BYTES: usize = 512 << 10;

/// The writer of the lines.
pub(super) struct RequestLines<'a> {
    out: &'a mut dyn Write,
    /// The beginning of each line, through the list of spans.
    prefix: String,
    /// The bytes of the open line; 0 if no line is open.
    bytes: usize,
}

#[derive(Serialize)]
struct OtlpResource {
    attributes: OtlpAttributes,
}

#[derive(Serialize)]
struct OtlpScope {
    name: &'static str,
    version: &'static str,
}

/// The end of each line, after the spans.
const SUFFIX: &str = "]}]}]}\n";

impl<'a> RequestLines<'a> {
    pub(super) fn new(
        out: &'a mut dyn Write,
        session: &SessionRow,
        content: OtlpContent,
    ) -> Result<Self, ExportError> {
        let mut attributes = OtlpAttributes::default();
        let service = session.agent_id.as_deref().or(session.source.as_deref());
        attributes.text("service.name", content.name(service.unwrap_or("loopstore")));
        attributes.text("session.id", session.session_id.as_str());
        let source = session.source.as_deref();
        attributes.text_if(
            "loopstore.session.source",
            source.map(|name| content.name(name)),
        );
        if content == OtlpContent::Included {
            attributes.text_if("loopstore.session.title", session.title.as_deref());
            attributes.text_if("loopstore.session.project", session.project.as_deref());
        }
        let scope = OtlpScope {
            name: "loopstore",
            version: env!("CARGO_PKG_VERSION"),
        };
        let prefix = format!(
            r#"{{"resourceSpans":[{{"resource":{},"scopeSpans":[{{"scope":{},"spans":["#,
            serde_json::to_string(&OtlpResource { attributes })?,
            serde_json::to_string(&scope)?,
        );
        Ok(Self {
            out,
            prefix,
            bytes: 0,
        })
    }

    /// Adds a span to the open line, or to a new one.
    pub(super) fn push(&mut self, span: &OtlpSpan) -> Result<(), ExportError> {
        let text = serde_json::to_vec(span)?;
        if self.bytes > 0 && self.bytes + text.len() > LINE_BYTES {
            self.finish()?;
        }
        match self.bytes {
            0 => {
                self.out.write_all(self.prefix.as_bytes())?;
                self.bytes = self.prefix.len();
            }
            _ => self.out.write_all(b",")?,
        }
        self.out.write_all(&text)?;
        self.bytes += text.len() + 1;
        Ok(())
    }

    /// Ends the open line.
    pub(super) fn finish(&mut self) -> Result<(), ExportError> {
        if self.bytes > 0 {
            self.out.write_all(SUFFIX.as_bytes())?;
            self.bytes = 0;
        }
        Ok(())
    }
}
