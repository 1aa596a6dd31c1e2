//! `loopstore eval exam prepare`

use std::path::{Component, Path, PathBuf};

use crate::exam::{Answers, ExamCandidate, ProbeSet, Sitting, letters};
use crate::{EvalStrategy, History, readable_runs};
use loopstore::context::AsOf;
use loopstore::{
    BuildOptions, SessionId, SessionStore, SqliteOptions, SqliteStore, TokenCounter,
    build_context_from_session,
};
use loopstore_terminal::output::note;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, context_text, text};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::json;

use super::super::{
    ByCommand, Share, bad_file, chosen, names, note_fallbacks, read_text, write, write_json,
};
use super::folder::{ExamFolder, PreparedCandidate, PreparedExam, PreparedExams};

/// The size of a context if the transcript records none, as a share of the tokens before the cut.
const SHARE: f64 = 0.04;

/// The maximum number of records after the cut that may belong to one compaction.
const COMPACTION_RECORDS: usize = 3;

/// The maximum number of a reader's lookups.
const LOOKUPS: u32 = 8;

/// Write the contexts and the questions
///
/// Each file of probes is JSON: {"file": "a.jsonl", "cut_records": 120, "probes": [{"id": 1, "category": "intent",
/// "question": "…", "gold": "…", "points": ["…"]}]}. The first `cut_records` lines of the transcript are imported
/// into a database of their own, and all of it is compacted to the size of the context that the transcript's own
/// compaction leaves at the cut, where it records one, else to 4 % of the tokens. Contexts are called A, B, C. The
/// folder `key` maps the letters to the candidates; neither readers nor the grader may see it.
#[derive(clap::Args)]
pub struct ExamPrepareArgs {
    /// Files of probes; each is an exam, named after its file.
    #[arg(required = true, value_name = "PROBES")]
    probes: Vec<PathBuf>,
    /// The folder that the transcripts of the probes are in.
    #[arg(long, value_name = "DIR")]
    transcripts: PathBuf,
    /// The folder to write to; it must be new or empty.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The size of a context as a share of the tokens before the cut, such as 4%, instead of the
    /// recorded one.
    #[arg(long, value_name = "SHARE")]
    budget: Option<Share>,
    /// A strategy to make a context with; may be repeated [default: digest and truncate].
    #[arg(long = "strategy", value_name = "NAME", value_parser = names())]
    strategies: Vec<String>,
    #[command(flatten)]
    by_command: ByCommand,
    /// The number of readers of each context.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    sittings: u32,
    /// The seed of the letters and of the order of answers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Prepares and prints.
pub fn run(app: &mut App, args: &ExamPrepareArgs) -> Result<Done, CliError> {
    let sets = args.read_probes()?;
    let folder = ExamFolder::new(&args.output);
    if !folder.is_free() {
        let why = "the folder is not empty; name another one, so that no answers are lost";
        return Err(bad_file(&args.output, why));
    }
    folder.create()?;
    let mut exams = Vec::new();
    for (name, set) in &sets {
        exams.push(args.prepare(&folder, name, set, app.options())?);
    }
    let prepared = PreparedExams {
        seed: args.seed,
        exams,
    };
    write_json(&folder.list(), &prepared)?;
    if app.json {
        app.out.json(&prepared)?;
        return Ok(Done::Well);
    }
    app.out.table(&table(&prepared))?;
    app.out.text(&format!(
        "\nGive each reader a context, `questions.md` and the file for its answers, and nothing of `key`. \
         Then: loopstore eval exam collect {}",
        text::quoted(&args.output.display().to_string())
    ))?;
    Ok(Done::Well)
}

fn table(prepared: &PreparedExams) -> TextTable {
    let mut table = TextTable::new(vec![
        Column::text("EXAM", 8),
        Column::number("TOKENS"),
        Column::number("SIZE"),
        Column::text("CANDIDATE", 9),
        Column::number("TOKENS"),
    ]);
    for exam in &prepared.exams {
        for candidate in &exam.candidates {
            table.row(vec![
                exam.exam.clone(),
                text::number(exam.tokens),
                text::number(exam.size),
                candidate.candidate.clone(),
                text::number(candidate.tokens),
            ]);
        }
    }
    table
}

/// The part of a transcript before a cut, imported.
struct ImportedCut {
    store: SqliteStore,
    session: SessionId,
    history: History,
}

impl ExamPrepareArgs {
    /// Reads all probes before anything is written.
    fn read_probes(&self) -> Result<Vec<(String, ProbeSet)>, CliError> {
        let mut sets: Vec<(String, ProbeSet)> = Vec::new();
        for path in &self.probes {
            let set = ProbeSet::from_json(&read_text(path)?).map_err(|why| bad_file(path, why))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if sets.iter().any(|(known, _)| *known == name) || name == "key" {
                let why = format!("another exam has the name `{name}`");
                return Err(bad_file(path, why));
            }
            let is_below = |part| matches!(part, Component::Normal(_));
            if !Path::new(&set.file).components().all(is_below) {
                let why = "`file` must lie below the folder of transcripts";
                return Err(bad_file(path, why));
            }
            sets.push((name.into_owned(), set));
        }
        Ok(sets)
    }

