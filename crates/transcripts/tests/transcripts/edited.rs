//! Random edits over every transcript: requests for all providers stay valid, no pair is separated, and content that a
//! provider bound is shown unchanged or not at all.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use loopstore::context::FaultKind;
use loopstore::extend::active_blocks::{ChainView, chain};
use loopstore::extend::context::faults_of;
use loopstore::extend::{self as store, session_of};
use loopstore::provider::{Form, ProviderRequest};
use loopstore::{
    AgentMessage, BuildOptions, Content, Context, EditRequest, EditTarget, FlipRequest, LoopId,
    Message, SessionId, SqliteStore, StoreError, build_context_from_session, edit, undo,
};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::Value;

use crate::provider_types::Requests;
use crate::support::histories::Random;
use crate::support::needs::{PROVIDER_TYPES, find};
use crate::support::provider_faults::provider_faults;
use crate::support::recording::real_transcripts;
use crate::support::requests::is_valid;

/// The most edits of a session.
const MOST_EDITS: u64 = 8;

/// The most messages of a session that is edited; longer ones take too long without optimisation.
const MOST_MESSAGES: usize = 1_500;

/// A message of the chain as it was recorded.
struct Original {
    loop_id: LoopId,
    turn: u32,
    seq: u32,
    message: AgentMessage,
}

