//! A session on disk, compacted by `summarize`, and its audit rows.

use std::path::PathBuf;
use std::sync::Arc;

use loopstore::compact::CompactReport;
use loopstore::extend::{LoopKey, append, read, session, write};
use loopstore::*;

pub const ANSWER: &str = "## Task\nAnswer each prompt.\n\n## Plan\n- [ ] docs\n\n\
    ## Done, decided and found\n- parser done\n- use 42\n\n## Commands and errors\nNone";

pub struct Stage {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    pub store: SqliteStore,
    pub session: SessionId,
    pub loop_key: LoopKey,
}

impl Stage {
    /// Creates a session of one loop with `turns` long turns.
    pub fn new(turns: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = open(&path);
        let id = SessionId::new("s").unwrap();
        let loop_key = write(&store, |write| {
            let head = Session::new(id.clone(), "agent");
            let key = session::create_session(write, &head, None, None)?;
            let record = LoopRecord::new(LoopId::new("loop").unwrap(), None);
            session::create_loop(write, key, &record)
        })
        .unwrap();
        let stage = Self {
            _folder: folder,
            path,
            store,
            session: id,
            loop_key,
        };
        stage.turns(turns);
        stage
    }

    /// Appends turns: a prompt with the number of the turn, and a long answer.
    pub fn turns(&self, count: u32) {
        turns_in(&self.store, self.loop_key, count);
    }

    /// Appends a turn of one prompt.
    pub fn says(&self, prompt: &str) {
        let turns = read(&self.store, |read| read.loop_by_key(self.loop_key));
        let turn = TurnId::new("loop", turns.unwrap().totals.turns);
        let message = AgentMessage::from(Message::user(prompt)).in_turn(turn);
        write(&self.store, |write| {
            append::append(
                write,
                self.loop_key,
                vec![message.into()],
                &HeuristicTokenCounter,
            )
        })
        .unwrap();
    }

    pub fn compact(&self, strategy: SummarizeCompaction) -> CompactReport {
        compact_session_loops(&self.store, &self.session, &request(strategy)).unwrap()
    }

    pub fn context(&self) -> Context {
        build_context_from_session(&self.store, &self.session, &BuildOptions::default()).unwrap()
    }

    /// Returns the text of the summary message.
    pub fn summary(&self) -> String {
        let context = self.context();
        let part = |part: &loopstore::context::Part| {
            part.section == loopstore::context::PartSection::Compacted
        };
        let at = context.parts.iter().position(part).unwrap();
        let before: u64 = context.parts[..at].iter().map(|part| part.messages).sum();
        text(&context.messages[before as usize])
    }

    /// Returns columns of the newest run, separated by `|`.
    pub fn run(&self, columns: &str) -> String {
        let sql = format!("SELECT {columns} FROM v_compaction_runs ORDER BY rowid DESC LIMIT 1");
        let sql = sql.replace("rowid", "started_at");
        let rows = self.store.query(&sql).unwrap().rows;
        let show = |value: &Json| match value.read::<String>() {
            Ok(text) => text,
            Err(_) => value.as_str().to_owned(),
        };
        rows[0].iter().map(show).collect::<Vec<_>>().join("|")
    }
}

pub fn turns_in(store: &SqliteStore, loop_key: LoopKey, count: u32) {
    let from = read(store, |read| read.loop_by_key(loop_key))
        .unwrap()
        .totals
        .turns;
    for turn in from..from + count {
        let answer = AssistantMessage {
            content: vec![Content::text(format!(
                "answer {turn} {}",
                "word ".repeat(200)
            ))],
            ..AssistantMessage::default()
        };
        let turn_id = TurnId::new("loop", turn);
        let prompt = AgentMessage::from(Message::user(format!("prompt {turn}, please")));
        let messages = [prompt, AgentMessage::from(Message::Assistant(answer))];
        let messages = messages.map(|m| m.in_turn(turn_id.clone()).into()).to_vec();
        write(store, |write| {
            append::append(write, loop_key, messages, &HeuristicTokenCounter)
        })
        .unwrap();
    }
}

pub fn open(path: &std::path::Path) -> SqliteStore {
    let options = crate::support::keyed::options().durability(Durability::Normal);
    SqliteStore::open_with(path, options).unwrap()
}

/// Returns a request that always compacts and keeps two turns at each end.
pub fn request(strategy: SummarizeCompaction) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                policy: loopstore::CompactionPolicy::Headroom {
                    compact_at_pct: 0.0,
                    compact_budget_threshold_pct: 0.05,
                },
                keep_first_turns: 2,
                keep_recent: loopstore::KeepRecent::Turns(2),
                block_strategy: Some(Arc::new(strategy)),
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    }
}

pub fn text(message: &AgentMessage) -> String {
    message
        .message()
        .unwrap()
        .texts()
        .collect::<Vec<_>>()
        .join("\n")
}
