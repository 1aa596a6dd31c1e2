//! A database in a temporary folder, built through the crate's API and queried with SQL by the plain `sqlite3` program
//! and by the store, whose results must be equal.

use std::path::PathBuf;
use std::process::Command;

use crate::support::needs;
use loopstore::extend::{
    BlockCore, BlockKey, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition, FlipRow,
    Layout, LoopKey, NewBlock, Outcome, Point, RunKey, RunRow, Section, SessionKey, Size,
    StoreRead, StoreResult, StoreWrite, StoredMessage, Turns, active_blocks, append, codec, read,
    session, write,
};
use loopstore::{
    AgentMessage, Durability, HeuristicTokenCounter, LoopId, LoopRecord, LoopStatus, Session,
    SessionId, SqliteStore, Time,
};
use serde_json::{Map, Value, json};

pub struct Stage {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    pub store: SqliteStore,
    pub session: SessionKey,
}

pub fn time(text: &str) -> Option<Time> {
    Some(Time::from_text(text))
}

impl Stage {
    pub fn new(session_id: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("views.db");
        let options = crate::support::plain::options().durability(Durability::Normal);
        let store = SqliteStore::open_with(&path, options).unwrap();
        let mut head = Session::new(SessionId::new(session_id).unwrap(), "agent");
        head.created_at = time("2026-01-01T00:00:00Z");
        head.last_active_at = time("2026-01-01T00:00:00Z");
        let session = write(&store, |w| {
            session::create_session(w, &head, Some("A title".into()), None)
        })
        .unwrap();
        Self {
            _folder: folder,
            path,
            store,
            session,
        }
    }

    /// Begins a loop that continues `parent` up to the given turn.
    pub fn start(&self, loop_id: &str, parent: Option<(&str, Option<u32>)>) -> LoopKey {
        let id = |id: &str| LoopId::new(id).unwrap();
        let mut record = LoopRecord::new(id(loop_id), parent.map(|(parent, _)| id(parent)));
        record.parent_turn = parent
            .and_then(|(_, turn)| turn)
            .map(|turn| i64::from(turn).into());
        record.started_at = time("2026-01-01T00:00:01Z");
        record.status = LoopStatus::Completed;
        self.start_as(&record)
    }

    pub fn start_as(&self, record: &LoopRecord) -> LoopKey {
        write(&self.store, |w| {
            session::create_loop(w, self.session, record)
        })
        .unwrap()
    }

    pub fn append(&self, loop_key: LoopKey, messages: Value) -> append::AppendedMessages {
        let messages: Vec<AgentMessage> = serde_json::from_value(messages).unwrap();
        let messages = messages.into_iter().map(Into::into).collect();
        write(&self.store, |w| {
            append::append(w, loop_key, messages, &HeuristicTokenCounter)
        })
        .unwrap()
    }

    /// Appends `count` turns of a prompt (1 + 4 tokens) and an answer (2 + 4 tokens).
    pub fn turns(&self, loop_key: LoopKey, count: u32) {
        let from = self.loop_row(loop_key).totals.turns;
        for turn in from..from + count {
            self.append(
                loop_key,
                json!([user(turn, "four"), assistant(turn, "eight ch")]),
            );
        }
    }

    pub fn loop_row(&self, key: LoopKey) -> loopstore::extend::LoopRow {
        read(&self.store, |r| r.loop_by_key(key)).unwrap()
    }

    /// Writes a run on `leaf` with these blocks; their run and generation are set here.
    pub fn run(&self, run_id: &str, leaf: LoopKey, blocks: Vec<NewBlock>) -> RunKey {
        self.run_with(run_id, leaf, blocks, |_| ())
    }

    pub fn run_with(
        &self,
        run_id: &str,
        leaf: LoopKey,
        blocks: Vec<NewBlock>,
        change: impl FnOnce(&mut RunRow),
    ) -> RunKey {
        write(&self.store, |w| {
            let mut row = run_row(run_id, self.session, leaf);
            row.point.turns = w.loop_by_key(leaf)?.totals.complete;
            row.tick = next_tick(w, self.session)?;
            change(&mut row);
            let run = w.insert_run(&row)?;
            row.key = run;
            for mut block in blocks {
                block.row.run = run;
                let before = w.blocks_of_loop(block.row.loop_key)?;
                block.row.generation = before.last().map_or(1, |last| last.generation + 1);
                block.coverage.extend(whole_coverage(w, &block.row)?);
                w.insert_block(&block)?;
            }
            w.close_run(&row, None)?;
            Ok(run)
        })
        .unwrap()
    }

