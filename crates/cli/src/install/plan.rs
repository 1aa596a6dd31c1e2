//! What an installation is going to write, before it writes it.

use std::path::{Path, PathBuf};

use loopstore_export::NativeAgent;
use serde::Serialize;
use similar::TextDiff;

use super::edit::{self, Edit, Target};
use super::record::{ChangedFile, Record};
use super::setup::Setup;
use super::{files, record, toml};
use crate::error::CliError;
use crate::text;

/// What becomes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It comes to be.
    Create,
    /// Lines are added.
    Change,
    /// It has them already.
    Unchanged,
    /// What was there before comes back.
    Restore,
    /// It goes: it was not there before.
    Remove,
    /// It was changed since; only our entries go.
    TakeOut,
    /// It is ours and was changed since; it is moved aside.
    MoveAside,
    /// It is gone already.
    Gone,
}

/// A file and what becomes of it.
#[derive(Clone, Debug, Serialize)]
pub struct FileChange {
    pub path: String,
    pub action: Action,
    /// The lines that differ.
    pub diff: String,
    /// Where its content is kept, or moved to.
    pub backup: Option<String>,
}

impl FileChange {
    /// Describes a change from one content to another.
    pub fn new(path: &Path, action: Action, before: &[u8], after: &[u8]) -> Self {
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

    /// Whether nothing is to do.
    pub fn is_unchanged(&self) -> bool {
        matches!(self.action, Action::Unchanged | Action::Gone)
    }

    /// Returns it for people.
    pub fn shown(&self) -> String {
        let what = match self.action {
            Action::Create => "new file",
            Action::Change => "changed",
            Action::Unchanged => "unchanged",
            Action::Restore => "as it was before",
            Action::Remove => "removed, as it was not there before",
            Action::TakeOut => "changed since; only what loopstore wrote is taken out",
            Action::MoveAside => "changed since; moved aside",
            Action::Gone => "gone already",
        };
        let first = format!("{} ({what})", text::line(&self.path));
        match self.diff.is_empty() {
            true => first,
            false => format!("{first}\n{}", self.diff.trim_end()),
        }
    }
}

/// A file as it is, as it was, and as it will be.
struct PlannedFile {
    target: Target,
    /// What is there; `None`: nothing.
    now: Option<Vec<u8>>,
    /// What was there before any installation; `None`: nothing.
    before: Option<Vec<u8>>,
    after: Vec<u8>,
    folders: Vec<PathBuf>,
}

/// What an installation writes.
pub struct Plan {
    record: Record,
    files: Vec<PlannedFile>,
}

impl Plan {
    /// Plans an installation.
    pub fn new(setup: &Setup, root: &Path, known: Option<Record>) -> Result<Self, CliError> {
        let targets = edit::targets(setup.agent, setup.mcp.is_some())?;
        let mut files = Vec::new();
        for target in targets {
            files.push(planned(target, setup, known.as_ref())?);
        }
        let record = Record {
            agent: setup.agent.as_str().to_owned(),
            root: root.to_owned(),
            program: setup.program.clone().into(),
            database: setup.database.clone(),
            mcp: setup.mcp.clone(),
            files: Vec::new(),
        };
        Ok(Self { record, files })
    }

    /// Returns what becomes of each file.
    pub fn changes(&self) -> Vec<FileChange> {
        self.files.iter().map(PlannedFile::change).collect()
    }

    /// Whether anything becomes different.
    pub fn changes_any(&self) -> bool {
        self.files
            .iter()
            .any(|file| file.now.as_ref() != Some(&file.after))
    }

    /// Keeps what was there, and writes.
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
            record.files.push(ChangedFile {
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

    /// Says what else there is to know.
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
    fn change(&self) -> FileChange {
        let action = match &self.now {
            None => Action::Create,
            Some(now) if *now == self.after => Action::Unchanged,
            Some(_) => Action::Change,
        };
        FileChange::new(
            &self.target.path,
            action,
            self.now.as_deref().unwrap_or_default(),
            &self.after,
        )
    }
}

fn planned(target: Target, setup: &Setup, known: Option<&Record>) -> Result<PlannedFile, CliError> {
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
        // As it was left: what was there before is known to the byte.
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

/// What some editors write before a text.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// Returns a file as text.
fn text_of<'a>(path: &Path, bytes: Option<&'a [u8]>) -> Result<Option<&'a str>, CliError> {
    let bytes = bytes.map(|bytes| bytes.strip_prefix(BOM).unwrap_or(bytes));
    let text = bytes.map(std::str::from_utf8).transpose();
    text.map_err(|error| failed(path, &error))
}

/// Returns a file without our entries, if it has some.
fn without_ours(target: &Target, now: Option<&[u8]>) -> Result<Option<Vec<u8>>, CliError> {
    let Some(text) = text_of(&target.path, now)? else {
        return Ok(None);
    };
    if target.edit.is_whole() {
        // One that is somebody else's is refused by `add`.
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

/// Says of a file that it cannot be changed.
pub fn failed(path: &Path, why: &dyn std::fmt::Display) -> CliError {
    let shown = text::line(&path.display().to_string());
    CliError::Failed(format!("cannot change {shown}: {why}").into())
}

/// Returns a file without our entries, as it would be taken out of it.
pub fn taken_out(path: &Path, edit: Edit, now: &[u8]) -> Result<Vec<u8>, CliError> {
    let target = Target {
        path: path.to_owned(),
        edit,
    };
    Ok(without_ours(&target, Some(now))?.unwrap_or_default())
}
