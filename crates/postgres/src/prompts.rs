//! The prompts of sessions and loops, from which titles are made.

use std::ops::ControlFlow;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::prompt_place;
use loopstore_core::store::prompt::{PromptPlace, PromptsOf, VisitPrompt};
use loopstore_core::store::{StoreError, StoreResult};

use super::connection::Param;
use super::row::PostgresRow;
use super::transaction::{PostgresTransaction, paged};

/// The number of prompts that are fetched at a time: in a list of many sessions each is a row.
const PAGE: i64 = 256;

const PLACE: &str = "p.session, p.loop, p.seq";
const PROMPT: &str = "p.session, p.loop, p.seq, p.turn, p.created_at, p.role, p.tokens, p.bytes,
    p.body_block, p.head, p.body, p.escaped";

/// Returns the query for a page of prompts after `$2`, the key of the last session or loop; `$1` is the
/// session, or the sessions.
fn sql(of: PromptsOf<'_>, columns: &str, limit: u32) -> String {
    let first = "ORDER BY m.author, m.loop, m.seq";
    let prompts = "SELECT m.* FROM messages m WHERE m.role = 0 AND m.author < 2 AND m.session";
    match of {
        PromptsOf::Sessions(_) => format!(
            "SELECT {columns} FROM sessions s
                 CROSS JOIN LATERAL ({prompts} = s.session {first} LIMIT 1) p
             WHERE s.session = ANY ($1) AND s.session > $2 ORDER BY s.session LIMIT {PAGE}"
        ),
        PromptsOf::EachLoop(_) => format!(
            "SELECT {columns} FROM loops l
                 CROSS JOIN LATERAL ({prompts} = $1 AND m.loop = l.key {first} LIMIT 1) p
             WHERE l.session = $1 AND l.key > $2 ORDER BY l.key LIMIT {PAGE}"
        ),
        PromptsOf::Session(_) => {
            format!(
                "SELECT {columns} FROM ({prompts} = $1 AND m.loop > $2 {first} LIMIT {limit}) p"
            )
        }
        PromptsOf::Loop(..) => {
            format!(
                "SELECT {columns} FROM ({prompts} = $1 AND m.loop = $2 {first} LIMIT {limit}) p"
            )
        }
    }
}

impl PostgresTransaction<'_> {
    pub(super) fn read_prompt_places(
        &self,
        of: PromptsOf<'_>,
        limit: u32,
    ) -> StoreResult<Vec<PromptPlace>> {
        let mut places = Vec::new();
        self.each_prompt(of, PLACE, limit, &mut |_, place| {
            places.push(place);
            Ok(())
        })?;
        Ok(places)
    }

    /// Visits prompts, with one query for each page over all sessions.
    pub(super) fn read_prompts(
        &self,
        of: PromptsOf<'_>,
        visit: &mut VisitPrompt<'_>,
    ) -> StoreResult<()> {
        self.each_prompt(of, PROMPT, 1, &mut |row, place| {
            let done = self.say(place.loop_key, row, false, &mut |message| {
                visit(place, message);
                Ok(ControlFlow::Continue(()))
            });
            match done {
                Err(StoreError::Damaged(_)) => Ok(()),
                done => done.map(drop),
            }
        })
    }

    fn each_prompt(
        &self,
        of: PromptsOf<'_>,
        columns: &str,
        limit: u32,
        each: &mut dyn FnMut(&PostgresRow, PromptPlace) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let sql = sql(of, columns, limit);
        // Keys are positive.
        let (session, start) = match of {
            PromptsOf::Sessions(_) => (None, 0),
            PromptsOf::EachLoop(session) | PromptsOf::Session(session) => (Some(session.0), 0),
            PromptsOf::Loop(session, loop_key) => (Some(session.0), loop_key.0),
        };
        if let Some(session) = session {
            self.lock(session)?;
        }
        let sessions: Vec<i64> = match of {
            PromptsOf::Sessions(sessions) => sessions.iter().map(|key| key.0).collect(),
            _ => Vec::new(),
        };
        let ask = |after: i64| {
            let of: Param<'_> = match &session {
                Some(session) => session,
                None => &sessions,
            };
            self.ask(&sql, &[of, &after])
        };
        if matches!(of, PromptsOf::Session(_) | PromptsOf::Loop(..)) {
            return ask(start)?
                .iter()
                .try_for_each(|row| each(row, prompt_place(row)?));
        }
        let last = |row: &PostgresRow| match of {
            PromptsOf::Sessions(_) => row.get("session").unwrap_or(i64::MAX),
            _ => row.get("loop").unwrap_or(i64::MAX),
        };
        paged(
            PAGE,
            last,
            |after| ask(after.unwrap_or(start)),
            &mut |row| {
                each(&row, prompt_place(&row)?)?;
                Ok(ControlFlow::Continue(()))
            },
        )
    }
}
