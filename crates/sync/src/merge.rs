//! The union of two states of a session: a pure function of both, whichever of them is given first.
//!
//! If one state contains the other, the union has the lines of that state. Otherwise both continued:
//!
//! - A loop that one state has more messages of gets them.
//! - A loop that both continued with other messages is split ([`fork`](crate::fork)): one continuation stays in
//!   the loop, the other one becomes a branch of it.
//! - Runs, undos, pins and all other rows are united. The generations of the blocks of a loop are numbered again, by
//!   the ticks of their runs.
//! - A message that one state redacted is redacted.
//!
//! Events keep their ticks ([`ticks`](crate::ticks)). The union depends on neither the order nor the grouping of the
//! states that it was made from, since all rows are chosen, named and ordered by their contents.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use loopstore::extend::codec;
use loopstore::model::{LoopId, SessionId};
use loopstore_transcripts::internal::form::{BlockAddress, CallLine, SessionLine};
use sha2::{Digest as _, Sha256};

use crate::cover::{begin_of, covers};
use crate::document::{
    Attachment, LoopDocument, ManifestDocument, RunDocument, SessionDocument, SessionText,
    StoredMessageLine, text_of,
};
use crate::{fork, ticks};

/// The union of two states of a session.
#[derive(Debug)]
pub(crate) struct Union {
    pub(crate) text: SessionText,
    /// The branches that the merge made, each with the loop that it continues.
    pub(crate) branches: BTreeSet<(LoopId, LoopId)>,
}

/// One of the two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeSide {
    A,
    B,
}

/// Returns the union of two states of a session. `redacted` is the state that was redacted since the other one,
/// if the receipts say so.
///
/// # Errors
/// If one of the texts is no session, or the states cannot be united; with the reason.
pub(crate) fn merge(
    id: &SessionId,
    a: &SessionText,
    b: &SessionText,
    redacted: Option<MergeSide>,
) -> Result<Union, String> {
    if a == b {
        return Ok(Union {
            text: a.clone(),
            branches: BTreeSet::new(),
        });
    }
    let mut a_document = SessionDocument::parse(id, a)?;
    let mut b_document = SessionDocument::parse(id, b)?;
    let redacted = redacted_side(&a_document, &b_document)?.or(redacted);
    let with_attachments = |text: &SessionText| {
        let (ours, theirs) = (&a_document.attachments, &b_document.attachments);
        let mut text = SessionText::of(&text.session_lines());
        let united = unite_attachments(ours.clone(), theirs.clone());
        text.lines.extend(united.iter().map(text_of));
        Union {
            text,
            branches: BTreeSet::new(),
        }
    };
    let a_covers = redacted != Some(MergeSide::B) && covers(&a_document, &b_document);
    let b_covers = redacted != Some(MergeSide::A) && covers(&b_document, &a_document);
    // Two states with the same rows in other orders get one order below.
    match (a_covers, b_covers) {
        (true, false) => return Ok(with_attachments(a)),
        (false, true) => return Ok(with_attachments(b)),
        _ => {}
    }
    match redacted {
        Some(MergeSide::A) => check_redacted(&a_document, &b_document)?,
        Some(MergeSide::B) => check_redacted(&b_document, &a_document)?,
        None => {}
    }
    let mut branches = BTreeSet::new();
    while let Some(conflict) = conflict(&a_document, &b_document) {
        let document = match conflict.loser {
            MergeSide::A => &mut a_document,
            MergeSide::B => &mut b_document,
        };
        if document.loop_of(&conflict.branch).is_some() {
            return Err(format!(
                "loop `{}` continued in more than two ways",
                conflict.loop_id
            ));
        }
        fork::split(document, &conflict.loop_id, conflict.seq, &conflict.branch)?;
        branches.insert((conflict.branch, conflict.loop_id));
    }
    let last = ticks::align(&mut a_document, &mut b_document);
    let mut union = unite(a_document, b_document, redacted)?;
    union.line.tick = union.line.tick.max(last);
    Ok(Union {
        text: union.text(),
        branches,
    })
}

/// Returns the state whose messages were redacted while those of the other one were not.
fn redacted_side(a: &SessionDocument, b: &SessionDocument) -> Result<Option<MergeSide>, String> {
    match (a.redacts(b), b.redacts(a)) {
        (true, true) => Err(
            "both databases redacted it, each other messages; redact it with the same rules in both".into(),
        ),
        (true, false) => Ok(Some(MergeSide::A)),
        (false, true) => Ok(Some(MergeSide::B)),
        (false, false) => Ok(None),
    }
}

