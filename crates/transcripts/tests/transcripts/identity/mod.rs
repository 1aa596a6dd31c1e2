//! Which conversation a transcript is. Generated conversations in every format, copied, cut, grown and written anew,
//! with one id from two machines, in every order: no text is lost, none is mixed, and the context is the newest
//! conversation.

mod agents;
mod cases;
mod forms;
mod interleaved;

use std::path::{Path, PathBuf};

use forms::{FORMS, Form, Line, Said};
use loopstore::extend::sqlite::QueryLimits;
use loopstore::*;
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};

use crate::support::amount::amount;
use crate::support::histories::Random;

/// How many families of transcripts are tried of each format.
const FAMILIES: u64 = 16;
/// The most files of a family.
const MAX_FILES: u64 = 6;

/// Makes conversations; no two messages have the same text, but that some prompts do. No answer or result begins
/// another: it could be an earlier state of it.
struct Talk {
    random: Random,
    words: u32,
    now: i64,
    has_tools: bool,
}

impl Talk {
    fn new(seed: u64, form: &Form) -> Self {
        Self {
            random: Random::new(seed),
            words: 0,
            now: 60,
            has_tools: form.has_tools,
        }
    }

    fn line(&mut self, said: impl FnOnce(String) -> Said, what: &str) -> Line {
        self.words += 1;
        self.now += 7;
        Line {
            said: match said(format!("{what} w{}", self.words)) {
                prompt @ Said::Prompt(_) => prompt,
                Said::Answer(text) => Said::Answer(text + "."),
                Said::Call(text) => Said::Call(text + "."),
                Said::Result(text) => Said::Result(text + "."),
            },
            at: self.now,
        }
    }

    /// Goes on with a conversation for some turns.
    fn go_on(&mut self, lines: &mut Vec<Line>, turns: u64) {
        if let Some(Said::Prompt(_) | Said::Result(_)) = lines.last().map(|line| &line.said) {
            lines.push(self.line(Said::Answer, "answer"));
        }
        for _ in 0..turns {
            let prompt = match self.random.one_in(4) {
                true => Line {
                    said: Said::Prompt("Go on.".into()),
                    ..self.line(Said::Prompt, "")
                },
                false => self.line(Said::Prompt, "ask"),
            };
            lines.push(prompt);
            if self.has_tools && self.random.one_in(2) {
                lines.push(self.line(Said::Call, "look"));
                lines.push(self.line(Said::Result, "found"));
            }
            lines.push(self.line(Said::Answer, "answer"));
        }
    }

    fn conversation(&mut self) -> Vec<Line> {
        let mut lines = vec![self.line(Said::Prompt, "first")];
        let turns = self.random.below(4);
        self.go_on(&mut lines, turns);
        lines
    }

    /// Returns where a conversation may be left: not between a call and its result.
    fn place(&mut self, lines: &[Line]) -> usize {
        let at = 1 + self.random.below(lines.len() as u64) as usize;
        match lines[at - 1].said {
            Said::Call(_) => at - 1,
            _ => at,
        }
    }

    /// Makes the next file of a family out of an earlier one.
    fn next(&mut self, files: &[Vec<Line>]) -> Vec<Line> {
        let mut lines = files[self.random.below(files.len() as u64) as usize].clone();
        match self.random.below(5) {
            0 => {}
            1 => lines.truncate(1 + self.random.below(lines.len() as u64) as usize),
            2 => {
                let turns = 1 + self.random.below(2);
                if let Some(Said::Call(_)) = lines.last().map(|line| &line.said) {
                    lines.push(self.line(Said::Result, "found"));
                }
                self.go_on(&mut lines, turns);
            }
            3 => {
                let kept = self.place(&lines);
                lines.truncate(kept);
                let turns = 1 + self.random.below(2);
                self.go_on(&mut lines, turns);
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
        .map(|line| line.said.text().to_owned())
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

/// Returns what a model is shown of a session, text by text.
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

/// Returns what a tool gave back, where a format wraps it.
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

/// All that is stored of the conversations, and where each session stands.
fn state(store: &Store) -> String {
    let messages =
        "SELECT session_id, loop_id, seq, turn, role, payload FROM v_messages ORDER BY 1, 2, 3";
    let current = "SELECT session_id, current_loop_id FROM v_sessions ORDER BY 1";
    format!("{:?}{:?}", rows(store, messages), rows(store, current))
}

/// Checks that each file is in the store whole, and nothing else is.
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

/// Checks that the context of each session is the newest conversation in it.
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
            let goes_on = other.len() > found.len() && other.starts_with(found);
            assert!(!goes_on, "{what}: `{session}` goes on as {other:?}");
            let is_newer = last_voice(other) > last_voice(found);
            assert!(
                !form.has_times || !is_newer,
                "{what}: {other:?} is newer than {found:?}"
            );
        }
    }
}

/// Returns when a person or the agent said something last.
fn last_voice(lines: &[Line]) -> Option<i64> {
    let voices = lines
        .iter()
        .filter(|line| !matches!(line.said, Said::Result(_)));
    voices.map(|line| line.at).max()
}

#[test]
fn conversations_come_in_whole_and_unmixed_in_every_order() {
    for (nth, form) in FORMS.iter().enumerate() {
        for seed in 0..amount("LOOPSTORE_FAMILIES", FAMILIES) {
            let mut talk = Talk::new(seed * 31 + nth as u64, form);
            family_in_every_order(form, &mut talk, seed);
        }
    }
}

fn family_in_every_order(form: &Form, talk: &mut Talk, seed: u64) {
    let files = talk.family();
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..)
        .zip(&files)
        .map(|(nth, lines)| form.write(&folder.path().join(format!("machine-{nth}")), lines))
        .collect();
    let store = Store::in_memory().unwrap();
    let order = talk.order(files.len());
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
    for at in talk.order(files.len()) {
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
            let mut talk = Talk::new(seed * 37 + nth as u64, form);
            versions_of_a_file(form, &mut talk, seed);
        }
    }
}

/// One file in its states, each later than the one before.
fn versions_of_a_file(form: &Form, talk: &mut Talk, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let mut files = vec![talk.conversation()];
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
        next.truncate(talk.place(&lines));
        talk.go_on(&mut next, 1);
        files.push(next);
    }
}
