//! A real HTTP server on loopback that plays a part for each connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns the status and body of the answer to a request.
pub type Judge = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// Returns the events of the answer to a request (headers and body).
pub type Narrator = dyn Fn(&str) -> String + Send + Sync;

/// The response of the server to one request.
#[derive(Clone)]
pub enum ServedResponse {
    /// Answers with a status, headers and a body.
    Answers(u16, &'static str, Vec<u8>),
    /// Answers with a status and a body that depend on the body of the request.
    Judges(Arc<Judge>),
    /// Answers with events that depend on the request.
    Narrates(Arc<Narrator>),
    /// Announces a body and sends only a piece of it.
    Cut(Vec<u8>),
    /// Sends a byte of the body at each interval.
    Drips(Vec<u8>, Duration),
    /// Closes the connection without an answer.
    HangsUp,
    /// Answers after a signal.
    Waits(Arc<Mutex<Receiver<()>>>, Vec<u8>),
    /// Sends nothing.
    Silent(Duration),
}

/// The received requests, headers and body.
#[derive(Clone, Default)]
pub struct HttpServer {
    heard: Arc<Mutex<Vec<String>>>,
    pub url: String,
}

impl HttpServer {
    /// Starts a server that plays the parts in turn, and the last one again and again.
    pub fn start(parts: Vec<ServedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            heard: Arc::default(),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        let heard = server.heard.clone();
        std::thread::spawn(move || {
            for (at, stream) in listener.incoming().enumerate() {
                let part = parts[at.min(parts.len() - 1)].clone();
                let heard = heard.clone();
                std::thread::spawn(move || {
                    // The client may have closed the connection.
                    let _ = play(stream.unwrap(), part, &heard);
                });
            }
        });
        server
    }

    pub fn requests(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn play(
    mut stream: TcpStream,
    part: ServedResponse,
    heard: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = request(&mut stream)?;
    heard.lock().unwrap().push(request.clone());
    match part {
        ServedResponse::Answers(status, headers, body) => {
            let head = head(status, headers, body.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)
        }
        ServedResponse::Judges(judge) => {
            let body_text = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let (status, body) = judge(body_text);
            stream.write_all(head(status, "", body.len()).as_bytes())?;
            stream.write_all(body.as_bytes())
        }
        ServedResponse::Narrates(narrator) => {
            let events = narrator(&request);
            let head = head(200, "", events.len());
            let head = head.replace("application/json", "text/event-stream");
            stream.write_all(head.as_bytes())?;
            stream.write_all(events.as_bytes())
        }
        ServedResponse::Cut(body) => {
            stream.write_all(head(200, "", body.len() + 100).as_bytes())?;
            stream.write_all(&body)
        }
        ServedResponse::Drips(body, pause) => {
            stream.write_all(head(200, "", body.len()).as_bytes())?;
            for byte in body {
                stream.write_all(&[byte])?;
                std::thread::sleep(pause);
            }
            Ok(())
        }
        ServedResponse::Waits(gate, body) => {
            // The sender may have been dropped.
            let _ = gate.lock().unwrap().recv();
            stream.write_all(head(200, "", body.len()).as_bytes())?;
            stream.write_all(&body)
        }
        ServedResponse::HangsUp => Ok(()),
        ServedResponse::Silent(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}

/// Posts a body to a server and returns the status and the body of its answer.
pub fn post(url: &str, body: &str) -> (u16, String) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn head(status: u16, headers: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n{headers}\r\n"
    )
}

fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, length)| length.parse().unwrap());
            if body.len() >= length || read == 0 {
                return Ok(text);
            }
        }
        if read == 0 {
            return Ok(text);
        }
    }
}
