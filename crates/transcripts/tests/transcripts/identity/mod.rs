//! Recognition of conversations. Generated conversations in every format are copied, truncated, extended and rewritten,
//! with one id on two machines, and imported in every order. No text is lost, no two conversations are mixed, and the
//! context is the newest conversation.

mod agents;
mod cases;
mod forms;
mod interleaved;

use std::path::{Path, PathBuf};

use forms::{FORMS, Form, Line, LineContent};
use loopstore::extend::sqlite::QueryLimits;
use loopstore::*;
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};

use crate::support::amount::amount;
use crate::support::histories::Random;

/// The number of families of transcripts that are tried for each format.
const FAMILIES: u64 = 16;
/// The maximum number of files of a family.
const MAX_FILES: u64 = 6;

/// Makes conversations. No two messages have the same text, except for some prompts. No answer or result is the
/// beginning of another: it could be an earlier state of it.
struct LineGenerator {
    random: Random,
    words: u32,
    now: i64,
    has_tools: bool,
}

impl LineGenerator {
    fn new(seed: u64, form: &Form) -> Self {
        Self {
            random: Random::new(seed),
            words: 0,
            now: 60,
            has_tools: form.has_tools,
        }
    }

    fn line(&mut self, content: impl FnOnce(String) -> LineContent, what: &str) -> Line {
        self.words += 1;
        self.now += 7;
        Line {
            content: match content(format!("{what} w{}", self.words)) {
                prompt @ LineContent::Prompt(_) => prompt,
                LineContent::Answer(text) => LineContent::Answer(text + "."),
                LineContent::Call(text) => LineContent::Call(text + "."),
                LineContent::Result(text) => LineContent::Result(text + "."),
            },
            at: self.now,
        }
    }

    /// Adds some turns to a conversation.
    fn add_turns(&mut self, lines: &mut Vec<Line>, turns: u64) {
        if let Some(LineContent::Prompt(_) | LineContent::Result(_)) =
            lines.last().map(|line| &line.content)
        {
            lines.push(self.line(LineContent::Answer, "answer"));
        }
        for _ in 0..turns {
            let prompt = match self.random.one_in(4) {
                true => Line {
                    content: LineContent::Prompt("Go on.".into()),
                    ..self.line(LineContent::Prompt, "")
                },
                false => self.line(LineContent::Prompt, "ask"),
            };
            lines.push(prompt);
            if self.has_tools && self.random.one_in(2) {
                lines.push(self.line(LineContent::Call, "look"));
                lines.push(self.line(LineContent::Result, "found"));
            }
            lines.push(self.line(LineContent::Answer, "answer"));
        }
    }

    fn conversation(&mut self) -> Vec<Line> {
        let mut lines = vec![self.line(LineContent::Prompt, "first")];
        let turns = self.random.below(4);
        self.add_turns(&mut lines, turns);
        lines
    }

    /// Returns a point at which a conversation may be left: not between a call and its result.
    fn place(&mut self, lines: &[Line]) -> usize {
        let at = 1 + self.random.below(lines.len() as u64) as usize;
        match lines[at - 1].content {
            LineContent::Call(_) => at - 1,
            _ => at,
        }
    }

    /// Derives the next file of a family from an earlier one.
    fn next(&mut self, files: &[Vec<Line>]) -> Vec<Line> {
        let mut lines = files[self.random.below(files.len() as u64) as usize].clone();
        match self.random.below(5) {
            0 => {}
            1 => lines.truncate(1 + self.random.below(lines.len() as u64) as usize),
            2 => {
                let turns = 1 + self.random.below(2);
                if let Some(LineContent::Call(_)) = lines.last().map(|line| &line.content) {
                    lines.push(self.line(LineContent::Result, "found"));
                }
                self.add_turns(&mut lines, turns);
            }
            3 => {
                let kept = self.place(&lines);
                lines.truncate(kept);
                let turns = 1 + self.random.below(2);
                self.add_turns(&mut lines, turns);
            }
            _ => lines = self.conversation(),
        }
        lines
    }

