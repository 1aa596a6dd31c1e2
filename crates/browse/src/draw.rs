//! Draws the screen.
//!
//! Every text goes through [`Pen::put`], which escapes control characters.

mod lists;
mod session;

use loopstore_terminal::text;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::cursor::{Pane, Tone};
use super::state::{Browser, Change, EditKind, Screen, TextEntry};

/// The colours of the screen, if any.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    colours: bool,
}

impl Palette {
    pub fn new(colours: bool) -> Self {
        Self { colours }
    }

    /// Returns the style of a tone. Yellow, white and black are never used: on some backgrounds they cannot be read.
    fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        match tone {
            Tone::Plain => plain,
            Tone::Head => plain.add_modifier(Modifier::BOLD),
            Tone::Faint => plain.add_modifier(Modifier::DIM),
            _ if !self.colours => plain,
            Tone::Kept => plain.fg(Color::Green),
            Tone::Cut => plain.fg(Color::Magenta),
            Tone::Summary => plain.fg(Color::Blue),
            Tone::Gone => plain.fg(Color::Red),
        }
    }
}

/// Draws on a part of the screen.
struct Pen<'a, 'b> {
    frame: &'a mut Frame<'b>,
    area: Rect,
    palette: Palette,
}

impl<'b> Pen<'_, 'b> {
    /// Returns a pen for some columns of this part.
    fn columns(&mut self, from: usize, width: usize) -> Pen<'_, 'b> {
        let x = (from as u16).min(self.area.width);
        let width = (width as u16).min(self.area.width - x);
        let area = Rect {
            x: self.area.x + x,
            width,
            ..self.area
        };
        Pen {
            frame: self.frame,
            area,
            palette: self.palette,
        }
    }

    fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Writes pieces on a row, truncated to the width; with `chosen` the whole row is inverted.
    fn put(&mut self, row: usize, pieces: &[(&str, Tone)], chosen: bool) {
        if row >= usize::from(self.area.height) {
            return;
        }
        let mut left = self.width();
        let mut spans = Vec::new();
        for (piece, tone) in pieces {
            let piece = text::fit(&text::line(piece), left).into_owned();
            left -= text::columns(&piece).min(left);
            spans.push(Span::styled(piece, self.palette.style(*tone)));
        }
        let mut line = Line::from(spans);
        if chosen {
            line.spans.push(Span::raw(" ".repeat(left)));
            line = line.patch_style(Style::new().add_modifier(Modifier::REVERSED));
        }
        let y = self.area.y + row as u16;
        let area = Rect {
            y,
            height: 1,
            ..self.area
        };
        self.frame.render_widget(line, area);
    }

    fn text(&mut self, row: usize, line: &str, tone: Tone) {
        self.put(row, &[(line, tone)], false);
    }

    /// Writes the visible lines of a pane, from `row` on.
    fn pane(&mut self, row: usize, pane: &Pane) {
        let height = usize::from(self.area.height).saturating_sub(row);
        let shown = pane.lines.iter().skip(pane.top).take(height);
        for (at, (line, tone)) in shown.enumerate() {
            self.text(row + at, line, *tone);
        }
    }
}

/// Draws the current screen.
pub fn draw(frame: &mut Frame<'_>, browser: &Browser, palette: Palette) {
    let area = frame.area();
    let mut pen = Pen {
        frame,
        area,
        palette,
    };
    pen.text(0, &title(browser), Tone::Head);
    pen.area.y += 1;
    pen.area.height = area.height.saturating_sub(2);
    body(&mut pen, browser);
    if area.height > 1 {
        pen.area = Rect {
            y: area.height - 1,
            height: 1,
            ..area
        };
        last_row(&mut pen, browser);
    }
}

fn title(browser: &Browser) -> String {
    let names = browser.path().map(|screen| match screen {
        Screen::Sessions(_) => browser.database.clone(),
        Screen::Session(screen) => screen.session.to_string(),
        Screen::Reader(screen) => format!("{} turn {}", screen.loop_id, screen.turn),
        Screen::Runs(_) => "compactions and edits".into(),
        Screen::Diff { .. } => "originals and context".into(),
        Screen::Hits(screen) => format!("search {}", screen.query),
    });
    names.collect::<Vec<_>>().join(" › ")
}