/// Fails if the state that was not redacted has content that the redacted one does not have.
fn check_redacted(redacted: &SessionDocument, other: &SessionDocument) -> Result<(), String> {
    let is_known = |one: &LoopDocument| {
        let found = redacted.loop_of(&one.line.loop_id);
        found.is_some_and(|found| found.messages.len() >= one.messages.len())
    };
    let runs: HashSet<&str> = redacted.runs.iter().map(|run| &*run.line.run).collect();
    let is_whole = other.loops.iter().all(is_known)
        && other.runs.iter().all(|run| runs.contains(&*run.line.run));
    match is_whole {
        true => Ok(()),
        false => Err(
            "one database redacted it and the other one continued it, and the new content may have the same secrets; \
             redact it in the other database too"
                .into(),
        ),
    }
}

/// A loop that both states continued differently.
struct Conflict {
    loop_id: LoopId,
    /// The first message that differs; `None` if the loops begin differently.
    seq: Option<u32>,
    /// The state whose continuation becomes a branch.
    loser: MergeSide,
    /// The id of the branch.
    branch: LoopId,
}

/// Returns the first loop, parents first, that both states continued differently.
fn conflict(a: &SessionDocument, b: &SessionDocument) -> Option<Conflict> {
    let theirs = b.loop_index();
    for one in &a.loops {
        let Some(other) = theirs.get(&one.line.loop_id).map(|at| &b.loops[*at]) else {
            continue;
        };
        let Some((seq, of_a, of_b)) = difference(one, other) else {
            continue;
        };
        let branch = |content: Option<[u8; 32]>| fork::branch_id(&one.line.loop_id, &content?);
        let (branch_of_a, branch_of_b) = (branch(of_a), branch(of_b));
        let is_branch = |document: &SessionDocument, id: &Option<LoopId>| {
            id.as_ref().is_some_and(|id| document.loop_of(id).is_some())
        };
        // A continuation that is a branch in the other state was one before, and stays one.
        let was_a = is_branch(b, &branch_of_a) && !is_branch(a, &branch_of_a);
        let was_b = is_branch(a, &branch_of_b) && !is_branch(b, &branch_of_b);
        let loser = match (was_a, was_b) {
            (true, false) => MergeSide::A,
            (false, true) => MergeSide::B,
            // One state continues the other one.
            _ if of_a.is_none() || of_b.is_none() => continue,
            _ if of_a < of_b => MergeSide::B,
            _ => MergeSide::A,
        };
        let branch = match loser {
            MergeSide::A => branch_of_a,
            MergeSide::B => branch_of_b,
        };
        return Some(Conflict {
            loop_id: one.line.loop_id.clone(),
            seq,
            loser,
            branch: branch?,
        });
    }
    None
}

/// The first message in which two states of a loop differ, or `None` if the loops begin differently, with a digest of the content of each; `None` for a state
/// that ends before it.
type Difference = (Option<u32>, Option<[u8; 32]>, Option<[u8; 32]>);

/// Returns the first difference of two states of a loop; `None` if they have the same messages.
fn difference(a: &LoopDocument, b: &LoopDocument) -> Option<Difference> {
    let begin = |one: &LoopDocument| {
        let line = &one.line;
        // The parent's id depends on the branches that were made before.
        format!("{} {:?} {}", line.kind, line.started_at, line.tick)
    };
    let (of_a, of_b) = (begin_of(&a.line), begin_of(&b.line));
    let is_same_place = (of_a.1, &a.line.started_at) == (of_b.1, &b.line.started_at);
    if !is_same_place && begin(a) != begin(b) {
        let key = |one: &LoopDocument| Some(Sha256::digest(begin(one)).into());
        return Some((None, key(a), key(b)));
    }
    let pairs = a.messages.iter().zip(&b.messages);
    let common = pairs.take_while(|(a, b)| is_same(a, b)).count();
    let (of_a, of_b) = (a.messages.get(common), b.messages.get(common));
    if of_a.is_none() && of_b.is_none() {
        return None;
    }
    let seq = u32::try_from(common).ok()?;
    Some((Some(seq), of_a.map(content_key), of_b.map(content_key)))
}

/// True if two messages of one place are the same: stored once and copied, or imported by both from one transcript.
fn is_same(a: &StoredMessageLine, b: &StoredMessageLine) -> bool {
    a.turn == b.turn && (a.digest == b.digest || content_key(a) == content_key(b))
}

/// Returns a digest of the content of a message, which does not depend on its salt.
pub(crate) fn content_key(message: &StoredMessageLine) -> [u8; 32] {
    match (&message.message, &message.salt) {
        (Some(json), Some(_)) => Sha256::digest(json.get()).into(),
        _ => Sha256::digest(&message.digest).into(),
    }
}