    /// Undoes or redoes a run from the current end of `leaf`.
    pub fn flip(&self, run: RunKey, leaf: LoopKey, redo: bool) {
        write(&self.store, |w| {
            let turns = w.loop_by_key(leaf)?.totals.complete;
            let tick = next_tick(w, self.session)?;
            let row = FlipRow {
                run,
                redo,
                point: Point {
                    loop_key: leaf,
                    turns,
                },
                tick,
                at: "2026-01-01T00:00:03Z".into(),
                reason: None,
            };
            w.insert_flip(self.session, &row)
        })
        .unwrap();
    }

    /// Returns the newest block on a loop.
    pub fn newest_block(&self, loop_key: LoopKey) -> BlockKey {
        let blocks = read(&self.store, |r| r.blocks_of_loop(loop_key)).unwrap();
        blocks.last().unwrap().key
    }

    pub fn chain(
        &self,
        leaf: LoopKey,
        view: active_blocks::ChainView,
    ) -> Vec<active_blocks::ChainLink> {
        read(&self.store, |r| active_blocks::chain(r, leaf, view)).unwrap()
    }

    /// Changes rows without the store, as maintenance does.
    pub fn maintain(&self, sql: &str) {
        let connection = crate::support::plain::raw(&self.path).unwrap();
        connection
            .execute_batch(&format!(
                "INSERT INTO maintenance (session, kind, opened_at, detail)
                 SELECT key, 'redact', '2026', '{{}}' FROM sessions;
                 {sql};
                 UPDATE maintenance SET closed_at = '2026'"
            ))
            .unwrap();
    }

