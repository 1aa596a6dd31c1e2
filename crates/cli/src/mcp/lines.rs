//! The lines of the protocol: invalid lines are answered here, and the others are passed to the server.
//!
//! The server's own reader skips a line that it cannot parse, and the client would wait for an answer forever.

use std::io;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, Stdin, Stdout, WriteHalf,
};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// The size of the buffer between the client and the server in each direction, in bytes.
const BUFFER: usize = 64 << 10;

/// The JSON-RPC error for a line that is not JSON.
const PARSE_ERROR: i64 = -32_700;
/// The JSON-RPC error for JSON that is not a request, a notification or a response.
const INVALID_REQUEST: i64 = -32_600;

/// Starts to pass stdin to the server, and the server's output to stdout. Returns the server's end of the stream, and a
/// handle that finishes when all output was passed on.
pub fn start() -> (DuplexStream, JoinHandle<io::Result<()>>) {
    let (server, client) = tokio::io::duplex(BUFFER);
    let (from_server, to_server) = tokio::io::split(client);
    let stdout = Arc::new(Mutex::new(tokio::io::stdout()));
    tokio::spawn(pass_in(tokio::io::stdin(), to_server, Arc::clone(&stdout)));
    (server, tokio::spawn(pass_out(from_server, stdout)))
}

/// Passes lines to the server; lines that are not part of the protocol are answered here.
async fn pass_in(
    stdin: Stdin,
    mut server: WriteHalf<DuplexStream>,
    stdout: Arc<Mutex<Stdout>>,
) -> io::Result<()> {
    let mut stdin = BufReader::new(stdin);
    let mut line = Vec::new();
    while stdin.read_until(b'\n', &mut line).await? > 0 {
        match fault(&line) {
            Some(answer) => write_line(&stdout, answer.to_string().as_bytes()).await?,
            None => server.write_all(&line).await?,
        }
        line.clear();
    }
    server.shutdown().await
}

/// Passes whole lines of the server to stdout.
async fn pass_out(server: ReadHalf<DuplexStream>, stdout: Arc<Mutex<Stdout>>) -> io::Result<()> {
    let mut server = BufReader::new(server);
    let mut line = Vec::new();
    while server.read_until(b'\n', &mut line).await? > 0 {
        write_line(&stdout, line.trim_ascii_end()).await?;
        line.clear();
    }
    Ok(())
}

async fn write_line(stdout: &Mutex<Stdout>, line: &[u8]) -> io::Result<()> {
    let mut stdout = stdout.lock().await;
    stdout.write_all(line).await?;
    stdout.write_all(b"\n").await?;
    stdout.flush().await
}

/// Returns the answer to a line that is not a message of the protocol; `None` if it is one, or empty.
fn fault(line: &[u8]) -> Option<Value> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
        return Some(answer(
            &Value::Null,
            PARSE_ERROR,
            &format!("parse error: {error}"),
        ));
    }
    let message = serde_json::from_slice::<Map<String, Value>>(line).unwrap_or_default();
    let is_answer = message.contains_key("result") || message.contains_key("error");
    if message.get("method").is_some_and(Value::is_string) || is_answer {
        return None;
    }
    let id = message.get("id").unwrap_or(&Value::Null);
    let why =
        "invalid request: expected an object with `jsonrpc`, `method` and, for an answer, `id`";
    Some(answer(id, INVALID_REQUEST, why))
}

fn answer(id: &Value, code: i64, why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_message_has_an_answer() {
        for line in [
            "{\"method\": \"ping\", \"id\": 1}",
            "{\"id\": 1, \"result\": {}}",
            " \n",
            "",
        ] {
            assert_eq!(fault(line.as_bytes()), None, "{line}");
        }
        for (line, code, id) in [
            ("{\"method\"", PARSE_ERROR, Value::Null),
            ("nonsense", PARSE_ERROR, Value::Null),
            ("\u{feff}{}", PARSE_ERROR, Value::Null),
            ("[]", INVALID_REQUEST, Value::Null),
            ("7", INVALID_REQUEST, Value::Null),
            ("{\"id\": 7}", INVALID_REQUEST, json!(7)),
            (
                "{\"id\": \"x\", \"method\": 3}",
                INVALID_REQUEST,
                json!("x"),
            ),
        ] {
            let answer = fault(line.as_bytes()).unwrap();
            assert_eq!(
                (&answer["error"]["code"], &answer["id"]),
                (&json!(code), &id),
                "{line}"
            );
        }
        assert!(fault(b"\xff\xfe").is_some());
    }
}
