//! OpenCode: one document per session (`opencode export`), `{info, messages: [{info, parts}]}`; or the file or folder
//! in which OpenCode keeps its sessions ([`stored`]).
//!
//! A message of the user begins a loop; an assistant message is one model call. A tool part contains a call and its
//! result: it becomes a call block and a tool result message. The first loop of a session has the session's id, so that
//! a `task` call can refer to the loop that it started. A message with `summary` set is a compaction, which keeps the
//! messages from the `tail_start_id` of its request on. `info.revert` names the message, or the part of one, from which
//! on everything was reverted, until the next prompt removes it.

mod cleared;
mod database;
mod order;
mod parts;
mod projected;
mod stored;
mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use loopstore::model::{ChildLoopRef, Extra, Json, LoopStatus, Message, SessionId, Time};
use serde_json::value::RawValue;

use self::cleared::{Cleared, ClearedResult, OriginalParts};
use self::database::OpencodeFile;
use self::order::in_order;
use self::parts::{OpencodeAnswer, ToolPart, answer, steps, user};
use super::authors::by_harness;
use super::extension::extension;
use super::fields::{Fields, list};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::transcript::{
    EntryTree, LoopTurn, NewLoop, Style, TranscriptBuilder, session, started_by,
};
use super::values::{self, json, millis, rest, session_id};
use super::{
    FoundEffect, Identity, ImportError, Importer, SQLITE_MAGIC, SessionHead, Sink, Source,
    holds_conversation, unread,
};

/// The name of the format, also used for compactions and agents.
const TOOL: &str = "opencode";

/// Reads OpenCode's exports.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenCode;

impl Importer for OpenCode {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if head.starts_with(SQLITE_MAGIC) {
            return OpencodeFile::open(path).is_ok();
        }
        let outline = KeyOutline::of(head);
        ["", "[]."].iter().any(|at| is_export(&outline, at)) || is_stored(path, &outline)
    }

    fn is_companion(&self, path: &Path) -> bool {
        stored::is_within(path)
    }

    fn other_files(&self, path: &Path) -> Option<Vec<PathBuf>> {
        (!stored::is_session(path)).then(Vec::new)
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let (mut magic, path) = ([0; SQLITE_MAGIC.len()], source.path);
        let is_database = source.reader.read_exact(&mut magic).is_ok() && magic == SQLITE_MAGIC;
        source.reader.rewind().map_err(unread(path))?;
        if is_database {
            let each = &mut |text: &str, nth, sink: &mut dyn Sink| whole(text, nth, sink);
            return holds_conversation(stored::of_database(path, sink, each)?);
        }
        if stored::is_session(path) && is_bare_session(source)? {
            let text = stored::of_folder(source, sink)?;
            return holds_conversation(whole(&text, 0, sink)?);
        }
        let mut nth = 0;
        let any = documents(source, sink, &mut |document, sink| {
            let any = export(document, nth, sink)?;
            nth += u64::from(any);
            Ok(any)
        })?;
        holds_conversation(any)
    }
}

/// True if a file describes a session of the folder that contains the file.
fn is_stored(path: &Path, outline: &KeyOutline) -> bool {
    let has = |keys: &[&str]| keys.iter().all(|key| outline.has(key));
    stored::is_session(path) && has(&["id", "time.created"]) && !outline.has("messages")
}

/// True if a file contains only the description of a session.
fn is_bare_session(source: &mut Source<'_>) -> Result<bool, ImportError> {
    let failed = unread(source.path);
    let outline = KeyOutline::of(source.reader.fill_buf().map_err(failed)?);
    Ok(is_stored(source.path, &outline))
}

/// Reads a document that was assembled from the files of a session.
fn whole(text: &str, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let fields = Fields::parse(text).map_err(ImportError::NoTranscript)?;
    let document = JsonDocument {
        text,
        fields,
        line: 1,
        nth,
    };
    export(document, nth, sink)
}

