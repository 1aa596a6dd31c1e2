//! The order of the sessions of a search.

use std::collections::HashMap;

use super::rank::{self, SessionWords};
use super::run::{HitPage, LIMIT, Ranked, SearchRun, rounded};
use super::text::{MessageText, TextField};
use super::{SessionHit, SessionResults};
use crate::store::index::IndexFilter;
use crate::store::prompt::{own_title, session_title};
use crate::store::{SessionKey, StoreResult};

/// A session with its fused rank, the score of its best message, and its hits.
type RankedSession<'r> = (f64, f64, (SessionKey, Vec<&'r Ranked>));

/// The number of hits that are returned of a session.
const HITS_OF_SESSION: usize = 3;

/// A title that matches.
pub(super) struct TitleMatch {
    pub(super) score: f64,
    /// The occurrences of each term, weighted by field.
    weights: Vec<f64>,
    /// The number of its words.
    words: u32,
}

impl SearchRun<'_> {
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
        let sessions = self.ordered(sessions, &titles);
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
                let Some(hit) = self.fitting(&found.found)? else {
                    continue;
                };
                if let Some(hit) = self.unlike(&mut page, found, hit, usize::MAX)? {
                    let hit = self.hit(found, hit)?;
                    page.push(hit, found);
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

    /// Orders sessions by their best messages and by all their matching messages together; returns each with its score.
    fn ordered<'r>(
        &self,
        sessions: HashMap<SessionKey, Vec<&'r Ranked>>,
        titles: &HashMap<SessionKey, TitleMatch>,
    ) -> Vec<(f64, SessionKey, Vec<&'r Ranked>)> {
        let mut sessions: Vec<_> = sessions.into_iter().collect();
        // In order, so that equal ranks fall alike each time.
        sessions.sort_by_key(|(session, _)| std::cmp::Reverse(*session));
        let best = sessions.iter().map(|(session, found)| {
            let scores = found.iter().map(|found| found.score);
            let title = titles.get(session).map(|title| title.score);
            rank::of_session(scores.chain(title).collect())
        });
        let best: Vec<f64> = best.collect();
        let texts = sessions.iter().map(|(session, found)| {
            let mut words = SessionWords::default();
            for found in found {
                words.add(&found.weights, found.words);
            }
            if let Some(title) = titles.get(session) {
                words.add(&title.weights, title.words);
            }
            words
        });
        let texts: Vec<SessionWords> = texts.collect();
        let usual = SessionWords::mean(texts.iter());
        let whole = texts.iter().map(|text| self.ranking.whole(text, usual));
        let fused = rank::fused(&best, &whole.collect::<Vec<f64>>());
        let mut order: Vec<RankedSession<'_>> = fused
            .into_iter()
            .zip(best)
            .zip(sessions)
            .map(|((fused, best), session)| (fused, best, session))
            .collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
        let each = |(_, score, (session, found))| (score, session, found);
        order.into_iter().map(each).collect()
    }

    /// Returns the sessions whose own titles match. A title made of a prompt is searched as a message.
    fn titles(&mut self) -> StoreResult<HashMap<SessionKey, TitleMatch>> {
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
                let title = self.title_match(row.title.as_deref());
                titles.extend(title.map(|title| (row.key, title)));
            }
        }
        Ok(titles)
    }

    /// Matches the own title of a session.
    pub(super) fn title_match(&mut self, title: Option<&str>) -> Option<TitleMatch> {
        let mut text = MessageText::default();
        text.push(TextField::Title, own_title(title)?.to_owned());
        let matches = self.matcher.places(&text)?;
        Some(TitleMatch {
            score: self.ranking.score(&matches).score,
            words: matches.length,
            weights: matches.weights,
        })
    }
}
