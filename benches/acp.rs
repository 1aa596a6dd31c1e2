//! The latency that the proxy of the Agent Client Protocol adds to a message: `cargo bench --bench acp`.
//!
//! An agent that returns each line is called directly and through the proxy, with messages of four sizes; the store
//! records what passes. The median and the 99th percentile of a way there and back may grow by 2 ms at most, which
//! is 1 ms for each message.

mod workload;

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use loopstore::Store;
use loopstore_acp::{Proxy, ProxyOptions};
use workload::judge;

const CALLS: usize = 2_000;
const SIZES: [usize; 4] = [200, 10_000, 50_000, 1_000_000];
/// The largest addition to a way there and back, in milliseconds.
const BOUND: f64 = 2.0;

/// Returns an update of a session with a text of this size.
fn line(bytes: usize) -> String {
    let text = "rain ".repeat(bytes / 5);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":\
         {{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}\n"
    )
}

/// Returns the times of the calls in milliseconds, sorted.
fn calls(
    input: &mut (impl Write + Send),
    output: impl Read,
    line: &str,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut output = BufReader::new(output);
    let mut answer = String::new();
    let calls = if line.len() > 100_000 {
        CALLS / 20
    } else {
        CALLS
    };
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begun = Instant::now();
        // A pipe holds 64 KiB: a larger line is written while its answer is read.
        std::thread::scope(|scope| {
            let written = match line.len() > 32_000 {
                true => Some(scope.spawn(|| input.write_all(line.as_bytes()))),
                false => input.write_all(line.as_bytes()).map(|()| None)?,
            };
            answer.clear();
            output.read_line(&mut answer)?;
            written.map_or(Ok(()), |written| written.join().unwrap_or(Ok(())))
        })?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if answer != line {
            return Err("the answer is not the line".into());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn direct(line: &str) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut agent = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (stdin, stdout) = (agent.stdin.take(), agent.stdout.take());
    let times = calls(
        &mut stdin.ok_or("no stdin")?,
        stdout.ok_or("no stdout")?,
        line,
    )?;
    agent.wait()?;
    Ok(times)
}

fn through_proxy(line: &str) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("agent.db");
    let (agents_input, mut input) = pipe()?;
    let (output, agents_output) = pipe()?;
    let proxy = Proxy::new(Command::new("cat"), ProxyOptions::default());
    let open = Box::new(move || Store::open(path).map_err(|error| error.to_string()));
    let proxy = std::thread::spawn(move || proxy.run(agents_input, agents_output, open));
    // The updates of the calls belong to this prompt, and are recorded.
    let prompt = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"s\",\"prompt\":[]}}\n";
    input.write_all(prompt.as_bytes())?;
    let mut output = BufReader::new(output);
    output.read_line(&mut String::new())?;
    let times = calls(&mut input, output, line)?;
    drop(input);
    let report = proxy.join().map_err(|_| "the proxy panicked")??;
    println!(
        "  {} prompt recorded; not recorded: {:?}",
        report.prompts, report.unrecorded
    );
    Ok(times)
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let mut met = true;
    for size in SIZES {
        let line = line(size);
        let (direct, proxied) = (direct(&line)?, through_proxy(&line)?);
        for (name, share) in [("median", 0.5), ("99th percentile", 0.99)] {
            let at = |times: &[f64]| times[(times.len() as f64 * share) as usize];
            let (before, after) = (at(&direct), at(&proxied));
            println!(
                "{size} bytes, {name}: {before:.3} ms direct, {after:.3} ms through the proxy"
            );
            judge(
                &format!("added to {size} bytes there and back, {name}, ms"),
                after - before,
                BOUND,
                &mut met,
            );
        }
    }
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
