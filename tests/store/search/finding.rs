//! Search results: hits, ranking and display.

use loopstore::extend::SessionStore;
use loopstore::model::*;
use loopstore::search::{
    QueryError, SearchError, SearchQuery, SearchResults, search, search_sessions,
};
use loopstore::{SqliteStore, Store, StoreError};

use crate::search::{found, places};
use crate::support::histories::{History, answer, result, user};

/// Creates a session in which each text is one message.
fn store_with(texts: &[&str]) -> SqliteStore {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    for (turn, text) in (0..).zip(texts) {
        history.append(0, vec![user(text, turn)]);
    }
    store
}

#[test]
fn identifiers_are_found_as_typed() {
    let texts = [
        "Your code is 4WQ150.",
        "see src/cli/main.rs:12",
        "let foo_bar = 1;",
        "error[E0382]: use of moved value",
        "run it with --max-tokens 12",
        "Ticket ABC-123, <mail@example.org>",
    ];
    let store = store_with(&texts);
    for (seq, as_typed) in [
        "4WQ150",
        "src/cli/main.rs",
        "foo_bar",
        "error[E0382]",
        "--max-tokens",
        "mail@example.org",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(
            found(&store, as_typed),
            [format!("loop-0:{seq}")],
            "{as_typed}"
        );
    }
    assert_eq!(found(&store, "4wq*"), ["loop-0:0"]);
    assert!(found(&store, "4WQ15").is_empty());
    assert!(found(&store, "\"src/main.rs\"").is_empty());
    // In parts.
    assert_eq!(found(&store, "src/main.rs"), ["loop-0:1"]);
}

#[test]
fn one_and_two_characters_of_cjk_are_found() {
    let texts = [
        "我要申请退款，谢谢。",
        "退货和款式",
        "東京タワーへ行く",
        "검색을 했다",
        "ｶﾞｲﾄﾞ",
    ];
    let store = store_with(&texts);
    assert_eq!(found(&store, "退款"), ["loop-0:0"]);
    assert_eq!(
        found(&store, "款"),
        ["loop-0:1", "loop-0:0"],
        "the shorter one first"
    );
    assert_eq!(found(&store, "东京"), Vec::<String>::new());
    assert_eq!(found(&store, "タワー"), ["loop-0:2"]);
    assert_eq!(found(&store, "검색"), ["loop-0:3"]);
    assert_eq!(found(&store, "ガイド"), ["loop-0:4"]);
    assert_eq!(found(&store, "退 款 -谢谢"), ["loop-0:1"]);
}

#[test]
fn case_and_accents_do_not_matter() {
    let store = store_with(&["Ein Café in ZÜRICH", "cafe\u{301}", "ﬁnal"]);
    assert_eq!(found(&store, "zurich"), ["loop-0:0"]);
    assert_eq!(found(&store, "CAFÉ -ein"), ["loop-0:1"]);
    assert_eq!(found(&store, "Final"), ["loop-0:2"]);
}

#[test]
fn all_that_a_message_says_is_found() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    let arguments = r#"{"path":"lib/a.rs","edits":[{"old":"x\ny","lines":[1.50]}]}"#;
    let blocks = vec![
        Content::thinking("I wonder", Some("c2lnbmF0dXJl".into())),
        Content::tool_call("call-7", "edit_file", Json::parse(arguments).unwrap()),
    ];
    let call = Message::Assistant(AssistantMessage {
        content: blocks,
        ..AssistantMessage::default()
    });
    let image = Content::image("aGVsbG8=", "image/png");
    history.append(
        0,
        vec![
            AgentMessage::extension("system", Json::string("Be kind.")),
            AgentMessage::from(call),
            result("call-7", vec![Content::text("patched"), image], 0),
        ],
    );
    for (seq, words) in [
        (0, "kind"),
        (0, "system"),
        (1, "wonder"),
        (1, "edit_file"),
        (1, "lib/a.rs"),
        (1, "edits"),
        (1, "\"old x y\""),
        (1, "1.50"),
        (2, "patched"),
    ] {
        assert_eq!(found(&store, words), [format!("loop-0:{seq}")], "{words}");
    }
    for nothing in [
        "c2lnbmF0dXJl",
        "aGVsbG8",
        "png",
        "nx",
        "\"wonder edit\"",
        "\"tool patched\"",
    ] {
        assert!(found(&store, nothing).is_empty(), "{nothing}");
    }
    let with = |tool: &str| {
        let query = SearchQuery {
            tool: Some(tool.into()),
            ..SearchQuery::new("path OR patched")
        };
        places(&search(&store, &query).unwrap())
    };
    assert_eq!(with("edit_file"), ["loop-0:1"]);
    assert_eq!(with("tool"), ["loop-0:2"]);
    assert!(with("edit").is_empty());
}

