//! Hooks that decide about a compaction before its commit, and hooks that are warned before it.

use std::sync::{Arc, Mutex};

use loopstore::compact::{Approval, CompactOutcome, NotNeeded, Proposal, WindowWarning};
use loopstore::*;

use crate::budget::stage::*;
use crate::support::histories::History;

/// Returns a request whose hook decides by `decide`.
fn decided_by(
    decide: impl Fn(&Proposal<'_>) -> Approval + Send + Sync + 'static,
) -> CompactRequest {
    struct Deciding<F>(F);
    impl<F: Fn(&Proposal<'_>) -> Approval + Send + Sync> CompactionHook for Deciding<F> {
        fn approve(&self, proposal: &Proposal<'_>) -> Approval {
            (self.0)(proposal)
        }
    }
    let mut request = request(1_200);
    request.policy.hooks.push(Arc::new(Deciding(decide)));
    request
}

/// Returns the position of the block with a text.
fn with_text(proposal: &Proposal<'_>) -> usize {
    let mut blocks = proposal.blocks.iter();
    blocks.position(|block| block.text.is_some()).unwrap()
}

fn texts(context: &Context) -> Vec<String> {
    let messages = context.messages.iter().filter_map(|m| m.message());
    messages
        .flat_map(Message::texts)
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_refused_plan_is_not_proposed_again_and_a_postponed_one_is() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let before = context(&history);
    let postponed = decided_by(|_| Approval::Postpone("later".into()));
    for _ in 0..2 {
        let report = compact(&history, &postponed);
        assert_eq!(report.outcome, CompactOutcome::Vetoed);
        assert_eq!(report.error.as_deref(), Some("postponed: later"));
        assert!(report.run.is_some() && report.blocks.is_empty());
    }
    let refused = decided_by(|_| Approval::Refuse("never".into()));
    let report = compact(&history, &refused);
    assert_eq!(report.outcome, CompactOutcome::Vetoed);
    assert_eq!(report.error.as_deref(), Some("never"));
    let run = report.run.unwrap();
    let again = compact(&history, &decided_by(|_| panic!("proposed again")));
    assert_eq!(again.not_needed, Some(NotNeeded::TriedBefore { run }));
    assert_eq!(context(&history), before);
    // Another plan is proposed.
    work(&history, 12..16, 400);
    let report = compact(&history, &decided_by(|_| Approval::Commit));
    assert_eq!(report.outcome, CompactOutcome::Committed);
}

#[test]
fn a_proposal_shows_the_context_that_a_commit_makes() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let request = decided_by(move |proposal| {
        noted.lock().unwrap().push((
            proposal.before,
            proposal.after,
            proposal.messages().unwrap(),
        ));
        Approval::Commit
    });
    let report = compact(&history, &request);
    let expected = (report.before, report.after, context(&history).messages);
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[test]
fn a_rewritten_text_is_shown_and_undone_and_never_dropped_in_silence() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let before = context(&history);
    // It would not be smaller than the turns that it replaces.
    let long = decided_by(|proposal| {
        Approval::Rewrite(vec![(with_text(proposal), "word ".repeat(10_000))])
    });
    let report = compact(&history, &long);
    assert_eq!(report.outcome, CompactOutcome::Failed, "{report:?}");
    let none = decided_by(|_| Approval::Rewrite(vec![(99, "text".into())]));
    assert_eq!(compact(&history, &none).outcome, CompactOutcome::Failed);
    assert_eq!(context(&history), before);

    let own = decided_by(|proposal| {
        Approval::Rewrite(vec![(with_text(proposal), "All steps went well.".into())])
    });
    let report = compact(&history, &own);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert_eq!(report.fallback.as_deref(), Some("person"));
    let after = context(&history);
    assert!(texts(&after).contains(&"All steps went well.".to_owned()));
    assert_eq!(after.tokens, report.after.tokens);
    let rows = store.query("SELECT DISTINCT strategy FROM blocks").unwrap();
    assert_eq!(format!("{:?}", rows.rows), r#"[["person"]]"#);
    undo(&store, &history.session, &Default::default()).unwrap();
    assert_eq!(context(&history), before);
}

#[test]
fn a_panic_in_an_approval_commits_nothing() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let before = context(&history);
    let report = compact(&history, &decided_by(|_| panic!("no idea")));
    assert_eq!(report.outcome, CompactOutcome::Vetoed);
    assert!(report.error.unwrap().contains("no idea"));
    assert_eq!(context(&history), before);
}

#[test]
fn a_call_that_is_cancelled_during_an_approval_commits_nothing() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let before = context(&history);
    for approval in [Approval::Commit, Approval::Postpone("later".into())] {
        let request = decided_by(move |proposal| {
            proposal.cancel.cancel();
            approval.clone()
        });
        let report = compact(&history, &request);
        assert_eq!(report.outcome, CompactOutcome::Failed);
        assert_eq!(report.error.as_deref(), Some("cancelled"));
        assert_eq!(context(&history), before);
    }
}

#[test]
fn hooks_are_warned_from_the_named_share_until_the_trigger() {
    #[derive(Default)]
    struct Warned(Mutex<Vec<WindowWarning>>);
    impl CompactionHook for Warned {
        fn warn(&self, warning: &WindowWarning) {
            self.0.lock().unwrap().push(warning.clone());
        }
    }
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let tokens = context(&history).tokens;
    let hook = Arc::new(Warned::default());
    for (share, warnings) in [(40, 0), (60, 1), (99, 1)] {
        // At 99 % the policy compacts instead.
        let mut request = request(tokens * 100 / share);
        request.policy.hooks.push(hook.clone());
        request.policy.warn_at = Some(50);
        compact(&history, &request);
        assert_eq!(hook.0.lock().unwrap().len(), warnings, "{share}");
    }
    let warned = hook.0.lock().unwrap();
    assert_eq!(warned[0].tokens, tokens);
    assert!((59..=60).contains(&warned[0].percent));
}

#[test]
fn what_is_appended_after_the_trigger_was_evaluated_is_compacted_too() {
    /// Appends a result when it is warned for the first time, as another program may.
    struct Appending(Mutex<Option<SessionHandle>>);
    impl CompactionHook for Appending {
        fn warn(&self, _: &WindowWarning) {
            if let Some(chat) = self.0.lock().unwrap().take() {
                let result = Message::tool_result("c", "A line. ".repeat(900));
                chat.append([result]).unwrap();
            }
        }
    }
    let store = Store::in_memory().unwrap();
    let hook = Arc::new(Appending(Mutex::new(None)));
    let mut policy = Policy::new(4_000).warn_at(1);
    policy.hooks.push(hook.clone());
    let chat = store.session("s").unwrap().with_policy(policy);
    for turn in 0..8 {
        let answer = format!("Answer {turn}: {}", "more and more of it, ".repeat(50));
        let asked = Message::user(format!("Question {turn}?"));
        chat.append([asked, Message::assistant(answer)]).unwrap();
    }
    let call = Message::assistant("").with_tool_call("c", "read", serde_json::json!({}));
    chat.append([Message::user("Read on."), call]).unwrap();
    assert!(!chat.prepare().unwrap().was_compacted());
    *hook.0.lock().unwrap() = Some(chat.clone());
    let ready = chat.prepare().unwrap();
    assert!(
        ready.was_compacted() && ready.context.tokens <= 4_000,
        "{}",
        ready.context.tokens
    );
}
