//! Splits the texts of people and agents into units that can be quoted alone: sentences, items of a list with their
//! introduction, rows of a table. Fenced code is left out; its values are recorded separately.

/// The longest unit in bytes; a longer one is cut.
const LONGEST_UNIT: usize = 480;
/// The longest introduction that is written before each item of a list, in bytes.
const LONGEST_LEAD: usize = 90;
/// A fenced block of at most so many lines is a command or a name, not a listing.
const SHORT_FENCE: usize = 2;

/// A text as units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitText {
    /// The introductions of lists and sections.
    pub(super) leads: Vec<String>,
    /// The units, in order.
    pub(super) units: Vec<Unit>,
}

/// A part of a text that can be quoted alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) text: String,
    /// The index of its introduction in [`UnitText::leads`].
    pub(super) lead: Option<usize>,
    /// True for a row of a table or a line of code, which is no sentence.
    pub(super) is_raw: bool,
}

/// Splits a text into units.
pub(super) fn units_of(text: &str) -> UnitText {
    let mut reader = UnitReader::default();
    let mut fence: Option<Vec<&str>> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            match fence.take() {
                Some(lines) => reader.fenced(&lines),
                None => {
                    reader.flush();
                    fence = Some(Vec::new());
                }
            }
        } else if let Some(lines) = &mut fence {
            lines.push(trimmed);
        } else {
            reader.line(line, trimmed);
        }
    }
    reader.fenced(&fence.unwrap_or_default());
    reader.finish()
}

#[derive(Default)]
struct UnitReader {
    made: UnitText,
    lead: Option<usize>,
    /// An introduction that is too long to be written before each item.
    long_lead: Option<String>,
    /// The lines so far of a paragraph or an item.
    open: String,
    in_item: bool,
}

impl UnitReader {
    fn line(&mut self, line: &str, trimmed: &str) {
        if trimmed.is_empty() || is_rule(trimmed) || is_tag(trimmed) {
            self.flush();
        } else if let Some(heading) = heading_of(trimmed) {
            self.flush();
            self.set_lead(heading);
        } else if let Some(row) = row_of(trimmed) {
            self.flush();
            self.push(&row, true);
        } else if let Some(item) = item_of(trimmed) {
            self.flush();
            self.in_item = true;
            item.clone_into(&mut self.open);
        } else {
            let goes_on = !self.open.is_empty() && (!self.in_item || line.starts_with([' ', '\t']));
            if !goes_on {
                self.flush();
            }
            if !self.open.is_empty() {
                self.open
                    .push(if ends_sentence(&self.open) { '\n' } else { ' ' });
            }
            self.open.push_str(trimmed.trim_start_matches("> "));
        }
    }

    fn fenced(&mut self, lines: &[&str]) {
        self.flush();
        if lines.len() <= SHORT_FENCE {
            lines
                .iter()
                .filter(|line| !line.is_empty())
                .for_each(|line| self.push(line, true));
        }
    }

    fn set_lead(&mut self, text: &str) {
        let text = plain(text);
        let text = text.trim_end_matches([':', '：', ' ']);
        self.lead = None;
        if text.len() > LONGEST_LEAD {
            // A long introduction is a unit by itself; if nothing follows, it only announces.
            self.long_lead = Some(format!("{text}:"));
        } else if !text.is_empty() {
            self.lead = Some(self.made.leads.len());
            self.made.leads.push(text.to_owned());
        }
    }

    fn push(&mut self, text: &str, is_raw: bool) {
        if let Some(lead) = self.long_lead.take() {
            self.push(&lead, false);
        }
        let text = shortened(&plain(text));
        if text.chars().any(char::is_alphanumeric) {
            let lead = self.lead;
            self.made.units.push(Unit { text, lead, is_raw });
        }
    }

