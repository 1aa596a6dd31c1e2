//! Files that are cut off, altered or made to harm: a clear error, and nothing is written.

use loopstore::SqliteStore;
use serde_json::{Value, json};

use crate::session_jsonl::stage::{exported, grown, imported, refused, rows, sound};
use crate::support::histories::Random;

fn text(seed: u64) -> String {
    let store = SqliteStore::in_memory().unwrap();
    let history = grown(&store, &mut Random::new(seed), 40);
    exported(&store, &history.session)
}

/// A file with runs, blocks and flips.
fn rich() -> String {
    let has = |text: &String| {
        let kinds = ["run", "block", "flip", "turn", "message"];
        kinds
            .map(|kind| format!("{{\"record\":\"{kind}\""))
            .iter()
            .all(|k| text.contains(k))
    };
    (0..50).map(text).find(has).unwrap()
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
        // Two loops, runs or notes beside each other may as well stand the other way round.
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
            // A title, a reason or an unknown word is as good as another.
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
    let told = |from: &str, to: &str| refused(&store, &text.replacen(from, to, 1));
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
        let said = told(from, to);
        assert!(said.contains(reason), "{said}");
    }
    assert!(refused(&store, "[]\n").starts_with("line 1: "));
    let message = text
        .lines()
        .find(|line| line.contains("\"record\":\"message\""));
    assert!(refused(&store, message.unwrap()).contains("does not belong to a session"));
}
