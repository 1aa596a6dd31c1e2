//! Translates rows to messages.

use loopstore::model::{AgentMessage, Content, Extra, Message, Time};
use serde_json::value::RawValue;

use super::database::{AgentBranches, AgentFile, AgentItem};
use super::time;
use crate::ImportError;
use crate::responses::{ResponseItem, answer, item};
use crate::transcript::{EntryTree, NewLoop, TranscriptBuilder};

/// The items of the current answer.
#[derive(Default)]
struct ModelOutput {
    /// The name of the loop that the answer begins, if there is no current loop.
    name: String,
    rows: Vec<SessionRecord>,
    content: Vec<Content>,
    sources: Vec<Extra>,
    raw: String,
    millis: Option<i64>,
}

/// A row, and the row before it on its branch.
#[derive(Clone, Copy)]
pub(super) struct SessionRecord {
    number: i64,
    parent: Option<Option<i64>>,
}

/// Emits a session.
pub(super) struct AgentsEmitter<'a> {
    pub(super) transcript: TranscriptBuilder<'a>,
    pub(super) file: &'a AgentFile,
    pub(super) branches: AgentBranches,
    session: String,
    output: Option<ModelOutput>,
    /// The first row; its loop includes the content before it.
    first: Option<i64>,
    /// The turns of rows, by the numbers of the rows.
    pub(super) tree: EntryTree,
    /// The rows of each entry of the tree.
    pub(super) entries: Vec<Vec<i64>>,
}

impl<'a> AgentsEmitter<'a> {
    pub(super) fn new(
        transcript: TranscriptBuilder<'a>,
        file: &'a AgentFile,
        session: &str,
    ) -> Self {
        Self {
            transcript,
            file,
            branches: AgentBranches::default(),
            session: session.to_owned(),
            output: None,
            first: None,
            tree: EntryTree::default(),
            entries: Vec::new(),
        }
    }

    /// Reports a part of the session that could not be used.
    pub(super) fn skip(&mut self, reason: String) {
        let reason = format!("session `{}`: {reason}", self.session);
        self.transcript.skip(None, reason);
    }

    /// Returns the name of the loop that a row begins; instructions before the row are part of the loop.
    fn name(&self, row: &AgentItem) -> String {
        let first = self.first.filter(|_| self.transcript.here().is_none());
        loop_name(first.unwrap_or(row.row))
    }

    /// Emits the next row.
    pub(super) fn row(&mut self, mut row: AgentItem) -> Result<(), ImportError> {
        let number = u64::try_from(row.row).ok();
        row.data = self.transcript.repair(row.data, number);
        match read(&row) {
            Ok(item) => self.item(&row, item),
            Err(reason) => {
                let reason = format!("row {} of session `{}`: {reason}", row.row, self.session);
                self.transcript.skip(None, reason);
                Ok(())
            }
        }
    }

    fn item(&mut self, row: &AgentItem, item: ResponseItem) -> Result<(), ImportError> {
        self.first.get_or_insert(row.row);
        if let ResponseItem::Output(content, source) = item {
            return self.output(row, content, source);
        }
        self.flush_output()?;
        let at = SessionRecord::of(row);
        let is_prompt = matches!(item, ResponseItem::Prompt(_));
        let is_message = !matches!(item, ResponseItem::Extension(_));
        let is_begun = is_message && self.branch(at, is_prompt)?;
        self.emit(row, item, is_begun)?;
        self.added(&[at], is_message);
        Ok(())
    }

    /// Adds a row to the current answer.
    fn output(
        &mut self,
        row: &AgentItem,
        content: Vec<Content>,
        source: Extra,
    ) -> Result<(), ImportError> {
        let at = SessionRecord::of(row);
        let is_continued = |output: &ModelOutput| {
            let last = output.rows.last().map(|last| last.number);
            at.parent.is_none_or(|parent| parent == last)
        };
        if !self.output.as_ref().is_some_and(is_continued) {
            self.flush_output()?;
            self.branch(at, false)?;
        }
        let name = self.name(row);
        let output = self.output.get_or_insert_with(|| ModelOutput {
            name,
            ..ModelOutput::default()
        });
        output.add(row, content, source);
        Ok(())
    }

