//! Prompts of people, which compactions keep word for word within the configured tokens.

use std::sync::Arc;

use loopstore::compact::CompactOutcome;
use loopstore::*;

use crate::pins::{assert_counted, assert_sound, is_quote, texts};
use crate::support::histories::Random;

/// Returns a prompt that is known by its number.
fn prompt(at: u32, words: usize) -> String {
    format!("<prompt {at}> {}", "paint ".repeat(words).trim_end())
}

/// Appends a prompt, and work on it.
fn ask(chat: &SessionHandle, at: u32, words: usize) {
    chat.append([Message::user(prompt(at, words))]).unwrap();
    work(chat, at);
}

fn work(chat: &SessionHandle, at: u32) {
    for turn in 0..3 {
        let id = format!("call-{at}-{turn}");
        let answer =
            Message::assistant(format!("Wall {at}, coat {turn}. {}", "Brush. ".repeat(40)));
        let answer = answer.with_tool_call(&id, "look", serde_json::json!({ "wall": at }));
        let result = Message::tool_result(&id, "a line of the wall\n".repeat(30));
        chat.append([answer, result]).unwrap();
    }
    let done = format!("Wall {at} is done. {}", "Dry. ".repeat(20));
    chat.append([Message::assistant(done)]).unwrap();
}

fn request(tokens: u64, strategy: Arc<dyn BlockCompactionStrategy>) -> CompactRequest {
    let mut request = Policy::new(60_000)
        .keep_first(0)
        .keep_recent(KeepRecent::Turns(2))
        .keep_prompts(tokens)
        .request();
    request.policy.compaction.block_strategy = Some(strategy);
    request.trigger = CompactTrigger::Length;
    request
}

fn digest(tokens: u64) -> CompactRequest {
    request(tokens, Arc::new(DigestCompaction::default()))
}

fn quotes(context: &Context) -> Vec<String> {
    let mut quotes = texts(context);
    quotes.retain(|text| is_quote(text));
    quotes
}

/// The number of the prompt that a text shows word for word, as itself or as a quote.
fn number_in(text: &str) -> Option<u32> {
    let text = match is_quote(text) {
        true => text.split_once('\n')?.1,
        false => text,
    };
    let number = text.strip_prefix("<prompt ")?.split_once('>')?.0;
    number.parse().ok()
}

/// Checks a context: each prompt is shown once, as itself, as a quote or not at all; quotes are the newest of those that
/// are hidden, and within the tokens. Returns the numbers of the quoted prompts.
fn check(store: &Store, chat: &SessionHandle, asked: u32, most: u64) -> Vec<u32> {
    let context = chat.context().unwrap();
    let (mut shown, mut quoted) = (Vec::new(), Vec::new());
    let counter = store.database().counter();
    let mut tokens = 0;
    for (message, text) in context.messages.iter().zip(texts(&context)) {
        let Some(number) = number_in(&text) else {
            continue;
        };
        shown.push(number);
        if text.starts_with("[Kept prompt, ") {
            quoted.push(number);
            tokens += counter.message_tokens(message);
        }
    }
    let mut once = shown.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), shown.len(), "{shown:?}");
    assert!(tokens <= most, "{tokens} of {most}");
    let hidden: Vec<u32> = (0..asked)
        .filter(|at| !shown.contains(at) || quoted.contains(at))
        .collect();
    let newest = &hidden[hidden.len() - quoted.len()..];
    let mut sorted = quoted.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, newest, "of {hidden:?}");
    assert_counted(store, &context);
    assert_sound(store);
    quoted
}

