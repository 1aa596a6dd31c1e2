//! The first pass: the locations of the entries.

use loopstore::model::Json;

use crate::fields::Fields;
use crate::lines::SourceLocation;
use crate::values::json;

/// One entry.
#[derive(Debug)]
pub(super) struct PiEntry {
    pub(super) place: SourceLocation,
    /// The number among the readable entries; `None` if the entry could not be read.
    pub(super) number: Option<usize>,
}

/// The facts that the first pass collects.
#[derive(Debug, Default)]
pub(super) struct PiEntries {
    pub(super) all: Vec<PiEntry>,
    readable: usize,
    pub(super) session: Option<String>,
    pub(super) title: Option<String>,
    pub(super) project: Option<String>,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
    /// The session from which this one was forked, according to the header.
    pub(super) origin: Vec<(&'static str, Json)>,
}

impl PiEntries {
    /// Indexes the next entry.
    pub(super) fn add(&mut self, entry: &Fields<'_>, place: SourceLocation) {
        if let Some(time) = entry.text("timestamp") {
            self.started.get_or_insert_with(|| time.clone());
            self.ended = Some(time);
        }
        match entry.text("type").as_deref() {
            Some("session") if self.session.is_none() => self.header(entry),
            Some("session_info") => {
                self.title = entry.text("name").or(self.title.take());
            }
            _ => {}
        }
        self.all.push(PiEntry {
            place,
            number: Some(self.readable),
        });
        self.readable += 1;
    }

    /// Indexes bytes that are not an entry.
    pub(super) fn add_unreadable(&mut self, place: SourceLocation) {
        self.all.push(PiEntry {
            place,
            number: None,
        });
    }

    fn header(&mut self, entry: &Fields<'_>) {
        self.session = entry.text("id");
        self.project = entry.text("cwd");
        for key in ["parentSession", "branchedFrom", "cwd"] {
            if let Some(value) = entry.get(key).and_then(|value| json(value).ok()) {
                self.origin.push((key, value));
            }
        }
    }
}
