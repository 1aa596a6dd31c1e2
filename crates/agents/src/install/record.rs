//! The record of an installation, so that it can be uninstalled: `install` in the state folder.
//!
//! The record contains the earlier and the new content of each file. Only the owner can read it, since such files may
//! contain secrets.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use loopstore_export::NativeAgent;
use serde::{Deserialize, Serialize};

use super::edit::Edit;
use super::{edit, files};
use crate::hook::state;

/// An installation for one agent in one folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstallRecord {
    /// The agent.
    pub agent: String,
    /// The folder with its configuration.
    pub root: PathBuf,
    /// The program that is called.
    pub program: PathBuf,
    /// The database that is written to.
    pub database: String,
    /// The tools that write and are allowed, if the server of tools was set up.
    pub mcp: Option<Vec<String>>,
    /// True if hooks replace secrets with markers before anything is stored.
    #[serde(default)]
    pub redact: bool,
    /// The files, in the order of their copies.
    pub files: Vec<InstalledFile>,
}

/// A file that was changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstalledFile {
    /// The file.
    pub path: PathBuf,
    /// The kind of change.
    pub edit: Edit,
    /// True if the file existed before.
    pub was_there: bool,
    /// The folders that were created for it.
    pub folders: Vec<PathBuf>,
}

/// Returns the folder of the record of an agent.
fn place(agent: NativeAgent, root: &Path) -> Option<PathBuf> {
    let mut hash = DefaultHasher::new();
    root.hash(&mut hash);
    let name = format!("{}-{:016x}", agent.as_str(), hash.finish());
    Some(state::folder()?.join("install").join(name))
}

/// Returns the installation of an agent, if there is one.
pub fn load(agent: NativeAgent, root: &Path) -> io::Result<Option<InstallRecord>> {
    let Some(folder) = place(agent, root) else {
        return Ok(None);
    };
    match files::read(&folder.join("record.json"))? {
        Some(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        None => Ok(None),
    }
}

/// True if secrets are replaced in the sessions of an agent: the record of the agent's folder decides, or any record of
/// the agent if this folder has none.
pub fn redacts(agent: NativeAgent) -> io::Result<bool> {
    let root = edit::root(agent).ok();
    // Without its record, a hook must not store what the record may forbid.
    let own = root.map(|root| load(agent, &root)).transpose()?.flatten();
    Ok(match own {
        Some(record) => record.redact,
        None => {
            let name = agent.as_str();
            all().iter().any(|one| one.agent == name && one.redact)
        }
    })
}

/// Returns the database that an installed agent records into, if it exists.
pub fn database() -> Option<String> {
    let mut databases = all().into_iter().map(|record| record.database);
    databases.find(|database| database.contains("://") || Path::new(database).exists())
}

/// Returns a saved copy of a file: the content `before` or `after` the change.
pub fn copy(record: &InstallRecord, number: usize, when: &str) -> io::Result<Option<Vec<u8>>> {
    files::read(&copy_path(record, number, when)?)
}

/// Returns the path of a copy.
pub fn copy_path(record: &InstallRecord, number: usize, when: &str) -> io::Result<PathBuf> {
    let agent = record
        .agent
        .parse::<NativeAgent>()
        .map_err(io::Error::other)?;
    let folder = place(agent, &record.root);
    let folder = folder.ok_or_else(|| io::Error::other("set HOME or XDG_STATE_HOME"))?;
    Ok(folder.join(format!("{number}.{when}")))
}

/// Saves a copy.
pub fn keep(record: &InstallRecord, number: usize, when: &str, bytes: &[u8]) -> io::Result<()> {
    state::made("install")?;
    files::replace(&copy_path(record, number, when)?, bytes)?;
    Ok(())
}

/// Writes the record itself.
pub fn save(record: &InstallRecord) -> io::Result<()> {
    let agent = record
        .agent
        .parse::<NativeAgent>()
        .map_err(io::Error::other)?;
    state::made("install")?;
    let folder = place(agent, &record.root);
    let folder = folder.ok_or_else(|| io::Error::other("set HOME or XDG_STATE_HOME"))?;
    files::replace(
        &folder.join("record.json"),
        &serde_json::to_vec_pretty(record)?,
    )?;
    Ok(())
}

/// Removes the record of an installation.
pub fn forget(agent: NativeAgent, root: &Path) -> io::Result<()> {
    match place(agent, root) {
        Some(folder) if folder.exists() => std::fs::remove_dir_all(folder),
        _ => Ok(()),
    }
}

/// Returns all installations, without records that cannot be read.
pub fn all() -> Vec<InstallRecord> {
    let folder = state::folder().map(|folder| folder.join("install"));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let paths = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort_unstable();
    let read = |path: &PathBuf| {
        let bytes = files::read(&path.join("record.json")).ok()??;
        serde_json::from_slice(&bytes).ok()
    };
    paths.iter().filter_map(read).collect()
}
