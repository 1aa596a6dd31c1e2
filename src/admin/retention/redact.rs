//! Taking secrets out of a stored session.
//!
//! Everything is read twice: first to find the secrets, then to replace them wherever they stand, also
//! where no rule would find them, in a summary say. A message that changes keeps its digest and its
//! place in the chain and loses the salt; what stands there now has a digest of its own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::Serialize;

use super::sizes::{Changes, SizeChange};
use super::{Leftover, scrub};
use crate::model::{AgentMessage, LoopId, Role, SessionId};
use crate::redact::Redactor;
use crate::store::codec::{self};
use crate::store::receipt::{MessageDigest, OpenReceipt, Receipt};
use crate::store::removal::{StoreRemove, TextCell, TextForm};
use crate::store::scan::MessagePlace;
use crate::store::{
    Database, LoopRow, SessionKey, StoreError, StoreResult, StoredMessage, database, decode, index,
};
use crate::tokens::TokenCounter;

/// What was redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactReport {
    /// The session.
    pub session_id: SessionId,
    /// The receipt; `None`: there was nothing to redact.
    pub receipt: Option<i64>,
    /// Secrets that were replaced, by type.
    pub secrets: BTreeMap<String, u64>,
    /// Messages that changed, those of blocks included.
    pub messages: u64,
    /// Other texts that changed, by table and column.
    pub texts: BTreeMap<String, u64>,
    /// Kept source files that went: they hold the secrets too.
    pub sources: u64,
    /// Other sessions that these files held something of.
    pub source_of: Vec<SessionId>,
    /// Whether bytes are left.
    pub leftover: Leftover,
}

/// Replaces the secrets in a stored session by markers. What is imported into it from then on is
/// redacted first.
///
/// # Errors
/// If there is no such session, if it is damaged, or if the store refuses. Then nothing was changed.
///
/// # Examples
/// ```
/// use loopstore::admin::retention::redact_session;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("git clone https://me:hunter2@example.org/x")])?;
/// let report = redact_session(store.database(), chat.id(), Some("a password in an address"))?;
/// assert_eq!(report.secrets["url-password"], 1);
/// let context = chat.context()?;
/// assert!(!format!("{:?}", context.messages).contains("hunter2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn redact_session(
    store: &dyn Database,
    session: &SessionId,
    reason: Option<&str>,
) -> StoreResult<RedactReport> {
    let mut report = database::removing(store, |write| {
        let row = write
            .session(session)?
            .ok_or_else(|| StoreError::NoSession(session.to_string()))?;
        let redactor = Redactor::new(&write.import_key()?).remembering();
        let mut work = RedactWork {
            session: row.key,
            redactor,
            counter: store.counter(),
            changes: Changes::default(),
            digests: Vec::new(),
        };
        let has_any = work.learn(write)?;
        let is_known = write.flags(row.key)?.redacts && write.sources(row.key)?.is_empty();
        if is_known && !has_any {
            return Ok(RedactReport::nothing(row.session_id));
        }
        work.replace(write, row.session_id, reason)
    })?;
    report.leftover = scrub(store)?;
    Ok(report)
}

impl RedactReport {
    fn nothing(session: SessionId) -> Self {
        Self {
            session_id: session,
            receipt: None,
            secrets: BTreeMap::new(),
            messages: 0,
            texts: BTreeMap::new(),
            sources: 0,
            source_of: Vec::new(),
            leftover: Leftover::None,
        }
    }
}

struct RedactWork<'a> {
    session: SessionKey,
    redactor: Redactor,
    counter: &'a dyn TokenCounter,
    changes: Changes,
    digests: Vec<MessageDigest>,
}

/// A message and what it says.
struct RedactableText {
    place: MessagePlace,
    stored: StoredMessage,
    message: AgentMessage,
}

