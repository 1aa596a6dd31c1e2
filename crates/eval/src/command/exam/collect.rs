//! `loopstore eval exam collect`

use std::path::PathBuf;

use crate::exam::{Answers, Grades, GradingSheet};
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done};
use serde::Serialize;

use super::super::{bad_file, read_text, write, write_json};
use super::folder::{ExamFolder, PreparedExam};

/// Shuffle the readers' answers into a sheet for the grader
///
/// Writes `grading.md`, with all answers to each question, the right answer and its points, and `grading.json`, into
/// which the grader writes. Neither names the contexts of the answers, and equal answers are graded once. Files
/// without answers are left out.
#[derive(clap::Args)]
pub struct ExamCollectArgs {
    /// The folder that `prepare` wrote.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Serialize)]
struct Collected {
    exam: String,
    sittings: usize,
    sheet: String,
    grades: String,
}

/// Collects and prints.
pub fn run(app: &mut App, args: &ExamCollectArgs) -> Result<Done, CliError> {
    let folder = ExamFolder::new(&args.folder);
    let prepared = folder.read()?;
    let mut collected = Vec::new();
    for exam in &prepared.exams {
        collected.extend(collect(&folder, exam, prepared.seed)?);
    }
    if collected.is_empty() {
        return Err(bad_file(&args.folder, "no answers were filled in yet"));
    }
    if app.json {
        app.out.json(&collected)?;
        return Ok(Done::Well);
    }
    let mut table = TextTable::new(vec![
        Column::text("EXAM", 8),
        Column::number("SITTINGS"),
        Column::text("SHEET", 20),
        Column::text("GRADES", 20),
    ]);
    for one in collected {
        table.row(vec![
            one.exam,
            one.sittings.to_string(),
            one.sheet,
            one.grades,
        ]);
    }
    app.out.table(&table)?;
    Ok(Done::Well)
}

fn collect(
    folder: &ExamFolder,
    exam: &PreparedExam,
    seed: u64,
) -> Result<Option<Collected>, CliError> {
    let probes = folder.read_probes(&exam.exam)?;
    let mut taken = Vec::new();
    for sitting in folder.sittings(exam)? {
        let path = folder.answers(&exam.exam, &sitting);
        let answers = Answers::from_json(&read_text(&path)?, &probes);
        if let Some(answers) = answers.map_err(|why| bad_file(&path, why))? {
            taken.push((sitting, answers));
        }
    }
    if taken.is_empty() {
        return Ok(None);
    }
    let (sheet, grades) = (folder.sheet(&exam.exam), folder.grades(&exam.exam));
    if grades.exists() {
        let given =
            Grades::from_json(&read_text(&grades)?).map_err(|why| bad_file(&grades, why))?;
        if !given.is_blank() {
            let why = "it holds grades already; move it away to collect again";
            return Err(bad_file(&grades, why));
        }
    }
    let made = GradingSheet::new(&exam.exam, &probes, &taken, seed);
    write_json(&folder.grading_key(&exam.exam), &made.key())?;
    write(&sheet, made.markdown())?;
    write_json(&grades, &made.blank_grades())?;
    Ok(Some(Collected {
        exam: exam.exam.clone(),
        sittings: taken.len(),
        sheet: sheet.display().to_string(),
        grades: grades.display().to_string(),
    }))
}