    fn prepare(
        &self,
        folder: &ExamFolder,
        name: &str,
        set: &ProbeSet,
        options: SqliteOptions,
    ) -> Result<PreparedExam, CliError> {
        let path = self.transcripts.join(&set.file);
        let transcript = std::fs::read(&path).map_err(|error| bad_file(&path, error))?;
        let before = set.cut(&transcript).ok_or_else(|| {
            let why = format!("it has fewer than {} lines", set.cut_records);
            bad_file(&path, why)
        })?;
        let own = folder.of(name);
        std::fs::create_dir_all(&own).map_err(|error| bad_file(&own, error))?;
        let part = own.join("cut");
        let store = SqliteStore::open_with(folder.database(name), options)?;
        let cut = imported(store, &part, &path, before)?;
        let recorded = self.recorded(&cut, &part, &path, set, &transcript)?;
        let counter = cut.store.counter();
        let tokens = cut.history.tokens(counter);
        let size = match (self.budget, &recorded) {
            (None, Some((_, recorded))) => recorded.tokens,
            (budget, _) => (tokens as f64 * budget.map_or(SHARE, |share| share.0)) as u64,
        };
        let (run_id, recorded) = recorded.unzip();
        let candidates = self.candidates(&cut.history, size, recorded, counter)?;
        let letters = letters(&names_of(&candidates), name, self.seed);
        for (letter, candidate) in letters.iter().zip(&candidates) {
            write(&own.join(format!("{letter}.txt")), shown(candidate))?;
            self.write_blanks(folder, name, letter, set)?;
        }
        write_questions(&own, name, set, &cut.session)?;
        write_json(&folder.probes(name), set)?;
        let prepared = letters.into_iter().zip(candidates);
        let prepared = prepared.map(|(letter, candidate)| PreparedCandidate {
            letter,
            candidate: candidate.name,
            tokens: candidate.tokens,
        });
        Ok(PreparedExam {
            exam: name.to_owned(),
            file: set.file.clone(),
            session_id: cut.session.to_string(),
            tokens,
            size,
            run_id,
            candidates: prepared.collect(),
        })
    }

    fn candidates(
        &self,
        history: &History,
        size: u64,
        recorded: Option<ExamCandidate>,
        counter: &dyn TokenCounter,
    ) -> Result<Vec<ExamCandidate>, CliError> {
        let by_command = self.by_command.strategy();
        let mut strategies: Vec<&dyn EvalStrategy> = match self.strategies.is_empty() {
            true => chosen(&["digest".to_owned(), "truncate".to_owned()]),
            false => chosen(&self.strategies),
        };
        strategies.extend(
            by_command
                .iter()
                .map(|strategy| strategy as &dyn EvalStrategy),
        );
        let mut all = ExamCandidate::all(history, size, &strategies, counter)?;
        note_fallbacks(by_command.as_ref());
        match recorded {
            Some(recorded) if recorded.tokens <= size => all.push(recorded),
            Some(recorded) => note(&format!(
                "note: the recorded compaction has {}, more than the {size} of --budget, and is left out",
                text::count(recorded.tokens, "token")
            )),
            None => {}
        }
        Ok(all)
    }

