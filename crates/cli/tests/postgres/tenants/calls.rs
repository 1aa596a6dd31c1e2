//! Every call of the store with the keys of another tenant finds nothing, or fails.

use std::fmt::Debug;
use std::ops::ControlFlow;

use loopstore::extend as store;
use loopstore::extend::index::{IndexFilter, IndexQuery, Phrase};
use loopstore::extend::prompt::PromptsOf;
use loopstore::extend::scan::{BlobOwner, MessagePlace, StoreScan};
use loopstore::extend::*;
use loopstore::model::{AgentMessage, Json, LoopId, SessionId};

use super::Tenants;
use super::writes::{Rows, rows, write_all};
use crate::support::histories::{History, loop_id, user};

/// A key or name of each kind of row.
#[derive(Clone)]
pub struct Keys {
    pub id: SessionId,
    pub loop_id: LoopId,
    pub session: SessionKey,
    pub loop_key: LoopKey,
    /// A loop with a driver, a session with manifests, and one whose file is stored.
    pub busy: LoopKey,
    pub recorded: SessionKey,
    pub imported: SessionKey,
    /// A session with a system message.
    pub prompted: SessionKey,
    /// A loop that is archived.
    pub packed: LoopKey,
    pub run: RunKey,
    pub flip: FlipKey,
    pub pin: PinKey,
    /// A hidden session, its original id, and the receipt that hid it.
    pub put_away: SessionKey,
    pub was: SessionId,
    pub hide: HideKey,
    pub block: BlockKey,
    pub manifest: ManifestKey,
    pub manifest_id: String,
    pub import: i64,
    pub sha256: [u8; 32],
    pub blob: i64,
    pub source: SourceKey,
    pub part: [u8; 32],
    pub file: &'static str,
}

/// Returns the keys of a tenant's rows.
fn keys(store: &dyn Database) -> Keys {
    let mut found = None;
    store
        .scan(Box::new(|scan| {
            let id = SessionId::new("shared").unwrap();
            let session = scan.session(&id)?.unwrap().key;
            let pair = scan.session(&SessionId::new("pair").unwrap())?.unwrap().key;
            let loop_key = scan.loop_by_id(session, &loop_id(0))?.unwrap().key;
            let kept = scan.session(&SessionId::new("kept").unwrap())?.unwrap().key;
            let source = scan.sources(kept)?[0].key;
            let alone = SessionId::new("ann alone").unwrap();
            let prompted = scan.session(&alone)?.unwrap().key;
            let old = scan.session(&SessionId::new("old").unwrap())?.unwrap().key;
            let was = SessionId::new("ann before").unwrap();
            let put_away = *scan.hidden_sessions()?.last().unwrap();
            let sha256 = scan.blobs_of(BlobOwner::Message(loop_key, 2))?[0];
            found = Some(Keys {
                id: alone,
                loop_id: loop_id(0),
                session,
                loop_key,
                busy: scan.loop_by_id(session, &loop_id(1))?.unwrap().key,
                recorded: pair,
                imported: kept,
                prompted,
                packed: scan.loop_by_id(old, &loop_id(0))?.unwrap().key,
                run: scan.run_keys(session)?[0],
                flip: scan.flip_keys(session)?[0],
                pin: scan.pin_keys(session)?[0],
                put_away,
                hide: scan.hide_keys(put_away)?[0],
                was,
                block: scan.block_keys(loop_key)?[0],
                manifest: scan.manifest_keys(pair)?[0],
                manifest_id: scan.manifests(pair)?[0].manifest_id.clone(),
                import: scan.import_keys(kept)?[0],
                sha256,
                blob: scan.next_blob(0)?.unwrap(),
                source,
                part: scan.source_parts(source)?[0].sha256,
                file: "ann.jsonl",
            });
            Ok(())
        }))
        .unwrap();
    found.unwrap()
}

