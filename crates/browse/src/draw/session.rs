//! Draws a session, and a turn in both forms.

use loopstore::context::TurnState;
use loopstore::extend::Disposition;
use loopstore_terminal::text;

use super::super::cursor::Tone;
use super::super::loops::tone;
use super::super::reader::{TextReader, TurnText};
use super::super::session::{Focus, InSession, LoopItem, Node, TreeRow, TurnItem};
use super::super::state::ScreenSize;
use super::Pen;

/// Returns the word and the sign for the state of a turn.
fn state_label(state: Option<TurnState>) -> (&'static str, &'static str) {
    use Disposition as D;
    match state {
        None => ("absent", "-"),
        Some(TurnState::Raw) => ("raw", " "),
        Some(TurnState::Edited) => ("edited", "✎"),
        Some(TurnState::Covered(D::Kept)) => ("kept", "="),
        Some(TurnState::Covered(D::Truncated)) => ("shortened", "~"),
        Some(TurnState::Covered(D::Summarised)) => ("summarised", "Σ"),
        Some(TurnState::Covered(D::Dropped)) => ("dropped", "×"),
        Some(TurnState::Covered(D::RolledUp)) => ("rolled up", "▲"),
        Some(TurnState::Covered(D::Sealed)) => ("sealed", "◆"),
        Some(TurnState::Covered(D::Removed)) => ("removed", "·"),
    }
}

/// Draws the tree of loops, and the turns of the selected loop.
pub(super) fn session(pen: &mut Pen<'_, '_>, screen: &InSession, room: ScreenSize) {
    pen.text(0, &head(screen), Tone::Plain);
    pen.area.y += 1;
    pen.area.height = pen.area.height.saturating_sub(1);
    if !room.is_wide() {
        return match screen.focus {
            Focus::Tree => tree(pen, screen, room),
            Focus::Turns => turns(pen, screen, room),
        };
    }
    let width = (room.width * 2 / 5).min(56);
    tree(&mut pen.columns(0, width), screen, room);
    let rest = room.width - width - 1;
    turns(&mut pen.columns(width + 1, rest), screen, room);
}

/// Returns the line with the size of the leaf's context, and the title.
fn head(screen: &InSession) -> String {
    let seen = screen.seen.as_ref();
    let tokens = seen.and_then(|seen| Some((seen, seen.tokens?)));
    let mut head = match tokens {
        Some((seen, [raw, now])) => format!(
            "context of {}: {} of {} tokens",
            seen.leaf,
            text::number(now),
            text::number(raw)
        ),
        None => String::new(),
    };
    if !screen.title.is_empty() {
        head.push_str(&format!("  {}", screen.title));
    }
    head
}

fn heading(has_keys: bool, text: &str) -> String {
    let sign = if has_keys { "▸ " } else { "  " };
    format!("{sign}{text}")
}

fn tree(pen: &mut Pen<'_, '_>, screen: &InSession, room: ScreenSize) {
    let has_keys = screen.focus == Focus::Tree;
    pen.text(0, &heading(has_keys, "LOOPS"), Tone::Head);
    let Some(rows) = &screen.tree else { return };
    if rows.is_empty() {
        return pen.text(1, "  no loops yet", Tone::Faint);
    }
    let shown = rows.iter().enumerate().skip(screen.in_tree.top);
    for (at, row) in shown.take(InSession::height(room)) {
        let is_chosen = at == screen.in_tree.at;
        let place = 1 + at - screen.in_tree.top;
        // A deeper indent would leave no room for the loop itself.
        let indent = "│ ".repeat(row.depth.min(pen.width() / 6));
        let (text, tone) = node(screen, row);
        pen.put(place, &[(&indent, Tone::Faint), (&text, tone)], is_chosen);
    }
}

fn node(screen: &InSession, row: &TreeRow) -> (String, Tone) {
    match &row.what {
        Node::Agent { session, title } => (format!("↳ started {session} {title}"), Tone::Plain),
        Node::Loop(line) => loop_line(screen, line),
    }
}

/// Shortens a long id in the middle, since ids that were made in one minute begin alike.
fn short(id: &str) -> String {
    let id = text::line(id);
    let length = id.chars().count();
    if length <= 20 {
        return id;
    }
    let first: String = id.chars().take(8).collect();
    let last: String = id.chars().skip(length - 8).collect();
    format!("{first}…{last}")
}

