//! Truncated, altered or hostile files: a clear error, and nothing is written.

use loopstore::SqliteStore;
use serde_json::{Value, json};

use crate::session_jsonl::stage::{exported, grown, imported, refused, rows, sound};
use crate::support::histories::Random;

fn text(seed: u64) -> String {
    let store = SqliteStore::in_memory().unwrap();
    let history = grown(&store, &mut Random::new(seed), 40);
    exported(&store, &history.session)
}

/// Returns a file with runs, blocks, flips, pins and quotes.
fn rich() -> String {
    let has = |text: &String| {
        let kinds = ["run", "block", "flip", "turn", "message", "pin"];
        let begins = kinds.map(|kind| format!("{{\"record\":\"{kind}\""));
        begins.iter().all(|k| text.contains(k)) && text.contains("\"quotes\":")
    };
    (0..200).map(text).find(has).unwrap()
}

#[test]
fn a_file_that_is_cut_off_leaves_nothing_and_can_be_finished() {
    let text = rich();
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut cuts: Vec<usize> = ends.collect();
    cuts.pop();
    cuts.truncate(30);
    cuts.extend((1..text.len() - 2).step_by(text.len() / 40));
    for cut in cuts {
        let reason = refused(&store, &text[..text.floor_char_boundary(cut)]);
        assert!(reason.starts_with("line "), "{reason}");
        assert_eq!(rows(&store), empty);
    }
    imported(&store, &text).unwrap();
    sound(&store);
}

#[test]
fn lines_out_of_order_are_refused() {
    let text = rich();
    let lines: Vec<&str> = text.lines().collect();
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    let mut random = Random::new(7);
    for _ in 0..40 {
        let a = random.below(lines.len() as u64) as usize;
        let b = random.below(lines.len() as u64) as usize;
        let kind = |at: usize| lines[at].split(',').next();
        // Two adjacent loops, runs or notes may be in either order.
        if a == b || kind(a) == kind(b) && kind(a) != Some("{\"record\":\"message\"") {
            continue;
        }
        let mut other = lines.clone();
        other.swap(a, b);
        let reason = refused(&store, &other.join("\n"));
        assert!(reason.starts_with("line "), "{a} {b} {reason}");
        let mut twice = lines.clone();
        twice.insert(a, lines[a]);
        refused(&store, &twice.join("\n"));
        let mut without = lines.clone();
        without.remove(a);
        refused(&store, &without.join("\n"));
    }
    assert_eq!(rows(&store), empty);
}

/// Replaces one value of one line by another.
fn altered(lines: &[&str], at: usize, key: usize, value: &Value) -> String {
    let mut line: serde_json::Map<String, Value> = serde_json::from_str(lines[at]).unwrap();
    let name = line.keys().nth(key % line.len()).unwrap().clone();
    line.insert(name, value.clone());
    let line = serde_json::to_string(&line).unwrap();
    let mut lines = lines.to_vec();
    lines[at] = &line;
    lines.join("\n")
}

#[test]
fn a_value_that_lies_leaves_a_sound_database() {
    let text = rich();
    let lines: Vec<&str> = text.lines().collect();
    let long = "x".repeat(600);
    let values = [
        json!(null),
        json!(""),
        json!(long),
        json!("../../etc'; DROP TABLE messages; --\u{0}"),
        json!(-1),
        json!(0),
        json!(4_294_967_295_u64),
        json!(9_223_372_036_854_775_807_i64),
        json!(1e300),
        json!([]),
        json!({}),
        json!([[4_294_967_295_u64, 0]]),
        json!(true),
    ];
    let mut random = Random::new(11);
    let mut refusals = 0;
    let mut store = SqliteStore::in_memory().unwrap();
    for _ in 0..200 {
        let at = random.below(lines.len() as u64) as usize;
        let key = random.below(30) as usize;
        let value = &values[random.below(values.len() as u64) as usize];
        let file = altered(&lines, at, key, value);
        match imported(&store, &file) {
            // Any title, reason or unknown word is accepted.
            Ok(_) => {
                sound(&store);
                store = SqliteStore::in_memory().unwrap();
            }
            Err(error) => {
                refusals += 1;
                let reason = error.to_string();
                assert!(reason.starts_with("line "), "{reason}");
                assert!(reason.len() < 1500 && !reason.contains('\u{0}'), "{reason}");
                assert!(rows(&store).iter().all(|row| row.ends_with(" 0")));
            }
        }
    }
    assert!(refusals > 100, "only {refusals}");
}

