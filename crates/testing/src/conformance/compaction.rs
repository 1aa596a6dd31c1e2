//! A cancelled compaction, and the tokens that a provider counted.

use super::*;

/// A store whose first write happens after the compaction was cancelled.
struct Cancels<'a> {
    store: &'a dyn SessionStore,
    flag: CancelFlag,
}

impl SessionStore for Cancels<'_> {
    fn read(&self, work: ReadWork<'_>) -> StoreResult<()> {
        self.store.read(work)
    }

    fn write(&self, work: WriteWork<'_>) -> StoreResult<()> {
        self.flag.cancel();
        self.store.write(work)
    }

    fn counter(&self) -> &dyn TokenCounter {
        self.store.counter()
    }
}

pub fn a_compaction_cancelled_before_its_commit_leaves_no_block(store: &dyn Database) {
    let history = session_of_turns(store, "s", 30);
    let runs = || store.run_rows(Some(&history.session)).unwrap();
    let mut request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    request.policy.compaction.keep_recent = KeepRecent::Turns(2);
    let cancels = Cancels {
        store,
        flag: request.cancel.clone(),
    };
    let report = compact_session_loops(&cancels, &history.session, &request).unwrap();
    assert_eq!(report.error.as_deref(), Some("cancelled"));
    assert!(report.blocks.is_empty() && report.after == report.before);
    assert_eq!(runs().len(), 1);
    let key = history.row(0).key;
    let blocks = read(store, |read| read.blocks_of_loop(key)).unwrap();
    assert!(blocks.is_empty());
    // The same plan can be tried again.
    request.cancel = CancelFlag::new();
    let report = compact_session_loops(store, &history.session, &request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
}

pub fn what_a_provider_counted_stands_with_the_loop_until_a_compaction_or_an_undo(
    store: &dyn SessionStore,
) {
    let mut history = History::new(store, "s");
    let counted = |turn, input: u64| {
        let mut message = answer("so be it", &["c"], turn);
        let Some(Message::Assistant(inner)) = message.message_mut() else {
            unreachable!("an answer");
        };
        let usage = format!(r#"{{"input":{input},"output":20,"cache_read":3}}"#);
        inner.usage = Some(serde_json::from_str(&usage).unwrap());
        message
    };
    let reported = || history.row(0).totals.reported;
    assert_eq!(reported(), None);
    history.append(0, vec![user("go", 0), counted(0, 100)]);
    let first = ReportedTokens {
        seq: 1,
        tokens: 123,
    };
    assert_eq!(reported(), Some(first));
    history.append(0, vec![user("on", 1), answer("no report", &[], 1)]);
    assert_eq!(reported(), Some(first));
    history.append(0, vec![user("and on", 2), counted(2, 200)]);
    assert_eq!(
        reported(),
        Some(ReportedTokens {
            seq: 5,
            tokens: 223
        })
    );
    let key = history.row(0).key;
    write(store, |write| {
        let new = vec![user("instead", 2).into()];
        append::replace_last_turn(write, key, new, &HeuristicTokenCounter)
    })
    .unwrap();
    assert_eq!(
        reported(),
        None,
        "the answer is gone, and the one before it is not looked for"
    );
    history.append(0, vec![counted(2, 300)]);
    let is_overlaid = |history: &History<'_>, seq| {
        let row = history.row(0);
        let is_overlaid = |read: &dyn StoreRead| read.is_overlaid_since(row.session, row.key, seq);
        read(store, is_overlaid).unwrap()
    };
    history.append(0, vec![user("more", 3)]);
    assert_eq!(is_overlaid(&history, 5), Some(false));
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    assert_eq!(is_overlaid(&history, 5), Some(true));
    history.append(0, vec![counted(3, 100)]);
    assert_eq!(is_overlaid(&history, 7), Some(false));
    assert!(history.flip(0, false));
    assert_eq!(is_overlaid(&history, 7), Some(true));
    assert_eq!(is_overlaid(&history, 99), None);
}