#[test]
fn the_best_come_first_and_of_equals_the_newest() {
    let store = SqliteStore::in_memory().unwrap();
    // Each text is in a session of its own, so that no other text is near it.
    for (at, text) in [
        "a kite x",
        "a kite and another kite in the sky, high above the sea",
        "something else",
        "a kite y",
        "kite, kite and z",
        "nothing",
        "of",
        "this",
        "kind",
    ]
    .iter()
    .enumerate()
    {
        History::new(&store, &format!("s{at}")).append(0, vec![user(text, 0)]);
    }
    let sessions = |results: &SearchResults| -> Vec<String> {
        let hits = results.hits.iter();
        hits.map(|hit| hit.session_id.to_string()).collect()
    };
    let page = |offset| {
        let query = SearchQuery {
            limit: Some(3),
            offset,
            ..SearchQuery::new("kite")
        };
        let results = search(&store, &query).unwrap();
        (sessions(&results), results.next)
    };
    let first = ["s4", "s1", "s3"].map(String::from).to_vec();
    assert_eq!(page(0), (first, Some(3)));
    assert_eq!(page(3), (vec!["s0".into()], None));
    assert_eq!(page(9), (vec![], None));
}

#[test]
fn what_says_nearly_the_same_is_one_hit() {
    let store = SqliteStore::in_memory().unwrap();
    let file: String = (0..200)
        .map(|line| format!("line {line} of the file\n"))
        .collect();
    let history = History::new(&store, "s");
    for turn in 0..10 {
        let call = format!("call-{turn}");
        let output = vec![Content::text(format!("{file}{turn}"))];
        let messages = vec![
            user(&format!("read it {turn}"), turn),
            answer("I read", &[&call], turn),
            result(&call, output, turn),
        ];
        history.append(0, messages);
    }
    history.append(0, vec![user("What is in line 77 of that file?", 10)]);
    let results = search(&store, &"line 77 file".into()).unwrap();
    let hits = &results.hits[..];
    let [prompt, output] = hits else {
        panic!("{} hits", hits.len());
    };
    assert_eq!((prompt.seq, prompt.also.len()), (30, 0));
    assert_eq!((output.role, output.also.len()), (Role::ToolResult, 9));
    assert!(output.relevance == 1.0 && output.score > 0.0);
    // The next page does not begin with one of them.
    let next = SearchQuery {
        offset: 2,
        ..SearchQuery::new("line 77 file")
    };
    assert!(search(&store, &next).unwrap().hits.is_empty());
}

#[test]
fn page_by_page_every_message_is_found_once() {
    let many = |count: usize, from: usize| -> String {
        (from..from + count)
            .map(|word| format!(" word{word}"))
            .collect()
    };
    let text = |at: usize| match at % 3 {
        // The same text repeatedly, with other hits between in the ranking.
        0 => format!("the kite is red{}", many(at / 3, 9_000)),
        _ => format!("a kite{}", many(at, at * 100)),
    };
    let texts: Vec<String> = (0..30).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let store = store_with(&texts);
    for limit in [1, 2, 3, 7, 40] {
        let (mut all, mut offset) = (Vec::new(), Some(0));
        while let Some(from) = offset {
            let query = SearchQuery {
                limit: Some(limit),
                offset: from,
                ..SearchQuery::new("kite")
            };
            let page = search(&store, &query).unwrap();
            for hit in &page.hits {
                all.push(hit.seq);
                all.extend(hit.also.iter().map(|also| also.seq));
            }
            offset = page.next;
        }
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<u32>>(), "pages of {limit}");
    }
}

