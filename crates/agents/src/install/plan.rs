//! The plan of an installation: the files that it will write.

use std::path::{Path, PathBuf};

use loopstore_export::NativeAgent;
use loopstore_terminal::{CliError, text};
use serde::Serialize;
use similar::TextDiff;

use super::edit::{self, Edit, Target};
use super::record::{InstallRecord, InstalledFile};
use super::setup::Setup;
use super::{files, record, toml};

/// The change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigAction {
    /// The file is created.
    Create,
    /// Lines are added.
    Change,
    /// The file has the lines already.
    Unchanged,
    /// The earlier content is restored.
    Restore,
    /// The file is removed: it did not exist before.
    Remove,
    /// The file was changed since; only the entries of loopstore are removed.
    TakeOut,
    /// The whole file is loopstore's and was changed since; it is renamed.
    MoveAside,
    /// The file no longer exists.
    Gone,
}

/// A file and its change.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigChange {
    pub path: String,
    pub action: ConfigAction,
    /// The differing lines.
    pub diff: String,
    /// The path to which the earlier content is copied or moved.
    pub backup: Option<String>,
}

impl ConfigChange {
    /// Describes a change from one content to another.
    pub fn new(path: &Path, action: ConfigAction, before: &[u8], after: &[u8]) -> Self {
        let (before, after) = (
            String::from_utf8_lossy(before),
            String::from_utf8_lossy(after),
        );
        let diff = TextDiff::from_lines(&*before, &*after);
        Self {
            path: path.display().to_string(),
            action,
            diff: diff.unified_diff().context_radius(2).to_string(),
            backup: None,
        }
    }

    /// True if the file stays as it is.
    pub fn is_unchanged(&self) -> bool {
        matches!(self.action, ConfigAction::Unchanged | ConfigAction::Gone)
    }

    /// Returns the change as text.
    pub fn shown(&self) -> String {
        let what = match self.action {
            ConfigAction::Create => "new file",
            ConfigAction::Change => "changed",
            ConfigAction::Unchanged => "unchanged",
            ConfigAction::Restore => "as it was before",
            ConfigAction::Remove => "removed, as it was not there before",
            ConfigAction::TakeOut => "changed since; only what loopstore wrote is taken out",
            ConfigAction::MoveAside => "changed since; moved aside",
            ConfigAction::Gone => "gone already",
        };
        let first = format!("{} ({what})", text::line(&self.path));
        match self.diff.is_empty() {
            true => first,
            false => format!("{first}\n{}", self.diff.trim_end()),
        }
    }
}

/// A file with its current, earlier and planned content.
struct PlannedFile {
    target: Target,
    /// The present content; `None` if the file does not exist.
    now: Option<Vec<u8>>,
    /// The content before any installation; `None` if the file did not exist.
    before: Option<Vec<u8>>,
    after: Vec<u8>,
    folders: Vec<PathBuf>,
}

/// The files that an installation writes.
pub struct InstallPlan {
    record: InstallRecord,
    files: Vec<PlannedFile>,
}

impl InstallPlan {
    /// Plans an installation.
    pub fn new(setup: &Setup, root: &Path, known: Option<InstallRecord>) -> Result<Self, CliError> {
        let targets = edit::targets(setup.agent, setup.mcp.is_some())?;
        let mut files = Vec::new();
        for target in targets {
            files.push(planned(target, setup, known.as_ref())?);
        }
        let record = InstallRecord {
            agent: setup.agent.as_str().to_owned(),
            root: root.to_owned(),
            program: setup.program.clone().into(),
            database: setup.database.clone(),
            mcp: setup.mcp.clone(),
            redact: setup.redact,
            files: Vec::new(),
        };
        Ok(Self { record, files })
    }

    /// Returns the change of each file.
    pub fn changes(&self) -> Vec<ConfigChange> {
        self.files.iter().map(PlannedFile::change).collect()
    }

    /// True if any file changes.
    pub fn changes_any(&self) -> bool {
        self.files
            .iter()
            .any(|file| file.now.as_ref() != Some(&file.after))
    }

    /// Saves the earlier content, and writes the files.
    pub fn carry_out(&self) -> Result<(), CliError> {
        let mut record = self.record.clone();
        for (number, file) in self.files.iter().enumerate() {
            let kept = record::keep(
                &record,
                number,
                "before",
                file.before.as_deref().unwrap_or_default(),
            );
            kept.and_then(|()| record::keep(&record, number, "after", &file.after))?;
            record.files.push(InstalledFile {
                path: file.target.path.clone(),
                edit: file.target.edit,
                was_there: file.before.is_some(),
                folders: file.folders.clone(),
            });
        }
        record::save(&record)?;
        for (number, file) in self.files.iter().enumerate() {
            if file.now.as_ref() == Some(&file.after) {
                continue;
            }
            let made = files::replace(&file.target.path, &file.after);
            let made = made.map_err(|error| failed(&file.target.path, &error))?;
            record.files[number].folders.extend(made);
        }
        record::save(&record)?;
        Ok(())
    }

