//! Makes small changes to a text: to its bytes, its lines, or the values of its JSON.

use serde_json::{Value, json};

use crate::support::histories::Random;

/// Returns a text that mostly differs from the input.
pub fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => bytes(text, random),
        1 => lines(text, random),
        _ => values(text, random).unwrap_or_else(|| bytes(text, random)),
    }
}

fn below(random: &mut Random, n: usize) -> usize {
    random.below(n.max(1) as u64) as usize
}

fn bytes(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.below(4) {
        let at = below(random, text.len());
        match random.below(5) {
            0 if !text.is_empty() => text[at] ^= 1 << random.below(8),
            1 if !text.is_empty() => text[at] = b"{}[]\",:\\\0\x1b\xff-0e"[below(random, 14)],
            2 => text.truncate(at),
            3 => text.insert(at.min(text.len()), b"\"\\u{[\n\xf0"[below(random, 7)]),
            _ => {
                let end = (at + below(random, 60)).min(text.len());
                let part = text[at.min(end)..end].to_vec();
                let to = below(random, text.len());
                text.splice(to..to, part);
            }
        }
    }
    text
}

fn lines(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    for _ in 0..=random.below(3) {
        let (a, b) = (below(random, lines.len()), below(random, lines.len()));
        match random.below(4) {
            0 => lines.swap(a, b),
            1 => lines.insert(a, lines[b]),
            2 if lines.len() > 1 => {
                lines.remove(a);
            }
            _ => lines.truncate(a + 1),
        }
    }
    lines.join(&b'\n')
}

/// Changes values of a document, or of one of its lines.
fn values(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    if let Ok(mut value) = serde_json::from_slice::<Value>(text) {
        change_some(&mut value, random);
        return serde_json::to_vec(&value).ok();
    }
    let mut lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for _ in 0..=random.below(3) {
        let at = below(random, lines.len());
        let mut value = serde_json::from_slice(&lines[at]).ok()?;
        change_some(&mut value, random);
        lines[at] = serde_json::to_vec(&value).ok()?;
    }
    Some(lines.join(&b'\n'))
}

fn change_some(value: &mut Value, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let all = count(value);
        let at = below(random, all);
        let other = nth(value, &mut below(random, all)).cloned();
        if let Some(found) = nth(value, &mut at.clone()) {
            change(found, other, random);
        }
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn nth<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, left)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, left)),
        _ => None,
    }
}

fn change(value: &mut Value, other: Option<Value>, random: &mut Random) {
    match (random.below(4), &mut *value) {
        (0, Value::Object(fields)) => {
            let name = fields.keys().nth(below(random, fields.len())).cloned();
            name.map(|name| fields.remove(&name));
        }
        (1, Value::Array(items)) if !items.is_empty() => {
            let (a, b) = (below(random, items.len()), below(random, items.len()));
            items.swap(a, b);
            items.push(items[a].clone());
        }
        (2, _) => *value = other.unwrap_or_default(),
        _ => *value = odd(random),
    }
}

fn odd(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(""),
        7 => json!("\u{0}\u{1b}[2J\u{202e}\u{feff}"),
        8 => json!("../../../etc/passwd"),
        9 => json!("x".repeat(70_000)),
        10 => json!("9999-99-99T99:99:99Z"),
        11 => json!([]),
        12 => json!({}),
        _ => (0..90).fold(json!(1), |inner, _| json!([inner])),
    }
}
