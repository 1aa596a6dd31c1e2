//! The trajectories of a document.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use loopstore::BuildOptions;
use loopstore::extend as store;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{
    LoopKey, LoopRow, Outcome, RunRow, SessionKey, SessionRow, StoreRead, StoreResult,
};
use loopstore::internal::{Chain, build};
use loopstore::model::{AgentMessage, ChildLoopRef, Json, LoopId, Message, ParentSpawnRef};
use loopstore_atif::form::{SCHEMA_VERSION, SubagentRef};
use loopstore_atif::stored::STORED_FORM;
use loopstore_transcripts::internal::Fields;
use serde_json::json;

use super::agent::StoredAgent;
use super::steps::StepWriter;
use crate::omissions::{Omission, OmissionCounts, OmissionKind};
use crate::session_jsonl::{self, runs};
use crate::{ExportError, ExportRange, each_message_of, stretches};

/// The maximum number of levels of sub-agents: readers of the document recurse.
const MAX_DEPTH: usize = 16;

/// Writes a session; with `leaf`, only the steps of the chain that ends in this loop.
pub(crate) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    counter: &str,
    leaf: Option<&LoopId>,
    out: &mut dyn Write,
) -> Result<Vec<Omission>, ExportError> {
    let mut document = AtifDocument {
        read,
        counter,
        with_rows: leaf.is_none(),
        omitted: OmissionCounts::default(),
        embedded: HashSet::new(),
        agents: HashMap::new(),
        out,
    };
    let id = session.session_id.as_str();
    document.trajectory(session, leaf, id, 0)?;
    document.out.write_all(b"\n")?;
    Ok(document.omitted.report(document.with_rows))
}

struct AtifDocument<'a> {
    read: &'a dyn StoreRead,
    counter: &'a str,
    /// True if a session is restored from the document.
    with_rows: bool,
    omitted: OmissionCounts,
    /// The sessions in the document.
    embedded: HashSet<SessionKey>,
    /// The agents of these sessions.
    agents: HashMap<SessionKey, serde_json::Value>,
    out: &'a mut dyn Write,
}

/// The session of a sub-agent, to be embedded.
struct Subagent {
    session: SessionRow,
    id: String,
}

/// The sub-agents of calls, by the id of the call.
type CallReferences = HashMap<String, Vec<SubagentRef>>;

/// A trajectory without rows of its own session.
struct PartialTrajectory<'a> {
    session: &'a SessionRow,
    id: String,
    extra: serde_json::Value,
}

