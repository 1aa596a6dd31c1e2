//! Every call of the store that writes, with the keys and rows of another tenant.

use std::ops::ControlFlow;

use loopstore::extend::audit::{AuditEntry, AuditKind};
use loopstore::extend::index::IndexEntry;
use loopstore::extend::scan::{BlobOwner, MessagePlace};
use loopstore::extend::*;
use loopstore::model::LoopId;
use loopstore::*;

use super::calls::Keys;
use super::{append_key, call_row};

pub type Attempt = (
    &'static str,
    Box<dyn Fn(&mut dyn StoreWrite) -> StoreResult<()>>,
);

/// Rows of another tenant, as far as a tenant could know them.
#[derive(Clone)]
pub struct Rows {
    session: SessionRow,
    loop_key: LoopRow,
    message: MessageRow,
    turn: TurnRow,
    run: RunRow,
    block: BlockRow,
    messages: Vec<BlockMessage>,
    coverage: Vec<CoverageRow>,
    flip: FlipRow,
    pin: PinRow,
    hide: HideRow,
    manifest: ManifestRow,
    source: SourceRow,
    lease: LeaseRow,
    receipt: i64,
    pack: packs::Pack,
}

pub fn rows(store: &dyn Database, k: &Keys) -> Rows {
    let mut found = None;
    store
        .scan(Box::new(|scan| {
            let mut first = None;
            scan.messages(k.loop_key, 0..1, &mut |row| {
                first = Some(row);
                Ok(ControlFlow::Break(()))
            })?;
            found = Some(Rows {
                session: scan.session_by_key(k.session)?,
                loop_key: scan.loop_by_key(k.loop_key)?,
                message: first.unwrap(),
                turn: scan.turn(k.loop_key, 0)?.unwrap(),
                run: scan.run_by_key(k.run)?,
                block: scan.block_by_key(k.block)?,
                messages: scan.block_messages(k.block)?,
                coverage: scan.coverage(k.block)?,
                flip: scan.flips(k.run)?[0].clone(),
                pin: scan.pins(k.session)?[0].clone(),
                hide: scan.hides(k.put_away)?[0].clone(),
                manifest: scan.manifest_and_digest(k.manifest)?.0,
                source: scan.source_row(k.source)?,
                lease: scan.lease(k.busy)?.unwrap(),
                receipt: scan.receipts()?[0].key,
                pack: packs::Pack {
                    row: scan.pack_at(k.packed, 0)?.unwrap(),
                    content: scan.pack_content(k.packed, 0)?,
                    heads: scan.packed_heads(k.packed, 0..99)?,
                },
            });
            Ok(())
        }))
        .unwrap();
    found.unwrap()
}

/// Returns the loop of the other tenant with a change.
fn with(r: &Rows, change: impl Fn(&mut LoopCore)) -> LoopRow {
    let mut row = r.loop_key.clone();
    change(&mut row.core);
    row
}

/// Returns the block of the other tenant with another number.
fn numbered(r: &Rows, generation: u32) -> BlockRow {
    let mut row = r.block.clone();
    row.generation = generation;
    row
}

