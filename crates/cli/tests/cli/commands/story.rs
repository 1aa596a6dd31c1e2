//! A session managed on the command line alone: compactions with turns between them, undone and redone, a fork, and
//! after each step the context that a model of a few lines predicts.

use serde_json::{Value, json};

use super::stage::Stage;

/// A loop of steps, and the number of turns at which each of its live compactions was made.
#[derive(Clone, Default)]
struct Model {
    turns: usize,
    live: Vec<usize>,
}

const FIRST: usize = 1;
const RECENT: usize = 2;

impl Model {
    fn original(turn: usize) -> Vec<String> {
        let mut said = vec![format!("step {turn}"), output(turn)];
        if turn == 0 {
            said.insert(0, "go through the list".into());
        }
        said
    }

    fn context(&self) -> Vec<String> {
        let covered = self.live.last().copied().unwrap_or(0);
        let middle = FIRST..covered.saturating_sub(RECENT);
        (0..self.turns)
            .flat_map(|turn| match middle.contains(&turn) {
                true => vec![format!("[Summary] step {turn}")],
                false => Self::original(turn),
            })
            .collect()
    }
}

fn output(turn: usize) -> String {
    format!("output {turn} {}", "and more ".repeat(30))
}

fn transcript(turns: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "go through the list"})];
    for turn in 0..turns {
        let id = format!("call_{turn}");
        let call = json!({"id": id, "type": "function",
            "function": {"name": "next", "arguments": format!("{{\"at\":{turn}}}")}});
        messages.push(
            json!({"role": "assistant", "content": format!("step {turn}"),
            "tool_calls": [call]}),
        );
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output(turn)}));
    }
    json!({ "messages": messages }).to_string()
}

struct Story {
    stage: Stage,
    session: String,
    /// The printed context at each step, and the arguments that print it again.
    printed: Vec<(String, String)>,
}

impl Story {
    /// Runs a line without replacing run ids.
    fn say(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = self.stage.command(&words).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.say(&format!("{line} --json"))).unwrap()
    }

    fn grow(&mut self, turns: usize) {
        let file = self.stage.path("list.json");
        std::fs::write(&file, transcript(turns)).unwrap();
        let report = self.json(&format!("import {}", file.display()));
        self.session = report["sessions"][0].as_str().unwrap().to_owned();
    }

    fn context(&self, rest: &str) -> String {
        self.say(&format!("context {} --json {rest}", self.session))
    }

    fn current_loop(&self) -> String {
        let sql = "SELECT current_loop_id FROM v_sessions";
        let rows: Value = serde_json::from_slice(
            &self
                .stage
                .command(&["sql", sql, "--json"])
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap();
        rows[0]["current_loop_id"].as_str().unwrap().to_owned()
    }

    /// Checks the context against the model, and records it under the argument that selects it.
    fn check_context(&mut self, expected: &[String], moment: &str) {
        let printed = self.context("");
        assert_eq!(texts(&printed), expected, "{moment}");
        if !moment.is_empty() {
            self.printed.push((moment.to_owned(), printed));
        }
        for (moment, then) in &self.printed {
            assert_eq!(
                &self.context(&format!("--as-of {moment}")),
                then,
                "{moment}"
            );
        }
    }

    /// Compacts, and returns the id of the run.
    fn compact(&self, rest: &str) -> String {
        let tokens: Value = serde_json::from_str(&self.context("")).unwrap();
        let window = tokens["tokens"].as_u64().unwrap() * 11 / 10;
        let report = self.json(&format!(
            "compact {} --strategy one-liner --keep-first {FIRST} --keep-recent {RECENT} \
             --room-turns 0 --max-tokens {window} {rest}",
            self.session
        ));
        assert_eq!(report["outcome"], "committed", "{report}");
        assert_eq!(report["fallback"], Value::Null, "{report}");
        report["run_id"].as_str().unwrap().to_owned()
    }
}

fn texts(context: &str) -> Vec<String> {
    let context: Value = serde_json::from_str(context).unwrap();
    let text = |message: &Value| {
        let blocks = message["content"].as_array().unwrap().iter();
        let texts = blocks.filter_map(|block| block["text"].as_str());
        texts.collect::<Vec<_>>().join(" ")
    };
    context["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect()
}

#[test]
fn the_command_line_tells_the_whole_story() {
    let mut story = Story {
        stage: Stage::empty(),
        session: String::new(),
        printed: Vec::new(),
    };
    let mut model = Model::default();
    let mut runs = Vec::new();
    for turns in [8, 13, 19] {
        story.grow(turns);
        model.turns = turns;
        let last = format!("{}:{}", story.current_loop(), turns - 1);
        story.check_context(&model.context(), &last);
        // The tick of the last turn is before that of the run that follows.
        let run = story.compact("");
        model.live.push(turns);
        story.check_context(&model.context(), &run);
        runs.push(run);
    }
    for back in [2, 1] {
        let undone = story.json(&format!("undo {}", story.session));
        assert_eq!(undone["run_id"], runs[back].as_str());
        model.live.pop();
        story.check_context(&model.context(), "");
    }
    let redone = story.json(&format!("redo {}", story.session));
    assert_eq!(redone["run_id"], runs[1].as_str());
    model.live.push(13);
    story.check_context(&model.context(), "");

    // At turn 14 the second run had been made, but not the third.
    let parent = story.current_loop();
    let forked = story.json(&format!(
        "fork {} --loop {parent} --turn 14 --id branch --switch",
        story.session
    ));
    assert_eq!(forked["parent_turn"], 14);
    model.turns = 15;
    story.check_context(&model.context(), "");
    story.compact("");
    // The fork has no turns of its own: its last turns are those of the loop before.
    let mut expected: Vec<String> = (0..13)
        .map(|turn| format!("[Summary] step {turn}"))
        .collect();
    expected.extend((13..15).flat_map(Model::original));
    story.check_context(&expected, "");
    // The other branch is not affected.
    let other = story.context(&format!("--loop {parent}"));
    model.turns = 19;
    assert_eq!(texts(&other), model.context());
    let verified = story.json("verify");
    assert_eq!(verified["ok"], true, "{verified}");
}
