//! The ticks of a union.
//!
//! A tick orders what was done to a session. Each database raises its own counter, beginning after the ticks that it
//! has received: what was done after something else has a later tick. So an event keeps its tick in every database, and
//! two databases that continued a session at the same time use the same ticks. Rows with equal ticks are in the order
//! of their names ([`merge`](crate::merge)), which is the same in every database.
//!
//! Only a session that two databases imported independently may have other ticks for the same events. Each event then
//! gets the later of both ticks, and what has to come after it is moved up: the messages of a loop after its start and
//! in their order, a run after the messages that it covers, an undo after its run, a pin after its message. These are the least ticks with that
//! property, so they do not depend on the order in which databases were brought together.

use std::collections::HashMap;

use loopstore::model::LoopId;

use crate::document::{LoopDocument, SessionDocument, text_of};

/// The name of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Event {
    Loop(LoopId),
    Message(LoopId, u32),
    Run(String),
    /// An undo or redo of a run, and its number among those that are equal.
    Flip(String, u32),
    Pin(String, u32),
    Hide(String, u32),
}

/// Gives the events of both states the ticks that they have in the union. Returns the last tick.
pub(crate) fn align(a: &mut SessionDocument, b: &mut SessionDocument) -> i64 {
    let mut last = a.line.tick.max(b.line.tick);
    if !is_aligned(a, b) {
        let sides = [events(a), events(b)];
        let mut ticks: HashMap<Event, i64> = HashMap::new();
        for (event, tick) in sides.iter().flatten() {
            let known = ticks.entry(event.clone()).or_insert(*tick);
            *known = (*known).max(*tick);
        }
        let mut orders = orders(a);
        orders.extend(self::orders(b));
        while raise(&orders, &mut ticks) {}
        for (document, side) in [a, b].into_iter().zip(&sides) {
            apply(document, side, &ticks);
        }
        last = last.max(ticks.into_values().max().unwrap_or(0));
    }
    last
}

/// True if the events that both states have are at the same ticks.
fn is_aligned(a: &SessionDocument, b: &SessionDocument) -> bool {
    let theirs = b.loop_index();
    let is_same = |one: &LoopDocument| {
        let Some(other) = theirs.get(&one.line.loop_id).map(|at| &b.loops[*at]) else {
            return true;
        };
        let mut pairs = one.messages.iter().zip(&other.messages);
        one.line.tick == other.line.tick && pairs.all(|(a, b)| a.tick == b.tick)
    };
    let runs: HashMap<&str, i64> = (b.runs.iter())
        .map(|run| (&*run.line.run, run.line.tick))
        .collect();
    a.loops.iter().all(is_same)
        && a.runs.iter().all(|run| {
            let other = runs.get(&*run.line.run);
            other.is_none_or(|tick| *tick == run.line.tick)
        })
}

/// Raises the ticks of events that come before an event that they have to follow; returns true if one was raised.
fn raise(orders: &[(Event, Event, i64)], ticks: &mut HashMap<Event, i64>) -> bool {
    let mut is_raised = false;
    for (before, after, gap) in orders {
        let Some(least) = ticks.get(before).map(|tick| tick + gap) else {
            continue;
        };
        if let Some(tick) = ticks.get_mut(after)
            && *tick < least
        {
            (is_raised, *tick) = (true, least);
        }
    }
    is_raised
}

