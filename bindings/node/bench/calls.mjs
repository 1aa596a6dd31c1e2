// Measures the cost of a call from Node above the same call in Rust: `npm run bench`, after `cargo build --release -p
// loopstore-bindings --example calls`. With `--check` it fails if a call costs more than it may.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { Store } from "loopstore";

const MOST = 30;
const ROUNDS = 3000;
const root = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const program = join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "release", "examples", "calls");
const text = "A message of a hundred characters or so, as somebody may write it to an agent on a working day.";
const folder = mkdtempSync(join(tmpdir(), "loopstore-bench-"));

const median = (times) => times.sort((one, other) => one - other)[times.length >> 1];

async function measured(call) {
  const times = [];
  for (let round = 0; round < ROUNDS; round++) {
    const begun = process.hrtime.bigint();
    await call();
    times.push(Number(process.hrtime.bigint() - begun) / 1000);
  }
  return median(times);
}

async function node(path) {
  const store = await Store.open(path, { durability: "normal", policy: { window: 200_000 } });
  const chat = store.session("node");
  const openai = { format: "openai" };
  for (let at = 0; at < 20; at++) {
    await chat.append([{ role: "user", content: text }, { role: "assistant", content: text }], openai);
  }
  const side = store.session("node-appends");
  const exists = await measured(() => chat.exists());
  const context = await measured(() => chat.context(openai));
  const append = await measured(() => side.append({ role: "user", content: text }, openai));
  await store.close();
  return { exists, context, append };
}

// The calls alternate, so that other load of the machine affects both.
const [ours, rust] = [[], []];
for (let turn = 0; turn < 3; turn++) {
  ours.push(await node(join(folder, `node-${turn}.db`)));
  rust.push(JSON.parse(execFileSync(program, [join(folder, `rust-${turn}.db`), String(ROUNDS)], { encoding: "utf8" })));
}
rmSync(folder, { recursive: true });
let isFast = true;
console.log("call      Node µs   Rust µs   above");
for (const name of ["exists", "context", "append"]) {
  const [one, other] = [ours, rust].map((all) => Math.min(...all.map((each) => each[name])));
  console.log(`${name.padEnd(9)} ${one.toFixed(1).padStart(7)}   ${other.toFixed(1).padStart(7)} ${(one - other).toFixed(1).padStart(7)}`);
  isFast &&= one - other <= MOST;
}
const threaded = Math.min(...rust.map((each) => each.threaded));
console.log(`An append that Rust makes on another thread takes ${threaded.toFixed(1)} µs on this machine.`);
if (process.argv.includes("--check") && !isFast) {
  console.error(`a call from Node costs more than ${MOST} µs above the same call in Rust`);
  process.exitCode = 1;
}
