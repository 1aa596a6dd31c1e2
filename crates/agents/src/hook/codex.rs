//! Finds the transcript of a session by its id, which is all that Codex passes.

use std::path::{Path, PathBuf};

use loopstore_terminal::folders;

/// The maximum number of folders that are searched; there is one per day.
const MAX_FOLDERS: usize = 4_000;

/// Returns the newest transcript of a session; its id was validated.
pub fn transcript_of(id: &str) -> Option<PathBuf> {
    let sessions = folders::folder("CODEX_HOME", ".codex")?.join("sessions");
    let ending = format!("-{id}.jsonl");
    let mut looked_into = 0;
    newest(&sessions, &ending, 3, &mut looked_into)
}

/// Searches the folders of a year, a month, a day, newest first.
fn newest(folder: &Path, ending: &str, depth: u32, looked_into: &mut usize) -> Option<PathBuf> {
    *looked_into += 1;
    if *looked_into > MAX_FOLDERS {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    let is_transcript = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with("rollout-") && name.ends_with(ending))
    };
    if let Some(found) = paths
        .iter()
        .find(|path| is_transcript(path) && path.is_file())
    {
        return Some(found.clone());
    }
    let mut folders = paths.iter().filter(|path| depth > 0 && path.is_dir());
    folders.find_map(|path| newest(path, ending, depth - 1, looked_into))
}
