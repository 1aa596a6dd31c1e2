use super::*;

const IN: LoopKey = LoopKey(3);

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// Opens a pack of messages 0 to `last` whose digest fits.
fn opened(raw: &[u8], last: u32) -> StoreResult<Unpacked> {
    let content = compressed(raw).unwrap();
    let mut row = PackRow {
        first: 0,
        last,
        bytes: raw.len() as u64,
        digest: [0; 32],
    };
    row.digest = digest(IN, &row, &content);
    Unpacked::open(IN, row, &content)
}

#[test]
fn a_pack_of_the_first_version_is_read() {
    let content = "13c900608cd462cd19ee04b5b94fd50b7d2d0de3c38220ac8ac5a2a393e3131e880e72fa1648\
        206d598416ec806ddb52038f2423a03dfc2e137f8159f30e1785488c8cb0b994cebee8cfb9cf55dd";
    let digest = bytes("f23373c2d1e36ae305dec7c237dde26545da012e332537db59458e1407b90b8d");
    let row = PackRow {
        first: 7,
        last: 8,
        bytes: 202,
        digest: digest.try_into().unwrap(),
    };
    let pack = Unpacked::open(IN, row, &bytes(content)).unwrap();
    let head = r#"{"role":"user","content":[{"type":"text","text":""}]}"#;
    assert_eq!(pack.get(7), Some((head, Some(&*"hello".repeat(20)))));
    let head = r#"{"role":"assistant","content":[]}"#;
    assert_eq!(pack.get(8), Some((head, None)));
    assert_eq!((pack.get(6), pack.get(9)), (None, None));
    assert!(Unpacked::open(LoopKey(4), row, &bytes(content)).is_err());
}

#[test]
fn what_has_another_form_is_damage_and_no_panic() {
    let lengths = |pairs: &[(u32, u32)]| {
        let both = pairs.iter().flat_map(|(head, text)| [*head, *text]);
        both.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
    };
    let with = |pairs: &[(u32, u32)], text: &[u8]| [lengths(pairs), text.to_vec()].concat();
    assert!(opened(&with(&[(2, 0), (2, 3)], b"{}[]hi"), 1).is_ok());
    for (raw, last) in [
        (Vec::new(), 0),
        (vec![0; 7], 0),
        (with(&[(2, 0)], b"{}"), 1),
        (with(&[(2, 0), (0, 0)], b"{}"), 0),
        (with(&[(3, 0)], b"{}"), 0),
        (with(&[(1, 0)], b"{}"), 0),
        (with(&[(u32::MAX, u32::MAX)], b"{}"), 0),
        (with(&[(2, 4)], b"{}hi"), 0),
        (with(&[(1, 0)], b"\xff"), 0),
        (with(&[(2, 0)], b"{}"), u32::MAX),
    ] {
        assert!(opened(&raw, last).is_err(), "{raw:?} to {last}");
    }
    // Within a letter nothing is found, and nothing panics.
    let split = opened(&with(&[(1, 2)], "é".as_bytes()), 0).unwrap();
    assert_eq!(split.get(0), None);
}

#[test]
fn the_views_are_told_usage_calls_and_prompts() {
    let head_of = |role, head: &str| {
        let message = StoredMessage {
            role,
            author: crate::model::Author::of_role(role),
            tokens: 0,
            bytes: 0,
            lines: None,
            text_block: None,
            salt: None,
            digest: [0; 32],
            head: Some(head.to_owned()),
            text: None,
        };
        view_head(&message).unwrap()
    };
    let answer = r#"{"role":"assistant","content":[{"type":"text","text":"secret"},
        {"type":"toolCall","id":"c","name":"read","arguments":{"path":"secret"}}],
        "model":"m","usage":{"input":1.50,"service_tier":"x"},"stopReason":"secret"}"#;
    assert_eq!(
        head_of(Role::Assistant, answer).unwrap(),
        r#"{"model":"m","usage":{"input":1.50},"content":[{"type":"toolCall","id":"c","name":"read"}]}"#
    );
    let result = r#"{"role":"toolResult","toolCallId":"c","toolName":"read","content":[
        {"type":"text","text":""}],"isError":true}"#;
    assert_eq!(
        head_of(Role::ToolResult, result).unwrap(),
        r#"{"toolCallId":"c","isError":true}"#
    );
    let prompt = r#"{"role":"user","content":[{"type":"text","text":"Mend\n it"}]}"#;
    let line = r#"{"prompt":"Mend it"}"#;
    assert_eq!(head_of(Role::User, prompt).unwrap(), line);
    assert_eq!(head_of(Role::User, r#"{"role":"user","content":[]}"#), None);
    assert_eq!(head_of(Role::Extension, answer), None);
    assert_eq!(head_of(Role::Assistant, r#"{"content":"text"}"#), None);
    // Of another form than the views read: it stays as it is.
    let odd = r#"{"usage":{"input":1,"input":2}}"#;
    assert_eq!(head_of(Role::Assistant, odd).unwrap(), odd);
    assert_eq!(
        head_of(Role::Assistant, r#"{"content":[],"model":"m"}"#),
        None
    );
}
