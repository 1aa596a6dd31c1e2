//! Summarisers over HTTP, with a correct server and with faulty ones.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::hang::{self, HUNG};
use crate::support::http_server::{HttpServer, ServedResponse};
use loopstore::compact::CompactOutcome;
use loopstore::compaction::summarize::http::{
    AnthropicSummarizer, ApiKey, HttpOptions, OpenAiSummarizer, RetryOptions,
};
use loopstore::*;
use serde_json::{Value, json};

use crate::summarize::stage::{ANSWER, Stage, open, text, turns_in};

const KEY: &str = "sk-very-secret-0123456789";

fn openai(text: &str) -> Vec<u8> {
    json!({"id": "c", "model": "gpt-test-1", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
            "prompt_tokens_details": {"cached_tokens": 200}}})
    .to_string()
    .into_bytes()
}

fn anthropic(text: &str) -> Vec<u8> {
    json!({"type": "message", "model": "claude-test-1", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 900, "output_tokens": 60, "cache_read_input_tokens": 10}})
    .to_string()
    .into_bytes()
}

fn answers(body: Vec<u8>) -> ServedResponse {
    ServedResponse::Answers(200, "", body)
}

fn refuses(status: u16, headers: &'static str) -> ServedResponse {
    let body = json!({"error": {"type": "some_error", "message": format!("no, {KEY} is bad")}});
    ServedResponse::Answers(status, headers, body.to_string().into_bytes())
}

fn options(url: &str) -> HttpOptions {
    let mut options = HttpOptions::new(url, "model-x").key(ApiKey::new(KEY));
    options.retry.first_wait = Duration::from_millis(10);
    options.max_answer_bytes = 100_000;
    options
}

fn strategy(url: &str) -> SummarizeCompaction {
    by(Arc::new(OpenAiSummarizer::new(options(url))))
}

fn by(summarizer: Arc<dyn Summarizer>) -> SummarizeCompaction {
    SummarizeCompaction::new(summarizer).options(SummarizeOptions {
        timeout: HUNG,
        ..SummarizeOptions::default()
    })
}

fn body_of(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn an_openai_compatible_endpoint_writes_the_summary() {
    let (stage, server) = (
        Stage::new(10),
        HttpServer::start(vec![answers(openai(ANSWER))]),
    );
    let report = stage.compact(strategy(&format!("{}/v1/", server.url)));
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    assert!(stage.summary().starts_with("[Working state"));
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")));
    let body = body_of(request);
    assert_eq!(body["model"], "model-x");
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.3), &json!(2000))
    );
    assert_eq!(body["messages"][0]["role"], "system");
    assert!(
        body["messages"][1]["content"]
            .as_str()
            .unwrap()
            .contains("prompt 2, please")
    );
    let usage: Value = serde_json::from_str(&stage.run("usage")).unwrap();
    assert_eq!(usage["model"], "gpt-test-1");
    assert_eq!(
        (&usage["input"], &usage["cache_read"]),
        (&json!(800), &json!(200))
    );
    assert_eq!(usage["total_tokens"], 1050);
}

#[test]
fn anthropics_endpoint_writes_the_summary() {
    let (stage, server) = (
        Stage::new(10),
        HttpServer::start(vec![answers(anthropic(ANSWER))]),
    );
    let report = stage.compact(by(Arc::new(AnthropicSummarizer::new(options(&server.url)))));
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /v1/messages HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains(&format!("x-api-key: {KEY}\r\n")));
    assert!(request.contains("anthropic-version: 2023-06-01\r\n"));
    let body = body_of(request);
    assert!(
        body["system"]
            .as_str()
            .unwrap()
            .contains("never an instruction")
    );
    assert_eq!(body["messages"][0]["role"], "user");
    let usage: Value = serde_json::from_str(&stage.run("usage")).unwrap();
    assert_eq!(
        (&usage["input"], &usage["output"]),
        (&json!(900), &json!(60))
    );
}

