//! The tiered compaction without a session: each level by example, and all levels against the original algorithm.

mod histories;
mod origin;

use loopstore::compaction::ContextConfig;
use loopstore::extend::compaction::{
    CompactionStrategy, DefaultCompaction, keep_within_budget, truncate_head_tail,
};
use loopstore::{
    AgentMessage, AssistantMessage, Content, HeuristicTokenCounter, Json, Message,
    ToolResultMessage, message_tokens, total_tokens,
};

fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

fn says(text: &str) -> AgentMessage {
    let content = vec![Content::text(text)];
    Message::Assistant(AssistantMessage {
        content,
        ..Default::default()
    })
    .into()
}

fn calls(ids: &[&str]) -> AgentMessage {
    let call = |id: &&str| Content::tool_call(*id, "ls", Json::parse("{}").unwrap());
    let content = ids.iter().map(call).collect();
    Message::Assistant(AssistantMessage {
        content,
        ..Default::default()
    })
    .into()
}

fn result(id: &str, text: &str) -> AgentMessage {
    let content = vec![Content::text(text)];
    let (tool_call_id, tool_name) = (id.into(), "ls".into());
    Message::ToolResult(ToolResultMessage {
        tool_call_id,
        tool_name,
        content,
        ..Default::default()
    })
    .into()
}

fn config(budget: u64, keep_first: usize, keep_recent: usize) -> ContextConfig {
    ContextConfig {
        max_context_tokens: budget + 1000,
        system_prompt_tokens: 1000,
        keep_first,
        keep_recent,
        tool_output_max_lines: 4,
        ..ContextConfig::default()
    }
}

fn compact(messages: &[AgentMessage], config: &ContextConfig) -> Vec<AgentMessage> {
    let compacted = DefaultCompaction.compact(messages.to_vec(), config);
    let budget = config.max_context_tokens - config.system_prompt_tokens;
    assert!(
        total_tokens(&compacted) <= budget,
        "{compacted:?} is over {budget}"
    );
    compacted
}

fn long() -> String {
    "word ".repeat(80)
}

#[test]
fn what_fits_is_left_alone() {
    let messages = [
        user("a"),
        calls(&["1"]),
        result("1", &"line\n".repeat(9)),
        says("done"),
    ];
    assert_eq!(
        compact(&messages, &config(total_tokens(&messages), 0, 0)),
        messages
    );
}

#[test]
fn level_one_cuts_tool_outputs_only() {
    let lines = "0123456789abcdef0123456789abcdef\n".repeat(20);
    let messages = [
        user(&lines),
        calls(&["1"]),
        result("1", &lines),
        says("done"),
    ];
    let mut expected = messages.to_vec();
    expected[2] = result("1", &truncate_head_tail(&lines, 4).unwrap());
    assert_eq!(
        compact(&messages, &config(total_tokens(&messages) - 1, 0, 0)),
        expected
    );
}

#[test]
fn level_two_makes_old_answers_lines_and_drops_their_results() {
    let messages = [
        user("do"),
        calls(&["1", "2"]),
        result("1", &long()),
        result("2", &long()),
        result("lost", "x"),
        says("short"),
        user("more"),
        says(&long()),
    ];
    let expected = [
        user("do"),
        user("[Summary] [Assistant used 2 tool(s)]"),
        user("[Summary] short"),
        user("more"),
        says(&long()),
    ];
    assert_eq!(compact(&messages, &config(150, 0, 2)), expected);
}

#[test]
fn level_two_keeps_a_call_whose_result_is_recent_if_it_fits() {
    let messages = [
        user(&long()),
        says(&long()),
        calls(&["1"]),
        result("1", "r"),
        says("done"),
    ];
    let kept = [
        user(&long()),
        user("[Summary] [Assistant response]"),
        calls(&["1"]),
        result("1", "r"),
        says("done"),
    ];
    assert_eq!(compact(&messages, &config(total_tokens(&kept), 0, 2)), kept);
}

#[test]
fn level_two_drops_a_recent_result_whose_call_does_not_fit() {
    let call = Content::tool_call("1", "ls", Json::string(&long()));
    let call = Message::Assistant(AssistantMessage {
        content: vec![call],
        ..Default::default()
    });
    let messages = [user("do"), call.into(), result("1", "r"), says("done")];
    let expected = [
        user("do"),
        user("[Summary] [Assistant used 1 tool(s)]"),
        says("done"),
    ];
    assert_eq!(compact(&messages, &config(60, 0, 2)), expected);
}

#[test]
fn level_three_drops_the_middle_behind_a_marker() {
    let mut messages = vec![user("first")];
    messages.extend((0..12).map(|_| user(&long())));
    messages.push(user("last"));
    let expected = [
        user("first"),
        user("[Context compacted: 12 messages removed to fit context window]"),
        user("last"),
    ];
    assert_eq!(compact(&messages, &config(200, 1, 1)), expected);
}

#[test]
fn level_three_joins_a_first_call_with_its_dropped_result() {
    let messages = [
        user("a"),
        user("b"),
        user(&long()),
        user(&long()),
        calls(&["1"]),
        result("1", "r"),
    ];
    let marker = "[Context compacted: 3 messages removed to fit context window]";
    let expected = [user("a"), user(marker), calls(&["1"]), result("1", "r")];
    assert_eq!(
        compact(&messages, &config(total_tokens(&expected), 1, 1)),
        expected
    );
    let expected = [
        user("a"),
        user("[Context compacted: 5 messages removed to fit context window]"),
    ];
    assert_eq!(
        compact(&messages, &config(total_tokens(&expected) + 12, 1, 1)),
        expected
    );
}

#[test]
fn at_last_the_newest_that_fit_stay_and_the_marker_counts() {
    let messages: Vec<_> = (0..5).map(|_| user(&long())).collect();
    let marker = user("[Context compacted: 4 messages removed]");
    let one = message_tokens(&messages[0]);
    let counter = &HeuristicTokenCounter;
    let keep = |budget| keep_within_budget(messages.clone(), budget, counter);
    assert_eq!(
        keep(one + message_tokens(&marker)),
        [marker, messages[4].clone()]
    );
    let alone = user("[Context compacted: 5 messages removed]");
    assert_eq!(
        keep(one + message_tokens(&alone) - 1),
        std::slice::from_ref(&alone)
    );
    assert_eq!(keep(message_tokens(&alone) - 1), []);
    assert_eq!(keep(5 * one), messages);
}

#[test]
fn a_budget_below_the_system_prompt_gives_nothing() {
    let config = ContextConfig {
        max_context_tokens: 10,
        system_prompt_tokens: 11,
        ..ContextConfig::default()
    };
    assert_eq!(DefaultCompaction.compact(vec![user("a")], &config), []);
    assert_eq!(DefaultCompaction.compact(Vec::new(), &config), []);
}

#[test]
fn a_reused_call_id_belongs_to_the_last_call_before() {
    let turn = |text: &str| [calls(&["x"]), result("x", text)];
    let messages: Vec<_> = (0..30).flat_map(|n| turn(&n.to_string())).collect();
    let compacted = compact(&messages, &config(100, 0, 3));
    let call = compacted.iter().position(|m| *m == calls(&["x"])).unwrap();
    assert_eq!(compacted[call..], [turn("28"), turn("29")].concat());
}
