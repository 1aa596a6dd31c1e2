//! Native transcripts: a conversation in the files of another coding agent, so
//! that this agent can resume it.
//!
//! `conversation` prepares the steps for every agent: each result after its call, ids and names that
//! providers accept, ascending times, and nothing that the agent could not send. An agent is one
//! file that writes these steps, and its lines in [`NativeAgent`] and `NativeAgent::form`.

mod claude_code;
mod codex;
mod conversation;
mod folders;
mod opencode;
mod pi;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chrono::{DateTime, Utc};
use conversation::NativeConversation;
use folders::FolderHash;
use loopstore::compaction::UnknownWord;
use loopstore::extend as store;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{SessionStore, StoreResult, active_blocks, leaf_of, session_of};
use loopstore::internal::originals_of;
use loopstore::model::{AgentMessage, Content, Json, LoopId, Role, SessionId};
use loopstore::provider::{Mending, MendingKind};
use loopstore_provider::media_type;
use serde::Serialize;

/// A coding agent whose transcripts can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NativeAgent {
    /// Claude Code: one JSON record a line.
    ClaudeCode,
    /// Codex: a rollout, one item a line.
    Codex,
    /// pi: one JSON entry a line.
    Pi,
    /// OpenCode: the document that its `import` reads; its own sessions are in a database.
    OpenCode,
}

impl NativeAgent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Pi, Self::OpenCode];

    /// Returns the name of the agent, which is also the name of its format for imports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Pi => "pi",
            Self::OpenCode => "opencode",
        }
    }
}

impl FromStr for NativeAgent {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Self::ALL.into_iter().find(|agent| agent.as_str() == text);
        found.ok_or_else(|| UnknownWord::new(text, "claude-code, codex, pi, opencode"))
    }
}

/// A session to be resumed by an agent. The session has a new id, so that it does not conflict with a file of the
/// agent.
#[derive(Clone, Debug)]
pub struct NativeSession {
    agent: NativeAgent,
    id: String,
    folder: String,
    title: Option<String>,
    now: DateTime<Utc>,
}

impl NativeSession {
    /// Returns a new session of an agent that works in `folder`, an absolute path.
    pub fn new(agent: NativeAgent, folder: impl Into<String>) -> Self {
        let now = loopstore_model::clock::utc_now();
        let id = match agent {
            NativeAgent::OpenCode => opencode::session_id(now),
            _ => SessionId::generate().as_str().to_owned(),
        };
        Self {
            agent,
            id,
            folder: folder.into(),
            title: None,
            now,
        }
    }

    /// Sets the title, for the agents that have titles.
    #[must_use]
    pub fn with_title(mut self, title: Option<String>) -> Self {
        self.title = title;
        self
    }

    /// Returns the agent.
    pub fn agent(&self) -> NativeAgent {
        self.agent
    }

    /// Returns the id of the session in the agent.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the folder that the agent works in.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Returns the path of the session's file below the folder of the agent. No part of it comes from
    /// a stored session: only the agent's id, the time and the letters of the folder's path.
    ///
    /// ```
    /// use loopstore_export::{NativeAgent, NativeSession};
    ///
    /// let session = NativeSession::new(NativeAgent::ClaudeCode, "/home/me/my.app");
    /// let file = format!("projects/-home-me-my-app/{}.jsonl", session.id());
    /// assert_eq!(session.place().to_str(), Some(file.as_str()));
    /// ```
    pub fn place(&self) -> PathBuf {
        self.place_with(FolderHash::Bun)
    }

    /// Returns the paths at which the agent may look for the session, the usual path first. A long path of a folder
    /// is hashed into the name, and the two distributions of Claude Code (a single executable, and a script for Node)
    /// use different hashes.
    ///
    /// ```
    /// use loopstore_export::{NativeAgent, NativeSession};
    ///
    /// let short = NativeSession::new(NativeAgent::ClaudeCode, "/home/me/my.app");
    /// assert_eq!(short.places(), [short.place()]);
    /// let long = NativeSession::new(NativeAgent::ClaudeCode, format!("/{}", "x/".repeat(120)));
    /// assert_eq!(long.places().len(), 2);
    /// ```
    pub fn places(&self) -> Vec<PathBuf> {
        let is_hashed = self.agent == NativeAgent::ClaudeCode && folders::is_long(&self.folder);
        let hashes = FolderHash::ALL.iter().take(if is_hashed { 2 } else { 1 });
        hashes.map(|hash| self.place_with(*hash)).collect()
    }

    fn place_with(&self, hash: FolderHash) -> PathBuf {
        let (id, now) = (&self.id, self.now);
        let place = match self.agent {
            NativeAgent::ClaudeCode => {
                let folder = folders::claude_code(&self.folder, hash);
                format!("projects/{folder}/{id}.jsonl")
            }
            NativeAgent::Codex => {
                let (day, time) = (now.format("%Y/%m/%d"), now.format("%Y-%m-%dT%H-%M-%S"));
                format!("sessions/{day}/rollout-{time}-{id}.jsonl")
            }
            NativeAgent::Pi => {
                let (folder, name) = (folders::pi(&self.folder), self.file_name());
                return Path::new("sessions").join(folder).join(name);
            }
            NativeAgent::OpenCode => format!("import/{id}.json"),
        };
        place.into()
    }

