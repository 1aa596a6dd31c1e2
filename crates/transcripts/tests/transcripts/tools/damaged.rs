//! Damaged or hostile transcripts: usable records are imported, the others are reported.

use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{FORMATS, fixtures, import, is_sound, store};

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Replaces each value of an object, at any depth and one at a time, by `odd`.
fn with_odd(value: &serde_json::Value, odd: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut all = Vec::new();
    let keys: Vec<String> = match value {
        serde_json::Value::Object(fields) => fields.keys().cloned().collect(),
        serde_json::Value::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
        _ => Vec::new(),
    };
    for key in keys {
        let place = |value: &mut serde_json::Value| match value {
            serde_json::Value::Array(_) => format!("/{key}"),
            _ => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        };
        let mut changed = value.clone();
        let path = place(&mut changed);
        *changed.pointer_mut(&path).unwrap() = odd.clone();
        all.push(changed);
        for inner in with_odd(value.pointer(&path).unwrap(), odd) {
            let mut changed = value.clone();
            *changed.pointer_mut(&path).unwrap() = inner;
            all.push(changed);
        }
    }
    all
}

#[test]
fn a_value_of_any_other_type_costs_at_most_its_record() {
    for (format, path) in fixtures() {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_lines = path.ends_with(".jsonl");
        let records: Vec<&str> = match is_lines {
            true => text.lines().collect(),
            false => vec![&text],
        };
        for (at, record) in records.iter().enumerate() {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(record) else {
                continue;
            };
            let odds = [
                serde_json::json!(null),
                serde_json::json!(-7.5),
                serde_json::json!([{"type": "text"}, 3]),
                serde_json::json!({"'; DROP TABLE messages; --": "../../x"}),
                serde_json::json!("'; DROP TABLE messages; -- ../../\u{0}\n"),
            ];
            for odd in odds {
                for changed in with_odd(&value, &odd) {
                    let mut lines = records.clone();
                    let changed = changed.to_string();
                    lines[at] = &changed;
                    // The recorder checks the contract.
                    Recorder::of(format, &path, lines.join("\n").as_bytes());
                }
            }
        }
    }
}

#[test]
fn lines_in_any_order_and_with_any_damage_keep_the_contract() {
    let mut random = Random(11);
    for (format, path) in fixtures() {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for round in 0..40 {
            let mut lines = lines.clone();
            for _ in 0..=random.below(4) {
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(a, b);
                lines.remove(random.below(lines.len()).min(lines.len() - 1));
                if lines.is_empty() {
                    lines.push("");
                }
                if round % 10 != 0 {
                    lines.insert(random.below(lines.len()), lines[b.min(lines.len() - 1)]);
                }
            }
            let mut bytes = lines.join("\n").into_bytes();
            for _ in 0..random.below(3) {
                if !bytes.is_empty() {
                    let at = random.below(bytes.len());
                    bytes[at] = random.below(256) as u8;
                }
            }
            Recorder::of(format, &path, &bytes);
            if round % 10 == 0 {
                let kept = random.below(text.len());
                let kept = (kept..text.len()).find(|at| text.is_char_boundary(*at));
                bytes.truncate(kept.unwrap_or(0));
                let store = store();
                import(&store, importer(format), &path, &bytes);
                is_sound(&store, &path);
                import(&store, importer(format), &path, text.as_bytes());
                is_sound(&store, &path);
            }
        }
    }
}

#[test]
fn a_huge_line_is_passed_over_and_reported() {
    let mut seen_formats = Vec::new();
    for (format, path) in fixtures()
        .into_iter()
        .filter(|(_, path)| path.ends_with(".jsonl"))
    {
        // One file of each format is enough, since such a line takes long.
        if seen_formats.contains(&format) {
            continue;
        }
        seen_formats.push(format);
        let mut bytes = std::fs::read(&path).unwrap();
        let whole = Recorder::of(format, &path, &bytes);
        bytes.extend(b"\n{\"type\":\"");
        bytes.resize(bytes.len() + loopstore_transcripts::MAX_RECORD_BYTES, b'x');
        bytes.extend(b"\"}\n{\"type\":\"\xff\"}\n");
        let recorded = Recorder::of(format, &path, &bytes);
        let seen = |recorder: &Recorder| {
            recorder
                .messages()
                .filter(|(m, _)| m.message().is_some())
                .count()
        };
        assert_eq!(seen(&recorded), seen(&whole), "{path}");
        assert_eq!(
            recorded.skipped.len(),
            // Bytes that are not UTF-8 are replaced.
            whole.skipped.len() + 1,
            "{:?}",
            recorded.skips()
        );
    }
}

#[test]
fn a_file_without_a_conversation_is_an_error_that_says_so() {
    for format in FORMATS {
        for text in [
            "",
            "\n\n",
            "nonsense",
            "{}",
            "[]",
            "[1, \"x\"]",
            "{\"type\":\"session\"}",
        ] {
            let recorded = Recorder::of(format, "s.jsonl", text.as_bytes());
            let error = recorded.error.unwrap_or_default();
            assert_eq!(error, "it holds no conversation", "{format}: {text}");
            assert!(recorded.sessions.is_empty());
        }
    }
}
