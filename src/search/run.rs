//! One search within one snapshot: narrow, read, score, and fill the page.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use super::candidates::{self, Candidates, SearchCandidate};
use super::duplicates::WordSet;
use super::matching::{Matcher, QueryMatches};
use super::query::Query;
use super::rank::{self, PositionedScore, Ranking, Score};
use super::text::{MessageText, TextField, message_text};
use super::visibility::{Visibility, VisibilityCache};
use super::{
    MessageLocation, SearchHit, SearchQuery, SearchResults, SessionHit, SessionResults, snippet,
};
use crate::context::session_of;
use crate::model::{Role, Time};
use crate::store::index::{IndexFilter, IndexState, Match};
use crate::store::prompt::{own_title, session_title};
use crate::store::{self, LoopKey, MessageRow, SessionKey, SessionRow, StoreRead, StoreResult};

/// The number of hits of a search without a limit.
const LIMIT: usize = 20;

/// The number of hits that are returned of a session.
const HITS_OF_SESSION: usize = 3;

/// The number of messages whose text is read and scored: the most promising.
const MOST_READ: usize = 1000;

/// Bytes of these messages.
const MOST_BYTES: u64 = 16 << 20;

/// The number of sessions in which messages of other loops count as around a message: the sessions of the best hits.
const SESSIONS_IN_ORDER: usize = 64;

/// Bytes of a word with what parts it, about.
const BYTES_OF_A_WORD: f64 = 6.0;

/// One search within one snapshot.
pub(super) struct SearchRun<'a> {
    read: &'a dyn StoreRead,
    query: &'a SearchQuery,
    words: &'a Query,
    filter: IndexFilter,
    state: IndexState,
    is_usable: bool,
    matcher: Matcher<'a>,
    ranking: Ranking<'a>,
    visibilities: VisibilityCache,
}

/// A message with its score.
struct Ranked {
    found: Match,
    score: f64,
}

/// A message that was read and matches.
struct Fitting {
    role: Role,
    created_at: Option<i64>,
    text: MessageText,
    matches: QueryMatches,
    visibility: Visibility,
}

impl<'a> SearchRun<'a> {
    pub(super) fn new(
        read: &'a dyn StoreRead,
        query: &'a SearchQuery,
        words: &'a Query,
    ) -> StoreResult<Self> {
        let filter = IndexFilter {
            sessions: sessions_of(read, query)?,
            role: query.role,
            tool: query.tool.clone(),
            since: query.since,
            until: query.until,
        };
        Ok(Self {
            read,
            query,
            words,
            filter,
            is_usable: read.index_version()? == Some(crate::words::VERSION),
            state: read.index_state()?,
            matcher: Matcher::new(words),
            ranking: Ranking::new(words, &vec![0; words.terms.len()], 0),
            visibilities: VisibilityCache::default(),
        })
    }

    /// Finds messages.
    pub(super) fn messages(mut self) -> StoreResult<SearchResults> {
        let ranked = self.ranked()?;
        let (limit, offset) = (self.query.limit.unwrap_or(LIMIT), self.query.offset);
        let mut page = HitPage::default();
        for found in &ranked {
            let Some(hit) = self.fitting(&found.found)? else {
                continue;
            };
            if self.folds(&mut page, found, &hit, limit)? {
                continue;
            }
            if page.hits.len() == offset + limit {
                page.is_full = true;
                break;
            }
            let hit = self.hit(found, hit)?;
            page.hits.push(hit);
        }
        Ok(SearchResults {
            hits: page.hits.into_iter().skip(offset).collect(),
            indexed: self.indexed(),
            next: page.is_full.then_some(offset + limit),
        })
    }

