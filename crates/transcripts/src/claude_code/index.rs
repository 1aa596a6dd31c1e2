//! The first pass: which session, loop and turn each record belongs to.
//!
//! Records are handled in the order of the file, and each only with regard to those before it, so that a transcript
//! that has grown yields the same calls as before and then more. Parents are looked up among the records seen so far.
//! If a parent is missing, comes later or is part of a cycle, the record continues at the current position.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use loopstore::model::ContinuationKind;

use super::by_id::ById;
use super::record::{ClaudeRecord, RecordKind, RecordTitle, Speech};
use super::track::{
    AnswerRecords, Track, TrackStep, add_part, add_result, add_speech, begin_answer,
};
use crate::lines::SourceLocation;

/// The indexed facts of a record that others may name as their parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownRecord {
    track: u32,
    /// The loop that contains it, [`NO_LOOP`] before the first one.
    loop_key: u32,
    turn: u32,
    line: u64,
    digest: u64,
}

/// The number of a loop or track has 32 bits, since there is one of these structs for each record; an index of more
/// records would not fit into memory.
const NO_LOOP: u32 = u32::MAX;

impl KnownRecord {
    pub(super) fn track(&self) -> usize {
        self.track as usize
    }

    /// Returns the loop and turn that contain the record; `None` before the first loop.
    pub(super) fn at(&self) -> Option<(usize, u32)> {
        (self.loop_key != NO_LOOP).then_some((self.loop_key as usize, self.turn))
    }

    pub(super) fn set_at(&mut self, at: Option<(usize, u32)>) {
        (self.loop_key, self.turn) = match at {
            Some((loop_key, turn)) => (to_u32(loop_key), turn),
            None => (NO_LOOP, 0),
        };
    }
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NO_LOOP)
}

/// The position of the parent of a record.
#[derive(Clone, Copy, Debug)]
enum ParentRecord {
    /// The record has no parent.
    None,
    /// The parent is not among the earlier records.
    Unknown,
    /// Its parent comes before the first loop.
    Preamble,
    At(usize, u32),
}

/// A call and its position.
#[derive(Clone, Debug)]
pub(super) struct IndexedCall {
    pub(super) name: Arc<str>,
    /// The loop in the main track; `None` for a call of a sub-agent.
    pub(super) main_loop: Option<usize>,
}

/// The facts that the first pass collects.
pub(super) struct ClaudeIndex {
    /// The session of the file, then the sub-agents recorded in the file.
    pub(super) tracks: Vec<Track>,
    pub(super) answers: Vec<AnswerRecords>,
    pub(super) session: Option<String>,
    /// The session that the first prompt names.
    first_session: Option<String>,
    pub(super) title: Option<String>,
    /// The folder in which the session began.
    pub(super) project: Option<String>,
    stem: String,
    pub(super) known: ById<KnownRecord>,
    /// The last answer of each message id, with its track and loop.
    messages: ById<[u32; 3]>,
    calls: ById<IndexedCall>,
    /// The names of tools, each held once.
    tools: HashSet<Arc<str>>,
    /// Calls by the digest of the prompt that they give a sub-agent; a call is removed once a sub-agent was found for
    /// it.
    prompts: HashMap<u64, Vec<String>>,
    /// Sub-agents by id, and the call that started each.
    agents: HashMap<String, Option<String>>,
    agent_tracks: HashMap<String, usize>,
    titles: Vec<RecordTitle>,
}

impl ClaudeIndex {
    /// Returns the empty index of a file named `stem`.
    pub(super) fn new(stem: &str) -> Self {
        Self {
            tracks: vec![Track::default()],
            answers: Vec::new(),
            session: None,
            first_session: None,
            title: None,
            project: None,
            stem: stem.to_owned(),
            known: ById::default(),
            messages: ById::default(),
            calls: ById::default(),
            tools: HashSet::new(),
            prompts: HashMap::new(),
            agents: HashMap::new(),
            agent_tracks: HashMap::new(),
            titles: Vec::new(),
        }
    }

    /// Indexes the next record; an error gives the reason why the record is not used.
    pub(super) fn record(
        &mut self,
        head: ClaudeRecord,
        place: SourceLocation,
    ) -> Result<(), String> {
        if let Some(session) = &head.session
            && self.session.as_deref() != Some(self.stem.as_str())
        {
            self.session = Some(session.clone());
        }
        self.titles.extend(head.title.clone());
        if self.project.is_none() {
            self.project.clone_from(&head.project);
        }
        if let Some((agent, call)) = &head.spawned {
            let known = self.agents.entry(agent.clone()).or_default();
            *known = known.take().or_else(|| call.clone());
        }
        let track = self.track_of(&head, place);
        self.tracks[track].update_time(head.time.as_deref());
        if let Some(line) = self.repeats(track, &head) {
            return Err(format!("repeats the record of line {line}"));
        }
        if !matches!(head.kind, RecordKind::Extension | RecordKind::Summary) {
            self.tracks[track].drop_boundary();
        }
        match head.kind {
            RecordKind::User => self.user(track, &head, place),
            RecordKind::Assistant => return self.assistant(track, &head, place),
            RecordKind::Summary => self.summary(track, &head, place),
            RecordKind::Boundary => self.boundary(track, &head, place),
            RecordKind::Microcompact | RecordKind::Extension => self.note(track, &head, place),
        }
        Ok(())
    }

