//! Recorded turns and events: stored without second copies, and read back whole.

use loopstore::extend::{StoreError, read};
use loopstore::internal::{restore_history, shorten_history};
use loopstore::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::writer::script::*;

#[test]
fn a_message_in_a_turn_or_event_is_stored_once() {
    let Step::Message(_, prompt, _) = user("a", 0, "the prompt") else {
        unreachable!()
    };
    let mut one = record("a", None, LoopStatus::Completed);
    let turn = json!({"triggered_by": "User", "input_messages": [prompt], "x": {"$seq": 7}});
    one.turns = vec![serde_json::from_value(turn.clone()).unwrap()];
    one.events = vec![
        Json::of(&json!({"sequence": 1, "event": {"type": "Said", "message": prompt}})).unwrap(),
    ];
    let mut steps = vec![Step::Own("s"), Step::Loop(one)];
    steps.extend([
        note("a", "system", "x"),
        user("a", 0, "the prompt"),
        assistant("a", 0, "ok"),
    ]);
    let store = imported(&steps);
    let history = rows(&store, "SELECT history FROM loops").remove(0);
    let history: String = serde_json::from_str(&history).unwrap();
    assert!(!history.contains("the prompt"), "{history}");
    assert_eq!(history.matches(r#"{"$seq":1}"#).count(), 2, "{history}");
    let back = read(&store, |_| {
        restore_history(&history, &mut |seq| {
            assert_eq!(seq, 1);
            Json::of(&prompt).map_err(|error| StoreError::Invalid(error.to_string()))
        })
    })
    .unwrap();
    let back: Value = serde_json::from_str(&back).unwrap();
    assert_eq!(back["turns"][0], turn);
    assert_eq!(
        back["events"][0]["event"]["message"],
        serde_json::to_value(&prompt).unwrap()
    );
    let meta = rows(&store, "SELECT meta FROM loops").remove(0);
    assert!(
        !meta.contains("triggered_by") && !meta.contains("Said"),
        "{meta}"
    );
    let before = dump(&store);
    import(&store, &steps);
    assert_eq!(dump(&store), before);
}

#[test]
fn a_long_history_is_shortened_too() {
    let text = "long ".repeat(300_000);
    let Step::Message(_, prompt, _) = user("a", 0, &text) else {
        unreachable!()
    };
    let mut one = record("a", None, LoopStatus::Completed);
    one.events = vec![Json::of(&json!({"message": prompt})).unwrap()];
    let steps = [Step::Own("s"), Step::Loop(one), user("a", 0, &text)];
    let store = imported(&steps);
    assert_eq!(
        rows(&store, "SELECT history FROM loops"),
        [r#""{\"turns\":[],\"events\":[{\"message\":{\"$seq\":0}}]}""#]
    );
    let before = dump(&store);
    import(&store, &steps);
    assert_eq!(dump(&store), before);
}

#[test]
fn a_history_that_refers_to_nothing_is_damaged() {
    let nothing = &mut |_| Err(StoreError::Damaged("no message".into()));
    for text in [r#"{"$seq":1}"#, r#"{"$seq":"x"}"#, r#"{"$seq":-1}"#, "{"] {
        assert!(restore_history(text, nothing).is_err(), "{text}");
    }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("role".to_owned()),
        Just("$seq".to_owned()),
        Just("$$seq".to_owned()),
        "[a-c\"\\\\{]{0,2}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[\\PC\"\\\\,\\]}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..3).prop_map(Value::from_iter),
        ]
    })
}

/// Collects all objects with a role: each of them may be a message.
fn messages<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| messages(value, found)),
        Value::Object(fields) => {
            if fields.contains_key("role") {
                found.push(value);
            }
            fields.values().for_each(|value| messages(value, found));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn what_is_shortened_comes_back(value in value(), pick in any::<u64>()) {
        let mut all = Vec::new();
        messages(&value, &mut all);
        let stored: Vec<Json> = all
            .iter()
            .enumerate()
            .filter(|(at, _)| pick >> (at % 64) & 1 == 1)
            .map(|(_, message)| Json::of(*message).unwrap())
            .collect();
        let find = |digest: &[u8; 32]| {
            let at = stored.iter().position(|json| loopstore::internal::history_fingerprint(json) == *digest)?;
            u32::try_from(at).ok()
        };
        let text = value.to_string();
        let short = shorten_history(&text, &find).unwrap();
        let back = restore_history(&short, &mut |seq| Ok(stored[seq as usize].clone())).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&back).unwrap(), value);
        if !stored.is_empty() {
            let refers = short.contains("{\"$seq\":");
            prop_assert!(refers, "{}", short);
        }
    }
}
