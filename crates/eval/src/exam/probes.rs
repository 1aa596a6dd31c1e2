//! The questions of an exam.

use std::collections::HashSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::SheetError;

/// A transcript with its cut, and the questions to a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSet {
    /// The path of the transcript below the folder of transcripts.
    pub file: String,
    /// The number of its lines before the cut.
    pub cut_records: usize,
    /// The questions.
    pub probes: Vec<Probe>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The number of the question, unique in its set.
    pub id: u32,
    /// The kind of the question: `intent`, `next_step`.
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
    /// If the JSON is invalid, there is no probe, or two probes have one id.
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

    /// Returns the part of a transcript before the cut; `None` if the transcript has fewer lines. Lines of the file
    /// are counted: two records on one line count once.
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

    /// Returns the kinds in the order of their first question.
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
