//! Exams: what a compacted context is worth to a reader who has to go on from it.
//!
//! A transcript is cut where a set of probes says, and what is before the cut is compacted to one size by
//! several candidates. Readers answer the probes from one candidate's context, and one grader, who knows
//! neither contexts nor candidates, gets all answers to a question shuffled, with the right answer and its
//! points. Nothing here asks a model or reads a file: [`ExamCandidate::all`] makes the contexts,
//! [`GradingSheet`] the grader's sheet, and [`ExamReport`] the means.

mod candidate;
mod grading;
mod probes;
mod report;

pub use candidate::{ExamCandidate, letters};
pub use grading::{Answers, Grades, GradingKey, GradingSheet, Sitting};
pub use probes::{Probe, ProbeSet};
pub use report::{ExamReport, ExamResult, GradedExam};

/// An error in a set of probes, in answers or in grades.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SheetError(String);
