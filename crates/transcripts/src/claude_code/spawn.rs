//! Finds the calls that started sub-agents.
//!
//! The call of a sub-agent that is recorded in its parent's file is found by the id in the call's result or by its
//! first prompt. For a sub-agent with a file of its own, the parent's file next to it is read; without that file only
//! the parent session is known.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use loopstore::model::ParentSpawnRef;

use super::index::ClaudeIndex;
use super::track::Track;
use super::words::COMPACTING;
use super::{main_session, read_index};

/// The number of bytes at the beginning of a file in which its session is searched for.
const FIRST_BYTES: u64 = 64 << 10;

/// Returns for each track the reference to its start; `None` for the main track.
pub(super) fn parents(path: &Path, index: &ClaudeIndex) -> Vec<Option<ParentSpawnRef>> {
    let alone = index.tracks[0].loops.is_empty();
    let parent_file = if alone {
        parent_index(path, index)
    } else {
        None
    };
    let main = parent_file.as_ref().unwrap_or(index);
    let of_track = |track| parent(path, index, main, track);
    std::iter::once(None)
        .chain(
            index
                .tracks
                .iter()
                .skip(1)
                .map(|track| Some(of_track(track))),
        )
        .collect()
}

fn parent(path: &Path, index: &ClaudeIndex, main: &ClaudeIndex, track: &Track) -> ParentSpawnRef {
    let agent = track.agent.as_deref();
    let compacting = agent.is_some_and(|agent| agent.starts_with(COMPACTING));
    let call = main.spawning_call(agent, track).filter(|_| !compacting);
    let hangs_on = || main.loop_of_record(track.first_parent.as_ref()?);
    let loop_no = call.and_then(|(_, call)| call.main_loop).or_else(hangs_on);
    let parent_loop = loop_no.and_then(|loop_no| main.tracks[0].loops.get(loop_no));
    let tool = call.map_or("Task", |(_, call)| &*call.name);
    ParentSpawnRef {
        parent_session_id: main_session(path, index),
        parent_loop_id: parent_loop.map(|info| info.id.clone()),
        tool_call_id: call.map(|(id, _)| id.to_owned()),
        tool_name: (!compacting).then(|| tool.to_owned()),
        extra: Default::default(),
    }
}

/// Returns the files that a file may be read with: the places of its parent. `None` for a file that does not name its
/// session as its first records do, since the places are those of the session of its records.
pub(super) fn parent_files(path: &Path) -> Option<Vec<PathBuf>> {
    let folder = path.parent()?;
    let session = match folder.file_name().is_some_and(|name| name == "subagents") {
        true => folder.parent()?.file_name()?.to_str()?,
        false => path.file_stem()?.to_str()?,
    };
    let mut first = Vec::new();
    let mut file = File::open(path).ok()?.take(FIRST_BYTES);
    file.read_to_end(&mut first).ok()?;
    let first = String::from_utf8_lossy(&first);
    let quoted = serde_json::to_string(session).ok()?;
    let is_named = [": ", ":"]
        .iter()
        .any(|colon| first.contains(&format!("\"sessionId\"{colon}{quoted}")));
    let places = places_of_parent(path, session)?;
    is_named.then(|| places.into_iter().filter(|place| place != path).collect())
}

/// Returns the places in which the file of a session is searched for, in this order.
fn places_of_parent(path: &Path, session: &str) -> Option<Vec<PathBuf>> {
    let name = format!("{session}.jsonl");
    let folder = path.parent()?;
    let above = folder.parent().and_then(Path::parent);
    let folders = [Some(folder), above].into_iter().flatten();
    Some(folders.map(|folder| folder.join(&name)).collect())
}

/// Reads the parent's file, if it exists: `<session>.jsonl` in the folder of this file or, for a file in
/// `<session>/subagents`, next to the folder `<session>`.
fn parent_index(path: &Path, index: &ClaudeIndex) -> Option<ClaudeIndex> {
    let session = index.session.as_deref()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !session.chars().all(plain) {
        return None;
    }
    let places = places_of_parent(path, session)?;
    let found = places
        .iter()
        .find(|place| place.is_file() && place.as_path() != path)?;
    let mut reader = BufReader::new(File::open(found).ok()?);
    read_index(found, &mut reader, &mut |_, _| {}).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_parent_are_those_that_are_read_and_only_if_the_session_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("p/s.1/subagents")).unwrap();
        let agent = at("p/s.1/subagents/agent-a.jsonl");
        let snapshot = "{\"type\":\"file-history-snapshot\"}\n";
        std::fs::write(&agent, format!("{snapshot}{{\"sessionId\":\"s.1\"}}\n")).unwrap();
        let places = ["p/s.1/subagents/s.1.jsonl", "p/s.1.jsonl"].map(at);
        assert_eq!(parent_files(&agent), Some(places.to_vec()));
        // Its records name a session whose file is another one.
        std::fs::write(&agent, "{\"sessionId\":\"s2\"}\n").unwrap();
        assert_eq!(parent_files(&agent), None);
        let main = at("p/s1.jsonl");
        std::fs::write(&main, "{\"sessionId\":\"s1\"}\n").unwrap();
        let above = folder.path().with_file_name("s1.jsonl");
        assert_eq!(parent_files(&main), Some(vec![above]));
    }
}
