//! Texts that are secrets, and texts that are not.

use loopstore::*;
use loopstore_redact::Redactor;

fn redactor() -> Redactor {
    Redactor::new(b"the key of a test")
}

/// Returns the types found in a text.
fn types(text: &str) -> Vec<String> {
    let mut redactor = redactor();
    redactor.text(text);
    redactor.counts().keys().cloned().collect()
}

#[test]
fn secrets_are_found_by_type() {
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0u\nV1wX2yZ3aB4cD5eF6gH7iJ8kL9mN0oP1qR2sT3uV4wX5yZ6=\n-----END RSA PRIVATE KEY-----";
    let cut = &pem[..pem.len() - 40];
    for (kind, text) in [
        ("aws-access-key", "id AKIAQ3EGRNXWJ7PLMVT2 here"),
        ("github-pat", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        (
            "slack-bot-token",
            "xoxb-123456789012-123456789012-abcdefghijABCDEFGHIJ1234",
        ),
        (
            "url-password",
            "postgres://app:pa55word@db.example.org:5432/app",
        ),
        ("url-password", "https://:onlypass@host/"),
        ("private-key", pem),
        ("private-key", cut),
        (
            "authorization-header",
            "Authorization: Bearer abc123def456ghi",
        ),
        (
            "authorization-header",
            "-H 'authorization: Basic dXNlcjpwYXNz'",
        ),
        ("password", "DB_PASSWORD=hunter2x"),
        ("password", "password: 'correct horse' passwd=\"s3cr3t!\""),
        ("password", "PGPASSWORD=tr0ub4dor psql"),
        (
            "generic-api-key",
            "api_key = \"9f8e7d6c5b4a39281706f5e4d3c2b1a0\"",
        ),
    ] {
        let found = types(text);
        assert!(
            found.contains(&kind.to_owned()),
            "{kind}: {text}: {found:?}"
        );
    }
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for text in [
        "",
        "the password is not written here",
        "password: str, token: Token, key: value",
        "password = get_password(user)",
        "password=$DB_PASSWORD",
        "export PASSWORD=${PASSWORD}",
        "https://user:password@host",
        "https://example.org:8080/a@b",
        "see http://host/path:with@sign",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "uuid 0192a0b4-3c1d-7e22-9a55-c0ffee123456",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "Authorization: Bearer <token>",
        "let key = map.keys().next();",
        "monkey = 'banana'",
        "[REDACTED:github-pat:abc123] password=[REDACTED:password:abc123]",
        "日本語のテキスト、パスワード",
    ] {
        assert_eq!(redactor().text(text), None, "{text}: {:?}", types(text));
    }
}

#[test]
fn escapes_hide_nothing() {
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let key = "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\\n-----END PRIVATE KEY-----\\n";
    let json = [
        format!(r#"{{"a":"\u0067hp_{}"}}"#, &token[4..]),
        format!(r#"{{"a":"{{\"b\":\"\\u0067hp_{}\"}}"}}"#, &token[4..]),
        r#"{"url":"https:\/\/me:pa55w0rd@x.org"}"#.to_owned(),
        r#"{"a":"{\"url\":\"https:\\/\\/me:pa55w0rd@x.org\"}"}"#.to_owned(),
        format!(r#"{{"key":"{key}"}}"#),
        format!(r#"{{"a":"{{\"key\":\"{}\"}}"}}"#, key.replace('\\', "\\\\")),
        format!(r#"{{"{token}":1}}"#),
        r#"{"password":"hunter2x","n":1.50}"#.to_owned(),
        r#"{"env":{"API_TOKEN":"9f8e7d6c5b4a39281706f5e4d3c2b1a0"}}"#.to_owned(),
    ];
    for text in &json {
        let mut redactor = redactor();
        let new = redactor.json(text).unwrap_or_else(|| panic!("{text}"));
        for part in ["abcdefghij", "pa55w0rd", "MIIEvQ", "hunter2x", "9f8e7d6c"] {
            assert!(!new.contains(part), "{new}");
        }
        Json::parse(&new).unwrap();
        assert_eq!(redactor.json(&new), None, "a marker is no secret: {new}");
    }
    assert!(redactor().json(&json[7]).unwrap().contains("\"n\":1.50"));
}

#[test]
fn markers_are_equal_for_equal_secrets_and_keyed() {
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let marker = redactor().text(token).unwrap();
    assert!(
        marker.starts_with("[REDACTED:github-pat:") && marker.len() == 28,
        "{marker}"
    );
    assert_eq!(redactor().text(token).unwrap(), marker);
    let escaped = format!("\\u0067hp_{}", &token[4..]);
    assert_eq!(redactor().text(&escaped).unwrap(), marker);
    assert_ne!(Redactor::new(b"another key").text(token).unwrap(), marker);
    let other = redactor().text(&token.replace("0123", "3210")).unwrap();
    assert_ne!(other, marker);
}

#[test]
fn signatures_images_and_everything_around_a_secret_stay() {
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let text = format!(
        r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"no","signature":"{token}"}},
        {{"type":"thinking","thinking":"{token}","signature":"x"}},
        {{"type":"image","data":"{token}","mimeType":"image/png"}},
        {{"type":"sealed","provider":"openai","item":{{"type":"reasoning","encrypted_content":"{token}"}}}},
        {{"type":"toolCall","id":"c","name":"n","arguments":{{"data":"{token}","x":1e2}}}}],"odd":"é\u0000"}}"#
    );
    let message: AgentMessage = serde_json::from_str(&text).unwrap();
    let mut redactor = redactor();
    let new = redactor.message(&message).unwrap().unwrap();
    let new = serde_json::to_string(&new).unwrap();
    assert_eq!(new.matches(token).count(), 3, "{new}");
    assert!(!new.contains("\"signature\":\"x\""), "{new}");
    assert!(
        new.contains("\"x\":1e2") && new.contains("\"odd\":\"é\\u0000\""),
        "{new}"
    );
    assert_eq!(redactor.counts()["github-pat"], 2);
}