    /// Indexes bytes that are not a record, which are kept as an extension.
    pub(super) fn unreadable(&mut self, place: SourceLocation) {
        let track = self.default_track();
        self.tracks[track].note(place, false);
    }

    /// Returns the newest title of the highest rank: one that a person gave, else one made for the session, else one of
    /// its conversation.
    fn newest_title(&self) -> Option<String> {
        let ranked = self.titles.iter().filter_map(|title| match title {
            RecordTitle::Given(text) => Some((2, text)),
            RecordTitle::Made(text) => Some((1, text)),
            RecordTitle::About(leaf, text) => self.known.contains(leaf).then_some((0, text)),
        });
        // Among equal ranks the last wins.
        let best = ranked.max_by_key(|(rank, _)| *rank);
        best.map(|(_, text)| text.clone())
    }

    /// Decides what only the end of the file shows. Returns the records that are left over, with the reasons.
    pub(super) fn finish(&mut self) -> Vec<(u64, &'static str)> {
        self.title = self.newest_title();
        let mut left = Vec::new();
        for track in &mut self.tracks {
            if let Some(boundary) = track.boundary.take() {
                left.push((boundary.place.line, "a compaction without its summary"));
            }
            if track.loops.is_empty() {
                let reason = "no conversation that it belongs to";
                left.extend(track.preamble.drain(..).map(|step| (step.line(), reason)));
            }
        }
        left.sort_unstable();
        left
    }

    /// Frees the facts that only the first pass and [`ClaudeIndex::loop_of_record`] need: most of the memory.
    pub(super) fn forget_records(&mut self) {
        self.known = ById::default();
        self.messages = ById::default();
    }

    /// Returns the name of the tool that the call `id` calls.
    pub(super) fn tool_name(&self, id: &str) -> Option<&str> {
        self.calls.get(id).map(|call| &*call.name)
    }

