//! Damaged, truncated or hostile transcripts: usable records are imported, the others are reported.

use std::io::{Cursor, Read as _};
use std::path::Path;

use loopstore_transcripts::{ClaudeCode, Importer, MAX_RECORD_BYTES};

use crate::claude_code::recorder::{Recorder, TestSession};

fn user(uuid: &str, parent: &str, text: &str) -> String {
    format!(
        r#"{{"type":"user","sessionId":"s","uuid":"{uuid}","parentUuid":{parent},"message":{{"role":"user","content":"{text}"}}}}"#
    )
}

fn answer(uuid: &str, parent: &str, id: &str, text: &str) -> String {
    format!(
        r#"{{"type":"assistant","sessionId":"s","uuid":"{uuid}","parentUuid":"{parent}","message":{{"id":"{id}","role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

fn import(lines: &[String]) -> Recorder {
    Recorder::of("s.jsonl", lines.join("\n").as_bytes())
}

#[test]
fn unreadable_lines_are_reported_and_kept_unless_the_file_ends_in_them() {
    let mut bytes = user("p", "null", "hello").into_bytes();
    bytes.extend(b"\n{\"type\":\"user\",\"text\":\"\xff\"}\n\n[1]\n");
    bytes.extend(format!("{}{}\n", "[".repeat(10_000), "]".repeat(10_000)).bytes());
    bytes.extend(answer("a", "p", "m", "hi").bytes());
    bytes.extend(br#"{"type":"assistant","mess"#);
    let recorded = Recorder::of("s.jsonl", &bytes);
    let skips = recorded.skips();
    let lines: Vec<&str> = skips
        .iter()
        .map(|skip| skip.split(':').next().unwrap())
        .collect();
    // Line 2 has bytes that are not UTF-8: they are replaced, and the record is read.
    assert_eq!(lines, ["4", "5", "6"], "{skips:?}");
    assert!(
        skips[1].contains("nested deeper") && skips[2].contains("cut off"),
        "{skips:?}"
    );
    let notes = "    - note user\n    - note unreadable\n    - note unreadable\n";
    let expected = format!(
        "session s\n  loop p Initial Completed\n    0 user hello\n{notes}    0 assistant hi\n"
    );
    assert_eq!(recorded.outline(), expected);
}

#[test]
fn half_an_emoji_costs_one_character() {
    let recorded = import(&[
        user("p", "null", r"he\ud83dllo"),
        answer("a", "p", "m", r"hi \ud83d\ude00 \ude00"),
    ]);
    assert_eq!(recorded.skips(), [""; 0]);
    let expected = "session s\n  loop p Initial Completed\n    0 user he\u{fffd}llo\n    0 assistant hi \u{1f600} \u{fffd}\n";
    assert_eq!(recorded.outline(), expected);
}

#[test]
fn a_huge_record_is_passed_over() {
    let head = format!(
        "{}\n{{\"type\":\"user\",\"x\":\"",
        user("p", "null", "hello")
    );
    let tail = format!("\"}}\n{}", answer("a", "p", "m", "hi"));
    let mut bytes = head.into_bytes();
    std::io::repeat(b'x')
        .take(MAX_RECORD_BYTES as u64)
        .read_to_end(&mut bytes)
        .unwrap();
    bytes.extend(tail.bytes());
    let recorded = Recorder::of("s.jsonl", &bytes);
    assert_eq!(
        recorded.skips(),
        [format!("2: longer than {MAX_RECORD_BYTES} bytes")]
    );
    assert_eq!(recorded.messages().count(), 2);
}

#[test]
fn cycles_and_missing_parents_do_not_stop_the_import() {
    let recorded = import(&[
        user("p", "\"a\"", "hello"),
        answer("a", "p", "m1", "hi"),
        answer("b", "c", "m2", "before its parent"),
        answer("c", "b", "m3", "after it"),
        user("self", "\"self\"", "myself"),
        answer("d", "nowhere", "m4", "lost"),
    ]);
    assert_eq!(recorded.skips(), [""; 0]);
    assert_eq!(
        recorded.outline(),
        "session s\n  loop p Initial Completed\n    0 user hello\n    0 assistant hi\n    \
         1 assistant before its parent\n    2 assistant after it\n  \
         loop self Default after p:2 Completed\n    0 user myself\n    0 assistant lost\n"
    );
}

#[test]
fn a_uuid_that_comes_twice_stands_once_unless_it_says_something_else() {
    let recorded = import(&[
        user("p", "null", "hello"),
        answer("a", "p", "m1", "hi"),
        user("p", "null", "hello"),
        user("p", "\"a\"", "something else"),
    ]);
    assert_eq!(recorded.skips(), ["3: repeats the record of line 1"]);
    let loops = &recorded.sessions[0].loops;
    let ids: Vec<&str> = loops.iter().map(|l| l.record.loop_id.as_str()).collect();
    assert_eq!(ids, ["p", "p~2"]);
}

#[test]
fn odd_shapes_of_fields_do_not_cost_the_record() {
    let line = r#"{"type":"user","sessionId":7,"uuid":{},"parentUuid":[],"isSidechain":"no","timestamp":5,"message":{"content":[{"type":"text","text":5},"bare",7,null]}}"#;
    let recorded = import(&[line.to_owned(), answer("a", "x", "", "hi")]);
    assert_eq!(recorded.skips(), [""; 0]);
    assert_eq!(
        recorded.outline(),
        "session s\n  loop line-1 Initial Completed\n    0 user bare\n    0 assistant hi\n"
    );
}

#[test]
fn a_file_without_a_conversation_is_an_error() {
    let summary = r#"{"type":"summary","summary":"A title","leafUuid":"x"}"#;
    for text in ["", "\n\n", summary, "nonsense"] {
        let recorded = Recorder::of("s.jsonl", text.as_bytes());
        assert_eq!(
            recorded.error.as_deref(),
            Some("it holds no conversation"),
            "{text}"
        );
        assert!(recorded.sessions.is_empty());
    }
}

#[test]
fn other_formats_are_not_taken_for_claude_code() {
    let detects = |head: &str| ClaudeCode.detect(Path::new("x.jsonl"), head.as_bytes());
    assert!(detects(&user("p", "null", "hello")));
    assert!(detects(&user("p", "null", "hello")[..70]));
    for other in [
        "",
        r#"{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}"#,
        r#"{"type":"session.start","data":{"sessionId":"x"},"id":"1","timestamp":"t","parentId":null}"#,
        r#"{"type":"session","id":"x","cwd":"/"}"#,
        r#"{"session_id":"x","loops":[]}"#,
    ] {
        assert!(!detects(other), "{other}");
    }
}

/// Checks that a longer transcript yields everything that a shorter one yields: the same loops, messages and raw
/// records, except that the last turn of a loop may have grown.
fn assert_prefix(short: &Recorder, long: &Recorder, what: &str) {
    for session in &short.sessions {
        let id = &session.head.session.session_id;
        let later = long
            .sessions
            .iter()
            .find(|s| s.head.session.session_id == *id);
        assert_session_prefix(session, later.expect(what), what);
    }
}

fn assert_session_prefix(short: &TestSession, long: &TestSession, what: &str) {
    for (before, after) in short.loops.iter().zip(&long.loops) {
        let fixed = |l: &crate::claude_code::recorder::TestLoop| {
            let r = &l.record;
            (
                r.loop_id.clone(),
                r.parent_loop_id.clone(),
                r.parent_turn.clone(),
                r.continuation_kind.clone(),
            )
        };
        assert_eq!(fixed(before), fixed(after), "{what}");
        let last = before
            .messages
            .iter()
            .filter_map(|(m, _)| m.turn_index())
            .max();
        for (at, (message, raw)) in before.messages.iter().enumerate() {
            let (later, later_raw) = &after.messages[at];
            if message.turn_index() == last && last.is_some() {
                assert!(later_raw.starts_with(raw), "{what}: message {at}");
                assert_eq!(message.role(), later.role(), "{what}: message {at}");
            } else {
                assert_eq!((message, raw), (later, later_raw), "{what}: message {at}");
            }
        }
    }
    assert!(short.loops.len() <= long.loops.len(), "{what}");
    for (before, after) in short.compactions.iter().zip(&long.compactions) {
        let place =
            |c: &(loopstore_transcripts::FoundCompaction, usize)| (c.0.loop_id.clone(), c.1);
        assert_eq!(place(before), place(after), "{what}");
        assert_eq!(before.0.record, after.0.record, "{what}");
    }
    assert!(short.compactions.len() <= long.compactions.len(), "{what}");
}

/// Checks every prefix that ends at one of `ends`.
pub fn assert_prefixes(path: &Path, bytes: &[u8], ends: impl Iterator<Item = usize>) {
    let mut before = Recorder::default();
    for end in ends {
        let now = Recorder::of(path, &bytes[..end]);
        assert_prefix(&before, &now, &format!("{} at byte {end}", path.display()));
        before = now;
    }
}

pub fn line_ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let ends = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1);
    ends.chain(std::iter::once(bytes.len()))
}

#[test]
fn a_transcript_that_grows_gives_what_it_gave_before() {
    for name in [
        "kite-1",
        "rewinds",
        "compactions",
        "project/parent-7",
        "project/parent-7/subagents/agent-d1g",
    ] {
        let path = format!("../../tests/fixtures/claude-code/{name}.jsonl");
        let bytes = std::fs::read(&path).unwrap();
        assert_prefixes(Path::new(&path), &bytes, line_ends(&bytes));
        assert_prefixes(Path::new(&path), &bytes, (0..bytes.len()).step_by(37));
    }
    // The session is identified by the last record, so all records must be of one session.
    let path = "../../tests/fixtures/claude-code/resumed-1.0.jsonl";
    let text = std::fs::read_to_string(path)
        .unwrap()
        .replace("old-session", "new-session");
    assert_prefixes(Path::new(path), text.as_bytes(), line_ends(text.as_bytes()));
}

#[test]
fn the_reader_may_stand_anywhere_when_an_import_begins() {
    let mut reader = Cursor::new(user("p", "null", "hello").into_bytes());
    reader.set_position(20);
    let mut recorder = Recorder::default();
    let mut source = loopstore_transcripts::Source {
        path: Path::new("s.jsonl"),
        reader: &mut reader,
    };
    ClaudeCode.import(&mut source, &mut recorder).unwrap();
    assert_eq!(recorder.messages().count(), 1);
}

#[test]
fn a_file_that_begins_in_mid_session_has_a_first_loop_without_a_prompt() {
    let command = user("c", "null", "<command-name>/init</command-name>");
    let boundary = r#"{"type":"system","subtype":"compact_boundary","uuid":"b","parentUuid":null}"#;
    let summary =
        user("s", "\"b\"", "So far").replace("\"user\",", "\"user\",\"isCompactSummary\":true,");
    let answered = import(&[
        command.clone(),
        answer("a", "c", "m", "done"),
        user("p", "\"a\"", "next"),
    ]);
    assert_eq!(
        answered.outline(),
        "session s\n  loop c Initial Completed\n    0 user <command-name>/init</command-name>\n    \
         0 assistant done\n  loop p Default after c:0 Running\n    0 user next\n"
    );
    let prompted = import(&[command, user("p", "\"c\"", "next")]);
    assert_eq!(
        prompted.outline(),
        "session s\n  loop p Initial Running\n    0 user <command-name>/init</command-name>\n    \
         0 user next\n"
    );
    let compacted = import(&[boundary.into(), summary, answer("a", "s", "m", "on")]);
    assert_eq!(
        compacted.outline(),
        "session s\n  loop s Initial Completed\n    - note system-record\n    0 user So far\n    \
         0 assistant on\n"
    );
}

#[test]
fn lines_in_any_order_and_with_any_damage_keep_the_contract() {
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for name in ["kite-1", "rewinds", "compactions", "resumed-1.0"] {
        let text =
            std::fs::read_to_string(format!("../../tests/fixtures/claude-code/{name}.jsonl"))
                .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for _ in 0..150 {
            let mut lines = lines.clone();
            for _ in 0..=random(6) {
                let (a, b) = (random(lines.len()), random(lines.len()));
                lines.swap(a, b);
                lines.remove(random(lines.len()));
                lines.insert(random(lines.len()), lines[b.min(lines.len() - 1)]);
            }
            let mut bytes = lines.join("\n").into_bytes();
            for _ in 0..random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            Recorder::of(format!("{name}.jsonl"), &bytes);
        }
    }
}
