//! The answers of readers, and the sheet on which they are graded.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::super::shuffled;
use super::{Probe, ProbeSet, SheetError};

/// The instructions for a grader.
const RULES: &str = "Grade each answer by its points: the share of them that it gets right, as 0, 0.25, 0.5, \
    0.75 or 1, less 0.25 for each statement in it that would mislead who goes on with the work, but never \
    below 0. \"Unknown\" gets 0. Write the grades into the JSON beside this sheet, in place of `null`.";

/// A sitting: one reader answers the questions from one context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sitting {
    /// The letter of the context.
    pub letter: String,
    /// True if the reader could look up content that the context lacks.
    pub lookups: bool,
    /// The number of the sitting, from 1.
    pub number: u32,
}

impl Sitting {
    /// Returns the name of the file with its answers.
    pub fn file_name(&self) -> String {
        let lookups = if self.lookups { "-lookup" } else { "" };
        format!("answers-{}{lookups}-{}.json", self.letter, self.number)
    }
}

/// The answers of a reader, by the id of the probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Answers(BTreeMap<u32, String>);

impl Answers {
    /// Returns the form that a reader fills in.
    pub fn blank(probes: &ProbeSet) -> Self {
        let blank = |probe: &Probe| (probe.id, String::new());
        Self(probes.probes.iter().map(blank).collect())
    }

    /// Reads answers from JSON. Returns `None` if no answer was filled in.
    ///
    /// # Errors
    /// If the JSON is invalid, an id belongs to no probe, or an answer is missing.
    pub fn from_json(json: &str, probes: &ProbeSet) -> Result<Option<Self>, SheetError> {
        let answers: Self =
            serde_json::from_str(json).map_err(|error| SheetError(error.to_string()))?;
        let known = Self::blank(probes);
        if let Some(id) = answers.0.keys().find(|id| !known.0.contains_key(id)) {
            return Err(SheetError(format!("there is no question {id}")));
        }
        if answers.0.values().all(|answer| answer.trim().is_empty()) {
            return Ok(None);
        }
        match known.0.keys().find(|id| answers.of(**id).is_empty()) {
            Some(id) => Err(SheetError(format!(
                "question {id} has no answer; a reader who cannot tell writes \"unknown\""
            ))),
            None => Ok(Some(answers)),
        }
    }

    fn of(&self, id: u32) -> &str {
        self.0.get(&id).map_or("", |answer| answer.trim())
    }
}

/// All answers to the questions of an exam, shuffled. Equal answers are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradingSheet {
    exam: String,
    questions: Vec<SheetQuestion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SheetQuestion {
    probe: Probe,
    /// The answers in the order of the sheet, each with its sittings.
    answers: Vec<(String, Vec<Sitting>)>,
}

impl GradingSheet {
    /// Returns the answers of all sittings, shuffled in an order that depends on the seed.
    pub fn new(exam: &str, probes: &ProbeSet, taken: &[(Sitting, Answers)], seed: u64) -> Self {
        let question = |probe: &Probe| {
            let mut answers: BTreeMap<&str, Vec<Sitting>> = BTreeMap::new();
            for (sitting, given) in taken {
                let of_answer = answers.entry(given.of(probe.id)).or_default();
                of_answer.push(sitting.clone());
            }
            let mut answers: Vec<(String, Vec<Sitting>)> = answers
                .into_iter()
                .map(|(text, sittings)| (text.to_owned(), sittings))
                .collect();
            let id = probe.id.to_string();
            answers.sort_by_cached_key(|(text, _)| shuffled(seed, &[exam, &id, text]));
            SheetQuestion {
                probe: probe.clone(),
                answers,
            }
        };
        Self {
            exam: exam.to_owned(),
            questions: probes.probes.iter().map(question).collect(),
        }
    }