    /// Finds sessions.
    pub(super) fn sessions(mut self) -> StoreResult<SessionResults> {
        let ranked = self.ranked()?;
        let mut sessions: HashMap<SessionKey, Vec<&Ranked>> = HashMap::new();
        for found in ranked.iter().filter(|found| found.score > 0.0) {
            sessions.entry(found.found.session).or_default().push(found);
        }
        let titles = self.titles()?;
        for session in titles.keys() {
            sessions.entry(*session).or_default();
        }
        let mut sessions: Vec<(f64, SessionKey, Vec<&Ranked>)> = sessions
            .into_iter()
            .map(|(session, found)| {
                let scores = found.iter().map(|found| found.score);
                let scores = scores.chain(titles.get(&session).copied()).collect();
                (rank::of_session(scores), session, found)
            })
            .collect();
        sessions.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let (limit, offset) = (self.query.limit.unwrap_or(LIMIT), self.query.offset);
        let mut results = SessionResults {
            indexed: self.indexed(),
            next: (sessions.len() > offset + limit).then_some(offset + limit),
            ..SessionResults::default()
        };
        for (score, session, found) in sessions.into_iter().skip(offset).take(limit) {
            let mut page = HitPage::default();
            for found in found {
                if page.hits.len() == HITS_OF_SESSION {
                    break;
                }
                if let Some(hit) = self.fitting(&found.found)?
                    && !self.folds(&mut page, found, &hit, usize::MAX)?
                {
                    let hit = self.hit(found, hit)?;
                    page.hits.push(hit);
                }
            }
            let row = self.visibilities.session(self.read, session)?.clone();
            results.sessions.push(SessionHit {
                title: session_title(self.read, &row)?,
                session_id: row.session_id,
                project: row.project,
                source: row.source,
                last_active_at: row.last_active_at,
                score: rounded(score),
                hits: page.hits,
            });
        }
        Ok(results)
    }

    /// Returns the sessions whose own titles match, with their scores. A title made of a prompt is searched as
    /// a message.
    fn titles(&mut self) -> StoreResult<HashMap<SessionKey, f64>> {
        let mut titles = HashMap::new();
        let of_messages = IndexFilter {
            sessions: None,
            ..self.filter.clone()
        };
        // A title has no role, tool or time, and is in no context.
        let is_narrowed = of_messages != IndexFilter::default() || self.query.hidden.is_some();
        if is_narrowed || self.words.has_conditions() {
            return Ok(titles);
        }
        for row in self.read.sessions()? {
            let only = self.filter.sessions.as_ref();
            if only.is_none_or(|only| only.contains(&row.key)) {
                let score = self.title_score(row.title.as_deref());
                titles.extend(score.map(|score| (row.key, score)));
            }
        }
        Ok(titles)
    }

    fn title_score(&mut self, title: Option<&str>) -> Option<f64> {
        let mut text = MessageText::default();
        text.push(TextField::Title, own_title(title)?.to_owned());
        let matches = self.matcher.places(&text)?;
        Some(self.ranking.score(&matches).score)
    }

    fn indexed(&self) -> u64 {
        if self.is_usable {
            self.state.indexed
        } else {
            0
        }
    }

    /// Returns the matching messages, the best first.
    fn ranked(&mut self) -> StoreResult<Vec<Ranked>> {
        let mut candidates = Candidates::default();
        let mut holders = vec![0; self.words.terms.len()];
        if self.is_usable {
            let (read, words) = (self.read, self.words);
            holders = candidates::holders(read, words)?;
            candidates::gather(read, words, &self.filter, &holders, &mut candidates)?;
        }
        self.scan(&mut candidates, &mut holders)?;
        self.ranking = Ranking::new(self.words, &holders, self.state.total);
        let mut candidates = candidates.into_vec();
        if self.query.hidden.is_some() {
            candidates = self.seen_as_wanted(candidates)?;
        }
        let (chosen, rest) = promising(candidates, &self.ranking);
        let mut ranked = Vec::new();
        for found in chosen {
            if let Some(Score { score, .. }) = self.score(&found)? {
                ranked.push(Ranked { found, score });
            }
        }
        ranked.sort_by(best_first);
        let positions = self.positions(&ranked)?;
        let positioned = |(found, at): (&Ranked, &u64)| PositionedScore {
            session: found.found.session,
            at: *at,
            score: found.score,
        };
        let ranked_scores = ranked.iter().zip(&positions).map(positioned);
        let ranked_scores: Vec<PositionedScore> = ranked_scores.collect();
        let mut titles = HashMap::new();
        for (found, score) in ranked
            .iter_mut()
            .zip(rank::with_surroundings(&ranked_scores))
        {
            let session = found.found.session;
            let title = match titles.get(&session) {
                Some(score) => *score,
                None => {
                    let title = self.visibilities.session(self.read, session)?.title.clone();
                    let score = self.title_score(title.as_deref()).unwrap_or_default();
                    *titles.entry(session).or_insert(score)
                }
            };
            found.score = score + rank::AROUND * title;
        }
        ranked.sort_by(best_first);
        // Later pages include them.
        let unread = |found| Ranked { found, score: 0.0 };
        ranked.extend(rest.into_iter().map(unread));
        Ok(ranked)
    }