#[test]
fn what_cannot_be_ours_is_told_plainly() {
    let store = SqliteStore::in_memory().unwrap();
    let text = rich();
    let reason_for = |from: &str, to: &str| refused(&store, &text.replacen(from, to, 1));
    for (from, to, reason) in [
        ("\"loopstore\":1", "\"loopstore\":2", "form 2"),
        (
            "\"counter\":\"heuristic\"",
            "\"counter\":\"other\"",
            "recount one of the two",
        ),
        ("word word", "word WORD", "does not fit its digest"),
        (
            "{\"record\":\"loop\"",
            "{\"record\":\"lupe\"",
            "unknown variant",
        ),
        (
            "\"tick\":",
            "\"tick\":99999999999999999,\"t\":",
            "is out of range",
        ),
        (
            "{\"record\":\"turn\"",
            "{\"record\":\"turn\",\"record\":\"turn\"",
            "duplicate",
        ),
    ] {
        let refusal = reason_for(from, to);
        assert!(refusal.contains(reason), "{refusal}");
    }
    assert!(refused(&store, "[]\n").starts_with("line 1: "));
    let message = text
        .lines()
        .find(|line| line.contains("\"record\":\"message\""));
    assert!(refused(&store, message.unwrap()).contains("does not belong to a session"));
}

/// Returns the text with one value of a line replaced.
fn with(text: &str, record: &str, change: impl Fn(&mut Value)) -> String {
    let begins = format!("{{\"record\":\"{record}\"");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = lines.iter_mut().find(|line| line.starts_with(&begins));
    let line = line.unwrap();
    let mut value = serde_json::from_str(line).unwrap();
    change(&mut value);
    *line = value.to_string();
    lines.join("\n")
}

#[test]
fn a_pin_that_lies_is_refused_or_pins_nothing() {
    let text = rich();
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    for (key, value) in [
        ("loop", json!("elsewhere")),
        ("loop", json!("")),
        ("loop", json!(3)),
        ("leaf", json!("elsewhere")),
        ("leaf", json!(null)),
        ("seq", json!(-1)),
        ("seq", json!(1.5)),
        ("seq", json!("1")),
        ("seq", json!(4_294_967_296_u64)),
        ("turns", json!(-1)),
        ("turns", json!([])),
        ("turns", json!(4_294_967_295_u64)),
        ("pinned", json!("yes")),
        ("pinned", json!(1)),
        ("tick", json!(0)),
        ("tick", json!(1)),
        ("tick", json!("7")),
        ("at", json!(7)),
    ] {
        let file = with(&text, "pin", |line| line[key] = value.clone());
        let reason = refused(&store, &file);
        assert!(reason.starts_with("line "), "{key} {value}: {reason}");
        assert_eq!(rows(&store), empty, "{key} {value}");
    }
    let pin = text
        .lines()
        .find(|line| line.contains("\"record\":\"pin\""));
    let twice = text.replacen(pin.unwrap(), &[pin.unwrap(); 2].join("\n"), 1);
    assert!(refused(&store, &twice).starts_with("line "));
    assert_eq!(rows(&store), empty);
    // After the last turn was replaced by a shorter one, pins of removed messages stay, without effect.
    let gone = with(&text, "pin", |line| line["seq"] = json!(4_294_967_295_u64));
    imported(&store, &gone).unwrap();
    sound(&store);
    let id = loopstore::SessionId::new("s").unwrap();
    for at in 0..3 {
        let leaf = Some(crate::support::histories::loop_id(at));
        if let Ok(list) = loopstore::pins(&store, &id, leaf.as_ref()) {
            assert!(list.pins.iter().all(|pin| pin.seq < 100_000));
        }
    }
}

#[test]
fn a_quote_that_lies_is_refused() {
    let text = rich();
    let store = SqliteStore::in_memory().unwrap();
    let empty = rows(&store);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("\"quotes\":"));
    let at = at.unwrap();
    let whole: Value = serde_json::from_str(lines[at]).unwrap();
    let shown = whole["shows"].as_array().unwrap();
    let quote = shown
        .iter()
        .position(|message| message.get("quotes").is_some());
    for (key, value) in [
        ("quotes", json!("elsewhere")),
        ("quotes", json!(7)),
        ("quotes", json!(null)),
        ("replaces", json!(4_294_967_295_u64)),
        ("replaces", json!(-1)),
        ("replaces", json!(null)),
        ("digest", json!("00")),
        ("digest", json!(null)),
        ("digest", json!("00".repeat(32))),
        ("recent", json!(true)),
    ] {
        let mut line = whole.clone();
        line["shows"][quote.unwrap()][key] = value.clone();
        let line = line.to_string();
        let mut lines = lines.clone();
        lines[at] = &line;
        let reason = refused(&store, &lines.join("\n"));
        assert!(reason.starts_with("line "), "{key} {value}: {reason}");
        assert_eq!(rows(&store), empty, "{key} {value}");
    }
}
