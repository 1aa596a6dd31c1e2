//! The order of a session's messages. A list may be sorted by ids that do not reflect the order, but each answer names
//! the prompt that it answers.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::info_of;
use crate::values::unix_millis;

/// The fields that determine the order of a message.
struct MessageOrder {
    id: Option<String>,
    parent: Option<String>,
    created: Option<i64>,
}

/// Sorts messages. A list in which each message comes after its parent is in order. Another list is sorted by times
/// first; a message without a time stays after the one before it.
pub(super) fn in_order(messages: Vec<&RawValue>) -> Vec<&RawValue> {
    let places: Vec<MessageOrder> = messages.iter().map(|raw| place(raw)).collect();
    let numbers: HashMap<&str, usize> = (0..)
        .zip(&places)
        .filter_map(|(number, place)| Some((place.id.as_deref()?, number)))
        .collect();
    let parent = |number: usize| {
        let parent = places[number].parent.as_deref()?;
        numbers
            .get(parent)
            .copied()
            .filter(|parent| *parent != number)
    };
    if (0..places.len()).all(|number| parent(number).is_none_or(|parent| parent < number)) {
        return messages;
    }
    let mut latest = i64::MIN;
    let mut by_time: Vec<(i64, usize)> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        latest = place.created.unwrap_or(latest);
        by_time.push((latest, number));
    }
    by_time.sort();
    let (mut order, mut is_taken) = (Vec::new(), vec![false; messages.len()]);
    for (_, number) in by_time {
        let mut path = vec![number];
        // In a cycle of parents, each message is taken once.
        while let Some(parent) = path.last().and_then(|last| parent(*last))
            && !is_taken[parent]
            && path.len() <= messages.len()
        {
            path.push(parent);
        }
        for number in path.into_iter().rev() {
            if !std::mem::replace(&mut is_taken[number], true) {
                order.push(messages[number]);
            }
        }
    }
    order
}

fn place(raw: &RawValue) -> MessageOrder {
    let info = info_of(raw);
    MessageOrder {
        id: info.text("id"),
        parent: info.text("parentID"),
        created: info.object("time").read("created").and_then(unix_millis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(messages: &str) -> String {
        let messages: Vec<&RawValue> = serde_json::from_str(messages).unwrap();
        let ids = in_order(messages)
            .into_iter()
            .map(|raw| info_of(raw).text("id").unwrap());
        ids.collect()
    }

    #[test]
    fn an_answer_stands_behind_its_prompt() {
        let message = |id: &str, parent: &str, created: &str| {
            let parent = match parent {
                "" => String::new(),
                parent => format!(r#","parentID":"{parent}""#),
            };
            format!(r#"{{"info":{{"id":"{id}"{parent}{created}}}}}"#)
        };
        let at = |time: u64| format!(r#","time":{{"created":{time}}}"#);
        for (messages, expected) in [
            // Already in order, so the times do not matter.
            (
                vec![("a", "", at(9)), ("b", "a", at(2)), ("c", "", at(1))],
                "abc",
            ),
            (
                vec![
                    ("b", "a", at(2)),
                    ("a", "", at(1)),
                    ("d", "c", at(4)),
                    ("c", "", at(3)),
                ],
                "abcd",
            ),
            // Newest first; without times, and with a parent later than its answer.
            (
                vec![
                    ("d", "c", at(4)),
                    ("c", "", at(3)),
                    ("b", "a", at(2)),
                    ("a", "", at(1)),
                ],
                "abcd",
            ),
            (
                vec![("b", "a", String::new()), ("a", "", String::new())],
                "ab",
            ),
            (vec![("b", "a", at(1)), ("a", "", at(2))], "ab"),
            // Times in seconds and in milliseconds.
            (
                vec![
                    ("b", "a", at(1_770_000_001)),
                    ("a", "", at(1_770_000_000_000)),
                ],
                "ab",
            ),
            // Cycles, and missing parents.
            (
                vec![
                    ("a", "b", at(1)),
                    ("b", "a", at(2)),
                    ("c", "c", at(3)),
                    ("d", "x", at(4)),
                ],
                "abcd",
            ),
        ] {
            let list: Vec<String> = messages
                .iter()
                .map(|(id, of, at)| message(id, of, at))
                .collect();
            assert_eq!(order(&format!("[{}]", list.join(","))), expected);
        }
    }
}
