//! The digest as the strategy of a session: the messages that it covers, and those that it reads the second time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use loopstore::compact::{CompactOutcome, FlipRequest};
use loopstore::extend::append::NewMessage;
use loopstore::extend::{self as store, Turns, append, session};
use loopstore::model::{LoopRecord, Session, TurnId};
use loopstore::{
    AgentMessage, BlockCompactionStrategy, BuildOptions, CompactRequest, CompactionConfig,
    ContextConfig, DigestCompaction, HeuristicTokenCounter, LoopId, LoopSlice, Message, Policy,
    SessionId, SqliteStore, StrategyError, Summary, build_context_from_session,
    compact_session_loops, message_tokens, undo,
};

/// The digest strategy, with the messages that it read and covered last.
#[derive(Default)]
struct RecordingDigest {
    read: AtomicU64,
    covered: Mutex<Vec<u32>>,
}

struct Watching(Arc<RecordingDigest>);

impl BlockCompactionStrategy for Watching {
    fn name(&self) -> &str {
        "digest"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let before = slice.bytes_read();
        let summary = DigestCompaction::default().keep_compacted(slice, turns, config)?;
        let read = slice.bytes_read() - before;
        self.0.read.store(read, Ordering::Relaxed);
        *self.0.covered.lock().unwrap() = summary.turns.iter().copied().collect();
        Ok(summary)
    }
}

struct DigestedAgent {
    store: SqliteStore,
    session: SessionId,
    watched: Arc<RecordingDigest>,
    turns: u32,
    bytes: BTreeMap<u32, u64>,
}

impl DigestedAgent {
    fn new() -> Self {
        let store = SqliteStore::in_memory().unwrap();
        let session = SessionId::new("s").unwrap();
        store::write(&store, |write| {
            let record = Session::new(SessionId::new("s").unwrap(), "agent");
            let key = session::create_session(write, &record, None, None)?;
            session::create_loop(
                write,
                key,
                &LoopRecord::new(LoopId::new("s.main.1").unwrap(), None),
            )
        })
        .unwrap();
        Self {
            store,
            session,
            watched: Arc::default(),
            turns: 0,
            bytes: BTreeMap::new(),
        }
    }

    /// Appends a turn of a prompt and a call with its result.
    fn turn(&mut self) {
        let turn = self.turns;
        self.turns += 1;
        let filler = "nothing of note happened here ".repeat(40);
        let json = [
            format!(
                r#"{{"role":"user","content":[{{"type":"text","text":"Look after order N{turn}X."}}]}}"#
            ),
            format!(
                r#"{{"role":"assistant","content":[{{"type":"toolCall","id":"c{turn}","name":"open","arguments":{{"order":"N{turn}X"}}}}]}}"#
            ),
            format!(
                r#"{{"role":"toolResult","toolCallId":"c{turn}","toolName":"open","isError":false,"content":[{{"type":"text","text":"ref=R{turn}Q9 {filler}"}}]}}"#
            ),
        ];
        let messages: Vec<AgentMessage> = json
            .iter()
            .map(|text| serde_json::from_str::<AgentMessage>(text).unwrap())
            .map(|message| message.in_turn(TurnId::new("s.main.1", turn)))
            .collect();
        let bytes = messages
            .iter()
            .map(|m| serde_json::to_string(m).unwrap().len() as u64)
            .sum();
        self.bytes.insert(turn, bytes);
        let new: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
        store::write(&self.store, |write| {
            let key = write.session(&self.session)?.unwrap().key;
            let row = write
                .loop_by_id(key, &LoopId::new("s.main.1").unwrap())?
                .unwrap();
            append::append(write, row.key, new, &HeuristicTokenCounter)
        })
        .unwrap();
    }

