//! The ticks of a union. Each database counts its own ticks, so two continuations use the same ones.
//!
//! A tick orders what was done to a session, and each tick is used once. In the union every event keeps its place
//! relative to the other events of each database: an event that both have gets the later of its two ticks, and later
//! events are moved up as far as needed. Equal ticks are then separated in the order of the events' names. All of it
//! depends on the events only, so every database finds the same ticks, and further syncs change nothing.

use std::collections::HashMap;

use loopstore::model::LoopId;

use crate::document::{SessionDocument, text_of};

/// The number of passes after which the ticks of two databases must agree.
const PASSES: usize = 1_000;

/// The name of an event. Events of one tick are in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Event {
    Loop(LoopId),
    /// The messages of a loop that were appended at one tick, by the first of them.
    Append(LoopId, u32),
    Run(String),
    Flip(String, String),
    Pin(String),
    Hide(String),
}

/// Gives the events of both states the ticks that they have in the union. Returns the last tick.
///
/// # Errors
/// If the states have common events in another order; with the reason.
pub(crate) fn align(a: &mut SessionDocument, b: &mut SessionDocument) -> Result<i64, String> {
    let sides = [events(a), events(b)];
    let mut ticks: HashMap<Event, i64> = HashMap::new();
    for (event, tick) in sides.iter().flatten() {
        let known = ticks.entry(event.clone()).or_insert(*tick);
        *known = (*known).max(*tick);
    }
    let mut passes = 0;
    // Each pass raises the events of both sides.
    while sides.each_ref().map(|side| raise(side, &mut ticks)) != [false, false] {
        passes += 1;
        if passes > PASSES {
            return Err("both databases have the same events in another order".into());
        }
    }
    let mut ordered: Vec<(i64, Event)> =
        (ticks.into_iter().map(|(event, tick)| (tick, event))).collect();
    ordered.sort();
    let mut last = 0;
    let mut united = HashMap::with_capacity(ordered.len());
    for (tick, event) in ordered {
        last = tick.max(last + 1);
        united.insert(event, last);
    }
    for (document, side) in [a, b].into_iter().zip(&sides) {
        apply(document, side, &united);
    }
    Ok(last)
}

/// Raises the ticks of events that come after others; returns true if one was raised.
fn raise(side: &[(Event, i64)], ticks: &mut HashMap<Event, i64>) -> bool {
    let mut is_raised = false;
    let (mut before, mut last) = (i64::MIN, 0);
    for (event, tick) in side {
        let least = last + i64::from(*tick > before);
        let known = ticks.entry(event.clone()).or_insert(least);
        if *known < least {
            (is_raised, *known) = (true, least);
        }
        (before, last) = (*tick, (*known).max(last));
    }
    is_raised
}

/// Returns the events of a session with their ticks, in order.
fn events(document: &SessionDocument) -> Vec<(Event, i64)> {
    let mut events = Vec::new();
    for one in &document.loops {
        let id = &one.line.loop_id;
        events.push((Event::Loop(id.clone()), one.line.tick));
        let mut before = None;
        for message in &one.messages {
            if before.replace(message.tick) != Some(message.tick) {
                events.push((Event::Append(id.clone(), message.seq), message.tick));
            }
        }
    }
    for run in &document.runs {
        events.push((Event::Run(run.line.run.clone()), run.line.tick));
        for flip in &run.flips {
            let mut line = flip.clone();
            line.tick = 0;
            events.push((Event::Flip(flip.run.clone(), text_of(&line)), flip.tick));
        }
    }
    for pin in &document.pins {
        let mut line = pin.clone();
        line.tick = 0;
        events.push((Event::Pin(text_of(&line)), pin.tick));
    }
    for hide in &document.hides {
        let mut line = hide.clone();
        line.tick = 0;
        events.push((Event::Hide(text_of(&line)), hide.tick));
    }
    events.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    events
}

/// Writes the ticks of the union into a state; `side` has its former ones.
fn apply(document: &mut SessionDocument, side: &[(Event, i64)], ticks: &HashMap<Event, i64>) {
    let of = |event: &Event, former: i64| ticks.get(event).copied().unwrap_or(former);
    for one in &mut document.loops {
        let id = one.line.loop_id.clone();
        one.line.tick = of(&Event::Loop(id.clone()), one.line.tick);
        let mut moved: HashMap<i64, i64> = HashMap::new();
        for message in &mut one.messages {
            let append = || of(&Event::Append(id.clone(), message.seq), message.tick);
            let tick = *moved.entry(message.tick).or_insert_with(append);
            message.tick = tick;
        }
        // The tick of a turn is that of its last message which is no extension.
        for turn in &mut one.turns {
            turn.tick = moved.get(&turn.tick).copied().unwrap_or(turn.tick);
        }
    }
    for manifest in &mut document.manifests {
        // The moment of a manifest is that of the last event before it.
        let line = &mut manifest.line;
        let count = side.partition_point(|(_, tick)| *tick <= line.tick);
        if let Some((event, former)) = count.checked_sub(1).and_then(|last| side.get(last)) {
            line.tick = of(event, *former);
        }
    }
    for run in &mut document.runs {
        let line = &mut run.line;
        line.tick = of(&Event::Run(line.run.clone()), line.tick);
        for flip in &mut run.flips {
            let former = std::mem::take(&mut flip.tick);
            flip.tick = of(&Event::Flip(flip.run.clone(), text_of(flip)), former);
        }
    }
    for pin in &mut document.pins {
        let former = std::mem::take(&mut pin.tick);
        pin.tick = of(&Event::Pin(text_of(pin)), former);
    }
    for hide in &mut document.hides {
        let former = std::mem::take(&mut hide.tick);
        hide.tick = of(&Event::Hide(text_of(hide)), former);
    }
}
