//! Draws the lists.

use loopstore_terminal::text;

use super::super::cursor::Tone;
use super::super::lists::{Hit, Hits, Run, Runs, Sessions};
use super::super::state::ScreenSize;
use super::Pen;

/// Returns a text aligned left in a column, truncated or padded to its width.
fn align_left(text: &str, width: usize) -> String {
    let text = text::fit(&text::line(text), width).into_owned();
    let free = width.saturating_sub(text::columns(&text));
    text + &" ".repeat(free)
}

/// The width of the column of projects.
const PROJECT: usize = 16;

/// The columns of a list of some width. On a narrow screen the project is left out first, then the last activity, turns
/// and loops.
struct ColumnWidths {
    project: bool,
    loops: bool,
    last_active: bool,
    title: usize,
    id: usize,
}

impl ColumnWidths {
    fn of(width: usize) -> Self {
        let (loops, last_active) = (width >= 60, width >= 80);
        let numbers = 12 + if loops { 18 } else { 0 };
        let project = width >= 110;
        let others = if last_active { 21 } else { 0 } + if project { 1 + PROJECT } else { 0 };
        let rest = width.saturating_sub(numbers + others);
        let id = (rest / 2).min(38);
        Self {
            project,
            loops,
            last_active,
            title: rest.saturating_sub(id + 1),
            id,
        }
    }

    fn line(&self, cells: [&str; 7]) -> String {
        let [id, title, project, loops, turns, tokens, last_active] = cells;
        let mut line = format!(
            "{} {}",
            align_left(id, self.id),
            align_left(title, self.title)
        );
        if self.project {
            line.push_str(&format!(" {}", align_left(project, PROJECT)));
        }
        if self.loops {
            line.push_str(&format!(" {loops:>7} {turns:>9}"));
        }
        line.push_str(&format!(" {tokens:>11}"));
        if self.last_active {
            line.push_str(&format!("  {last_active}"));
        }
        line
    }
}

/// Draws the sessions.
pub(super) fn sessions(pen: &mut Pen<'_, '_>, screen: &Sessions, room: ScreenSize) {
    let columns = ColumnWidths::of(room.width);
    let heads = [
        "SESSION",
        "TITLE",
        "PROJECT",
        "LOOPS",
        "TURNS",
        "TOKENS",
        "LAST ACTIVE",
    ];
    pen.text(0, &columns.line(heads), Tone::Head);
    let Some(rows) = &screen.rows else { return };
    if screen.shown.is_empty() {
        let none = match rows.is_empty() {
            true => "No sessions yet; `loopstore import` adds some.",
            false => "No session has these words in its id, title or project.",
        };
        return pen.text(1, none, Tone::Plain);
    }
    let shown = screen.shown.iter().enumerate().skip(screen.cursor.top);
    for (at, row) in shown.take(Sessions::height(room)) {
        let Some(row) = rows.get(*row) else { continue };
        let (loops, turns) = (text::number(row.loops), text::number(row.turns));
        let tokens = text::number(row.tokens);
        let cells = [
            row.id.as_str(),
            &row.title,
            text::folder(&row.project),
            &loops,
            &turns,
            &tokens,
            &row.last_active,
        ];
        let line = [(&*columns.line(cells), Tone::Plain)];
        let is_chosen = at == screen.cursor.at;
        pen.put(1 + at - screen.cursor.top, &line, is_chosen);
    }
}

fn run_line(cells: [&str; 5], width: usize) -> String {
    let [started, strategy, state, before, after] = cells;
    let mut line = String::new();
    if width >= 60 {
        line.push_str(&format!("{started:<19}  {} ", align_left(strategy, 10)));
    }
    line + &format!("{} {before:>11} {after:>11}", align_left(state, 9))
}

fn tone_of(run: &Run) -> Tone {
    match &*run.state {
        "active" => Tone::Kept,
        "undone" => Tone::Cut,
        "failed" => Tone::Gone,
        _ => Tone::Plain,
    }
}

/// Draws the compactions and edits, and the details of the selected one.
pub(super) fn runs(pen: &mut Pen<'_, '_>, screen: &Runs, room: ScreenSize) {
    let heads = ["STARTED", "STRATEGY", "STATE", "BEFORE", "AFTER"];
    pen.text(0, &run_line(heads, room.width), Tone::Head);
    if screen.rows.as_ref().is_some_and(Vec::is_empty) {
        return pen.text(1, "No compactions or edits yet.", Tone::Plain);
    }
    let (height, more) = Runs::heights(room);
    let rows = screen.rows.iter().flatten().enumerate();
    for (at, run) in rows.skip(screen.cursor.top).take(height) {
        let number = |number: Option<i64>| number.map(text::number).unwrap_or_default();
        let (before, after) = (number(run.before), number(run.after));
        let cells = [&*run.started, &run.strategy, &run.state, &before, &after];
        let line = run_line(cells, room.width);
        let is_chosen = at == screen.cursor.at;
        pen.put(
            1 + at - screen.cursor.top,
            &[(&line, tone_of(run))],
            is_chosen,
        );
    }
    let details = screen.chosen().into_iter().flat_map(|run| &run.details);
    for (at, detail) in details.take(more).enumerate() {
        pen.text(2 + height + at, detail, Tone::Plain);
    }
}

/// Draws the hits of a search.
pub(super) fn hits(pen: &mut Pen<'_, '_>, screen: &Hits, room: ScreenSize) {
    let count = screen.rows.len();
    let head = match (count, screen.next) {
        (0, _) => "Nothing found.".to_owned(),
        (_, None) => format!("{} found", text::number(count as u64)),
        (_, Some(_)) => format!("the best {} of more", text::number(count as u64)),
    };
    pen.text(0, &head, Tone::Head);
    let shown = screen.rows.iter().enumerate().skip(screen.cursor.top);
    for (at, hit) in shown.take(Hits::height(room)) {
        let row = 1 + 2 * (at - screen.cursor.top);
        let tone = if hit.hidden {
            Tone::Summary
        } else {
            Tone::Kept
        };
        pen.put(row, &[(&hit.about, tone)], at == screen.cursor.at);
        snippet(pen, row + 1, hit);
    }
}

fn snippet(pen: &mut Pen<'_, '_>, row: usize, hit: &Hit) {
    let text = &hit.snippet.text;
    let (mut pieces, mut from) = (vec![("  ", Tone::Plain)], 0);
    for mark in &hit.snippet.marks {
        let before = text.get(from..mark.start).unwrap_or_default();
        pieces.push((before, Tone::Plain));
        pieces.push((text.get(mark.clone()).unwrap_or_default(), Tone::Head));
        from = mark.end;
    }
    pieces.push((text.get(from..).unwrap_or_default(), Tone::Plain));
    pen.put(row, &pieces, false);
}
