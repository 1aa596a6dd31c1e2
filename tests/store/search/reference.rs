//! Search without an index: every message is read, split into words and compared.

use std::collections::HashMap;
use std::ops::ControlFlow;

use loopstore::extend::{self as store, LoopRow, SessionStore};
use loopstore::model::*;
use loopstore::{BuildOptions, build_context_from_session};

/// A term of a query: consecutive words, the last of which may be a prefix.
#[derive(Clone, Debug)]
pub struct Term {
    pub words: Vec<String>,
    pub is_prefix: bool,
}

/// A match has one term of each list, and none of the last.
#[derive(Clone, Debug, Default)]
pub struct QueryTerms {
    pub all: Vec<Vec<Term>>,
    pub none: Vec<Term>,
}

/// Returns the words of a text, as far as the histories of these tests use them.
pub fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        match c {
            '\u{4e00}'..='\u{9fff}' => spaced.extend([' ', c, ' ']),
            'é' | 'É' => spaced.push('e'),
            c if c.is_alphanumeric() => spaced.extend(c.to_lowercase()),
            _ => spaced.push(' '),
        }
    }
    spaced
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn pieces(message: &AgentMessage) -> Vec<String> {
    let mut pieces = Vec::new();
    match message {
        AgentMessage::Extension(extension) => {
            pieces.push(extension.kind.clone());
            pieces.push(extension.data.read::<String>().unwrap());
        }
        AgentMessage::Llm(llm) => {
            if let Message::ToolResult(result) = &llm.message {
                pieces.push(result.tool_name.clone());
            }
            for block in llm.message.content() {
                match block {
                    Content::Text(text) => pieces.push(text.text.clone()),
                    Content::ToolCall(call) => {
                        pieces.push(format!("{} {}", call.name, call.arguments.as_str()));
                    }
                    _ => {}
                }
            }
        }
    }
    pieces
}

fn holds(message: &AgentMessage, term: &Term) -> bool {
    pieces(message).iter().any(|piece| {
        let words = words(piece);
        words.windows(term.words.len()).any(|window| {
            let (last, first) = (window.len() - 1, &window[..window.len() - 1]);
            let ends = if term.is_prefix {
                window[last].starts_with(&term.words[last])
            } else {
                window[last] == term.words[last]
            };
            ends && first == &term.words[..last]
        })
    })
}

fn fits(message: &AgentMessage, wanted: &QueryTerms) -> bool {
    let has = |term: &Term| holds(message, term);
    wanted.all.iter().all(|sides| sides.iter().any(has)) && !wanted.none.iter().any(has)
}

/// The messages of the database, and the contexts.
pub struct Everything {
    /// The loop, sequence and content of each message, and true if a context contains it.
    messages: Vec<(String, u32, AgentMessage, bool)>,
}

impl Everything {
    pub fn read(store: &dyn SessionStore, session: &SessionId) -> Self {
        let (rows, current) = store::read(store, |read| {
            let row = read.session(session)?.unwrap();
            Ok((read.loops(row.key)?, row.current_loop.unwrap()))
        })
        .unwrap();
        let mut contexts: HashMap<LoopId, Vec<AgentMessage>> = HashMap::new();
        let chain = chain(&rows, rows.iter().find(|row| row.key == current).unwrap());
        let mut messages = Vec::new();
        for row in &rows {
            for (seq, turn, message) in messages_of(store, row) {
                let cut = chain.get(&row.loop_id);
                let is_on_chain = cut.is_some_and(|cut| turn.is_none_or(|turn| turn < *cut));
                let leaf = match is_on_chain {
                    true => rows.iter().find(|row| row.key == current).unwrap(),
                    false => row,
                };
                let context = contexts
                    .entry(leaf.loop_id.clone())
                    .or_insert_with(|| context(store, session, &leaf.loop_id));
                let is_held = context.iter().any(|shown| is_same(shown, &message));
                messages.push((row.loop_id.to_string(), seq, message, is_held));
            }
        }
        Self { messages }
    }

    /// Returns the places of the matches, each with true if it is hidden.
    pub fn search(&self, wanted: &QueryTerms) -> Vec<(String, bool)> {
        let fits = self
            .messages
            .iter()
            .filter(|(_, _, message, _)| fits(message, wanted));
        let mut found: Vec<_> = fits
            .map(|(id, seq, _, is_held)| (format!("{id}:{seq}"), !is_held))
            .collect();
        found.sort();
        found
    }
}

/// The texts of these histories are all different, and so are the ids of calls.
fn is_same(shown: &AgentMessage, original: &AgentMessage) -> bool {
    if let (Some(Message::ToolResult(a)), Some(Message::ToolResult(b))) =
        (shown.message(), original.message())
    {
        return a.tool_call_id == b.tool_call_id;
    }
    shown == original || is_quote(shown, original)
}

/// True if a block quotes a pinned message.
fn is_quote(shown: &AgentMessage, original: &AgentMessage) -> bool {
    let (Some(shown), Some(original)) = (shown.message(), original.message()) else {
        return false;
    };
    let said: String = original.texts().map(|text| format!("\n{text}")).collect();
    let is_it = |text: &str| {
        let quoted = text
            .strip_prefix("[Pinned, ")
            .or_else(|| text.strip_prefix("[Kept prompt, "))
            .and_then(|rest| rest.split_once(']'));
        quoted.is_some_and(|(_, quoted)| {
            quoted
                .strip_prefix(said.as_str())
                .is_some_and(|calls| calls.is_empty() || calls.starts_with("\ntool {"))
        })
    };
    shown.texts().any(is_it)
}

fn context(store: &dyn SessionStore, session: &SessionId, leaf: &LoopId) -> Vec<AgentMessage> {
    let options = BuildOptions {
        leaf: Some(leaf.clone()),
        ..BuildOptions::default()
    };
    build_context_from_session(store, session, &options)
        .unwrap()
        .messages
}

/// Returns the loops of a chain, each with the number of its turns on the chain.
fn chain(rows: &[LoopRow], leaf: &LoopRow) -> HashMap<LoopId, u32> {
    let (mut chain, mut at, mut cut) = (HashMap::new(), Some(leaf), u32::MAX);
    while let Some(row) = at {
        chain.insert(row.loop_id.clone(), cut);
        cut = row.parent_turns();
        at = rows.iter().find(|parent| Some(parent.key) == row.parent);
    }
    chain
}

fn messages_of(store: &dyn SessionStore, row: &LoopRow) -> Vec<(u32, Option<u32>, AgentMessage)> {
    let mut messages = Vec::new();
    store::read(store, |read| {
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            let (seq, turn) = (message.seq, message.turn);
            messages.push((seq, turn, store::decode(read, message.body)?));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    messages
}
