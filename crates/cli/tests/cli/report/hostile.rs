//! Text of a transcript is never interpreted as markup.

use loopstore::*;
use loopstore_eval::CompactionsReport;
use loopstore_report::{file_name, write_compactions, write_overview};

use crate::commands::stage::{LoopSpec, Stage, add_loop, answer, session};
use crate::support::page::Page;

pub const MARKUP: &str =
    "</script><script>window.hurt = 1</script><img src=x onerror=\"window.hurt = 2\">\u{1b}[31m";

/// Creates a session with markup in every text that comes from outside.
pub fn hostile(stage: &Stage) {
    let store = stage.store();
    let key = session(&store, "</script>\u{1b}<b>", MARKUP);
    let spec = LoopSpec {
        id: "<img src=x onerror=alert(1)>",
        parent: None,
        kind: ContinuationKind::Branch { tag: MARKUP.into() },
        status: LoopStatus::Other(MARKUP.into()),
    };
    let arguments = Json::of(&serde_json::json!({ "path": MARKUP })).unwrap();
    let mut said = Message::Assistant(AssistantMessage {
        model: Some(MARKUP.into()),
        content: vec![
            Content::text(MARKUP),
            Content::tool_call(MARKUP, MARKUP, arguments),
        ],
        error_message: Some(MARKUP.into()),
        ..Default::default()
    });
    said.content_mut().push(Content::image("aGVsbG8=", MARKUP));
    let messages = vec![
        Message::user(MARKUP).into(),
        said.into(),
        AgentMessage::extension(MARKUP, Json::string(MARKUP)),
        answer(vec![Content::thinking(MARKUP, None)]).into(),
    ];
    add_loop(&store, key, spec, messages);
    let hostile = Store::from(store).session("</script>\u{1b}<b>").unwrap();
    hostile.set_project(MARKUP).unwrap();
}

#[test]
fn markup_never_stands_in_the_page_itself() {
    let stage = Stage::empty();
    hostile(&stage);
    let page = Page::of(&stage.store(), "</script>\u{1b}<b>");
    for sign in ["window.hurt", "onerror", "\u{1b}", "<b>"] {
        assert!(!page.html.contains(sign), "{sign:?}");
    }
    let mut overview = Vec::new();
    let line = loopstore_report::ReportLine {
        session_id: MARKUP.into(),
        title: Some(MARKUP.into()),
        project: Some(MARKUP.into()),
        ..Default::default()
    };
    write_overview(MARKUP, &[("a.html".into(), line)], &mut overview).unwrap();
    let overview = Page::read(String::from_utf8(overview).unwrap());
    assert!(!overview.html.contains("window.hurt"));
    assert_eq!(overview.index["sessions"][0]["title"], MARKUP);
}

/// Returns a report on a compaction with markup in every text that comes from outside.
pub fn hostile_compactions() -> CompactionsReport {
    let json = serde_json::json!({
        "needed": 1,
        "results": [],
        "compactions": [{
            "session_id": MARKUP, "run_id": MARKUP, "originals": 10, "needed": 1, "results": [],
            "forgotten": [{"value": MARKUP, "handed_back": false}],
            "lost": [{"kind": MARKUP, "what": MARKUP}],
            "again": [{"kind": "read", "what": MARKUP, "tokens": 7}],
            "handback": MARKUP,
        }],
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn markup_of_compactions_never_stands_in_the_page_itself() {
    let mut page = Vec::new();
    write_compactions(&hostile_compactions(), &mut page).unwrap();
    let page = Page::read(String::from_utf8(page).unwrap());
    assert!(!page.html.contains("window.hurt"));
    assert_eq!(page.index["compactions"][0]["handback"], MARKUP);
}

#[test]
fn the_policy_names_the_script_and_the_style_of_the_page_and_nothing_else() {
    use base64::Engine as _;
    use sha2::Digest as _;
    let stage = Stage::new();
    let html = Page::of(&stage.store(), "work").html;
    let hash = |text: &str| {
        let digest = sha2::Sha256::digest(text.as_bytes());
        base64::engine::general_purpose::STANDARD.encode(digest)
    };
    let between = |from: &str, to: &str| {
        let (_, rest) = html.rsplit_once(from).unwrap();
        rest.split_once(to).unwrap().0
    };
    let (style, script) = (
        between("<style>", "</style>"),
        between("<script>", "</script>"),
    );
    let policy = between("http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; \
             base-uri 'none'; form-action 'none'",
            hash(script),
            hash(style)
        )
    );
    for way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "http:",
    ] {
        assert!(
            !script
                .replace("http://www.w3.org/2000/svg", "")
                .contains(way),
            "{way}"
        );
    }
    assert_eq!(html.matches("<script>").count(), 1);
}

#[test]
fn names_are_safe_and_never_shared() {
    let name = |id: &str| file_name(&SessionId::new(id).unwrap());
    assert_eq!(name("work-1.b_c"), "work-1.b_c.html");
    let long = "x".repeat(300);
    let ids = [
        "../a", "a", "A", "..", "a/b", "a-b", "a b", "index", "\u{1b}", "é", &long, ".a", "a.",
    ];
    let mut names: Vec<String> = ids.iter().map(|id| name(id)).collect();
    for name in &names {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        assert!(
            name.chars().all(is_plain) && !name.starts_with(['.', '-']),
            "{name}"
        );
        assert!(name.len() < 120 && name.ends_with(".html") && name != "index.html");
    }
    for name in &mut names {
        name.make_ascii_lowercase();
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), ids.len());
}