    fn family(&mut self) -> Vec<Vec<Line>> {
        let mut files = vec![self.conversation()];
        for _ in 0..1 + self.random.below(MAX_FILES - 1) {
            files.push(self.next(&files));
        }
        files
    }

    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        order
    }
}

fn texts_of(lines: &[Line]) -> Vec<String> {
    lines
        .iter()
        .map(|line| line.content.text().to_owned())
        .collect()
}

fn import(store: &Store, form: &Form, path: &Path) -> ImportReport {
    let options = ImportOptions {
        format: Some(form.format.into()),
        ..ImportOptions::default()
    };
    let paths = [PathBuf::from(path)];
    import_paths(store.database(), &paths, &options, &mut |_| ())
        .unwrap_or_else(|error| panic!("{}: {error}", form.format))
}

/// Returns the texts of the context of a session.
fn shown(store: &Store, session: &str, leaf: Option<&str>) -> Vec<String> {
    let options = BuildOptions {
        leaf: leaf.map(|leaf| LoopId::new(leaf).unwrap()),
        ..BuildOptions::default()
    };
    let id = SessionId::new(session).unwrap();
    let context = build_context_from_session(store.database(), &id, &options).unwrap();
    let messages = context.messages.iter().filter_map(AgentMessage::message);
    messages
        .map(|message| plain(message.texts().collect::<Vec<_>>().join("\n")))
        .collect()
}

/// Returns the output of a tool without the wrapper of the format.
fn plain(text: String) -> String {
    let wrapped: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let output = wrapped.as_ref().and_then(|of| of.get("output")?.as_str());
    output.map_or(text, str::to_owned)
}

fn rows(store: &Store, sql: &str) -> Vec<Vec<Json>> {
    let limits = QueryLimits::default();
    store.database().query_within(sql, limits).unwrap().rows
}

fn ids(store: &Store, sql: &str) -> Vec<Vec<String>> {
    let rows = rows(store, sql);
    let text = |json: &Json| json.read::<String>().unwrap();
    rows.iter()
        .map(|row| row.iter().map(text).collect())
        .collect()
}

fn sessions(store: &Store) -> Vec<String> {
    ids(store, "SELECT session_id FROM v_sessions ORDER BY 1").concat()
}

/// Returns everything that is stored of the conversations, and the current loop of each session.
fn state(store: &Store) -> String {
    let messages =
        "SELECT session_id, loop_id, seq, turn, role, payload FROM v_messages ORDER BY 1, 2, 3";
    let current = "SELECT session_id, current_loop_id FROM v_sessions ORDER BY 1";
    format!("{:?}{:?}", rows(store, messages), rows(store, current))
}

/// Checks that the store contains all texts of each file, and no others.
fn check_texts(store: &Store, files: &[&Vec<Line>], what: &str) {
    let loops = ids(
        store,
        "SELECT session_id, loop_id FROM v_loops ORDER BY 1, 2",
    );
    let chains: Vec<Vec<String>> = loops
        .iter()
        .map(|of| shown(store, &of[0], Some(&of[1])))
        .collect();
    let files: Vec<Vec<String>> = files.iter().map(|lines| texts_of(lines)).collect();
    for file in &files {
        let is_whole = chains.iter().any(|chain| chain.starts_with(file));
        assert!(is_whole, "{what}: {file:?} is not in {chains:#?}");
    }
    for chain in &chains {
        let is_of_file = files.iter().any(|file| file.starts_with(chain));
        assert!(is_of_file, "{what}: {chain:?} is in none of {files:#?}");
    }
}

