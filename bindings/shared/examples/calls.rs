//! Measures the calls of a session in Rust, for the benchmarks of packages: microseconds of each, as JSON.
//!
//! `calls PATH ROUNDS`

use std::sync::mpsc::channel;
use std::time::Instant;

use loopstore::{AgentMessage, Durability, Message, Policy, SqliteOptions, SqliteStore, Store};
use loopstore_bindings::calls::context;
use loopstore_bindings::messages;

const TEXT: &str = "A message of a hundred characters or so, as somebody may write it to an agent on a working day.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which database?")?;
    let rounds: u32 = args.next().ok_or("how many rounds?")?.parse()?;
    let options = SqliteOptions::new().durability(Durability::Normal);
    let store: Store = SqliteStore::open_with(&path, options)?.into();
    let chat = store.session("rust")?.with_policy(Policy::new(200_000));
    for _ in 0..20 {
        chat.append([Message::user(TEXT), Message::assistant(TEXT)])?;
    }
    let json = format!(r#"{{"role":"user","content":"{TEXT}"}}"#);
    let exists = measured(rounds, || {
        chat.exists()?;
        Ok(())
    })?;
    let read = measured(rounds, || {
        let at = (None, None, None, None);
        let built = context(&chat, None, None, at, false).map_err(|_| "no context")?;
        messages::write("openai", &built).map_err(|_| "no JSON")?;
        Ok(())
    })?;
    let side = store.session("rust-appends")?;
    let append = measured(rounds, || {
        let given: Vec<AgentMessage> =
            messages::read("openai", json.as_bytes()).map_err(|_| "no message")?;
        side.append(given)?;
        Ok(())
    })?;
    let there = store.session("rust-threads")?;
    let threaded = on_thread(rounds, || {
        let given: Vec<AgentMessage> =
            messages::read("openai", json.as_bytes()).map_err(|_| "no message")?;
        there.append(given)?;
        Ok(())
    })?;
    println!(
        r#"{{"exists":{exists:.2},"context":{read:.2},"append":{append:.2},"threaded":{threaded:.2}}}"#
    );
    Ok(())
}

/// Returns the same for a call on another thread, including the time of the switches.
fn on_thread(
    rounds: u32,
    mut call: impl FnMut() -> Result<(), Box<dyn std::error::Error>> + Send,
) -> Result<f64, Box<dyn std::error::Error>> {
    let (request, requests) = channel::<()>();
    let (answer, answered) = channel::<bool>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for () in requests {
                if answer.send(call().is_ok()).is_err() {
                    return;
                }
            }
        });
        let done = measured(rounds, || {
            request.send(())?;
            match answered.recv()? {
                true => Ok(()),
                false => Err("the call failed".into()),
            }
        });
        drop(request);
        done
    })
}

/// Returns the median of the microseconds that a call takes.
fn measured(
    rounds: u32,
    mut call: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}