/// Returns keys that no row has.
fn absent_keys() -> Keys {
    Keys {
        id: SessionId::new("nobody").unwrap(),
        loop_id: LoopId::new("nobody").unwrap(),
        session: SessionKey::default(),
        loop_key: LoopKey::default(),
        busy: LoopKey::default(),
        recorded: SessionKey::default(),
        imported: SessionKey::default(),
        prompted: SessionKey::default(),
        packed: LoopKey::default(),
        run: RunKey::default(),
        flip: FlipKey::default(),
        pin: PinKey::default(),
        put_away: SessionKey::default(),
        was: SessionId::new("nobody").unwrap(),
        hide: HideKey::default(),
        block: BlockKey::default(),
        manifest: ManifestKey::default(),
        manifest_id: "nobody".into(),
        import: 1,
        sha256: [1; 32],
        blob: 1,
        source: SourceKey::default(),
        part: [1; 32],
        file: "nobody.jsonl",
    }
}

/// Returns the result of a call; of an error only that it is one.
fn outcome_of<T: Debug>(result: StoreResult<T>) -> String {
    result.map_or_else(|_| "refused".into(), |value| format!("{value:?}"))
}

/// Returns the rows that a call visits.
fn visited<T: Debug>(
    call: impl FnOnce(&mut dyn FnMut(T) -> StoreResult<ControlFlow<()>>) -> StoreResult<()>,
) -> String {
    let mut all = Vec::new();
    let done = call(&mut |row| {
        all.push(format!("{row:?}"));
        Ok(ControlFlow::Continue(()))
    });
    format!("{} {all:?}", outcome_of(done))
}

/// Returns the prompts that are visited.
fn prompts(read: &dyn StoreScan, of: PromptsOf<'_>) -> String {
    let mut all = Vec::new();
    let done = read.prompts(of, &mut |place, message| {
        all.push(format!("{place:?} {message:?}"));
    });
    format!("{} {all:?}", outcome_of(done))
}

fn looked_for(word: &str) -> IndexQuery {
    IndexQuery {
        all: vec![vec![Phrase {
            words: vec![word.into()],
            is_prefix: true,
        }]],
    }
}