    /// Runs a query with the `sqlite3` program and with the store, and returns the rows of both.
    pub fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        let found = self.store.query(sql).unwrap();
        let rows: Vec<Vec<Value>> = found
            .rows
            .iter()
            .map(|row| row.iter().map(|value| value.read().unwrap()).collect())
            .collect();
        // If the program is missing, only the store is queried.
        if needs::missing(&needs::SQLITE3) {
            return rows;
        }
        let shell: Vec<Vec<Value>> = self
            .shell(sql)
            .into_iter()
            .map(|mut row| {
                let take = |name| row.remove(name).unwrap();
                found.columns.iter().map(take).collect()
            })
            .collect();
        assert_eq!(
            shell, rows,
            "the sqlite3 program and the store differ: {sql}"
        );
        rows
    }

    /// Returns the rows as lines, the values separated by `|` as in the `sqlite3` program.
    pub fn lines(&self, sql: &str) -> Vec<String> {
        let show = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.rows(sql)
            .iter()
            .map(|row| row.iter().map(show).collect::<Vec<_>>().join("|"))
            .collect()
    }

    /// Runs a query with the `sqlite3` program.
    pub fn shell(&self, sql: &str) -> Vec<Map<String, Value>> {
        let text = self.shell_text(&["-json"], sql);
        match text.trim() {
            "" => Vec::new(),
            json => serde_json::from_str(json).unwrap(),
        }
    }

    pub fn shell_text(&self, options: &[&str], sql: &str) -> String {
        let output = Command::new("sqlite3")
            .args(options)
            .arg(&self.path)
            .arg(sql)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{sql}: {errors}"
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the coverage of a block's whole loop according to its sections.
fn whole_coverage(read: &dyn StoreRead, row: &BlockRow) -> StoreResult<Vec<CoverageRow>> {
    let layout = &row.layout;
    let sections = [
        (layout.first, Disposition::Kept),
        (layout.compacted, Disposition::Summarised),
        (layout.recent, Disposition::Kept),
    ];
    let mut rows: Vec<CoverageRow> = Vec::new();
    for (turns, disposition) in sections {
        let Some(turns) = turns else { continue };
        let from = read.turn(row.loop_key, turns.first)?.unwrap().first_seq;
        if let Some((_, to)) = rows.last_mut().and_then(|last| last.seqs.as_mut()) {
            *to = from - 1;
        }
        rows.push(CoverageRow {
            loop_key: row.loop_key,
            seqs: Some((from, row.through - 1)),
            turns: Some((turns.first, turns.last)),
            disposition,
        });
    }
    Ok(rows)
}

fn next_tick(w: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<i64> {
    let mut row = w.session_by_key(session)?;
    row.tick += 1;
    w.update_session(&row)?;
    Ok(row.tick)
}

fn run_row(run_id: &str, session: SessionKey, leaf: LoopKey) -> RunRow {
    RunRow {
        key: RunKey::default(),
        session,
        run_id: run_id.to_owned(),
        point: Point {
            loop_key: leaf,
            turns: 0,
        },
        tick: 0,
        trigger: "manual".into(),
        strategy: "digest".into(),
        round: 1,
        outcome: Outcome::Committed,
        fallback: None,
        error: None,
        scope: "fixed:3".into(),
        older_loops: "rollup".into(),
        counter: "heuristic".into(),
        before: Size {
            tokens: 100,
            bytes: 1000,
            messages: 10,
        },
        after: Size {
            tokens: 50,
            bytes: 500,
            messages: 5,
        },
        started_at: "2026-01-01T00:00:02Z".into(),
        duration_ms: 7,
        config: "{}".into(),
        usage: None,
        plan: [0; 32],
        record: None,
        events: None,
        reached: None,
    }
}

/// A block with these sections, both ends inclusive.
pub struct BlockOf(NewBlock);

impl BlockOf {
    pub fn new(loop_key: LoopKey, kind: BlockKind, through: u32) -> Self {
        Self(NewBlock {
            row: BlockRow {
                core: BlockCore {
                    key: BlockKey::default(),
                    loop_key,
                    generation: 0,
                    run: RunKey::default(),
                    kind,
                    extends: None,
                    layout: Layout::default(),
                    through,
                    size: Size {
                        tokens: 25,
                        bytes: 100,
                        messages: 1,
                    },
                    edits: Vec::new(),
                },
                tokens_covered: 100,
                strategy: "digest".into(),
                shaping: "{}".into(),
                created_at: "2026-01-01T00:00:02Z".into(),
                extra: None,
            },
            messages: Vec::new(),
            coverage: Vec::new(),
            blobs: Vec::new(),
        })
    }

    pub fn first(mut self, first: u32, last: u32) -> Self {
        self.0.row.layout.first = Some(Turns { first, last });
        self
    }

    pub fn compacted(mut self, first: u32, last: u32, texts: &[&str]) -> Self {
        self.0.row.layout.compacted = Some(Turns { first, last });
        for text in texts {
            self = self.message(Section::Compacted, None, Some(text));
        }
        self
    }

    pub fn recent(mut self, first: u32, last: u32) -> Self {
        self.0.row.layout.recent = Some(Turns { first, last });
        self
    }

    /// Adds a message to the block; without a text, the original is dropped.
    pub fn message(mut self, section: Section, replaces: Option<u32>, text: Option<&str>) -> Self {
        self.0.messages.push(BlockMessage {
            section,
            replaces,
            quotes: None,
            body: text.map(stored),
        });
        self
    }

    pub fn change(mut self, change: impl FnOnce(&mut BlockRow)) -> Self {
        change(&mut self.0.row);
        self
    }

    pub fn done(self) -> NewBlock {
        self.0
    }
}

fn stored(text: &str) -> StoredMessage {
    let message = AgentMessage::from(loopstore::Message::user(text));
    codec::encode(message, &HeuristicTokenCounter).unwrap().0
}

pub fn user(turn: u32, text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}],
        "timestamp": 1_767_225_600_000_i64 + i64::from(turn) * 1000,
        "turnId": {"loopId": "l", "turnIndex": turn}})
}

pub fn assistant(turn: u32, text: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}],
        "timestamp": 1_767_225_600_500_i64 + i64::from(turn) * 1000,
        "turnId": {"loopId": "l", "turnIndex": turn}})
}

pub fn call(turn: u32, ids: &[&str]) -> Value {
    let blocks: Vec<Value> = ids
        .iter()
        .map(|id| json!({"type": "toolCall", "id": id, "name": "run", "arguments": {"id": id}}))
        .collect();
    json!({"role": "assistant", "content": blocks,
        "turnId": {"loopId": "l", "turnIndex": turn}})
}

pub fn result(turn: u32, id: &str, text: &str) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "run",
        "content": [{"type": "text", "text": text}], "isError": false,
        "turnId": {"loopId": "l", "turnIndex": turn}})
}
