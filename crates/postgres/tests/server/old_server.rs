//! A mock of a server that reports an old version.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use loopstore_postgres::PostgresStore;

/// Returns a message of the server with its kind and body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

fn number(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes.try_into().unwrap()) as usize
}

/// Reads the first message of a client, which has no kind.
fn greeting(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; number(&length) - 4];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Returns the description of the columns of the only query that is answered.
fn columns() -> Vec<u8> {
    let mut body = 2u16.to_be_bytes().to_vec();
    for (name, kind, size) in [("version", 20u32, 8i16), ("encoding", 25, -1)] {
        body.extend(name.as_bytes());
        body.extend([0; 7]);
        body.extend(kind.to_be_bytes());
        body.extend(size.to_be_bytes());
        body.extend([0xFF; 4]);
        body.extend([0; 2]);
    }
    body
}

/// Returns the only row: version 9, and the encoding of its texts.
fn row() -> Vec<u8> {
    let mut body = 2u16.to_be_bytes().to_vec();
    for value in [&9i64.to_be_bytes()[..], b"UTF8"] {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value);
    }
    body
}

fn serve(mut stream: TcpStream) {
    let ready = message(b'Z', b"I");
    // The client asks for TLS before it sends its name.
    if greeting(&mut stream).len() == 4 {
        stream.write_all(b"N").unwrap();
        greeting(&mut stream);
    }
    let welcome = [message(b'R', &[0; 4]), ready.clone()].concat();
    stream.write_all(&welcome).unwrap();
    loop {
        let mut head = [0; 5];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let mut body = vec![0; number(&head[1..]) - 4];
        stream.read_exact(&mut body).unwrap();
        let answer = match head[0] {
            b'Q' => [message(b'C', b"SET\0"), ready.clone()].concat(),
            b'P' => message(b'1', &[]),
            b'D' => [message(b't', &[0; 2]), message(b'T', &columns())].concat(),
            b'B' => message(b'2', &[]),
            b'E' => [message(b'D', &row()), message(b'C', b"SELECT 1\0")].concat(),
            b'C' => message(b'3', &[]),
            b'S' => ready.clone(),
            _ => return,
        };
        stream.write_all(&answer).unwrap();
    }
}

#[test]
fn an_old_server_is_refused_by_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap());
        }
    });
    let address = format!("postgres://me@127.0.0.1:{port}/agents");
    let Err(error) = PostgresStore::open(&address) else {
        panic!("it opened");
    };
    assert_eq!(
        error.to_string(),
        format!(
            "postgres://127.0.0.1:{port}/agents: this is PostgreSQL 9; loopstore needs 14 or later"
        )
    );
}