    /// Returns the further steps for the user.
    pub fn notes(&self, setup: &Setup) -> Vec<String> {
        if setup.agent != NativeAgent::Codex {
            return Vec::new();
        }
        let trust =
            "Codex runs new hooks once you have reviewed them: start `codex` and choose `/hooks`.";
        let mut notes = vec![trust.to_owned()];
        let has_other = |file: &PlannedFile| {
            let text = std::str::from_utf8(&file.after);
            text.is_ok_and(toml::has_other_notice)
        };
        if self.files.iter().any(has_other) {
            let text = "Its `notify` names another program and stays: until the hooks are reviewed \
                        nothing is recorded.";
            notes.push(text.to_owned());
        }
        notes
    }
}

impl PlannedFile {
    fn change(&self) -> ConfigChange {
        let action = match &self.now {
            None => ConfigAction::Create,
            Some(now) if *now == self.after => ConfigAction::Unchanged,
            Some(_) => ConfigAction::Change,
        };
        ConfigChange::new(
            &self.target.path,
            action,
            self.now.as_deref().unwrap_or_default(),
            &self.after,
        )
    }
}

fn planned(
    target: Target,
    setup: &Setup,
    known: Option<&InstallRecord>,
) -> Result<PlannedFile, CliError> {
    let path = target.path.clone();
    let now = files::read(&path).map_err(|error| failed(&path, &error))?;
    let known = known.and_then(|known| {
        let number = known.files.iter().position(|file| file.path == path)?;
        Some((known, number))
    });
    let mut before = without_ours(&target, now.as_deref())?;
    let mut folders = Vec::new();
    if let Some((record, number)) = known {
        let file = &record.files[number];
        folders.clone_from(&file.folders);
        // The file is unchanged since the installation, so its earlier content can be restored exactly.
        if now.is_some() && record::copy(record, number, "after")? == now {
            before = record::copy(record, number, "before")?.filter(|_| file.was_there);
        } else if !file.was_there && before.as_deref().is_none_or(<[u8]>::is_empty) {
            before = None;
        }
    }
    let text = text_of(&path, before.as_deref())?;
    let after = target
        .edit
        .add(text, setup)
        .map_err(|error| failed(&path, &error))?;
    let after = match before
        .as_deref()
        .is_some_and(|before| before.starts_with(BOM))
    {
        true => [BOM, after.as_bytes()].concat(),
        false => after.into_bytes(),
    };
    Ok(PlannedFile {
        target,
        now,
        before,
        after,
        folders,
    })
}

/// The byte-order mark that some editors write before a text.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// Returns a file as text.
fn text_of<'a>(path: &Path, bytes: Option<&'a [u8]>) -> Result<Option<&'a str>, CliError> {
    let bytes = bytes.map(|bytes| bytes.strip_prefix(BOM).unwrap_or(bytes));
    let text = bytes.map(std::str::from_utf8).transpose();
    text.map_err(|error| failed(path, &error))
}

/// Returns a file without the entries of loopstore, if it has any.
fn without_ours(target: &Target, now: Option<&[u8]>) -> Result<Option<Vec<u8>>, CliError> {
    let Some(text) = text_of(&target.path, now)? else {
        return Ok(None);
    };
    if target.edit.is_whole() {
        // `add` rejects a file that belongs to another program.
        let is_ours = text.contains(super::scripts::MARK);
        return Ok(now.filter(|_| !is_ours).map(<[u8]>::to_vec));
    }
    let bare = target
        .edit
        .remove(text)
        .map_err(|error| failed(&target.path, &error))?;
    Ok(match bare == text {
        true => now.map(<[u8]>::to_vec),
        false => Some(bare.into_bytes()),
    })
}

/// Returns the error of a file that cannot be changed.
pub fn failed(path: &Path, why: &dyn std::fmt::Display) -> CliError {
    let shown = text::line(&path.display().to_string());
    CliError::Failed(format!("cannot change {shown}: {why}").into())
}

/// Returns the content of a file without the entries of loopstore.
pub fn taken_out(path: &Path, edit: Edit, now: &[u8]) -> Result<Vec<u8>, CliError> {
    let target = Target {
        path: path.to_owned(),
        edit,
    };
    Ok(without_ours(&target, Some(now))?.unwrap_or_default())
}