    /// Emits a row that is not part of an answer; `is_begun` is true if its loop was begun already.
    fn emit(
        &mut self,
        row: &AgentItem,
        item: ResponseItem,
        is_begun: bool,
    ) -> Result<(), ImportError> {
        let at = row.created_at.as_deref().map(time);
        let millis = at.as_ref().and_then(Time::millis);
        let bytes = row.data.as_bytes();
        match item {
            ResponseItem::Prompt(message) => {
                if !is_begun {
                    self.transcript.begin(NewLoop {
                        started: at,
                        ..self.transcript.next_loop(self.name(row))
                    })?;
                }
                self.transcript.input(at_time(message, millis), bytes, true)
            }
            ResponseItem::Result(message) => {
                let name = self.name(row);
                let message = at_time(message, millis);
                self.transcript.result(|| name, message, bytes)
            }
            ResponseItem::Extension(message) => self.transcript.extension(message, bytes),
            ResponseItem::Output(..) => Ok(()),
        }
    }

    /// Emits the rows of one entry again, in a new loop.
    pub(super) fn repeat_rows(&mut self, rows: &[AgentItem]) -> Result<(), ImportError> {
        let mut output = ModelOutput::default();
        for row in rows {
            match read(row) {
                Ok(ResponseItem::Output(content, source)) => output.add(row, content, source),
                Ok(item) => self.emit(row, item, true)?,
                // The error was reported at the first reading.
                Err(_) => {}
            }
        }
        match output.rows.is_empty() {
            true => Ok(()),
            false => self.answer(output),
        }
    }

    /// Emits the current answer.
    pub(super) fn flush_output(&mut self) -> Result<(), ImportError> {
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        let rows = output.rows.clone();
        self.answer(output)?;
        self.added(&rows, true);
        Ok(())
    }

    fn answer(&mut self, output: ModelOutput) -> Result<(), ImportError> {
        let message = at_time(answer(output.content, output.sources), output.millis);
        self.transcript
            .answer(|| output.name, message, output.raw.as_bytes())
    }

    /// Records the position of rows that form one message.
    fn added(&mut self, rows: &[SessionRecord], is_message: bool) {
        if self.branches.order.is_empty() {
            return;
        }
        let mut at = self.transcript.last_turn().filter(|_| is_message);
        for row in rows {
            let parent = row.parent();
            let parent = parent.as_ref().map(Option::as_deref);
            self.tree
                .add(Some(row.number.to_string()), parent, at.take());
            self.entries
                .push(rows.iter().map(|row| row.number).collect());
        }
    }

    /// Ends the session. Returns true if there was a conversation.
    pub(super) fn end(mut self) -> Result<bool, ImportError> {
        self.flush_output()?;
        let name = self.first.map(loop_name);
        self.transcript.finish_as(name.unwrap_or_default())
    }
}

impl SessionRecord {
    fn of(item: &AgentItem) -> Self {
        Self {
            number: item.row,
            parent: item.parent,
        }
    }

    pub(super) fn name(self) -> String {
        loop_name(self.number)
    }

    /// Returns the name of the parent in the tree.
    pub(super) fn parent(self) -> Option<Option<String>> {
        self.parent
            .map(|parent| parent.map(|number| number.to_string()))
    }
}

impl ModelOutput {
    fn add(&mut self, row: &AgentItem, content: Vec<Content>, source: Extra) {
        let at = row.created_at.as_deref().map(time);
        self.rows.push(SessionRecord::of(row));
        self.content.extend(content);
        self.sources.push(source);
        self.millis = self.millis.or(at.as_ref().and_then(Time::millis));
        if !self.raw.is_empty() {
            self.raw.push('\n');
        }
        self.raw.push_str(&row.data);
    }
}

fn read(row: &AgentItem) -> Result<ResponseItem, String> {
    let raw: &RawValue =
        serde_json::from_str(&row.data).map_err(|error| format!("not JSON: {error}"))?;
    item(raw)
}

fn loop_name(first_row: i64) -> String {
    format!("row-{first_row}")
}

fn at_time(mut message: AgentMessage, millis: Option<i64>) -> AgentMessage {
    let millis = millis.map(Into::into);
    match message.message_mut() {
        Some(Message::User(user)) => user.timestamp = millis,
        Some(Message::Assistant(answer)) => answer.timestamp = millis,
        Some(Message::ToolResult(result)) => result.timestamp = millis,
        None => {}
    }
    message
}
