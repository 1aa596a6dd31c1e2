//! The first pass: where the entries stand.

use loopstore::model::Json;

use crate::fields::Fields;
use crate::lines::SourceLocation;
use crate::values::json;

/// One entry.
#[derive(Debug)]
pub(super) struct PiEntry {
    pub(super) place: SourceLocation,
    /// Its number among the entries that could be read; `None` if it could not.
    pub(super) number: Option<usize>,
}

/// Everything that the first pass learns.
#[derive(Debug, Default)]
pub(super) struct PiEntries {
    pub(super) all: Vec<PiEntry>,
    readable: usize,
    pub(super) session: Option<String>,
    pub(super) title: Option<String>,
    pub(super) project: Option<String>,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
    /// The session that this one was taken from, as the header says it.
    pub(super) origin: Vec<(&'static str, Json)>,
}

impl PiEntries {
    /// Takes the next entry.
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

    /// Takes what is no entry.
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
