//! Reads the recorded changes of files from the sessions of a store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use loopstore::extend::codec::decode;
use loopstore::extend::{LoopKey, LoopRow, MessageRow, SessionRow, StoreRead, StoreResult};
use loopstore::model::{AgentMessage, Content, Message, Role, Time};
use loopstore_digest::activity::{
    Activity, CallEnd, EndedCall, FileOperation, GitCommitKind, SourceTurn, normal,
};

use crate::paths::within;

/// The longest prompt that is kept, in characters.
const PROMPT_CHARS: usize = 80;

/// A turn that changed a file, or made a commit.
#[derive(Clone, Debug)]
pub(crate) struct ChangeTurn {
    pub(crate) session_id: Arc<str>,
    pub(crate) loop_id: Arc<str>,
    pub(crate) turn: Option<u32>,
    /// Milliseconds since the epoch.
    pub(crate) time: Option<i64>,
    pub(crate) agent: Option<Arc<str>>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: Option<Arc<str>>,
    pub(crate) prompt: Option<Arc<str>>,
}

/// A recorded change of one file.
#[derive(Clone, Debug)]
pub(crate) struct RecordedChange {
    pub(crate) turn: ChangeTurn,
    /// The path within the working folder, as far as that is known.
    pub(crate) path: String,
    pub(crate) operation: FileOperation,
    pub(crate) end: CallEnd,
    /// The message of the call.
    pub(crate) loop_key: LoopKey,
    pub(crate) seq: u32,
    /// The index of the call in its message, and of the file among those of the call.
    pub(crate) call: Option<u32>,
    pub(crate) file: usize,
    /// The session, and the position of the change in it.
    pub(crate) session: usize,
    pub(crate) order: u64,
}

/// A commit that a session made.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCommit {
    pub(crate) turn: ChangeTurn,
    pub(crate) id: String,
    pub(crate) branch: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) session: usize,
    pub(crate) order: u64,
}

/// All that was read.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) changes: Vec<RecordedChange>,
    pub(crate) commits: Vec<RecordedCommit>,
    /// The sessions that were read.
    pub(crate) sessions: u64,
    /// Messages of which nothing is left.
    pub(crate) removed: u64,
    /// Calls that an earlier session contains too.
    pub(crate) repeated: u64,
    /// Changes in sessions without any time.
    pub(crate) untimed: u64,
    calls: HashMap<u64, usize>,
}

impl Collected {
    /// Sorts the changes by the times at which they were made; changes of one loop stay in their order.
    pub(crate) fn sort(&mut self) {
        let mut times: BTreeMap<(usize, LoopKey), i64> = BTreeMap::new();
        let mut keys: Vec<(i64, usize, u64, usize)> = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let latest = times
                .entry((change.session, change.loop_key))
                .or_insert(i64::MIN);
            *latest = change.turn.time.map_or(*latest, |time| time.max(*latest));
            keys.push((*latest, change.session, change.order, change.file));
        }
        self.untimed = keys.iter().filter(|key| key.0 == i64::MIN).count() as u64;
        let mut sorted: Vec<_> = keys
            .into_iter()
            .zip(std::mem::take(&mut self.changes))
            .collect();
        sorted.sort_by_key(|(key, _)| *key);
        self.changes = sorted.into_iter().map(|(_, change)| change).collect();
    }

    /// Returns the first commit that a session made after a change.
    pub(crate) fn commit_after(&self, change: &RecordedChange) -> Option<&RecordedCommit> {
        self.commits
            .iter()
            .find(|commit| commit.session == change.session && commit.order >= change.order)
    }
}

/// Reads one session.
struct SessionReader<'a> {
    owner: &'a SessionRow,
    session: usize,
    activity: Activity,
    /// The calling messages by position: their place, time and model.
    callers: HashMap<u64, Caller>,
    agent: Option<Arc<str>>,
    session_id: Arc<str>,
    /// The prompts of each loop, with the turns that begin with them.
    prompts: HashMap<LoopKey, Vec<(u32, Arc<str>)>>,
    models: HashMap<String, Arc<str>>,
}

