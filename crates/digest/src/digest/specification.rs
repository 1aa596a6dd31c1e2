//! The specification of a task that a prompt only names: an issue, a ticket, a design file that the first calls fetch.
//!
//! A prompt such as "work on issue 17" is no task without the text of the issue. The result of a call counts as such a
//! text if the call follows a prompt closely, an argument of it contains a name from the prompt, and the result is
//! prose. It is quoted as the words of a tool, never as those of a person.

use std::collections::HashSet;

use serde_json::Value;

use super::text::units_of;
use super::values::Shape;
use super::values::scan::scan;
use crate::words::words_of;

/// The number of calls after a prompt that may fetch what it names.
const FIRST_CALLS: usize = 8;
/// The most names of a prompt that are remembered; a longer prompt is a specification itself.
const MOST_NAMES: usize = 24;
/// A specification has at least so many bytes, and of a longer one the beginning counts.
const SHORTEST: usize = 120;
const LONGEST: usize = 8_000;
/// Words before a number that names a thing: `issue 17`, `PR #60`.
const NUMBERED: [&str; 12] = [
    "bead", "bug", "card", "issue", "item", "pr", "pull", "request", "spec", "story", "task",
    "ticket",
];
/// Keys of a structured result whose text is a specification.
const BODIES: [&str; 9] = [
    "acceptance",
    "acceptance_criteria",
    "body",
    "content",
    "description",
    "details",
    "requirements",
    "summary",
    "title",
];
/// Words of the headings and sentences of a specification, folded.
const REQUIRED: [&str; 17] = [
    "acceptance",
    "actual",
    "behavior",
    "behaviour",
    "criteria",
    "current",
    "expected",
    "goal",
    "goals",
    "must",
    "need",
    "needs",
    "problem",
    "reproduce",
    "requirements",
    "should",
    "steps",
];
/// A sentence has at least so many words.
const SENTENCE: usize = 5;

/// The names of the last prompt, and the calls that fetch something by them.
#[derive(Default)]
pub(super) struct NamedInPrompt {
    names: Vec<String>,
    calls_left: usize,
    fetching: HashSet<String>,
}

impl NamedInPrompt {
    /// Remembers what a person's prompt names.
    pub(super) fn prompt(&mut self, text: &str) {
        self.names.clear();
        self.fetching.clear();
        self.calls_left = FIRST_CALLS;
        scan(text, &mut |found| {
            let shape = Shape::of(found.value);
            if shape.names_one_thing() || shape == Shape::Joined {
                self.names.push(found.value.to_owned());
            }
        });
        let words = words_of(text);
        for pair in words.windows(2) {
            let is_number = pair[1].bytes().all(|byte| byte.is_ascii_digit());
            if is_number && NUMBERED.contains(&pair[0].as_str()) {
                self.names.push(pair[1].clone());
            }
        }
        if self.names.len() > MOST_NAMES {
            self.names.clear();
        }
    }

    /// Remembers a call if one of its arguments contains a name of the prompt.
    pub(super) fn call(&mut self, id: &str, arguments: &Value) {
        if self.calls_left == 0 || self.names.is_empty() {
            return;
        }
        self.calls_left -= 1;
        if self.is_named(arguments) {
            self.fetching.insert(id.to_owned());
        }
    }

    fn is_named(&self, arguments: &Value) -> bool {
        match arguments {
            Value::Object(fields) => fields.values().any(|value| self.is_named(value)),
            Value::Array(items) => items.iter().any(|value| self.is_named(value)),
            Value::String(text) => self.names.iter().any(|name| has_name(text, name)),
            Value::Number(number) => self.names.contains(&number.to_string()),
            Value::Bool(_) | Value::Null => false,
        }
    }

    /// True if a call fetches what the prompt names; asked once for each call.
    pub(super) fn fetches(&mut self, id: &str) -> bool {
        self.fetching.remove(id)
    }
}

