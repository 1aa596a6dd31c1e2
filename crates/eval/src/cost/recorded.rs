//! The costs of a session with the compactions that its transcript records.

use std::collections::HashMap;

use loopstore::compaction::StrategyError;
use loopstore::context::{AsOf, PartSection};
use loopstore::extend::SessionStore;
use loopstore::model::{Role, SessionId};
use loopstore::{BuildOptions, Context, build_context_from_session};

use super::meter::Meter;
use super::reads::FileReads;
use super::{CostResult, RECORDED, TokenPrices};
use crate::History;

/// The default policy fires at this share of its window, in percent.
const FIRES_AT: u64 = 85;

/// Returns the costs of a session with its recorded compactions, and the window in which the default policy would
/// make the first of them; `None` if no answer follows a compaction.
pub(super) fn recorded_cost(
    store: &dyn SessionStore,
    session: &SessionId,
    history: &History,
    prices: &TokenPrices,
) -> Result<Option<(CostResult, u64)>, StrategyError> {
    let counter = store.counter();
    let mut meter = Meter::new(RECORDED, prices, counter);
    let mut reads = FileReads::default();
    let (mut called, mut text, mut window) = (None, 0, None);
    let places = places(history);
    for (placed, as_of) in history.messages.iter().zip(places) {
        let is_answer = placed.message.role() == Role::Assistant;
        if is_answer && called != Some(placed.turn) {
            called = Some(placed.turn);
            let options = BuildOptions {
                as_of: Some(as_of),
                ..BuildOptions::default()
            };
            let context = build_context_from_session(store, session, &options);
            let context = context.map_err(|error| StrategyError::Failed(error.to_string()))?;
            let now = text_tokens(&context);
            let is_compacted = now != text && now > 0;
            if is_compacted {
                window = window.or(Some(meter.tokens() * 100 / FIRES_AT));
                meter.own_call(now);
            }
            text = now;
            meter.call(&context.messages, is_compacted);
            if is_compacted {
                reads.compacted(&context.messages, placed.turn);
            }
        }
        for (call, content) in reads.note(&placed.message, placed.turn, counter) {
            meter.read_again(call, content);
        }
        meter.appended(&placed.message, is_answer);
    }
    Ok(window
        .filter(|w| *w > 0)
        .map(|window| (meter.result(), window)))
}

/// Returns the moment before each message of a history.
fn places(history: &History) -> Vec<AsOf> {
    let mut by_turn: HashMap<u32, usize> = HashMap::new();
    for (at, one) in history.loops.iter().enumerate() {
        by_turn.insert(one.first_turn, at);
    }
    let mut at = 0;
    let mut moments = Vec::with_capacity(history.messages.len());
    for placed in &history.messages {
        at = by_turn
            .get(&placed.turn)
            .copied()
            .map_or(at, |found| found.max(at));
        moments.push(AsOf::Before {
            loop_id: history.loops[at].loop_id.clone(),
            seq: placed.seq,
        });
    }
    moments
}

/// Returns the tokens of the texts that replace turns.
fn text_tokens(context: &Context) -> u64 {
    let is_text = |section| matches!(section, PartSection::Rollup | PartSection::Compacted);
    let parts = context.parts.iter().filter(|part| is_text(part.section));
    parts.map(|part| part.tokens).sum()
}