struct Caller {
    turn: ChangeTurn,
    loop_key: LoopKey,
    seq: u32,
    /// Identifies each call of the message; `None` if it cannot be recognised in another session.
    calls: Vec<Option<u64>>,
}

/// Adds the changes of a session.
pub(crate) fn add_session(
    read: &dyn StoreRead,
    owner: &SessionRow,
    found: &mut Collected,
) -> StoreResult<()> {
    let session = found.sessions as usize;
    found.sessions += 1;
    let mut activity = Activity::default();
    activity.log_calls();
    let agent = owner.agent_id.as_deref().or(owner.source.as_deref());
    let mut reader = SessionReader {
        owner,
        session,
        activity,
        callers: HashMap::new(),
        agent: agent.map(Arc::from),
        session_id: Arc::from(owner.session_id.as_str()),
        prompts: HashMap::new(),
        models: HashMap::new(),
    };
    for (nth, row) in read.loops(owner.key)?.iter().enumerate() {
        reader.read_loop(read, nth as u64, row, found)?;
    }
    let open = reader.activity.unanswered();
    open.into_iter()
        .for_each(|call| reader.add(call, None, found));
    Ok(())
}

impl SessionReader<'_> {
    fn read_loop(
        &mut self,
        read: &dyn StoreRead,
        nth: u64,
        row: &LoopRow,
        found: &mut Collected,
    ) -> StoreResult<()> {
        let loop_id: Arc<str> = Arc::from(row.loop_id.as_str());
        let inherited = row.parent.and_then(|parent| {
            let prompts = self.prompts.get(&parent)?;
            let cut = row.parent_turn.unwrap_or(0);
            let before = prompts.iter().take_while(|(turn, _)| *turn <= cut);
            Some((0, before.last()?.1.clone()))
        });
        self.prompts
            .insert(row.key, inherited.into_iter().collect());
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            self.message(nth, row.key, &loop_id, message, found)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn message(
        &mut self,
        nth: u64,
        loop_key: LoopKey,
        loop_id: &Arc<str>,
        row: MessageRow,
        found: &mut Collected,
    ) -> StoreResult<()> {
        let (seq, turn, time, role) = (row.seq, row.turn, row.created_at, row.body.role);
        let decoded = decode(row.body, &mut |_| Ok(None))?;
        let AgentMessage::Llm(llm) = &decoded else {
            found.removed += u64::from(role != Role::Extension);
            return Ok(());
        };
        let message = &llm.message;
        let position = nth << 32 | u64::from(seq);
        if let Some(prompt) = message.prompt_text()
            && let Some(prompts) = self.prompts.get_mut(&loop_key)
        {
            prompts.push((turn.unwrap_or(0), Arc::from(one_line(&prompt))));
        }
        if let Message::Assistant(answer) = message {
            let prompt = self
                .prompts
                .get(&loop_key)
                .and_then(|prompts| prompts.last());
            let prompt = prompt.map(|(_, prompt)| prompt.clone());
            let turn = ChangeTurn {
                session_id: self.session_id.clone(),
                loop_id: loop_id.clone(),
                turn,
                time,
                agent: self.agent.clone(),
                model: answer.model.clone().map(|name| self.shared(name)),
                provider: answer.provider.clone().map(|name| self.shared(name)),
                prompt,
            };
            let caller = Caller {
                turn,
                loop_key,
                seq,
                calls: call_ids(message, time),
            };
            self.callers.insert(position, caller);
        }
        self.activity.set_position(position);
        let place = SourceTurn {
            loop_name: None,
            turn: turn.unwrap_or(0),
        };
        self.activity.add_message(message, &place);
        for call in self.activity.take_ended() {
            self.add(call, time, found);
        }
        Ok(())
    }

    /// Returns one text for all equal names.
    fn shared(&mut self, name: String) -> Arc<str> {
        let shared = self.models.entry(name);
        shared
            .or_insert_with_key(|name| Arc::from(name.as_str()))
            .clone()
    }

    /// Adds the changes and commits of a call that has ended. `time`: the time of its result.
    fn add(&mut self, call: EndedCall, time: Option<i64>, found: &mut Collected) {
        let changes = call
            .files
            .iter()
            .any(|(_, operation)| *operation != FileOperation::Read);
        if !changes && call.commits.is_empty() {
            return;
        }
        let Some(caller) = self.callers.get(&call.position.message) else {
            return;
        };
        let index = call.position.call.unwrap_or(0) as usize;
        if let Some(id) = caller.calls.get(index).copied().flatten() {
            let first = *found.calls.entry(id).or_insert(self.session);
            if first != self.session {
                found.repeated += 1;
                return;
            }
        }
        let mut turn = caller.turn.clone();
        turn.time = time.or(turn.time);
        let order = call.position.message;
        for commit in call.commits {
            if commit.kind == GitCommitKind::Made {
                found.commits.push(RecordedCommit {
                    turn: turn.clone(),
                    id: commit.id,
                    branch: commit.branch,
                    subject: commit.subject,
                    session: self.session,
                    order,
                });
            } else if let Some(last) = found.commits.last_mut()
                && last.session == self.session
                && commit.id.starts_with(&last.id)
            {
                last.id = commit.id;
            }
        }
        // Failed editors change nothing; a command may have, before it failed.
        if call.end == CallEnd::Failed && !call.is_command {
            return;
        }
        let folders = [
            call.workdir.as_deref(),
            call.cwd.as_deref(),
            self.owner.project.as_deref(),
            call.guessed_folder.as_deref(),
        ];
        for (file, (path, operation)) in call.files.into_iter().enumerate() {
            if operation == FileOperation::Read {
                continue;
            }
            let operation = match operation {
                FileOperation::MoveFrom(from) => {
                    FileOperation::MoveFrom(within(&normal(&from), &folders))
                }
                other => other,
            };
            found.changes.push(RecordedChange {
                turn: turn.clone(),
                path: within(&path, &folders),
                operation,
                end: call.end,
                loop_key: caller.loop_key,
                seq: caller.seq,
                call: call.position.call,
                file,
                session: self.session,
                order,
            });
        }
    }
}