/// Calls everything that reads rows by key.
fn read_all(read: &dyn StoreScan, k: &Keys) -> Vec<String> {
    let filter = IndexFilter {
        sessions: Some(vec![k.session]),
        ..IndexFilter::default()
    };
    let mut marks = 0;
    let marked = read.run_summaries(k.session, &mut |_| {
        marks += 1;
        Ok(ControlFlow::Continue(()))
    });
    let mut compactions = 0;
    let compacted = read.compaction_summaries(k.session, &mut |_| {
        compactions += 1;
        Ok(ControlFlow::Continue(()))
    });
    let mut words = 0;
    let spoken = read.message_refs(k.loop_key, 0..99, true, &mut |_| {
        words += 1;
        Ok(ControlFlow::Continue(()))
    });
    let mut needed = 0;
    let whole = |_: u32| ContentNeed::Whole;
    let read_needed = read.message_refs_as_needed(k.loop_key, 0..99, true, &whole, &mut |_| {
        needed += 1;
        Ok(ControlFlow::Continue(()))
    });
    let mut times = 0;
    let timed = read.message_refs_with_times(k.loop_key, 0..99, &mut |_| {
        times += 1;
        Ok(ControlFlow::Continue(()))
    });
    let mut texts = 0;
    let texted = read.texts(k.session, &mut |_| {
        texts += 1;
        Ok(())
    });
    vec![
        outcome_of(read.session(&k.id)),
        outcome_of(read.session_by_key(k.session)),
        outcome_of(read.loop_by_id(k.session, &k.loop_id)),
        outcome_of(read.loop_by_key(k.loop_key)),
        outcome_of(read.append_state(k.loop_key)),
        outcome_of(read.last_receipt(k.session)),
        outcome_of(read.has_receipt_after(k.session, 0)),
        outcome_of(read.current(&k.id)),
        outcome_of(read.parent_of(k.busy)),
        outcome_of(read.loops(k.session)),
        outcome_of(read.default_child(k.busy)),
        outcome_of(read.loop_meta(k.loop_key)),
        visited(|visit| read.walk(k.loop_key, visit)),
        visited(|visit| read.chain(k.loop_key, visit)),
        visited(|visit| read.loops_with_blocks(k.loop_key, visit)),
        outcome_of(read.loop_lengths(k.session)),
        outcome_of(read.turn(k.loop_key, 0)),
        outcome_of(read.turns(k.loop_key, 0..99)),
        outcome_of(read.answers(k.loop_key, 0..99)),
        visited(|visit| read.messages(k.loop_key, 0..99, visit)),
        format!("{} {words}", outcome_of(spoken)),
        format!("{} {needed}", outcome_of(read_needed)),
        visited(|visit| read.sizes(k.loop_key, 0..99, visit)),
        outcome_of(read.length_at(k.loop_key, 99)),
        outcome_of(read.is_overlaid_since(k.session, k.loop_key, 0)),
        outcome_of(read.blob(&k.sha256)),
        visited(|visit| read.generations(k.loop_key, visit)),
        outcome_of(read.flips(k.run)),
        outcome_of(read.edit_count(k.session)),
        visited(|visit| read.edits_of_loop(k.loop_key, visit)),
        outcome_of(read.edits_of_run(k.run)),
        outcome_of(read.packed_edits(k.session, None)),
        outcome_of(read.edits_and_digests(k.run)),
        outcome_of(read.packed_edits_of_run(k.run)),
        outcome_of(read.pins(k.session)),
        visited(|visit| read.runs(k.session, visit)),
        format!("{} {marks}", outcome_of(marked)),
        format!("{} {compactions}", outcome_of(compacted)),
        outcome_of(read.run_by_key(k.run)),
        outcome_of(read.blocks_of_run(k.run)),
        outcome_of(read.blocks_of_loop(k.loop_key)),
        outcome_of(read.block_by_key(k.block)),
        outcome_of(read.block_messages(k.block)),
        outcome_of(read.coverage(k.block)),
        outcome_of(read.manifests(k.recorded)),
        outcome_of(read.manifest(k.recorded, &k.manifest_id)),
        outcome_of(read.imported("x", k.file, "r")),
        outcome_of(read.imports(k.imported)),
        outcome_of(read.unindexed_seqs(k.loop_key)),
        visited(|visit| read.find(&looked_for("annonly"), &filter, 99, visit)),
        outcome_of(read.sources(k.imported)),
        outcome_of(read.source_parts(k.source)),
        outcome_of(read.source_piece(&k.part)),
        outcome_of(read.lease(k.busy)),
        outcome_of(read.loops_at_work(Some(k.session))),
        outcome_of(read.loops_with_system_messages(k.prompted, LoopKey(i64::MAX), 9)),
        outcome_of(read.open_calls(Some(k.session))),
        outcome_of(read.calls(k.busy, "c")),
        outcome_of(read.calls_of_loop(k.busy)),
        outcome_of(read.append_key(k.session, "key")),
        outcome_of(read.append_keys(k.session)),
        outcome_of(read.hides(k.put_away)),
        outcome_of(read.is_indexed(k.loop_key, 0, "annonly")),
        // The chosen rows are random.
        outcome_of(
            read.sampled_loops(999)
                .map(|loops| loops.contains(&k.loop_key)),
        ),
        outcome_of(read.renamed_from(&k.was)),
        outcome_of(read.hide_keys(k.put_away)),
        outcome_of(read.hide_and_digest(k.hide)),
        outcome_of(read.append_keys_within(k.session, &AppendKeyRange::default())),
        outcome_of(read.append_keys_of_all("")),
        outcome_of(read.notes(k.busy)),
        outcome_of(read.usage(k.session)),
        outcome_of(read.prompt_places(PromptsOf::Session(k.session), 9)),
        outcome_of(read.prompt_places(PromptsOf::Sessions(&[k.session, k.recorded]), 1)),
        prompts(read, PromptsOf::Sessions(&[k.session])),
        prompts(read, PromptsOf::EachLoop(k.session)),
        outcome_of(read.prompt_places(PromptsOf::EachLoop(k.session), 1)),
        outcome_of(read.prompt_places(PromptsOf::Loop(k.session, k.loop_key), 9)),
        outcome_of(read.started_by(k.session)),
        outcome_of(read.continuations(k.session)),
        outcome_of(read.flags(k.session)),
        outcome_of(read.loop_keys(k.session)),
        outcome_of(read.next_message(k.loop_key, 0)),
        outcome_of(read.next_turn(k.loop_key, 0)),
        outcome_of(read.run_keys(k.session)),
        outcome_of(read.run_and_digest(k.run)),
        outcome_of(read.part_digests(k.run)),
        outcome_of(read.open_runs(Some(k.session))),
        outcome_of(read.audit_chain(k.session)),
        outcome_of(read.import_keys(k.imported)),
        outcome_of(read.import_and_digest(k.import)),
        outcome_of(read.flip_keys(k.session)),
        outcome_of(read.flip_and_digest(k.flip)),
        outcome_of(read.pin_keys(k.session)),
        outcome_of(read.pin_and_digest(k.pin)),
        outcome_of(read.block_keys(k.loop_key)),
        outcome_of(read.block_and_digest(k.block)),
        outcome_of(read.manifest_keys(k.recorded)),
        outcome_of(read.manifest_and_digest(k.manifest)),
        outcome_of(read.blobs_of(BlobOwner::Message(k.loop_key, 2))),
        outcome_of(read.blob_row(k.blob)),
        outcome_of(read.source_row(k.source)),
        outcome_of(read.sessions_of(k.source)),
        format!("{} {texts}", outcome_of(texted)),
        format!("{} {times}", outcome_of(timed)),
        outcome_of(read.pack_at(k.packed, 0)),
        outcome_of(read.next_pack(k.packed, 0)),
        outcome_of(read.pack_content(k.packed, 0)),
        outcome_of(read.packed_heads(k.packed, 0..99)),
        outcome_of(read.unpacked(k.loop_key, 0)),
        outcome_of(read.redaction(MessagePlace::InLoop(k.loop_key, 0))),
    ]
}

