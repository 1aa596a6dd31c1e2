//! Plain tables that stay within a width.
//!
//! Columns are cut to fit, the widest first. Then optional columns are omitted, the last first. If the table is still
//! too wide, each row is printed as several lines.

use super::text;

/// The maximum padding of a cell without a width limit: one long cell must not widen every line.
const WIDEST: usize = 48;

/// A column.
pub struct Column {
    title: String,
    is_number: bool,
    is_optional: bool,
    is_id: bool,
    least: usize,
}

impl Column {
    /// Returns a column of text that may be cut to `least` columns.
    pub fn text(title: impl Into<String>, least: usize) -> Self {
        Self {
            title: title.into(),
            is_number: false,
            is_optional: false,
            is_id: false,
            least,
        }
    }

    /// Returns a column of ids, which are never cut: a cut id finds nothing.
    pub fn id(title: impl Into<String>) -> Self {
        Self {
            is_id: true,
            ..Self::text(title, usize::MAX)
        }
    }

    /// Returns a column of numbers, which are never cut.
    pub fn number(title: impl Into<String>) -> Self {
        Self {
            is_number: true,
            ..Self::text(title, usize::MAX)
        }
    }

    /// Makes the column optional: it is omitted if the table is too wide.
    pub fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

/// A table.
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns a table without rows.
    pub fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.iter().map(|cell| text::line(cell)).collect());
    }

    /// Returns the lines.
    pub fn lines(&self, width: Option<usize>) -> String {
        let natural = self.natural_widths(width.is_none());
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else {
            return self.draw(&shown, &natural, false);
        };
        loop {
            let mut widths = natural.clone();
            if self.shrink(&shown, &mut widths, width) {
                return self.draw(&shown, &widths, true);
            }
            // Columns without information are left out first.
            let is_optional = |at: &usize| self.columns[*at].is_optional;
            let mute = shown
                .iter()
                .rposition(|at| is_optional(at) && self.is_mute(*at));
            match mute.or_else(|| shown.iter().rposition(is_optional)) {
                Some(place) => shown.remove(place),
                None => return self.records(width),
            };
        }
    }

    /// True if a column contains only zeros and blanks.
    fn is_mute(&self, at: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| row[at].as_str());
        cells.all(|cell| matches!(cell, "" | "-" | "0"))
    }

    fn natural_widths(&self, is_capped: bool) -> Vec<usize> {
        let last = self.columns.len().saturating_sub(1);
        let width = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| text::columns(&row[at]));
            let natural = cells.max().unwrap_or(0).max(text::columns(&column.title));
            if is_capped && at != last {
                natural.min(WIDEST)
            } else {
                natural
            }
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// Truncates the widest columns until the line fits. Returns true if it fits.
    fn shrink(&self, shown: &[usize], widths: &mut [usize], width: usize) -> bool {
        let least: Vec<usize> = self.columns.iter().map(|column| column.least).collect();
        loop {
            let used: usize = shown.iter().map(|at| widths[*at]).sum();
            let used = used + shown.len().saturating_sub(1) * 2;
            let Some(over) = used.checked_sub(width).filter(|over| *over > 0) else {
                return true;
            };
            let can_shrink = |at: &&usize| widths[**at] > least[**at];
            let Some(&widest) = shown
                .iter()
                .filter(can_shrink)
                .max_by_key(|at| widths[**at])
            else {
                return false;
            };
            let rest = shown
                .iter()
                .filter(|at| **at != widest)
                .map(|at| widths[*at]);
            let next = rest.max().unwrap_or(0).min(widths[widest] - 1);
            let next = least[widest].max(next);
            widths[widest] = next.max(widths[widest].saturating_sub(over));
        }
    }

    fn draw(&self, shown: &[usize], widths: &[usize], is_cut: bool) -> String {
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.clone()).collect();
        let lines = std::iter::once(&titles).chain(&self.rows).map(|row| {
            let cells = shown
                .iter()
                .map(|at| self.cell(&row[*at], *at, widths[*at], is_cut));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn cell(&self, cell: &str, at: usize, width: usize, is_cut: bool) -> String {
        let cell = match is_cut {
            true => text::fit(cell, width),
            false => cell.into(),
        };
        let space = " ".repeat(width.saturating_sub(text::columns(&cell)));
        if self.columns[at].is_number {
            space + &cell
        } else {
            cell.into_owned() + &space
        }
    }

    /// Returns each row as lines of its own.
    fn records(&self, width: usize) -> String {
        let names = self.columns.iter().map(|c| text::columns(&c.title));
        let widest = names.max().unwrap_or(0);
        let record = |row: &Vec<String>| {
            let lines = self.columns.iter().zip(row).map(|(column, cell)| {
                let space = " ".repeat(widest - text::columns(&column.title));
                let line = format!("{}{space}  {cell}", column.title);
                match column.is_id {
                    true => line,
                    false => text::fit(line.trim_end(), width).into_owned(),
                }
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        let records: Vec<String> = self.rows.iter().map(record).collect();
        records.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_cut_titles_yield() {
        let mut table = TextTable::new(vec![Column::id("LOOP"), Column::text("TITLE", 4)]);
        table.row(vec!["0197a3c2-5d1e".into(), "Mend the lamp".into()]);
        assert_eq!(
            table.lines(Some(20)),
            "LOOP           TITLE\n0197a3c2-5d1e  Mend…"
        );
        assert_eq!(table.lines(Some(12)), "LOOP   0197a3c2-5d1e\nTITLE  Mend…");
    }

    fn table() -> TextTable {
        let mut table = TextTable::new(vec![
            Column::text("id", 4),
            Column::text("title", 5),
            Column::number("tokens"),
            Column::text("source", 6).optional(),
        ]);
        table.row(vec![
            "0197a3c2".into(),
            "Fix the\nbuild".into(),
            "12,345".into(),
            "claude".into(),
        ]);
        table
    }

    #[test]
    fn a_column_of_zeros_goes_before_one_that_says_something() {
        let mut table = TextTable::new(vec![
            Column::number("kept").optional(),
            Column::number("dropped").optional(),
        ]);
        table.row(vec!["0".into(), "61".into()]);
        assert_eq!(table.lines(Some(8)), "dropped\n     61");
    }

    #[test]
    fn a_long_cell_does_not_widen_every_line_of_a_pipe() {
        let long = "x".repeat(300);
        let mut table = TextTable::new(vec![
            Column::text("a", 4),
            Column::text("b", 4),
            Column::text("c", 4),
        ]);
        table.row(vec!["one".into(), long.clone(), long.clone()]);
        table.row(vec!["two".into(), "b".into(), "c".into()]);
        let lines = table.lines(None);
        let mut lines = lines.lines();
        assert!(lines.next().is_some_and(|head| head.len() < 64));
        assert_eq!(lines.next(), Some(&*format!("one  {long}  {long}")));
        assert!(
            lines
                .next()
                .is_some_and(|line| line.len() < 64 && line.ends_with("  c"))
        );
    }

    #[test]
    fn a_table_is_cut_thinned_and_at_last_turned() {
        assert_eq!(
            table().lines(None),
            "id        title           tokens  source\n0197a3c2  Fix the\\nbuild  12,345  claude"
        );
        assert_eq!(
            table().lines(Some(33)),
            "id        title    tokens  source\n0197a3c2  Fix th…  12,345  claude"
        );
        assert_eq!(
            table().lines(Some(20)),
            "id     title  tokens\n0197…  Fix …  12,345"
        );
        assert_eq!(
            table().lines(Some(14)),
            "id      0197a…\ntitle   Fix t…\ntokens  12,345\nsource  claude"
        );
    }
}