/// Returns the union of two states without conflicts.
fn unite(
    a: SessionDocument,
    b: SessionDocument,
    redacted: Option<MergeSide>,
) -> Result<SessionDocument, String> {
    let line = unite_lines(&a.line, &b.line, redacted)?;
    let is_at_newest = is_at_newest(&a) && is_at_newest(&b);
    let (mut loops, theirs): (Vec<LoopDocument>, Vec<LoopDocument>) = (Vec::new(), b.loops);
    let mut theirs: HashMap<LoopId, LoopDocument> = theirs
        .into_iter()
        .map(|one| (one.line.loop_id.clone(), one))
        .collect();
    for one in a.loops {
        loops.push(match theirs.remove(&one.line.loop_id) {
            Some(other) => unite_loops(one, other, redacted)?,
            None => one,
        });
    }
    loops.extend(theirs.into_values());
    let mut union = SessionDocument {
        loops: in_order(loops)?,
        runs: unite_runs(a.runs, b.runs, redacted),
        pins: by_tick(a.pins, b.pins, |pin| pin.tick),
        hides: by_tick(a.hides, b.hides, |hide| hide.tick),
        manifests: unite_manifests(a.manifests, b.manifests),
        attachments: unite_attachments(a.attachments, b.attachments),
        line,
    };
    let hide = union.hides.last();
    if hide.is_some_and(|hide| hide.session != union.line.session) {
        return Err("it was hidden or shown again differently in both databases".into());
    }
    let current = union.line.current_loop.as_ref();
    if is_at_newest || current.is_some_and(|id| union.loop_of(id).is_none()) {
        union.line.current_loop = newest_loop(&union).cloned();
    }
    number_blocks(&mut union);
    Ok(union)
}

/// Returns the later of two optional texts if both are set, and else the one that is set.
fn either(newer: &Option<String>, older: &Option<String>) -> Option<String> {
    newer.clone().or_else(|| older.clone())
}

/// Returns the line of the newer state, with the labels that only the older one has.
fn unite_lines(
    a: &SessionLine,
    b: &SessionLine,
    redacted: Option<MergeSide>,
) -> Result<SessionLine, String> {
    if a.counter != b.counter {
        return Err(format!(
            "its tokens are counted with {} and {}; recount one of the databases",
            a.counter, b.counter
        ));
    }
    let rank = |line: &SessionLine| {
        let mut like = line.clone();
        (like.created_at, like.last_active_at, like.current_loop) = (None, None, None);
        (line.tick, text_of(&like), line.current_loop.clone())
    };
    let is_a_newer = match redacted {
        Some(side) => side == MergeSide::A,
        None => rank(a) >= rank(b),
    };
    let (newer, older) = if is_a_newer { (a, b) } else { (b, a) };
    let created = [&a.created_at, &b.created_at].into_iter().flatten().min();
    Ok(SessionLine {
        tick: a.tick.max(b.tick),
        agent_id: either(&newer.agent_id, &older.agent_id),
        title: either(&newer.title, &older.title),
        project: either(&newer.project, &older.project),
        source: either(&newer.source, &older.source),
        created_at: created.cloned(),
        last_active_at: a.last_active_at.clone().max(b.last_active_at.clone()),
        ..newer.clone()
    })
}

/// Returns the loop that was last begun or appended to. Of loops with the same tick it is the one with the last id.
fn newest_loop(document: &SessionDocument) -> Option<&LoopId> {
    let tick = |one: &LoopDocument| one.messages.last().map_or(one.line.tick, |last| last.tick);
    let newest = document
        .loops
        .iter()
        .max_by_key(|one| (tick(one), one.line.loop_id.as_str()));
    newest.map(|one| &one.line.loop_id)
}

/// True if the current loop of a state is the one that was last begun or appended to.
fn is_at_newest(document: &SessionDocument) -> bool {
    newest_loop(document) == document.line.current_loop.as_ref()
}