/// Returns a number for each call of a message, equal for the same call in another session: agents copy the messages
/// of a session that they resume or fork. Calls without a time are not compared.
fn call_ids(message: &Message, time: Option<i64>) -> Vec<Option<u64>> {
    let calls = message.content().iter().filter_map(|block| match block {
        Content::ToolCall(call) => Some(call),
        _ => None,
    });
    let id = |call: &loopstore::model::ToolCall| {
        let time = time.filter(|_| !call.id.is_empty())?;
        let mut hasher = DefaultHasher::new();
        (time, &call.id, &call.name, call.arguments.as_str()).hash(&mut hasher);
        Some(hasher.finish())
    };
    calls.map(id).collect()
}

/// Returns the beginning of a prompt on one line.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        if chars > 0 {
            line.push(' ');
        }
        for c in word.chars().filter(|c| !c.is_control()) {
            line.push(c);
            chars += 1;
        }
        chars += 1;
        if chars > PROMPT_CHARS {
            let cut = line.char_indices().nth(PROMPT_CHARS);
            if let Some((at, _)) = cut {
                line.truncate(at);
                line.push('…');
            }
            break;
        }
    }
    line
}

/// Returns a time as ISO-8601 text.
pub(crate) fn time_text(millis: i64) -> Option<String> {
    Time::sortable_from_millis(millis)
}

/// Returns all paths that the file was known by: those given, and those that it was moved from.
pub(crate) fn earlier_paths(changes: &[RecordedChange], paths: &[String]) -> HashSet<String> {
    let mut wanted: HashSet<String> = paths.iter().cloned().collect();
    for change in changes.iter().rev() {
        let FileOperation::MoveFrom(from) = &change.operation else {
            continue;
        };
        let moved: Vec<String> = wanted
            .iter()
            .filter_map(|path| moved_path(path, &change.path, from))
            .collect();
        wanted.extend(moved);
    }
    wanted
}

/// Returns the path that a file had before `from` was moved to `to`, which may be a folder that contains it.
pub(crate) fn moved_path(path: &str, to: &str, from: &str) -> Option<String> {
    let rest = path.strip_prefix(to)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{from}{rest}"))
}