impl AtifDocument<'_> {
    /// Writes the trajectory of a session.
    fn trajectory(
        &mut self,
        session: &SessionRow,
        leaf: Option<&LoopId>,
        id: &str,
        depth: usize,
    ) -> Result<(), ExportError> {
        self.embedded.insert(session.key);
        let loops = self.read.loops(session.key)?;
        let chain = match loops.is_empty() {
            true => Vec::new(),
            false => stretches(self.read, session, leaf, true)?,
        };
        let agent = StoredAgent::read(self.read, session, &loops)?;
        if !agent.has_version() {
            self.omitted.add(OmissionKind::AgentVersion);
        }
        self.agents.insert(session.key, agent.json());
        self.head(session, id)?;
        self.extra(session)?;
        self.agent(session)?;
        self.count_rows(session, &chain, &loops)?;
        let (subagents, calls) = self.subagents(session, &chain, &loops, depth)?;
        self.steps(session, &chain, calls)?;
        let continued = self.embedded_trajectories(session, (&chain, &loops), subagents, depth)?;
        if let Some(continued) = continued {
            let reference = Json::string(&format!("#{continued}"));
            write!(
                self.out,
                ",\n\"continued_trajectory_ref\":{}",
                reference.as_str()
            )?;
        }
        if depth == 0 {
            self.notes()?;
        }
        Ok(self.out.write_all(b"}")?)
    }

    fn head(&mut self, session: &SessionRow, id: &str) -> Result<(), ExportError> {
        write!(
            self.out,
            "{{\"schema_version\":\"{SCHEMA_VERSION}\",\"session_id\":{},\"trajectory_id\":{}",
            Json::string(session.session_id.as_str()).as_str(),
            Json::string(id).as_str(),
        )?;
        Ok(())
    }

    /// Writes the agent, which may have many tools.
    fn agent(&mut self, session: &SessionRow) -> Result<(), ExportError> {
        if let Some(agent) = self.agents.get(&session.key) {
            write!(self.out, ",\n\"agent\":{agent}")?;
        }
        Ok(())
    }

    /// Writes `extra` before the agent and the steps, so that a reader recognises the document by its beginning.
    fn extra(&mut self, session: &SessionRow) -> Result<(), ExportError> {
        let title = json!(session.title).to_string();
        write!(self.out, ",\n\"extra\":{{\"title\":{title}")?;
        if self.with_rows {
            writeln!(
                self.out,
                ",\"loopstore\":{{\"form\":{STORED_FORM},\"lines\":["
            )?;
            session_jsonl::write_rows(self.read, session, self.counter, self.out)?;
            self.out.write_all(b"]}")?;
        }
        Ok(self.out.write_all(b"}")?)
    }

    /// Counts the rows that no step can represent.
    fn count_rows(
        &mut self,
        session: &SessionRow,
        chain: &[ExportRange],
        loops: &[LoopRow],
    ) -> Result<(), ExportError> {
        use OmissionKind as Kind;
        if !self.with_rows {
            self.omitted.add_many(Kind::Loop, chain.len() as u64);
            return Ok(());
        }
        let read = self.read;
        self.omitted.add_many(Kind::Loop, loops.len() as u64);
        for run in runs(read, session)? {
            self.omitted.add(Kind::Run);
            let edits = read.edits_of_run(run)?.len() as u64;
            self.omitted.add_many(Kind::Edit, edits);
        }
        let key = session.key;
        for (kind, count) in [
            (Kind::Pin, read.pins(key)?.len()),
            (Kind::Hide, read.hides(key)?.len()),
            (Kind::Manifest, read.manifests(key)?.len()),
        ] {
            self.omitted.add_many(kind, count as u64);
        }
        Ok(())
    }

    /// Returns the sub-agents of a session that are not in the document yet, and the references of its calls.
    fn subagents(
        &mut self,
        session: &SessionRow,
        chain: &[ExportRange],
        loops: &[LoopRow],
        depth: usize,
    ) -> Result<(Vec<Subagent>, CallReferences), ExportError> {
        let read = self.read;
        let mut found: Vec<(Option<SessionRow>, Option<String>)> = Vec::new();
        let on_chain: HashSet<LoopKey> = chain.iter().map(|stretch| stretch.row.key).collect();
        let mut started: HashSet<SessionKey> = HashSet::new();
        for row in loops {
            if !self.with_rows && !on_chain.contains(&row.key) {
                continue;
            }
            for child in children_of(&read.loop_meta(row.key)?.meta) {
                let session = match &child.child_session_id {
                    Some(id) => read.session(id)?,
                    None => None,
                };
                started.extend(session.as_ref().map(|session| session.key));
                found.push((session, child.tool_call_id));
            }
        }
        if self.with_rows {
            for key in read.started_by(session.key)? {
                if started.insert(key) {
                    let session = read.session_by_key(key)?;
                    let call = starter_of(&session.meta).and_then(|spawn| spawn.tool_call_id);
                    found.push((Some(session), call));
                }
            }
        }
        let mut subagents: Vec<Subagent> = Vec::new();
        let mut calls = CallReferences::new();
        for (session, call) in found {
            let Some(session) = session.filter(|_| depth < MAX_DEPTH) else {
                self.omitted.add(OmissionKind::Subagent);
                continue;
            };
            let id = session.session_id.to_string();
            let is_here = subagents.iter().any(|one| one.session.key == session.key);
            if !is_here && !self.embedded.insert(session.key) {
                self.omitted.add(OmissionKind::Subagent);
                continue;
            }
            match call {
                Some(call) => calls.entry(call).or_default().push(SubagentRef {
                    trajectory_id: Some(id.clone()),
                    session_id: Some(id.clone()),
                    ..SubagentRef::default()
                }),
                None => self.omitted.add(OmissionKind::SubagentCall),
            }
            if !is_here {
                subagents.push(Subagent { session, id });
            }
        }
        Ok((subagents, calls))
    }

    /// Writes the originals on a chain, with its compactions.
    fn steps(
        &mut self,
        session: &SessionRow,
        chain: &[ExportRange],
        calls: CallReferences,
    ) -> Result<(), ExportError> {
        let read = self.read;
        let mut compactions = compactions(read, session)?;
        let mut steps = StepWriter::new(self.out, &mut self.omitted, self.with_rows);
        steps.subagents = calls;
        steps.out.write_all(b",\n\"steps\":[")?;
        for stretch in chain {
            let mut runs = compactions.remove(&stretch.row.key).unwrap_or_default();
            let mut turns = 0;
            steps.begin_loop([0; 32]);
            each_message_of(read, stretch.row.key, 0..stretch.end_seq, &mut |row| {
                if let Some(turn) = row.turn {
                    while runs.first().is_some_and(|run| run.point.turns <= turn) {
                        let run = runs.remove(0);
                        compaction_step(read, &run, &mut steps)?;
                    }
                    turns = turns.max(turn + 1);
                }
                steps.message(read, &stretch.row, row)
            })?;
            steps.end_loop(&stretch.row.loop_id)?;
            // A later point is not on the chain.
            for run in runs.iter().filter(|run| run.point.turns <= turns) {
                compaction_step(read, run, &mut steps)?;
            }
        }
        let metrics = steps.final_metrics();
        write!(steps.out, "],\n\"final_metrics\":{metrics}")?;
        let left = steps.subagents.values().map(|refs| refs.len() as u64).sum();
        self.omitted.add_many(OmissionKind::SubagentCall, left);
        Ok(())
    }

    /// Writes the embedded trajectories. Returns the id of the one with the current context, if it differs from the
    /// originals.
    fn embedded_trajectories(
        &mut self,
        session: &SessionRow,
        (chain, loops): (&[ExportRange], &[LoopRow]),
        subagents: Vec<Subagent>,
        depth: usize,
    ) -> Result<Option<String>, ExportError> {
        let mut ids: HashSet<String> = subagents.iter().map(|one| one.id.clone()).collect();
        let mut separator = ",\n\"subagent_trajectories\":[\n";
        for subagent in &subagents {
            self.out.write_all(separator.as_bytes())?;
            separator = ",\n";
            self.trajectory(&subagent.session, None, &subagent.id, depth + 1)?;
        }
        if self.with_rows {
            let ends: HashMap<LoopKey, u32> =
                chain.iter().map(|of| (of.row.key, of.end_seq)).collect();
            for row in loops {
                let from = ends.get(&row.key).copied().unwrap_or(0);
                if from < row.totals.next_seq {
                    self.out.write_all(separator.as_bytes())?;
                    separator = ",\n";
                    let id = unused(row.loop_id.as_str(), &mut ids);
                    self.branch(session, row, from, id)?;
                }
            }
        }
        let context = match chain.last() {
            Some(leaf) => self.context(session, leaf.row.key)?,
            None => None,
        };
        let mut continued = None;
        if let Some(messages) = context {
            self.out.write_all(separator.as_bytes())?;
            separator = ",\n";
            let id = unused(&format!("{}-context", session.session_id), &mut ids);
            self.copied_context(session, id.clone(), &messages)?;
            continued = Some(id);
        }
        if separator == ",\n" {
            self.out.write_all(b"]")?;
        }
        Ok(continued)
    }

    /// Writes the messages of a loop that are not on the chain.
    fn branch(
        &mut self,
        session: &SessionRow,
        row: &LoopRow,
        from: u32,
        id: String,
    ) -> Result<(), ExportError> {
        self.omitted.add(OmissionKind::Branch);
        let extra = json!({ "branch": {
            "loop": row.loop_id,
            "parent_loop": row.parent_loop_id,
            "parent_turn": row.parent_turn,
            "first_message": from,
        }});
        let read = self.read;
        self.partial(&PartialTrajectory { session, id, extra }, &mut |steps| {
            let mut before = [0; 32];
            if let Some(last) = from.checked_sub(1) {
                each_message_of(read, row.key, last..from, &mut |row| {
                    before = row.chain;
                    Ok(())
                })?;
            }
            steps.begin_loop(before);
            each_message_of(read, row.key, from..row.totals.next_seq, &mut |message| {
                steps.message(read, row, message)
            })?;
            steps.end_loop(&row.loop_id)
        })
    }

    /// Returns the messages of the current context, if it differs from the originals.
    fn context(
        &self,
        session: &SessionRow,
        leaf: LoopKey,
    ) -> Result<Option<Vec<AgentMessage>>, ExportError> {
        let options = BuildOptions::default();
        let key = (session.key, leaf);
        let chain = Chain::load_active(self.read, key, ChainView::default(), &options)?;
        let is_overlaid = chain.start > 0
            || (chain.links.iter()).any(|link| link.block.is_some() || link.edits.is_some());
        if !is_overlaid {
            return Ok(None);
        }
        let (context, _) = build(self.read, &session.session_id, &chain, &options)?;
        let system = context.system.messages.into_iter();
        Ok(Some(system.chain(context.messages).collect()))
    }

    fn copied_context(
        &mut self,
        session: &SessionRow,
        id: String,
        messages: &[AgentMessage],
    ) -> Result<(), ExportError> {
        let extra = json!({ "context": true });
        // The originals were counted.
        let counted = std::mem::take(&mut self.omitted);
        let written = self.partial(&PartialTrajectory { session, id, extra }, &mut |steps| {
            steps.with_rows = false;
            for message in messages {
                steps.copied(message)?;
            }
            steps.flush()
        });
        self.omitted = counted;
        written
    }

    fn partial(
        &mut self,
        of: &PartialTrajectory<'_>,
        write: &mut dyn FnMut(&mut StepWriter<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        self.head(of.session, &of.id)?;
        write!(self.out, ",\n\"extra\":{}", of.extra)?;
        self.agent(of.session)?;
        self.out.write_all(b",\n\"steps\":[")?;
        let mut steps = StepWriter::new(self.out, &mut self.omitted, self.with_rows);
        write(&mut steps)?;
        Ok(self.out.write_all(b"]}")?)
    }

    /// Writes the completeness report for readers of the document.
    fn notes(&mut self) -> Result<(), ExportError> {
        let mut text = String::from("Written by loopstore.");
        for omission in self.omitted.report(self.with_rows) {
            text.push_str(&format!(" Not a part of the format: {omission}."));
        }
        let text = Json::string(&text);
        Ok(write!(self.out, ",\n\"notes\":{}", text.as_str())?)
    }
}

