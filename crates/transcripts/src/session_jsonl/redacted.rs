//! Messages that were redacted before the export. They are stored with a receipt of a redaction: the removed content
//! cannot be checked, and the remainder gets a digest of its own.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::extend::receipt::{MessageDigest, Receipt};
use loopstore::extend::scan::MessagePlace;
use loopstore::extend::{LoopRow, StoreResult, StoredMessage, codec};
use loopstore::internal::OpenReceipt;
use loopstore::model::LoopId;

use super::restore::{Age, SessionTarget};
use super::wrong;
use crate::ImportError;
use crate::fields::shown;

/// The receipt for the redacted messages of a session, during the import.
pub(super) struct RedactedMessages {
    receipt: OpenReceipt,
    messages: Vec<MessageDigest>,
}

impl SessionTarget<'_> {
    /// Records a message that was redacted in the file; a message with a salt was not.
    pub(super) fn note_redacted(
        &mut self,
        place: MessagePlace,
        (loop_id, generation): (LoopId, Option<u32>),
        body: &StoredMessage,
    ) -> Result<(), ImportError> {
        let (None, Some(head)) = (body.salt, &body.head) else {
            return Ok(());
        };
        let salt = codec::random_salt()?;
        let text = body.text.as_deref();
        let now = codec::message_digest(&salt, body.role, head, body.text_block, text);
        let redacted = match &mut self.open.redacted {
            Some(redacted) => redacted,
            none => none.insert(RedactedMessages {
                receipt: OpenReceipt::new(self.write, self.open.key, "redact")?,
                messages: Vec::new(),
            }),
        };
        redacted.messages.push(MessageDigest {
            loop_id,
            generation,
            seq: match place {
                MessagePlace::InLoop(_, seq) | MessagePlace::InBlock(_, seq) => seq,
            },
            was: hex::encode(body.digest),
            now: hex::encode(now),
        });
        let stands = StoredMessage {
            salt: Some(salt),
            digest: now,
            ..body.clone()
        };
        let receipt = redacted.receipt.key;
        Ok(self.write.redact_message(place, &stands, receipt)?)
    }

    /// Returns the sequences of the redacted messages of a stored loop.
    pub(super) fn redacted_of(&self, row: &LoopRow) -> StoreResult<BTreeSet<u32>> {
        let mut redacted = BTreeSet::new();
        if self.write.flags(row.session)?.redacts {
            self.write
                .messages(row.key, 0..row.totals.next_seq, &mut |stored| {
                    if stored.body.salt.is_none() {
                        redacted.insert(stored.seq);
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
        }
        Ok(redacted)
    }

    /// Compares the redaction of a stored message with that in the file. A message that is redacted here stays
    /// redacted.
    pub(super) fn compare_redaction(&mut self, here: bool, there: bool) -> Result<(), ImportError> {
        if here == there {
            return Ok(());
        }
        let id = shown(self.open.id().as_str());
        if there {
            return Err(wrong(format!(
                "session `{id}` was redacted in the file and is stored with its secrets; \
                 redact it here first, or import the file into another database"
            )));
        }
        match self.open.age {
            Age::New | Age::Newer => Err(wrong(format!(
                "session `{id}` was redacted here and went on in the file, whose rows cannot be \
                 redacted on their way; import the file into another database"
            ))),
            Age::Same | Age::Older => {
                self.open.age = Age::Older;
                Ok(())
            }
        }
    }

    /// Closes the receipt, if there is one. Later imports into the session are redacted too.
    pub(super) fn close_redacted(&mut self) -> Result<(), ImportError> {
        let Some(RedactedMessages { receipt, messages }) = self.open.redacted.take() else {
            return Ok(());
        };
        let (key, id) = (self.open.key, self.open.id().clone());
        let reason = "it came in redacted";
        let content = Receipt {
            messages,
            ..Receipt::of(self.write, key, id, Some(reason))?
        };
        receipt.close(self.write, &content)?;
        let mut flags = self.write.flags(key)?;
        flags.redacts = true;
        Ok(self.write.put_flags(key, &flags)?)
    }
}

/// Parses the salt of a message; `None` for a redacted message.
pub(super) fn salt_of(text: Option<&str>) -> Result<Option<[u8; 16]>, ImportError> {
    let read = |text| codec::unhex(text).ok_or_else(|| wrong("its salt is malformed"));
    text.map(read).transpose()
}
