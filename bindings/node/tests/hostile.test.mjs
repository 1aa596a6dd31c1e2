import assert from "node:assert/strict";
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import * as loopstore from "loopstore";

import { fill, openai, own, place, run, user } from "./support.mjs";

const { InvalidInputError, LoopstoreError, Session, Store } = loopstore;

/** Checks that a call fails with this class, its code, and a message. */
async function refused(call, kind) {
  await assert.rejects(async () => await call(), (error) => {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.message}`);
    assert.ok(error instanceof LoopstoreError && error instanceof Error);
    assert.match(error.code, /^ERR_LOOPSTORE/);
    assert.equal(error.name, error.constructor.name);
    assert.ok(error.message.length > 10 && !error.message.startsWith("{"), error.message);
    assert.match(error.stack, /hostile\.test/, "the stack says who called");
    return true;
  });
}

const isPlain = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const WRONG = [null, 17, NaN, true, {}, [], () => 1, Symbol("x"), 10n];

test("arguments of a wrong type are refused, and nothing else happens", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append(user("Hello"), openai);
  const calls = [
    (wrong) => Store.open(wrong),
    (wrong) => store.session(wrong),
    (wrong) => store.session("x", { policy: isPlain(wrong) ? 1 : (wrong ?? 1) }),
    (wrong) => chat.append(user("x"), { format: wrong ?? 1 }),
    (wrong) => chat.append(user("x"), { ...openai, key: wrong ?? 1 }),
    (wrong) => chat.append(typeof wrong === "object" && wrong ? [wrong] : wrong, openai),
    (wrong) => chat.fork(wrong, 0),
    (wrong) => chat.fork("loop-1", wrong === 17 ? -1 : (wrong ?? "x")),
    (wrong) => chat.undo(wrong ?? 1),
    (wrong) => chat.search(wrong),
    (wrong) => chat.search("x", { role: wrong ?? 1 }),
    (wrong) => chat.recall("x", wrong === 17 ? 1.5 : wrong),
    (wrong) => chat.context({ maxTokens: wrong === 17 ? -1 : (wrong ?? "x") }),
    (wrong) => chat.asOf(wrong),
    (wrong) => chat.setTitle(wrong),
    (wrong) => chat.endLoop(wrong ?? 1),
    (wrong) => chat.compact({ policy: { summarizer: wrong === null || typeof wrong === "function" ? 1 : wrong } }),
    (wrong) => chat.compact({ signal: wrong ?? 1 }),
    (wrong) => store.sql(wrong),
    (wrong) => store.import(Array.isArray(wrong) ? [wrong] : wrong),
    (wrong) => store.importBytes(wrong, { format: "claude-code" }),
  ];
  for (const [number, call] of calls.entries()) {
    for (const wrong of WRONG) {
      await refused(() => call(wrong), InvalidInputError).catch((error) => {
        throw new Error(`call ${number} with ${String(typeof wrong)} ${String(wrong?.toString?.() ?? wrong)}`, { cause: error });
      });
    }
  }
  assert.equal(await chat.countEntries({ wholeSession: true }), 1);
});

test("an option that is misspelt is refused by its name", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await assert.rejects(chat.context({ maxtokens: 5 }), /no option `maxtokens`; known are maxTokens/);
  await assert.rejects(Store.open("x.db", { readonly: true }), /readonly/);
  await assert.rejects(chat.compact({ policy: { windows: 5 } }), /windows/);
  for (const [wrong, why] of [
    [{ kept: 5 }, /no option `kept`; known are keep, atLeast, excludeTools/],
    [{ keep: -1 }, /-1/],
    [{ atLeast: "many" }, /many/],
    [{ excludeTools: "ls" }, /`clearToolResults.excludeTools` is a list of texts/],
    [5, /`clearToolResults` is an object/],
  ]) {
    await assert.rejects(chat.compact({ policy: { clearToolResults: wrong } }), why);
  }
  assert.throws(() => new Store({}), InvalidInputError);
  assert.throws(() => new Session({}), InvalidInputError);
});

test("values that JSON has no place for are refused before anything is stored", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const ring = user("x");
  ring.self = ring;
  const deep = [];
  let at = deep;
  for (let depth = 0; depth < 100_000; depth++) at = at[0] = [];
  for (const bad of [ring, user(NaN), user(10n), user(deep), "{", "nonsense", "", Buffer.from([0xff, 0xfe])]) {
    await refused(() => chat.append(bad, openai), InvalidInputError);
  }
  assert.equal(await chat.exists(), false);
});

test("what is not there is not found, and says what it was", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("nobody");
  for (const call of ["context", "contextBytes", "prepare"]) {
    for (const format of ["openai", "anthropic", "responses", "loopstore"]) {
      const error = await chat[call]({ format }).catch((error) => error);
      assert.ok(error instanceof loopstore.NotFoundError, call);
      assert.deepEqual([error.what, error.id], ["session", "nobody"]);
      await chat[call]({ format, create: true });
    }
  }
  assert.deepEqual((await chat.context({ ...openai, create: true })).messages, []);
  assert.deepEqual(await chat.entries(), []);
  await refused(() => chat.undo(), loopstore.NotFoundError);
  await refused(() => chat.show(), loopstore.NotFoundError);
  await refused(() => chat.erase(), loopstore.NotFoundError);
  await chat.append(user("Hello"), openai);
  await refused(() => chat.fork("loop-99", 0), loopstore.NotFoundError);
  await refused(() => chat.atLoop("loop-99"), loopstore.NotFoundError);
  const error = await chat.fork("loop-99", 0).catch((error) => error);
  assert.equal(error.id, "loop-99");
});

test("what does not fit says how much is needed", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 3);
  const error = await chat.context({ maxTokens: 10 }).catch((error) => error);
  assert.ok(error instanceof loopstore.NeedsCompactionError && error instanceof loopstore.TooLargeError);
  assert.ok(error.needed > error.budget && error.budget === 10 && error.unit === "tokens");
  await refused(() => chat.recall("file", 3), loopstore.BudgetTooSmallError);
});

test("a closed store refuses every call, and closing it again does nothing", async (t) => {
  const store = await Store.open(place(t));
  const chat = store.session("chat");
  await chat.append(user("Hello"), openai);
  await store.close();
  await store.close();
  store[Symbol.dispose]();
  await store[Symbol.asyncDispose]();
  assert.equal(store.closed, true);
  const calls = [
    () => chat.append(user("x"), openai),
    () => chat.context(),
    () => chat.prepare(),
    () => chat.compact(),
    () => chat.fork("loop-1", 0),
    () => store.search("x"),
    () => store.stats(),
  ];
  for (const call of calls) await refused(call, loopstore.ClosedError);
  assert.throws(() => store.session("chat"), loopstore.ClosedError);
  assert.throws(() => store.place, loopstore.ClosedError);
  assert.throws(() => chat.withPolicy({}), loopstore.ClosedError);
  assert.equal(chat.id, "chat");
});

test("close waits for the calls that are under way", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const appends = Array.from({ length: 50 }, (_, at) => store.session(`s-${at}`).append(user("x"), openai));
  await store.close();
  await Promise.all(appends);
  const again = await own(t, Store.open(path));
  assert.equal((await again.stats()).sessions, 50);
});

test("a database that is damaged, foreign or cut off is refused, with the reason", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  await fill(store.session("chat"), 40);
  await store.close();
  const whole = readFileSync(path);
  for (const [name, bytes] of [
    ["text.db", Buffer.from("this is no database, but it is long enough to be one ".repeat(40))],
    ["noise.db", Buffer.alloc(8192, 0xa5)],
    ["head.db", Buffer.concat([whole.subarray(0, 100), Buffer.alloc(whole.length - 100, 0xff)])],
  ]) {
    const other = place(t, name);
    writeFileSync(other, bytes);
    await refused(async () => {
      const opened = await Store.open(other);
      await opened.session("chat").context({ check: true });
    }, LoopstoreError);
  }
  truncateSync(path, Math.floor(whole.length / 2));
  await refused(async () => {
    const opened = await own(t, Store.open(path));
    await opened.session("chat").context({ check: true });
  }, LoopstoreError);
  const folder = place(t, "folder.db");
  mkdirSync(folder);
  await refused(() => Store.open(folder), loopstore.OpenError);
  await refused(() => Store.open(place(t, "a/b/c.db")), loopstore.OpenError);
});

test("a store that is opened for reading refuses to write", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  await store.session("chat").append(user("Hello"), openai);
  await store.close();
  const reader = await own(t, Store.open(path, { readOnly: true }));
  await refused(() => reader.session("chat").append(user("x"), openai), loopstore.ReadOnlyError);
  assert.equal((await reader.session("chat").context(openai)).messages.length, 1);
});

test("a feature that this build lacks says how to build it", async () => {
  await assert.rejects(Store.connect("postgres://localhost/x"), (error) => {
    assert.ok(error instanceof loopstore.UnsupportedError, error.message);
    assert.match(error.message, /npm run build -- --features postgres/);
    return true;
  });
});

test("a panic of the native part is an error, and the process goes on", async () => {
  const { panicOnThread } = createRequire(import.meta.url)("../dist/core/native.js");
  const { guarded } = createRequire(import.meta.url)("../dist/core/internal.js");
  const error = await panicOnThread("on purpose").catch((error) => {
    try { return guarded(() => { throw error; }); } catch (made) { return made; }
  });
  assert.ok(error instanceof loopstore.InternalError);
  assert.match(error.message, /on purpose/);
});

test("a call whose signal is aborted before it begins does nothing", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const reason = new Error("enough");
  const signal = AbortSignal.abort(reason);
  for (const call of [
    () => chat.append(user("x"), { ...openai, signal }),
    () => chat.appendBatch([], { signal }),
    () => chat.context({ signal }),
    () => chat.contextBytes({ signal }),
    () => chat.asOf({ loopId: "loop-1", turn: 0 }, { signal }),
    () => chat.entries({ signal }),
    () => chat.countEntries({ signal }),
    () => chat.expand(0, 0, { signal }),
    () => chat.history({ signal }),
    () => chat.export("json", { signal }),
    () => chat.report({ signal }),
    () => chat.recall("x", 100, { signal }),
    () => store.history(undefined, { signal }),
    () => store.sessions({ signal }),
    () => store.recall("x", 100, { signal }),
    () => store.verify({ signal }),
    () => chat.prepare({ signal }),
    () => chat.compact({ signal }),
    () => chat.search("x", { signal }),
    () => store.sql("SELECT 1", null, { signal }),
    () => store.import("nowhere", { signal }),
  ]) {
    await assert.rejects(call(), (error) => error === reason);
  }
  assert.equal(await chat.exists(), false);
});

test("an append is either made or aborted, whenever the signal comes", async (t) => {
  const store = await own(t, Store.open(place(t)));
  const chat = store.session("chat");
  let made = 0;
  await Promise.all(
    Array.from({ length: 200 }, async (_, at) => {
      const control = new AbortController();
      const append = chat.append(user(`message ${at}`), { ...openai, signal: control.signal });
      if (at % 3 === 0) control.abort();
      else if (at % 3 === 1) setImmediate(() => control.abort());
      try {
        await append;
        made++;
      } catch (error) {
        assert.equal(error.name, "AbortError");
      }
    }),
  );
  assert.equal(await chat.countEntries({ wholeSession: true }), made);
});

test("a compaction that is aborted while its summariser thinks commits nothing", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat);
  const before = await chat.context();
  for (const call of ["compact", "prepare"]) {
    const control = new AbortController();
    let told = false;
    const policy = {
      window: 3000,
      keepFirst: 1,
      keepRecent: 1,
      summarizer: ({ signal }) => {
        setTimeout(() => control.abort(), 20);
        return new Promise((_, failed) => signal.addEventListener("abort", () => ((told = true), failed(signal.reason))));
      },
    };
    const handle = chat.withPolicy(policy);
    const begun = Date.now();
    await assert.rejects(handle[call]({ signal: control.signal, ...(call === "compact" ? { force: true } : {}) }), {
      name: "AbortError",
    });
    assert.ok(Date.now() - begun < 5000);
    assert.deepEqual(await chat.context(), before);
    for (let wait = 0; wait < 100 && !told; wait++) await new Promise((done) => setTimeout(done, 20));
    assert.ok(told, "the summariser is told that nobody waits");
  }
});

test("many compactions whose summarisers read files do not wait for each other for ever", async (t) => {
  const store = await own(t, Store.inMemory());
  const { readFile } = await import("node:fs/promises");
  const policy = {
    window: 6000,
    keepFirst: 1,
    keepRecent: 1,
    summarizer: async () => `Read ${(await readFile(new URL(import.meta.url))).length} bytes.`,
  };
  const reports = await Promise.all(
    Array.from({ length: 12 }, async (_, at) => {
      const chat = store.session(`chat-${at}`);
      await fill(chat, 8);
      return await chat.compact({ force: true, policy });
    }),
  );
  for (const report of reports) assert.equal(report.outcome, "committed");
});

test("five hundred promises on one store are all kept", async (t) => {
  const store = await own(t, Store.open(place(t)));
  const chat = store.session("shared");
  await Promise.all(
    Array.from({ length: 500 }, async (_, at) => {
      if (at % 2) await chat.append(user(`message ${at}`), { ...openai, key: `k-${at}` });
      else await store.session(`own-${at % 20}`).append(user(`message ${at}`), openai);
    }),
  );
  assert.equal(await chat.countEntries({ wholeSession: true }), 250);
  const keys = await chat.appendKeys("k-");
  assert.equal(new Set(keys.map(({ key }) => key)).size, 250);
  assert.equal((await store.verify()).ok, true);
});

test("handles that nobody holds any more are let go", async () => {
  const calls = Number(process.env.LOOPSTORE_HANDLES ?? 20_000);
  const program = `
    import { Store } from "loopstore";
    const store = await Store.inMemory();
    const size = () => (gc(), process.memoryUsage().rss);
    let first;
    for (let at = 0; at < ${calls}; at++) {
      await store.session("s-" + (at % 7)).exists();
      if (at === ${Math.floor(calls / 10)}) first = size();
      if (at % 1000 === 0) await new Promise(setImmediate);
    }
    await new Promise((done) => setTimeout(done, 50));
    console.log(JSON.stringify({ grown: size() - first }));
    await store.close();`;
  const { code, out, err } = await run(program, [], { env: { ...process.env, NODE_OPTIONS: "--expose-gc" } });
  assert.equal(code, 0, err);
  // A handle has more than 200 bytes: a leak of handles would show.
  assert.ok(JSON.parse(out).grown < Math.max(16 << 20, calls * 40), out);
});

test("a process that ends with a store open, or in the middle of a call, ends as usual", async (t) => {
  const path = place(t);
  const open = `import { Store } from "loopstore"; const store = await Store.open(${JSON.stringify(path)});
    const chat = store.session("chat"); const say = (text) => chat.append({ role: "user", content: text }, { format: "openai" });`;
  const slow = `for (let at = 0; at < 12; at++) await say("words ".repeat(300));
    const policy = { window: 3000, keepFirst: 1, keepRecent: 1, summarizer: () => new Promise(() => {}) };`;
  const ends = [
    ["await say('kept');", 0],
    ["await say('kept'); process.exit(3);", 3],
    ["say('perhaps'); process.exit(4);", 4],
    [`${slow} chat.compact({ force: true, policy }); setTimeout(() => process.exit(5), 100);`, 5],
    ["await say('kept'); throw new Error('the program failed');", 1],
    ["chat.append(17);", 1],
  ];
  for (const [rest, wanted] of ends) {
    const begun = Date.now();
    const { code, signal, err } = await run(open + rest);
    assert.deepEqual([code, signal], [wanted, null], `${rest}\n${err}`);
    assert.ok(Date.now() - begun < 15_000, rest);
  }
  const store = await own(t, Store.open(path));
  assert.equal((await store.verify()).ok, true);
});

test("a rejection that nobody handles ends the process with the error's own text", async () => {
  const { code, err } = await run(`import { Store } from "loopstore";
    const store = await Store.inMemory(); store.session("x").undo();`);
  assert.equal(code, 1);
  assert.match(err, /NotFoundError/);
  assert.match(err, /ERR_LOOPSTORE_NOT_FOUND/);
});

test("a worker that is terminated in a write leaves whole appends, and the main thread goes on", async (t) => {
  const path = place(t);
  const store = await own(t, Store.open(path));
  await store.session("main").append(user("before"), openai);
  const program = `
    const { parentPort, workerData } = require("node:worker_threads");
    import("loopstore").then(async ({ Store }) => {
      const store = await Store.open(workerData.path);
      const policy = { window: 3000, keepFirst: 1, keepRecent: 1, summarizer: () => new Promise(() => {}) };
      const chat = store.session("worker-" + workerData.at);
      for (let at = 0; at < 6; at++) await chat.append({ role: "user", content: "words ".repeat(400) }, { format: "openai" });
      if (workerData.at % 2) chat.compact({ force: true, policy }).catch(() => {});
      parentPort.postMessage("ready");
      for (;;) await Promise.all([1, 2, 3].map((n) => chat.appendBatch(
        [1, 2, 3].map(() => ({ messages: { role: "user", content: "x".repeat(2000) } })), { format: "openai" })));
    });`;
  for (let at = 0; at < 8; at++) {
    const worker = new Worker(program, { eval: true, workerData: { path, at }, execArgv: [] });
    await new Promise((ready, failed) => worker.once("message", ready).once("error", failed));
    await new Promise((done) => setTimeout(done, at * 7));
    await worker.terminate();
    await store.session("main").append(user(`after ${at}`), openai);
    const count = await store.session(`worker-${at}`).countEntries({ wholeSession: true });
    assert.equal((count - 6) % 3, 0);
  }
  assert.equal((await store.verify()).ok, true);
  assert.equal(await store.session("main").countEntries({ wholeSession: true }), 9);
});

