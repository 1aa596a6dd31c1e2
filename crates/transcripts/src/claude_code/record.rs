//! The fields of a record that the first pass needs, read without its body.
//!
//! Each field is read separately, so that a field of an unexpected type does not make the whole record unreadable.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;

use super::shapes::{ContentBlock, MessageBody, Metadata, RawField, RecordFields};
use super::words::{INTERRUPT, MARKERS};

/// The role of a record in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A message of the user, including tool results.
    User,
    /// A block of an answer.
    Assistant,
    /// The summary that replaces everything before it.
    Summary,
    /// The point of a compaction.
    Boundary,
    /// The point at which tool results were cleared.
    Microcompact,
    /// A record that no model sees.
    #[default]
    Extension,
}

/// The kind of a text of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// A person's prompt.
    Prompt,
    /// A text that the program adds and that needs an answer.
    Added,
    /// A command, its output or another text that needs no answer.
    Marker,
    /// The interruption of the agent by the person.
    Interrupt,
}

/// The facts of a tool call that the tree needs.
#[derive(Debug)]
pub(super) struct TreeCall {
    pub(super) id: String,
    pub(super) name: String,
    /// Digest of `input.prompt`, for calls that start a sub-agent.
    pub(super) prompt: Option<u64>,
}

/// A title for the session.
#[derive(Clone, Debug)]
pub(super) enum RecordTitle {
    /// A title by a person.
    Given(String),
    /// A title by a model.
    Made(String),
    /// A title by a model for the conversation that ends with this record, which may be in another file.
    About(String, String),
}

/// The facts of one record.
#[derive(Debug, Default)]
pub(super) struct ClaudeRecord {
    pub(super) kind: RecordKind,
    pub(super) uuid: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) logical_parent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) time: Option<String>,
    /// `None` if the record has no such field.
    pub(super) sidechain: Option<bool>,
    pub(super) message_id: Option<String>,
    pub(super) model: Option<String>,
    /// Digest of the content; a string and a single text block with the same text have the same digest.
    pub(super) digest: u64,
    pub(super) calls: Vec<TreeCall>,
    /// Ids of the calls whose results the record contains.
    pub(super) results: Vec<String>,
    pub(super) speech: Option<Speech>,
    /// Digest of the text, if the content is one text.
    pub(super) text: Option<u64>,
    pub(super) project: Option<String>,
    pub(super) title: Option<RecordTitle>,
    /// The id of a sub-agent and, if known, the call that started it.
    pub(super) spawned: Option<(String, Option<String>)>,
    pub(super) preserved: KeptMessages,
}

/// The messages that a compaction kept.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    /// The kept records; the first known one begins the segment.
    pub(super) uuids: Vec<String>,
    /// The last kept record.
    pub(super) tail: Option<String>,
}

/// Reads the fields of the record `json` that the tree needs.
///
/// # Errors
/// If `json` is not an object, or repeats a field.
pub(super) fn read_head(json: &str) -> Result<ClaudeRecord, String> {
    if !json.starts_with('{') {
        return Err("not a JSON object".into());
    }
    let head: RecordFields<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let mut record = ClaudeRecord {
        uuid: head.uuid.text(),
        parent: head.parent_uuid.text(),
        logical_parent: head.logical_parent_uuid.text(),
        session: head.session_id.text(),
        agent: head.agent_id.text(),
        time: head.timestamp.text(),
        project: head.cwd.text(),
        sidechain: head.is_sidechain.read(),
        ..ClaudeRecord::default()
    };
    match head.r#type.text().as_deref() {
        Some("user") => record.user(&head),
        Some("assistant") => record.assistant(&head),
        Some("system") => record.system(&head),
        Some("attachment") => record.attachment(&head),
        Some("summary") => {
            let about = head.leaf_uuid.text().zip(head.summary.text());
            record.title = about.map(|(leaf, text)| RecordTitle::About(leaf, text));
        }
        Some("custom-title") => record.title = head.custom_title.text().map(RecordTitle::Given),
        Some("ai-title") => record.title = head.ai_title.text().map(RecordTitle::Made),
        Some("progress") if head.data.contains("agent_progress") => {
            record.spawned = head
                .data
                .field("agentId")
                .map(|id| (id, head.parent_tool_use_id.text()));
        }
        _ => {}
    }
    Ok(record)
}

