//! The event that an agent writes to stdin: JSON that may be invalid, truncated or endless.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use loopstore_export::NativeAgent;
use serde::Deserialize;

/// The maximum size of an event, in bytes.
const MAX_EVENT_BYTES: u64 = 4 << 20;
/// The maximum size of a whole session, which OpenCode's plugin passes, in bytes.
const MAX_SESSION_BYTES: u64 = 256 << 20;
/// The maximum length of a session's id, in bytes.
const MAX_ID_BYTES: usize = 200;

/// The fields of an event, for all agents. Each agent sets some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HookEvent {
    #[serde(alias = "thread-id", alias = "sessionID")]
    session_id: Option<String>,
    transcript_path: Option<PathBuf>,
    agent_transcript_path: Option<PathBuf>,
    /// The cause of a session's start: `startup`, `resume`, `clear` or `compact`.
    pub source: Option<String>,
}

/// The reason that an event cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The event cannot be read.
    #[error("stdin cannot be read")]
    Read(#[source] std::io::Error),
    /// The event is longer than the limit.
    #[error("the event has more than {0} bytes")]
    Long(u64),
    /// The event is not JSON, or has an unknown form.
    #[error("the event is not the JSON object that was expected")]
    Shape(#[source] serde_json::Error),
    /// A path is invalid.
    #[error("{0} is not the path of a transcript: {1}")]
    Path(String, &'static str),
    /// An id is invalid.
    #[error("the session's id holds other characters than letters, digits, `.`, `_` and `-`")]
    Id,
}

/// Reads stdin to its end.
pub fn read(agent: NativeAgent) -> Result<Vec<u8>, InputError> {
    let most = match agent {
        NativeAgent::OpenCode => MAX_SESSION_BYTES,
        _ => MAX_EVENT_BYTES,
    };
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().lock().take(most + 1);
    stdin.read_to_end(&mut bytes).map_err(InputError::Read)?;
    match bytes.len() as u64 > most {
        true => Err(InputError::Long(most)),
        false => Ok(bytes),
    }
}

impl HookEvent {
    /// Reads an event.
    pub fn parse(bytes: &[u8]) -> Result<Self, InputError> {
        serde_json::from_slice(bytes).map_err(InputError::Shape)
    }

    /// Reads the event of OpenCode's plugin, which contains a whole session: `{info, messages}`.
    pub fn of_export(bytes: &[u8]) -> Result<Self, InputError> {
        #[derive(Deserialize)]
        struct Export {
            info: Info,
        }
        #[derive(Deserialize)]
        struct Info {
            id: String,
        }
        let export: Export = serde_json::from_slice(bytes).map_err(InputError::Shape)?;
        Ok(Self {
            session_id: Some(export.info.id),
            ..Self::default()
        })
    }

    /// Returns the id of the session, if the event has one.
    pub fn session_id(&self) -> Result<Option<&str>, InputError> {
        let Some(id) = self.session_id.as_deref().filter(|id| !id.is_empty()) else {
            return Ok(None);
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = id.len() <= MAX_ID_BYTES && id.bytes().all(is_plain) && !id.starts_with('.');
        is_name.then_some(Some(id)).ok_or(InputError::Id)
    }

    /// Returns the paths of the event's transcripts: of the session, and of a sub-agent. A missing transcript of a
    /// sub-agent is left out, since some sub-agents of Claude Code write none. With `may_lack`, a missing transcript
    /// of the session is left out too, since a session without messages has none.
    pub fn transcripts(&self, may_lack: bool) -> Result<Vec<PathBuf>, InputError> {
        let own = self.transcript_path.iter().map(|path| (path, may_lack));
        let of_agent = self.agent_transcript_path.iter().map(|path| (path, true));
        let mut found = Vec::new();
        for (path, may_lack) in own.chain(of_agent) {
            if !may_lack || path.symlink_metadata().is_ok() {
                found.push(checked(path)?);
            }
        }
        found.dedup();
        Ok(found)
    }
}

/// Rejects paths that no agent uses for its transcript: relative paths, paths with `..`, other kinds of files.
fn checked(path: &Path) -> Result<PathBuf, InputError> {
    let refused = |why| {
        let shown = path.to_string_lossy().chars().take(120).collect();
        Err(InputError::Path(shown, why))
    };
    if !path.is_absolute() {
        return refused("it is relative");
    }
    let mut parts = path.components();
    if parts.any(|part| part == Component::ParentDir) {
        return refused("it holds `..`");
    }
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return refused("its name does not end with .jsonl");
    }
    match path.metadata() {
        Ok(data) if data.is_file() => Ok(path.to_owned()),
        Ok(_) => refused("it is no file"),
        Err(_) => refused("there is no such file, or it cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: serde_json::Value) -> Result<HookEvent, InputError> {
        HookEvent::parse(json.to_string().as_bytes())
    }

    #[test]
    fn an_id_that_leads_elsewhere_is_refused() {
        for id in [
            "../../etc/passwd",
            "..",
            "a/b",
            "a\\b",
            "a\nb",
            "é",
            &"x".repeat(201),
        ] {
            let event = event(serde_json::json!({ "session_id": id })).unwrap();
            assert!(event.session_id().is_err(), "{id}");
        }
        let event = event(serde_json::json!({"thread-id": "0199-a.b_c"})).unwrap();
        assert_eq!(event.session_id().unwrap(), Some("0199-a.b_c"));
    }

    #[test]
    fn a_path_that_is_no_transcript_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.jsonl"), "{}").unwrap();
        std::fs::write(at("a.txt"), "{}").unwrap();
        std::fs::create_dir(at("b.jsonl")).unwrap();
        let paths = [
            at("a.txt"),
            at("b.jsonl"),
            at("none.jsonl"),
            at("b.jsonl/../a.jsonl"),
        ];
        for path in paths
            .into_iter()
            .chain(["a.jsonl".into(), "/dev/zero".into()])
        {
            let event = event(serde_json::json!({ "transcript_path": path })).unwrap();
            assert!(event.transcripts(false).is_err(), "{}", path.display());
        }
        let event = event(serde_json::json!({"transcript_path": at("a.jsonl")})).unwrap();
        assert_eq!(event.transcripts(false).unwrap(), [at("a.jsonl")]);
    }

    #[test]
    fn another_shape_is_refused() {
        for text in [
            "",
            "nonsense",
            "[1]",
            "{\"session_id\": 7}",
            "{\"session_id\": \"a",
        ] {
            assert!(HookEvent::parse(text.as_bytes()).is_err(), "{text}");
        }
        let event = HookEvent::parse(b"{\"transcript_path\": null}").unwrap();
        assert!(
            event.transcripts(false).unwrap().is_empty() && event.session_id().unwrap().is_none()
        );
    }
}
