//! Titles of sessions, and the prompts of their loops, as lines for lists.
//!
//! A prompt is a user message that no harness wrote. Prompts of a person come before prompts of a parent agent; most
//! sub-agents have only the latter. A line is made when it is read, so that no line contains redacted or removed
//! text. Only the lines of archived prompts are stored, with their pack, for the views.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::error::{StoreError, StoreResult};
use super::{LoopKey, MessageRef, SessionKey, SessionRow, StoreRead, StoredMessageRef, codec};

/// The largest number of characters of a line.
pub const LINE_CHARS: usize = 100;

/// The largest number of prompts that are read: one without a text, such as a single image, is skipped.
const LOOKED_AT: u32 = 32;

/// The sessions or loops whose prompts are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptsOf<'a> {
    /// The first prompt of each of these sessions.
    Sessions(&'a [SessionKey]),
    /// The first prompt of each loop of a session.
    EachLoop(SessionKey),
    /// The first prompts of a session.
    Session(SessionKey),
    /// The first prompts of a loop.
    Loop(SessionKey, LoopKey),
}

/// The position of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptPlace {
    /// The session.
    pub session: SessionKey,
    /// The loop.
    pub loop_key: LoopKey,
    /// The message.
    pub seq: u32,
}

/// Called with each prompt, borrowed from its row.
pub type VisitPrompt<'a> = dyn FnMut(PromptPlace, &MessageRef<'_>) + 'a;

/// Returns the title of a session: its own, else its first prompt as a line.
///
/// # Errors
/// If the database cannot be read.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, prompt};
/// use loopstore::{Message, Store};
///
/// let weather = Store::in_memory()?;
/// let chat = weather.session("weather")?;
/// chat.append([Message::user("Will it rain\n  tomorrow?")])?;
/// let title = store::read(weather.database(), |read| {
///     let row = read.session(chat.id())?.expect("it is there");
///     prompt::session_title(read, &row)
/// })?;
/// assert_eq!(title.as_deref(), Some("Will it rain tomorrow?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn session_title(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<Option<String>> {
    match own_title(row.title.as_deref()) {
        Some(title) => Ok(Some(title.to_owned())),
        None => session_prompt(read, row.key),
    }
}

/// Returns the title that a session was given, unless it is blank.
pub fn own_title(title: Option<&str>) -> Option<&str> {
    title.filter(|title| !title.trim().is_empty())
}

/// Returns the first prompt of a session as a line: of its oldest loop that has one.
///
/// # Errors
/// If the database cannot be read.
pub fn session_prompt(read: &dyn StoreRead, session: SessionKey) -> StoreResult<Option<String>> {
    first_with_text(read, PromptsOf::Session(session))
}

/// Returns the first prompt of a loop as a line.
///
/// # Errors
/// If the database cannot be read.
pub fn loop_prompt(
    read: &dyn StoreRead,
    session: SessionKey,
    loop_key: LoopKey,
) -> StoreResult<Option<String>> {
    first_with_text(read, PromptsOf::Loop(session, loop_key))
}

/// Returns the first prompt of each of these sessions that has one.
///
/// # Errors
/// If the database cannot be read.
pub fn session_prompts(
    read: &dyn StoreRead,
    sessions: &[SessionKey],
) -> StoreResult<HashMap<SessionKey, String>> {
    let (mut lines, mut without) = (HashMap::new(), Vec::new());
    read.prompts(
        PromptsOf::Sessions(sessions),
        &mut |place, message| match line_of(&message.message) {
            Some(line) => drop(lines.insert(place.session, line)),
            None => without.push(place.session),
        },
    )?;
    for session in without {
        lines.extend(session_prompt(read, session)?.map(|line| (session, line)));
    }
    Ok(lines)
}

/// Returns the first prompt of every loop of a session that has one.
///
/// # Errors
/// If the database cannot be read.
pub fn loop_prompts(
    read: &dyn StoreRead,
    session: SessionKey,
) -> StoreResult<HashMap<LoopKey, String>> {
    let (mut lines, mut without) = (HashMap::new(), Vec::new());
    read.prompts(
        PromptsOf::EachLoop(session),
        &mut |place, message| match line_of(&message.message) {
            Some(line) => drop(lines.insert(place.loop_key, line)),
            None => without.push(place.loop_key),
        },
    )?;
    for key in without {
        lines.extend(loop_prompt(read, session, key)?.map(|line| (key, line)));
    }
    Ok(lines)
}

