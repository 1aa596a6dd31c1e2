//! `stats --by`: what models used, checked against sums made by hand.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::commands::stage::Stage;

/// An answer in the form of Claude Code.
struct Answer {
    id: &'static str,
    at: &'static str,
    model: &'static str,
    /// Input, output, cache reads and cache writes.
    usage: [u64; 4],
}

const fn answer(
    id: &'static str,
    at: &'static str,
    model: &'static str,
    usage: [u64; 4],
) -> Answer {
    Answer {
        id,
        at,
        model,
        usage,
    }
}

const FIRST: Answer = answer(
    "m1",
    "2026-01-05T23:59:01.000Z",
    "sonnet-4",
    [100, 20, 1_000, 50],
);
const SECOND: Answer = answer("m2", "2026-01-06T00:00:01.000Z", "opus-5", [7, 3, 0, 0]);
const THIRD: Answer = answer("m3", "2026-01-06T10:00:00.000Z", "sonnet-4", [1, 2, 3, 4]);

/// Returns a transcript with these answers.
fn transcript(session: &str, folder: &str, answers: &[&Answer]) -> String {
    let mut lines = vec![json!({
        "type": "user", "uuid": "u0", "parentUuid": null, "sessionId": session, "cwd": folder,
        "timestamp": "2026-01-05T23:59:00.000Z", "message": {"role": "user", "content": "Mend it"}
    })];
    for one in answers {
        let parent = lines.last().unwrap()["uuid"].clone();
        let [input, output, read, write] = one.usage;
        lines.push(json!({
            "type": "assistant", "uuid": format!("a-{}", one.id), "parentUuid": parent, "sessionId": session,
            "cwd": folder, "timestamp": one.at, "requestId": format!("r-{}", one.id),
            "message": {"role": "assistant", "id": one.id, "model": one.model,
                "content": [{"type": "text", "text": format!("I did {}.", one.id)}],
                "usage": {"input_tokens": input, "output_tokens": output,
                    "cache_read_input_tokens": read, "cache_creation_input_tokens": write}}
        }));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Imports a session, and a second one that was forked from it.
fn stage() -> Stage {
    let stage = Stage::empty();
    let files = [
        (
            "one.jsonl",
            transcript("one", "/work/kite", &[&FIRST, &SECOND]),
        ),
        (
            "two.jsonl",
            transcript("two", "/work/lark", &[&FIRST, &THIRD]),
        ),
    ];
    for (name, text) in files {
        std::fs::write(stage.path(name), text).unwrap();
        assert_eq!(stage.say(&format!("import {name}")).code, 0);
    }
    stage
}

fn tokens(row: &Value) -> [u64; 4] {
    ["input", "output", "cache_read", "cache_write"].map(|key| row[key].as_u64().unwrap())
}

fn sum(answers: &[&Answer]) -> [u64; 4] {
    let mut all = [0; 4];
    for answer in answers {
        for (sum, tokens) in all.iter_mut().zip(answer.usage) {
            *sum += tokens;
        }
    }
    all
}

#[test]
fn an_answer_in_two_transcripts_counts_once() {
    let stage = stage();
    let days = stage.json("stats --by day");
    assert_eq!(
        (&days["answers"], &days["repeated"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(days["rows"][0]["day"], "2026-01-05");
    assert_eq!(tokens(&days["rows"][0]), sum(&[&FIRST]));
    assert_eq!(tokens(&days["rows"][1]), sum(&[&SECOND, &THIRD]));
    assert_eq!(tokens(&days["total"]), sum(&[&FIRST, &SECOND, &THIRD]));
    let of = |line: &str, key: &str, name: &str| {
        let found = stage.json(line);
        let rows = found["rows"].as_array().unwrap().iter();
        let row = rows.into_iter().find(|row| row[key] == name);
        tokens(row.unwrap_or_else(|| panic!("{found}")))
    };
    assert_eq!(
        of("stats --by model", "model", "sonnet-4"),
        sum(&[&FIRST, &THIRD])
    );
    assert_eq!(
        of("stats --by project", "project", "/work/lark"),
        sum(&[&THIRD])
    );
    assert_eq!(
        of("stats --by session", "session_id", "one"),
        sum(&[&FIRST, &SECOND])
    );
    let late = stage.json("stats --by day --since 2026-01-06T09:00:00Z --until 2026-01-06");
    assert_eq!(tokens(&late["total"]), sum(&[&THIRD]));
    let lark = stage.json("stats --by day --project LARK");
    assert_eq!(
        tokens(&lark["total"]),
        sum(&[&FIRST, &THIRD]),
        "alone it is counted"
    );
    assert_eq!(
        stage.say("stats --since 7d").code,
        2,
        "of the whole database"
    );
}

#[test]
fn costs_have_their_currency_and_the_date_of_the_prices() {
    let stage = stage();
    let prices = json!({"currency": "USD", "date": "2026-01-01", "models": {
        "sonnet": {"input": 1_000_000, "output": 10_000_000, "cache_read": 100_000}}});
    std::fs::write(stage.path("prices.json"), prices.to_string()).unwrap();
    let priced = stage.json("stats --by model --prices prices.json");
    // A cache write without a price costs as input.
    let cost = |[input, output, read, write]: [u64; 4]| {
        (input + write) as f64 + 10.0 * output as f64 + 0.1 * read as f64
    };
    let expected = cost(FIRST.usage) + cost(THIRD.usage);
    let found = priced["total"]["cost"].as_f64().unwrap();
    assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    assert_eq!(
        (&priced["currency"], &priced["prices_date"]),
        (&json!("USD"), &json!("2026-01-01"))
    );
    assert_eq!(priced["unpriced"], json!(["opus-5"]));
    assert_snapshot!(stage.say("stats --by model --prices prices.json"), @r"
    MODEL     INPUT  OUTPUT  CACHE READ  CACHE WRITE  REASONING  ANSWERS    COST
    sonnet-4    101      22       1,003           54          0        2  475.30
    opus-5        7       3           0            0          0        1    0.00
    all         108      25       1,003           54          0        3  475.30

    Cost in USD, prices of 2026-01-01.
    1 repeated answer in other transcripts, counted once.
    Without a price: opus-5.
    ");
    assert_snapshot!(stage.say("stats --by day"), @r"
    DAY         INPUT  OUTPUT  CACHE READ  CACHE WRITE  REASONING  ANSWERS  COST
    2026-01-05    100      20       1,000           50          0        1  0.00
    2026-01-06      8       5           3            4          0        2  0.00
    all           108      25       1,003           54          0        3  0.00

    No cost is known: give a price table with --prices.
    1 repeated answer in other transcripts, counted once.
    ");
    assert_eq!(stage.say("stats --by day --prices nowhere.json").code, 1);
}
