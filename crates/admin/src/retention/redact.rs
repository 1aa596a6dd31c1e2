//! Removes secrets from a stored session.
//!
//! The session is read twice: first to find the secrets, then to replace them everywhere, also where no rule
//! would find them: in a summary, or cut in two by a summary. A changed message keeps its digest and its
//! position in the chain and loses its salt; the new content has a digest of its own. At the end, all stored
//! content is searched for what was removed.

mod edits;
mod images;
mod messages;
mod report;
mod sealed;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use loopstore::TokenCounter;
use loopstore::extend::receipt::MessageDigest;
use loopstore::extend::{
    Database, LoopRow, SessionKey, SourceRow, StoreError, StoreResult, StoreWrite, codec, index,
    receipt::Receipt,
    scan::{BlobOwner, MessagePlace, StoreScan, TextCell, TextForm},
};
use loopstore::internal::{OpenReceipt, database};
use loopstore::model::{AgentMessage, LoopId, Role};
use loopstore_redact::add_counts;
use loopstore_redact::{RedactionCounts, Redactor};

use super::sizes::{Changes, SizeChange};
use super::{files, leftovers, scrub};
use edits::EditChanges;
use messages::{RedactableText, check, for_each_message, forget_blobs, forget_blobs_of_block};
use report::FindingList;
use sealed::SealedDrops;

pub use report::{FindingPlace, FoundSecret, RedactReport, RedactRequest, RedactedMessage};

/// Replaces the secrets in a stored session by markers, and also parts of the secrets of eight or more characters.
/// Later imports into the session are redacted too. The policy of the request selects the secrets to replace; by
/// default those with medium or high confidence.
///
/// # Errors
/// If the session does not exist or is damaged, or the store fails. Nothing is changed then.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{RedactRequest, redact_session};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("git clone https://me:hunter2@example.org/x")])?;
/// let reason = Some("a password in an address".into());
/// let request = RedactRequest { reason, ..RedactRequest::new(chat.id().clone()) };
/// // What would be replaced?
/// let told = redact_session(store.database(), &RedactRequest { dry_run: true, ..request.clone() })?;
/// assert_eq!((told.secrets["url-password"], told.receipt), (1, None));
/// let report = redact_session(store.database(), &request)?;
/// assert_eq!(report.secrets, told.secrets);
/// let context = chat.context()?;
/// assert!(!format!("{:?}", context.messages).contains("hunter2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn redact_session(store: &dyn Database, request: &RedactRequest) -> StoreResult<RedactReport> {
    if request.dry_run {
        return database::scan(store, |scan| {
            let mut work = RedactWork::new(scan, store.counter(), request)?;
            if work.learn(scan)? || !work.report.held_back.is_empty() {
                work.preview(scan, request)?;
            }
            Ok(work.report)
        });
    }
    let (mut report, mut redactor, shared) = database::removing(store, |write| {
        let mut work = RedactWork::new(&*write, store.counter(), request)?;
        match work.learn(&*write)? {
            true => work.replace(write, request)?,
            false => mark(write, work.session)?,
        }
        Ok((work.report, work.redactor, work.shared))
    })?;
    let (leftover, copies) = scrub(store)?;
    report.copies = copies;
    if report.receipt.is_some() {
        report.left = leftovers::search(store, &request.session, &mut redactor, shared)?;
    }
    report.leftover = leftover.or_in_content(!report.left.is_empty());
    Ok(report)
}

/// Marks the session, so that later imports into it are redacted.
fn mark(write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<()> {
    let mut flags = write.flags(session)?;
    if flags.redacts {
        return Ok(());
    }
    flags.redacts = true;
    write.put_flags(session, &flags)
}

struct RedactWork<'a> {
    session: SessionKey,
    redactor: Redactor,
    without_images: bool,
    counter: &'a dyn TokenCounter,
    changes: Changes,
    /// Sealed content that is removed.
    sealed: SealedDrops,
    edits: EditChanges,
    digests: Vec<MessageDigest>,
    /// Kept files that stay for other sessions.
    shared: Vec<SourceRow>,
    findings: FindingList,
    report: RedactReport,
}

impl<'a> RedactWork<'a> {
    fn new(
        scan: &dyn StoreScan,
        counter: &'a dyn TokenCounter,
        request: &RedactRequest,
    ) -> StoreResult<Self> {
        let row = scan
            .session(&request.session)?
            .ok_or_else(|| StoreError::NoSession(request.session.to_string()))?;
        Ok(Self {
            session: row.key,
            redactor: Redactor::new(&scan.import_key()?)
                .with_policy(request.policy.clone())
                .remembering(),
            without_images: request.without_images,
            counter,
            changes: Changes::default(),
            sealed: SealedDrops::default(),
            edits: EditChanges::default(),
            digests: Vec::new(),
            shared: Vec::new(),
            findings: FindingList::default(),
            report: RedactReport::nothing(row.session_id, request.dry_run),
        })
    }

