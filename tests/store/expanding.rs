//! `expand`: pages of any size add up to the whole, unchanged, and none exceeds the requested size.

use loopstore::search::SearchError;
use loopstore::*;
use loopstore_admin::inspect::{ExpandRequest, Expanded, expand};
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

fn store(by_character: bool, messages: Vec<Message>) -> Store {
    let options = Store::options();
    let store = match by_character {
        true => options.counter(Characters).in_memory().unwrap(),
        false => options.in_memory().unwrap(),
    };
    let chat = store.session("s").unwrap();
    chat.append(messages).unwrap();
    store
}

fn counter(by_character: bool) -> Box<dyn TokenCounter> {
    match by_character {
        true => Box::new(Characters),
        false => Box::new(HeuristicTokenCounter),
    }
}

fn page(store: &Store, request: &ExpandRequest) -> Result<Expanded, SearchError> {
    let id = SessionId::new("s").unwrap();
    expand(store.database(), &id, request)
}

fn texts(message: &AgentMessage) -> Vec<&str> {
    message.message().unwrap().texts().collect()
}

/// Adds the texts of a page to those of the pages before: a text that begins within a message continues the last one.
fn join(joined: &mut Vec<String>, page: &Expanded) {
    for (at, message) in page.messages.iter().enumerate() {
        let cut = page.cut.iter().find(|cut| cut.message == at);
        let text = texts(message).concat();
        match cut.filter(|cut| cut.shown[0].chars.0 > 0) {
            Some(_) => joined.last_mut().unwrap().push_str(&text),
            None => joined.push(text),
        }
    }
}