#[test]
fn a_busy_server_is_asked_again_when_it_says() {
    let parts = vec![
        refuses(429, "retry-after: 1\r\n"),
        refuses(503, ""),
        answers(openai(ANSWER)),
    ];
    let (stage, server) = (Stage::new(10), HttpServer::start(parts));
    let begun = Instant::now();
    let report = stage.compact(strategy(&server.url));
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 3);
}

/// Compacts against a server that fails; returns the reason in the audit row and the requests.
fn falls_back(part: ServedResponse) -> (String, usize) {
    let (stage, server) = (Stage::new(10), HttpServer::start(vec![part]));
    let reason = reason(&stage, strategy(&server.url));
    (reason, server.requests().len())
}

fn reason(stage: &Stage, strategy: SummarizeCompaction) -> String {
    let report = stage.compact(strategy);
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert_eq!(
        stage.run("strategy, outcome, fallback"),
        "summarize|committed|digest"
    );
    assert!(stage.summary().contains("please"));
    let reason = stage.run("error");
    assert_eq!(report.error.as_deref(), Some(reason.as_str()));
    reason
}

fn gone() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn nobody_listening_falls_back() {
    let reason = reason(&Stage::new(10), strategy(&gone()));
    assert_eq!(reason, "cannot reach the summariser: connection refused");
}

#[test]
fn a_refusal_falls_back_at_once() {
    assert_eq!(
        falls_back(refuses(401, "")),
        ("the summariser answered 401: some_error".into(), 1)
    );
    let moved = ServedResponse::Answers(302, "location: http://127.0.0.1:1/\r\n", Vec::new());
    assert_eq!(falls_back(moved), ("the summariser answered 302".into(), 1));
    let (reason, requests) = falls_back(refuses(400, ""));
    assert_eq!(
        reason,
        "the summariser answered 400: some_error: no, [key] is bad"
    );
    assert_eq!(requests, 1);
}

#[test]
fn a_server_that_stays_busy_falls_back_in_the_end() {
    let (reason, requests) = falls_back(refuses(500, ""));
    assert!(
        reason.starts_with("the summariser answered 500"),
        "{reason}"
    );
    assert_eq!(requests, 3);
    // The server asks for a longer delay than the time limit.
    let (reason, requests) = falls_back(refuses(429, "retry-after: 3600\r\n"));
    assert!(
        reason.starts_with("the summariser answered 429"),
        "{reason}"
    );
    assert_eq!(requests, 1);
}

#[test]
fn a_slow_server_falls_back_at_the_deadline() {
    let drip = ServedResponse::Drips(openai(ANSWER), Duration::from_millis(50));
    let quiet = ServedResponse::Silent(2 * HUNG);
    for part in [drip, quiet] {
        let (stage, server) = (Stage::new(10), HttpServer::start(vec![part]));
        let strategy = strategy(&server.url).options(SummarizeOptions {
            timeout: Duration::from_millis(400),
            ..SummarizeOptions::default()
        });
        assert_eq!(
            reason(&stage, strategy),
            "the summariser did not answer in time"
        );
    }
}

#[test]
fn a_broken_connection_falls_back() {
    let (reason, requests) = falls_back(ServedResponse::Cut(b"{\"choices\": [".to_vec()));
    assert!(
        reason.starts_with("cannot reach the summariser"),
        "{reason}"
    );
    assert_eq!(requests, 3);
    let (reason, _) = falls_back(ServedResponse::HangsUp);
    assert!(
        reason.starts_with("cannot reach the summariser"),
        "{reason}"
    );
}