    /// Finds all secrets, and images to leave out, and returns whether any are replaced.
    fn learn(&mut self, scan: &dyn StoreScan) -> StoreResult<bool> {
        let loops = scan.loops(self.session)?;
        let mut has_images = false;
        for row in &loops {
            for_each_message(scan, row, &mut |target| {
                let is_original = matches!(target.place, MessagePlace::InLoop(..));
                self.redactor.learn_pieces(is_original);
                let is_changed = self.redact(&target.message)?.is_some();
                has_images |= self.without_images && is_changed;
                Ok(())
            })?;
        }
        self.redactor.learn_pieces(true);
        scan.texts(self.session, &mut |cell| {
            self.redact_text(cell);
            Ok(())
        })?;
        let counts = self.redactor.take_counts();
        if counts.secrets.is_empty() && !has_images {
            self.report.held_back = counts.held_back;
            return Ok(false);
        }
        for row in &loops {
            scan.messages(row.key, 0..row.totals.next_seq, &mut |found| {
                for text in [&found.body.head, &found.body.text].into_iter().flatten() {
                    self.redactor.compare(text);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.redactor.replace_pieces();
        for row in &loops {
            for_each_message(scan, row, &mut |target| {
                if let MessagePlace::InLoop(key, seq) = target.place
                    && self.redact(&target.message)?.is_some()
                {
                    self.sealed.changes(key, seq, target.turn);
                }
                Ok(())
            })?;
        }
        self.sealed.find_compactions(scan, self.session)?;
        self.redactor.take_counts();
        Ok(true)
    }

    fn redact(&mut self, message: &AgentMessage) -> StoreResult<Option<AgentMessage>> {
        let invalid = |error: serde_json::Error| StoreError::Invalid(error.to_string());
        let new = self.redactor.message(message).map_err(invalid)?;
        if !self.without_images {
            return Ok(new);
        }
        let plain = images::without_images(new.as_ref().unwrap_or(message));
        Ok(plain.map(|(plain, _)| plain).or(new))
    }

    fn redact_text(&mut self, cell: TextCell<'_>) -> Option<String> {
        match cell.form {
            TextForm::Text => self.redactor.text(cell.text),
            TextForm::Json | TextForm::Edit => self.redactor.json(cell.text),
            TextForm::Meta => self.redactor.meta(cell.text),
            TextForm::AppendKey => self.redactor.append_key(cell.text),
            TextForm::Id => None,
        }
    }

    /// Reports what would be replaced.
    fn preview(&mut self, scan: &dyn StoreScan, request: &RedactRequest) -> StoreResult<()> {
        self.report.held_back.clear();
        self.redactor.keep_findings();
        for row in scan.loops(self.session)? {
            self.find_in_loop(scan, &row)?;
        }
        let mut texts = BTreeMap::new();
        scan.texts(self.session, &mut |cell| {
            if self.redact_text(cell).is_some() {
                *texts.entry(cell.place.to_owned()).or_default() += 1;
            }
            let text = cell.place.to_owned();
            let found = self.redactor.take_findings();
            self.findings.add(found, &FindingPlace::Text { text });
            Ok(())
        })?;
        self.report.texts = texts;
        self.add_counts();
        self.report.findings = std::mem::take(&mut self.findings).into_sorted();
        if self.report.secrets.is_empty() {
            return Ok(());
        }
        let files = files::plan(scan, &[self.session], request.with_files)?;
        self.report_files(files);
        Ok(())
    }

    fn replace(&mut self, write: &mut dyn StoreWrite, request: &RedactRequest) -> StoreResult<()> {
        let key = self.session;
        let reason = request.reason.as_deref();
        let reason = reason.map(|text| self.redactor.text(text).unwrap_or_else(|| text.to_owned()));
        self.redactor.take_counts();
        let session = self.report.session_id.clone();
        let mut receipt = Receipt::of(write, key, session, reason.as_deref())?;
        let open = OpenReceipt::new(write, key, "redact")?;
        for row in write.loops(key)? {
            self.replace_in_loop(write, &row, open.key)?;
        }
        self.sealed.undo(write, key)?;
        self.changes.settle(write, self.counter, key)?;
        let edited = self
            .edits
            .settle(write, self.counter, key, &mut self.redactor)?;
        let mut texts = write.change_texts(key, &mut |cell| Ok(self.redact_text(cell)))?;
        self.add_counts();
        if edited > 0 {
            texts.counts.insert("edits.text", edited);
        }
        let texts = texts.counts.into_iter();
        receipt.counts = texts
            .map(|(place, count)| (place.to_owned(), count))
            .collect();
        let files = files::remove(write, key, request.with_files, &mut receipt)?;
        self.report_files(files);
        receipt.messages = std::mem::take(&mut self.digests);
        receipt.secrets.clone_from(&self.report.secrets);
        receipt.pieces = self.report.pieces;
        mark(write, key)?;
        write.note_scrub()?;
        self.report.receipt = Some(open.close(write, &receipt)?);
        self.report.texts = receipt.counts;
        Ok(())
    }

    fn report_files(&mut self, files: files::KeptFiles) {
        for (row, mut file) in files.into_values() {
            if file.goes {
                self.report.sources += 1;
                self.report.source_of.extend(file.sessions.iter().cloned());
            } else {
                self.shared.push(row);
            }
            if let Some(path) = self.redactor.text(&file.path) {
                file.path = path;
            }
            self.report.files.push(file);
        }
        self.report.source_of.sort();
        self.report.source_of.dedup();
    }

    /// Adds the counts since the last call, and returns them.
    fn add_counts(&mut self) -> RedactionCounts {
        let counts = self.redactor.take_counts();
        add_counts(&mut self.report.secrets, &counts.secrets);
        add_counts(&mut self.report.held_back, &counts.held_back);
        self.report.pieces += counts.pieces;
        counts
    }

    /// Finds the messages of a loop that change, and their new content.
    fn find_in_loop(
        &mut self,
        scan: &dyn StoreScan,
        row: &LoopRow,
    ) -> StoreResult<Vec<(RedactableText, AgentMessage)>> {
        let mut found = Vec::new();
        for_each_message(scan, row, &mut |target| {
            let new = self.redact(&target.message)?;
            if self.without_images
                && let Some((_, count)) = images::without_images(&target.message)
            {
                self.report.images += count;
            }
            let counts = self.add_counts();
            let findings = self.redactor.take_findings();
            let new = self.sealed.apply(&target, row, new);
            if new.is_none() && findings.is_empty() {
                return Ok(());
            }
            let (generation, seq) = match target.place {
                MessagePlace::InLoop(_, seq) => (None, seq),
                MessagePlace::InBlock(block, ordinal) => {
                    (Some(scan.block_by_key(block)?.generation), ordinal)
                }
            };
            let loop_id = row.loop_id.clone();
            let place = FindingPlace::Message {
                loop_id,
                generation,
                seq,
            };
            self.findings.add(findings, &place);
            let Some(new) = new else { return Ok(()) };
            self.report.messages += 1;
            self.report.places.push(RedactedMessage {
                loop_id: row.loop_id.clone(),
                generation,
                seq,
                secrets: counts.secrets,
                pieces: counts.pieces,
            });
            found.push((target, new));
            Ok(())
        })?;
        Ok(found)
    }

    fn replace_in_loop(
        &mut self,
        write: &mut dyn StoreWrite,
        row: &LoopRow,
        receipt: i64,
    ) -> StoreResult<()> {
        let before = self.report.places.len();
        let found = self.find_in_loop(&*write, row)?;
        let (mut first, mut blocks) = (None, Vec::new());
        for (at, (stored, new)) in found.into_iter().enumerate() {
            match stored.place {
                MessagePlace::InLoop(_, seq) => {
                    first.get_or_insert(seq);
                }
                MessagePlace::InBlock(block, _) => blocks.push(block),
            }
            let entry = &self.report.places[before + at];
            let place = (entry.generation, entry.seq);
            self.replace_message(write, &row.loop_id, place, stored, new, receipt)?;
        }
        blocks.dedup();
        for block in blocks {
            forget_blobs_of_block(write, block)?;
        }
        match first {
            Some(seq) => index::remove_loop(write, row.key, seq),
            None => Ok(()),
        }
    }

    fn replace_message(
        &mut self,
        write: &mut dyn StoreWrite,
        loop_id: &LoopId,
        (generation, seq): (Option<u32>, u32),
        target: RedactableText,
        new: AgentMessage,
        receipt: i64,
    ) -> StoreResult<()> {
        check(write, &target)?;
        let is_system = matches!(&new, AgentMessage::Extension(note) if note.kind == "system");
        self.edits.note(target.place, &target.message, &new);
        let (stored, blobs) = codec::encode(new, self.counter)?;
        write.redact_message(target.place, &stored, receipt)?;
        if let MessagePlace::InLoop(key, seq) = target.place {
            let shown: Vec<[u8; 32]> = blobs.iter().map(|blob| blob.sha256).collect();
            forget_blobs(write, BlobOwner::Message(key, seq), &shown)?;
        }
        let old = &target.stored;
        let change = SizeChange::between((old.tokens, old.bytes), (stored.tokens, stored.bytes));
        self.digests.push(MessageDigest {
            loop_id: loop_id.clone(),
            generation,
            seq,
            was: hex::encode(old.digest),
            now: hex::encode(stored.digest),
        });
        self.note_change(target.place, old.role, is_system, change);
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