#[test]
fn sessions_are_found_by_what_is_said_in_them() {
    let store = Store::in_memory().unwrap();
    for (session, source, texts) in [
        (
            "oven",
            "/home/me/Bakery",
            ["How hot is the oven?", "As hot as it gets."],
        ),
        (
            "bread",
            "/home/me/bakery",
            ["Which flour for the bread?", "Rye, and a hot oven."],
        ),
        (
            "kite",
            "/home/me/toys",
            ["Where do kites fly?", "By the sea."],
        ),
    ] {
        let session = store.session(session).unwrap();
        session.set_project(source).unwrap();
        let [prompt, statement] = texts;
        session
            .append([Message::user(prompt), Message::assistant(statement)])
            .unwrap();
    }
    let of = |query: &SearchQuery| -> Vec<String> {
        let found = search_sessions(store.database(), query).unwrap();
        let ids = found.sessions.iter();
        ids.map(|session| session.session_id.to_string()).collect()
    };
    let question = SearchQuery::new("did I ask about hot ovens");
    assert_eq!(of(&question), ["oven", "bread"]);
    let found = search_sessions(store.database(), &question).unwrap();
    let first = &found.sessions[0];
    assert_eq!(first.title.as_deref(), Some("How hot is the oven?"));
    assert_eq!((first.hits.len(), found.next), (2, None));
    assert!(first.score >= first.hits[0].score);
    let one = SearchQuery {
        limit: Some(1),
        offset: 1,
        ..question
    };
    assert_eq!(of(&one), ["bread"]);
    let filtered = |project: &str, source: Option<&str>| {
        of(&SearchQuery {
            project: Some(project.into()),
            source: source.map(str::to_owned),
            ..SearchQuery::new("hot oven kite")
        })
    };
    assert_eq!(filtered("toys", None), ["kite"]);
    assert_eq!(filtered("BAKERY", None), ["oven", "bread"]);
    assert!(filtered("bakery", Some("codex")).is_empty());
    assert!(filtered("'; DROP TABLE sessions; --", None).is_empty());
    assert!(of(&"nothing like it".into()).is_empty());
    // A session is found by its title, without a matching message.
    store
        .session("kite")
        .unwrap()
        .set_title("Toys and lanterns")
        .unwrap();
    assert_eq!(of(&"lanterns".into()), ["kite"]);
    let found = search_sessions(store.database(), &"lantern".into()).unwrap();
    assert!(found.sessions[0].hits.is_empty() && found.sessions[0].score > 0.0);
    assert!(of(&"+lanterns".into()).is_empty());
    let late = SearchQuery {
        since: Some(i64::MAX),
        ..SearchQuery::new("lanterns")
    };
    assert!(of(&late).is_empty(), "a title has no time");
}

#[test]
fn what_nobody_would_ask_is_answered_or_refused() {
    let store = store_with(&[
        "שלום עולם",
        "مرحبا بالعالم",
        "поиск ошибки",
        "の検索",
        "이 검색",
        "ค้นหา",
        "α β",
    ]);
    let ask = |text: &str| search(&store, &SearchQuery::new(text));
    // Of a long pasted query, the first words are searched for; only too many conditions are an error.
    for pasted in [
        "kite ".repeat(100_000),
        "k".repeat(1_000_000),
        "検".repeat(100_000),
    ] {
        ask(&pasted).unwrap();
    }
    let too_long = ask(&"+kite ".repeat(100_000));
    assert!(matches!(
        too_long,
        Err(SearchError::Query(QueryError::TooLong { .. }))
    ));
    for (nothing, error) in [
        ("\"".repeat(10_000), QueryError::Empty),
        ("\"".repeat(10_001), QueryError::OpenQuote { at: 10_001 }),
        ("?!… (—)".into(), QueryError::Empty),
        ("\0\0".into(), QueryError::Empty),
    ] {
        let refused = ask(&nothing).map(drop);
        assert!(
            matches!(&refused, Err(SearchError::Query(other)) if *other == error),
            "{refused:?}"
        );
    }
    assert!(ask("why is it that they are").unwrap().hits.is_empty());
    for (question, seq) in [
        ("שלום", 0),
        ("\u{202e}مرحبا\0", 1),
        ("ошибкам", 2),
        ("検索", 3),
        ("검색", 4),
        ("ค้นหา", 5),
        ("Α", 6),
    ] {
        assert_eq!(ask(question).unwrap().hits[0].seq, seq, "{question}");
    }
}

