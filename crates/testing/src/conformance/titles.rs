//! Titles of sessions and prompts of loops: from the messages, in the lists, and in the views.

use loopstore::Database;
use loopstore::extend::prompt::{self, LINE_CHARS};
use loopstore::extend::session::{SessionLabels, label};
use loopstore_admin::retention::{RedactRequest, redact_session};

use super::*;

fn begin(store: &dyn Database, id: &str, title: Option<&str>) -> SessionKey {
    let new = Session::new(SessionId::new(id).unwrap(), "agent");
    let title = title.map(str::to_owned);
    write(store, |write| {
        session::create_session(write, &new, title, None)
    })
    .unwrap()
}

fn add(store: &dyn Database, session: SessionKey, at: usize, messages: Vec<Message>) -> LoopKey {
    let mut record = LoopRecord::new(loop_id(at), None);
    record.status = LoopStatus::Completed;
    let messages = messages
        .into_iter()
        .map(|m| NewMessage::from(AgentMessage::from(m)));
    let messages = messages.collect();
    write(store, |write| {
        let key = session::create_loop(write, session, &record)?;
        append::append(write, key, messages, store.counter())?;
        Ok(key)
    })
    .unwrap()
}

/// Returns the title of a session, its prompt, and those of its loops, from the library, whose functions must
/// agree.
fn shown(store: &dyn Database, id: &str) -> (Option<String>, Option<String>, Vec<Option<String>>) {
    let id = SessionId::new(id).unwrap();
    let filter = SessionFilter::default();
    let rows = store.session_rows(&filter).unwrap();
    let listed = rows
        .iter()
        .find(|row| row.text("session_id").as_deref() == Some(id.as_str()))
        .unwrap();
    let view = store.session_view(&id).unwrap();
    let found = read(store, |read| {
        let row = read.session(&id)?.unwrap();
        let first = prompt::session_prompt(read, row.key)?;
        let all = prompt::loop_prompts(read, row.key)?;
        let mut loops = Vec::new();
        for of_loop in read.loops(row.key)? {
            let one = prompt::loop_prompt(read, row.key, of_loop.key)?;
            assert_eq!(all.get(&of_loop.key), one.as_ref());
            loops.push(one);
        }
        Ok((prompt::session_title(read, &row)?, first, loops))
    })
    .unwrap();
    for row in [listed, &view.session] {
        assert_eq!(
            (row.text("title"), row.text("prompt")),
            (found.0.clone(), found.1.clone())
        );
    }
    let loops: Vec<_> = view
        .loops
        .iter()
        .map(|(row, _)| row.text("prompt"))
        .collect();
    assert_eq!(loops, found.2);
    found
}