    /// Returns the file name that the agent uses.
    pub fn file_name(&self) -> String {
        match self.agent {
            NativeAgent::Pi => {
                let time = self.now.format("%Y-%m-%dT%H-%M-%S-%3fZ");
                format!("{time}_{}.jsonl", self.id)
            }
            _ => {
                let place = self.place();
                let name = place.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        }
    }
}

/// The number of changes of one kind to the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MendingCount {
    /// The kind of the change.
    pub kind: MendingKind,
    /// The provider that produced the omitted item, if only that provider accepts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The type of the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The number of changes.
    pub count: u64,
}

/// The report of a written transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NativeReport {
    /// The messages: prompts, answers and results.
    pub messages: u64,
    /// The content that the agent does not support.
    pub left_out: Vec<MendingCount>,
    /// The changes that were made so that a provider accepts the rest.
    pub mended: Vec<MendingCount>,
}

/// Writes a conversation as the transcript of an agent: prompts, answers, calls with their results, images
/// and errors, in order. State that only another provider can read is left out, as are extension
/// messages: the agent has a system prompt of its own.
///
/// # Errors
/// If `out` fails.
///
/// # Examples
/// ```
/// use loopstore_export::{NativeAgent, NativeSession, write_native};
/// use loopstore::*;
///
/// let session = NativeSession::new(NativeAgent::Codex, "/home/me/app");
/// let mut file = Vec::new();
/// let report = write_native(&session, &[Message::user("Will it rain?").into()], &mut file)?;
/// assert_eq!(report.messages, 1);
/// assert!(String::from_utf8(file)?.starts_with(r#"{"timestamp":"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_native(
    session: &NativeSession,
    messages: &[AgentMessage],
    out: &mut dyn Write,
) -> io::Result<NativeReport> {
    let form = session.agent.form();
    let conversation = NativeConversation::of(messages, form, session.now.timestamp_millis());
    form.write(session, &conversation, out)?;
    let (left_out, mended) = counts(&conversation.mended);
    Ok(NativeReport {
        messages: conversation.messages(),
        left_out,
        mended,
    })
}

/// Returns the originals of a chain, whatever blocks are active: the input of [`write_native`] for a whole
/// session.
///
/// # Errors
/// If the session or the loop does not exist, or the store fails.
pub fn originals(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<Vec<AgentMessage>> {
    store::read(store, |read| {
        let session = session_of(read, session)?;
        let leaf = leaf_of(read, &session, leaf)?.key;
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        originals_of(read, &active_blocks::chain(read, leaf, raw)?)
    })
}

/// The format of an agent's transcripts.
trait NativeForm: Sync {
    /// Characters that the name of a tool may have.
    fn name_length(&self) -> usize {
        128
    }

    /// Characters that the id of a call may have; none if only letters, digits, `_` and `-` may be in it.
    fn call_id(&self) -> Option<usize> {
        None
    }

    /// True if the agent sends this block of an answer, which is thinking or opaque.
    fn takes_thinking(&self, block: &Content) -> bool;

    /// True if the results of failed calls may have images.
    fn shows_images_of_errors(&self) -> bool {
        true
    }

    /// Writes the file.
    fn write(
        &self,
        session: &NativeSession,
        conversation: &NativeConversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()>;

    /// True if the agent sends a block of a message with this role.
    fn takes(&self, block: &Content, role: Role) -> bool {
        let is_answer = role == Role::Assistant;
        match block {
            Content::Text(_) => true,
            Content::Image(image) => !is_answer && media_type(image).is_some(),
            Content::ToolCall(_) => is_answer,
            Content::Thinking(_) | Content::Sealed(_) => is_answer && self.takes_thinking(block),
            Content::Other(_) => is_answer && self.item_of(block).is_some(),
        }
    }

    /// Returns the item of the agent's own provider that a block keeps, if the agent sends it.
    fn item_of(&self, _: &Content) -> Option<Json> {
        None
    }
}

impl NativeAgent {
    fn form(self) -> &'static dyn NativeForm {
        match self {
            Self::ClaudeCode => &claude_code::ClaudeCodeForm,
            Self::Codex => &codex::CodexForm,
            Self::Pi => &pi::PiForm,
            Self::OpenCode => &opencode::OpenCodeForm,
        }
    }
}

/// True for thinking that Anthropic signed or redacted.
fn is_of_anthropic(block: &Content) -> bool {
    let is_theirs = match block {
        Content::Sealed(sealed) => sealed.provider == "anthropic",
        _ => true,
    };
    is_theirs && block.is_signed_thinking()
}

/// Writes a record on a line of its own.
fn line(out: &mut dyn Write, record: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}

/// Counts the omissions, and the other changes.
fn counts(mended: &[Mending]) -> (Vec<MendingCount>, Vec<MendingCount>) {
    let mut counts = BTreeMap::new();
    for mending in mended {
        let key = (mending.kind, &mending.provider, &mending.item);
        *counts.entry(key).or_insert(0) += 1;
    }
    let counts = counts.into_iter();
    let counts = counts.map(|((kind, provider, item), count)| MendingCount {
        kind,
        provider: provider.clone(),
        item: item.clone(),
        count,
    });
    counts.partition(|count| count.kind.leaves_out())
}