#[test]
fn time_and_role_narrow_the_search() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    for at in [1000, 2000, 3000] {
        let mut message = Message::user("kite");
        if let Message::User(user) = &mut message {
            user.timestamp = Some(at.into());
        }
        history.append(0, vec![message.into(), answer("kite", &[], at as u32)]);
    }
    let with = |since, until, role| {
        let query = SearchQuery {
            since,
            until,
            role,
            ..SearchQuery::new("kite")
        };
        let mut places = places(&search(&store, &query).unwrap());
        places.sort();
        places
    };
    let user = Some(Role::User);
    assert_eq!(with(Some(2000), None, user), ["loop-0:2", "loop-0:4"]);
    assert_eq!(with(None, Some(2000), None), ["loop-0:0", "loop-0:2"]);
    assert_eq!(with(Some(1001), Some(2999), None), ["loop-0:2"]);
    assert_eq!(with(None, None, Some(Role::Assistant)).len(), 3);
    // They were appended without times, so the store set the time of the append.
    let now = loopstore::Time::now().millis();
    let since = now.map(|now| now - 60_000);
    assert_eq!(with(since, now, Some(Role::Assistant)).len(), 3);
    assert!(with(None, since, Some(Role::Assistant)).is_empty());
}

#[test]
fn hostile_queries_find_words_or_are_refused() {
    let store = store_with(&[
        "drop table messages",
        "near and not or",
        "words tools columns",
    ]);
    let before = found(&store, "drop");
    for hostile in [
        "'; DROP TABLE messages; --",
        "near(",
        "NEAR/2",
        "words : drop",
        "{words tools} : drop",
        "^drop",
        "drop + table",
        "\"drop\" * AND",
        "message_index",
        "x' OR 1=1",
        "(((",
        "drop)",
        "a\0b drop",
        "\u{feff}drop\u{202e}",
        "%_*?[a-z]",
        "drop AND",
        "NOT drop",
    ] {
        match search(&store, &SearchQuery::new(hostile)) {
            Ok(_) | Err(SearchError::Query(QueryError::Empty)) => {}
            Err(error) => panic!("{hostile}: {error}"),
        }
    }
    assert_eq!(found(&store, "AND NOT near"), ["loop-0:1"]);
    assert_eq!(found(&store, "drop"), before);
    assert_eq!(found(&store, &"drop ".repeat(10_000)), before);
    let long = "+drop ".repeat(10_000);
    let refused = search(&store, &SearchQuery::new(long)).unwrap_err();
    assert!(refused.to_string().contains("10000 words"), "{refused}");
    // The maximum number of words, in the shapes that nest the deepest.
    let many = |glue: &str| vec!["drop"; 100].join(glue);
    for query in [
        many(" "),
        many(" OR "),
        format!("drop {}", "-x ".repeat(99)),
        format!("\"{}\"", many(" ")),
    ] {
        search(&store, &SearchQuery::new(query)).unwrap();
    }
    assert_eq!(found(&store, &many(" OR ")), ["loop-0:0"]);
    let run = "drop".repeat(100_000);
    assert!(
        search(&store, &SearchQuery::new(run))
            .unwrap()
            .hits
            .is_empty()
    );
}

#[test]
fn a_session_that_is_not_there_is_an_error() {
    let store = store_with(&["kite"]);
    let query = SearchQuery {
        session: Some(SessionId::new("other").unwrap()),
        ..SearchQuery::new("kite")
    };
    let refused = search(&store, &query);
    assert!(matches!(
        refused,
        Err(SearchError::Store(StoreError::NoSession(_)))
    ));
    assert_eq!(store.counter().name(), "heuristic");
}

#[test]
fn a_hit_in_json_is_pinned() {
    let store = store_with(&["The «red» kite\n\nflies.", "another"]);
    let mut results = search(&store, &SearchQuery::new("kite red")).unwrap();
    assert!(results.hits[0].created_at.is_some());
    results.hits[0].created_at = Some(loopstore::Time::from_text("2026-01-02T03:04:05Z"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&results).unwrap(), @r#"
    {
      "hits": [
        {
          "session_id": "s",
          "loop_id": "loop-0",
          "turn": 0,
          "seq": 0,
          "role": "user",
          "created_at": "2026-01-02T03:04:05Z",
          "snippet": "The ««red»» «kite» flies.",
          "score": 4.199807,
          "relevance": 1.0,
          "hidden": false,
          "run_id": null,
          "block_loop_id": null,
          "generation": null,
          "disposition": null,
          "also": []
        }
      ],
      "indexed": 1,
      "next": null
    }
    "#);
}