/// Returns the union of two states of a loop of which one continues the other.
fn unite_loops(
    a: LoopDocument,
    b: LoopDocument,
    redacted: Option<MergeSide>,
) -> Result<LoopDocument, String> {
    // The values that are computed again below do not count, so that a union ranks as the state that it was made from.
    let rank = |one: &LoopDocument| {
        let mut line = one.line.clone();
        (line.sealed_seq, line.generation, line.chain) = (0, 0, String::new());
        (line.parent, line.parent_loop_id) = (None, None);
        (
            one.messages.len(),
            line.status.is_ended(),
            one.notes.len(),
            text_of(&line),
        )
    };
    let is_a_longer = match redacted.filter(|_| a.messages.len() == b.messages.len()) {
        Some(side) => side == MergeSide::A,
        None => rank(&a) >= rank(&b),
    };
    let (mut union, other) = if is_a_longer { (a, b) } else { (b, a) };
    let place = |one: &LoopDocument| one.line.parent.as_ref().map(|id| id.as_str().to_owned());
    // One state has made a branch of the parent.
    if place(&other) > place(&union) {
        fork::move_to(&mut union.line, &other.line)?;
    }
    let sealed = other.line.sealed_seq.min(union.line.next_seq);
    union.line.sealed_seq = union.line.sealed_seq.max(sealed);
    let mut is_changed = false;
    for (message, other) in union.messages.iter_mut().zip(other.messages) {
        // Both imported the same record, each with a salt of its own.
        let is_other_copy = message.salt.is_some()
            && other.salt.is_some()
            && message.digest != other.digest
            && (message.tick, message.created_at, message.tokens)
                == (other.tick, other.created_at, other.tokens);
        if is_other_copy && redacted.is_none() && text_of(&other) < text_of(message) {
            (is_changed, *message) = (true, other);
        }
    }
    if is_changed {
        chain_again(&mut union);
    }
    for call in other.calls {
        unite_call(&mut union.calls, call);
    }
    union
        .calls
        .sort_by_key(|call| (call.started_at.clone(), call.call_id.clone(), call.nth));
    Ok(union)
}

fn unite_call(calls: &mut Vec<CallLine>, call: CallLine) {
    let rank = |call: &CallLine| (call.finished_at.is_some(), call.attempts, text_of(call));
    let is_same = |other: &&mut CallLine| (&other.call_id, other.nth) == (&call.call_id, call.nth);
    match calls.iter_mut().find(is_same) {
        Some(known) if rank(known) < rank(&call) => *known = call,
        Some(_) => {}
        None => calls.push(call),
    }
}

/// Computes the chain of digests of a loop anew.
pub(crate) fn chain_again(one: &mut LoopDocument) {
    let mut chain = [0; 32];
    for message in &one.messages {
        let digest: [u8; 32] = codec::unhex(&message.digest).unwrap_or_default();
        let stamp = message.created_at.filter(|_| message.stamped);
        chain = codec::chain(&chain, &digest, stamp);
    }
    one.line.chain = hex::encode(chain);
}

/// Returns the loops in one order: by tick and id, parents first.
fn in_order(loops: Vec<LoopDocument>) -> Result<Vec<LoopDocument>, String> {
    let ids: HashSet<LoopId> = loops.iter().map(|one| one.line.loop_id.clone()).collect();
    let count = loops.len();
    let mut children: HashMap<LoopId, Vec<LoopDocument>> = HashMap::new();
    let mut ready: BTreeMap<(i64, String), LoopDocument> = BTreeMap::new();
    let place = |one: &LoopDocument| (one.line.tick, one.line.loop_id.as_str().to_owned());
    for one in loops {
        match one.line.parent.clone().filter(|id| ids.contains(id)) {
            Some(parent) => children.entry(parent).or_default().push(one),
            None => drop(ready.insert(place(&one), one)),
        }
    }
    let mut ordered = Vec::with_capacity(count);
    while let Some((_, next)) = ready.pop_first() {
        let own = children.remove(&next.line.loop_id);
        ready.extend(own.into_iter().flatten().map(|one| (place(&one), one)));
        ordered.push(next);
    }
    match ordered.len() == count {
        true => Ok(ordered),
        false => Err("its loops continue each other in a circle".into()),
    }
}

/// Returns all rows of both, each once, in the order of their ticks.
fn by_tick<T: serde::Serialize>(a: Vec<T>, b: Vec<T>, tick: impl Fn(&T) -> i64) -> Vec<T> {
    let rows = a.into_iter().chain(b);
    let ordered: BTreeMap<(i64, String), T> =
        rows.map(|row| ((tick(&row), text_of(&row)), row)).collect();
    ordered.into_values().collect()
}

fn unite_runs(
    a: Vec<RunDocument>,
    b: Vec<RunDocument>,
    redacted: Option<MergeSide>,
) -> Vec<RunDocument> {
    let mut runs: BTreeMap<String, RunDocument> =
        (a.into_iter().map(|run| (run.line.run.clone(), run))).collect();
    for run in b {
        let united = match runs.remove(&run.line.run) {
            Some(known) => unite_run(known, run, redacted),
            None => run,
        };
        runs.insert(united.line.run.clone(), united);
    }
    let mut runs: Vec<RunDocument> = runs.into_values().collect();
    runs.sort_by_key(|run| (run.line.tick, run.line.run.clone()));
    runs
}