/// Returns an id that no other embedded trajectory has.
fn unused(id: &str, ids: &mut HashSet<String>) -> String {
    let mut candidate = id.to_owned();
    let mut number = 2;
    while !ids.insert(candidate.clone()) {
        candidate = format!("{id}-{number}");
        number += 1;
    }
    candidate
}

fn children_of(meta: &str) -> Vec<ChildLoopRef> {
    let fields = Fields::parse(meta).unwrap_or_default();
    let mut values = fields.iter();
    let refs = values.find(|(key, _)| *key == "child_loop_refs");
    refs.and_then(|(_, refs)| serde_json::from_str(refs.get()).ok())
        .unwrap_or_default()
}

fn starter_of(meta: &str) -> Option<ParentSpawnRef> {
    let fields = Fields::parse(meta).ok()?;
    let (_, spawn) = fields.iter().find(|(key, _)| *key == "parent_spawn_ref")?;
    serde_json::from_str(spawn.get()).ok()
}

/// Returns the committed runs of a session by the loop of their point, in the order of their points.
fn compactions(
    read: &dyn StoreRead,
    session: &SessionRow,
) -> StoreResult<BTreeMap<LoopKey, Vec<RunRow>>> {
    let mut found: BTreeMap<LoopKey, Vec<RunRow>> = BTreeMap::new();
    for key in runs(read, session)? {
        let run = read.run_by_key(key)?;
        if run.outcome == Outcome::Committed {
            found.entry(run.point.loop_key).or_default().push(run);
        }
    }
    for runs in found.values_mut() {
        runs.sort_by_key(|run| (run.point.turns, run.tick));
    }
    Ok(found)
}

/// Writes the text that a run put in place of messages; a run without such a text has no step.
fn compaction_step(
    read: &dyn StoreRead,
    run: &RunRow,
    steps: &mut StepWriter<'_>,
) -> Result<(), ExportError> {
    let mut texts: Vec<String> = Vec::new();
    for block in read.blocks_of_run(run.key)? {
        for shown in read.block_messages(block.key)? {
            let body = shown.body.filter(|body| body.head.is_some());
            if let Some(body) = body.filter(|_| shown.quotes.is_none()) {
                let message = store::decode(read, body)?;
                let shown = message.message().into_iter().flat_map(Message::texts);
                texts.extend(shown.map(str::to_owned));
            }
        }
    }
    if texts.is_empty() {
        return Ok(());
    }
    let record = json!({
        "run": run.run_id,
        "strategy": run.strategy,
        "trigger": run.trigger,
    });
    steps.compaction(&texts.join("\n\n"), record.into())
}