    fn seen_as_wanted(
        &mut self,
        candidates: Vec<SearchCandidate>,
    ) -> StoreResult<Vec<SearchCandidate>> {
        let mut kept = Vec::new();
        for candidate in candidates {
            let visibility = self.visibilities.of(self.read, &candidate.found)?;
            if Some(visibility.hidden) == self.query.hidden {
                kept.push(candidate);
            }
        }
        Ok(kept)
    }

    fn score(&mut self, found: &Match) -> StoreResult<Option<Score>> {
        let mut score = None;
        let seqs = found.seq..found.seq.saturating_add(1);
        let (matcher, ranking) = (&mut self.matcher, &self.ranking);
        self.read
            .message_refs(found.loop_key, seqs, false, &mut |row| {
                let message = store::codec::decode_ref(&row.message, &mut |_| Ok(None))?;
                let matches = matcher.places(&message_text(message, found.author));
                score = matches.map(|matches| ranking.score(&matches));
                Ok(ControlFlow::Break(()))
            })?;
        Ok(score)
    }

    /// Returns the positions of the messages in their sessions, counted in messages over all loops.
    fn positions(&self, ranked: &[Ranked]) -> StoreResult<Vec<u64>> {
        let mut first_of: HashMap<LoopKey, u64> = HashMap::new();
        let mut known = HashSet::new();
        for found in ranked {
            let session = found.found.session;
            if known.len() < SESSIONS_IN_ORDER && known.insert(session) {
                let mut first = 0;
                for (loop_key, length) in self.read.loop_lengths(session)? {
                    first_of.insert(loop_key, first);
                    first += u64::from(length);
                }
            }
        }
        // Beyond these sessions, each loop is far from the others.
        let mut apart: BTreeMap<LoopKey, u64> = BTreeMap::new();
        for found in ranked {
            let loops = apart.len() as u64;
            apart.entry(found.found.loop_key).or_insert(loops << 32);
        }
        let at = |found: &Ranked| {
            let key = &found.found.loop_key;
            let first = first_of.get(key).or_else(|| apart.get(key));
            first.copied().unwrap_or_default() + u64::from(found.found.seq)
        };
        Ok(ranked.iter().map(at).collect())
    }