/// True if the object at `at` is an export.
fn is_export(outline: &KeyOutline, at: &str) -> bool {
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    let described = has("info.id") && (has("info.projectID") || has("info.directory"));
    let has_parts = has("messages[].parts") && (has("messages[].info") || has("info.id"));
    has_parts || described && !has("session_id")
}

/// Reads one document. Returns true if it contains a conversation.
fn export(document: JsonDocument<'_>, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let JsonDocument {
        text: json,
        mut fields,
        line,
        ..
    } = document;
    let Some(messages) = fields.take("messages").and_then(list) else {
        sink.skip(Some(line), "a document without a list of messages".into());
        return Ok(false);
    };
    let messages = in_order(messages);
    let revert = Revert::read(&fields.object("info"));
    let head = head(&mut fields, &messages, nth)?;
    let mut export = Export {
        session: match &head.identity {
            Identity::Own(id) => Some(id.clone()),
            _ => None,
        },
        is_first: true,
        nth: 0,
        transcript: TranscriptBuilder::new(sink, head, Style::Document),
        tree: EntryTree::default(),
        entries: 0,
        tails: HashMap::new(),
        cleared: Cleared::default(),
    };
    let mut lines = LineCounter::new(json, line);
    let mut back = None;
    for (at, raw) in messages.iter().enumerate() {
        let line = lines.of(raw.get());
        export.nth += 1;
        if revert.as_ref().is_some_and(|revert| revert.is_of(raw)) {
            back = Some((export.nth, at, export.transcript.last_turn()));
        }
        if let Err(reason) = export.message(raw)? {
            let reason = format!("message {}: {reason}", export.nth);
            export.transcript.skip(line, reason);
        }
    }
    let kept = back.map_or(u64::MAX, |(nth, ..)| nth);
    let gone = export.cleared.after(kept);
    export.clear(gone)?;
    if let (Some(revert), Some((_, at, after))) = (revert, back) {
        export.revert(&revert, &messages[..=at], after)?;
    }
    let rest = export.cleared.rest(kept);
    export.clear(rest)?;
    export.transcript.finish()
}

/// The point from which on a session was reverted.
struct Revert {
    message: String,
    /// The first reverted part of the message; `None` if the whole message was reverted.
    part: Option<String>,
}

impl Revert {
    fn read(info: &Fields<'_>) -> Option<Self> {
        let revert = info.child("revert")?;
        Some(Self {
            message: revert.text("messageID")?,
            part: revert.text("partID"),
        })
    }

    /// True if the revert begins at this message.
    fn is_of(&self, message: &RawValue) -> bool {
        info_of(message).text("id").as_ref() == Some(&self.message)
    }

    /// Returns the number of parts of the message that stay.
    fn kept(&self, parts: &[&RawValue]) -> usize {
        let is_first = |raw: &&RawValue| {
            let part = Fields::parse(raw.get()).unwrap_or_default();
            self.part.is_some() && part.text("id") == self.part
        };
        parts.iter().position(is_first).unwrap_or_default()
    }
}

/// Returns the `info` fields of a message.
fn info_of(message: &RawValue) -> Fields<'_> {
    let fields = Fields::parse(message.get()).unwrap_or_default();
    match fields.get("info") {
        Some(_) => fields.object("info"),
        None => fields,
    }
}

/// Returns an id derived from the messages, for a document without an id.
fn id_of_messages(messages: &[&RawValue]) -> Option<String> {
    let id = |raw: &&RawValue| info_of(raw).text("sessionID");
    messages.iter().find_map(id)
}