impl ClaudeRecord {
    fn user(&mut self, head: &RecordFields<'_>) {
        // A bare string in place of the message has been seen in edited files.
        let content = match head.message.read::<MessageBody<'_>>() {
            Some(body) => body.content,
            None => head.message,
        };
        if !self.content(content) {
            return;
        }
        self.kind = RecordKind::User;
        if self.speech.is_none() && self.results.is_empty() {
            self.speech = Some(Speech::Added);
        }
        if head.is_compact_summary.is_true() {
            self.kind = RecordKind::Summary;
        }
        if let Some(speech) = &mut self.speech
            && *speech == Speech::Prompt
        {
            if head.is_visible_in_transcript_only.is_true() {
                *speech = Speech::Marker;
            } else if head.is_meta.is_true() || !self.results.is_empty() {
                *speech = Speech::Added;
            }
        }
        if head.tool_use_result.contains("\"agentId\"") && !self.results.is_empty() {
            self.spawned = head
                .tool_use_result
                .field("agentId")
                .map(|agent| (agent, self.results.first().cloned()));
        }
    }

    fn assistant(&mut self, head: &RecordFields<'_>) {
        let Some(body) = head.message.read::<MessageBody<'_>>() else {
            return;
        };
        if !body.content.is_set() {
            return;
        }
        self.content(body.content);
        self.kind = RecordKind::Assistant;
        self.message_id = body.id.text();
        self.model = body.model.text();
        self.speech = None;
        self.results.clear();
    }

    fn system(&mut self, head: &RecordFields<'_>) {
        match head.subtype.text().as_deref() {
            Some("compact_boundary") => {
                self.kind = RecordKind::Boundary;
                self.preserved = head
                    .compact_metadata
                    .read()
                    .map(preserved)
                    .unwrap_or_default();
            }
            Some("microcompact_boundary") => self.kind = RecordKind::Microcompact,
            _ => {}
        }
    }

    /// Handles a prompt that was typed while the agent was running, and passed to it during the run.
    fn attachment(&mut self, head: &RecordFields<'_>) {
        #[derive(Deserialize)]
        struct Queued<'a> {
            #[serde(borrow, default)]
            r#type: RawField<'a>,
            #[serde(borrow, default)]
            prompt: RawField<'a>,
        }
        if let Some(queued) = head.attachment.read::<Queued<'_>>()
            && queued.r#type.text().as_deref() == Some("queued_command")
            && self.content(queued.prompt)
        {
            self.kind = RecordKind::User;
            self.speech = self.speech.map(|speech| match speech {
                Speech::Prompt => Speech::Added,
                other => other,
            });
        }
    }

    /// Reads the blocks. Returns false if there are none.
    fn content(&mut self, content: RawField<'_>) -> bool {
        let mut hasher = DefaultHasher::new();
        let (mut texts, mut others, mut plain) = (Vec::new(), 0, None);
        let items: Vec<RawField<'_>> = match content.list() {
            Some(items) => items,
            None if content.text().is_some() => vec![content],
            None => Vec::new(),
        };
        for item in &items {
            if let Some(text) = item.text() {
                hash_text(&mut hasher, &text);
                texts.push(text);
                continue;
            }
            let block = item.read::<ContentBlock<'_>>();
            let kind = block.as_ref().and_then(|block| block.r#type.text());
            match (kind.as_deref(), block) {
                (Some("text"), Some(block)) => {
                    let text = block.text.text().unwrap_or_default();
                    hash_text(&mut hasher, &text);
                    texts.push(text);
                    continue;
                }
                (Some("tool_use"), Some(block)) => self.calls.extend(call(&block)),
                (Some("tool_result"), Some(block)) => {
                    self.results
                        .push(block.tool_use_id.text().unwrap_or_default());
                }
                _ => others += 1,
            }
            item.json().hash(&mut hasher);
        }
        if let ([text], 0) = (texts.as_slice(), others) {
            plain = Some(digest_text(text));
        }
        self.digest = hasher.finish();
        self.text = plain;
        self.speech = speech(&texts, others);
        !items.is_empty()
    }
}

fn hash_text(hasher: &mut DefaultHasher, text: &str) {
    "text".hash(hasher);
    text.hash(hasher);
}

/// Returns a digest by which a text is found again within one import.
pub(super) fn digest_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn call(block: &ContentBlock<'_>) -> Option<TreeCall> {
    let (id, name) = (block.id.text()?, block.name.text()?);
    let prompt = match name.as_str() {
        "Task" | "Agent" => block
            .input
            .field("prompt")
            .map(|prompt| digest_text(&prompt)),
        _ => None,
    };
    Some(TreeCall { id, name, prompt })
}

fn speech(texts: &[String], others: usize) -> Option<Speech> {
    if texts.is_empty() && others == 0 {
        return None;
    }
    let starts = |markers: &[&str]| {
        let mut texts_shown = texts
            .iter()
            .map(|text| text.trim_start())
            .filter(|text| !text.is_empty());
        others == 0 && texts_shown.all(|text| markers.iter().any(|marker| text.starts_with(marker)))
    };
    let blank = texts.iter().all(|text| text.trim().is_empty());
    Some(if starts(&[INTERRUPT]) && !blank {
        Speech::Interrupt
    } else if starts(&MARKERS) {
        Speech::Marker
    } else {
        Speech::Prompt
    })
}

fn preserved(metadata: Metadata<'_>) -> KeptMessages {
    #[derive(Deserialize)]
    struct Messages<'a> {
        #[serde(borrow, default)]
        uuids: RawField<'a>,
    }
    let segment = metadata.preserved_segment;
    let listed = metadata.preserved_messages.read::<Messages<'_>>();
    let listed: Vec<String> = listed.and_then(|m| m.uuids.read()).unwrap_or_default();
    let tail = segment.field("tailUuid").or_else(|| listed.last().cloned());
    let uuids = segment
        .field("headUuid")
        .into_iter()
        .chain(listed)
        .collect();
    KeptMessages { uuids, tail }
}
