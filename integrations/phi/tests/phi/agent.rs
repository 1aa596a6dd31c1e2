//! A real agent of phi-core with its mock provider and a tool: recorded, compacted, dropped,
//! resumed.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use loopstore::context::FaultKind;
use loopstore::*;
use loopstore_phi::{PhiEventLog, PhiRecorder, PhiSessionStore, context_message};
use loopstore_recorder::RecorderOptions;
use phi_core::provider::ModelConfig;
use phi_core::provider::mock::{MockProvider, MockResponse, MockToolCall};
use phi_core::session::{EventLog, SessionError, SessionStore};
use phi_core::{
    Agent, AgentTool, BasicAgent, Content, SessionRecorderConfig, ToolContext, ToolError,
    ToolResult,
};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use super::stage::*;

struct Look;

#[async_trait]
impl AgentTool for Look {
    fn name(&self) -> &str {
        "look"
    }

    fn label(&self) -> &str {
        "Look"
    }

    fn description(&self) -> &str {
        "Looks at a file."
    }

    fn parameters_schema(&self) -> serde_json::Value {
        json!({"type": "object", "properties": {"path": {"type": "string"}}})
    }

    async fn execute(
        &self,
        params: serde_json::Value,
        _: ToolContext,
    ) -> Result<ToolResult, ToolError> {
        if params["path"] == "missing.rs" {
            return Err(ToolError::Failed("no such file".into()));
        }
        let text = format!("{params}\n{}", "a line of the file\n".repeat(80));
        Ok(ToolResult {
            content: vec![Content::Text { text }],
            details: json!({"lines": 81}),
            child_loop_id: None,
        })
    }
}

/// Returns the answers to each prompt: two calls at once, a call that fails, and a text.
fn script(prompts: usize) -> Vec<MockResponse> {
    let call = |path: String| MockToolCall {
        name: "look".into(),
        arguments: json!({"path": path}),
    };
    let one = |n: usize| {
        [
            MockResponse::ToolCalls(vec![call(format!("a{n}.rs")), call(format!("b{n}.rs"))]),
            MockResponse::ToolCalls(vec![call("missing.rs".into())]),
            MockResponse::Text(format!("Prompt {n} is done.")),
        ]
    };
    (0..prompts).flat_map(one).collect()
}

fn agent(prompts: usize) -> BasicAgent {
    BasicAgent::new(ModelConfig::anthropic("mock", "mock", "test"))
        .with_provider_override(Arc::new(MockProvider::new(script(prompts))))
        .with_tools(vec![Arc::new(Look)])
        .with_session_id("s")
        .without_context_management()
}

/// Prompts the agent and returns its events.
async fn prompt(agent: &mut BasicAgent, text: &str) -> Vec<phi_core::AgentEvent> {
    let (sender, mut receiver) = unbounded_channel();
    agent.prompt_with_sender(text, sender).await;
    let mut events = Vec::new();
    while let Some(event) = receiver.recv().await {
        events.push(event);
    }
    events
}

async fn context(store: &AsyncStore) -> Context {
    store.session("s").unwrap().context().await.unwrap()
}

async fn compact(store: &AsyncStore) -> CompactReport {
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(1),
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    let chat = store.session("s").unwrap();
    chat.compact(&request).await.unwrap()
}

/// Compares the agent's events with those in its log.
async fn check_log(log: &PhiEventLog, events: &[phi_core::AgentEvent]) {
    log.flush("s").await.unwrap();
    let logged = log.read_since("s", 0).await.unwrap();
    let ordinals: Vec<u64> = logged.iter().map(|(ordinal, _)| *ordinal).collect();
    assert_eq!(ordinals, (1..=events.len() as u64).collect::<Vec<_>>());
    for ((_, logged), event) in logged.iter().zip(events) {
        assert_eq!(json(logged), json(event));
    }
}

struct PhiAgent {
    store: AsyncStore,
    log: PhiEventLog,
    recorder: PhiRecorder,
    events: Vec<phi_core::AgentEvent>,
}

impl PhiAgent {
    fn open(path: &Path) -> Self {
        let store = open(path);
        Self {
            log: PhiEventLog::new(store.clone()),
            recorder: PhiRecorder::new(store.clone(), RecorderOptions::default()),
            store,
            events: Vec::new(),
        }
    }

    /// Prompts the agent, records its events, and compares its messages with the stored ones.
    async fn prompt(&mut self, agent: &mut BasicAgent, text: &str) {
        let events = prompt(agent, text).await;
        for event in &events {
            self.recorder.record(event).await.unwrap();
        }
        self.events.extend(events);
        let found = context(&self.store).await;
        assert_eq!(all_plain(&found.messages), all_plain(agent.messages()));
        // The mock numbers its calls from 1 in each turn.
        let kinds = found.faults.iter().map(|fault| fault.kind);
        assert!(
            kinds
                .into_iter()
                .all(|kind| kind == FaultKind::DuplicateCallId)
        );
    }
}

