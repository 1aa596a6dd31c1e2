//! Splits a command line into words as a shell does.

/// The most commands of one line, and the most words of one command.
const MOST_COMMANDS: usize = 512;
const MOST_WORDS: usize = 1_024;

/// A word without its quotes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word {
    pub(super) text: String,
    /// True if the shell replaces a part of it: a variable, a pattern, the output of a command.
    expands: bool,
}

impl Word {
    pub(super) fn is_plain(&self) -> bool {
        !self.expands && !self.text.is_empty()
    }
}

/// A program with its arguments.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<Word>,
    /// `>`, `a` for `>>`, or `<`, and the file.
    pub(super) redirects: Vec<(char, Word)>,
    pub(super) heredoc: Option<String>,
    /// True if the shell passes the heredoc on as it is written.
    pub(super) is_literal: bool,
    /// True for the first command after `;`, `||` or a line end: earlier commands do not decide the exit code.
    pub(super) begins_part: bool,
    /// True if the command reads the output of another.
    pub(super) is_piped_into: bool,
}

impl SimpleCommand {
    pub(super) fn writes(&self) -> bool {
        self.redirects
            .iter()
            .any(|(kind, to)| *kind != '<' && !to.text.starts_with("/dev/"))
    }
}

struct Splitter<'a> {
    text: &'a str,
    at: usize,
    done: Vec<SimpleCommand>,
    current: SimpleCommand,
    word: Option<Word>,
    /// The redirection whose file is the next word.
    redirect: Option<char>,
    /// The heredocs that begin on the next line.
    heredocs: Vec<Heredoc>,
}

/// A heredoc whose body follows.
struct Heredoc {
    /// The index of its command.
    command: usize,
    end: String,
    /// True if tabs at the beginning of lines are stripped.
    is_indented: bool,
    /// True if the shell replaces nothing in the body.
    is_quoted: bool,
}

/// Splits a line into its commands.
pub(super) fn commands(text: &str) -> Vec<SimpleCommand> {
    let mut splitter = Splitter {
        text,
        at: 0,
        done: Vec::new(),
        current: SimpleCommand {
            begins_part: true,
            ..SimpleCommand::default()
        },
        word: None,
        redirect: None,
        heredocs: Vec::new(),
    };
    while splitter.at < text.len() && splitter.done.len() < MOST_COMMANDS {
        splitter.step();
    }
    splitter.end_command(false, false);
    splitter.done
}

