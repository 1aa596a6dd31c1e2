// Measures a `put` of LangGraph.js compared with its own saver for SQLite, in one run: processor time, without the
// syncs, of which both have one. Before: `npm install --no-save @langchain/langgraph-checkpoint-sqlite@1.0.4`.
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";
import { Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";

const TURNS = [10, 100, 200, 500];
const text = "x".repeat(1000);

/** Puts the state after each turn, and returns the milliseconds of the puts around each of these turns. */
async function measured(saver) {
  const messages = [];
  let config = { configurable: { thread_id: "t", checkpoint_ns: "" } };
  const found = {};
  const times = [];
  for (let turn = 1; turn <= Math.max(...TURNS) + 5; turn++) {
    messages.push(new HumanMessage({ content: text, id: `h${turn}` }), new AIMessage({ content: text, id: `a${turn}` }));
    const values = { channel_values: { messages: [...messages] }, channel_versions: { messages: turn } };
    const checkpoint = { ...emptyCheckpoint(), id: uuid6(turn), ...values };
    const begun = process.cpuUsage();
    config = await saver.put(config, checkpoint, { source: "loop", step: turn, parents: {} }, { messages: turn });
    const { user, system } = process.cpuUsage(begun);
    times[turn] = (user + system) / 1000;
  }
  for (const turn of TURNS) {
    const near = times.slice(Math.max(turn - 5, 1), turn + 6).sort((one, other) => one - other);
    found[turn] = near[near.length >> 1];
  }
  return found;
}

const folder = mkdtempSync(join(tmpdir(), "loopstore-bench-"));
const store = await Store.open(join(folder, "ours.db"));
const theirs = SqliteSaver.fromConnString(join(folder, "theirs.db"));
const [ours, others] = [await measured(new LoopstoreSaver(store)), await measured(theirs)];
await store.close();
theirs.db.close();
console.log("turns   LoopstoreSaver ms   SqliteSaver ms   ratio");
for (const turn of TURNS) {
  const [one, other] = [ours[turn], others[turn]];
  console.log(`${String(turn).padStart(5)} ${one.toFixed(2).padStart(19)} ${other.toFixed(2).padStart(16)} ${(one / other).toFixed(3).padStart(7)}`);
}
const size = (name) => `${(statSync(join(folder, name)).size / 2 ** 20).toFixed(1)} MiB`;
console.log(`after ${Math.max(...TURNS)} turns: ${size("ours.db")} and ${size("theirs.db")}`);
rmSync(folder, { recursive: true });
