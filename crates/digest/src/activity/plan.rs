//! The plan that a call records: a list of items with states, in the form of any agent.

use serde_json::{Map, Value};

use super::tables::{arguments, tools};
use super::work::{PlanItem, PlanState};

/// The most items of a plan, and the longest item in bytes.
const MOST_ITEMS: usize = 500;
const LONGEST_ITEM: usize = 400;

/// A change of the plan.
#[derive(Debug, PartialEq)]
pub(super) enum PlanChange {
    Whole(Vec<PlanItem>),
    Add(String),
    /// Item number `number`, counted from 1.
    Update {
        number: usize,
        text: Option<String>,
        state: Option<PlanState>,
    },
}

/// Returns the change of the plan by a call. `words`: the words of the tool's name.
pub(super) fn change(words: &[String], arguments: &Map<String, Value>) -> Option<PlanChange> {
    let plans = |word: &str| tools::PLANNING.iter().any(|known| word.contains(known));
    let is_planner = words.iter().any(|word| plans(word));
    if is_planner && let Some(change) = single(words, arguments) {
        return Some(change);
    }
    arguments.iter().find_map(|(key, value)| {
        let key = key.to_ascii_lowercase();
        match value {
            Value::Array(items) if is_planner || plans(&key) => {
                items_of(items, is_planner && plans(&key))
            }
            Value::String(text) if plans(&key) || is_planner => {
                // Some agents encode the list as JSON in a text.
                let list: Option<Vec<Value>> = text
                    .trim_start()
                    .starts_with('[')
                    .then(|| serde_json::from_str(text).ok())
                    .flatten();
                match list {
                    Some(items) => items_of(&items, false),
                    None => checklist(text),
                }
            }
            _ => None,
        }
    })
}

/// Reads a call that adds or updates a single item.
fn single(words: &[String], arguments: &Map<String, Value>) -> Option<PlanChange> {
    let has = |word: &str| words.iter().any(|known| known == word);
    let text = |key: &str| arguments.get(key)?.as_str();
    if has("create") && has("task") {
        return text("subject").map(|subject| PlanChange::Add(short(subject)));
    }
    if has("update") && has("task") {
        let number =
            arguments::ITEM_NUMBERS
                .iter()
                .find_map(|key| match arguments.get(*key)? {
                    Value::Number(number) => number.as_u64(),
                    Value::String(number) => number.trim_start_matches('#').parse().ok(),
                    _ => None,
                })?;
        return Some(PlanChange::Update {
            number: usize::try_from(number).ok()?,
            text: text("subject").map(short),
            state: text("status").and_then(state),
        });
    }
    None
}

fn items_of(items: &[Value], may_be_empty: bool) -> Option<PlanChange> {
    if items.is_empty() {
        return may_be_empty.then(|| PlanChange::Whole(Vec::new()));
    }
    let read: Vec<PlanItem> = items.iter().take(MOST_ITEMS).filter_map(item).collect();
    // A list of other things may have one object like an item by coincidence.
    (!read.is_empty() && read.len() * 2 >= items.len().min(MOST_ITEMS))
        .then_some(PlanChange::Whole(read))
}

fn item(value: &Value) -> Option<PlanItem> {
    let fields = value.as_object()?;
    let text = arguments::ITEM_TEXTS
        .iter()
        .find_map(|key| fields.get(*key)?.as_str())?;
    let state = arguments::ITEM_STATES
        .iter()
        .find_map(|key| match fields.get(*key)? {
            Value::String(word) => state(word),
            Value::Bool(true) => Some(PlanState::Done),
            Value::Bool(false) => Some(PlanState::Pending),
            _ => None,
        })?;
    let text = short(text);
    (!text.is_empty()).then_some(PlanItem { text, state })
}

fn state(word: &str) -> Option<PlanState> {
    let letters = |c: &char| c.is_ascii_alphabetic();
    let word: String = word.chars().filter(letters).take(24).collect();
    let word = word.to_ascii_lowercase();
    let states = [
        (arguments::PENDING, PlanState::Pending),
        (arguments::IN_PROGRESS, PlanState::InProgress),
        (arguments::DONE, PlanState::Done),
        (arguments::CANCELLED, PlanState::Cancelled),
    ];
    let found = states.iter().find(|(words, _)| words.contains(&&*word));
    found.map(|(_, state)| *state)
}

