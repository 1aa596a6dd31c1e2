//! Questions of people about recorded transcripts, if both are available: the folder that
//! `LOOPSTORE_REAL_TRANSCRIPTS` names, and `exam/questions.jsonl` next to it.
//!
//! A question names its session and the messages that answer it; some have no answer in the data.

use std::collections::HashSet;
use std::path::PathBuf;

use loopstore::extend::SessionStore;
use loopstore::search::{SearchHit, SearchQuery, SearchResults, search};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde::Deserialize;

#[derive(Deserialize)]
pub struct ExamQuestion {
    pub id: u32,
    pub question: String,
    pub session: Option<String>,
    pub evidence: Vec<EvidencePlace>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash)]
pub struct EvidencePlace {
    r#loop: String,
    seq: u32,
}

/// Returns the folder of transcripts and the questions, if they are at hand.
pub fn material() -> Option<(PathBuf, Vec<ExamQuestion>)> {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing measured");
        return None;
    };
    let file = folder.join("../exam/questions.jsonl");
    let lines = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let questions = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    Some((folder, questions.collect()))
}

pub fn imported<S: SessionStore>(store: S, folder: &std::path::Path) -> S {
    import_paths(
        &store,
        &[folder.to_owned()],
        &ImportOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    store
}

pub fn places(hits: &[SearchHit]) -> HashSet<EvidencePlace> {
    let place = |loop_id: &loopstore::model::LoopId, seq| EvidencePlace {
        r#loop: loop_id.to_string(),
        seq,
    };
    let also = hits.iter().flat_map(|hit| &hit.also);
    let also = also.map(|also| place(&also.loop_id, also.seq));
    let own = hits.iter().map(|hit| place(&hit.loop_id, hit.seq));
    own.chain(also).collect()
}

pub fn ask(store: &dyn SessionStore, question: &str) -> SearchResults {
    let query = SearchQuery {
        limit: Some(10),
        ..SearchQuery::new(question)
    };
    search(store, &query).unwrap()
}