/// Calls everything that writes, with the keys of another tenant.
pub fn write_all(k: &Keys, r: &Rows) -> Vec<Attempt> {
    fn one(
        name: &'static str,
        k: &Keys,
        r: &Rows,
        work: impl Fn(&mut dyn StoreWrite, &Keys, &Rows) -> StoreResult<()> + 'static,
    ) -> Attempt {
        let (k, r) = (k.clone(), r.clone());
        (name, Box::new(move |write| work(write, &k, &r)))
    }
    macro_rules! attempts {
        ($(|$write:ident, $k:ident, $r:ident| $call:expr;)*) => {
            vec![$(one(stringify!($call), k, r, |$write, $k, $r| $call.map(drop))),*]
        };
    }
    let new_name = "2026-01-01T00:00:00Z";
    attempts! {
        |w, _k, r| w.update_session(&SessionRow { title: Some("mine".into()), ..r.session.clone() });
        |w, _k, r| w.insert_loop(&with(r, |core| core.loop_id = LoopId::new("mine").unwrap()), &LoopMeta { meta: "{}".into(), history: None });
        |w, _k, r| w.update_loop(&with(r, |core| core.status = model::LoopStatus::Aborted));
        |w, _k, r| w.touch_session(&SessionActivity { tick: r.session.tick + 1, ..(&r.session).into() });
        |w, _k, r| w.update_totals(&with(r, |core| core.status = model::LoopStatus::Aborted), &LoopProgress::default());
        |w, _k, r| w.end_loop(&with(r, |core| core.status = model::LoopStatus::Aborted), &LoopProgress::default(), new_name);
        |w, k, _r| w.update_loop_meta(k.loop_key, &LoopMeta { meta: "{}".into(), history: None });
        |w, k, r| w.insert_message(k.loop_key, &MessageRow { seq: 900, ..r.message.clone() }, &[]);
        |w, k, r| w.insert_message(k.loop_key, &r.message, &[Blob { sha256: k.sha256, data: vec![1] }]);
        |w, k, _r| w.remove_unsealed(k.loop_key, 0, 0);
        |w, k, r| w.put_turn(k.loop_key, &r.turn);
        |w, k, r| w.put_turn(k.loop_key, &TurnRow { turn: 900, ..r.turn.clone() });
        |w, _k, r| w.insert_run(&RunRow { run_id: "mine".into(), ..r.run.clone() });
        |w, _k, r| w.close_run(&r.run, None);
        |w, _k, r| w.note_open_run(&RunRow { run_id: "mine".into(), ..r.run.clone() });
        |w, k, _r| w.note_audit(k.session, &AuditEntry::new(AuditKind::Flip, [1; 32]));
        |w, _k, r| w.insert_block(&NewBlock {
            row: numbered(r, 900),
            messages: r.messages.clone(),
            coverage: r.coverage.clone(),
            blobs: Vec::new(),
        });
        |w, k, _r| w.begin_generation(k.loop_key, 1);
        |w, k, r| w.insert_flip(k.session, &r.flip);
        |w, k, _r| w.insert_edits(k.run, &[EditRow {
            loop_key: k.loop_key,
            seqs: (0, 0),
            part: None,
            action: EditAction::Removed,
            text: None,
            before: Size::default(),
            after: Size::default(),
            salt: [0; 16],
        }]);
        |w, k, r| w.insert_pin(k.session, &r.pin);
        |w, k, r| w.insert_hide(k.put_away, &HideRow { was: r.hide.session_id.clone(), session_id: r.hide.was.clone(), hidden: false, ..r.hide.clone() });
        |w, k, r| w.restore_hide(k.put_away, &r.hide);
        |w, _k, r| w.insert_manifest(&ManifestRow { manifest_id: "mine".into(), ..r.manifest.clone() });
        |w, k, _r| w.insert_import(k.session, &ImportRow { format: "x".into(), path: String::new(), file_name: "x".into(), record_key: None });
        |w, k, _r| w.index(k.loop_key, 0..1, &[IndexEntry { seq: 0, words: "mine".into(), tools: Vec::new() }]);
        |w, k, _r| w.index(k.loop_key, 0..0, &[]);
        |w, k, _r| w.unindex(k.loop_key, 0);
        |w, _k, r| w.update_source(&SourceRow { path: "mine".into(), ..r.source.clone() });
        |w, k, _r| w.link_source(k.session, k.source);
        |w, k, _r| w.put_source_part(k.source, 900, &SourcePiece { sha256: [2; 32], bytes: 1, data: vec![1] });
        |w, k, _r| w.remove_source_parts(k.source, 0);
        |w, _k, r| w.put_lease(&LeaseRow { owner: "mine".into(), token: r.lease.token + 1, ..r.lease.clone() });
        |w, k, _r| w.insert_call(&CallRow { nth: 900, ..call_row(k.loop_key, "mine") });
        |w, k, _r| w.update_call(&call_row(k.loop_key, "mine"));
        |w, k, _r| w.insert_append_key(k.session, &append_key(k.loop_key, "mine"));
        |w, k, _r| w.insert_note(k.loop_key, &Note::Event("\"mine\"".into()));
        |w, k, _r| w.remove_notes(k.loop_key);
        |w, k, _r| w.put_flags(k.session, &SessionFlags::default());
        |w, k, _r| w.open_receipt(k.session, "erase", new_name);
        |w, _k, r| w.close_receipt(r.receipt, "mine");
        |w, k, _r| w.remove_session(k.session);
        |w, k, _r| w.remove_source(k.source);
        |w, k, _r| w.unlink_source(k.imported, k.source);
        |w, k, _r| w.forget_blob(BlobOwner::Message(k.loop_key, 2), &k.sha256);
        |w, k, _r| w.change_texts(k.session, &mut |_| panic!("a text was seen"));
        |w, k, r| w.redact_message(MessagePlace::InLoop(k.loop_key, 0), &r.message.body, r.receipt);
        |w, k, _r| w.rewrite_edits(k.run, &[]);
        |w, _k, r| w.resize_block(&r.block);
        |w, _k, r| w.resize_quote(r.block.key, 0, &r.message.body);
        |w, k, r| w.put_pack(k.loop_key, &r.pack);
        |w, k, _r| w.take_pack(k.packed, 0);
    }
}