/// Returns the specification in the output of a call that fetches what a prompt names, if it is one.
pub(super) fn specification_in(output: &str) -> Option<String> {
    let text = match serde_json::from_str::<Value>(output.trim()) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => body_of(&value),
        _ => output.to_owned(),
    };
    let text = &text[..text.floor_char_boundary(LONGEST)];
    is_specification(text).then(|| text.to_owned())
}

/// True if a text contains a name, not as a part of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(joins) && !text[at + name.len()..].starts_with(joins))
}

/// Returns the texts of a structured result under the keys of a specification.
fn body_of(value: &Value) -> String {
    let mut texts = String::new();
    let mut add = |text: &str| {
        texts.push_str(text);
        texts.push('\n');
    };
    each_body(value, &mut add);
    texts
}

fn each_body(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if BODIES.contains(&&*key.to_lowercase()) => each(text),
                    Value::String(_) => {}
                    other => each_body(other, each),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_body(item, each)),
        _ => {}
    }
}

/// True if a text is prose that says what is wanted: most of its units are sentences, and one of them requires.
fn is_specification(text: &str) -> bool {
    if text.len() < SHORTEST {
        return false;
    }
    let all = units_of(text);
    let is_sentence = |text: &str| {
        let looks_like_code = text.contains(['{', '}', ';', '=']) || text.contains("::");
        !looks_like_code && text.split_whitespace().count() >= SENTENCE
    };
    let units = all.units.len();
    let sentences = all.units.iter().filter(|unit| is_sentence(&unit.text));
    let parts = all
        .leads
        .iter()
        .chain(all.units.iter().map(|unit| &unit.text));
    sentences.count() * 2 > units && parts.into_iter().any(|text| requires(text))
}

/// True if a sentence or heading says what is wanted.
pub(super) fn requires(text: &str) -> bool {
    words_of(text)
        .iter()
        .any(|word| REQUIRED.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ISSUE: &str = "title: The ferry sails without its lamp\nThe lamp of the ferry is dark when it sails at night.\n\
        ## Acceptance criteria\n- The lamp must be lit before the ferry leaves the quay.\n- A test covers the lamp at night.";

    fn fetched(prompt: &str, arguments: &Value, output: &str) -> Option<String> {
        let mut named = NamedInPrompt::default();
        named.prompt(prompt);
        named.call("a", arguments);
        named.fetches("a").then(|| specification_in(output))?
    }

    #[test]
    fn what_a_prompt_names_and_a_call_fetches_is_the_task() {
        let view = json!({"command": "gh issue view 17"});
        assert_eq!(
            fetched("work on issue 17", &view, ISSUE).as_deref(),
            Some(ISSUE)
        );
        let read = json!({"path": "docs/lamp.md"});
        assert!(fetched("Do what docs/lamp.md says.", &read, ISSUE).is_some());
        let body =
            json!({"number": 17, "body": ISSUE, "url": "https://harbour.example/17"}).to_string();
        let found = fetched("fix #17, see issue 17", &view, &body).unwrap();
        assert!(
            found.contains("must be lit") && !found.contains("harbour.example"),
            "{found}"
        );
    }

    #[test]
    fn anything_else_that_a_call_returns_is_not() {
        let view = json!({"command": "gh issue view 17"});
        assert!(
            fetched("work on issue 18", &view, ISSUE).is_none(),
            "another issue"
        );
        assert!(fetched("work on issue 17", &json!({"n": 170}), ISSUE).is_none());
        let code = "fn lamp() {\n    let must = lit();\n    quay.push(must);\n}\n".repeat(8);
        assert!(fetched("work on issue 17", &view, &code).is_none(), "code");
        assert!(
            fetched("work on issue 17", &view, "closed").is_none(),
            "too short"
        );
        let mut named = NamedInPrompt::default();
        named.prompt("work on issue 17");
        for at in 0..FIRST_CALLS {
            named.call(&at.to_string(), &json!({"command": "ls"}));
        }
        named.call("late", &view);
        assert!(!named.fetches("late"), "too late");
        assert!(specification_in("").is_none());
    }
}