#[test]
fn an_agent_is_recorded_compacted_dropped_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let runtime = runtime();
    let events = runtime.block_on(async {
        let mut stage = PhiAgent::open(&path);
        let mut agent = agent(6).with_event_log(Arc::new(stage.log.clone()));
        for n in 0..6 {
            stage.prompt(&mut agent, &format!("Prompt {n}")).await;
        }
        check_log(&stage.log, &stage.events).await;
        let before = context(&stage.store).await.tokens;
        let report = compact(&stage.store).await;
        assert!(report.run.is_some(), "{report:?}");
        assert!(context(&stage.store).await.tokens < before / 2);
        stage.events
    });
    drop(runtime);

    self::runtime().block_on(async {
        let mut stage = PhiAgent::open(&path);
        stage.events = events;
        let compacted = context(&stage.store).await;
        let messages = compacted.messages.iter().map(context_message);
        let mut agent = agent(2)
            .with_event_log(Arc::new(stage.log.clone()))
            .with_config_id("again")
            .with_messages(messages.collect::<Result<_, _>>().unwrap());
        stage.prompt(&mut agent, "Go on").await;
        check_log(&stage.log, &stage.events).await;
        let after = context(&stage.store).await;
        let kept = compacted.messages.len();
        let (kept, new) = (&after.messages[..kept], after.messages.len() - kept);
        assert_eq!(all_plain(kept), all_plain(&compacted.messages));
        assert_eq!(
            new,
            1 + 3 + 2 + 1,
            "prompt, three calls and results, answer"
        );
        let verified =
            loopstore_verify::verify(&crate::support::keyed::open(&path).unwrap()).unwrap();
        assert!(verified.ok, "{:?}", verified.problems);
    });
}

#[test]
fn an_agent_whose_loop_ids_are_taken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut stage = PhiAgent::open(&folder.path().join("agent.db"));
        stage.prompt(&mut agent(1), "One").await;
        let events = prompt(&mut agent(1), "Again").await;
        let refused = stage.recorder.record(&events[0]).await.unwrap_err();
        assert!(
            refused.to_string().contains("has already begun"),
            "{refused}"
        );
    });
}

/// phi-core's own recorder, and its sessions saved, compacted and loaded.
#[test]
fn recorded_sessions_are_saved_and_loaded_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let store = open(&path);
    runtime().block_on(async {
        let sessions = PhiSessionStore::new(store.clone());
        let mut agent = agent(3);
        let mut recorder = phi_core::SessionRecorder::new(SessionRecorderConfig::default());
        for n in 0..3 {
            let events = prompt(&mut agent, &format!("Prompt {n}")).await;
            events
                .into_iter()
                .for_each(|event| recorder.on_event(event));
            let session = recorder.get_session("s").unwrap().clone();
            sessions.save(&session).await.unwrap();
            // A host that saves after each event saves again.
            sessions.save(&session).await.unwrap();
            let loaded = sessions.load("s").await.unwrap();
            assert_eq!(json(&loaded), json(&session), "after prompt {n}");
        }
        let session = recorder.get_session("s").unwrap().clone();
        assert_eq!(
            compact(&store).await.outcome,
            compact::CompactOutcome::Committed
        );
        let loaded = sessions.load("s").await.unwrap();
        let current = loaded.loops.last().unwrap();
        assert!(current.compaction_block.is_some());
        assert_eq!(json(&current.messages), json(&session.loops[2].messages));
        assert_eq!(sessions.list_ids().await.unwrap(), ["s"]);
    });
}

#[test]
fn a_session_recorded_from_events_loads_but_is_not_saved_over() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut stage = PhiAgent::open(&folder.path().join("agent.db"));
        let mut agent = agent(2);
        stage.prompt(&mut agent, "One").await;
        stage.prompt(&mut agent, "Two").await;
        let sessions = PhiSessionStore::new(stage.store.clone());
        let session = sessions.load("s").await.unwrap();
        assert_eq!(session.loops.len(), 2);
        let all = session.loops.iter().flat_map(|one| one.messages.clone());
        assert_eq!(
            all_plain(&all.collect::<Vec<_>>()),
            all_plain(agent.messages())
        );
        // The turn has two rounds of calls and an answer.
        assert_eq!(session.loops[0].turns.len(), 3);
        assert!(session.loops[0].turns[0].has_tool_calls());
        let refused = sessions.save(&session).await.unwrap_err();
        assert!(matches!(refused, SessionError::Io(_)), "{refused}");
        assert_eq!(json(&sessions.load("s").await.unwrap()), json(&session));
    });
}