/// Returns the same from the views alone.
fn in_views(
    store: &dyn Database,
    id: &str,
) -> (Option<String>, Option<String>, Vec<Option<String>>) {
    let rows = |sql: String| {
        let found = store.query_within(&sql, sqlite::QueryLimits::default());
        found.unwrap().records()
    };
    let session = rows(format!(
        "SELECT title, prompt FROM v_sessions WHERE session_id = '{id}'"
    ));
    let loops = rows(format!(
        "SELECT loop_id, prompt FROM v_loops WHERE session_id = '{id}' ORDER BY loop_id"
    ));
    let loops = loops.iter().map(|row| row.text("prompt")).collect();
    (session[0].text("title"), session[0].text("prompt"), loops)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub fn a_title_is_the_sessions_own_else_what_it_was_first_asked(store: &dyn Database) {
    let key = begin(store, "s", None);
    assert_eq!(shown(store, "s"), (None, None, vec![]));
    let image = Message::User(UserMessage {
        content: vec![Content::image("aGVsbG8=", "image/png")],
        ..UserMessage::default()
    });
    add(store, key, 0, vec![Message::assistant("How can I help?")]);
    add(
        store,
        key,
        1,
        vec![image, Message::user(" Mend\n\tthe  build ")],
    );
    add(
        store,
        key,
        2,
        vec![Message::user("And the tests"), Message::user("Now")],
    );
    let loops = vec![None, some("Mend the build"), some("And the tests")];
    let expected = (some("Mend the build"), some("Mend the build"), loops);
    assert_eq!(shown(store, "s"), expected);
    assert_eq!(in_views(store, "s"), expected);

    for (title, shows) in [("A title", "A title"), (" ", "Mend the build")] {
        let labels = SessionLabels {
            title: some(title),
            ..SessionLabels::default()
        };
        write(store, |write| label(write, key, labels.clone())).unwrap();
        assert_eq!(shown(store, "s").0, some(shows));
        assert_eq!(in_views(store, "s").0, some(shows));
        assert_eq!(shown(store, "s").1, some("Mend the build"));
    }
}

pub fn what_a_harness_says_is_no_title(store: &dyn Database) {
    let key = begin(store, "s", None);
    let reminder = Message::user("It is noon.").with_author(Author::Harness);
    let mut injected = Text {
        text: "Use tabs.".into(),
        extra: Extra::default(),
    };
    injected.extra.insert("author", Json::string("harness"));
    let prompt = Message::User(UserMessage {
        content: vec![
            Content::Text(injected),
            Content::text("<ide_opened_file>a.rs</ide_opened_file>\nMend <b>it</b>."),
            Content::text("<system-reminder>Be brief.</system-reminder>"),
        ],
        ..UserMessage::default()
    });
    add(store, key, 0, vec![reminder, prompt]);
    assert_eq!(shown(store, "s").0, some("Mend <b>it</b>."));
    assert_eq!(in_views(store, "s").0, some("Mend <b>it</b>."));
}

pub fn a_sub_agent_is_known_by_its_task(store: &dyn Database) {
    let key = begin(store, "s", None);
    let task = Message::user("Search the web.").with_author(Author::Agent);
    add(store, key, 0, vec![task.clone()]);
    assert_eq!(shown(store, "s").0, some("Search the web."));
    // A prompt of a person takes precedence.
    add(store, key, 1, vec![task, Message::user("Stop.")]);
    let loops = vec![some("Search the web."), some("Stop.")];
    let expected = (some("Stop."), some("Stop."), loops);
    assert_eq!(shown(store, "s"), expected);
    assert_eq!(in_views(store, "s"), expected);
}

pub fn the_views_show_prompts_as_the_library_does(store: &dyn Database) {
    let word = "word ".repeat(30);
    let texts = [
        word.clone(),
        word[..99].to_owned(),
        word[..100].to_owned() + "x",
        format!("{}words and more", &word[..95]),
        "x".repeat(1 << 20),
        format!("{} {}", "é".repeat(50), "ü".repeat(60)),
        format!("{} {}", "é".repeat(51), "ü".repeat(60)),
        "請幫我".repeat(60),
        "it's; DROP TABLE sessions;-- \\n %s \"quoted\" 🎈".to_owned(),
        "<b onclick=\"x\">bold</b> & <script>".to_owned(),
        "<system-reminder>a</system-reminder><system-reminder>b</system-reminder> Go.".to_owned(),
        "Go.\n<system-reminder>a</system-reminder>\n<environment_context x=\"y\">b</environment_context>".to_owned(),
        "<command-name>/clear</command-name>".to_owned(),
        "<system-reminder> is not closed".to_owned(),
        "<system-reminders>a</system-reminders>".to_owned(),
        format!("<system-reminder>{}</system-reminder>Go.", "long ".repeat(2000)),
        "   ".to_owned(),
        "a\u{0}b".to_owned(),
    ];
    let key = begin(store, "s", None);
    // The views strip ASCII white space only, and keep control characters.
    for (at, text) in texts.iter().enumerate() {
        add(store, key, 100 + at, vec![Message::user(text.clone())]);
    }
    let (library, views) = (shown(store, "s").2, in_views(store, "s").2);
    for ((text, library), view) in texts.iter().zip(&library).zip(&views) {
        // SQLite's functions end a text at U+0000; PostgreSQL stores it as another character.
        let view = view.as_ref().map(|line| line.replace('\u{fffd}', ""));
        let is_cut = text.contains('\0') && view.as_deref() == Some("a");
        assert!(
            is_cut || &view == library,
            "{text:.200}: {view:?}, {library:?}"
        );
        let chars = library.as_ref().map_or(0, |line| line.chars().count());
        assert!(chars <= LINE_CHARS);
    }
}

pub fn an_archived_prompt_is_read_from_its_pack(store: &dyn Database) {
    let key = begin(store, "s", None);
    add(
        store,
        key,
        0,
        vec![Message::user("Mend the build, whatever it takes.")],
    );
    let before = shown(store, "s");
    assert_eq!(before.0, some("Mend the build, whatever it takes."));
    let request = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    assert_eq!(archive(store, &request).unwrap().messages, 1);
    assert_eq!(shown(store, "s"), before);
    assert_eq!(in_views(store, "s"), before);
}

pub fn a_redacted_prompt_is_in_no_list(store: &dyn Database) {
    let key = begin(store, "s", None);
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";
    // The line is cut within the secret.
    let text = format!("{} {secret} to push.", "Use ".repeat(20).trim_end());
    add(store, key, 0, vec![Message::user(text)]);
    let labels = SessionLabels {
        title: None,
        project: Some(format!("/home/{secret}/work")),
    };
    write(store, |write| label(write, key, labels.clone())).unwrap();
    redact_session(store, &RedactRequest::new(SessionId::new("s").unwrap())).unwrap();
    for (title, prompt, loops) in [shown(store, "s"), in_views(store, "s")] {
        assert!(title.as_ref().unwrap().starts_with("Use Use") && title == prompt);
        assert_eq!(loops[0], title);
        assert!(!title.unwrap().contains(&secret[..8]));
    }
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    assert!(!rows[0].text("project").unwrap().contains(&secret[..8]));
}

pub fn a_project_is_kept_and_lists_are_filtered(store: &dyn Database) {
    for (id, title, project, prompt, day) in [
        (
            "one",
            Some("Straße 100%"),
            Some("/home/ann/Garden"),
            "Plant a tree",
            1,
        ),
        (
            "two",
            None,
            Some("/home/ann/kitchen"),
            "Bake a cake'; DROP TABLE sessions;--",
            2,
        ),
        ("three", None, None, "Repair the tree_house", 3),
    ] {
        let key = begin(store, id, title);
        add(store, key, 0, vec![Message::user(prompt)]);
        let project = project.map(str::to_owned);
        write(store, |write| {
            label(
                write,
                key,
                SessionLabels {
                    title: None,
                    project: project.clone(),
                },
            )?;
            let mut row = write.session_by_key(key)?;
            assert_eq!(row.project, project);
            row.last_active_at = Some(format!("2026-01-0{day}T12:00:00Z"));
            write.touch_session(&(&row).into())
        })
        .unwrap();
    }
    let ids = |filter: SessionFilter| -> Vec<String> {
        let rows = store.session_rows(&filter).unwrap();
        rows.iter()
            .map(|row| row.text("session_id").unwrap())
            .collect()
    };
    let all = SessionFilter::default;
    assert_eq!(ids(all()), ["three", "two", "one"]);
    assert_eq!(
        ids(SessionFilter {
            limit: Some(2),
            ..all()
        }),
        ["three", "two"]
    );
    let project = |part: &str| {
        ids(SessionFilter {
            project: some(part),
            ..all()
        })
    };
    assert_eq!(
        (project("GARDEN"), project("ann/")),
        (vec!["one".into()], vec!["two".into(), "one".into()])
    );
    let text = |part: &str| {
        ids(SessionFilter {
            text: some(part),
            ..all()
        })
    };
    assert_eq!(text("TREE"), ["three", "one"]);
    for (part, id) in [
        ("STRASSE", ""),
        ("straße", "one"),
        ("0%", "one"),
        ("e_h", "three"),
        ("TWO", "two"),
        ("';", "two"),
        ("%e%", ""),
    ] {
        assert_eq!(
            text(part),
            Vec::from_iter((!id.is_empty()).then(|| id.to_owned())),
            "{part}"
        );
    }
    let since = Some(Time::from_text("2026-01-02T12:00:00Z"));
    assert_eq!(ids(SessionFilter { since, ..all() }), ["three", "two"]);
    let source = some("claude-code");
    assert_eq!(ids(SessionFilter { source, ..all() }), [""; 0]);
}