    /// Returns the sheet as Markdown, without contexts and candidates.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Grading of {}\n\n{RULES}\n", self.exam);
        for question in &self.questions {
            let probe = &question.probe;
            let _ = write!(
                text,
                "\n## Question {}\n\n{}\n\nRight answer: {}\n\nPoints:\n",
                probe.id,
                probe.question.trim(),
                probe.gold.trim()
            );
            for point in &probe.points {
                let _ = writeln!(text, "- {point}");
            }
            for (number, (answer, _)) in (1..).zip(&question.answers) {
                let _ = write!(text, "\nAnswer {number}:\n\n");
                answer.lines().for_each(|line| {
                    let _ = writeln!(text, "{}", format!("> {line}").trim_end());
                });
            }
        }
        text
    }

    /// Returns the form that the grader fills in.
    pub fn blank_grades(&self) -> Grades {
        Grades(self.numbered(|_| None))
    }

    /// Returns the sitting of each number.
    pub fn key(&self) -> GradingKey {
        GradingKey(self.numbered(<[Sitting]>::to_vec))
    }

    /// Returns a value for each answer, under its question and number.
    fn numbered<T>(&self, of: impl Fn(&[Sitting]) -> T) -> BTreeMap<u32, BTreeMap<u32, T>> {
        let mut all = BTreeMap::new();
        for question in &self.questions {
            let answers = question.answers.iter().map(|(_, sittings)| of(sittings));
            all.insert(question.probe.id, (1..).zip(answers).collect());
        }
        all
    }
}

/// The sitting of each number of a [`GradingSheet`], question by question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GradingKey(BTreeMap<u32, BTreeMap<u32, Vec<Sitting>>>);

/// The grades of a [`GradingSheet`]: question, number of the answer, grade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grades(BTreeMap<u32, BTreeMap<u32, Option<f64>>>);

impl Grades {
    /// Reads grades from JSON.
    ///
    /// # Errors
    /// If the JSON is invalid.
    pub fn from_json(json: &str) -> Result<Self, SheetError> {
        serde_json::from_str(json).map_err(|error| SheetError(error.to_string()))
    }

    /// True if there is no grade yet.
    pub fn is_blank(&self) -> bool {
        self.0
            .values()
            .flat_map(BTreeMap::values)
            .all(Option::is_none)
    }

    /// Returns each grade with its question and its sitting.
    ///
    /// # Errors
    /// If an answer of the key has no grade, a grade belongs to no answer, or a grade is not 0, 0.25, 0.5, 0.75 or 1.
    pub fn by_sitting(&self, key: &GradingKey) -> Result<Vec<(u32, Sitting, f64)>, SheetError> {
        for (question, answers) in &self.0 {
            let Some(known) = key.0.get(question) else {
                return Err(SheetError(format!("there is no question {question}")));
            };
            if let Some(number) = answers.keys().find(|number| !known.contains_key(number)) {
                let why = format!("question {question} has no answer {number}");
                return Err(SheetError(why));
            }
        }
        let mut graded = Vec::new();
        for (question, answers) in &key.0 {
            for (number, sittings) in answers {
                let grade = self.0.get(question).and_then(|answers| answers.get(number));
                let grade = checked(grade.copied().flatten()).map_err(|why| {
                    SheetError(format!("question {question}, answer {number}: {why}"))
                })?;
                let each = sittings.iter().cloned();
                graded.extend(each.map(|sitting| (*question, sitting, grade)));
            }
        }
        Ok(graded)
    }
}