/// Calls everything that reads all sessions.
fn list_all(read: &dyn StoreScan) -> Vec<String> {
    let everywhere = IndexFilter::default();
    vec![
        outcome_of(read.sessions()),
        outcome_of(read.hidden_sessions()),
        outcome_of(read.session_ids("", 99)),
        outcome_of(read.blob_names(&[0; 32], &[255; 32])),
        outcome_of(read.index_version()),
        outcome_of(read.index_state()),
        outcome_of(read.unindexed()),
        visited(|visit| read.find(&looked_for("annonly"), &everywhere, 99, visit)),
        visited(|visit| read.find(&looked_for("benonly"), &everywhere, 99, visit)),
        outcome_of(read.holders(&looked_for("annonly").all[0][0], 99)),
        outcome_of(read.holders(&looked_for("benonly").all[0][0], 99)),
        outcome_of(read.loops_at_work(None)),
        outcome_of(read.open_calls(None)),
        outcome_of(read.session_keys()),
        outcome_of(read.next_blob(0)),
        outcome_of(read.source_keys()),
        outcome_of(read.receipts()),
        outcome_of(read.receipt_chains()),
        outcome_of(read.open_runs(None)),
        outcome_of(read.head(&[0; 32])),
        outcome_of(read.strays(9)),
    ]
}

/// Returns the names of the methods of the traits in a source.
fn methods(source: &str) -> Vec<&str> {
    let lines = source
        .lines()
        .skip_while(|line| !line.starts_with("pub trait "));
    let named = lines.filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next());
    named.collect()
}

