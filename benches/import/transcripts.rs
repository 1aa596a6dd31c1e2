//! Transcripts of a tool-using agent, as JSON lines.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Result;
use super::workload::Random;

/// The number of turns between two prompts.
pub const TURNS: u32 = 8;

/// Returns the transcripts of a folder in the order of their names.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<PathBuf>>>()?;
    files.sort();
    Ok(files)
}

/// Writes transcripts of about `bytes` bytes in total, each of about `each` bytes; returns their size.
pub fn generate(folder: &Path, bytes: u64, each: u64) -> Result<u64> {
    std::fs::create_dir_all(folder)?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut written = 0;
    while written < bytes {
        let session = format!("session-{:04}", written / each);
        let file = std::fs::File::create(folder.join(format!("{session}.jsonl")))?;
        let mut transcript = Transcript {
            out: BufWriter::new(file),
            session,
            parent: None,
            records: 0,
            bytes: 0,
        };
        while transcript.bytes < each.min(bytes - written) {
            transcript.exchange(&mut random)?;
        }
        transcript.out.flush()?;
        written += transcript.bytes;
    }
    Ok(written)
}

struct Transcript<W: Write> {
    out: W,
    session: String,
    parent: Option<String>,
    records: u32,
    bytes: u64,
}

impl<W: Write> Transcript<W> {
    /// Writes a prompt and the turns after it.
    fn exchange(&mut self, random: &mut Random) -> Result<()> {
        self.record(
            "user",
            json!({ "role": "user", "content": random.text(120) }),
        )?;
        for _ in 0..TURNS {
            let id = format!("toolu_{:x}", random.below(1 << 40));
            let call = json!({ "type": "tool_use", "id": id, "name": "Read", "input": { "file_path": random.text(30) } });
            let text = json!({ "type": "text", "text": random.text(600) });
            let message = format!("msg_{:x}", random.below(1 << 40));
            let usage = json!({ "input_tokens": 900, "output_tokens": 200 });
            let answer = json!({ "id": message, "role": "assistant", "model": "m", "content": [text, call], "usage": usage });
            self.record("assistant", answer)?;
            let size = random.log_normal(1_500.0, 1.58);
            let result =
                json!({ "type": "tool_result", "tool_use_id": id, "content": random.text(size) });
            self.record("user", json!({ "role": "user", "content": [result] }))?;
        }
        Ok(())
    }

    fn record(&mut self, kind: &str, message: serde_json::Value) -> Result<()> {
        let uuid = format!("{}-{}", self.session, self.records);
        let second = self.records;
        let time = format!(
            "2026-01-{:02}T{:02}:{:02}:{:02}.000Z",
            1 + second / 86_400 % 28,
            second / 3_600 % 24,
            second / 60 % 60,
            second % 60
        );
        let record = json!({
            "type": kind, "uuid": uuid, "parentUuid": self.parent, "sessionId": self.session,
            "timestamp": time, "cwd": "/work", "version": "2.1.0", "isSidechain": false,
            "userType": "external", "message": message,
        });
        let line = serde_json::to_string(&record)?;
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")?;
        self.bytes += line.len() as u64 + 1;
        self.records += 1;
        self.parent = Some(uuid);
        Ok(())
    }
}
