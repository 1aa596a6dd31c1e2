//! Every byte passes, whatever it is, and whatever becomes of the store.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::channel;

use loopstore_acp::{ProxyOptions, StoreOpener, Unrecorded};
use proptest::prelude::*;
use serde_json::json;

use crate::stage::*;

fn no_store() -> StoreOpener {
    Box::new(|| Err("there is no disk".into()))
}

fn echo(open: StoreOpener, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut editor = Editor::start(Command::new("cat"), ProxyOptions::default(), open);
    let mut input = editor.input_for_thread();
    let pieces = pieces.to_vec();
    let writer = std::thread::spawn(move || {
        for piece in pieces {
            std::io::Write::write_all(&mut input, &piece).unwrap();
        }
    });
    let bytes = editor.rest();
    writer.join().unwrap();
    let report = editor.finish();
    assert!(report.status.success());
    bytes
}

/// Returns messages of the protocol, cut and damaged, between other bytes.
fn stream() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let session = prop_oneof![Just("s"), Just("t"), Just("\u{e9}\\u00e9")];
    let method = prop_oneof![
        Just("session/update"),
        Just("session/prompt"),
        Just("session/new"),
        Just("session/load"),
        Just("session/list"),
        Just("session/request_permission"),
        Just("initialize"),
        Just("_other/method"),
    ];
    let kind = prop_oneof![
        Just("agent_message_chunk"),
        Just("agent_thought_chunk"),
        Just("tool_call"),
        Just("tool_call_update"),
        Just("plan"),
        Just("usage_update"),
        Just("new_kind"),
    ];
    let status = prop_oneof![
        Just("pending"),
        Just("completed"),
        Just("failed"),
        Just("odd")
    ];
    let message = (session, method, kind, status, 0..4u32, any::<String>()).prop_map(
        |(session, method, kind, status, id, text)| {
            let block = json!({"type": "text", "text": text});
            let update = json!({"sessionUpdate": kind, "content": block, "toolCallId": text,
                "status": status, "title": text, "entries": [{"content": text}]});
            let params = json!({"sessionId": session, "update": update, "prompt": [block],
                "cwd": "/w", "toolCall": {"toolCallId": text}});
            let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            if id > 0 {
                message["id"] = id.into();
            }
            if id == 3 {
                message = json!({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": session, "stopReason": "end_turn"}});
            }
            format!("{message}\n").into_bytes()
        },
    );
    let cut = (message.clone(), any::<prop::sample::Index>()).prop_map(|(mut line, at)| {
        line.truncate(at.index(line.len()));
        line
    });
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    let giant = (1_000..300_000usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
    let piece = prop_oneof![6 => message, 2 => cut, 2 => noise, 1 => giant];
    prop::collection::vec(piece, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_byte_passes_in_order(pieces in stream()) {
        let stage = Stage::new();
        let bytes = echo(stage.opener(), &pieces);
        prop_assert!(bytes == pieces.concat(), "the bytes differ");
        stage.verify();
    }

    #[test]
    fn every_byte_that_the_store_does_not_answer_passes_after_it_has_offered_sessions(pieces in stream()) {
        let stage = Stage::new();
        let script = format!("IFS= read -r line; echo '{}'; exec cat", initialized(json!({})));
        let mut editor = stage.connect(shell(&script));
        editor.call(0, "initialize", initialize("/w".as_ref()).0);
        // A request that the store answers is for no agent.
        let is_served = |piece: &Vec<u8>| {
            let text = String::from_utf8_lossy(piece);
            ["session/load", "session/list"].iter().any(|name| text.contains(name))
        };
        let pieces: Vec<Vec<u8>> = pieces.into_iter().filter(|piece| !is_served(piece)).collect();
        let mut input = editor.input_for_thread();
        let written = pieces.concat();
        let writer = std::thread::spawn(move || {
            pieces.iter().for_each(|piece| std::io::Write::write_all(&mut input, piece).unwrap());
        });
        let bytes = editor.rest();
        writer.join().unwrap();
        editor.finish();
        prop_assert!(bytes == written, "the bytes differ");
    }

    #[test]
    fn every_byte_passes_without_a_store(pieces in stream()) {
        prop_assert!(echo(no_store(), &pieces) == pieces.concat());
    }
}

#[test]
fn bytes_pass_before_the_store_is_open_and_are_recorded_later() {
    let stage = Stage::new();
    let (opens, waits) = channel();
    let open = stage.opener();
    let open: StoreOpener = Box::new(move || {
        waits.recv().unwrap();
        open()
    });
    let done = result(2, json!({"stopReason": "end_turn"}));
    let steps = [
        vec![result(1, json!({"sessionId": "s"}))],
        vec![chunk("s", "agent_message_chunk", "Yes."), done],
    ];
    let mut editor = Editor::start(stage.agent(&steps), ProxyOptions::default(), open);
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    editor.call(2, "session/prompt", text_prompt("s", "Will it rain?"));
    opens.send(()).unwrap();
    let report = editor.finish();
    assert_eq!(
        (report.prompts, report.unrecorded.len()),
        (1, 0),
        "{report:?}"
    );
    assert_eq!(stage.messages("s").len(), 2);
}

#[test]
fn a_store_that_never_opens_in_time_loses_only_the_record_and_the_loss_is_counted() {
    let (opens, waits) = channel::<()>();
    let open: StoreOpener = Box::new(move || {
        let _ = waits.recv();
        Err("it hangs".into())
    });
    let line = [vec![b'x'; (1 << 20) - 1], vec![b'\n']].concat();
    let pieces: Vec<Vec<u8>> = (0..80).map(|_| line.clone()).collect();
    let mut editor = Editor::start(Command::new("cat"), ProxyOptions::default(), open);
    let mut input = editor.input_for_thread();
    let writer = std::thread::spawn(move || {
        for piece in pieces {
            std::io::Write::write_all(&mut input, &piece).unwrap();
        }
    });
    assert_eq!(editor.rest().len(), 80 << 20);
    writer.join().unwrap();
    drop(opens);
    let report = editor.finish();
    let lost = report
        .unrecorded
        .iter()
        .find(|lost| lost.reason == Unrecorded::DroppedBytes);
    // Both directions; of lines with a gap only the gap counts as bytes.
    assert!(lost.unwrap().count > 120 << 20, "{report:?}");
    assert_eq!(report.error.as_deref(), Some("it hangs"));
}

#[test]
fn the_agent_ends_as_it_would_without_the_proxy() {
    let code = |script: &str| {
        let editor = Editor::start(shell(script), ProxyOptions::default(), no_store());
        editor.finish().status
    };
    assert_eq!(code("exit 0").code(), Some(0));
    assert_eq!(code("exit 37").code(), Some(37));
    assert_eq!(code("kill -9 $$").signal(), Some(9));
    // Its input ends with the editor's.
    assert_eq!(code("cat > /dev/null; exit 5").code(), Some(5));
}

#[test]
fn an_agent_that_does_not_start_is_an_error_at_once() {
    let proxy = loopstore_acp::Proxy::new(Command::new("/no/agent"), ProxyOptions::default());
    let error = proxy
        .run(std::io::empty(), std::io::sink(), no_store())
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn what_the_agent_writes_after_the_editor_has_closed_the_stream_ends_the_agent() {
    // Without a reader an agent gets an error when it writes, and so it does through the proxy.
    let editor = Editor::start(
        shell("while :; do echo x || exit 9; done"),
        ProxyOptions::default(),
        no_store(),
    );
    let status = editor.hang_up().status;
    assert!(
        status.code() == Some(9) || status.signal() == Some(13),
        "{status}"
    );
}
