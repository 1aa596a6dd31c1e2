//! The folder of an exam.
//!
//! ```text
//! NAME.db                the session up to the cut
//! NAME/A.txt             the context of a reader
//! NAME/questions.md      the questions (and .json)
//! NAME/lookups.md        the lookup commands, for sittings with lookups
//! NAME/answers-A-1.json  the answers; with lookups answers-A-lookup-1.json
//! NAME/grading.md        the sheet of the grader, whose grades go into grading.json
//! key/                   hidden from both: candidates, right answers, the source of each answer
//! ```

use std::path::{Path, PathBuf};

use crate::exam::{GradingKey, ProbeSet, Sitting};
use loopstore_terminal::CliError;
use serde::{Deserialize, Serialize};

use super::super::{bad_file, read_text};

/// The list of prepared exams.
#[derive(Serialize, Deserialize)]
pub struct PreparedExams {
    /// The seed of the order of letters and of answers.
    pub seed: u64,
    pub exams: Vec<PreparedExam>,
}

#[derive(Serialize, Deserialize)]
pub struct PreparedExam {
    pub exam: String,
    pub file: String,
    pub session_id: String,
    /// Tokens before the cut.
    pub tokens: u64,
    /// The maximum number of tokens of a context.
    pub size: u64,
    /// The run of the transcript's own compaction at the cut.
    pub run_id: Option<String>,
    pub candidates: Vec<PreparedCandidate>,
}

#[derive(Serialize, Deserialize)]
pub struct PreparedCandidate {
    pub letter: String,
    pub candidate: String,
    pub tokens: u64,
}

/// The folder of an exam, and the names of its files.
pub struct ExamFolder(PathBuf);

impl ExamFolder {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// If the folder exists and is not empty, so that no answers are lost.
    pub fn create(&self) -> Result<(), CliError> {
        std::fs::create_dir_all(self.key()).map_err(|error| bad_file(&self.0, error))
    }

    /// True if the folder does not exist or is empty.
    pub fn is_free(&self) -> bool {
        match std::fs::read_dir(&self.0) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    pub fn database(&self, exam: &str) -> PathBuf {
        self.0.join(format!("{exam}.db"))
    }

    /// Returns the folder of an exam.
    pub fn of(&self, exam: &str) -> PathBuf {
        self.0.join(exam)
    }

    pub fn answers(&self, exam: &str, sitting: &Sitting) -> PathBuf {
        self.of(exam).join(sitting.file_name())
    }

    pub fn grades(&self, exam: &str) -> PathBuf {
        self.of(exam).join("grading.json")
    }

    pub fn sheet(&self, exam: &str) -> PathBuf {
        self.of(exam).join("grading.md")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key")
    }

    pub fn list(&self) -> PathBuf {
        self.key().join("exams.json")
    }

    pub fn probes(&self, exam: &str) -> PathBuf {
        self.key().join(format!("{exam}-probes.json"))
    }

    pub fn grading_key(&self, exam: &str) -> PathBuf {
        self.key().join(format!("{exam}-grading.json"))
    }

    /// Reads the list of prepared exams.
    pub fn read(&self) -> Result<PreparedExams, CliError> {
        let list = self.list();
        if !list.exists() {
            let why = "no exam was prepared here; `loopstore eval exam prepare` does it";
            return Err(bad_file(&self.0, why));
        }
        serde_json::from_str(&read_text(&list)?).map_err(|error| bad_file(&list, error))
    }

    pub fn read_probes(&self, exam: &str) -> Result<ProbeSet, CliError> {
        let path = self.probes(exam);
        ProbeSet::from_json(&read_text(&path)?).map_err(|error| bad_file(&path, error))
    }

    /// Reads the key of the sheet; `None` if there is no sheet.
    pub fn read_grading_key(&self, exam: &str) -> Result<Option<GradingKey>, CliError> {
        let path = self.grading_key(exam);
        if !path.exists() {
            return Ok(None);
        }
        let key = serde_json::from_str(&read_text(&path)?);
        key.map(Some).map_err(|error| bad_file(&path, error))
    }

    /// Returns the sittings for which there are files of answers.
    pub fn sittings(&self, exam: &PreparedExam) -> Result<Vec<Sitting>, CliError> {
        let folder = self.of(&exam.exam);
        let entries = std::fs::read_dir(&folder).map_err(|error| bad_file(&folder, error))?;
        let mut sittings = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| bad_file(&folder, error))?.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with("answers") {
                continue;
            }
            let path = folder.join(&*name);
            let sitting = sitting(&name)
                .ok_or_else(|| bad_file(&path, "answers are named `answers-LETTER-NUMBER.json`"))?;
            if !exam
                .candidates
                .iter()
                .any(|one| one.letter == sitting.letter)
            {
                let why = format!("there is no context {}", sitting.letter);
                return Err(bad_file(&path, why));
            }
            sittings.push(sitting);
        }
        sittings.sort();
        Ok(sittings)
    }
}

/// Parses the name of a file of answers.
fn sitting(name: &str) -> Option<Sitting> {
    let middle = name.strip_prefix("answers-")?.strip_suffix(".json")?;
    let (front, number) = middle.rsplit_once('-')?;
    let (letter, lookups) = match front.strip_suffix("-lookup") {
        Some(letter) => (letter, true),
        None => (front, false),
    };
    Some(Sitting {
        letter: letter.to_owned(),
        lookups,
        number: number.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_answers_names_its_sitting() {
        for (letter, lookups, number) in [("A", false, 1), ("B", true, 12)] {
            let letter = letter.to_owned();
            let one = Sitting {
                letter,
                lookups,
                number,
            };
            assert_eq!(sitting(&one.file_name()), Some(one));
        }
        for bad in [
            "answers.json",
            "answers-A.json",
            "answers-A-x.json",
            "answers-A-1.txt",
        ] {
            assert_eq!(sitting(bad), None, "{bad}");
        }
    }
}