fn head(
    fields: &mut Fields<'_>,
    messages: &[&RawValue],
    nth: u64,
) -> Result<SessionHead, ImportError> {
    let mut info = fields.object("info");
    let named = info.text("id").or_else(|| id_of_messages(messages));
    let own = session_id(named);
    let time = info.object("time");
    let at = |key| millis(&time, key).and_then(Time::from_millis);
    let (created, updated) = (at("created"), at("updated"));
    let placeholder = SessionId::new(nth.to_string())
        .map_err(|error| ImportError::NoTranscript(error.to_string()))?;
    let mut session = session(own.clone().unwrap_or(placeholder), TOOL, created);
    session.last_active_at = updated;
    session.parent_spawn_ref = info.text("parentID").as_deref().and_then(started_by);
    let title = info.text("title");
    let project = info.text("directory").or_else(|| info.text("projectID"));
    for (key, taken) in [
        ("id", own.is_some()),
        ("title", title.is_some()),
        ("parentID", session.parent_spawn_ref.is_some()),
    ] {
        if taken {
            info.take(key);
        }
    }
    let mut source = rest(&info);
    if !info.is_empty() {
        fields.take("info");
    }
    for (key, value) in rest(fields).iter().filter(|(key, _)| *key != "info") {
        source.insert(key, value.clone());
    }
    if !source.is_empty() {
        session.extra.insert("source", values::object_of(&source));
    }
    Ok(SessionHead {
        identity: own.map_or_else(|| Identity::Key(nth.to_string()), Identity::Own),
        session,
        title,
        project,
    })
}

/// A document that is being imported.
struct Export<'a> {
    session: Option<SessionId>,
    is_first: bool,
    nth: u64,
    transcript: TranscriptBuilder<'a>,
    /// The position of each message, by id.
    tree: EntryTree,
    entries: usize,
    /// The first message that a compaction keeps, by the id of its request.
    tails: HashMap<String, String>,
    cleared: Cleared,
}

/// A message, taken apart.
struct MessageParts<'a> {
    info: Fields<'a>,
    role: String,
    parts: Vec<&'a RawValue>,
}

impl<'a> MessageParts<'a> {
    /// # Errors
    /// If the message is invalid; the error gives the reason.
    fn read(raw: &'a RawValue) -> Result<Self, String> {
        let fields = Fields::parse(raw.get())?;
        let info = match fields.get("info") {
            Some(_) => fields.object("info"),
            None => object_without_parts(raw),
        };
        let Some(role) = info.text("role") else {
            return Err("its role is missing or no text".into());
        };
        let parts = match fields.get("parts").map(list) {
            Some(Some(parts)) => parts,
            Some(None) => return Err("its parts are not a list".into()),
            None => Vec::new(),
        };
        Ok(Self { info, role, parts })
    }
}

/// The result of a message: `Err` with the reason if it could not be used.
type Used = Result<Result<(), String>, ImportError>;

