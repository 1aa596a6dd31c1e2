//! Native transcripts: a conversation in the files of another coding agent, as that agent reads them, so
//! that it goes on with it.
//!
//! `conversation` prepares what every agent wants: each result behind its call, ids and names that
//! providers take, times that do not go back, and nothing that the agent could not send. An agent is one
//! file that writes the steps of that, and its lines in [`NativeAgent`] and [`Form::of`].

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
use conversation::Conversation;
use folders::FolderHash;
use loopstore::compaction::UnknownWord;
use loopstore::extend as store;
use loopstore::extend::active_blocks::View;
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

    /// Returns its name, which is also that of the format for imports.
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

/// A session that an agent is to find: it has an id of its own, so that no file of the agent's is in its
/// way.
#[derive(Clone, Debug)]
pub struct NativeSession {
    agent: NativeAgent,
    id: String,
    folder: String,
    title: Option<String>,
    now: DateTime<Utc>,
}

impl NativeSession {
    /// A new session of an agent that works in `folder`, an absolute path.
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

    /// The same session with a title, for the agents that have them.
    #[must_use]
    pub fn with_title(mut self, title: Option<String>) -> Self {
        self.title = title;
        self
    }

    /// Returns the agent.
    pub fn agent(&self) -> NativeAgent {
        self.agent
    }

    /// Returns the id by which the agent knows it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the folder that the agent works in.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Returns where below its own folder the agent looks for the session's file. No part of it comes from
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

    /// Returns the places in which a program of the agent may look, the usual one first: a long path of a folder
    /// is hashed into its name, by the program of Claude Code in one file and by the script that Node runs in
    /// two ways.
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

    /// Returns the name that the agent gives the file.
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

/// How often something was done to messages on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MendingCount {
    /// What was done.
    pub kind: MendingKind,
    /// Who made what was left out, if only they take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What that is, by its own type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// How often.
    pub count: u64,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NativeReport {
    /// The messages: prompts, answers and results.
    pub messages: u64,
    /// What the agent could not take.
    pub left_out: Vec<MendingCount>,
    /// What was changed or added so that a provider accepts the rest.
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
    let conversation = Conversation::of(messages, form, session.now.timestamp_millis());
    form.write(session, &conversation, out)?;
    let (left_out, mended) = counts(&conversation.mended);
    Ok(NativeReport {
        messages: conversation.messages(),
        left_out,
        mended,
    })
}

/// Returns the originals of a chain, whatever blocks are active: what [`write_native`] writes of a whole
/// session.
///
/// # Errors
/// If the session or the loop is not there, or the store fails.
pub fn originals(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<Vec<AgentMessage>> {
    store::read(store, |read| {
        let session = session_of(read, session)?;
        let leaf = leaf_of(read, &session, leaf)?.key;
        let raw = View {
            raw: true,
            ..View::default()
        };
        originals_of(read, &active_blocks::chain(read, leaf, raw)?)
    })
}

/// What one agent's transcripts hold.
trait Form: Sync {
    /// Characters that the name of a tool may have.
    fn name_length(&self) -> usize {
        128
    }

    /// Characters that the id of a call may have; none if only letters, digits, `_` and `-` may be in it.
    fn call_id(&self) -> Option<usize> {
        None
    }

    /// Whether the agent sends this block of an answer, which is thinking or sealed.
    fn takes_thinking(&self, block: &Content) -> bool;

    /// Whether the results of failed calls may hold images.
    fn shows_images_of_errors(&self) -> bool {
        true
    }

    /// Writes the file.
    fn write(
        &self,
        session: &NativeSession,
        conversation: &Conversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()>;

    /// Whether the agent sends a block of a message with this role.
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
    fn form(self) -> &'static dyn Form {
        match self {
            Self::ClaudeCode => &claude_code::ClaudeCode,
            Self::Codex => &codex::Codex,
            Self::Pi => &pi::Pi,
            Self::OpenCode => &opencode::OpenCode,
        }
    }
}

/// Whether a block is thinking that Anthropic signed or redacted.
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

/// Counts what was left out, and what was mended otherwise.
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