    /// Ends a paragraph or an item. A sentence that ends with a colon introduces the next units.
    fn flush(&mut self) {
        let open = std::mem::take(&mut self.open);
        let is_item = std::mem::take(&mut self.in_item);
        if open.is_empty() {
            return;
        }
        if !is_item {
            self.lead = None;
        }
        let mut all: Vec<&str> = sentences(&open).filter(|s| !s.is_empty()).collect();
        let bare = |text: &str| text.trim_end_matches(['*', '_']).ends_with([':', '：']);
        let lead = all.pop_if(|last| bare(last));
        for sentence in all {
            self.push(sentence, false);
        }
        if let Some(lead) = lead {
            self.set_lead(lead);
        }
    }

    fn finish(mut self) -> UnitText {
        self.flush();
        self.made
    }
}

fn is_rule(line: &str) -> bool {
    line.len() >= 3
        && line
            .chars()
            .all(|c| matches!(c, '-' | '=' | '*' | '_' | '─' | '━'))
}

/// True if a line is a single tag that opens or closes a part, as in prompts for models. A tag with more than a name is
/// text.
fn is_tag(line: &str) -> bool {
    let inner = line.strip_prefix('<').and_then(|tag| tag.strip_suffix('>'));
    inner.is_some_and(|inner| {
        let name = inner.strip_prefix('/').unwrap_or(inner);
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    })
}

fn heading_of(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    if text.len() < line.len() {
        return text.strip_prefix(' ');
    }
    // A line in bold is a heading too.
    let inner = line.strip_prefix("**")?;
    let inner = inner
        .strip_suffix("**")
        .or_else(|| inner.strip_suffix("**:"))?;
    (!inner.contains("**")).then_some(inner)
}

fn item_of(line: &str) -> Option<&str> {
    let bullet = line.strip_prefix(['-', '*', '•', '+', '–']);
    let rest = bullet.or_else(|| {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = (1..=3).contains(&(line.len() - digits.len()));
        digits.strip_prefix(['.', ')']).filter(|_| numbered)
    })?;
    let rest = rest.strip_prefix(' ')?.trim_start();
    let unboxed = ["[ ] ", "[x] ", "[X] "]
        .iter()
        .find_map(|mark| rest.strip_prefix(mark));
    Some(unboxed.unwrap_or(rest)).filter(|rest| !rest.is_empty())
}

/// Returns the cells of a table's row; empty for the line under the table's head.
fn row_of(line: &str) -> Option<String> {
    let inner = line.strip_prefix(['|', '│', '├', '┌', '└'])?;
    let cells = inner
        .split(['|', '│'])
        .map(str::trim)
        .filter(|cell| !cell.is_empty());
    Some(cells.collect::<Vec<_>>().join(" | "))
}

fn ends_sentence(text: &str) -> bool {
    text.ends_with(['.', '!', '?', ':', '。', '！', '？', '…'])
}

/// Removes bold marks and the targets of links, and puts a text on one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    for word in words.filter(|word| !word.is_empty()) {
        if !plain.is_empty() {
            plain.push(' ');
        }
        match word.contains("**") {
            true => plain.push_str(&word.replace("**", "")),
            false => plain.push_str(word),
        }
    }
    without_targets(&plain)
}

/// `[text](https://…)` becomes `text`.
fn without_targets(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = rest.find("](http") {
        let (before, after) = rest.split_at(at);
        let (Some(open), Some(end)) = (before.rfind('['), after.find(')')) else {
            break;
        };
        plain.push_str(&before[..open]);
        plain.push_str(&before[open + 1..]);
        rest = &after[end + 1..];
    }
    plain.push_str(rest);
    plain
}

fn shortened(text: &str) -> String {
    super::values::shortened(text, LONGEST_UNIT).unwrap_or_default()
}

/// Splits a text of any language into sentences; a line end ends a sentence too.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (sentence, after) = rest.split_at(sentence_end(rest));
            rest = after;
            Some(sentence.trim())
        })
    })
}