#[test]
fn the_newest_prompts_are_quoted_within_the_tokens_whatever_the_strategy() {
    let strategies: [Arc<dyn BlockCompactionStrategy>; 3] = [
        Arc::new(DefaultBlockCompaction),
        Arc::new(DigestCompaction::default()),
        Arc::new(SummarizeCompaction::new(Arc::new(Brief))),
    ];
    for strategy in strategies {
        for (tokens, expected) in [(0, 0), (10, 0), (60, 1), (200, 4), (10_000, 9)] {
            let store = Store::in_memory().unwrap();
            let chat = store.session("s").unwrap();
            (0..10).for_each(|at| ask(&chat, at, 20));
            let before = chat.context().unwrap();
            let report = chat.compact(&request(tokens, strategy.clone())).unwrap();
            assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
            let quoted = check(&store, &chat, 10, tokens);
            let name = strategy.name();
            assert!(quoted.len() >= expected, "{name}, {tokens}: {quoted:?}");
            let context = chat.context().unwrap();
            assert_eq!(report.after.tokens, context.tokens);
            let (kept, left_out) = (report.prompts_kept, report.prompts_left_out);
            assert_eq!(kept, quoted.len() as u64);
            assert_eq!(left_out > 0, (1..10_000).contains(&tokens));
            chat.undo().unwrap();
            assert_eq!(chat.context().unwrap().messages, before.messages);
        }
    }
}

/// Writes a summary that names no prompt.
struct Brief;

impl Summarizer for Brief {
    fn name(&self) -> &str {
        "brief"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        Ok(SummaryAnswer {
            text: "## Done, decided and found\nWalls were painted.".into(),
            ..SummaryAnswer::default()
        })
    }
}

#[test]
fn prompts_stay_through_random_compactions_and_rollups() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let store = Store::in_memory().unwrap();
        let chat = store.session("s").unwrap();
        let mut asked = 0;
        let tokens = [0, 90, 250, 2_000][random.below(4) as usize];
        for _ in 0..8 {
            for _ in 0..=random.below(3) {
                ask(&chat, asked, 5 + random.below(30) as usize);
                asked += 1;
            }
            let strategy: Arc<dyn BlockCompactionStrategy> = match random.one_in(2) {
                true => Arc::new(DefaultBlockCompaction),
                false => Arc::new(DigestCompaction::default()),
            };
            let mut request = request(tokens, strategy);
            let policy = &mut request.policy.compaction;
            policy.compaction_scope = CompactionScope::FixedCount(random.below(3) as usize);
            policy.keep_first_turns = random.below(2) as u32;
            if random.one_in(4) {
                request.trigger = CompactTrigger::Force;
            }
            let report = chat.compact(&request).unwrap();
            if report.outcome == CompactOutcome::Committed {
                let quoted = check(&store, &chat, asked, tokens);
                assert_eq!(report.prompts_kept, quoted.len() as u64, "seed {seed}");
            }
        }
        // Without the setting the next compaction quotes nothing.
        (0..3).for_each(|at| ask(&chat, asked + at, 10));
        let report = chat.compact(&digest(0)).unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
        assert_eq!(quotes(&chat.context().unwrap()), [""; 0], "seed {seed}");
        assert_sound(&store);
    }
}

#[test]
fn a_pinned_prompt_is_quoted_once_and_takes_no_tokens_of_the_others() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    (0..8).for_each(|at| ask(&chat, at, 20));
    chat.pin(PinRef::message("loop-7", 0, 0)).unwrap();
    chat.compact(&digest(60)).unwrap();
    let quotes = quotes(&chat.context().unwrap());
    let numbers: Vec<_> = quotes.iter().filter_map(|text| number_in(text)).collect();
    assert!(numbers.contains(&6) && numbers.len() == 2, "{numbers:?}");
    assert_counted(&store, &chat.context().unwrap());
    assert_sound(&store);
}

#[test]
fn a_prompt_that_an_edit_replaced_is_quoted_as_contexts_show_it() {
    let target = || EditTarget::Message(LoopId::new("loop-7").unwrap(), 0, 0);
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    (0..8).for_each(|at| ask(&chat, at, 20));
    chat.edit(&EditRequest::replace(target(), "Nothing at all."))
        .unwrap();
    let before = chat.context().unwrap();
    let report = chat.compact(&digest(1_000)).unwrap();
    let shown = texts(&chat.context().unwrap()).join("\n");
    assert!(shown.contains("user]\nNothing at all."), "{shown}");
    assert!(!shown.contains(&prompt(6, 20)), "{shown}");
    assert_eq!(report.after.tokens, chat.context().unwrap().tokens);
    assert_counted(&store, &chat.context().unwrap());
    assert_sound(&store);
    // A second edit wins, and a rollup quotes it too.
    chat.edit(&EditRequest::replace(target(), "Nothing yet."))
        .unwrap();
    (8..16).for_each(|at| ask(&chat, at, 20));
    let mut rolled = digest(1_000);
    rolled.policy.compaction.compaction_scope = CompactionScope::FixedCount(0);
    chat.compact(&rolled).unwrap();
    let shown = texts(&chat.context().unwrap()).join("\n");
    assert!(shown.contains("of loop-7, user]\nNothing yet."), "{shown}");
    assert_counted(&store, &chat.context().unwrap());
    assert_sound(&store);
    for _ in 0..3 {
        chat.undo().unwrap();
    }
    let again = chat.context().unwrap();
    assert_eq!(again.messages[..before.messages.len()], before.messages);
}