    fn compact(&self, max_summary_tokens: u64) -> CompactOutcome {
        let config = CompactionConfig {
            policy: loopstore::CompactionPolicy::Headroom {
                compact_at_pct: 0.0,
                compact_budget_threshold_pct: 0.05,
            },
            block_strategy: Some(Arc::new(Watching(Arc::clone(&self.watched)))),
            keep_first_turns: 0,
            keep_recent: loopstore::KeepRecent::Turns(1),
            max_summary_tokens,
            ..CompactionConfig::default()
        };
        let request = CompactRequest {
            policy: Policy::of(ContextConfig::default(), config),
            ..CompactRequest::default()
        };
        compact_session_loops(&self.store, &self.session, &request)
            .unwrap()
            .outcome
    }

    fn digest(&self) -> AgentMessage {
        let options = BuildOptions::default();
        let context = build_context_from_session(&self.store, &self.session, &options).unwrap();
        context.messages[0].clone()
    }

    fn read(&self) -> u64 {
        self.watched.read.load(Ordering::Relaxed)
    }
}

fn text(message: &AgentMessage) -> String {
    message.message().unwrap().texts().collect()
}

#[test]
fn a_second_digest_reads_only_the_new_turns_and_the_digest_before() {
    let mut agent = DigestedAgent::new();
    (0..30).for_each(|_| agent.turn());
    assert_eq!(agent.compact(300), CompactOutcome::Committed);
    let first = agent.digest();
    let whole: u64 = agent.bytes.values().sum();
    assert!(agent.read() > whole / 2);
    (0..3).for_each(|_| agent.turn());
    assert_eq!(agent.compact(300), CompactOutcome::Committed);
    // Turn 29 was kept before and is compacted now; turn 32 is kept.
    let new: u64 = (29..32).map(|turn| agent.bytes[&turn]).sum();
    let digest = serde_json::to_string(&first).unwrap().len() as u64;
    assert!(
        agent.read() <= new + digest,
        "{} > {new} + {digest}",
        agent.read()
    );
    let second = text(&agent.digest());
    assert!(second.contains("- t0: Look after order N0X."), "{second}");
    for turn in 29..32 {
        assert!(second.contains(&format!("N{turn}X")), "{second}");
    }
    assert!(second.contains("turns 0..31"), "{second}");
}

#[test]
fn a_digest_for_another_budget_reads_everything_again() {
    let mut agent = DigestedAgent::new();
    (0..12).for_each(|_| agent.turn());
    assert_eq!(agent.compact(100), CompactOutcome::Committed);
    let digest = agent.digest();
    let digest = serde_json::to_string(&digest).unwrap().len() as u64;
    (0..3).for_each(|_| agent.turn());
    assert_eq!(agent.compact(300), CompactOutcome::Committed);
    let whole: u64 = (0..14).map(|turn| agent.bytes[&turn]).sum();
    // The previous digest is searched for texts of a model.
    assert_eq!(agent.read(), whole + digest);
}

#[test]
fn an_undone_digest_is_not_extended() {
    let mut agent = DigestedAgent::new();
    (0..12).for_each(|_| agent.turn());
    assert_eq!(agent.compact(200), CompactOutcome::Committed);
    undo(&agent.store, &agent.session, &FlipRequest::default()).unwrap();
    (0..2).for_each(|_| agent.turn());
    assert_eq!(agent.compact(200), CompactOutcome::Committed);
    let whole: u64 = (0..13).map(|turn| agent.bytes[&turn]).sum();
    assert_eq!(agent.read(), whole);
}

#[test]
fn the_digest_is_one_user_message_within_the_budget_and_covers_what_it_names() {
    let mut agent = DigestedAgent::new();
    (0..40).for_each(|_| agent.turn());
    assert_eq!(agent.compact(250), CompactOutcome::Committed);
    let digest = agent.digest();
    assert!(matches!(digest.message(), Some(Message::User(_))));
    let spent = message_tokens(&digest);
    assert!((240..=250).contains(&spent), "{spent}");
    let text = text(&digest);
    let covered = agent.watched.covered.lock().unwrap().clone();
    for turn in 0..39 {
        let mut words = text.split([' ', ',', '(', ')', ':', '\n']);
        let named = words.any(|word| word == format!("t{turn}"));
        assert_eq!(named, covered.contains(&turn), "turn {turn}\n{text}");
    }
}