/// Returns the union of two states of a run: the same rows, and the undos and redos of both.
fn unite_run(a: RunDocument, b: RunDocument, redacted: Option<MergeSide>) -> RunDocument {
    let rank = |run: &RunDocument| {
        let blocks = run.blocks.iter().map(|block| {
            let mut line = block.line.clone();
            (line.generation, line.extends) = (0, None);
            text_of(&line)
        });
        let rows = blocks.chain(run.edits.iter().map(text_of));
        (text_of(&run.line), rows.collect::<Vec<_>>())
    };
    let is_a = match redacted {
        Some(side) => side == MergeSide::A,
        None => rank(&a) <= rank(&b),
    };
    let (mut union, other) = if is_a { (a, b) } else { (b, a) };
    let flips = std::mem::take(&mut union.flips);
    union.flips = by_tick(flips, other.flips, |flip| flip.tick);
    union
}

fn unite_manifests(a: Vec<ManifestDocument>, b: Vec<ManifestDocument>) -> Vec<ManifestDocument> {
    let rows = a.into_iter().chain(b);
    let ordered: BTreeMap<(i64, String), ManifestDocument> = rows
        .map(|row| ((row.line.tick, row.line.manifest.clone()), row))
        .collect();
    ordered.into_values().collect()
}

/// Returns the attachments of both: a flag that one has set is set, and each key of an append is there once.
fn unite_attachments(a: Vec<Attachment>, b: Vec<Attachment>) -> Vec<Attachment> {
    let (mut redacts, mut protected) = (false, None::<String>);
    let (mut imports, mut keys) = (BTreeSet::new(), BTreeMap::new());
    let mut rows: Vec<Attachment> = a.into_iter().chain(b).collect();
    rows.sort();
    for row in rows {
        match row {
            Attachment::Flags {
                redacts: also,
                protected_at,
            } => {
                redacts |= also;
                protected = protected.into_iter().chain(protected_at).min();
            }
            Attachment::Import { .. } => {
                imports.insert(row);
            }
            Attachment::AppendKey { ref name, .. } => {
                keys.entry(name.clone()).or_insert(row);
            }
        }
    }
    let mut united = Vec::new();
    if redacts || protected.is_some() {
        united.push(Attachment::Flags {
            redacts,
            protected_at: protected,
        });
    }
    united.extend(imports);
    united.extend(keys.into_values());
    united
}

/// Numbers the generations of the blocks of each loop in the order of their runs, and writes the numbers into the rows
/// that refer to blocks.
fn number_blocks(union: &mut SessionDocument) {
    let order: HashMap<LoopId, usize> = union
        .loops
        .iter()
        .enumerate()
        .map(|(at, one)| (one.line.loop_id.clone(), at))
        .collect();
    let place = |id: &LoopId| order.get(id).copied().unwrap_or(usize::MAX);
    let mut generations: HashMap<LoopId, u32> = HashMap::new();
    let mut addresses: HashMap<(String, LoopId), BlockAddress> = HashMap::new();
    for run in &mut union.runs {
        run.blocks.sort_by_key(|block| place(&block.line.loop_id));
        for block in &mut run.blocks {
            let line = &mut block.line;
            let newest = generations.entry(line.loop_id.clone()).or_default();
            *newest += 1;
            line.generation = *newest;
            let address = BlockAddress {
                loop_id: line.loop_id.clone(),
                generation: line.generation,
            };
            addresses.insert((line.run.clone(), line.loop_id.clone()), address);
        }
    }
    let address = |run: &Option<String>, loop_id: &LoopId| {
        let key = (run.clone()?, loop_id.clone());
        addresses.get(&key).cloned()
    };
    for block in union.runs.iter_mut().flat_map(|run| &mut run.blocks) {
        if let Some(extends) = &mut block.line.extends
            && let Some(new) = address(&block.extends, &extends.loop_id)
        {
            *extends = new;
        }
    }
    for manifest in &mut union.manifests {
        let parts = manifest.line.parts.iter_mut().zip(&manifest.block_runs);
        for (part, run) in parts {
            if let Some(block) = &mut part.block
                && let Some(new) = address(run, &block.loop_id)
            {
                *block = new;
            }
        }
    }
    for one in &mut union.loops {
        one.line.generation = generations.get(&one.line.loop_id).copied().unwrap_or(0);
    }
}
