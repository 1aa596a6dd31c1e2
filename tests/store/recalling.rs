//! `recall`: within its token limit for any content and query, unchanged texts, and every position can be read.

use std::collections::BTreeSet;

use loopstore::search::{QueryError, SearchError, SearchQuery, quote_lines, recall};
use loopstore::*;
use loopstore_admin::inspect::{ExpandRequest, MessageOffset, expand};
use proptest::prelude::*;

/// Counts a token for each character, so that texts have other costs than by default.
struct Characters;

impl TokenCounter for Characters {
    fn name(&self) -> &str {
        "characters"
    }

    fn text_tokens(&self, text: &str) -> u64 {
        text.chars().count() as u64
    }
}

fn store(by_character: bool) -> Store {
    let options = Store::options();
    match by_character {
        true => options.counter(Characters).in_memory().unwrap(),
        false => options.in_memory().unwrap(),
    }
}

fn ask(store: &Store, question: &str, tokens: u64) -> Result<Recall, SearchError> {
    recall(store.database(), &SearchQuery::new(question), tokens)
}

fn texts(message: &AgentMessage) -> String {
    message
        .message()
        .unwrap()
        .texts()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the message that a part names.
fn original(store: &Store, part: &RecallPart) -> AgentMessage {
    let turn = part.turn.unwrap();
    let request = ExpandRequest {
        loop_id: Some(part.loop_id.clone()),
        from: Some(MessageOffset {
            seq: *part.seqs.last().unwrap(),
            offset: 0,
        }),
        ..ExpandRequest::turns(turn, turn)
    };
    let found = expand(store.database(), &part.session_id, &request).unwrap();
    found.messages[0].clone()
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,30}",
        3 => "(needle|straw|two words|\n| ){0,20}",
        2 => "(退款|好|שלום|\u{202e}|\0|é|👩‍👩‍👧|<b>needle</b>|\\n){0,60}",
        1 => (1usize..4000).prop_map(|count| "long straw ".repeat(count) + "needle"),
        1 => (1usize..3000).prop_map(|count| "x".repeat(count) + "退款" + &"y".repeat(count)),
        1 => (1usize..900).prop_map(|count| "a line\n".repeat(count) + "the needle\n" + &"a line\n".repeat(count)),
        1 => (1usize..400).prop_map(|count| "needle\nstraw\nstraw\nstraw\n".repeat(count)),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    (0..3, prop::collection::vec(piece(), 1..4)).prop_map(|(role, pieces)| {
        let text = pieces.concat();
        match role {
            0 => Message::user(text),
            1 => Message::assistant(text),
            _ => Message::tool_result("c", text),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_answer_is_within_its_tokens_and_word_for_word(
        messages in prop::collection::vec((0..3, message()), 1..24),
        question in prop::sample::select(vec!["needle", "退款", "שלום", "b", "straw OR 好", "\"two words\"", "nothing"]),
        tokens in prop_oneof![1 => 0u64..200, 3 => 100u64..4000, 1 => 4000u64..100_000],
        by_character: bool,
    ) {
        let store = store(by_character);
        for (session, message) in messages {
            store.session(format!("s-{session}")).unwrap().append([message]).unwrap();
        }
        let (tokens, answer) = match ask(&store, question, tokens) {
            Err(SearchError::TooFewTokens { needed, given }) => {
                prop_assert!(given == tokens && needed > tokens);
                prop_assert!(by_character || needed <= 150, "{}", needed);
                (needed, ask(&store, question, needed).unwrap())
            }
            answer => (tokens, answer.unwrap()),
        };
        let text = answer.text();
        prop_assert_eq!(answer.tokens, store.database().counter().text_tokens(&text));
        prop_assert!(answer.tokens <= tokens, "{} of {}: {}", answer.tokens, tokens, text);
        let found = store.search(question).unwrap();
        // If no message contains a phrase, its words are searched for.
        if !(question.contains('"') && found.hits.is_empty()) {
            prop_assert_eq!(answer.parts.is_empty(), found.hits.is_empty());
        }
        for part in &answer.parts {
            let whole = texts(&original(&store, part));
            prop_assert_eq!(part.cut, part.text != whole);
            for shown in part.text.split('…') {
                let shown = shown.strip_prefix('\n').unwrap_or(shown);
                let shown = shown.strip_suffix('\n').unwrap_or(shown);
                prop_assert!(whole.contains(shown), "{shown:?}");
            }
            prop_assert!(text.contains(&quote_lines(&part.text)));
        }
    }
}

/// Returns a call with a result of a megabyte, of which one line matters.
fn huge() -> Vec<Message> {
    let line = |n: usize| match n {
        9_000 => "listening on port 7071\n".to_owned(),
        n => format!("{n} nothing to see here, still waiting for the server to come\n"),
    };
    let log: String = (0..18_000).map(line).collect();
    assert!(log.len() > 1_000_000);
    let call =
        Message::assistant("").with_tool_call("c1", "tail", serde_json::json!({"file": "log"}));
    vec![
        Message::user("Start it."),
        call,
        Message::tool_result("c1", log),
    ]
}

#[test]
fn a_megabyte_is_cut_to_the_lines_that_answer() {
    let store = store(false);
    let chat = store.session("deploy").unwrap();
    chat.append(huge()).unwrap();
    chat.append([Message::assistant("It listens on port 7071.")])
        .unwrap();
    let answer = chat.recall("port", 400).unwrap();
    assert!(answer.tokens <= 400);
    let [result, message] = &answer.parts[..] else {
        panic!("{answer}");
    };
    assert_eq!(result.lead.as_deref(), Some("call: tail file: log"));
    assert_eq!((&result.seqs[..], result.turn), (&[1, 2][..], Some(0)));
    assert!(
        result.cut && result.text.contains("\nlistening on port 7071\n"),
        "{answer}"
    );
    assert!(
        result.text.starts_with("…\n8") && result.text.ends_with('…'),
        "{answer}"
    );
    assert_eq!(message.lead.as_deref(), Some("prompt: Start it."));
    assert_eq!(
        (&*message.text, message.cut),
        ("It listens on port 7071.", false)
    );
    // With enough room, the whole message.
    let whole = chat.recall("port", u64::MAX).unwrap();
    assert!(whole.parts.iter().all(|part| !part.cut) && whole.left_out.is_none());
}

#[test]
fn parts_stand_in_the_order_of_the_conversation() {
    let store = store(false);
    let say = |session: &str, text: &str| {
        let chat = store.session(session).unwrap();
        chat.append([Message::user(text), Message::assistant("Yes.")])
            .unwrap();
    };
    say(
        "old",
        "The kite is mentioned here among many other words that have nothing to do with it.",
    );
    say(
        "new",
        "A first word on the kite, which is somewhat longer than the other one.",
    );
    say("new", "kite");
    say(
        "new",
        "And then at last the kite for the third time, in a sentence of its own.",
    );
    let answer = ask(&store, "kite", 2000).unwrap();
    let order: Vec<_> = answer
        .parts
        .iter()
        .map(|part| {
            (
                part.session_id.as_str(),
                part.seqs[0],
                part.text.split(' ').next().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("new", 0, "A"),
        ("new", 0, "kite"),
        ("new", 0, "And"),
        ("old", 0, "The"),
    ];
    assert_eq!(order, expected, "{answer}");
    let scores = answer.parts.iter().map(|part| part.score);
    assert!(
        answer.parts[1].score >= scores.fold(0.0, f64::max),
        "{answer}"
    );
}

#[test]
fn a_prompt_with_several_answers_is_shown_once() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    chat.append([
        Message::user("Where has it gone?"),
        Message::assistant("The kite is in the cellar."),
        Message::assistant("It was a red kite, and it hung on a nail."),
    ])
    .unwrap();
    let answer = chat.recall("kite", 2000).unwrap();
    assert_eq!(answer.parts.len(), 2);
    let prompt = "prompt: Where has it gone?";
    assert_eq!(answer.text().matches(prompt).count(), 1, "{answer}");
}

#[test]
fn what_is_left_out_comes_with_the_offset() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    for n in 0..30 {
        let words = (0..60).map(|word| format!("word{}", n * 1000 + word));
        let text = format!("The kite of {n}: {}", words.collect::<Vec<_>>().join(" "));
        chat.append([Message::user(text), Message::assistant("Yes.")])
            .unwrap();
    }
    let mut query = SearchQuery::new("kite");
    let mut seen = BTreeSet::new();
    loop {
        let answer = recall(store.database(), &query, 300).unwrap();
        assert!(answer.parts.len() < 20, "{answer}");
        for part in &answer.parts {
            assert!(
                seen.insert((part.loop_id.to_string(), part.seqs.clone())),
                "{part:?} twice"
            );
        }
        let Some(left_out) = answer.left_out else {
            break;
        };
        assert_eq!(left_out.offset, seen.len());
        assert_eq!(
            (left_out.hits, left_out.turns),
            (30 - seen.len() as u64, 30 - seen.len() as u64)
        );
        let line = format!("left out: {} more hit", left_out.hits);
        assert!(answer.text().contains(&line), "{answer}");
        query.offset = left_out.offset;
    }
    assert_eq!(seen.len(), 30);
    query.limit = Some(3);
    query.offset = 0;
    let few = recall(store.database(), &query, 5000).unwrap();
    assert_eq!(few.parts.len(), 3);
    assert!(
        few.left_out.unwrap().more
            && few
                .text()
                .contains("left out: further hits; go on at offset 3"),
        "{few}"
    );
}

#[test]
fn a_part_says_whether_the_context_holds_it() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    chat.append([
        Message::user("Where is the kite?"),
        Message::assistant("In the cellar."),
    ])
    .unwrap();
    chat.append((0..40).map(|n| Message::assistant(format!("{n} {}", "and on ".repeat(100)))))
        .unwrap();
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 0,
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    chat.compact(&request).unwrap();
    let answer = chat.recall("cellar", 500).unwrap();
    assert!(
        answer.parts[0].hidden && answer.text().contains("; not in the context\n"),
        "{answer}"
    );
    let query = SearchQuery {
        hidden: Some(false),
        ..SearchQuery::new("cellar")
    };
    assert_eq!(store.recall(query, 500).unwrap().parts, []);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    assert_eq!(
        chat.recall("kite", 100).unwrap().parts,
        [],
        "nothing is stored yet"
    );
    assert!(matches!(
        chat.recall("…", 100),
        Err(Error::Query(QueryError::Empty))
    ));
    chat.append([Message::user("the kite, and the or of")])
        .unwrap();
    for empty in ["", " ", "\0", "…?"] {
        assert!(
            matches!(
                ask(&store, empty, 500),
                Err(SearchError::Query(QueryError::Empty))
            ),
            "{empty:?}"
        );
    }
    assert_eq!(
        ask(&store, "the", 500).unwrap().parts.len(),
        1,
        "only such words"
    );
    let Err(SearchError::TooFewTokens { needed, given: 0 }) = ask(&store, "kite", 0) else {
        panic!("nothing is less than an answer");
    };
    assert!((10..100).contains(&needed), "{needed}");
    assert_eq!(ask(&store, "kite", needed).unwrap().parts.len(), 1);
    assert!(ask(&store, "kite", needed - 1).is_err());
    // Of a long pasted query, the first words are searched for.
    let pasted = "kite ".repeat(100_000);
    assert_eq!(ask(&store, &pasted, 500).unwrap().parts.len(), 1);
    assert!(
        ask(&store, "nothing", 0).is_err(),
        "also that nothing was found is an answer"
    );
}

/// Counts more tokens for a long text than for its parts.
struct Square;

impl TokenCounter for Square {
    fn name(&self) -> &str {
        "square"
    }

    fn text_tokens(&self, text: &str) -> u64 {
        let count = text.chars().count() as u64;
        count + count * count / 1000
    }
}

#[test]
fn no_counter_makes_an_answer_too_long() {
    let store = Store::options().counter(Square).in_memory().unwrap();
    let chat = store.session("s").unwrap();
    for n in 0..12 {
        let words = (0..60).map(|word| format!("word{}", n * 1000 + word));
        let text = format!("The kite of {n}: {}", words.collect::<Vec<_>>().join(" "));
        chat.append([Message::user(text)]).unwrap();
    }
    for tokens in (100..20_000).step_by(370) {
        match ask(&store, "kite", tokens) {
            Ok(answer) => assert!(answer.tokens <= tokens && !answer.parts.is_empty()),
            Err(error) => assert!(tokens < 600, "{tokens}: {error}"),
        }
    }
}

#[test]
fn notes_are_recalled_only_when_they_are_asked_for() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    let note = AgentMessage::extension("note", Json::string("the kite"));
    chat.append([Message::user("a kite").into(), note]).unwrap();
    let answer = chat.recall("kite", 500).unwrap();
    assert_eq!((answer.parts.len(), answer.left_out), (1, None));
    let query = SearchQuery {
        role: Some(Role::Extension),
        ..SearchQuery::new("kite")
    };
    assert_eq!(store.recall(query, 500).unwrap().parts[0].text, "the kite");
}

#[cfg(feature = "tokio")]
#[test]
fn an_async_session_answers_alike() {
    let store = store(false);
    let chat = store.session("s").unwrap();
    chat.append([Message::user("a kite")]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let shared = AsyncStore::from(store.clone());
    let answers = runtime.block_on(async {
        let session = shared.session("s").unwrap();
        [
            session.recall("kite", 500).await.unwrap(),
            shared.recall("kite", 500).await.unwrap(),
        ]
    });
    assert_eq!(
        answers,
        [
            chat.recall("kite", 500).unwrap(),
            store.recall("kite", 500).unwrap()
        ]
    );
}
