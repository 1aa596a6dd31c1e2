import assert from "node:assert/strict";
import { test } from "node:test";

import Database from "better-sqlite3";

import { BusyError, Store } from "loopstore";

import { fill, openai, own, place, run, user } from "./support.mjs";

/** Collects the events of a store. */
function heard(store) {
  const seen = [];
  for (const name of ["appended", "compacted", "summarizerFailed", "conflict", "slow"]) {
    store.events.on(name, (event) => seen.push([name, event]));
  }
  return seen;
}

const names = (seen) => seen.map(([name]) => name);

test("appends and compactions are events, and a duplicate is none", async (t) => {
  const store = await own(t, Store.inMemory());
  const seen = heard(store);
  const chat = store.session("chat");
  const done = await chat.append(user("x"), { ...openai, key: "k" });
  await chat.append(user("x"), { ...openai, key: "k" });
  await chat.appendBatch([{ messages: user("y") }, { messages: user("z") }], openai);
  await new Promise(setImmediate);
  assert.deepEqual(names(seen), ["appended", "appended", "appended"]);
  assert.deepEqual(seen[0][1], { sessionId: "chat", appended: done });
  await fill(chat);
  seen.length = 0;
  const policy = { window: 6000, keepFirst: 1, keepRecent: 1 };
  await chat.compact({ force: true, dryRun: true, policy });
  await new Promise(setImmediate);
  assert.deepEqual(seen, []);
  const report = await chat.compact({ force: true, policy });
  await new Promise(setImmediate);
  assert.deepEqual(seen, [["compacted", { sessionId: "chat", report }]]);
  await chat.undo();
  seen.length = 0;
  await chat.withPolicy(policy).prepare();
  await new Promise(setImmediate);
  assert.deepEqual(names(seen), ["compacted"]);
});

test("a summariser that gives way, and a compaction that lost a race, are events", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat);
  const seen = heard(store);
  const policy = { window: 6000, keepFirst: 1, keepRecent: 1 };
  const failing = () => {
    throw new Error("no model");
  };
  await chat.compact({ force: true, policy: { ...policy, summarizer: failing } });
  await new Promise(setImmediate);
  assert.deepEqual(names(seen), ["compacted", "summarizerFailed"]);
  assert.equal(seen[1][1].report.fallback, "digest");
  await chat.undo();
  seen.length = 0;
  const approve = async () => {
    await chat.compact({ force: true, policy });
    return true;
  };
  const report = await chat.compact({ force: true, policy: { ...policy, keepRecent: 2, approve } });
  await new Promise(setImmediate);
  assert.equal(report.outcome, "conflict");
  assert.deepEqual(names(seen), ["compacted", "conflict"]);
});

test("an error of a listener is not that of the call", async () => {
  const program = `
    import { Store } from "loopstore";
    const store = await Store.inMemory();
    process.on("uncaughtException", (error) => console.log("uncaught", error.message));
    store.events.on("appended", () => { throw new Error("of the listener"); });
    const done = await store.session("chat").append({ role: "user", content: "x" }, { format: "openai" });
    console.log("appended to", done.loopId);
    await store.close();`;
  const { code, out } = await run(program);
  assert.equal(code, 0);
  assert.match(out, /uncaught of the listener/);
  assert.match(out, /appended to loop-1/);
});

test("a write that waits for another program is an event", async (t) => {
  const path = place(t);
  const store = await own(t, Store.open(path));
  const chat = store.session("chat");
  await chat.append(user("x"), openai);
  const seen = heard(store);
  const other = new Database(path);
  t.after(() => other.close());
  other.exec("BEGIN IMMEDIATE");
  await assert.rejects(chat.append(user("y"), openai), BusyError);
  other.exec("ROLLBACK");
  await new Promise(setImmediate);
  assert.deepEqual(names(seen), ["slow"]);
  assert.equal(seen[0][1].hasFailed, true);
  assert.equal(await chat.countEntries(), 1);
});