/// Returns pairs of events of which the second follows the first, with the least difference of their ticks.
fn orders(document: &SessionDocument) -> Vec<(Event, Event, i64)> {
    let mut orders = Vec::new();
    for one in &document.loops {
        let id = &one.line.loop_id;
        if let Some(parent) = &one.line.parent {
            orders.push((Event::Loop(parent.clone()), Event::Loop(id.clone()), 0));
        }
        let mut before = (Event::Loop(id.clone()), 1);
        for message in &one.messages {
            let event = Event::Message(id.clone(), message.seq);
            orders.push((before.0, event.clone(), before.1));
            before = (event, 0);
        }
    }
    for run in &document.runs {
        let event = Event::Run(run.line.run.clone());
        orders.push((Event::Loop(run.line.loop_id.clone()), event.clone(), 1));
        for block in &run.blocks {
            if let Some(last) = block.line.through.checked_sub(1) {
                let last = Event::Message(block.line.loop_id.clone(), last);
                orders.push((last, event.clone(), 1));
            }
        }
        for ((flip, _), line) in flips(document, &run.line.run).into_iter().zip(&run.flips) {
            orders.push((Event::Loop(line.loop_id.clone()), flip.clone(), 1));
            orders.push((event.clone(), flip, 1));
        }
    }
    let mut equal = EqualRows::default();
    for pin in &document.pins {
        let mut line = pin.clone();
        line.tick = 0;
        let (text, number) = equal.next(text_of(&line));
        let event = Event::Pin(text, number);
        orders.push((Event::Loop(pin.leaf.clone()), event.clone(), 1));
        orders.push((Event::Message(pin.loop_id.clone(), pin.seq), event, 1));
    }
    orders
}

/// Numbers equal rows.
#[derive(Default)]
struct EqualRows(HashMap<String, u32>);

impl EqualRows {
    fn next(&mut self, text: String) -> (String, u32) {
        let number = self.0.entry(text.clone()).or_default();
        *number += 1;
        (text, *number)
    }
}

/// Returns the undos and redos of a run with their ticks.
fn flips(document: &SessionDocument, run: &str) -> Vec<(Event, i64)> {
    let mut equal = EqualRows::default();
    let runs = document.runs.iter().filter(|one| one.line.run == run);
    let named = runs.flat_map(|one| &one.flips).map(|flip| {
        let mut line = flip.clone();
        line.tick = 0;
        let (text, number) = equal.next(text_of(&line));
        (Event::Flip(text, number), flip.tick)
    });
    named.collect()
}

/// Returns the events of a session with their ticks, in order.
fn events(document: &SessionDocument) -> Vec<(Event, i64)> {
    let mut events = Vec::new();
    for one in &document.loops {
        let id = &one.line.loop_id;
        events.push((Event::Loop(id.clone()), one.line.tick));
        let messages = one.messages.iter();
        events.extend(
            messages.map(|message| (Event::Message(id.clone(), message.seq), message.tick)),
        );
    }
    for run in &document.runs {
        events.push((Event::Run(run.line.run.clone()), run.line.tick));
        events.extend(flips(document, &run.line.run));
    }
    let mut equal = EqualRows::default();
    for pin in &document.pins {
        let mut line = pin.clone();
        line.tick = 0;
        let (text, number) = equal.next(text_of(&line));
        events.push((Event::Pin(text, number), pin.tick));
    }
    for hide in &document.hides {
        let mut line = hide.clone();
        line.tick = 0;
        let (text, number) = equal.next(text_of(&line));
        events.push((Event::Hide(text, number), hide.tick));
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
            let tick = of(&Event::Message(id.clone(), message.seq), message.tick);
            moved.insert(message.tick, tick);
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
    let mut equal = EqualRows::default();
    for run in &mut document.runs {
        let line = &mut run.line;
        line.tick = of(&Event::Run(line.run.clone()), line.tick);
        for flip in &mut run.flips {
            let former = std::mem::take(&mut flip.tick);
            let (text, number) = equal.next(text_of(flip));
            flip.tick = of(&Event::Flip(text, number), former);
        }
    }
    let mut equal = EqualRows::default();
    for pin in &mut document.pins {
        let former = std::mem::take(&mut pin.tick);
        let (text, number) = equal.next(text_of(pin));
        pin.tick = of(&Event::Pin(text, number), former);
    }
    let mut equal = EqualRows::default();
    for hide in &mut document.hides {
        let former = std::mem::take(&mut hide.tick);
        let (text, number) = equal.next(text_of(hide));
        hide.tick = of(&Event::Hide(text, number), former);
    }
}
