//! No form of a secret is in a page.

use loopstore::*;
use loopstore_redact::{Confidence, RedactionPolicy};
use loopstore_share::{ShareRequest, SharedSession};
use loopstore_verify::verify;
use serde_json::json;

use crate::stage::{assert_absent, imported, lines, share, texts};
use crate::support::histories::{History, Random, answer, result, user};
use crate::support::removal::{self, CORE, session, token};
use crate::support::secrets::{KINDS, secret};

#[test]
fn a_secret_in_every_place_is_in_no_form_in_the_page() {
    let store = SqliteStore::in_memory().unwrap();
    removal::tell(&store, "s", &token());
    let before = lines(&store, &session("s"));
    let shared = share(&store, &ShareRequest::new(session("s")));
    assert!(shared.report.redaction.secrets["github-pat"] > 10);
    assert_absent(&shared.page, CORE);
    // The original is only read.
    assert_eq!(lines(&store, &session("s")), before);
    assert!(before.contains(CORE));
    let copy = imported(&shared.page).unwrap();
    assert!(verify(&copy).unwrap().ok);
}

#[test]
fn secrets_of_each_kind_are_in_no_form_in_the_page() {
    let mut random = Random::new(7);
    for kind in 0..KINDS {
        let store = SqliteStore::in_memory().unwrap();
        let planted = secret(&mut random, kind);
        let mut history = History::new(&store, "s");
        for turn in 0..4 {
            let words = "plain words ".repeat(20);
            let call = Message::assistant(format!("{words}\n{}", planted.text)).with_tool_call(
                "c",
                "tool",
                json!({ "text": planted.text }),
            );
            history.append(
                0,
                vec![
                    user(&format!("{}\n{turn}", planted.text), turn),
                    call.into(),
                    result(
                        "c",
                        vec![Content::text(format!("out: {}", planted.text))],
                        turn,
                    ),
                    answer(&words, &[], turn),
                ],
            );
        }
        history.compact(0, (1, 1), true);
        let shared = share(&store, &ShareRequest::new(session("s")));
        for part in planted.random.iter().filter(|part| part.len() >= 12) {
            assert_absent(&shared.page, part);
        }
        assert!(
            texts(&shared.page)
                .iter()
                .any(|text| text.contains("[REDACTED:")),
            "kind {kind}"
        );
    }
}

#[test]
fn what_the_policy_allows_stays_and_low_confidence_is_listed() {
    let store = SqliteStore::in_memory().unwrap();
    let chat = Store::from(std::sync::Arc::new(store) as std::sync::Arc<dyn Database>);
    let chat = chat.session("s").unwrap();
    chat.append([
        Message::user("git clone https://me:hunter2@example.org/x"),
        Message::assistant("key = /etc/loopstore/keys/deploy/primary"),
    ])
    .unwrap();
    let database = chat.store().database();
    let mut request = ShareRequest::new(session("s"));
    let shared = SharedSession::prepare(database, &request).unwrap();
    let preview = shared.preview().unwrap();
    assert_eq!(preview.secrets["url-password"], 1);
    let first = &preview.findings[0];
    assert!(first.finding.masked.contains('*') || !first.finding.masked.contains("hunter2"));
    request.policy = RedactionPolicy::default().allow("hunter2");
    let shared = SharedSession::prepare(database, &request).unwrap();
    assert!(shared.preview().unwrap().secrets.is_empty());
    request.policy = RedactionPolicy::default().min_confidence(Confidence::Low);
    let mut shared = SharedSession::prepare(database, &request).unwrap();
    shared.redact().unwrap();
    let mut page = Vec::new();
    shared.write(&mut page).unwrap();
    assert_absent(&page, "hunter2");
}

#[test]
fn images_stay_or_are_left_out() {
    let store = SqliteStore::in_memory().unwrap();
    let pixels = "cGl4ZWxzIG9mIGEgc2NyZWVuc2hvdCwgcXVpdGUgcHJpdmF0ZQ==";
    let mut history = History::new(&store, "s");
    for turn in 0..4 {
        let picture = Message::user("Look.").with_image(pixels, "image/png");
        let shown = vec![
            Content::image(pixels, "image/jpeg"),
            Content::text("a page"),
        ];
        history.append(
            0,
            vec![
                picture.into(),
                answer(&"I see words. ".repeat(30), &["c"], turn),
                result("c", shown, turn),
                answer("done", &[], turn),
            ],
        );
    }
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    let mut request = ShareRequest::new(session("s"));
    let with = share(&store, &request);
    assert!(texts(&with.page).iter().any(|text| text.contains(pixels)));
    request.without_images = true;
    let without = share(&store, &request);
    assert!(without.report.redaction.images >= 8);
    assert_absent(&without.page, "pixels of a screenshot");
    assert_absent(&without.page, pixels);
    let copy = imported(&without.page).unwrap();
    assert!(verify(&copy).unwrap().ok);
    let text = lines(&copy, &session("s"));
    assert!(text.contains("[image/png left out: 37 bytes]") && text.contains("a page"));
    // The messages are the same apart from the images.
    let count = |text: &str| text.matches(r#""record":"message""#).count();
    assert_eq!(count(&text), count(&lines(&store, &session("s"))));
}
