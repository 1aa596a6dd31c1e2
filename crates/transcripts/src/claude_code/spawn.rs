//! Finds the calls that started sub-agents.
//!
//! The call of a sub-agent that is recorded in its parent's file is found by the id in the call's result or by its
//! first prompt. For a sub-agent with a file of its own, the parent's file next to it is read; without that file only
//! the parent session is known.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use loopstore::model::ParentSpawnRef;

use super::index::ClaudeIndex;
use super::track::Track;
use super::words::COMPACTING;
use super::{main_session, read_index};

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

/// Returns the files that a sub-agent's file is read with; `None` for one whose parent only its records name.
pub(super) fn parent_files(path: &Path) -> Option<Vec<PathBuf>> {
    let is_agent = path.file_name()?.to_str()?.starts_with("agent-");
    let folder = path.parent()?;
    match folder.file_name().is_some_and(|name| name == "subagents") {
        true => Some(vec![folder.parent()?.with_extension("jsonl")]),
        false => (!is_agent).then(Vec::new),
    }
}

/// Reads the parent's file, if it exists: `<session>.jsonl` in the folder of this file or, for a file in
/// `<session>/subagents`, next to the folder `<session>`.
fn parent_index(path: &Path, index: &ClaudeIndex) -> Option<ClaudeIndex> {
    let session = index.session.as_deref()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !session.chars().all(plain) {
        return None;
    }
    let name = format!("{session}.jsonl");
    let folder = path.parent()?;
    let mut places: Vec<PathBuf> = vec![folder.join(&name)];
    places.extend(
        folder
            .parent()
            .and_then(Path::parent)
            .map(|folder| folder.join(&name)),
    );
    let found = places
        .iter()
        .find(|place| place.is_file() && place.as_path() != path)?;
    let mut reader = BufReader::new(File::open(found).ok()?);
    read_index(found, &mut reader, &mut |_, _| {}).ok()
}