/// Reads all pages of a loop.
fn pages(store: &Store, request: &ExpandRequest) -> Vec<Expanded> {
    let mut request = request.clone();
    let mut pages = Vec::new();
    loop {
        let page = page(store, &request).unwrap();
        let next = page.next;
        pages.push(page);
        if next.is_none() {
            return pages;
        }
        assert!(next > request.from, "it goes on from {next:?}");
        request.from = next;
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,30}",
        2 => "[a-z\n ]{0,200}",
        1 => "(退款|好|שלום|\u{202e}|\0|é|👩‍👩‍👧|<b>|\\n|…){0,60}",
        1 => (1usize..4000).prop_map(|count| "long ".repeat(count)),
        1 => (1usize..3000).prop_map(|count| "x".repeat(count)),
        1 => (1usize..900).prop_map(|count| "a line of it\n".repeat(count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_pages_joined_are_the_whole(
        said in prop::collection::vec(piece(), 1..9),
        most in 250u64..3000,
        by_character: bool,
    ) {
        let messages = said.iter().map(|text| Message::user(text.as_str())).collect();
        let store = store(by_character, messages);
        let last = said.len() as u32 - 1;
        let whole = ExpandRequest::turns(0, last);
        let paged = ExpandRequest { max_tokens: Some(most), ..whole.clone() };
        let mut joined = Vec::new();
        for page in pages(&store, &paged) {
            prop_assert!(page.tokens <= most);
            let tokens = counter(by_character).text_tokens(&page.text());
            prop_assert!(tokens <= most, "{tokens} of {most}");
            join(&mut joined, &page);
        }
        prop_assert_eq!(joined, said);
        prop_assert_eq!(page(&store, &whole).unwrap().cut, []);
    }
}

#[test]
fn a_turn_of_a_megabyte_is_read_page_by_page() {
    let text = (0..20_000).map(|n| format!("line {n} of a log that does not end\n"));
    let text: String = text.collect();
    let call = Message::assistant("I look.").with_tool_call("c1", "cat", Json::null());
    let result = Message::tool_result("c1", &*text);
    let store = store(false, vec![Message::user("Look."), call, result]);
    let request = ExpandRequest {
        max_tokens: Some(20_000),
        ..ExpandRequest::turns(0, 0)
    };
    let pages = pages(&store, &request);
    assert!(pages.len() < 15, "{} pages", pages.len());
    let mut joined = Vec::new();
    pages.iter().for_each(|page| join(&mut joined, page));
    assert_eq!(joined[2], text);
    let second = &pages[1];
    assert_eq!((second.cut[0].seq, second.cut[0].lines), (2, 20_001));
    let part = second.cut[0].shown[0];
    let shown = texts(&second.messages[0])[0];
    assert!(
        shown.starts_with(&format!("line {} of", part.lines.0 - 1)),
        "{part:?}"
    );
    assert!(shown.ends_with("not end\n"), "it is cut at a line");
    let text = second.text();
    let before = format!(
        "… left out: lines 1-{}, characters 0-{} …",
        part.lines.0 - 1,
        part.chars.0 - 1
    );
    assert!(text.contains(&before), "{}", &text[..200]);
}

#[test]
fn of_long_messages_only_what_fits_the_words_is_shown() {
    let hay = |from: usize| {
        (from..from + 300)
            .map(|n| format!("straw {n}\n"))
            .collect::<String>()
    };
    let long = format!("{}the needle is here\n{}", hay(0), hay(300));
    let short = "another needle".to_owned();
    let said = ["nothing", &long, &short, "nothing either"];
    let store = store(false, said.map(Message::user).into());
    let request = ExpandRequest {
        matching: Some("needle".into()),
        ..ExpandRequest::turns(0, 3)
    };
    let found = page(&store, &request).unwrap();
    assert_eq!(found.messages.len(), 2);
    assert_eq!(texts(&found.messages[1]), [&short]);
    assert_eq!(found.cut.len(), 1, "the short one is whole");
    assert_eq!(found.cut[0].shown[0].lines, (298, 304));
    let shown = texts(&found.messages[0])[0];
    assert!(
        shown.starts_with("straw 297\n") && long.contains(shown),
        "{shown}"
    );
    let text = found.text();
    assert!(
        text.contains("message 1\n… left out: lines 1-297, characters 0-"),
        "{text}"
    );
    let none = ExpandRequest {
        matching: Some("kite".into()),
        ..request
    };
    assert_eq!(page(&store, &none).unwrap(), Expanded::default());
}

#[test]
fn matches_are_paged_and_none_is_lost() {
    let line = |n: usize| match n % 50 {
        0 => format!("needle {n}\n"),
        _ => format!("straw {n} and more straw\n"),
    };
    let log: String = (0..2000).map(line).collect();
    let store = store(false, vec![Message::user(&*log), Message::user("a needle")]);
    let request = ExpandRequest {
        matching: Some("needle".into()),
        ..ExpandRequest::turns(0, 1)
    };
    let mut all = Vec::new();
    join(&mut all, &page(&store, &request).unwrap());
    let paged = ExpandRequest {
        max_tokens: Some(150),
        ..request
    };
    let mut joined = Vec::new();
    for page in pages(&store, &paged) {
        assert!(HeuristicTokenCounter.text_tokens(&page.text()) <= 150);
        join(&mut joined, &page);
    }
    assert_eq!(joined, all);
    assert_eq!(joined[0].matches("needle").count(), 40);
}

#[test]
fn an_image_that_is_too_large_is_a_line() {
    let image = "A".repeat(1_000_000);
    let said = ["one", "two"].map(|text| Message::user(text).with_image(&*image, "image/png"));
    let store = store(false, said.into());
    let request = ExpandRequest {
        max_tokens: Some(500),
        ..ExpandRequest::turns(0, 0)
    };
    let page = page(&store, &request).unwrap();
    assert_eq!((page.messages.len(), page.next), (2, None));
    assert_eq!(
        texts(&page.messages[1]),
        ["two\n(image image/png, 750000 bytes)"]
    );
    let whole = pages(&store, &ExpandRequest::turns(0, 0));
    assert_eq!(whole[0].messages[0].message().unwrap().content().len(), 2);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let store = store(false, vec![Message::user("one"), Message::user("two")]);
    let refused = |request: ExpandRequest| page(&store, &request).unwrap_err().to_string();
    let few = |most| ExpandRequest {
        max_tokens: Some(most),
        ..ExpandRequest::turns(0, 1)
    };
    assert_eq!(
        refused(few(0)),
        "an answer needs at least 5 tokens here, and 0 are allowed"
    );
    assert_eq!(
        page(&store, &few(5)).unwrap().next.unwrap().to_string(),
        "1"
    );
    assert_eq!(page(&store, &few(u64::MAX)).unwrap().next, None);
    let mut outside = few(100);
    outside.from = Some("7:3".parse().unwrap());
    assert_eq!(
        refused(outside),
        "message 7 is not in the turns 0..0, which hold the messages 0..1"
    );
    let mut behind = few(100);
    behind.from = Some("0:900".parse().unwrap());
    assert_eq!(page(&store, &behind).unwrap().messages.len(), 1);
    let mut empty = few(100);
    empty.matching = Some("…".into());
    assert!(refused(empty).contains("no letter or digit"));
}
