//! Manifests: the messages that a context was made of, as references and one hash.
//!
//! A manifest copies no message. It records the moment, and the parts that a build at that moment returned. The same
//! messages can be derived from these at any later time, regardless of later appends, compactions and undos.

use sha2::{Digest as _, Sha256};

use super::as_of::recorded;
use super::build::outline_of;
use super::chain::Chain;
use super::{AsOf, BuildOptions, PartSection, session_of};
use crate::compaction::{CompactionScope, UnknownWord};
use crate::model::{SessionId, Time};
use crate::store::active_blocks::{ChainLink, ChainView, chain};
use crate::store::{
    BlockKey, LoopKey, ManifestKey, ManifestPart, ManifestRow, SessionKey, Size, StoreError,
    StoreRead, StoreResult, StoredMessageRef, Tick,
};

/// The composition of a context, collected while it is read.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct Outline {
    #[doc(hidden)]
    pub parts: Vec<ManifestPart>,
    #[doc(hidden)]
    pub size: Size,
    hash: Sha256,
}

impl Outline {
    /// Adds a message to the part of its section; the message must have been read with its proof.
    pub(super) fn add(
        &mut self,
        loop_key: LoopKey,
        section: PartSection,
        block: Option<BlockKey>,
        seq: Option<u32>,
        message: &StoredMessageRef<'_>,
    ) -> StoreResult<()> {
        let proof = message.proof.as_ref();
        let proof =
            proof.ok_or_else(|| StoreError::Invalid("a message without its digest".into()))?;
        self.hash.update(proof.digest);
        self.size.add(Size {
            tokens: message.tokens,
            bytes: message.bytes,
            messages: 1,
        });
        let last = self.parts.last_mut();
        let same = |part: &&mut ManifestPart| {
            part.loop_key == loop_key && part.section == section.as_str() && part.block == block
        };
        if let Some(part) = last.filter(same) {
            part.messages += 1;
            part.seqs = part.seqs.zip(seq).map(|((from, _), seq)| (from, seq));
            return Ok(());
        }
        self.parts.push(ManifestPart {
            loop_key,
            section: section.as_str().to_owned(),
            block,
            seqs: seq.map(|seq| (seq, seq)),
            messages: 1,
        });
        Ok(())
    }

    /// Returns the SHA-256 over the digests of the messages in order.
    #[doc(hidden)]
    pub fn sha256(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

/// The moment and the settings of a context.
pub(super) struct BuiltAt<'a> {
    pub(super) session: SessionKey,
    pub(super) leaf: LoopKey,
    pub(super) tick: Tick,
    pub(super) older_loops: &'a str,
    pub(super) counter: &'a str,
}

/// Makes the row of a context that was just built.
pub(super) fn row_of(built_at: &BuiltAt<'_>, outline: Outline) -> ManifestRow {
    ManifestRow {
        key: ManifestKey::default(),
        manifest_id: crate::clock::new_uuid().to_string(),
        session: built_at.session,
        leaf: built_at.leaf,
        tick: built_at.tick,
        recorded_at: Time::now().as_str().to_owned(),
        older_loops: built_at.older_loops.to_owned(),
        size: outline.size,
        counter: built_at.counter.to_owned(),
        sha256: outline.sha256(),
        parts: outline.parts,
    }
}

/// Returns the manifest that a build shows again, if its options name one.
pub(super) fn named(
    read: &dyn StoreRead,
    session: &SessionId,
    options: &BuildOptions,
) -> StoreResult<Option<ManifestRow>> {
    let Some(AsOf::Manifest(id)) = &options.as_of else {
        return Ok(None);
    };
    recorded(read, &session_of(read, session)?, id).map(Some)
}

/// Returns the options with which the context of a manifest is built again, with its outline.
pub(super) fn options_of(row: &ManifestRow, given: &BuildOptions) -> StoreResult<BuildOptions> {
    let damaged = |error: UnknownWord| StoreError::Damaged(error.to_string());
    Ok(BuildOptions {
        older_loops: Some(row.older_loops.parse().map_err(damaged)?),
        // All loops: which of them are in the context is recorded.
        scope: Some(CompactionScope::FixedCount(usize::MAX)),
        record: true,
        ..given.clone()
    })
}

/// Starts a chain with the loop with which the context of a manifest begins.
pub(super) fn start_as_recorded(chain: &mut Chain, row: &ManifestRow) {
    let mut links = chain.links.iter();
    if let Some(start) = links.position(|link| is_in_context(row, link)) {
        chain.start = start;
    }
}

/// True if a loop is in the context of a manifest. Which loops are in scope was decided when it was recorded.
fn is_in_context(row: &ManifestRow, link: &ChainLink) -> bool {
    let first = row.parts.first().map(|part| part.loop_key);
    row.older_loops != "skip" || first.is_some_and(|first| link.row.key >= first)
}

/// Compares a context that was built again with its manifest.
///
/// # Errors
/// If the messages are not those of the manifest.
pub(super) fn check(row: &ManifestRow, outline: &Outline) -> StoreResult<()> {
    if outline.sha256() == row.sha256 {
        return Ok(());
    }
    let id = &row.manifest_id;
    let why = "a message of it was replaced or pruned since, or the provider is another one";
    Err(StoreError::Invalid(format!(
        "the context of manifest `{id}` cannot be built again: {why}"
    )))
}

/// Builds the outline of a manifest's context again, as of its moment.
///
/// # Errors
/// If the store fails.
pub fn derive(read: &dyn StoreRead, row: &ManifestRow) -> StoreResult<Outline> {
    let view = ChainView {
        at: Some(row.tick),
        without_rollups: row.older_loops == "skip",
        ..ChainView::default()
    };
    let links = chain(read, row.leaf, view)?;
    outline_of(read, links.iter().filter(|link| is_in_context(row, link)))
}

/// True if messages that a manifest lists were replaced later. Only messages of a turn in flight can be replaced.
///
/// # Errors
/// If the store fails.
pub fn was_replaced(read: &dyn StoreRead, row: &ManifestRow) -> StoreResult<bool> {
    for part in &row.parts {
        let Some((_, to)) = part.seqs else {
            continue;
        };
        if read.length_at(part.loop_key, row.tick)? <= to {
            return Ok(true);
        }
    }
    Ok(false)
}
