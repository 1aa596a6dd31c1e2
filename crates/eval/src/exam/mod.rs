//! Exams, which measure the worth of a compacted context to a reader who continues from it.
//!
//! A set of probes defines the cut of a transcript. Several candidates compact the part before the cut to one size.
//! Each reader answers the probes from the context of one candidate. One grader, who knows neither contexts nor
//! candidates, gets the shuffled answers to each question, with the right answer and its points. The module calls no
//! model and reads no file: [`ExamCandidate::all`] makes the contexts, [`GradingSheet`] the grader's sheet, and
//! [`ExamReport`] the means.

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