#[test]
fn a_prompt_that_an_edit_removed_or_cleared_is_not_quoted_but_counted() {
    let target = || EditTarget::Message(LoopId::new("loop-7").unwrap(), 0, 0);
    let edits = [
        EditRequest::remove([target()]),
        EditRequest::clear([target()]),
    ];
    for edit in edits {
        let store = Store::in_memory().unwrap();
        let chat = store.session("s").unwrap();
        (0..8).for_each(|at| ask(&chat, at, 80));
        let has_it = |chat: &SessionHandle| {
            let quotes = quotes(&chat.context().unwrap());
            quotes.iter().any(|text| number_in(text) == Some(6))
        };
        let report = chat.compact(&digest(10_000)).unwrap();
        assert!(has_it(&chat));
        assert_eq!(report.prompts_left_out, 0);
        chat.undo().unwrap();
        chat.edit(&edit).unwrap();
        let report = chat.compact(&digest(10_000)).unwrap();
        assert_eq!(report.prompts_left_out, 1);
        assert!(!has_it(&chat), "{edit:?}");
        assert!(!quotes(&chat.context().unwrap()).is_empty());
        assert_sound(&store);
    }
}

#[test]
fn what_an_edit_removes_after_a_compaction_leaves_its_quotes() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    (0..8).for_each(|at| ask(&chat, at, 20));
    chat.compact(&digest(1_000)).unwrap();
    let target = EditTarget::Message(LoopId::new("loop-7").unwrap(), 0, 0);
    chat.edit(&EditRequest::remove([target])).unwrap();
    let shows = |chat: &SessionHandle| {
        let texts = texts(&chat.context().unwrap());
        texts.iter().any(|text| number_in(text) == Some(6))
    };
    assert!(!shows(&chat));
    chat.compact(&digest(1_000)).unwrap();
    assert!(!shows(&chat));
    assert_sound(&store);
}

#[test]
fn only_what_people_wrote_is_quoted_and_a_prompt_larger_than_the_tokens_is_skipped() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    (0..6).for_each(|at| ask(&chat, at, 20));
    ask(&chat, 6, 2_000);
    let harness: AgentMessage = Message::User(UserMessage {
        content: vec![Content::text("<prompt 7> by a harness")],
        timestamp: None,
        author: Some(Author::Harness),
    })
    .into();
    assert_eq!(harness.author(), Author::Harness);
    chat.append([harness]).unwrap();
    work(&chat, 7);
    ask(&chat, 8, 20);
    let report = chat.compact(&digest(110)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let quotes = quotes(&chat.context().unwrap());
    let numbers: Vec<_> = quotes.iter().filter_map(|text| number_in(text)).collect();
    assert!(
        !numbers.contains(&6) && !numbers.contains(&7),
        "{numbers:?}"
    );
    assert!(numbers.contains(&5), "{numbers:?}");
    // Prompts 0 to 6 and 8 are of people.
    assert_eq!(report.prompts_kept + report.prompts_left_out, 8);
    assert_sound(&store);
}

#[test]
fn prompts_yield_to_the_last_turn() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    (0..12).for_each(|at| ask(&chat, at, 100));
    let mut request = digest(100_000);
    request.policy.window.max_context_tokens = 900;
    let report = chat.compact(&request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert!(report.prompts_left_out > 0);
    assert!(report.after.tokens <= 900);
    assert_counted(&store, &chat.context().unwrap());
    assert_sound(&store);
}