/// Validates a grade: a multiple of a quarter.
fn checked(grade: Option<f64>) -> Result<f64, String> {
    match grade {
        None => Err("no grade".into()),
        Some(grade) if (0.0..=1.0).contains(&grade) && (grade * 4.0).fract() == 0.0 => Ok(grade),
        Some(grade) => Err(format!("{grade} is not 0, 0.25, 0.5, 0.75 or 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes() -> ProbeSet {
        let probe = |id, question: &str| Probe {
            id,
            category: "intent".into(),
            question: question.into(),
            gold: format!("Gold {id}."),
            points: vec![format!("point of {id}")],
        };
        ProbeSet {
            file: "a.jsonl".into(),
            cut_records: 1,
            probes: vec![probe(1, "What?"), probe(7, "Why?")],
        }
    }

    fn sitting(letter: &str, number: u32) -> Sitting {
        Sitting {
            letter: letter.into(),
            lookups: false,
            number,
        }
    }

    fn taken() -> Vec<(Sitting, Answers)> {
        let one = |letter: &str, number, answers: &str| {
            let answers = Answers::from_json(answers, &probes()).unwrap().unwrap();
            (sitting(letter, number), answers)
        };
        vec![
            one("A", 1, r#"{"1": "a roof", "7": "rain"}"#),
            one("A", 2, r#"{"1": "a door", "7": "unknown"}"#),
            one("B", 1, r#"{"1": "a wall", "7": " unknown\n"}"#),
        ]
    }

    #[test]
    fn the_sheet_names_no_candidate_and_equal_answers_stand_once() {
        let sheet = GradingSheet::new("roof", &probes(), &taken(), 1);
        let text = sheet.markdown();
        assert_eq!(text.matches("> unknown").count(), 1);
        assert_eq!(text.matches("\nAnswer ").count(), 5);
        assert!(
            text.contains("Right answer: Gold 7.") && text.contains("- point of 1"),
            "{text}"
        );
        assert!(!text.contains("answers-"), "{text}");
        assert_eq!(sheet, GradingSheet::new("roof", &probes(), &taken(), 1));
        let backwards: Vec<_> = taken().into_iter().rev().collect();
        let again = GradingSheet::new("roof", &probes(), &backwards, 1);
        assert_eq!(
            again.markdown(),
            text,
            "the order of the sittings does not show"
        );
    }

    #[test]
    fn each_sitting_gets_the_grade_of_its_answer() {
        let sheet = GradingSheet::new("roof", &probes(), &taken(), 1);
        let mut grades = sheet.blank_grades();
        assert!(grades.is_blank());
        let key = sheet.key();
        for (question, answers) in &mut grades.0 {
            for (number, grade) in answers {
                let of_a = key.0[question][number].iter().all(|by| by.letter == "A");
                *grade = Some(if of_a { 1.0 } else { 0.25 });
            }
        }
        let mut graded = grades.by_sitting(&key).unwrap();
        graded.sort_by_key(|(question, by, _)| (*question, by.clone()));
        let grades: Vec<f64> = graded.iter().map(|(_, _, grade)| *grade).collect();
        // Two equal answers share a grade.
        assert_eq!(grades, [1.0, 1.0, 0.25, 1.0, 0.25, 0.25]);
    }

    #[test]
    fn what_is_wrong_with_answers_is_said() {
        let refused = |json: &str| Answers::from_json(json, &probes()).unwrap_err().to_string();
        assert_eq!(refused(r#"{"1": "a", "2": "b"}"#), "there is no question 2");
        assert!(refused(r#"{"1": "a"}"#).starts_with("question 7 has no answer"));
        assert!(refused(r#"{"1": "a", "7": " "}"#).starts_with("question 7 has no answer"));
        assert!(refused("{").contains("line 1"), "{}", refused("{"));
        assert!(refused(r#"{"1": 3}"#).contains("expected a string"));
        let blank = serde_json::to_string(&Answers::blank(&probes())).unwrap();
        assert_eq!(Answers::from_json(&blank, &probes()), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_grades_is_said() {
        let sheet = GradingSheet::new("roof", &probes(), &taken()[..1], 1);
        let refused = |json: &str| {
            let grades = Grades::from_json(json).unwrap();
            grades.by_sitting(&sheet.key()).unwrap_err().to_string()
        };
        assert_eq!(
            refused(r#"{"1": {"1": 1}}"#),
            "question 7, answer 1: no grade"
        );
        let null = r#"{"1": {"1": 1}, "7": {"1": null}}"#;
        assert_eq!(refused(null), "question 7, answer 1: no grade");
        assert_eq!(refused(r#"{"2": {}}"#), "there is no question 2");
        assert_eq!(refused(r#"{"1": {"2": 1}}"#), "question 1 has no answer 2");
        for grade in ["1.25", "-0.25", "0.3"] {
            let json = format!(r#"{{"1": {{"1": {grade}}}, "7": {{"1": 1}}}}"#);
            let why = format!("question 1, answer 1: {grade} is not 0, 0.25, 0.5, 0.75 or 1");
            assert_eq!(refused(&json), why);
        }
    }
}
