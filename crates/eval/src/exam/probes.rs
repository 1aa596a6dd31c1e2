//! The questions of an exam.

use std::collections::HashSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::SheetError;

/// A transcript, where it is cut, and what a reader is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSet {
    /// The transcript, below the folder of transcripts.
    pub file: String,
    /// The number of its lines before the cut.
    pub cut_records: usize,
    /// The questions.
    pub probes: Vec<Probe>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Its number, unique in its set.
    pub id: u32,
    /// What kind of question it is: `intent`, `next_step`.
    pub category: String,
    /// The question.
    pub question: String,
    /// The right answer.
    pub gold: String,
    /// The points that a right answer has.
    pub points: Vec<String>,
}

impl ProbeSet {
    /// Reads a set of probes from JSON.
    ///
    /// # Errors
    /// If the JSON is broken, there is no probe, or two have one id.
    pub fn from_json(json: &str) -> Result<Self, SheetError> {
        let set: Self =
            serde_json::from_str(json).map_err(|error| SheetError(error.to_string()))?;
        if set.probes.is_empty() {
            return Err(SheetError("there are no probes".into()));
        }
        let mut seen = HashSet::new();
        match set.probes.iter().find(|probe| !seen.insert(probe.id)) {
            Some(twice) => Err(SheetError(format!("two probes have the id {}", twice.id))),
            None => Ok(set),
        }
    }

    /// Returns the part of a transcript before the cut; `None` if it has fewer lines. Lines count as they
    /// stand in the file: two records on one line are one.
    pub fn cut<'a>(&self, transcript: &'a [u8]) -> Option<&'a [u8]> {
        lines(transcript, self.cut_records)
    }

    /// Returns the questions as Markdown, without answers.
    pub fn questions(&self) -> String {
        let mut text = String::new();
        for probe in &self.probes {
            let _ = writeln!(text, "{}. {}", probe.id, probe.question.trim());
        }
        text
    }

    /// Returns the kinds in the order in which they first come.
    pub fn kinds(&self) -> Vec<&str> {
        super::super::distinct(self.probes.iter().map(|probe| probe.category.as_str()))
    }
}

/// Returns the first lines; `None` if there are fewer.
fn lines(text: &[u8], count: usize) -> Option<&[u8]> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let mut bytes = 0;
    for _ in 0..count {
        bytes += lines.next()?.len();
    }
    text.get(..bytes)
}