    /// Returns the transcript's own compaction at the cut, with the id of its run: the first compaction in the records
    /// after the cut, if it comes before any message.
    fn recorded(
        &self,
        cut: &ImportedCut,
        part: &Path,
        path: &Path,
        set: &ProbeSet,
        transcript: &[u8],
    ) -> Result<Option<(String, ExamCandidate)>, CliError> {
        let known = readable_runs(&cut.store, &cut.session)?;
        for more in 1..=COMPACTION_RECORDS {
            let longer = ProbeSet {
                cut_records: set.cut_records + more,
                ..set.clone()
            };
            let Some(bytes) = longer.cut(transcript) else {
                break;
            };
            let longer = imported(SqliteStore::in_memory()?, part, path, bytes)?;
            if longer.history.messages.len() > cut.history.messages.len() {
                break;
            }
            let mut runs = readable_runs(&longer.store, &longer.session)?;
            runs.retain(|run| !known.contains(run));
            let Some(run) = runs.into_iter().next() else {
                continue;
            };
            let options = BuildOptions {
                as_of: Some(AsOf::run(run.as_str())),
                ..BuildOptions::default()
            };
            let context = build_context_from_session(&longer.store, &longer.session, &options)?;
            let counter = longer.store.counter();
            let recorded = ExamCandidate::new(ExamCandidate::RECORDED, context.messages, counter);
            return Ok(Some((run, recorded)));
        }
        Ok(None)
    }

    fn write_blanks(
        &self,
        folder: &ExamFolder,
        name: &str,
        letter: &str,
        set: &ProbeSet,
    ) -> Result<(), CliError> {
        let blank = Answers::blank(set);
        for number in 1..=self.sittings {
            for lookups in [false, true] {
                let letter = letter.to_owned();
                let sitting = Sitting {
                    letter,
                    lookups,
                    number,
                };
                write_json(&folder.answers(name, &sitting), &blank)?;
            }
        }
        Ok(())
    }
}

fn names_of(candidates: &[ExamCandidate]) -> Vec<&str> {
    let names = candidates.iter().map(|candidate| &*candidate.name);
    names.collect()
}

/// Imports a part of a transcript; of several sessions the longest is used. Importers use the names of files, so the
/// part is temporarily written under the transcript's own name.
fn imported(
    store: SqliteStore,
    part: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<ImportedCut, CliError> {
    std::fs::create_dir_all(part).map_err(|error| bad_file(part, error))?;
    let file = part.join(path.file_name().unwrap_or_default());
    write(&file, bytes)?;
    let options = ImportOptions {
        without_source: true,
        ..ImportOptions::default()
    };
    let imported = import_paths(&store, &[file], &options, &mut |_| {});
    std::fs::remove_dir_all(part).map_err(|error| bad_file(part, error))?;
    let mut longest: Option<(SessionId, History)> = None;
    for session in imported?.sessions {
        let history = History::load(&store, &session)?;
        let known = longest.as_ref().map(|(_, known)| known.messages.len());
        if known.is_none_or(|known| known < history.messages.len()) {
            longest = Some((session, history));
        }
    }
    let (session, history) = longest.ok_or_else(|| bad_file(path, "no session came in"))?;
    Ok(ImportedCut {
        store,
        session,
        history,
    })
}

/// Returns a context as a reader sees it.
fn shown(candidate: &ExamCandidate) -> String {
    let messages = candidate.messages.iter().map(context_text::alone);
    text::clean(&messages.collect::<Vec<_>>().join("\n")).into_owned()
}

fn write_questions(
    own: &Path,
    name: &str,
    set: &ProbeSet,
    session: &SessionId,
) -> Result<(), CliError> {
    let questions = format!(
        "# Questions\n\nThe context is what is left of an agent's session; you are to go on with its work. \
         Answer each question from the context alone, in one to three sentences, or with \"unknown\". Write \
         the answers into the JSON that you were given, under the numbers of the questions.\n\n{}",
        set.questions()
    );
    write(&own.join("questions.md"), questions)?;
    let each = set.probes.iter();
    let each = each.map(|probe| json!({"id": probe.id, "question": probe.question}));
    write_json(&own.join("questions.json"), &each.collect::<Vec<_>>())?;
    let session = text::quoted(session.as_str());
    let lookups = format!(
        "# Lookups\n\nBeside the context you may look up what it does not say, with at most {LOOKUPS} of these \
         calls in all:\n\n\
         - `loopstore --db {name}.db recall \"QUESTION\"`\n\
         - `loopstore --db {name}.db search \"WORDS\"`\n\
         - `loopstore --db {name}.db expand {session} --loop LOOP --turns A..B`\n"
    );
    write(&own.join("lookups.md"), lookups)
}