fn loop_line(screen: &InSession, line: &LoopItem) -> (String, Tone) {
    let seen = screen.seen.as_ref();
    let of_loop = seen.and_then(|seen| seen.loops.get(&line.id));
    let is_leaf = seen.is_some_and(|seen| seen.leaf == line.id);
    let sign = match (is_leaf, of_loop) {
        (true, _) => "●",
        (false, Some(_)) => "○",
        (false, None) => "·",
    };
    let block = of_loop.and_then(|of_loop| of_loop.block.as_deref());
    let state = seen.and_then(|seen| seen.state(&line.id, 0));
    let is_rolled_up = state == Some(TurnState::Covered(Disposition::RolledUp));
    let block = block.or(is_rolled_up.then_some("rolled up"));
    let mut facts = vec![format!(
        "{}  {}",
        short(line.id.as_str()),
        text::count(line.turns, "turn")
    )];
    facts.extend(block.map(str::to_owned));
    if of_loop.is_some_and(|of_loop| of_loop.is_edited) {
        facts.push("edited".into());
    }
    facts.push(line.origin.clone());
    if line.status != "completed" {
        facts.push(line.status.clone());
    }
    facts.retain(|fact| !fact.is_empty());
    let tone = match (of_loop, block) {
        (None, _) => Tone::Faint,
        (_, Some(_)) => Tone::Summary,
        _ => Tone::Plain,
    };
    (
        format!("{sign} {}  {}", facts.join(", "), line.prompt),
        tone,
    )
}

fn turns(pen: &mut Pen<'_, '_>, screen: &InSession, room: ScreenSize) {
    let Some(line) = screen.chosen() else { return };
    let has_keys = screen.focus == Focus::Turns;
    let head = format!(
        "TURNS of {}, {}",
        line.id,
        text::count(line.tokens, "token")
    );
    pen.text(0, &heading(has_keys, &head), Tone::Head);
    let Some(page) = screen.page.as_ref().filter(|page| page.loop_id == line.id) else {
        return;
    };
    let top = screen.in_turns.top;
    let in_sight = top..top + InSession::height(room);
    for row in &page.rows {
        let at = row.turn as usize;
        if in_sight.contains(&at) {
            let is_chosen = has_keys && at == screen.in_turns.at;
            turn(pen, 1 + at - top, screen, row, is_chosen);
        }
    }
}

fn turn(pen: &mut Pen<'_, '_>, row: usize, screen: &InSession, line: &TurnItem, chosen: bool) {
    let loop_id = screen.chosen().map(|line| &line.id);
    let seen = screen.seen.as_ref().zip(loop_id);
    let state = seen.and_then(|(seen, id)| seen.state(id, line.turn));
    let (word, sign) = state_label(state);
    let colour = state.map_or(Tone::Faint, tone);
    let number = format!("{:>5} ", line.turn);
    let word = match pen.width() >= 46 {
        true => format!("{sign} {word:<10} "),
        false => format!("{sign} "),
    };
    let tokens = format!("{:>7}  ", text::number(line.tokens));
    let pieces = [
        (&*number, Tone::Plain),
        (&word, colour),
        (&tokens, Tone::Plain),
        (&line.text, Tone::Plain),
    ];
    pen.put(row, &pieces, chosen);
}

/// Draws a turn as recorded, next to its form in the context.
pub(super) fn reader(pen: &mut Pen<'_, '_>, screen: &TextReader, room: ScreenSize) {
    let Some(turn_text) = &screen.turn_text else {
        return;
    };
    let (word, _) = state_label(turn_text.state);
    let colour = turn_text.state.map_or(Tone::Faint, tone);
    let place = format!("turn {} of {}: ", screen.turn, screen.loop_id);
    let about = match turn_text.about.is_empty() {
        true => String::new(),
        false => format!(" by {}", turn_text.about),
    };
    let chosen = screen.chosen().map_or(String::new(), |message| {
        format!("; message {} ({}) is selected", message.seq, message.role)
    });
    let head = [
        (&*place, Tone::Plain),
        (word, colour),
        (&chosen, Tone::Plain),
        (&about, Tone::Plain),
    ];
    pen.put(0, &head, false);
    pen.area.y += 1;
    pen.area.height = pen.area.height.saturating_sub(1);
    let (width, _) = TextReader::pane(room, turn_text.shown.is_some());
    if turn_text.shown.is_none() {
        originals(pen, turn_text, true);
    } else if room.is_wide() {
        context(&mut pen.columns(0, width), turn_text, !screen.in_originals);
        originals(
            &mut pen.columns(width + 3, width),
            turn_text,
            screen.in_originals,
        );
    } else if screen.in_originals {
        originals(pen, turn_text, true);
    } else {
        context(pen, turn_text, true);
    }
}

fn originals(pen: &mut Pen<'_, '_>, turn_text: &TurnText, has_keys: bool) {
    pen.text(0, &heading(has_keys, "AS RECORDED"), Tone::Head);
    pen.pane(1, &turn_text.originals);
}

fn context(pen: &mut Pen<'_, '_>, turn_text: &TurnText, has_keys: bool) {
    pen.text(0, &heading(has_keys, "IN THE CONTEXT"), Tone::Head);
    turn_text.shown.iter().for_each(|pane| pen.pane(1, pane));
}
