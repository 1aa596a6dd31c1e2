//! Pages as markup and as sessions.

use std::io::Cursor;
use std::path::Path;

use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_share::{ShareError, ShareRequest, SharedSession};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::json;

use crate::stage::{imported, lines, share, texts};
use crate::support::edited_histories;
use crate::support::histories::{History, answer, user};
use crate::support::removal::session;

const MARKUP: &str = "</script><script>window.hurt = 1</script><!-- <img src=x onerror=\"window.hurt = 2\">\
                      <meta name=\"loopstore-session\"><script type=\"application/x-loopstore-session\" \
                      id=\"loopstore-session\">AAAA</script>\u{1b}[31m\u{2028}";

#[test]
fn an_import_is_the_session_with_its_overlays_and_edits() {
    for seed in 0..6 {
        let store = SqliteStore::in_memory().unwrap();
        edited_histories::play(&store, seed, 24);
        let id = session(&format!("s{seed}"));
        // Else the page has other texts than the session.
        redact_session(&store, &RedactRequest::new(id.clone())).unwrap();
        let shared = share(&store, &ShareRequest::new(id.clone()));
        let copy = imported(&shared.page).unwrap();
        assert_eq!(lines(&copy, &id), lines(&store, &id), "seed {seed}");
        let context = |store: &SqliteStore| {
            build_context_from_session(store, &id, &BuildOptions::default()).unwrap()
        };
        assert_eq!(context(&copy).messages, context(&store).messages);
    }
}

#[test]
fn an_import_has_the_same_messages_except_for_the_redacted() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    for turn in 0..5 {
        let words = match turn {
            3 => "git clone https://me:hunter2@example.org/x".to_owned(),
            _ => format!("question {turn}"),
        };
        history.append(
            0,
            vec![
                user(&words, turn),
                answer(&format!("answer {turn}"), &[], turn),
            ],
        );
    }
    let shared = share(&store, &ShareRequest::new(session("s")));
    let copy = imported(&shared.page).unwrap();
    let texts = |store: &SqliteStore| -> Vec<String> {
        let built = build_context_from_session(store, &session("s"), &BuildOptions::default());
        let messages = built.unwrap().messages.into_iter();
        messages
            .map(|message| message.message().unwrap().texts().collect::<String>())
            .collect()
    };
    let (before, after) = (texts(&store), texts(&copy));
    for (at, (one, other)) in before.iter().zip(&after).enumerate() {
        match at {
            6 => assert!(other.starts_with("git clone https://me:[REDACTED:url-password:")),
            _ => assert_eq!(one, other),
        }
    }
}

#[test]
fn no_text_of_a_session_is_markup() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("</script><b>\u{1b}").unwrap();
    chat.append([
        Message::user(MARKUP),
        Message::assistant(MARKUP).with_tool_call(MARKUP, MARKUP, json!({ MARKUP: MARKUP })),
        Message::tool_result(MARKUP, MARKUP),
        Message::assistant("done"),
    ])
    .unwrap();
    chat.set_title(MARKUP).unwrap();
    let request = ShareRequest::new(chat.id().clone());
    let mut shared = SharedSession::prepare(store.database(), &request).unwrap();
    shared.redact().unwrap();
    let mut page = Vec::new();
    shared.write(&mut page).unwrap();
    shared
        .check(Path::new("page.html"), &mut Cursor::new(&page))
        .unwrap();
    let html = String::from_utf8(page.clone()).unwrap();
    for sign in [
        "window.hurt",
        "onerror",
        "<!--",
        "<b>",
        "\u{1b}",
        "\u{2028}",
    ] {
        assert!(!html.contains(sign), "{sign:?}");
    }
    // The page has one element with a session, and a policy that loads nothing.
    assert_eq!(html.matches("id=\"loopstore-session\"").count(), 1);
    assert_eq!(html.matches("<meta name=\"loopstore-session\"").count(), 1);
    assert!(html.contains("default-src 'none'"));
    assert!(texts(&page).iter().any(|text| text.contains("window.hurt")));
    let copy = imported(&page).unwrap();
    assert_eq!(lines(&copy, chat.id()), lines(store.database(), chat.id()));
}

#[test]
fn a_page_is_found_and_imported_as_a_file() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("question", 0), answer("answer", &[], 0)]);
    let shared = share(&store, &ShareRequest::new(session("s")));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shared.html"), &shared.page).unwrap();
    std::fs::write(
        folder.path().join("other.html"),
        "<!doctype html>\n<p>Hello</p>",
    )
    .unwrap();
    let other = SqliteStore::in_memory().unwrap();
    let options = ImportOptions::default();
    let import =
        |path: &Path| import_paths(&other, &[path.to_owned()], &options, &mut |_| {}).unwrap();
    let report = import(folder.path());
    assert_eq!(report.sessions, [session("s")]);
    assert_eq!(report.added_messages, 2);
    // Again, it adds nothing.
    assert_eq!(import(&folder.path().join("shared.html")).added_messages, 0);
}

#[test]
fn a_damaged_page_is_refused_and_leaves_nothing() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    for turn in 0..40 {
        history.append(
            0,
            vec![
                user(&format!("question {turn}"), turn),
                answer("yes", &[], turn),
            ],
        );
    }
    let mut shared = SharedSession::prepare(&store, &ShareRequest::new(session("s"))).unwrap();
    shared.redact().unwrap();
    let mut page = Vec::new();
    shared.write(&mut page).unwrap();
    let html = String::from_utf8(page).unwrap();
    let begin = html.find("id=\"loopstore-session\">").unwrap() + 23;
    let end = begin + html[begin..].find('<').unwrap();
    let half = begin + (end - begin) / 2;
    let damaged = [
        // Cut off before the lines, within them, and between two groups of base64.
        html[..begin - 60].to_owned(),
        html[..half].to_owned(),
        html[..half - (half - begin) % 4].to_owned(),
        // Altered.
        format!("{}!{}", &html[..half], &html[half + 1..]),
        format!("{}{}", &html[..half], &html[half + 4..]),
        format!("{}{}", &html[..begin], &html[end..]),
    ];
    for (nth, text) in damaged.iter().enumerate() {
        let refused = imported(text.as_bytes());
        assert!(refused.is_err(), "{nth}");
        let checked = shared.check(Path::new("p.html"), &mut Cursor::new(text.as_bytes()));
        assert!(matches!(checked, Err(ShareError::Import(_))), "{nth}");
    }
    // A page of another session is not the one that was shared.
    history.append(0, vec![user("more", 40), answer("yes", &[], 40)]);
    let longer = share(&store, &ShareRequest::new(session("s")));
    let checked = shared.check(Path::new("p.html"), &mut Cursor::new(&longer.page));
    assert!(matches!(checked, Err(ShareError::Differs)));
}

#[test]
fn an_unredacted_page_does_not_pass_the_check() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    chat.append([Message::user("git clone https://me:hunter2@example.org/x")])
        .unwrap();
    let shared = SharedSession::prepare(store.database(), &ShareRequest::new(session("s")));
    let shared = shared.unwrap();
    let mut page = Vec::new();
    shared.write(&mut page).unwrap();
    let checked = shared.check(Path::new("p.html"), &mut Cursor::new(&page));
    let Err(ShareError::Remains(rules)) = checked else {
        panic!("{checked:?}");
    };
    assert_eq!(rules, "url-password");
}