/// Checks that the context of each session is its newest conversation.
fn check_contexts(store: &Store, form: &Form, files: &[&Vec<Line>], what: &str) {
    for session in sessions(store) {
        let current = shown(store, &session, None);
        let found = files.iter().filter(|lines| texts_of(lines) == current);
        let last_of = |lines: &&&Vec<Line>| lines.last().map(|line| line.at);
        let Some(found) = found.max_by_key(last_of) else {
            panic!("{what}: `{session}` shows {current:?}");
        };
        let loops = format!("SELECT loop_id FROM v_loops WHERE session_id = '{session}'");
        let chains: Vec<Vec<String>> = ids(store, &loops)
            .concat()
            .iter()
            .map(|leaf| shown(store, &session, Some(leaf)))
            .collect();
        let is_here = |lines: &Vec<Line>| chains.contains(&texts_of(lines));
        for other in files.iter().filter(|lines| is_here(lines)) {
            let (other, found) = (*other, *found);
            let is_continued = other.len() > found.len() && other.starts_with(found);
            assert!(!is_continued, "{what}: `{session}` goes on as {other:?}");
            let is_newer = last_voice(other) > last_voice(found);
            assert!(
                !form.has_times || !is_newer,
                "{what}: {other:?} is newer than {found:?}"
            );
        }
    }
}

/// Returns the time of the last message of a person or an agent.
fn last_voice(lines: &[Line]) -> Option<i64> {
    let voices = lines
        .iter()
        .filter(|line| !matches!(line.content, LineContent::Result(_)));
    voices.map(|line| line.at).max()
}

#[test]
fn conversations_come_in_whole_and_unmixed_in_every_order() {
    for (nth, form) in FORMS.iter().enumerate() {
        for seed in 0..amount("LOOPSTORE_FAMILIES", FAMILIES) {
            let mut generator = LineGenerator::new(seed * 31 + nth as u64, form);
            family_in_every_order(form, &mut generator, seed);
        }
    }
}

fn family_in_every_order(form: &Form, generator: &mut LineGenerator, seed: u64) {
    let files = generator.family();
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..)
        .zip(&files)
        .map(|(nth, lines)| form.write(&folder.path().join(format!("machine-{nth}")), lines))
        .collect();
    let store = Store::in_memory().unwrap();
    let order = generator.order(files.len());
    let mut known: Vec<&Vec<Line>> = Vec::new();
    for (step, at) in order.iter().enumerate() {
        let what = format!(
            "{} family {seed}, order {order:?}, step {step}",
            form.format
        );
        import(&store, form, &paths[*at]);
        known.push(&files[*at]);
        check_texts(&store, &known, &what);
        check_contexts(&store, form, &known, &what);
    }
    let before = state(&store);
    for at in generator.order(files.len()) {
        let what = format!("{} family {seed}, order {order:?}, again {at}", form.format);
        let report = import(&store, form, &paths[at]);
        let new = (report.added_messages, report.revised);
        assert_eq!(new, (0, 0), "{what}: {report:?}");
        assert_eq!(
            (report.branches.len(), report.separated.len()),
            (0, 0),
            "{what}"
        );
        assert_eq!(state(&store), before, "{what}");
    }
    let found = loopstore_verify::verify(store.database()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

#[test]
fn a_file_that_is_written_anew_is_what_it_says_now() {
    for (nth, form) in FORMS.iter().enumerate() {
        for seed in 0..amount("LOOPSTORE_FAMILIES", FAMILIES) {
            let mut generator = LineGenerator::new(seed * 37 + nth as u64, form);
            versions_of_a_file(form, &mut generator, seed);
        }
    }
}

/// Imports the states of one file, each later than the one before.
fn versions_of_a_file(form: &Form, generator: &mut LineGenerator, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let mut files = vec![generator.conversation()];
    for step in 0..4 {
        let lines = files.last().unwrap().clone();
        let what = format!("{} file {seed}, state {step}", form.format);
        let path = form.write(folder.path(), &lines);
        let report = import(&store, form, &path);
        let known: Vec<&Vec<Line>> = files.iter().collect();
        check_texts(&store, &known, &what);
        let current = shown(&store, report.sessions[0].as_str(), None);
        assert_eq!(current, texts_of(&lines), "{what}: {files:#?}");
        if form.has_id {
            assert_eq!(sessions(&store).len(), 1, "{what}");
        }
        let again = import(&store, form, &path);
        assert_eq!((again.added_messages, again.revised), (0, 0), "{what}");
        let mut next = lines.clone();
        next.truncate(generator.place(&lines));
        generator.add_turns(&mut next, 1);
        files.push(next);
    }
}