fn originals(store: &SqliteStore, session: &SessionId) -> Vec<Original> {
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let mut found = Vec::new();
        let Some(leaf) = owner.current_loop else {
            return Ok(found);
        };
        for link in chain(read, leaf, raw)? {
            read.messages(link.row.key, 0..link.end_seq, &mut |row| {
                let (seq, turn) = (row.seq, row.turn.unwrap_or(0));
                let message = store::decode(read, row.body)?;
                if message.message().is_some() {
                    found.push(Original {
                        loop_id: link.row.loop_id.clone(),
                        turn,
                        seq,
                        message,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(found)
    })
    .unwrap()
}

fn random_request(random: &mut Random, originals: &[Original]) -> EditRequest {
    let any = &originals[random.below(originals.len() as u64) as usize];
    let content = any.message.message().map_or(&[][..], Message::content);
    let part = random.below(content.len().max(1) as u64) as u32;
    let (loop_id, turn, seq) = (any.loop_id.clone(), any.turn, any.seq);
    let call = content.iter().find_map(|part| match part {
        Content::ToolCall(call) => Some(call.id.clone()),
        _ => None,
    });
    let target = match (random.below(5), call) {
        (0, _) => EditTarget::Turns(loop_id, turn..=turn),
        (1, Some(call)) => EditTarget::Call(call),
        (1 | 2, _) => EditTarget::Message(loop_id, turn, seq),
        _ => EditTarget::Part(loop_id, turn, seq, part),
    };
    match random.below(4) {
        0 | 1 => EditRequest::remove([target]),
        2 => EditRequest::clear([target]),
        _ => {
            let is_call = matches!(content.get(part as usize), Some(Content::ToolCall(_)));
            let text = match is_call {
                true => r#"{"edited":true}"#,
                false => "an edited text",
            };
            EditRequest::replace(target, text)
        }
    }
}

/// True for content that its provider takes back only as it gave it.
fn is_bound(part: &Content) -> bool {
    match part {
        Content::Sealed(sealed) => sealed.kind().as_deref() != Some("compaction"),
        part => part.is_signed_thinking(),
    }
}

fn json(messages: &[AgentMessage]) -> Vec<String> {
    let json = messages.iter().map(serde_json::to_string);
    json.map(Result::unwrap).collect()
}

fn content_of(message: &AgentMessage) -> Option<String> {
    let content = message.message()?.content();
    let has_bound = content.iter().any(is_bound);
    has_bound.then(|| serde_json::to_string(content).unwrap())
}

/// The faults that the recorded messages have themselves.
fn known_faults(originals: &[Original], before: &Context) -> HashSet<(FaultKind, Option<String>)> {
    let recorded: Vec<AgentMessage> = originals.iter().map(|own| own.message.clone()).collect();
    let all = faults_of(&recorded, before.in_flight).into_iter();
    let all = all.chain(before.faults.iter().cloned());
    all.map(|fault| (fault.kind, fault.tool_call_id)).collect()
}

/// Collects the texts in a request that only a provider can read.
fn opaque<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            let keys = ["encrypted_content", "signature"].iter();
            out.extend(keys.filter_map(|key| map.get(*key)?.as_str()));
            if map.get("type").and_then(Value::as_str) == Some("redacted_thinking") {
                out.extend(map.get("data").and_then(Value::as_str));
            }
            map.values().for_each(|value| opaque(value, out));
        }
        Value::Array(list) => list.iter().for_each(|value| opaque(value, out)),
        _ => {}
    }
}

/// The state of a session before its edits.
struct Unedited {
    id: SessionId,
    originals: Vec<Original>,
    known: HashSet<(FaultKind, Option<String>)>,
    /// The contents of the answers with bound content.
    bound: HashSet<String>,
    /// The originals as JSON.
    recorded: String,
}

impl Unedited {
    fn check(&self, store: &SqliteStore, requests: &mut Option<Requests>, place: &str) {
        let context = build_context_from_session(store, &self.id, &BuildOptions::default());
        let context = context.unwrap();
        if let Err(why) = is_valid(&context.messages) {
            panic!("{place}: {why}");
        }
        for fault in faults_of(&context.messages, context.in_flight) {
            let key = (fault.kind, fault.tool_call_id.clone());
            assert!(self.known.contains(&key), "{place}: {fault:?}");
        }
        for content in context.messages.iter().filter_map(content_of) {
            assert!(self.bound.contains(&content), "{place}: {content}");
        }
        for form in Form::ALL {
            let options = BuildOptions {
                provider: form.sealing_provider(),
                ..BuildOptions::default()
            };
            let context = build_context_from_session(store, &self.id, &options).unwrap();
            let request = ProviderRequest::of_context(form, &context).unwrap();
            let value = serde_json::to_value(&request).unwrap();
            assert_eq!(provider_faults(&value, form), [], "{place}: {form}");
            let mut texts = Vec::new();
            opaque(&value, &mut texts);
            for text in texts {
                let text = serde_json::to_string(text).unwrap();
                assert!(self.recorded.contains(&text), "{place}: {form}: {text}");
            }
            if let Some(requests) = requests {
                requests.add(place, form, "request", &value);
            }
        }
    }
}

/// Edits a session at random, checks its context after each edit, and undoes them all. Returns the number of edits.
fn edit_session(
    store: &SqliteStore,
    id: &SessionId,
    (seed, requests): (u64, &mut Option<Requests>),
) -> u64 {
    let originals = originals(store, id);
    if originals.is_empty() || originals.len() > MOST_MESSAGES {
        return 0;
    }
    let before = build_context_from_session(store, id, &BuildOptions::default()).unwrap();
    let recorded: Vec<AgentMessage> = originals.iter().map(|own| own.message.clone()).collect();
    let session = Unedited {
        id: id.clone(),
        known: known_faults(&originals, &before),
        bound: recorded.iter().filter_map(content_of).collect(),
        recorded: json(&recorded).join("\n"),
        originals,
    };
    let (mut random, mut runs) = (Random::new(seed), Vec::new());
    for nth in 0..MOST_EDITS {
        let request = random_request(&mut random, &session.originals);
        match edit(store, id, &request) {
            Ok(report) => {
                runs.extend(report.run_id);
                session.check(store, requests, &format!("{id}, edit {nth}: {request:?}"));
            }
            // The turn may be in flight, the message removed already, or a provider would reject what is left.
            Err(StoreError::EditRefused(_)) => {}
            Err(error) => panic!("{id}: {error}: {request:?}"),
        }
    }
    for run in runs.iter().rev() {
        let request = FlipRequest {
            run: Some(run.clone()),
            ..FlipRequest::default()
        };
        undo(store, id, &request).unwrap();
    }
    let after = build_context_from_session(store, id, &BuildOptions::default()).unwrap();
    assert_eq!(json(&after.messages), json(&before.messages), "{id}");
    runs.len() as u64
}

#[test]
fn edits_of_every_transcript_leave_valid_requests() {
    let mut requests = find(&PROVIDER_TYPES).map(|python| (python, Some(Requests::new())));
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")];
    folders.extend(real_transcripts());
    let mut formats: Vec<PathBuf> = Vec::new();
    for folder in &folders {
        let entries = std::fs::read_dir(folder).unwrap();
        formats.extend(entries.map(|entry| entry.unwrap().path()));
    }
    formats.retain(|path| path.is_dir());
    formats.sort();
    let (mut sessions, mut edits, mut none) = (0, 0, None);
    for path in formats {
        let store = SqliteStore::in_memory().unwrap();
        let options = ImportOptions::default();
        // A folder may contain only files that other tests expect to be rejected.
        let Ok(report) = import_paths(&store, &[path], &options, &mut |_| {}) else {
            continue;
        };
        for id in &report.sessions {
            let checked = match &mut requests {
                Some((_, requests)) => requests,
                None => &mut none,
            };
            sessions += 1;
            edits += edit_session(&store, id, (sessions, checked));
        }
    }
    println!("{edits} edits of {sessions} sessions");
    assert!(
        sessions >= 30 && edits >= 2 * sessions,
        "{edits} of {sessions}"
    );
    if let Some((python, Some(requests))) = requests {
        requests.validate(&python);
    }
}
