//! The lines of a chat history, grouped by author.

use std::io::{BufRead, Read};
use std::path::Path;

use super::STARTED;
use crate::{ImportError, MAX_RECORD_BYTES, ReadSeek, Source, unread};

/// The end of each line that aider writes for itself or a person: a line break in Markdown.
const LINE_END: &str = "  ";

/// The author of a part of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatSpeaker {
    /// The beginning of a chat, with its time.
    Start(String),
    Person,
    Aider,
    Model,
}

/// Consecutive lines of one author.
pub(super) struct ChatBlock {
    pub(super) speaker: ChatSpeaker,
    /// The first line, from 1.
    pub(super) line: u64,
    /// The text without the marks of its author.
    pub(super) text: String,
    /// The bytes in the file.
    pub(super) raw: String,
    /// The reason why a part of the block could not be read.
    pub(super) fault: Option<&'static str>,
}

/// Reads a file block by block.
pub(super) struct ChatBlocks<'a> {
    path: &'a Path,
    reader: &'a mut dyn ReadSeek,
    line: u64,
    /// True if the next text begins a line.
    is_begin: bool,
    /// True if lines that the model did not write end as aider's lines do.
    ends_lines: bool,
    /// The first line of the next block.
    ahead: Option<ChatLine>,
}

struct ChatLine {
    speaker: Option<ChatSpeaker>,
    number: u64,
    text: String,
    raw: String,
    fault: Option<&'static str>,
}

impl<'a> ChatBlocks<'a> {
    pub(super) fn new<'s: 'a>(source: &'a mut Source<'s>) -> Self {
        Self {
            path: source.path,
            reader: &mut *source.reader,
            line: 0,
            is_begin: true,
            ends_lines: false,
            ahead: None,
        }
    }

    /// Returns the next block, `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<ChatBlock>, ImportError> {
        let Some(first) = self.first()? else {
            return Ok(None);
        };
        let Some(speaker) = first.speaker else {
            return Ok(None);
        };
        let mut block = ChatBlock {
            speaker,
            line: first.number,
            text: first.text,
            raw: first.raw,
            fault: first.fault,
        };
        let mut was_blank = false;
        while let Some(line) = self.read()? {
            // A blank line belongs to an answer; between two prompts it separates them.
            let is_continued = match &line.speaker {
                None => true,
                Some(speaker) => {
                    *speaker == block.speaker
                        && !matches!(speaker, ChatSpeaker::Start(_))
                        && !(was_blank && *speaker == ChatSpeaker::Person)
                }
            };
            if !is_continued || block.raw.len() + line.raw.len() > MAX_RECORD_BYTES {
                self.ahead = Some(line);
                break;
            }
            was_blank = line.speaker.is_none();
            block.text.push('\n');
            block.text.push_str(&line.text);
            block.raw.push_str(&line.raw);
            block.fault = block.fault.or(line.fault);
        }
        block.text.truncate(block.text.trim_end().len());
        // At the end of the file the next block is unknown.
        block.raw.truncate(block.raw.trim_end().len());
        Ok(Some(block))
    }

    /// Returns the next line that is not blank.
    fn first(&mut self) -> Result<Option<ChatLine>, ImportError> {
        while let Some(line) = self
            .ahead
            .take()
            .map_or_else(|| self.read(), |line| Ok(Some(line)))?
        {
            if line.speaker.is_some() {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<Option<ChatLine>, ImportError> {
        let mut bytes = Vec::new();
        let most = MAX_RECORD_BYTES as u64;
        let mut limited = (&mut *self.reader).take(most);
        let read = limited.read_until(b'\n', &mut bytes);
        if read.map_err(unread(self.path))? == 0 {
            return Ok(None);
        }
        self.line += u64::from(self.is_begin);
        self.is_begin = bytes.ends_with(b"\n");
        let (raw, fault) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                (text, Some("not UTF-8; what cannot be read is marked"))
            }
        };
        let plain = raw.trim_end_matches(['\n', '\r']);
        let plain = plain.strip_prefix('\u{feff}').unwrap_or(plain);
        let (speaker, text) = read_line(plain, self.ends_lines);
        self.ends_lines |= speaker == Some(ChatSpeaker::Person) && plain.ends_with(LINE_END);
        Ok(Some(ChatLine {
            speaker,
            number: self.line,
            text: text.to_owned(),
            raw,
            fault,
        }))
    }
}

/// Returns the author of a line and its text; a blank line has no author. If aider's lines have their own ending, a
/// line without it is the model's: a heading or a quotation.
fn read_line(line: &str, ends_lines: bool) -> (Option<ChatSpeaker>, &str) {
    if let Some(at) = line.strip_prefix(STARTED) {
        return (Some(ChatSpeaker::Start(at.trim().to_owned())), "");
    }
    let marked = |mark: &str| {
        let rest = line.strip_prefix(mark)?;
        let text = rest.strip_prefix(' ').or(rest.is_empty().then_some(""))?;
        (!ends_lines || line.ends_with(LINE_END)).then(|| text.trim_end())
    };
    if let Some(text) = marked("####") {
        return (Some(ChatSpeaker::Person), text);
    }
    if let Some(text) = marked(">") {
        return (Some(ChatSpeaker::Aider), text);
    }
    match line.trim().is_empty() {
        true => (None, ""),
        false => (Some(ChatSpeaker::Model), line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn blocks(text: &[u8]) -> Vec<(ChatSpeaker, u64, String)> {
        let mut reader = Cursor::new(text.to_vec());
        let mut source = Source {
            path: Path::new("a.md"),
            reader: &mut reader,
        };
        let (mut blocks, mut all) = (ChatBlocks::new(&mut source), Vec::new());
        while let Some(block) = blocks.next().unwrap() {
            all.push((block.speaker, block.line, block.text));
        }
        all
    }

    #[test]
    fn lines_are_put_together_by_who_said_them() {
        let text = "\n# aider chat started at 2031-04-01 09:00:00\n\n> Aider v1  \n> Git repo  \n\n#### mend it  \n\
                    #### now  \n\nI mend.\n\nDone.\n> Tokens: 1 sent, 2 received.  \n\n#### /add a.rs  \n\n#### go on  \n";
        let texts: Vec<String> = blocks(text.as_bytes())
            .into_iter()
            .map(|(_, _, text)| text)
            .collect();
        let expected = [
            "",
            "Aider v1\nGit repo",
            "mend it\nnow",
            "I mend.\n\nDone.",
            "Tokens: 1 sent, 2 received.",
            "/add a.rs",
            "go on",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn where_lines_end_as_aider_ends_them_a_heading_of_an_answer_is_no_prompt() {
        let found = blocks(b"#### go  \n\n#### Always push\n> quoted\n\n> Aider  \n#### next  \n");
        let speakers: Vec<&ChatSpeaker> = found.iter().map(|(speaker, ..)| speaker).collect();
        let expected = [
            &ChatSpeaker::Person,
            &ChatSpeaker::Model,
            &ChatSpeaker::Aider,
            &ChatSpeaker::Person,
        ];
        assert_eq!(speakers, expected);
    }

    #[test]
    fn a_heading_of_an_answer_is_no_prompt_and_bad_bytes_cost_nothing_else() {
        let found = blocks(b"#### go\n\n##### Deep\n#Wide\n>quoted\n\xff\xfe\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].0, ChatSpeaker::Model);
        assert!(found[1].2.contains("##### Deep") && found[1].2.contains('\u{fffd}'));
    }
}