impl<'a> Splitter<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn step(&mut self) {
        let Some(c) = self.rest().chars().next() else {
            return;
        };
        let rest = self.rest();
        match c {
            '\\' => {
                let escaped = rest[1..].chars().next();
                self.at += 1 + escaped.map_or(0, char::len_utf8);
                if let Some(escaped) = escaped.filter(|c| *c != '\n') {
                    self.push(escaped);
                }
            }
            '\'' => self.quoted(1, '\''),
            '$' if rest.starts_with("$'") => self.quoted(2, '\''),
            '"' => self.double(),
            '#' if self.word.is_none() => self.at += rest.find('\n').unwrap_or(rest.len()),
            '\n' => {
                self.at += 1;
                self.end_word();
                self.bodies();
                self.end_command(true, false);
            }
            ';' => {
                self.at += rest.len() - rest.trim_start_matches(';').len();
                self.end_command(true, false);
            }
            '|' => {
                let is_or = rest.starts_with("||");
                self.at += if is_or || rest.starts_with("|&") {
                    2
                } else {
                    1
                };
                self.end_command(is_or, !is_or);
            }
            '&' if rest.starts_with("&&") => {
                self.at += 2;
                self.end_command(false, false);
            }
            '&' if rest.starts_with("&>") => {
                self.end_word();
                self.at += if rest.starts_with("&>>") { 3 } else { 2 };
                self.redirect = Some(if rest.starts_with("&>>") { 'a' } else { '>' });
            }
            '&' => {
                self.at += 1;
                self.end_command(true, false);
            }
            '(' | ')' if self.word.is_none() => {
                self.at += 1;
                self.end_word();
            }
            ')' => {
                self.at += 1;
                self.end_word();
            }
            '<' | '>' => self.redirection(),
            '$' | '`' => self.expansion(),
            '*' | '?' | '[' | '{' => {
                let is_word = self.word.is_some() || !rest[1..].starts_with([' ', '[']);
                self.at += 1;
                self.push(c);
                if let Some(word) = self.word.as_mut().filter(|_| is_word) {
                    word.expands = true;
                }
            }
            c if c.is_whitespace() => {
                self.at += c.len_utf8();
                self.end_word();
            }
            c => {
                self.at += c.len_utf8();
                self.push(c);
            }
        }
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().text.push(c);
    }

    fn quoted(&mut self, open: usize, mark: char) {
        let inside = &self.text[self.at + open..];
        let end = inside.find(mark).unwrap_or(inside.len());
        self.word
            .get_or_insert_default()
            .text
            .push_str(&inside[..end]);
        self.at = (self.at + open + end + 1).min(self.text.len());
    }

    fn double(&mut self) {
        self.at += 1;
        self.word.get_or_insert_default();
        while let Some(c) = self.rest().chars().next() {
            self.at += c.len_utf8();
            match c {
                '"' => return,
                '\\' => {
                    let Some(escaped) = self.rest().chars().next() else {
                        return;
                    };
                    self.at += escaped.len_utf8();
                    if !matches!(escaped, '"' | '\\' | '$' | '`' | '\n') {
                        self.push('\\');
                    }
                    self.push(escaped);
                }
                '$' | '`' => {
                    self.at -= 1;
                    self.expansion();
                }
                c => self.push(c),
            }
        }
    }

    /// Skips a variable or the substitution of a command.
    fn expansion(&mut self) {
        let rest = self.rest();
        let (open, close) = match () {
            () if rest.starts_with("$(") => ('(', ')'),
            () if rest.starts_with("${") => ('{', '}'),
            () if rest.starts_with('`') => ('`', '`'),
            () => ('$', '$'),
        };
        let length = if open == '$' {
            1
        } else {
            let mut depth = 0;
            let skipped = usize::from(open != '`');
            let mut inside = rest[skipped..].char_indices();
            let end = inside.find(|(at, c)| {
                if *c == open && (open != '`' || *at == 0) {
                    depth += 1;
                } else if *c == close {
                    depth -= 1;
                }
                depth == 0
            });
            end.map_or(rest.len(), |(at, c)| skipped + at + c.len_utf8())
        };
        let text = rest[..length].to_owned();
        self.at += length;
        let word = self.word.get_or_insert_default();
        word.text.push_str(&text);
        word.expands = true;
    }

    fn redirection(&mut self) {
        // The number in `2>` is a file descriptor, not a word.
        if self
            .word
            .as_ref()
            .is_some_and(|word| word.text.len() == 1 && word.text.as_bytes()[0].is_ascii_digit())
        {
            self.word = None;
        }
        self.end_word();
        let rest = self.rest();
        if rest.starts_with("<<<") {
            self.at += 3;
            self.redirect = Some('w');
        } else if let Some(behind) = rest.strip_prefix("<<") {
            let is_indented = behind.starts_with('-');
            let name = behind
                .trim_start_matches('-')
                .trim_start_matches([' ', '\t']);
            let quotes = ['\'', '"', '\\'];
            let is_quoted = name.starts_with(quotes);
            let name = name.trim_start_matches(quotes);
            let end = name
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
                .unwrap_or(name.len());
            let behind = name[end..].trim_start_matches(['\'', '"']);
            let (name, at) = (name[..end].to_owned(), self.text.len() - behind.len());
            self.at = at;
            if !name.is_empty() {
                self.heredocs.push(Heredoc {
                    command: self.done.len(),
                    end: name,
                    is_indented,
                    is_quoted,
                });
            }
        } else if rest.starts_with(">&") || rest.starts_with("<&") {
            self.at += 2;
            self.redirect = Some('&');
        } else {
            let kind = match rest {
                rest if rest.starts_with(">>") => ('a', 2),
                rest if rest.starts_with(">|") => ('>', 2),
                rest if rest.starts_with('>') => ('>', 1),
                // The output of another command, as a file.
                rest if rest.starts_with("<(") => ('&', 2),
                _ => ('<', 1),
            };
            self.at += kind.1;
            self.redirect = Some(kind.0);
        }
    }

    /// Reads the bodies of the heredocs that the line began.
    fn bodies(&mut self) {
        for heredoc in std::mem::take(&mut self.heredocs) {
            let from = self.at;
            let mut to = self.text.len();
            let mut next = to;
            let mut at = from;
            for line in self.text[from..].split_inclusive('\n') {
                let bare = line.trim_end_matches(['\n', '\r']);
                let bare = if heredoc.is_indented {
                    bare.trim_start_matches('\t')
                } else {
                    bare
                };
                if bare == heredoc.end {
                    (to, next) = (at, at + line.len());
                    break;
                }
                at += line.len();
            }
            let body = self.text[from..to].to_owned();
            let is_stripped =
                heredoc.is_indented && body.lines().any(|line| line.starts_with('\t'));
            let is_replaced = !heredoc.is_quoted && body.contains(['$', '`', '\\']);
            self.at = next;
            let command = self
                .done
                .get_mut(heredoc.command)
                .unwrap_or(&mut self.current);
            command.is_literal = !is_stripped && !is_replaced;
            command.heredoc = Some(body);
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.redirect.take() {
            Some(kind @ ('>' | 'a' | '<')) => self.current.redirects.push((kind, word)),
            Some(_) => {}
            None if self.current.words.len() < MOST_WORDS => self.current.words.push(word),
            None => {}
        }
    }

    fn end_command(&mut self, begins_part: bool, is_piped_into: bool) {
        self.end_word();
        self.redirect = None;
        let next = SimpleCommand {
            begins_part,
            is_piped_into,
            ..SimpleCommand::default()
        };
        let is_empty = self.current.words.is_empty() && self.current.redirects.is_empty();
        if is_empty && self.heredocs.is_empty() {
            self.current.begins_part |= begins_part;
            self.current.is_piped_into &= is_piped_into;
            return;
        }
        self.done.push(std::mem::replace(&mut self.current, next));
    }
}
