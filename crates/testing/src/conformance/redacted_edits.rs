//! Redactions of sessions with edits.

use loopstore::{EditRequest, EditTarget};
use loopstore_admin::retention::{RedactRequest, redact_session};

use super::edits::{apply, context, edited_session, flip, message, remove, text};
use super::*;
use crate::whole::assert_whole;

pub fn a_redaction_reaches_the_texts_and_the_sizes_of_edits(store: &dyn Database) {
    const PASSWORD: &str = "https://me:hunter2hunter2@example.org/x";
    let history = edited_session(store, "s");
    let mut thinks = answer(&format!("I fetch {PASSWORD}"), &["sealed"], 8);
    if let Some(inner) = thinks.message_mut() {
        let item = Json::parse(r#"{"type":"redacted_thinking","data":"b3BhcXVl"}"#).unwrap();
        let item = Content::sealed("anthropic", item);
        inner.content_mut().insert(0, item);
    }
    let shown = result(
        "sealed",
        vec![Content::text(format!("of {PASSWORD}").repeat(20))],
        8,
    );
    history.append(0, vec![user("fetch", 8), thinks, shown]);
    history.append(0, vec![user("thanks", 9), answer("yes", &[], 9)]);
    apply(
        &history,
        &EditRequest::replace(message(4, 12), format!("see {PASSWORD}")),
    );
    apply(
        &history,
        &EditRequest::clear([EditTarget::Call("sealed".into())]),
    );
    let call = EditTarget::Part(loop_id(0), 8, 25, 2);
    apply(&history, &EditRequest::clear([call]));
    remove(&history, message(2, 7));
    let before = context(&history);
    assert_eq!(text(&before).matches("hunter2hunter2").count(), 2);
    let request = RedactRequest::new(history.session.clone());
    let preview = RedactRequest {
        dry_run: true,
        ..request.clone()
    };
    let preview = redact_session(store, &preview).unwrap();
    let report = redact_session(store, &request).unwrap();
    assert_eq!(report.texts.get("edits.text"), Some(&1));
    assert_eq!(report.texts, preview.texts);
    assert!(report.left.is_empty(), "{report:?}");
    let after = context(&history);
    assert!(!text(&after).contains("hunter2hunter2"));
    assert_eq!(after.messages.len(), before.messages.len());
    // The sealed item before the call is gone, and the call is still the one that is cleared.
    let of = |id: &str| text(&after).contains(id);
    assert!(of("sealed") && !of("b3BhcXVl") && !of("call-2"));
    assert_whole(store);
    flip(&history, None, false);
    assert!(!text(&context(&history)).contains("hunter2hunter2"));
    assert_whole(store);
}
