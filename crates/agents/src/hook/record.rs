//! Imports the records that were added to a transcript.
//!
//! A small transcript is read whole, as by an import: that takes 13 ms per megabyte. Of a larger one only the end is
//! read, if no record there depends on earlier ones. Otherwise, and when a session ends or is compacted, the hook
//! starts a background process that reads the whole file and stores a copy of it. The hook waits for that process only
//! before an answer that needs the record, and only for a limited time.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loopstore::SessionId;
use loopstore_export::NativeAgent;
use loopstore_terminal::{App, CliError};
use loopstore_transcripts::{
    ImportOptions, ImportReport, Source, import_appended, import_paths, import_source_with,
    importers,
};

use super::log::HookEntry;
use super::{HookCall, state};
use crate::install::record::redacts;

/// The maximum size of a transcript that is read whole before the hook ends, in bytes.
const AT_ONCE_BYTES: u64 = 1 << 20;
/// The maximum time that a hook waits for a larger transcript before a compaction.
const PATIENCE: Duration = Duration::from_millis(1_200);
/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// The transcripts to record.
pub struct RecordRequest<'a> {
    /// The call of the hook.
    pub call: &'a HookCall,
    /// The transcripts.
    pub paths: &'a [PathBuf],
    /// The session of the first.
    pub session: Option<&'a SessionId>,
    /// True if the answer needs the recorded messages.
    pub waits: bool,
    /// True if a copy of the files is to be kept too.
    pub keeps: bool,
}

/// Records transcripts. Returns the session of the first transcript, if it is known by then.
pub fn transcripts(
    app: &App,
    request: &RecordRequest<'_>,
    entry: &mut HookEntry,
) -> Result<Option<SessionId>, CliError> {
    let (call, paths) = (request.call, request.paths);
    let bytes = paths.iter().filter_map(|path| path.metadata().ok());
    if bytes.map(|data| data.len()).sum::<u64>() <= AT_ONCE_BYTES {
        let report = import(app, call.agent, paths, entry)?;
        return Ok(report.and_then(|report| report.sessions.first().cloned()));
    }
    let appended = appended(app, request, entry)?;
    if appended.is_some() && !request.keeps {
        return Ok(appended);
    }
    let mut child = start(app, call, paths)?;
    if request.waits && appended.is_none() {
        let begun = Instant::now();
        while child.try_wait()?.is_none() && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(appended)
}

/// Records only the end of a transcript, if possible.
fn appended(
    app: &App,
    request: &RecordRequest<'_>,
    entry: &mut HookEntry,
) -> Result<Option<SessionId>, CliError> {
    let ([path], Some(session)) = (request.paths, request.session) else {
        return Ok(None);
    };
    if redacts(request.call.agent)? {
        // Only the read of a whole transcript replaces secrets.
        return Ok(None);
    }
    let store = app.open_to_write()?;
    let format = request.call.agent.as_str();
    let Some(report) = import_appended(&*store, path, format, session)? else {
        return Ok(None);
    };
    entry.added_messages += report.added_messages;
    Ok(Some(session.clone()))
}

/// Records the whole session of an event, and returns its id.
pub fn export(
    app: &App,
    bytes: &[u8],
    entry: &mut HookEntry,
) -> Result<Option<SessionId>, CliError> {
    let name = NativeAgent::OpenCode.as_str();
    let importer = importers()
        .iter()
        .find(|importer| importer.format() == name);
    let importer = importer.ok_or_else(|| CliError::Failed("there is no such format".into()))?;
    let store = app.open_to_write()?;
    let mut source = Source {
        path: Path::new("opencode.json"),
        reader: &mut Cursor::new(bytes),
    };
    let options = options(NativeAgent::OpenCode)?;
    let report = import_source_with(&*store, *importer, &mut source, options)?;
    entry.added_messages += report.added_messages;
    Ok(report.sessions.first().cloned())
}

/// Records transcripts in the background. Each transcript is recorded by one process at a time.
pub fn detached(
    app: &App,
    agent: NativeAgent,
    paths: &[PathBuf],
    entry: &mut HookEntry,
) -> Result<(), CliError> {
    for path in paths {
        let mut lock = lock_of(path)?;
        lock.lock()?;
        let stamp = stamp(path)?;
        let mut before = String::new();
        lock.read_to_string(&mut before)?;
        // The previous holder of the lock has recorded this content too.
        if before != stamp {
            import(app, agent, std::slice::from_ref(path), entry)?;
            lock.set_len(0)?;
            lock.seek(SeekFrom::Start(0))?;
            lock.write_all(stamp.as_bytes())?;
        }
    }
    Ok(())
}

fn import(
    app: &App,
    agent: NativeAgent,
    paths: &[PathBuf],
    entry: &mut HookEntry,
) -> Result<Option<ImportReport>, CliError> {
    if paths.is_empty() {
        return Ok(None);
    }
    let store = app.open_to_write()?;
    let report = import_paths(&*store, paths, &options(agent)?, &mut |_| {})?;
    entry.added_messages += report.added_messages;
    Ok(Some(report))
}

/// Returns the options by which the transcripts of an agent are imported.
fn options(agent: NativeAgent) -> io::Result<ImportOptions> {
    Ok(ImportOptions {
        format: Some(agent.as_str().to_owned()),
        redact: redacts(agent)?,
        ..ImportOptions::default()
    })
}

/// Starts a process that records, in a process group of its own, which signals to the agent's group do not reach.
fn start(app: &App, call: &HookCall, paths: &[PathBuf]) -> Result<Child, CliError> {
    let mut command = Command::new(crate::program::path()?);
    command.arg("--db").arg(&app.db).args(&app.key_args);
    command.args(["hook", call.agent.as_str(), "record", "--detached"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&serde_json::to_vec(paths)?)?;
    }
    Ok(child)
}

fn lock_of(path: &Path) -> io::Result<File> {
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    let name = format!("{:016x}", hash.finish());
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(state::made("recording")?.join(name))
}

/// Returns the stamp of a file; files with equal stamps have equal content.
fn stamp(path: &Path) -> io::Result<String> {
    let data = path.metadata()?;
    Ok(format!(
        "{} {} {}.{}",
        data.ino(),
        data.len(),
        data.mtime(),
        data.mtime_nsec()
    ))
}