/// Reads a Markdown list with check boxes.
fn checklist(text: &str) -> Option<PlanChange> {
    let items: Vec<PlanItem> = text.lines().filter_map(boxed).take(MOST_ITEMS).collect();
    (!items.is_empty()).then_some(PlanChange::Whole(items))
}

fn boxed(line: &str) -> Option<PlanItem> {
    let line = line.trim_start();
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let line = line.trim_start_matches(['-', '*', '+', '.', ' ']);
    let inside = line.strip_prefix('[')?;
    let (mark, text) = inside.split_once(']')?;
    let state = match mark {
        " " | "" => PlanState::Pending,
        "x" | "X" | "✓" => PlanState::Done,
        "-" | "~" | "/" | ">" | "*" => PlanState::InProgress,
        _ => return None,
    };
    let text = short(text);
    (!text.is_empty()).then_some(PlanItem { text, state })
}

fn short(text: &str) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(LONGEST_ITEM)];
    cut.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(name: &[&str], arguments: Value) -> Option<PlanChange> {
        let words: Vec<String> = name.iter().map(|word| (*word).to_owned()).collect();
        change(&words, arguments.as_object().unwrap())
    }

    fn whole(name: &[&str], arguments: Value) -> Vec<(String, PlanState)> {
        let Some(PlanChange::Whole(items)) = of(name, arguments) else {
            return Vec::new();
        };
        items
            .into_iter()
            .map(|item| (item.text, item.state))
            .collect()
    }

    #[test]
    fn plans_of_every_spelling_are_read() {
        use PlanState::{Done, InProgress, Pending};
        let both = [("a".to_owned(), Done), ("b".to_owned(), InProgress)];
        assert_eq!(
            whole(
                &["todo", "write"],
                json!({"todos": ["odd", {"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]})
            ),
            both
        );
        assert_eq!(
            whole(
                &["update", "plan"],
                json!({"explanation": "x", "plan": [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}]})
            ),
            both
        );
        assert_eq!(
            whole(
                &["task", "tracker"],
                json!({"command": "plan", "task_list": [{"title": "a", "status": "done"}, {"title": "b", "status": "in_progress"}]})
            ),
            both
        );
        assert_eq!(
            whole(
                &["write", "todos"],
                json!({"todos": [{"description": "a", "status": "completed"}, {"description": "b", "status": "in_progress"}]})
            ),
            both
        );
        assert_eq!(
            whole(
                &["update", "todo", "list"],
                json!({"todos": "[x] a\n[-] b"})
            ),
            both
        );
        assert_eq!(
            whole(
                &["read", "file"],
                json!({"task_progress": "- [x] a\n- [ ] b"})
            ),
            [("a".to_owned(), Done), ("b".to_owned(), Pending)]
        );
        assert_eq!(
            whole(
                &["todowrite"],
                json!({"todos": "[{\"content\":\"a\",\"done\":true}]"})
            ),
            [("a".to_owned(), Done)]
        );
    }

    #[test]
    fn other_lists_are_no_plans() {
        assert_eq!(
            of(
                &["order"],
                json!({"items": [{"name": "a", "status": "pending"}]})
            ),
            None
        );
        assert_eq!(
            of(
                &["write", "file"],
                json!({"path": "a.md", "content": "- [ ] a"})
            ),
            None
        );
        assert_eq!(of(&["task"], json!({"prompt": "do it"})), None);
        assert_eq!(of(&["task", "tracker"], json!({"command": "view"})), None);
        assert_eq!(
            of(&["todo", "write"], json!({"todos": []})),
            Some(PlanChange::Whole(Vec::new()))
        );
    }

    #[test]
    fn single_items_are_added_and_changed() {
        assert_eq!(
            of(
                &["task", "create"],
                json!({"subject": "a", "description": "x"})
            ),
            Some(PlanChange::Add("a".into()))
        );
        let done = PlanChange::Update {
            number: 2,
            text: None,
            state: Some(PlanState::Done),
        };
        assert_eq!(
            of(
                &["task", "update"],
                json!({"taskId": "2", "status": "completed"})
            ),
            Some(done)
        );
    }
}