#[test]
fn every_call_of_the_store_is_tried_across_tenants() {
    let here = [include_str!("calls.rs"), include_str!("writes.rs")].concat();
    let all = [
        include_str!("../../../../core/src/store/read.rs"),
        include_str!("../../../../core/src/store/write.rs"),
        include_str!("../../../../core/src/store/scan.rs"),
        include_str!("../../../../core/src/store/removal.rs"),
    ];
    // Methods without a key: access, additions by the caller, and those on the whole database.
    let excused = [
        "read",
        "write",
        "counter",
        "files",
        "import_key",
        "insert_session",
        "insert_source",
        "note_scrub",
        "insert_head",
        // They query the kernel about a row of the caller.
        "guard_lease",
        "is_holder_gone",
    ];
    let methods: Vec<&str> = all.iter().flat_map(|source| methods(source)).collect();
    assert!(methods.len() > 100, "{}", methods.len());
    for name in methods {
        let is_tried = here.contains(&format!(".{name}("));
        assert!(is_tried || excused.contains(&name), "{name} is not tried");
    }
}

#[test]
fn no_call_of_the_store_finds_or_changes_what_another_tenant_has() {
    let Some(own) = Tenants::new(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    own.add_rows(1, folder.path());
    let (ann, ben) = (own.store(0), own.store(1));
    let lists = |store: &dyn Database| {
        let mut all = Vec::new();
        store
            .scan(Box::new(|scan| {
                all = list_all(scan);
                Ok(())
            }))
            .unwrap();
        all
    };
    let before = lists(&ben);
    own.add_rows(0, folder.path());
    let alone = History::new(&ann, "ann alone");
    let prompt = AgentMessage::extension("system", Json::string("Be brief."));
    alone.append(0, vec![prompt, user("annonly", 0)]);
    History::new(&ann, "ann before");
    store::write(&ann, |write| {
        let row = write.session(&SessionId::new("ann before").unwrap())?;
        session::hide(write, row.unwrap().key)?;
        let import = ImportRow {
            format: "x".into(),
            path: String::new(),
            file_name: "ann.jsonl".into(),
            record_key: Some("r".into()),
        };
        write.insert_import(alone.row(0).session, &import)
    })
    .unwrap();
    assert_eq!(lists(&ben), before);
    let k = keys(&ann);
    let asked = |store: &dyn Database, k: &Keys| {
        let mut all = Vec::new();
        store
            .scan(Box::new(|scan| {
                all = read_all(scan, k);
                Ok(())
            }))
            .unwrap();
        all
    };
    let nothing = asked(&ben, &absent_keys());
    assert_eq!(asked(&ben, &k), nothing);
    let something = asked(&ann, &k);
    let same = something
        .iter()
        .zip(&nothing)
        .filter(|(one, two)| one == two);
    // The session has no pairs, usage, started sessions, later receipts and redactions.
    assert!(same.count() < 16, "{something:#?}");
    writes_change_nothing(&own, &k, &rows(&ann, &k));
}

fn writes_change_nothing(own: &Tenants, k: &Keys, r: &Rows) {
    let mut owner = own.server.client(&own.database);
    let before = own.stored(&mut owner);
    let ben = own.store(1);
    let mut refused = 0;
    for (name, attempt) in write_all(k, r) {
        let done = ben.removing(Box::new(|write| attempt(write)));
        refused += usize::from(done.is_err());
        assert_eq!(own.stored(&mut owner), before, "{name}: {done:?}");
    }
    assert!(refused > 15, "{refused}");
    // Each tenant has its own index and names.
    let mut client = own.client(0);
    let before = own.seen(&mut client);
    store::write(&ben, |write| write.clear_index(77)).unwrap();
    History::new(&ben, k.id.as_str());
    assert!(own.seen(&mut client) == before);
}
