//! Blocks with their messages and coverage.

use std::ops::ControlFlow;

use loopstore::extend::scan::MessagePlace;
use loopstore::extend::{
    Blob, BlockCore, BlockKey, BlockMessage, BlockRow, CoverageRow, LoopKey, NewBlock,
    QuotingBlock, RunKey, Section, codec, quote_body,
};

use super::form::*;
use super::loop_rows::body_of;
use super::restore::SessionTarget;
use super::wrong;
use crate::ImportError;
use crate::fields::shown;

impl SessionTarget<'_> {
    pub(super) fn block(&mut self, line: BlockLine) -> Result<(), ImportError> {
        let run = self.in_run(&line.run)?;
        // The blocks of a stored run are stored too.
        if !run.is_new() {
            return Ok(());
        }
        let name = BlockAddress {
            loop_id: line.loop_id.clone(),
            generation: line.generation,
        };
        if self.block_key(&name).is_ok() {
            let id = shown(line.loop_id.as_str());
            let detail = format!("loop `{id}` has another block {}", line.generation);
            return Err(self.open.diverged(&detail));
        }
        let mut row = self.block_row(&line)?;
        row.run = self.in_run(&line.run)?.key;
        let mut block = NewBlock {
            row,
            messages: Vec::with_capacity(line.shows.len()),
            coverage: Vec::with_capacity(line.coverage.len()),
            blobs: Vec::new(),
        };
        for shows in &line.shows {
            let (message, blobs) = self.shown_message(block.row.quoting(), shows)?;
            block.messages.push(message);
            block.blobs.extend(blobs);
        }
        for range in &line.coverage {
            block.coverage.push(self.coverage(range)?);
        }
        let key = self.write.insert_block(&block)?;
        for (ordinal, message) in (0..).zip(&block.messages) {
            if let (Some(body), None) = (&message.body, message.quotes) {
                let place = MessagePlace::InBlock(key, ordinal);
                let name = (line.loop_id.clone(), Some(line.generation));
                self.note_redacted(place, name, body)?;
            }
        }
        Ok(())
    }

    fn block_row(&self, line: &BlockLine) -> Result<BlockRow, ImportError> {
        let unknown = || wrong(format!("no kind of block `{}`", shown(&line.kind)));
        let extends = line.extends.as_ref();
        Ok(BlockRow {
            core: BlockCore {
                key: BlockKey::default(),
                loop_key: self.open.loop_key(&line.loop_id)?,
                generation: line.generation,
                run: RunKey::default(),
                kind: line.block_kind().ok_or_else(unknown)?,
                extends: extends.map(|name| self.block_key(name)).transpose()?,
                layout: line.layout(),
                through: line.through,
                size: line.size.into(),
                edits: line.edits.clone(),
            },
            tokens_covered: line.tokens_covered,
            strategy: line.strategy.clone(),
            shaping: line.shaping.clone(),
            created_at: line.created_at.clone(),
            extra: line.extra.as_ref().map(|json| json.get().to_owned()),
        })
    }

    fn shown_message(
        &self,
        own: QuotingBlock<'_>,
        shows: &ShownForm,
    ) -> Result<(BlockMessage, Vec<Blob>), ImportError> {
        let unhex =
            |digest: &String| codec::unhex(digest).ok_or_else(|| wrong("a digest is malformed"));
        let quotes = shows.quotes.as_ref();
        let quotes = quotes.map(|id| self.open.loop_key(id)).transpose()?;
        let (body, blobs) = match (&shows.digest, quotes.zip(shows.replaces)) {
            (None, None) => (None, Vec::new()),
            (digest, Some(place)) => {
                if !self.has_message(place)? {
                    return Err(wrong("a quote is of a message that is not there"));
                }
                let body = quote_body(self.write, self.counter, own, place)?;
                if digest.as_ref().map(unhex).transpose()? != Some(body.digest) {
                    return Err(wrong("a quote is not of the message that it names"));
                }
                (Some(body), Vec::new())
            }
            (Some(digest), None) => {
                let digest = unhex(digest)?;
                let (message, salt) = (shows.message.as_deref(), shows.salt.as_deref());
                let (body, blobs) = body_of(message, salt, digest, self.counter)?;
                (Some(body), blobs)
            }
        };
        let section = match shows.recent {
            true => Section::Recent,
            false => Section::Compacted,
        };
        let message = BlockMessage {
            section,
            replaces: shows.replaces,
            quotes,
            body,
        };
        Ok((message, blobs))
    }

    fn has_message(&self, (loop_key, seq): (LoopKey, u32)) -> Result<bool, ImportError> {
        let mut is_there = false;
        let seqs = seq..seq.saturating_add(1);
        self.write.sizes(loop_key, seqs, &mut |_| {
            is_there = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_there)
    }

    fn coverage(&self, form: &CoverageForm) -> Result<CoverageRow, ImportError> {
        let unknown = || wrong(format!("no disposition `{}`", shown(&form.disposition)));
        Ok(CoverageRow {
            loop_key: self.open.loop_key(&form.loop_id)?,
            seqs: form.seqs,
            turns: form.turns,
            disposition: form.what().ok_or_else(unknown)?,
        })
    }
}