    /// Returns the call that started the sub-agent of this id or with this first prompt, and its id.
    pub(super) fn spawning_call<'a>(
        &'a self,
        agent: Option<&str>,
        track: &'a Track,
    ) -> Option<(&'a str, &'a IndexedCall)> {
        let named = agent.and_then(|agent| self.agents.get(agent)?.as_ref());
        let prompted = || self.prompts.get(&track.first_prompt?)?.first();
        let call = |id: Option<&'a String>| Some((id?.as_str(), self.calls.get(id?)?));
        call(named)
            .or_else(|| call(track.spawned_by.as_ref()))
            .or_else(|| call(prompted()))
    }

    /// Returns the loop of the main session that contains the record `uuid`.
    pub(super) fn loop_of_record(&self, uuid: &str) -> Option<usize> {
        let known = self.known.get(uuid).filter(|known| known.track() == 0)?;
        known.at().map(|(loop_no, _)| loop_no)
    }

    /// Returns the track of records without a track of their own: the main one, unless the file so far is a
    /// sub-agent's.
    fn default_track(&self) -> usize {
        if self.tracks[0].loops.is_empty() && self.tracks[0].preamble.is_empty() {
            self.tracks.len() - 1
        } else {
            0
        }
    }

    fn track_of(&mut self, head: &ClaudeRecord, place: SourceLocation) -> usize {
        if head.sidechain != Some(true) {
            return if head.uuid.is_some() || head.sidechain.is_some() {
                0
            } else {
                self.default_track()
            };
        }
        let found = match (&head.agent, self.parent(head)) {
            (Some(agent), _) => self.agent_tracks.get(agent).copied(),
            (None, Some(known)) if known.track() > 0 => Some(known.track()),
            (None, _) if head.speech != Some(Speech::Prompt) && self.tracks.len() > 1 => {
                Some(self.tracks.len() - 1)
            }
            _ => None,
        };
        found.unwrap_or_else(|| {
            let spawned_by = match head.text {
                Some(prompt) if head.agent.is_none() => self.take_prompt(prompt),
                _ => None,
            };
            if let Some(agent) = &head.agent {
                self.agent_tracks.insert(agent.clone(), self.tracks.len());
            }
            self.tracks.push(Track::of_agent(head, place, spawned_by));
            self.tracks.len() - 1
        })
    }

    /// Removes and returns the first call that gave a sub-agent this prompt and has no sub-agent yet.
    fn take_prompt(&mut self, prompt: u64) -> Option<String> {
        let calls = self.prompts.get_mut(&prompt)?;
        (!calls.is_empty()).then(|| calls.remove(0))
    }

    fn parent(&self, head: &ClaudeRecord) -> Option<&KnownRecord> {
        self.known.get(head.parent.as_ref()?)
    }

    fn place_of_parent(&self, track: usize, head: &ClaudeRecord) -> ParentRecord {
        match (&head.parent, self.parent(head)) {
            (None, _) => ParentRecord::None,
            (_, Some(known)) if known.track() == track => match known.at() {
                Some((loop_no, turn)) => ParentRecord::At(loop_no, turn),
                None => ParentRecord::Preamble,
            },
            _ => ParentRecord::Unknown,
        }
    }

    /// Returns the line of an earlier copy of the record, if there is one. A record that is repeated below the summary
    /// of a compaction was kept by it, so later records continue from there.
    fn repeats(&mut self, track: usize, head: &ClaudeRecord) -> Option<u64> {
        let uuid = head.uuid.as_ref()?;
        let earlier = self.known.get(uuid)?;
        if earlier.digest != head.digest || earlier.track() != track {
            return None;
        }
        let line = earlier.line;
        let moved = match self.parent(head) {
            Some(parent) if parent.track() == track && parent.line > line => parent.at(),
            _ => None,
        };
        if let (Some(at), Some(earlier)) = (moved, self.known.get_mut(uuid)) {
            earlier.set_at(Some(at));
        }
        Some(line)
    }

    pub(super) fn know(
        &mut self,
        track: usize,
        head: &ClaudeRecord,
        place: SourceLocation,
        at: Option<(usize, u32)>,
    ) {
        if let Some(uuid) = &head.uuid {
            let mut known = KnownRecord {
                track: to_u32(track),
                loop_key: NO_LOOP,
                turn: 0,
                line: place.line,
                digest: head.digest,
            };
            known.set_at(at);
            self.known.insert(uuid, known);
        }
    }

    fn user(&mut self, track: usize, head: &ClaudeRecord, place: SourceLocation) {
        if head.speech != Some(Speech::Prompt) {
            return self.added(track, head, place);
        }
        let parent = self.place_of_parent(track, head);
        let state = &mut self.tracks[track];
        state.linked |= matches!(parent, ParentRecord::At(..) | ParentRecord::Preamble);
        if state.loops.is_empty() {
            self.first_session.clone_from(&head.session);
        }
        let is_of_other_session = head.session.is_some() && head.session != self.first_session;
        let (parent, kind) = match parent {
            _ if state.loops.is_empty() => (None, ContinuationKind::Initial),
            ParentRecord::At(loop_no, turn) if state.loops.is_tail((loop_no, turn)) => {
                (Some((loop_no, turn)), ContinuationKind::Default)
            }
            ParentRecord::At(loop_no, turn) => (Some((loop_no, turn)), branch(head)),
            ParentRecord::Preamble => (None, branch(head)),
            // In a file with links, a prompt without a parent was typed at the very beginning. So was a prompt of
            // another session whose records alternate with those of the first.
            ParentRecord::None if state.linked || is_of_other_session => (None, branch(head)),
            ParentRecord::None | ParentRecord::Unknown => (state.end(), ContinuationKind::Default),
        };
        let loop_no = state.begin(head, place, parent, kind);
        let turn = add_speech(&mut state.loops[loop_no], Speech::Prompt);
        state.push(
            loop_no,
            TrackStep::User {
                loop_no,
                turn,
                text_turn: turn,
                place,
            },
        );
        self.know(track, head, place, Some((loop_no, turn)));
    }

    /// Indexes a record of the user that is not a prompt.
    pub(super) fn added(&mut self, track: usize, head: &ClaudeRecord, place: SourceLocation) {
        if self.tracks[track].loops.is_empty() && head.results.is_empty() {
            let parent = self.place_of_parent(track, head);
            let state = &mut self.tracks[track];
            state.linked |= matches!(parent, ParentRecord::Preamble);
            state.add_to_preamble(head, place);
            return self.know(track, head, place, None);
        }
        let loop_no = self.loop_for(track, head, place, head.speech.is_some());
        let state = &mut self.tracks[track];
        let info = &mut state.loops[loop_no];
        for id in &head.results {
            add_result(info, id);
        }
        let turn = info.turn;
        let text_turn = head.speech.map_or(turn, |speech| add_speech(info, speech));
        state.push(
            loop_no,
            TrackStep::User {
                loop_no,
                turn,
                text_turn,
                place,
            },
        );
        if head.speech.is_some() {
            state.current = Some(loop_no);
        }
        self.know(track, head, place, Some((loop_no, text_turn)));
    }

    fn assistant(
        &mut self,
        track: usize,
        head: &ClaudeRecord,
        place: SourceLocation,
    ) -> Result<(), String> {
        let id = head.message_id.clone().or_else(|| head.uuid.clone());
        let known = id.as_ref().and_then(|id| self.messages.get(id)).copied();
        let known = known.map(|numbers| numbers.map(|number| number as usize));
        if let Some([in_track, loop_no, answer]) = known.filter(|known| known[0] == track) {
            if let Some(line) = self.answers[answer].repeats(head) {
                let at = Some((loop_no, self.answers[answer].turn));
                self.know(track, head, place, at);
                return Err(format!("repeats the record of line {line}"));
            }
            if self.answers[answer].takes(place)
                && self.loop_for(track, head, place, false) == loop_no
            {
                self.extend_answer(in_track, (loop_no, answer), head, place);
                return Ok(());
            }
        }
        let loop_no = self.loop_for(track, head, place, true);
        let answer = self.answers.len();
        let state = &mut self.tracks[track];
        let turn = begin_answer(&mut state.loops[loop_no], head.model.as_deref());
        self.answers.push(AnswerRecords::new(turn));
        state.push(
            loop_no,
            TrackStep::Answer {
                loop_no,
                turn,
                answer,
            },
        );
        state.current = Some(loop_no);
        if let Some(id) = id {
            let numbers = [track, loop_no, answer].map(to_u32);
            self.messages.insert(&id, numbers);
        }
        self.extend_answer(track, (loop_no, answer), head, place);
        Ok(())
    }

    fn extend_answer(
        &mut self,
        track: usize,
        (loop_no, answer): (usize, usize),
        head: &ClaudeRecord,
        place: SourceLocation,
    ) {
        self.answers[answer].add(head, place);
        let turn = self.answers[answer].turn;
        add_part(&mut self.tracks[track].loops[loop_no], head, turn);
        for call in &head.calls {
            let main_loop = (track == 0).then_some(loop_no);
            let name = self.tool(&call.name);
            let known = IndexedCall { name, main_loop };
            self.calls.insert(&call.id, known);
            if let Some(prompt) = call.prompt {
                self.prompts
                    .entry(prompt)
                    .or_default()
                    .push(call.id.clone());
            }
        }
        self.know(track, head, place, Some((loop_no, turn)));
    }

    fn tool(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.tools.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.tools.insert(name.clone());
        name
    }

    /// Returns the loop of a record that is not a prompt, and begins it if necessary: the loop of its parent, else the
    /// current one.
    ///
    /// If the record continues (`continues`) from a loop from which other loops continue already, it is a rewind by
    /// something other than a prompt, such as a command.
    pub(super) fn loop_for(
        &mut self,
        track: usize,
        head: &ClaudeRecord,
        place: SourceLocation,
        continues: bool,
    ) -> usize {
        let parent = self.place_of_parent(track, head);
        let state = &mut self.tracks[track];
        state.linked |= matches!(parent, ParentRecord::At(..) | ParentRecord::Preamble);
        match (parent, state.current) {
            (_, None) => state.begin(head, place, None, ContinuationKind::Initial),
            (ParentRecord::At(loop_no, turn), Some(current)) if loop_no != current => {
                if continues && state.loops[loop_no].last_child.is_some() {
                    let parent = Some((loop_no, turn));
                    state.begin(head, place, parent, branch(head))
                } else {
                    loop_no
                }
            }
            (_, Some(current)) => current,
        }
    }

    /// Indexes a record that no model sees. It belongs to the current position; records that name it as their parent
    /// continue from its own parent.
    pub(super) fn note(&mut self, track: usize, head: &ClaudeRecord, place: SourceLocation) {
        let parent = self.place_of_parent(track, head);
        let state = &mut self.tracks[track];
        let at = match parent {
            ParentRecord::At(loop_no, turn) => Some((loop_no, turn)),
            ParentRecord::Preamble => None,
            ParentRecord::None | ParentRecord::Unknown => state.end(),
        };
        state.note(place, head.kind == RecordKind::Microcompact);
        self.know(track, head, place, at);
    }
}

fn branch(head: &ClaudeRecord) -> ContinuationKind {
    let uuid = head.uuid.as_deref().unwrap_or("rewind");
    ContinuationKind::Branch {
        tag: uuid.chars().take(8).collect(),
    }
}
