//! `loopstore eval exam score`

use std::path::PathBuf;

use crate::exam::{ExamReport, ExamResult, GradedExam, Grades};
use loopstore_terminal::output::note;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done};

use super::super::{bad_file, read_text};
use super::folder::{ExamFolder, PreparedExam};

/// Print the mean grades, by candidate and by kind of question
///
/// Each figure is the mean of all grades of all sittings, from 0 to 1. With few sittings, differences under
/// 0.08 are noise.
#[derive(clap::Args)]
pub struct ExamScoreArgs {
    /// The folder that `prepare` wrote, with the sheets filled in.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Reads the grades and prints the means.
pub fn run(app: &mut App, args: &ExamScoreArgs) -> Result<Done, CliError> {
    let folder = ExamFolder::new(&args.folder);
    let mut graded = Vec::new();
    for exam in folder.read()?.exams {
        match read(&folder, &exam)? {
            Some(exam) => graded.push(exam),
            None => note(&format!("note: {} has no grades", exam.exam)),
        }
    }
    if graded.is_empty() {
        return Err(bad_file(&args.folder, "nothing was graded yet"));
    }
    let report = ExamReport::new(&graded);
    if app.json {
        app.out.json(&report)?;
        return Ok(Done::Well);
    }
    let exams = report
        .exams
        .iter()
        .map(Some)
        .filter(|_| report.exams.len() > 1);
    for exam in std::iter::once(None).chain(exams) {
        match exam {
            Some(exam) => app.out.text(&format!("\n{exam}"))?,
            None => app.out.text(&report.exams.join(", "))?,
        }
        let of_exam = |result: &&ExamResult| result.exam.as_ref() == exam;
        let results: Vec<&ExamResult> = report.results.iter().filter(of_exam).collect();
        app.out.table(&table(&report.kinds, &results))?;
    }
    Ok(Done::Well)
}

fn table(kinds: &[String], results: &[&ExamResult]) -> TextTable {
    let mut columns = vec![
        Column::text("CANDIDATE", 20),
        Column::number("SITTINGS"),
        Column::number("ALL"),
    ];
    columns.extend(kinds.iter().map(|kind| Column::number(kind.to_uppercase())));
    let mut table = TextTable::new(columns);
    for result in results {
        let lookups = if result.lookups { ", with lookups" } else { "" };
        let mut row = vec![
            format!("{}{lookups}", result.candidate),
            result.sittings.to_string(),
            format!("{:.2}", result.mean),
        ];
        let of_kind = |kind: &String| result.kinds.get(kind);
        row.extend(
            kinds
                .iter()
                .map(|kind| of_kind(kind).map_or_else(String::new, |mean| format!("{mean:.2}"))),
        );
        table.row(row);
    }
    table
}

fn read(folder: &ExamFolder, exam: &PreparedExam) -> Result<Option<GradedExam>, CliError> {
    let Some(key) = folder.read_grading_key(&exam.exam)? else {
        return Ok(None);
    };
    let path = folder.grades(&exam.exam);
    let grades = Grades::from_json(&read_text(&path)?).map_err(|why| bad_file(&path, why))?;
    if grades.is_blank() {
        return Ok(None);
    }
    let grades = grades
        .by_sitting(&key)
        .map_err(|why| bad_file(&path, why))?;
    let candidates = exam.candidates.iter();
    Ok(Some(GradedExam {
        name: exam.exam.clone(),
        probes: folder.read_probes(&exam.exam)?,
        candidates: candidates
            .map(|one| (one.letter.clone(), one.candidate.clone()))
            .collect(),
        grades,
    }))
}