impl Export<'_> {
    fn message(&mut self, raw: &RawValue) -> Used {
        let record = match json(raw) {
            Ok(record) => record,
            Err(reason) => return Ok(Err(reason)),
        };
        let message = match MessageParts::read(raw) {
            Ok(message) => message,
            Err(reason) => return Ok(Err(reason)),
        };
        let uncleared = OriginalParts::of(&message.parts);
        let parts = uncleared.parts();
        let info = message.info;
        match message.role.as_str() {
            "user" => self.user(info, &parts, record)?,
            "assistant" if is_summary(&info) => self.summary(info, &parts, record)?,
            "assistant" => {
                self.assistant(info, &parts)?;
                self.cleared.add(self.nth, uncleared.results());
            }
            role => self
                .transcript
                .extension(extension(Some(role), record), raw.get().as_bytes())?,
        }
        Ok(Ok(()))
    }

    fn user(
        &mut self,
        info: Fields<'_>,
        parts: &[&RawValue],
        record: Json,
    ) -> Result<(), ImportError> {
        let raw = raw_of(&info, parts, false);
        let created = millis(&info.object("time"), "created");
        let cleared = self.cleared.before(created, self.nth);
        self.clear(cleared)?;
        let id = info.text("id");
        if let Some(request) = parts.iter().find(|part| is_kind(part, "compaction")) {
            let tail = Fields::parse(request.get()).unwrap_or_default();
            self.tails.extend(id.zip(tail.text("tail_start_id")));
            return self.transcript.extension(
                extension(Some("compaction-request"), record),
                raw.as_bytes(),
            );
        }
        let first = self.session.as_ref().filter(|_| self.is_first);
        let name = first.map(|id| id.as_str().to_owned());
        self.is_first = false;
        // The summary is rewritten while the agent works; as a field of the loop, a later export updates it.
        let summary = info.get("summary").and_then(|summary| json(summary).ok());
        let metadata = summary
            .and_then(|summary| Json::parse(&format!("{{\"summary\":{}}}", summary.as_str())).ok());
        let name = name.or_else(|| id.clone()).unwrap_or_default();
        self.transcript.begin(NewLoop {
            started: created.and_then(Time::from_millis),
            agent: info.text("agent"),
            metadata,
            ..self.transcript.next_loop(name)
        })?;
        self.transcript
            .input(user(info, parts), raw.as_bytes(), true)?;
        self.added(id);
        Ok(())
    }

    /// Records the first message of a record, which was emitted last.
    fn added(&mut self, id: Option<String>) {
        self.tree.add(id, None, self.transcript.last_turn());
        self.entries += 1;
    }

    /// Records another message of a record.
    fn added_more(&mut self) {
        let entry = self.entries.checked_sub(1);
        if let Some((entry, at)) = entry.zip(self.transcript.last_turn()) {
            self.tree.emit(at, entry);
        }
    }

    /// Emits that results were cleared.
    fn clear(&mut self, results: Vec<ClearedResult>) -> Result<(), ImportError> {
        let Some(first) = results.first() else {
            return Ok(());
        };
        self.transcript.at(Time::from_millis(first.at));
        let record = cleared::record(&results);
        let effect = FoundEffect::EditedResults {
            tool_call_ids: results.into_iter().map(|result| result.call).collect(),
            replaced: Vec::new(),
        };
        self.transcript.compaction(TOOL, effect, record)
    }

    /// Returns to the point before a message (the last of `messages`) or within it. The part of the turn that stays is
    /// emitted again, since a branch begins with a whole turn. `after` is the turn before the message.
    fn revert(
        &mut self,
        revert: &Revert,
        messages: &[&RawValue],
        after: Option<LoopTurn>,
    ) -> Result<(), ImportError> {
        let part = revert.part.as_ref().map(|part| format!("-{part}"));
        let name = format!("revert-{}{}", revert.message, part.unwrap_or_default());
        let message = messages.last().map(|raw| MessageParts::read(raw));
        let Some(Ok(mut message)) = message else {
            return Ok(());
        };
        message.parts.truncate(revert.kept(&message.parts));
        let entry = self.tree.entry(&revert.message);
        let first = entry.and_then(|entry| self.tree.first_kept(entry, None));
        let Some(first) = first.filter(|_| message.role == "assistant") else {
            return self.transcript.go_back(after, name);
        };
        let is_parted = first.nth > 0;
        if message.parts.is_empty() && !is_parted {
            return self.transcript.go_back(after, name);
        }
        let before = self.transcript.turn_before(first.at);
        self.transcript.go_back(before, name)?;
        if is_parted {
            self.repeat_prompt(messages)?;
        }
        match message.parts.is_empty() {
            true => Ok(()),
            false => self.assistant(message.info, &message.parts),
        }
    }

    /// Emits the last prompt again.
    fn repeat_prompt(&mut self, messages: &[&RawValue]) -> Result<(), ImportError> {
        let read = messages.iter().rev().map(|raw| MessageParts::read(raw));
        let mut prompts = read.flatten().filter(|message| message.role == "user");
        let Some(prompt) = prompts.next() else {
            return Ok(());
        };
        let raw = raw_of(&prompt.info, &prompt.parts, false);
        self.transcript
            .input(user(prompt.info, &prompt.parts), raw.as_bytes(), true)
    }

    fn assistant(&mut self, info: Fields<'_>, parts: &[&RawValue]) -> Result<(), ImportError> {
        let name = info
            .text("id")
            .unwrap_or_else(|| format!("message-{}", self.nth));
        let status = error_status(&info);
        let unfinished = millis(&info.object("time"), "completed").is_none();
        let is_continued = info
            .text("finish")
            .map_or(unfinished, |word| word == "tool-calls");
        let steps = steps(parts);
        let alone = steps.len() == 1;
        for (at, step) in steps.iter().enumerate() {
            let raw = raw_of(&info, step, alone);
            let OpencodeAnswer { message, called } = answer(&info, step, alone, at == 0, &name);
            self.transcript
                .answer(String::new, message, raw.as_bytes())?;
            match at {
                0 => self.added(info.text("id")),
                _ => self.added_more(),
            }
            if is_continued {
                self.transcript.expect_more();
            }
            for called in called {
                self.called(called)?;
            }
        }
        self.transcript.ended_as(status);
        Ok(())
    }

    fn called(&mut self, called: ToolPart) -> Result<(), ImportError> {
        if let Some(child) = called.child {
            let child = ChildLoopRef {
                tool_call_id: Some(called.id.clone()),
                tool_name: Some(called.tool.clone()),
                child_loop_id: child.0,
                child_session_id: Some(child.1),
                extra: Extra::default(),
            };
            self.transcript.started(0, &called.id, child);
        }
        match called.result {
            Some(result) => {
                self.transcript
                    .result(String::new, result, called.raw.as_bytes())?;
                self.added_more();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn summary(
        &mut self,
        info: Fields<'_>,
        parts: &[&RawValue],
        record: Json,
    ) -> Result<(), ImportError> {
        let completed = millis(&info.object("time"), "completed");
        let answer = answer(&info, parts, true, true, "summary").message;
        let texts: Vec<&str> = answer
            .message()
            .into_iter()
            .flat_map(Message::texts)
            .collect();
        // A summary that failed or is still being written replaces nothing.
        let is_done = completed.is_some() || info.get("finish").is_some();
        if texts.is_empty() || !is_done || error_status(&info).is_some() {
            let raw = raw_of(&info, parts, true);
            return self
                .transcript
                .extension(extension(Some("compaction"), record), raw.as_bytes());
        }
        let summary = by_harness(Message::user(texts.join("\n\n")).into());
        let at = completed.and_then(Time::from_millis);
        self.transcript.at(at);
        let tail = info
            .text("parentID")
            .and_then(|request| self.tails.get(&request));
        let first = tail.and_then(|tail| self.tree.entry(tail));
        let kept = first.and_then(|first| self.tree.first_kept(first, None));
        let place = kept.and_then(|kept| {
            let of = self.transcript.loop_at(kept.at.0)?;
            Some((of.id.clone(), kept.at.1))
        });
        let effect = match (place, kept.map_or(0, |kept| kept.nth)) {
            (Some(first_kept), dropped @ 1..) => FoundEffect::SummaryWithin {
                message: Box::new(summary),
                first_kept,
                dropped,
            },
            (first_kept, _) => FoundEffect::Summary {
                messages: vec![summary],
                first_kept,
            },
        };
        self.transcript.end_loop()?;
        self.transcript.compaction(TOOL, effect, record)
    }
}

/// Returns the fields of a message whose `info` fields are next to its parts.
fn object_without_parts(raw: &RawValue) -> Fields<'_> {
    let mut fields = Fields::parse(raw.get()).unwrap_or_default();
    fields.take("parts");
    fields
}

fn is_summary(info: &Fields<'_>) -> bool {
    info.read("summary") == Some(true)
}

fn is_kind(part: &RawValue, kind: &str) -> bool {
    let fields = Fields::parse(part.get()).unwrap_or_default();
    fields.text("type").as_deref() == Some(kind)
}

/// Returns the status of a loop whose answer has an error.
fn error_status(info: &Fields<'_>) -> Option<LoopStatus> {
    let error = info.read::<Json>("error");
    error.map(|_| LoopStatus::Aborted)
}

/// Returns the text by which a later export is compared: the id and the parts, and `info` of an answer.
fn raw_of(info: &Fields<'_>, parts: &[&RawValue], with_info: bool) -> String {
    let mut raw = match with_info {
        true => info.to_text(),
        false => info.get("id").map_or("", RawValue::get).to_owned(),
    };
    for part in parts {
        raw.push('\n');
        raw.push_str(part.get());
    }
    raw
}