#[test]
fn an_answer_that_is_none_falls_back() {
    let of = |body: &[u8]| falls_back(answers(body.to_vec())).0;
    assert!(of(b"{\"choices\": [").starts_with("cannot read the answer: EOF"));
    assert!(of(b"").starts_with("cannot read the answer: EOF"));
    assert_eq!(
        of(b"{\"a\":\"\xff\xfe\"}"),
        "cannot read the answer: it is not UTF-8"
    );
    assert_eq!(
        of(b"{\"choices\":[]}"),
        "cannot read the answer: it has no choice"
    );
    assert_eq!(of(&openai("")), "the answer is empty");
    let null = br#"{"choices":[{"message":{"content":null}}]}"#;
    assert_eq!(of(null), "the answer is empty");
    let refused = br#"{"choices":[{"message":{"content":null,"refusal":"no"}}]}"#;
    assert_eq!(of(refused), "cannot read the answer: the model refused: no");
    assert_eq!(
        of(&vec![b' '; 200_000]),
        "the answer is longer than 100000 bytes"
    );
    let reason = of(&openai(&format!("{ANSWER}{}", " and more".repeat(9_000))));
    assert!(reason.contains("no fewer than its input of "), "{reason}");
}

#[test]
fn a_cancelled_request_ends_at_once() {
    let parts = vec![refuses(429, "retry-after: 50000\r\n")];
    let (stage, server, flag) = (Stage::new(10), HttpServer::start(parts), CancelFlag::new());
    let (other, asked) = (flag.clone(), server.clone());
    std::thread::spawn(move || {
        hang::until("the server is asked", || !asked.requests().is_empty());
        other.cancel();
    });
    // The requested delay is half a day.
    let day = Duration::from_secs(86_400);
    let mut options = options(&server.url);
    options.retry.longest_wait = day;
    let strategy = by(Arc::new(OpenAiSummarizer::new(options))).options(SummarizeOptions {
        timeout: day,
        ..SummarizeOptions::default()
    });
    let reason = reason(&stage, strategy.cancel(flag));
    assert_eq!(reason, "the summary was cancelled");
}

#[test]
fn the_key_is_nowhere_but_in_its_header() {
    let (stage, server) = (Stage::new(10), HttpServer::start(vec![refuses(400, "")]));
    let summarizer = OpenAiSummarizer::new(options(&server.url));
    assert!(!format!("{summarizer:?} {:?}", options(&server.url)).contains(KEY));
    let report = stage.compact(by(Arc::new(summarizer)));
    assert!(!format!("{report:?}").contains(KEY));
    for table in ["runs", "blocks", "block_messages", "store_meta"] {
        let rows = stage
            .store
            .query(&format!("SELECT * FROM {table}"))
            .unwrap();
        assert!(!format!("{:?}", rows.rows).contains(KEY), "{table}");
    }
    let bad = options(&server.url).key(ApiKey::new("line\nbreak"));
    let report = Stage::new(10).compact(by(Arc::new(OpenAiSummarizer::new(bad))));
    let error = report.error.unwrap();
    assert!(
        error.contains("no header can hold") && !error.contains("break"),
        "{error}"
    );
}

#[test]
fn others_write_while_the_server_thinks() {
    let (ready, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let server = HttpServer::start(vec![ServedResponse::Waits(gate, openai(ANSWER))]);
    let stage = Stage::new(10);
    let (path, loop_key, asked) = (stage.path.clone(), stage.loop_key, server.clone());
    // The server answers after the others have written.
    let writer = std::thread::spawn(move || {
        hang::until("the server is asked", || !asked.requests().is_empty());
        turns_in(&open(&path), loop_key, 1);
        ready.send(()).unwrap();
    });
    let report = stage.compact(strategy(&server.url));
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    writer.join().unwrap();
    let texts: Vec<String> = stage.context().messages.iter().map(text).collect();
    assert_eq!(texts[texts.len() - 2], "prompt 10, please");
}

#[test]
fn the_defaults_are_patient_but_bounded() {
    let retry = RetryOptions::default();
    assert_eq!(retry.attempts, 3);
    assert_eq!(HttpOptions::new("u", "m").max_answer_bytes, 1 << 20);
}
