//! `loopstore install --uninstall`: restores the earlier content, and keeps later changes by others.

use std::path::{Path, PathBuf};

use loopstore_terminal::{App, CliError, Done, confirm};
use serde::Serialize;

use super::plan::{ConfigAction, ConfigChange, failed, taken_out};
use super::record::{InstallRecord, InstalledFile};
use super::{InstallRequest, REFUSAL, edit, files, record};

/// The JSON of a removal.
#[derive(Serialize)]
struct Uninstalled<'a> {
    agent: &'static str,
    dry_run: bool,
    files: &'a [ConfigChange],
}

/// A file with its change and its content after the change.
struct Undone {
    file: InstalledFile,
    change: ConfigChange,
    content: Vec<u8>,
}

/// Uninstalls.
pub fn run(
    app: &mut App,
    request: &InstallRequest,
    known: Option<InstallRecord>,
) -> Result<Done, CliError> {
    let undone = match &known {
        Some(record) => of_record(record)?,
        None => of_files(request)?,
    };
    let changes: Vec<ConfigChange> = undone.iter().map(|one| one.change.clone()).collect();
    if !app.json {
        for change in &changes {
            app.out.text(&change.shown())?;
        }
        app.out.flush()?;
    }
    let agent = request.agent;
    if !request.dry_run {
        if !changes.iter().all(ConfigChange::is_unchanged) {
            let question = || Ok(format!("Take loopstore out of {}?", agent.as_str()));
            confirm::ask(request.yes, REFUSAL, "nothing was changed", question)?;
        }
        for one in &undone {
            one.carry_out()
                .map_err(|error| failed(&one.file.path, &error))?;
        }
        record::forget(agent, &edit::root(agent)?)?;
    }
    let uninstalled = Uninstalled {
        agent: agent.as_str(),
        dry_run: request.dry_run,
        files: &changes,
    };
    app.print(&uninstalled, || {
        let what = match (request.dry_run, changes.is_empty()) {
            (_, true) => "is not set up",
            (true, false) => "stays set up: this was a dry run",
            (false, false) => "no longer calls loopstore; its recorded sessions stay",
        };
        format!("{} {what}.", agent.as_str())
    })?;
    Ok(Done::Well)
}

fn of_record(record: &InstallRecord) -> Result<Vec<Undone>, CliError> {
    let mut undone = Vec::new();
    for (number, file) in record.files.iter().enumerate() {
        let now = files::read(&file.path).map_err(|error| failed(&file.path, &error))?;
        let before = record::copy(record, number, "before")?;
        let before = before.filter(|_| file.was_there);
        let after = record::copy(record, number, "after")?;
        undone.push(match now {
            None => Undone::new(file, ConfigAction::Gone, b"", Vec::new()),
            Some(now) if Some(&now) == after.as_ref() => match before {
                Some(before) => Undone::new(file, ConfigAction::Restore, &now, before),
                None => Undone::new(file, ConfigAction::Remove, &now, Vec::new()),
            },
            Some(now) => changed_since(file, &now)?,
        });
    }
    Ok(undone)
}

/// Returns the changes without a record of the installation: the entries of loopstore are recognised by their content.
fn of_files(request: &InstallRequest) -> Result<Vec<Undone>, CliError> {
    let mut undone = Vec::new();
    for target in edit::targets(request.agent, true)? {
        let read = files::read(&target.path);
        let Some(now) = read.map_err(|error| failed(&target.path, &error))? else {
            continue;
        };
        let file = InstalledFile {
            path: target.path,
            edit: target.edit,
            was_there: true,
            folders: Vec::new(),
        };
        let one = changed_since(&file, &now)?;
        if !one.change.is_unchanged() {
            undone.push(one);
        }
    }
    Ok(undone)
}

fn changed_since(file: &InstalledFile, now: &[u8]) -> Result<Undone, CliError> {
    let content = taken_out(&file.path, file.edit, now)?;
    Ok(if content == now {
        Undone::new(file, ConfigAction::Unchanged, now, content)
    } else if file.edit.is_whole() {
        Undone::new(file, ConfigAction::MoveAside, now, content)
    } else {
        Undone::new(file, ConfigAction::TakeOut, now, content)
    })
}

impl Undone {
    fn new(file: &InstalledFile, action: ConfigAction, now: &[u8], content: Vec<u8>) -> Self {
        let mut change = ConfigChange::new(&file.path, action, now, &content);
        if action == ConfigAction::MoveAside {
            change.backup = Some(aside(&file.path).display().to_string());
        }
        let file = file.clone();
        Self {
            file,
            change,
            content,
        }
    }

    fn carry_out(&self) -> std::io::Result<()> {
        let path = &self.file.path;
        match self.change.action {
            ConfigAction::Restore | ConfigAction::TakeOut => {
                files::replace(path, &self.content).map(|_| ())
            }
            ConfigAction::Remove => files::remove(path, &self.file.folders),
            ConfigAction::MoveAside => std::fs::rename(path, aside(path)),
            ConfigAction::Create
            | ConfigAction::Change
            | ConfigAction::Unchanged
            | ConfigAction::Gone => Ok(()),
        }
    }
}

/// Returns a path that no agent loads.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".changed");
    name.into()
}
