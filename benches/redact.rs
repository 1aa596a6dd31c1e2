//! Redaction of many secrets: `cargo bench --bench redact`.
//!
//! Sessions of 3,000 and of 30,000 different keys, ten of them in a message, are redacted. A key may take at
//! most 1.5 times as long in the larger session; each key is searched for in all texts.

mod workload;

use std::process::ExitCode;
use std::time::Instant;

use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use workload::{Random, judge};

const FEW: usize = 3_000;
const MANY: usize = 30_000;
const IN_A_MESSAGE: usize = 10;
const BOUND: f64 = 1.5;

fn key(random: &mut Random) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let one = |_| char::from(LETTERS[random.below(LETTERS.len() as u64) as usize]);
    let tail: String = (0..36).map(one).collect();
    format!("ghp_{tail}")
}

/// Returns the time per secret in milliseconds.
fn measure(secrets: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path().join("agent.db"))?;
    let chat = store.session("keys")?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..secrets / IN_A_MESSAGE {
        let keys: Vec<String> = (0..IN_A_MESSAGE).map(|_| key(&mut random)).collect();
        let text = format!("use {} for the build", keys.join(" and "));
        chat.append([Message::user(text), Message::assistant("done")])?;
    }
    let begun = Instant::now();
    let report = redact_session(store.database(), &RedactRequest::new(chat.id().clone()))?;
    let seconds = begun.elapsed().as_secs_f64();
    let replaced: u64 = report.secrets.values().sum();
    if replaced != secrets as u64 {
        return Err(format!("{replaced} of {secrets} secrets were replaced").into());
    }
    println!("{secrets} secrets: {seconds:.2} s");
    Ok(seconds * 1e3 / secrets as f64)
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let mut met = true;
    measure(FEW)?;
    let (few, many) = (measure(FEW)?, measure(MANY)?);
    judge(
        "redaction of a secret, 30,000 / 3,000",
        many / few,
        BOUND,
        &mut met,
    );
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
