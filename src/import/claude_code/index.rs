//! The first pass: which session, loop and turn each record belongs to.
//!
//! Everything is decided record by record in the order of the file, looking only back, so that a
//! transcript that has grown gives what it gave before and then more. Parents are looked up among
//! the records seen so far; a parent that is missing, comes later or forms a cycle is none, and
//! the record goes on where the transcript stands.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::by_id::ById;
use super::record::{Glance, Kind, Speech};
use super::track::{Answer, NewLoop, Step, Track};
use crate::import::lines::Place;
use crate::model::ContinuationKind;

/// What is known of a record that others may name as their parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    track: u32,
    /// The loop that it stands in, [`NO_LOOP`] before the first one.
    loop_key: u32,
    turn: u32,
    line: u64,
    digest: u64,
}

/// There is one of these for each record, so loops and tracks are counted in half the bytes. No index
/// of so many fits into memory.
const NO_LOOP: u32 = u32::MAX;

impl Known {
    pub(super) fn track(&self) -> usize {
        self.track as usize
    }

    /// Returns the loop and turn that it stands in; `None` before the first loop.
    pub(super) fn at(&self) -> Option<(usize, u32)> {
        (self.loop_key != NO_LOOP).then_some((self.loop_key as usize, self.turn))
    }

    pub(super) fn set_at(&mut self, at: Option<(usize, u32)>) {
        (self.loop_key, self.turn) = match at {
            Some((loop_key, turn)) => (small(loop_key), turn),
            None => (NO_LOOP, 0),
        };
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NO_LOOP)
}

/// Where a record's parent stands.
#[derive(Clone, Copy, Debug)]
enum Parent {
    /// The record says that it has none.
    None,
    /// Its parent is not among the records before it.
    Unknown,
    /// Its parent stands before the first loop.
    Lead,
    At(usize, u32),
}

/// A call and where it stands.
#[derive(Clone, Debug)]
pub(super) struct KnownCall {
    pub(super) name: Arc<str>,
    /// The loop in the main track; `None` for a call of a sub-agent.
    pub(super) main_loop: Option<usize>,
}

/// Everything that the first pass learns.
pub(super) struct Index {
    /// The session of the file first, then sub-agents recorded within it.
    pub(super) tracks: Vec<Track>,
    pub(super) answers: Vec<Answer>,
    pub(super) session: Option<String>,
    pub(super) title: Option<String>,
    stem: String,
    pub(super) known: ById<Known>,
    /// The last answer of each message id, with its track and loop.
    messages: ById<[u32; 3]>,
    calls: ById<KnownCall>,
    /// The names of tools, each held once.
    tools: HashSet<Arc<str>>,
    /// Calls by the digest of the prompt that they give a sub-agent; a used one is taken out.
    prompts: HashMap<u64, Vec<String>>,
    /// Sub-agents by id, and the call that started each.
    agents: HashMap<String, Option<String>>,
    agent_tracks: HashMap<String, usize>,
    titles: Vec<(String, String)>,
}