fn body(pen: &mut Pen<'_, '_>, browser: &Browser) {
    if browser.help {
        return help(pen);
    }
    match browser.screen() {
        Some(Screen::Sessions(screen)) => lists::sessions(pen, screen, browser.room),
        Some(Screen::Session(screen)) => session::session(pen, screen, browser.room),
        Some(Screen::Reader(screen)) => session::reader(pen, screen, browser.room),
        Some(Screen::Runs(screen)) => lists::runs(pen, screen, browser.room),
        Some(Screen::Diff { pane, .. }) => pane.iter().for_each(|pane| pen.pane(0, pane)),
        Some(Screen::Hits(screen)) => lists::hits(pen, screen, browser.room),
        None => {}
    }
}

/// Draws the row at the bottom: a question, the typed text, a message, or keys.
fn last_row(pen: &mut Pen<'_, '_>, browser: &Browser) {
    if let Some(change) = &browser.asked {
        return pen.text(0, &question(change), Tone::Head);
    }
    match (&browser.entry, &browser.note) {
        (Some(TextEntry::Filter(typed)), _) => pen.text(0, &format!("/{typed}▏"), Tone::Head),
        (Some(TextEntry::Search(session, typed)), _) => {
            let place = match session {
                Some(_) => "search here",
                None => "search everywhere",
            };
            pen.text(0, &format!("{place}: {typed}▏"), Tone::Head);
        }
        (None, Some(note)) => pen.text(0, note, Tone::Head),
        (None, None) => pen.text(0, keys(browser), Tone::Faint),
    }
}

/// Returns the question about a change.
fn question(change: &Change) -> String {
    match change {
        Change::Flip(flip) => {
            let word = if flip.redo { "Redo" } else { "Undo" };
            let what = match &flip.run {
                Some(run) => format!("run {run}"),
                None if flip.redo => "the last undo".into(),
                None => "the last compaction or edit".into(),
            };
            format!("{word} {what}, seen from {}? y/n", flip.leaf)
        }
        Change::Edit(edit) => {
            let what = match edit.seq {
                Some(seq) => format!("message {seq} of turn {}", edit.turn),
                None => format!("turn {}", edit.turn),
            };
            let question = match edit.kind {
                EditKind::Drop => format!("Drop {what} of {} from the context", edit.loop_id),
                EditKind::Clear => format!("Clear long texts in {what} of {}", edit.loop_id),
                EditKind::Restore => format!("Undo the edits of {what} of {}", edit.loop_id),
            };
            format!("{question}, seen from {}? y/n", edit.leaf)
        }
    }
}

/// Returns the most important keys of a screen.
fn keys(browser: &Browser) -> &'static str {
    match browser.screen() {
        _ if browser.help => "press any key to continue",
        Some(Screen::Sessions(_)) => "? keys  q quit  Enter open  / filter  s search",
        Some(Screen::Session(_)) => {
            "? keys  q back  Tab other side  Enter read  h compactions  d diff  u undo  r redo  \
             s search  x drop  c clear  b bring back"
        }
        Some(Screen::Reader(_)) => {
            "? keys  q back  ←→ other turn  Tab other side  [ ] message  x drop  c clear  b bring back"
        }
        Some(Screen::Runs(_)) => "? keys  q back  u undo  r redo",
        Some(Screen::Hits(_)) => "? keys  q back  Enter go there",
        _ => "? keys  q back",
    }
}

const HELP: [(&str, &str); 19] = [
    ("↑ ↓ j k", "up and down"),
    ("PgUp PgDn", "a page; also Ctrl-B, Ctrl-F"),
    ("Home End g G", "first and last"),
    ("Enter → l", "open"),
    ("q Esc", "back; q quits the list of sessions"),
    ("← ", "back, or the other side"),
    ("Tab", "loops or turns; context or originals"),
    ("/", "filter the sessions"),
    ("s", "search messages: a question, \"phrase\", -without"),
    ("h", "in a session: its compactions and edits"),
    ("d", "in a session: originals and context compared"),
    ("u r", "undo, redo a compaction or an edit; asks first"),
    (
        "x",
        "take a turn or a message out of the context; asks first",
    ),
    ("c", "show markers in place of its long texts; asks first"),
    ("b", "bring it back: undo its edits; asks first"),
    ("[ ]", "in a turn: the previous, the next message"),
    ("← → h l", "in a turn: the previous, the next"),
    ("F5 Ctrl-L", "reload everything"),
    ("Ctrl-C", "quit"),
];

fn help(pen: &mut Pen<'_, '_>) {
    for (row, (key, what)) in HELP.iter().enumerate() {
        let key = format!("{key:<13} ");
        pen.put(row, &[(&key, Tone::Head), (what, Tone::Plain)], false);
    }
}
