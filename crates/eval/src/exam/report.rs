//! The grades of the candidates of exams.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::super::distinct;
use super::{ProbeSet, Sitting};

/// An exam with its grades.
#[derive(Clone, Debug, PartialEq)]
pub struct GradedExam {
    /// The name of the exam.
    pub name: String,
    /// The questions of the exam.
    pub probes: ProbeSet,
    /// The candidate of each letter.
    pub candidates: BTreeMap<String, String>,
    /// Each grade with its question and its sitting.
    pub grades: Vec<(u32, Sitting, f64)>,
}

/// The means of exams; serialises to the JSON that `eval exam score --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExamReport {
    /// The exams.
    pub exams: Vec<String>,
    /// The kinds of questions, in the order of their first question.
    pub kinds: Vec<String>,
    /// The results over all exams, then the results of each exam.
    pub results: Vec<ExamResult>,
}

/// The grades of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExamResult {
    /// The exam; `None` for all exams together.
    pub exam: Option<String>,
    /// The candidate.
    pub candidate: String,
    /// True if the readers could look up content that the context lacks.
    pub lookups: bool,
    /// The number of sittings.
    pub sittings: usize,
    /// The mean of all grades.
    pub mean: f64,
    /// The mean for each kind of question.
    pub kinds: BTreeMap<String, f64>,
}

/// The grades of one candidate.
#[derive(Default)]
struct GradeTally {
    sittings: HashSet<(String, Sitting)>,
    all: Mean,
    kinds: BTreeMap<String, Mean>,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, grade: f64) {
        self.sum += grade;
        self.count += 1;
    }

    fn value(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

impl ExamReport {
    /// Returns the means over all exams and of each exam.
    pub fn new(exams: &[GradedExam]) -> Self {
        let mut report = Self {
            exams: exams.iter().map(|exam| exam.name.clone()).collect(),
            kinds: distinct(exams.iter().flat_map(|exam| exam.probes.kinds()))
                .into_iter()
                .map(str::to_owned)
                .collect(),
            results: results(None, exams),
        };
        if exams.len() > 1 {
            for exam in exams {
                let of_exam = results(Some(&exam.name), std::slice::from_ref(exam));
                report.results.extend(of_exam);
            }
        }
        report
    }
}

/// Returns the results of some exams together, the best candidate first.
fn results(name: Option<&str>, exams: &[GradedExam]) -> Vec<ExamResult> {
    let mut tallies: BTreeMap<(&str, bool), GradeTally> = BTreeMap::new();
    for exam in exams {
        let probes = exam.probes.probes.iter();
        let kinds: HashMap<u32, &str> = probes.map(|p| (p.id, p.category.as_str())).collect();
        for (question, sitting, grade) in &exam.grades {
            let candidate = exam.candidates.get(&sitting.letter);
            let candidate = candidate.map_or(sitting.letter.as_str(), String::as_str);
            let tally = tallies.entry((candidate, sitting.lookups)).or_default();
            tally.sittings.insert((exam.name.clone(), sitting.clone()));
            tally.all.add(*grade);
            if let Some(kind) = kinds.get(question) {
                tally
                    .kinds
                    .entry((*kind).to_owned())
                    .or_default()
                    .add(*grade);
            }
        }
    }
    let result = |((candidate, lookups), tally): ((&str, bool), GradeTally)| ExamResult {
        exam: name.map(str::to_owned),
        candidate: candidate.to_owned(),
        lookups,
        sittings: tally.sittings.len(),
        mean: tally.all.value(),
        kinds: tally
            .kinds
            .into_iter()
            .map(|(kind, mean)| (kind, mean.value()))
            .collect(),
    };
    let mut results: Vec<ExamResult> = tallies.into_iter().map(result).collect();
    results.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    results
}
