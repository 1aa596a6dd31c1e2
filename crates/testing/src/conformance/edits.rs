//! Edits: messages, or parts of them, that contexts show in another form or not at all.

use loopstore::context::context_parts;
use loopstore::extend::context::faults_of;
use loopstore::{
    AsOf, BuildOptions, Context, EditAction, EditFilter, EditRefusal, EditReport, EditRequest,
    EditTarget, FlipRequest, build_context_from_session, edit, redo, restore, undo,
};

use super::*;
use crate::whole::assert_whole;

/// A word that only the answers of turn 2 contain.
const SECRET: &str = "hunter2";

/// Returns a session of one loop with eight turns of three messages: a prompt, an answer with a call, its result.
pub(super) fn edited_session<'a>(store: &'a dyn SessionStore, id: &str) -> History<'a> {
    let history = History::new(store, id);
    for number in 0..8 {
        let mut messages = turn(number);
        if number == 2 {
            let call = format!("call-{number}");
            messages[1] = answer(&format!("{SECRET} is the word"), &[&call], 2);
        }
        history.append(0, messages);
    }
    history
}

pub(super) fn message(turn: u32, seq: u32) -> EditTarget {
    EditTarget::Message(loop_id(0), turn, seq)
}

pub(super) fn apply(history: &History<'_>, request: &EditRequest) -> EditReport {
    edit(history.store, &history.session, request).unwrap()
}

pub(super) fn remove(history: &History<'_>, target: EditTarget) -> EditReport {
    apply(history, &EditRequest::remove([target]))
}