fn first_with_text(read: &dyn StoreRead, of: PromptsOf<'_>) -> StoreResult<Option<String>> {
    for place in read.prompt_places(of, LOOKED_AT)? {
        let mut line = None;
        visit_prompt(read, place, &mut |_, message| {
            line = line_of(&message.message);
        })?;
        if line.is_some() {
            return Ok(line);
        }
    }
    Ok(None)
}

/// Visits a prompt; a damaged prompt is skipped, since a list has to show all others.
pub(super) fn visit_prompt(
    read: &(impl StoreRead + ?Sized),
    place: PromptPlace,
    visit: &mut VisitPrompt<'_>,
) -> StoreResult<()> {
    let seqs = place.seq..place.seq.saturating_add(1);
    let done = read.message_refs(place.loop_key, seqs, false, &mut |message| {
        visit(place, message);
        Ok(ControlFlow::Break(()))
    });
    match done {
        Err(StoreError::Damaged(_)) => Ok(()),
        done => done,
    }
}

/// Returns a prompt as a line; `None` if nothing is left of it.
pub(super) fn line_of(message: &StoredMessageRef<'_>) -> Option<String> {
    // Images are not read.
    let decoded = codec::decode_ref(message, &mut |_| Ok(Some(Vec::new()))).ok()?;
    let mut texts = decoded.message()?.prompt_texts();
    line(&mut texts)
}

/// Returns a text as one line: white space is folded, control characters are left out, and a line that is
/// too long is cut at a word. `None` if nothing is left.
fn line(texts: &mut dyn Iterator<Item = &str>) -> Option<String> {
    let (mut line, mut chars) = (String::new(), 0);
    // The end of the last word in the second half that leaves room for an ellipsis; else the place to cut.
    let (mut word_end, mut cut) = (None, 0);
    let mut is_between = false;
    for letter in texts.flat_map(|text| text.chars().chain(['\n'])) {
        if letter.is_whitespace() {
            is_between = !line.is_empty();
            continue;
        }
        if letter.is_control() {
            continue;
        }
        if std::mem::take(&mut is_between) {
            if (LINE_CHARS / 2 + 1..LINE_CHARS).contains(&chars) {
                word_end = Some(line.len());
            }
            line.push(' ');
            chars += 1;
        }
        if chars + 1 >= LINE_CHARS && cut == 0 {
            cut = line.len();
        }
        if chars >= LINE_CHARS {
            line.truncate(word_end.unwrap_or(cut));
            line.truncate(line.trim_end().len());
            line.push('…');
            return Some(line);
        }
        line.push(letter);
        chars += 1;
    }
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        line(&mut [text].into_iter())
    }

    #[test]
    fn a_line_is_folded_and_cut_at_a_word() {
        assert_eq!(
            of(" Will it\n\train\u{a0}now? ").unwrap(),
            "Will it rain now?"
        );
        assert_eq!(of(" \n\u{1b}\u{7}"), None);
        assert_eq!(of("\u{1b}[31mred\u{0}\r\nend").unwrap(), "[31mred end");
        let two = line(&mut ["one", "two"].into_iter());
        assert_eq!(two.unwrap(), "one two");

        let whole = format!("{}and", "word ".repeat(19));
        assert_eq!(of(&whole).unwrap(), whole);
        let full = format!("{}words", "word ".repeat(19));
        assert_eq!(of(&format!("{full} \n")).unwrap(), full);
        let cut = format!("{}word…", "word ".repeat(18));
        for longer in [format!("{full}!"), format!("{}words", "word ".repeat(20))] {
            let line = of(&longer).unwrap();
            assert!(line.chars().count() <= LINE_CHARS, "{line}");
            assert!(
                line == cut || line == format!("{}word…", "word ".repeat(19)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_text_without_words_is_cut_where_it_must_be() {
        for text in [
            "請".repeat(1 << 20),
            "x".repeat(1 << 20),
            format!("a {}", "é".repeat(400)),
        ] {
            let line = of(&text).unwrap();
            assert_eq!(line.chars().count(), LINE_CHARS, "{line}");
            assert!(line.ends_with('…'));
        }
    }
}