/// Returns the end of the first sentence. A stop before a lower-case letter does not end one (`e.g. this`).
fn sentence_end(text: &str) -> usize {
    for (at, c) in text.char_indices() {
        let after = at + c.len_utf8();
        let rest = &text[after..];
        let ends = match c {
            '。' | '！' | '？' => true,
            '.' | '!' | '?' => {
                let next = rest.trim_start_matches(['"', '\'', '”', '’', ')', '*', '`']);
                let first = next.trim_start().chars().next();
                next.starts_with(char::is_whitespace)
                    && !first.is_some_and(char::is_lowercase)
                    && !is_initial(&text[..at])
            }
            _ => false,
        };
        if ends {
            let close = rest.len()
                - rest
                    .trim_start_matches(['"', '\'', '”', '’', ')', '*', '`'])
                    .len();
            return after + close;
        }
    }
    text.len()
}

/// True if the text ends with a word of one letter or digit, as before the stop of `J. Doe` or `1. first`.
fn is_initial(before: &str) -> bool {
    let word = before
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default();
    word.chars().count() == 1 && word.chars().all(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> Vec<String> {
        let all = units_of(text);
        let lead = |unit: &Unit| {
            unit.lead
                .map(|at| format!("{}: ", all.leads[at]))
                .unwrap_or_default()
        };
        all.units
            .iter()
            .map(|unit| lead(unit) + &unit.text)
            .collect()
    }

    #[test]
    fn sentences_end_at_stops_and_lines() {
        let all: Vec<&str> = sentences("Use v1.2 now. Then go!\n第一。第二").collect();
        assert_eq!(all, ["Use v1.2 now.", "Then go!", "第一。", "第二"]);
        let all: Vec<&str> = sentences("See e.g. this. \"Go.\" J. Doe said so.").collect();
        assert_eq!(all, ["See e.g. this.", "\"Go.\"", "J. Doe said so."]);
    }

    #[test]
    fn items_go_with_what_introduces_them() {
        let text = "Done. I changed **two** files:\n\n1. `a.rs`:\n   - a new key\n   - it is read\n     at once\n\n\
            ## Left\n- tests\n\nAll is well.";
        assert_eq!(
            quoted(text),
            [
                "Done.",
                "`a.rs`: a new key",
                "`a.rs`: it is read at once",
                "Left: tests",
                "All is well."
            ]
        );
    }

    #[test]
    fn a_long_lead_stands_by_itself_if_something_follows() {
        let lead = "Look at the changes, and tell me what you think of this feedback before doing anything about it at all";
        let followed = format!("{lead}:\n\n- it is redundant\n- it is slow");
        assert_eq!(
            quoted(&followed),
            [&format!("{lead}:"), "it is redundant", "it is slow"]
        );
        assert_eq!(quoted(&format!("Well. {lead}:")), ["Well."]);
    }

    #[test]
    fn listings_are_left_out_and_rows_are_rows() {
        let text = "It reads:\n```rust\nfn a() {}\nfn b() {}\nfn c() {}\n```\nRun\n```\nmake\n```\n\
            | a | b |\n|---|---|\n| 1 | two |\nNow I look at it:";
        assert_eq!(quoted(text), ["Run", "make", "a | b", "1 | two"]);
    }

    #[test]
    fn a_tag_on_a_line_of_its_own_parts_what_is_around_it() {
        let text =
            "Rules\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>\nSee\n<https://a.example/b>\nor <b>";
        let told = ["Rules", "Use tabs.", "See <https://a.example/b> or <b>"];
        assert_eq!(quoted(text), told);
        let said = "<the port of the staging host>";
        assert_eq!(quoted(said), [said]);
    }

    #[test]
    fn formats_and_targets_go() {
        let text = "See [#42](https://a.example/i/42) and [b](c.md), **now**.";
        assert_eq!(quoted(text), ["See #42 and [b](c.md), now."]);
    }

    #[test]
    fn nothing_breaks_it() {
        for text in [
            "",
            "```",
            "|",
            "- ",
            "**",
            "****",
            "#",
            "1.",
            "\u{0}\u{85}",
            "…",
            &"x".repeat(100_000),
        ] {
            let all = units_of(text);
            assert!(
                all.units.iter().all(|unit| unit.text.len() <= LONGEST_UNIT),
                "{text:?}"
            );
        }
    }
}