impl Index {
    /// Starts the index of a file named `stem`.
    pub(super) fn new(stem: &str) -> Self {
        Self {
            tracks: vec![Track::default()],
            answers: Vec::new(),
            session: None,
            title: None,
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

    /// Takes the next record; an error says why it is not used.
    pub(super) fn record(&mut self, glance: Glance, place: Place) -> Result<(), String> {
        if let Some(session) = &glance.session
            && self.session.as_deref() != Some(self.stem.as_str())
        {
            self.session = Some(session.clone());
        }
        self.titles.extend(glance.title.clone());
        if let Some((agent, call)) = &glance.spawned {
            let known = self.agents.entry(agent.clone()).or_default();
            *known = known.take().or_else(|| call.clone());
        }
        let track = self.track_of(&glance, place);
        self.tracks[track].saw(glance.time.as_deref());
        if let Some(line) = self.repeats(track, &glance) {
            return Err(format!("repeats the record of line {line}"));
        }
        if !matches!(glance.kind, Kind::Note | Kind::Summary) {
            self.tracks[track].give_up_boundary();
        }
        match glance.kind {
            Kind::User => self.user(track, &glance, place),
            Kind::Assistant => return self.assistant(track, &glance, place),
            Kind::Summary => self.summary(track, &glance, place),
            Kind::Boundary => self.boundary(track, &glance, place),
            Kind::Microcompact | Kind::Note => self.note(track, &glance, place),
        }
        Ok(())
    }

    /// Takes what is no record, to be kept with the rest.
    pub(super) fn unreadable(&mut self, place: Place) {
        let track = self.home();
        self.tracks[track].note(place, false);
    }

    /// Settles what only the end of the file decides; returns what is left over.
    pub(super) fn finish(&mut self) -> Vec<(u64, &'static str)> {
        let known = &self.known;
        let about = self
            .titles
            .iter()
            .rev()
            .find(|(leaf, _)| known.contains(leaf));
        self.title = about.map(|(_, title)| title.clone());
        let mut left = Vec::new();
        for track in &mut self.tracks {
            if let Some(boundary) = track.boundary.take() {
                left.push((boundary.place.line, "a compaction without its summary"));
            }
            if track.loops.is_empty() {
                let reason = "no conversation that it belongs to";
                left.extend(track.lead.drain(..).map(|step| (step.line(), reason)));
            }
        }
        left.sort_unstable();
        left
    }

    /// Gives back what only the first pass and [`Index::loop_of_record`] need: most of the memory.
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
    ) -> Option<(&'a str, &'a KnownCall)> {
        let named = agent.and_then(|agent| self.agents.get(agent)?.as_ref());
        let prompted = || self.prompts.get(&track.first_prompt?)?.first();
        let call = |id: Option<&'a String>| Some((id?.as_str(), self.calls.get(id?)?));
        call(named)
            .or_else(|| call(track.spawned_by.as_ref()))
            .or_else(|| call(prompted()))
    }

    /// Returns the loop of the main session that the record `uuid` stands in.
    pub(super) fn loop_of_record(&self, uuid: &str) -> Option<usize> {
        let known = self.known.get(uuid).filter(|known| known.track() == 0)?;
        known.at().map(|(loop_no, _)| loop_no)
    }

    /// The track for what belongs to no record's own: the main one, unless the file so far is a
    /// sub-agent's.
    fn home(&self) -> usize {
        if self.tracks[0].loops.is_empty() && self.tracks[0].lead.is_empty() {
            self.tracks.len() - 1
        } else {
            0
        }
    }

    fn track_of(&mut self, glance: &Glance, place: Place) -> usize {
        if glance.sidechain != Some(true) {
            return if glance.uuid.is_some() || glance.sidechain.is_some() {
                0
            } else {
                self.home()
            };
        }
        let found = match (&glance.agent, self.parent(glance)) {
            (Some(agent), _) => self.agent_tracks.get(agent).copied(),
            (None, Some(known)) if known.track() > 0 => Some(known.track()),
            (None, _) if glance.speech != Some(Speech::Prompt) && self.tracks.len() > 1 => {
                Some(self.tracks.len() - 1)
            }
            _ => None,
        };
        found.unwrap_or_else(|| {
            let spawned_by = match glance.text {
                Some(prompt) if glance.agent.is_none() => self.take_prompt(prompt),
                _ => None,
            };
            if let Some(agent) = &glance.agent {
                self.agent_tracks.insert(agent.clone(), self.tracks.len());
            }
            self.tracks.push(Track::of_agent(glance, place, spawned_by));
            self.tracks.len() - 1
        })
    }

    /// Takes the first call that gave a sub-agent this prompt and has none yet.
    fn take_prompt(&mut self, prompt: u64) -> Option<String> {
        let calls = self.prompts.get_mut(&prompt)?;
        (!calls.is_empty()).then(|| calls.remove(0))
    }

    fn parent(&self, glance: &Glance) -> Option<&Known> {
        self.known.get(glance.parent.as_ref()?)
    }

    fn place_of_parent(&self, track: usize, glance: &Glance) -> Parent {
        match (&glance.parent, self.parent(glance)) {
            (None, _) => Parent::None,
            (_, Some(known)) if known.track() == track => match known.at() {
                Some((loop_no, turn)) => Parent::At(loop_no, turn),
                None => Parent::Lead,
            },
            _ => Parent::Unknown,
        }
    }

    /// Returns the line that the record was on before, if it was. A record that comes again below
    /// the summary of a compaction was kept by it: what follows hangs there.
    fn repeats(&mut self, track: usize, glance: &Glance) -> Option<u64> {
        let uuid = glance.uuid.as_ref()?;
        let earlier = self.known.get(uuid)?;
        if earlier.digest != glance.digest || earlier.track() != track {
            return None;
        }
        let line = earlier.line;
        let moved = match self.parent(glance) {
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
        glance: &Glance,
        place: Place,
        at: Option<(usize, u32)>,
    ) {
        if let Some(uuid) = &glance.uuid {
            let mut known = Known {
                track: small(track),
                loop_key: NO_LOOP,
                turn: 0,
                line: place.line,
                digest: glance.digest,
            };
            known.set_at(at);
            self.known.insert(uuid, known);
        }
    }

    fn user(&mut self, track: usize, glance: &Glance, place: Place) {
        if glance.speech != Some(Speech::Prompt) {
            return self.added(track, glance, place);
        }
        let parent = self.place_of_parent(track, glance);
        let state = &mut self.tracks[track];
        state.linked |= matches!(parent, Parent::At(..) | Parent::Lead);
        let (parent, kind) = match parent {
            _ if state.loops.is_empty() => (None, ContinuationKind::Initial),
            Parent::At(loop_no, turn) if state.is_tail(loop_no, turn) => {
                (Some((loop_no, turn)), ContinuationKind::Default)
            }
            Parent::At(loop_no, turn) => (Some((loop_no, turn)), branch(glance)),
            Parent::Lead => (None, branch(glance)),
            // In a file that has links a prompt without a parent was typed at the very beginning.
            Parent::None if state.linked => (None, branch(glance)),
            Parent::None | Parent::Unknown => (state.end(), ContinuationKind::Default),
        };
        let loop_no = state.begin(NewLoop::new(glance, place, parent, kind));
        let turn = state.loops[loop_no].speech(Speech::Prompt);
        state.push(
            loop_no,
            Step::User {
                loop_no,
                turn,
                text_turn: turn,
                place,
            },
        );
        self.know(track, glance, place, Some((loop_no, turn)));
    }

    /// Takes a record in the user's name that is no prompt.
    pub(super) fn added(&mut self, track: usize, glance: &Glance, place: Place) {
        if self.tracks[track].loops.is_empty() && glance.results.is_empty() {
            let parent = self.place_of_parent(track, glance);
            let state = &mut self.tracks[track];
            state.linked |= matches!(parent, Parent::Lead);
            state.lead_with(glance, place);
            return self.know(track, glance, place, None);
        }
        let loop_no = self.loop_for(track, glance, place, glance.speech.is_some());
        let state = &mut self.tracks[track];
        let info = &mut state.loops[loop_no];
        for id in &glance.results {
            info.result(id);
        }
        let turn = info.turn;
        let text_turn = glance.speech.map_or(turn, |speech| info.speech(speech));
        state.push(
            loop_no,
            Step::User {
                loop_no,
                turn,
                text_turn,
                place,
            },
        );
        if glance.speech.is_some() {
            state.current = Some(loop_no);
        }
        self.know(track, glance, place, Some((loop_no, text_turn)));
    }

    fn assistant(&mut self, track: usize, glance: &Glance, place: Place) -> Result<(), String> {
        let id = glance.message_id.clone().or_else(|| glance.uuid.clone());
        let known = id.as_ref().and_then(|id| self.messages.get(id)).copied();
        let known = known.map(|numbers| numbers.map(|number| number as usize));
        if let Some([in_track, loop_no, answer]) = known.filter(|known| known[0] == track) {
            if let Some(line) = self.answers[answer].repeats(glance) {
                let at = Some((loop_no, self.answers[answer].turn));
                self.know(track, glance, place, at);
                return Err(format!("repeats the record of line {line}"));
            }
            if self.answers[answer].takes(place)
                && self.loop_for(track, glance, place, false) == loop_no
            {
                self.extend_answer(in_track, (loop_no, answer), glance, place);
                return Ok(());
            }
        }
        let loop_no = self.loop_for(track, glance, place, true);
        let answer = self.answers.len();
        let state = &mut self.tracks[track];
        let turn = state.loops[loop_no].answer(glance.model.as_deref());
        self.answers.push(Answer::new(turn));
        state.push(
            loop_no,
            Step::Answer {
                loop_no,
                turn,
                answer,
            },
        );
        state.current = Some(loop_no);
        if let Some(id) = id {
            let numbers = [track, loop_no, answer].map(small);
            self.messages.insert(&id, numbers);
        }
        self.extend_answer(track, (loop_no, answer), glance, place);
        Ok(())
    }

    fn extend_answer(
        &mut self,
        track: usize,
        (loop_no, answer): (usize, usize),
        glance: &Glance,
        place: Place,
    ) {
        self.answers[answer].add(glance, place);
        let turn = self.answers[answer].turn;
        self.tracks[track].loops[loop_no].joined(glance, turn);
        for call in &glance.calls {
            let main_loop = (track == 0).then_some(loop_no);
            let name = self.tool(&call.name);
            let known = KnownCall { name, main_loop };
            self.calls.insert(&call.id, known);
            if let Some(prompt) = call.prompt {
                self.prompts
                    .entry(prompt)
                    .or_default()
                    .push(call.id.clone());
            }
        }
        self.know(track, glance, place, Some((loop_no, turn)));
    }

    fn tool(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.tools.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.tools.insert(name.clone());
        name
    }

    /// Returns the loop that a record goes to that is no prompt, and begins it if need be: where
    /// its parent is, else where the transcript stands.
    ///
    /// If it goes on (`goes_on`) from a loop that others already go on from, it is a rewind by
    /// something else than a prompt, such as a command.
    pub(super) fn loop_for(
        &mut self,
        track: usize,
        glance: &Glance,
        place: Place,
        goes_on: bool,
    ) -> usize {
        let parent = self.place_of_parent(track, glance);
        let state = &mut self.tracks[track];
        state.linked |= matches!(parent, Parent::At(..) | Parent::Lead);
        match (parent, state.current) {
            (_, None) => state.begin(NewLoop::new(glance, place, None, ContinuationKind::Initial)),
            (Parent::At(loop_no, turn), Some(current)) if loop_no != current => {
                if goes_on && state.loops[loop_no].last_child.is_some() {
                    let parent = Some((loop_no, turn));
                    state.begin(NewLoop::new(glance, place, parent, branch(glance)))
                } else {
                    loop_no
                }
            }
            (_, Some(current)) => current,
        }
    }

    /// Takes a record that no model sees: it stands where the transcript stands, while records
    /// that name it as their parent hang where its own parent does.
    pub(super) fn note(&mut self, track: usize, glance: &Glance, place: Place) {
        let parent = self.place_of_parent(track, glance);
        let state = &mut self.tracks[track];
        let at = match parent {
            Parent::At(loop_no, turn) => Some((loop_no, turn)),
            Parent::Lead => None,
            Parent::None | Parent::Unknown => state.end(),
        };
        state.note(place, glance.kind == Kind::Microcompact);
        self.know(track, glance, place, at);
    }
}

fn branch(glance: &Glance) -> ContinuationKind {
    let uuid = glance.uuid.as_deref().unwrap_or("rewind");
    ContinuationKind::Branch {
        tag: uuid.chars().take(8).collect(),
    }
}