    /// Reads the messages that are not indexed.
    fn scan(&mut self, candidates: &mut Candidates, holders: &mut [u64]) -> StoreResult<()> {
        for (loop_key, from, to) in self.unindexed()? {
            let session = self.visibilities.loop_of(self.read, loop_key)?.session;
            let only = self.filter.sessions.as_ref();
            if only.is_some_and(|only| !only.contains(&session)) {
                continue;
            }
            self.read.messages(loop_key, from..to, &mut |row| {
                let is_wanted = passes(&self.filter, &row);
                let found = Match {
                    loop_key,
                    seq: row.seq,
                    session,
                    turn: row.turn,
                    role: row.body.role,
                    author: row.body.author,
                    bytes: row.body.bytes,
                    tick: row.tick,
                };
                let text = text_in(row)?;
                if let Some(matches) = self.matcher.places(&text) {
                    let weights = matches.weights.iter().enumerate();
                    let held = weights.filter(|(_, weight)| **weight > 0.0);
                    let held: Vec<usize> = held.map(|(term, _)| term).collect();
                    // As in the index, a word is as rare as it is among all messages.
                    held.iter().for_each(|term| holders[*term] += 1);
                    let tool = self.filter.tool.as_ref();
                    if is_wanted && tool.is_none_or(|tool| text.tools.contains(tool)) {
                        candidates.add(found, &held);
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    }

    /// Returns loops with the sequences that the index does not have.
    fn unindexed(&self) -> StoreResult<Vec<(LoopKey, u32, u32)>> {
        let mut open = Vec::new();
        if self.is_usable {
            for loop_key in self.read.unindexed()? {
                let seqs = self.read.unindexed_seqs(loop_key)?;
                open.push((loop_key, seqs.start, seqs.end));
            }
            return Ok(open);
        }
        for session in self.read.sessions()? {
            let loops = self.read.loop_lengths(session.key)?;
            open.extend(loops.into_iter().map(|(key, length)| (key, 0, length)));
        }
        Ok(open)
    }

    fn row(&self, found: &Match) -> StoreResult<Option<MessageRow>> {
        let mut row = None;
        let seqs = found.seq..found.seq.saturating_add(1);
        self.read.messages(found.loop_key, seqs, &mut |message| {
            row = Some(message);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(row)
    }

    /// Reads a message that was found; `None` if the filters exclude it.
    fn fitting(&mut self, found: &Match) -> StoreResult<Option<Fitting>> {
        let Some(row) = self.row(found)? else {
            return Ok(None);
        };
        let visibility = self.visibilities.of(self.read, found)?;
        if self
            .query
            .hidden
            .is_some_and(|hidden| hidden != visibility.hidden)
        {
            return Ok(None);
        }
        let created_at = row.created_at;
        let text = text_in(row)?;
        let Some(matches) = self.matcher.places(&text) else {
            return Ok(None);
        };
        Ok(Some(Fitting {
            role: found.role,
            created_at,
            text,
            matches,
            visibility,
        }))
    }

    /// Adds a message to a hit before it with nearly the same text, if there is one. A page of `limit` hits that
    /// was full before could not contain the message: it is a hit of a later page then.
    fn folds(
        &mut self,
        page: &mut HitPage,
        found: &Ranked,
        hit: &Fitting,
        limit: usize,
    ) -> StoreResult<bool> {
        let words = WordSet::of(&hit.text);
        let same = page.words.iter().rposition(|known| known.is_like(&words));
        let ends = |same: usize| (same / limit.max(1) + 1).saturating_mul(limit);
        let is_named = |same: &usize| *same < page.hits.len() && page.hits.len() <= ends(*same);
        let Some(same) = same.filter(is_named) else {
            page.words.push(words);
            return Ok(false);
        };
        let place = self.place(&found.found)?;
        page.hits[same].also.push(place);
        Ok(true)
    }

    fn place(&mut self, found: &Match) -> StoreResult<MessageLocation> {
        let owner = self.visibilities.session(self.read, found.session)?;
        let session_id = owner.session_id.clone();
        let row = self.visibilities.loop_of(self.read, found.loop_key)?;
        Ok(MessageLocation {
            session_id,
            loop_id: row.loop_id.clone(),
            turn: found.turn,
            seq: found.seq,
        })
    }

    fn hit(&mut self, found: &Ranked, hit: Fitting) -> StoreResult<SearchHit> {
        let MessageLocation {
            session_id,
            loop_id,
            turn,
            seq,
        } = self.place(&found.found)?;
        let Score { relevance, .. } = self.ranking.score(&hit.matches);
        let (mut run, mut block_loop, mut generation, mut disposition) = (None, None, None, None);
        if let Some(by) = hit.visibility.by {
            disposition = Some(by.disposition);
            (run, block_loop) = (Some(by.run), Some(by.loop_id));
            generation = Some(by.generation);
        }
        Ok(SearchHit {
            session_id,
            loop_id,
            turn,
            seq,
            role: hit.role,
            created_at: hit.created_at.and_then(Time::from_millis),
            snippet: snippet::snippet(&hit.text, &hit.matches),
            score: rounded(found.score),
            relevance: (relevance * 1e3).round() / 1e3,
            hidden: hit.visibility.hidden,
            run_id: run,
            block_loop_id: block_loop,
            generation,
            disposition,
            also: Vec::new(),
        })
    }
}

/// The hits from the first one on.
#[derive(Default)]
struct HitPage {
    hits: Vec<SearchHit>,
    /// The words of each hit.
    words: Vec<WordSet>,
    is_full: bool,
}

/// Returns the sessions to search; all if `None`. Hidden sessions are skipped, unless one is named.
fn sessions_of(read: &dyn StoreRead, query: &SearchQuery) -> StoreResult<Option<Vec<SessionKey>>> {
    if let Some(id) = &query.session {
        return Ok(Some(vec![session_of(read, id)?.key]));
    }
    let hidden = read.hidden_sessions()?;
    if query.source.is_none() && query.project.is_none() && hidden.is_empty() {
        return Ok(None);
    }
    let project = query.project.as_ref().map(|project| project.to_lowercase());
    let fits = |row: &SessionRow| {
        let folder = row.project.as_ref().map(|folder| folder.to_lowercase());
        let is_source = query.source.is_none() || row.source == query.source;
        let is_in = |project| folder.is_some_and(|folder| folder.contains(project));
        let is_shown = hidden.binary_search(&row.key).is_err();
        is_shown && is_source && project.as_deref().is_none_or(is_in)
    };
    let rows = read.sessions()?.into_iter().filter(fits);
    Ok(Some(rows.map(|row| row.key).collect()))
}

/// Returns the candidates that are worth reading, in the order in which they are stored, and the others,
/// the best first.
fn promising(candidates: Vec<SearchCandidate>, ranking: &Ranking<'_>) -> (Vec<Match>, Vec<Match>) {
    let estimate = |candidate: &SearchCandidate| {
        let found = &candidate.found;
        let field = TextField::of(found.role, found.author);
        let length = found.bytes as f64 / BYTES_OF_A_WORD;
        ranking.estimate(candidate.held.iter(), field.weight(), length)
    };
    let mut by_worth: Vec<(f64, Match)> = candidates
        .iter()
        .map(|candidate| (estimate(candidate), candidate.found))
        .collect();
    by_worth.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(other.age().cmp(&one.age())));
    let mut bytes: u64 = 0;
    let fits = |(_, found): &&(f64, Match)| {
        let is_within = bytes < MOST_BYTES;
        bytes = bytes.saturating_add(found.bytes);
        is_within
    };
    let count = by_worth.iter().take(MOST_READ).take_while(fits).count();
    let mut chosen: Vec<Match> = by_worth.iter().map(|(_, found)| *found).collect();
    let rest = chosen.split_off(count);
    chosen.sort_by_key(|found| (found.loop_key, found.seq));
    (chosen, rest)
}

fn best_first(one: &Ranked, other: &Ranked) -> std::cmp::Ordering {
    let by_score = other.score.total_cmp(&one.score);
    by_score.then_with(|| other.found.age().cmp(&one.found.age()))
}

fn rounded(score: f64) -> f64 {
    (score * 1e6).round() / 1e6
}

fn passes(filter: &IndexFilter, row: &MessageRow) -> bool {
    let at = row.created_at;
    let since = |since| at.is_some_and(|at| at >= since);
    let until = |until| at.is_some_and(|at| at <= until);
    filter.role.is_none_or(|role| role == row.body.role)
        && filter.since.is_none_or(since)
        && filter.until.is_none_or(until)
}

fn text_in(row: MessageRow) -> StoreResult<MessageText> {
    let author = row.body.author;
    // Images are not searched, so their bytes are not read.
    let message = store::codec::decode(row.body, &mut |_| Ok(None))?;
    Ok(message_text(message, author))
}