impl RedactWork<'_> {
    /// Finds all secrets, and returns whether there are any.
    fn learn(&mut self, read: &dyn StoreRemove) -> StoreResult<bool> {
        for row in read.loops(self.session)? {
            for_each_message(read, &row, &mut |entry| {
                self.redact(&entry.message)?;
                Ok(())
            })?;
        }
        read.texts(self.session, &mut |cell| {
            self.redact_text(cell);
            Ok(())
        })?;
        let has_any = !self.redactor.counts().is_empty();
        self.redactor.reset_counts();
        Ok(has_any)
    }

    fn redact(&mut self, message: &AgentMessage) -> StoreResult<Option<AgentMessage>> {
        let invalid = |error: serde_json::Error| StoreError::Invalid(error.to_string());
        self.redactor.message(message).map_err(invalid)
    }

    fn redact_text(&mut self, cell: TextCell<'_>) -> Option<String> {
        match cell.form {
            TextForm::Text => self.redactor.text(cell.text),
            TextForm::Json => self.redactor.json(cell.text),
            TextForm::Meta => self.redactor.meta(cell.text),
        }
    }

    fn replace(
        &mut self,
        write: &mut dyn StoreRemove,
        session: SessionId,
        reason: Option<&str>,
    ) -> StoreResult<RedactReport> {
        let key = self.session;
        let mut receipt = Receipt::of(write.as_read(), key, session, reason)?;
        let open = OpenReceipt::new(write, key, "redact")?;
        for row in write.loops(key)? {
            self.replace_in_loop(write, &row, open.key)?;
        }
        self.changes.settle(write, key)?;
        let texts = write.change_texts(key, &mut |cell| Ok(self.redact_text(cell)))?;
        let sources = write.remove_sources(key)?;
        receipt.take_sources(write.as_read(), &sources)?;
        let texts = texts.counts.into_iter();
        receipt.counts = texts
            .map(|(place, count)| (place.to_owned(), count))
            .collect();
        receipt.messages = std::mem::take(&mut self.digests);
        receipt.secrets.clone_from(self.redactor.counts());
        let mut flags = write.flags(key)?;
        flags.redacts = true;
        write.put_flags(key, &flags)?;
        write.note_scrub()?;
        let number = open.close(write, &receipt)?;
        Ok(RedactReport {
            session_id: receipt.session,
            receipt: Some(number),
            secrets: receipt.secrets,
            messages: receipt.messages.len() as u64,
            texts: receipt.counts,
            sources: receipt.sources.len() as u64,
            source_of: receipt.source_of,
            leftover: Leftover::None,
        })
    }

    fn replace_in_loop(
        &mut self,
        write: &mut dyn StoreRemove,
        row: &LoopRow,
        receipt: i64,
    ) -> StoreResult<()> {
        let mut found = Vec::new();
        for_each_message(write, row, &mut |entry| {
            if let Some(new) = self.redact(&entry.message)? {
                found.push((entry, new));
            }
            Ok(())
        })?;
        let mut first = None;
        for (entry, new) in found {
            if let MessagePlace::InLoop(_, seq) = entry.place {
                first.get_or_insert(seq);
            }
            self.replace_message(write, &row.loop_id, entry, new, receipt)?;
        }
        match first {
            Some(seq) => index::remove_loop(write, row.key, seq),
            None => Ok(()),
        }
    }

    fn replace_message(
        &mut self,
        write: &mut dyn StoreRemove,
        loop_id: &LoopId,
        entry: RedactableText,
        new: AgentMessage,
        receipt: i64,
    ) -> StoreResult<()> {
        check(write, &entry)?;
        let is_system = matches!(&new, AgentMessage::Extension(note) if note.kind == "system");
        let (stored, _) = codec::encode(new, self.counter)?;
        write.redact_message(entry.place, &stored, receipt)?;
        let old = &entry.stored;
        let change = SizeChange::between((old.tokens, old.bytes), (stored.tokens, stored.bytes));
        let (generation, seq) = match entry.place {
            MessagePlace::InLoop(_, seq) => (None, seq),
            MessagePlace::InBlock(block, ordinal) => {
                (Some(write.block_by_key(block)?.generation), ordinal)
            }
        };
        self.digests.push(MessageDigest {
            loop_id: loop_id.clone(),
            generation,
            seq,
            was: hex::encode(old.digest),
            now: hex::encode(stored.digest),
        });
        self.note_change(entry.place, old.role, is_system, change);
        Ok(())
    }

    fn note_change(
        &mut self,
        place: MessagePlace,
        role: Role,
        is_system: bool,
        change: SizeChange,
    ) {
        let changes = &mut self.changes;
        match place {
            MessagePlace::InLoop(key, _) if role == Role::Extension => {
                if is_system {
                    changes.system.entry(key).or_default().add(change);
                }
            }
            MessagePlace::InLoop(key, seq) => {
                changes.messages.entry(key).or_default().insert(seq, change);
            }
            MessagePlace::InBlock(block, _) if role != Role::Extension => {
                changes.in_blocks.entry(block).or_default().add(change);
            }
            MessagePlace::InBlock(..) => {}
        }
    }
}

/// Refuses to redact what is not what was stored: the damage would not be found any more.
fn check(read: &dyn StoreRemove, entry: &RedactableText) -> StoreResult<()> {
    let stored = &entry.stored;
    let (salt, digest) = match (stored.salt, read.redaction(entry.place)?) {
        (Some(salt), _) => (salt, stored.digest),
        (None, Some(redaction)) => (redaction.salt, redaction.digest),
        (None, None) => return Err(StoreError::Damaged("a message without its salt".into())),
    };
    let head = stored.head.as_deref().unwrap_or_default();
    let text = stored.text.as_deref();
    let derived = codec::message_digest(&salt, stored.role, head, stored.text_block, text);
    match derived == digest {
        true => Ok(()),
        false => Err(StoreError::Damaged(
            "a message is not what was stored".into(),
        )),
    }
}

/// Visits the messages of a loop and of the blocks on it; those whose content is gone are left out.
fn for_each_message(
    read: &dyn StoreRemove,
    row: &LoopRow,
    visit: &mut dyn FnMut(RedactableText) -> StoreResult<()>,
) -> StoreResult<()> {
    read.messages(row.key, 0..row.totals.next_seq, &mut |found| {
        let place = MessagePlace::InLoop(row.key, found.seq);
        say(read, place, found.body, visit)?;
        Ok(ControlFlow::Continue(()))
    })?;
    for block in read.blocks_of_loop(row.key)? {
        for (ordinal, message) in (0..).zip(read.block_messages(block.key)?) {
            if let Some(body) = message.body {
                let place = MessagePlace::InBlock(block.key, ordinal);
                say(read, place, body, visit)?;
            }
        }
    }
    Ok(())
}

fn say(
    read: &dyn StoreRemove,
    place: MessagePlace,
    stored: StoredMessage,
    visit: &mut dyn FnMut(RedactableText) -> StoreResult<()>,
) -> StoreResult<()> {
    if stored.head.is_none() {
        return Ok(());
    }
    let message = decode(read, stored.clone())?;
    visit(RedactableText {
        place,
        stored,
        message,
    })
}