fn refusal(history: &History<'_>, request: &EditRequest) -> EditRefusal {
    match edit(history.store, &history.session, request) {
        Err(StoreError::EditRefused(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn built(history: &History<'_>, options: &BuildOptions) -> Context {
    build_context_from_session(history.store, &history.session, options).unwrap()
}

/// Returns the context of a session, whose figures agree with its messages.
pub(super) fn context(history: &History<'_>) -> Context {
    let options = BuildOptions {
        check: true,
        ..BuildOptions::default()
    };
    let context = built(history, &options);
    let counter = history.store.counter();
    let tokens = context.messages.iter().map(|m| counter.message_tokens(m));
    assert_eq!(tokens.sum::<u64>(), context.tokens);
    let bytes = context
        .messages
        .iter()
        .map(|m| serde_json::to_string(m).unwrap().len() as u64);
    assert_eq!(bytes.sum::<u64>(), context.bytes);
    let parts = context_parts(history.store, &history.session, &BuildOptions::default()).unwrap();
    assert_eq!(parts, context.parts);
    assert_eq!(
        parts.iter().map(|part| part.tokens).sum::<u64>(),
        context.tokens
    );
    let shown = |part: &loopstore::context::Part| part.messages;
    assert_eq!(
        parts.iter().map(shown).sum::<u64>(),
        context.messages.len() as u64
    );
    assert!(
        faults_of(&context.messages, true).is_empty(),
        "{:?}",
        context.faults
    );
    context
}

pub(super) fn text(context: &Context) -> String {
    serde_json::to_string(&context.messages).unwrap()
}

pub(super) fn flip(history: &History<'_>, run: Option<String>, redone: bool) {
    let request = FlipRequest {
        run,
        ..FlipRequest::default()
    };
    let done = match redone {
        true => redo(history.store, &history.session, &request),
        false => undo(history.store, &history.session, &request),
    };
    done.unwrap();
}

pub fn a_removed_message_goes_with_its_pair_and_comes_back(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let before = context(&history);
    let report = remove(&history, message(2, 8));
    assert_eq!((report.edits.len(), report.paired.len()), (1, 1));
    assert_eq!((report.paired[0].seq, report.paired[0].part), (7, Some(1)));
    let after = context(&history);
    assert_eq!(after.messages.len(), before.messages.len() - 1);
    assert_eq!(
        (report.tokens_before, report.tokens_after),
        (before.tokens, after.tokens)
    );
    assert!(text(&after).contains(SECRET) && !text(&after).contains("call-2"));
    flip(&history, report.run_id.clone(), false);
    assert_eq!(context(&history).messages, before.messages);
    // The call takes its result with it, and an answer its results.
    flip(&history, None, true);
    assert_eq!(context(&history).messages, after.messages);
    flip(&history, report.run_id, false);
    let report = remove(&history, message(2, 7));
    assert_eq!(report.paired.len(), 1);
    assert!(!text(&context(&history)).contains("call-2"));
    let done = restore(store, &history.session, None, &[message(2, 7)]).unwrap();
    assert_eq!(
        (done.len(), done[0].run_id.as_str()),
        (1, report.run_id.unwrap().as_str())
    );
    assert_eq!(context(&history).messages, before.messages);
}

pub fn a_cleared_result_shows_its_size_and_the_way_to_it(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let before = context(&history);
    let target = EditTarget::Call("call-3".into());
    let report = apply(&history, &EditRequest::clear([target]));
    // The text and the image of the result.
    assert_eq!((report.edits.len(), report.paired.len()), (2, 0));
    let after = context(&history);
    assert_eq!(after.messages.len(), before.messages.len());
    let shown = text(&after);
    let marker =
        "[cleared: 200 bytes, 40 lines; expand turn 3 of loop loop-0, session s, to read it]";
    assert!(
        shown.contains(marker) && shown.contains("[cleared: image/png, 8 bytes;"),
        "{shown}"
    );
    assert!(after.tokens < before.tokens);
    // The arguments of a cleared call are empty.
    let call = EditTarget::Part(loop_id(0), 4, 13, 1);
    apply(&history, &EditRequest::clear([call]));
    assert_eq!(
        text(&context(&history))
            .matches(r#""arguments":{}"#)
            .count(),
        1
    );
    // Matching messages are cleared, others are counted.
    let filter = EditFilter {
        tool: Some("tool".into()),
        older_than: Some(2),
        ..EditFilter::default()
    };
    let dry = EditRequest {
        dry_run: true,
        ..EditRequest::clear([EditTarget::Matching(filter.clone())])
    };
    let would = apply(&history, &dry);
    assert_eq!(would.run_id, None);
    let report = apply(
        &history,
        &EditRequest::clear([EditTarget::Matching(filter)]),
    );
    assert_eq!(would.tokens_after, report.tokens_after);
    assert_eq!((report.edits.len(), report.skipped.len()), (10, 1));
    assert_eq!(report.tokens_after, context(&history).tokens);
    // Of old results the newest stay. An edit that frees too little leaves no row.
    let results = EditTarget::OldResults {
        keep: 1,
        exclude_tools: Vec::new(),
    };
    let before = context(&history);
    let mut old = EditRequest {
        at_least: 10_000,
        ..EditRequest::clear([results])
    };
    match refusal(&history, &old) {
        EditRefusal::TooLittle { freed, at_least } => {
            assert_eq!((freed > 0, at_least), (true, 10_000));
        }
        other => panic!("{other}"),
    }
    assert_eq!(context(&history).messages, before.messages);
    old.at_least = 1;
    let report = apply(&history, &old);
    assert_eq!((report.edits.len(), report.skipped.len()), (2, 6));
    assert_eq!(report.tokens_after, context(&history).tokens);
    let excluded = EditTarget::OldResults {
        keep: 0,
        exclude_tools: vec!["tool".into()],
    };
    let why = refusal(&history, &EditRequest::clear([excluded]));
    assert_eq!(why, EditRefusal::NoMatch { skipped: 8 });
}

pub fn a_replaced_text_is_shown_in_its_place(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let report = apply(
        &history,
        &EditRequest::replace(message(5, 15), "pretty please"),
    );
    assert_eq!(report.edits[0].action, EditAction::Replaced);
    let after = context(&history);
    assert!(text(&after).contains("pretty please"));
    assert_eq!(after.messages.len(), 24);
    let arguments = EditRequest::replace(EditTarget::Part(loop_id(0), 5, 16, 1), "{\"y\":1}");
    apply(&history, &arguments);
    assert!(text(&context(&history)).contains(r#""arguments":{"y":1}"#));
}

pub fn edits_of_two_runs_combine_and_each_comes_back_alone(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let all = context(&history);
    let part = |part| EditTarget::Part(loop_id(0), 1, 5, part);
    let first = apply(&history, &EditRequest::clear([part(0)])).run_id;
    let cleared = context(&history);
    let second = apply(&history, &EditRequest::replace(part(0), "short")).run_id;
    assert!(text(&context(&history)).contains("short"));
    let third = remove(&history, part(1)).run_id;
    let both = context(&history);
    flip(&history, second.clone(), false);
    assert!(text(&context(&history)).contains("[cleared: 200 bytes"));
    flip(&history, third.clone(), false);
    assert_eq!(context(&history).messages, cleared.messages);
    flip(&history, first.clone(), false);
    assert_eq!(context(&history).messages, all.messages);
    for run in [third, first, second] {
        flip(&history, run, true);
    }
    assert_eq!(context(&history).messages, both.messages);
    // A whole removal hides whatever other runs did.
    let whole = remove(&history, message(1, 5)).run_id;
    assert!(!text(&context(&history)).contains("call-1"));
    flip(&history, whole, false);
    assert_eq!(context(&history).messages, both.messages);
}

pub fn a_context_as_of_before_an_edit_does_not_have_it(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let before = context(&history);
    let report = remove(&history, message(2, 8));
    history.append(0, turn(8));
    let as_of = |as_of| {
        let options = BuildOptions {
            as_of: Some(as_of),
            ..BuildOptions::default()
        };
        built(&history, &options)
    };
    assert_eq!(as_of(AsOf::turn("loop-0", 7)).messages, before.messages);
    let then = as_of(AsOf::run(report.run_id.unwrap()));
    assert_eq!(then.messages.len(), before.messages.len() - 1);
    flip(&history, None, false);
    assert_eq!(
        as_of(AsOf::turn("loop-0", 8)).messages.len(),
        before.messages.len() + 2
    );
}

pub fn a_fork_before_an_edit_does_not_have_it(store: &dyn SessionStore) {
    let mut history = edited_session(store, "s");
    history.start_loop(Some(0), Some(5));
    history.start_loop(Some(0), Some(7));
    let request = EditRequest {
        leaf: Some(loop_id(0)),
        ..EditRequest::remove([message(2, 8)])
    };
    apply(&history, &request);
    let from = |at| {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        text(&built(&history, &options)).contains("call-2")
    };
    assert_eq!([from(0), from(1), from(2)], [false, true, false]);
    // An edit on a branch does not reach the loop that it left.
    let request = EditRequest {
        leaf: Some(loop_id(1)),
        ..EditRequest::remove([message(3, 11)])
    };
    history.append(1, turn(0));
    apply(&history, &request);
    let contains = |at| {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        text(&built(&history, &options)).contains("call-3")
    };
    assert_eq!([contains(0), contains(1), contains(2)], [true, false, true]);
}

pub fn a_summary_made_from_a_removed_message_is_not_shown(store: &dyn Database) {
    let mut history = edited_session(store, "s");
    let raw = context(&history);
    let compacted = history.compact(0, (1, 1), true);
    assert_eq!(compacted["outcome"], "committed");
    let summary = context(&history);
    assert!(text(&summary).contains(SECRET));
    let report = remove(&history, message(2, 7));
    assert_eq!(report.stale, [compacted["run_id"].as_str().unwrap()]);
    let without = context(&history);
    assert!(!text(&without).contains(SECRET) && without.tokens < raw.tokens);
    assert_eq!(without.tokens, report.tokens_after);
    // An undo brings the summary back, a redo takes it away.
    flip(&history, report.run_id.clone(), false);
    assert_eq!(context(&history).messages, summary.messages);
    flip(&history, report.run_id.clone(), true);
    assert_eq!(context(&history).messages, without.messages);
    // A summary without the removed message, its undo, and the redo of the one that has it.
    let again = history.compact(0, (1, 1), true);
    assert_eq!(again["outcome"], "committed");
    let other = context(&history);
    assert!(!text(&other).contains(SECRET) && other.messages.len() < without.messages.len());
    let first = compacted["run_id"].as_str().map(str::to_owned);
    flip(&history, first.clone(), false);
    flip(&history, first, true);
    assert_eq!(context(&history).messages, other.messages);
    flip(&history, again["run_id"].as_str().map(str::to_owned), false);
    assert_eq!(context(&history).messages, without.messages);
    flip(&history, report.run_id, false);
    assert_eq!(context(&history).messages, summary.messages);
    assert_whole(store);
}

pub fn coverage_says_what_was_removed_before_a_summary(store: &dyn Database) {
    let mut history = edited_session(store, "s");
    remove(&history, message(2, 7));
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    let key = history.row(0).key;
    let removed = read(store, |read| {
        let block = read.blocks_of_loop(key)?.pop().unwrap();
        assert_eq!(block.edits.len(), 1);
        let rows = read.coverage(block.key)?.into_iter();
        let rows = rows.filter(|row| row.disposition == Disposition::Removed);
        Ok(rows.map(|row| row.seqs.unwrap()).collect::<Vec<_>>())
    });
    assert_eq!(removed.unwrap(), [(7, 8)]);
    assert_whole(store);
}

pub fn edits_apply_to_what_a_block_keeps(store: &dyn Database) {
    let mut history = edited_session(store, "s");
    assert_eq!(history.compact(0, (1, 3), true)["outcome"], "committed");
    let before = context(&history);
    // Of the first turn the result, of the recent turns one that the block shortens.
    let first = EditTarget::Part(loop_id(0), 0, 2, 0);
    apply(&history, &EditRequest::clear([first]));
    let recent = EditTarget::Part(loop_id(0), 6, 20, 0);
    let report = apply(&history, &EditRequest::replace(recent, "in short"));
    let after = context(&history);
    assert!(report.stale.is_empty());
    assert_eq!(after.messages.len(), before.messages.len());
    let shown = text(&after);
    assert!(
        shown.contains("in short") && shown.contains("[cleared: 200 bytes"),
        "{shown}"
    );
    remove(&history, message(6, 20));
    assert!(!text(&context(&history)).contains("in short"));
    assert_whole(store);
}

pub fn a_kept_context_follows_edits(store: &Store) {
    let chat = store.session("kept").unwrap();
    let call = Message::assistant("I look.").with_tool_call("c1", "ls", Json::parse("{}").unwrap());
    chat.append([Message::user("go"), call]).unwrap();
    chat.append([Message::tool_result("c1", "file\n".repeat(90))])
        .unwrap();
    chat.append([Message::assistant("done")]).unwrap();
    let before = chat.context().unwrap().messages.clone();
    let target = [EditTarget::Call("c1".into())];
    chat.edit(&EditRequest::clear(target.clone())).unwrap();
    let cleared = chat.context().unwrap();
    assert!(
        serde_json::to_string(&cleared.messages)
            .unwrap()
            .contains("[cleared: 450 bytes")
    );
    chat.append([Message::user("more")]).unwrap();
    assert_eq!(chat.context().unwrap().messages.len(), 5);
    chat.restore(&target).unwrap();
    assert_eq!(chat.context().unwrap().messages[..4], before[..]);
    chat.edit(&EditRequest::remove(target)).unwrap();
    let fresh = build_context_from_session(store.database(), chat.id(), &BuildOptions::default());
    assert_eq!(chat.context().unwrap().messages, fresh.unwrap().messages);
    chat.undo().unwrap();
    assert_eq!(chat.context().unwrap().messages[..4], before[..]);
}

/// A store in which a message is removed just before the first write.
struct EditsFirst<'a> {
    store: &'a dyn SessionStore,
    session: SessionId,
    is_done: std::sync::atomic::AtomicBool,
}

impl SessionStore for EditsFirst<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.store.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        if !self.is_done.swap(true, std::sync::atomic::Ordering::SeqCst) {
            edit(
                self.store,
                &self.session,
                &EditRequest::remove([message(2, 7)]),
            )
            .unwrap();
        }
        self.store.write(work)
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.store.counter()
    }
}

pub fn a_commit_after_an_edit_is_a_conflict(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let edits = EditsFirst {
        store,
        session: history.session.clone(),
        is_done: false.into(),
    };
    let mut late = History {
        store: &edits,
        session: history.session.clone(),
        ..History::new(store, "other")
    };
    assert_eq!(late.compact(0, (1, 1), true)["outcome"], "conflict");
    assert!(!text(&context(&history)).contains(SECRET));
}

pub fn a_manifest_of_a_context_with_edits_is_derived_again(store: &dyn Database) {
    let mut history = edited_session(store, "s");
    apply(
        &history,
        &EditRequest::clear([EditTarget::Call("call-3".into())]),
    );
    remove(&history, message(2, 7));
    let record = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    assert!(built(&history, &record).manifest.is_some());
    history.compact(0, (1, 1), true);
    apply(&history, &EditRequest::replace(message(0, 0), "go on"));
    assert!(built(&history, &record).manifest.is_some());
    flip(&history, None, false);
    assert_whole(store);
}

pub fn a_closed_run_takes_no_edits(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let report = remove(&history, message(2, 7));
    let session = history.row(0).session;
    let (run, rows) = read(store, |read| {
        let mut found = None;
        read.runs(session, &mut |run| {
            found = Some(run);
            STOP
        })?;
        let run = found.unwrap();
        let rows = read.edits_of_run(run.key)?;
        Ok((run, rows))
    })
    .unwrap();
    assert_eq!(Some(&run.run_id), report.run_id.as_ref());
    assert_eq!((rows.len(), rows[0].seqs), (1, (7, 8)));
    let again = write(store, |write| write.insert_edits(run.key, &rows));
    assert!(again.is_err());
    let key = history.row(0).session;
    assert_eq!(read(store, |read| read.edit_count(key)).unwrap(), 1);
}

pub fn what_cannot_be_edited_is_refused(store: &dyn SessionStore) {
    let history = edited_session(store, "s");
    let prompt = AgentMessage::extension("system", Json::string("Be brief."));
    history.append(0, vec![prompt]);
    history.append(0, vec![user("wait", 8), answer("I call", &["open"], 8)]);
    let of = |target| refusal(&history, &EditRequest::remove([target]));
    assert!(matches!(
        of(message(8, 25)),
        EditRefusal::InFlight { turn: 8, .. }
    ));
    assert!(matches!(
        of(message(7, 24)),
        EditRefusal::Extension { seq: 24, .. }
    ));
    assert!(matches!(of(message(3, 7)), EditRefusal::NotOnChain { .. }));
    let none = EditTarget::Call("no such call".into());
    assert!(matches!(of(none), EditRefusal::NotOnChain { .. }));
    let filter = EditFilter::default();
    assert_eq!(of(EditTarget::Matching(filter)), EditRefusal::EmptyFilter);
    let filter = EditFilter {
        words: Some("nobody wrote this".into()),
        ..EditFilter::default()
    };
    assert_eq!(
        of(EditTarget::Matching(filter)),
        EditRefusal::NoMatch { skipped: 0 }
    );
    let part = EditTarget::Part(loop_id(0), 1, 5, 2);
    assert!(matches!(of(part), EditRefusal::NoPart { parts: 2, .. }));
    assert!(history.pin(0, PinRef::message("loop-0", 1, 4)));
    assert!(matches!(
        of(message(1, 4)),
        EditRefusal::Pinned { seq: 4, .. }
    ));
    let turns = EditTarget::Turns(loop_id(0), 1..=2);
    assert!(matches!(of(turns), EditRefusal::Pinned { seq: 4, .. }));
    remove(&history, message(2, 7));
    assert!(matches!(
        of(message(2, 7)),
        EditRefusal::Removed { seq: 7, .. }
    ));
    assert!(!history.pin(0, PinRef::message("loop-0", 2, 7)));
    let report = remove(&history, EditTarget::Turns(loop_id(0), 2..=3));
    assert_eq!(report.skipped.len(), 2);
    let no_text = EditRequest::new(EditAction::Replaced, [message(4, 12)]);
    assert!(matches!(refusal(&history, &no_text), EditRefusal::Text(_)));
    let other = restore(store, &history.session, None, &[message(3, 9)]);
    assert!(matches!(
        other,
        Err(StoreError::EditRefused(EditRefusal::OtherTargets { .. }))
    ));
}

pub fn a_context_is_never_emptied(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    history.append(0, turn(0));
    let all = EditRequest::remove([EditTarget::Turns(loop_id(0), 0..=0)]);
    assert_eq!(refusal(&history, &all), EditRefusal::Everything);
    assert_eq!(context(&history).messages.len(), 3);
    assert!(runs(store, history.row(0).session).is_empty());
}

pub fn an_edit_takes_bound_thinking_with_it(store: &dyn SessionStore) {
    let history = History::new(store, "s");
    let mut thinks = answer("so", &["c"], 0);
    if let Some(inner) = thinks.message_mut() {
        let signed = Content::thinking("hm", Some("c2ln".into()));
        inner.content_mut().insert(0, signed);
    }
    history.append(
        0,
        vec![
            user("go", 0),
            thinks,
            result("c", vec![Content::text("r")], 0),
        ],
    );
    history.append(0, vec![user("on", 1), answer("yes", &[], 1)]);
    let target = EditTarget::Part(loop_id(0), 0, 1, 1);
    let report = apply(&history, &EditRequest::replace(target, "thus"));
    assert_eq!((report.bound.len(), report.bound[0].part), (1, Some(0)));
    let shown = text(&context(&history));
    assert!(shown.contains("thus") && !shown.contains("c2ln"));
}

pub fn contexts_with_many_edits_equal_the_models(store: &dyn Database) {
    crate::edited_histories::play_many_edits(store, 40);
}

pub fn contexts_of_random_histories_equal_the_models(store: &dyn Database) {
    for seed in 0..12 {
        crate::edited_histories::play(store, seed, 40);
    }
    assert_whole(store);
}
