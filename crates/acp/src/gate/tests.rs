use super::*;

fn envelope(line: &str) -> Envelope<'_> {
    Envelope::read(line.as_bytes()).unwrap()
}

fn feed(pieces: &[(&str, bool)]) -> Vec<String> {
    let mut holder = Holder::default();
    let mut found = Vec::new();
    for (bytes, holds) in pieces {
        let each = |piece: LinePiece<'_>| {
            found.push(match piece {
                LinePiece::Raw(bytes) => format!("raw {}", String::from_utf8_lossy(bytes)),
                LinePiece::Line(line) => format!("line {}", String::from_utf8_lossy(line)),
            });
            Ok(())
        };
        holder.feed(bytes.as_bytes(), || *holds, each).unwrap();
    }
    found.push(format!("held {}", String::from_utf8_lossy(&holder.held)));
    found
}

#[test]
fn bytes_pass_at_once_until_lines_are_held_and_a_begun_line_is_never_held() {
    assert_eq!(
        feed(&[("ab", false), ("c\nde", true), ("f\ng\nh", true)]),
        ["raw ab", "raw c\n", "line def\n", "line g\n", "held h"]
    );
    // A line that is held passes when lines are no longer held.
    assert_eq!(
        feed(&[("ab", true), ("cd", false), ("e\nf", true)]),
        ["raw abcd", "raw e\n", "held f"]
    );
}

#[test]
fn the_first_request_is_found_wherever_the_stream_is_cut() {
    let line = r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}"#;
    assert_eq!(initialize_id(line.as_bytes()).as_deref(), Some("\"a\""));
    for other in [
        r#"{"method":"initialize"}"#,
        r#"{"id":1,"method":"initialized"}"#,
        r#"{"id":1,"method":"x","params":"initialize"}"#,
        "initialize",
    ] {
        assert_eq!(initialize_id(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn only_what_is_missing_is_added_to_capabilities_of_every_form() {
    let changed = |result: &str| {
        let line = format!(r#"{{"id":0,"result":{result} }}"#);
        let message = envelope(&line);
        let changed = with_capabilities(line.as_bytes(), &message, missing(&message)?)?;
        Some(String::from_utf8(changed).unwrap())
    };
    assert_eq!(
        changed(r#"{"protocolVersion":1}"#).unwrap(),
        r#"{"id":0,"result":{"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{},"list":{}}},"protocolVersion":1} }"#
    );
    let own = r#"{"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":null}},"protocolVersion":1}"#;
    let expected = r#"{"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{},"list":{}}},"protocolVersion":1}"#;
    assert_eq!(
        changed(own).unwrap(),
        format!(r#"{{"id":0,"result":{expected} }}"#)
    );
    for unchanged in [
        r#"{"protocolVersion":2}"#,
        r#"{"agentCapabilities":{}}"#,
        r#"{"protocolVersion":1,"agentCapabilities":[]}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":7}}"#,
        r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{}}}}"#,
        "[]",
    ] {
        assert_eq!(changed(unchanged), None, "{unchanged}");
    }
}

#[test]
fn a_message_for_a_stored_session_differs_in_its_id_and_its_first_prompt_in_its_first_block() {
    let mut serving = Serving::default();
    let session = ServedSession {
        agent_id: "y\"".into(),
        context: Some("before".into()),
    };
    serving.served.insert("x".into(), session);
    let mut pass = |line: &str| {
        let changed = translated(&mut serving, line.as_bytes(), &envelope(line));
        changed.map(|line| String::from_utf8(line).unwrap())
    };
    let other = r#"{"method":"session/prompt","params":{"sessionId":"z","prompt":[]}}"#;
    assert_eq!(pass(other), None);
    let mode = r#"{"method":"session/set_mode" , "params":{ "modeId":"m", "sessionId" : "x" }}"#;
    let expected =
        r#"{"method":"session/set_mode" , "params":{ "modeId":"m", "sessionId" : "y\"" }}"#;
    assert_eq!(pass(mode).as_deref(), Some(expected));
    let prompt =
        r#"{"method":"session/prompt","params":{"sessionId":"x","prompt":[ {"type":"image"} ]}}"#;
    assert_eq!(
        pass(prompt).as_deref(),
        Some(
            r#"{"method":"session/prompt","params":{"sessionId":"y\"","prompt":[{"text":"before","type":"text"}, {"type":"image"} ]}}"#
        )
    );
    assert_eq!(pass(prompt).unwrap(), prompt.replace("\"x\"", "\"y\\\"\""));
}
