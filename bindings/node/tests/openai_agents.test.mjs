import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import {
  Agent,
  OpenAIResponsesCompactionSession,
  Usage,
  applySessionHistoryMutations,
  isSessionHistoryRewriteAwareSession,
  run,
} from "@openai/agents";
import { InvalidInputError, Store } from "loopstore";
import { LoopstoreSession } from "loopstore/openai-agents";

import { openai, own, place } from "./support.mjs";

process.env.OPENAI_AGENTS_DISABLE_TRACING = "1";

const user = (text) => ({ type: "message", role: "user", content: text });
const said = (text, id) => ({
  type: "message",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, providerData: { annotations: [] } }],
  ...(id ? { id } : {}),
});
const call = (callId) => ({
  type: "function_call",
  id: `fc_${callId}`,
  callId,
  name: "forecast",
  status: "completed",
  arguments: '{"place":"Bern, Switzerland","days":3}',
});
const result = (callId, output) => ({ type: "function_call_result", callId, name: "forecast", status: "completed", output });

const ITEMS = [
  user("Hello, 世界! 🦀 'quotes\" \\ and \n lines \u2028"),
  said("This is an answer that is long enough to be stored only once in the database.", "msg_1"),
  { role: "user", content: [{ type: "input_text", text: "a" }, { type: "input_text", text: "b" }] },
  { role: "system", content: "You are brief. ".repeat(5) },
  { type: "reasoning", id: "rs_1", content: [{ type: "input_text", text: "I think about the weather of tomorrow." }] },
  { type: "reasoning", id: "rs_2", content: [], providerData: { encrypted_content: "gAAAAABsealed".repeat(10) } },
  call("c1"),
  result("c1", { type: "text", text: "Rain from noon on, ".repeat(30) }),
  call("c2"),
  result("c2", [{ type: "input_text", text: "Part one." }, { type: "input_image", image: "https://example.com/a.png" }]),
  result("c3", "a bare text"),
  { type: "hosted_tool_call", name: "web_search_call", id: "ws_1", status: "completed", providerData: { query: "rain" } },
  { type: "computer_call", callId: "c4", status: "completed", action: { type: "screenshot" } },
  { type: "shell_call_output", callId: "c5", output: [{ stdout: "x", stderr: "", outcome: { type: "exit", exitCode: 0 } }] },
  { role: "user", content: [{ type: "input_image", image: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" }] },
  { role: "user", content: [{ type: "input_file", file: { id: "file_1" } }] },
  { type: "unknown", providerData: { anything: [1, 2.5, null, true, 1e300] } },
  { type: "function_call_result", callId: "c6", name: "shot", status: "completed", output: { type: "image", image: { data: new Uint8Array([1, 2, 255]) } } },
  user('{"$loopstore":0} in a text that is long enough to be looked at'),
  user(""),
];

const model = {
  async getResponse({ input }) {
    return { usage: new Usage(), output: [said(`I see ${input.length} items.`)] };
  },
};

async function session(t, options = {}) {
  const store = options.store ?? (await own(t, Store.inMemory()));
  return new LoopstoreSession("s", { ...options, store });
}

test("a run goes on with what was said, and its tools' results are found", async (t) => {
  const it = await session(t);
  const agent = new Agent({ name: "stand-in", model });
  assert.equal((await run(agent, "Will it rain?", { session: it })).finalOutput, "I see 1 items.");
  assert.equal((await run(agent, "And tomorrow?", { session: it })).finalOutput, "I see 3 items.");
  assert.equal((await it.getItems()).length, 4);
  assert.match((await it.session.search("tomorrow")).hits[0].snippet, /tomorrow/);
  assert.equal((await it.session.context(openai)).messages.length, 4);
});

test("items come back as they were added, each and all together, from another process's store too", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  for (const [at, item] of ITEMS.entries()) {
    const one = new LoopstoreSession(`one-${at}`, { store });
    await one.addItems([item]);
    assert.deepEqual(await one.getItems(), [item], `item ${at}`);
  }
  const all = new LoopstoreSession("all", { store });
  await all.addItems(ITEMS);
  await store.close();
  const again = new LoopstoreSession("all", { store: await own(t, Store.open(path)) });
  assert.deepEqual(await again.getItems(), ITEMS);
  for (const limit of [1, 3, ITEMS.length, 1000]) assert.deepEqual(await again.getItems(limit), ITEMS.slice(-limit));
  assert.deepEqual([await again.getItems(0), await again.getItems(-1)], [[], []]);
});

test("bytes of an item are not listed one by one to find numbers that JSON lacks", async (t) => {
  const it = await session(t);
  const data = new Uint8Array([1, 2, 255]);
  // An enumeration of the entries reads it; the item's JSON has Base64.
  Object.defineProperty(data, "extra", { enumerable: true, get: () => assert.fail("the bytes were listed") });
  const item = (image) => ({ type: "function_call_result", callId: "c", name: "shot", status: "completed", output: { type: "image", image } });
  await it.addItems([{ ...item({ data }), providerData: { none: null } }]);
  assert.deepEqual(await it.getItems(), [{ ...item({ data: new Uint8Array([1, 2, 255]) }), providerData: { none: null } }]);
  await assert.rejects(it.addItems([item({ data, size: NaN })]), /output\.image\.size cannot be written as JSON/);
});

test("items are taken back from the end, until none is left, and the record keeps them", async (t) => {
  const it = await session(t);
  await it.addItems(ITEMS);
  for (const item of ITEMS.toReversed?.() ?? [...ITEMS].reverse()) assert.deepEqual(await it.popItem(), item);
  assert.equal(await it.popItem(), undefined);
  assert.deepEqual(await it.getItems(), []);
  assert.equal(await it.session.countEntries({ wholeSession: true }), ITEMS.length);
});

test("clearing begins anew and keeps the record, or erases it", async (t) => {
  const kept = await session(t);
  await kept.clearSession();
  await kept.addItems([user("one")]);
  await kept.clearSession();
  assert.deepEqual(await kept.getItems(), []);
  await kept.addItems([user("two")]);
  assert.deepEqual(await kept.getItems(), [user("two")]);
  assert.equal(await kept.session.countEntries({ wholeSession: true }), 2);
  const erased = await session(t, { onDelete: "erase" });
  await erased.addItems([user("one")]);
  await erased.clearSession();
  assert.equal(await erased.session.exists(), false);
  await erased.addItems([user("two")]);
  assert.deepEqual(await erased.getItems(), [user("two")]);
});

test("a transaction that is tried again is made once", async (t) => {
  const it = await session(t);
  const append = { operationId: "op-1", transaction: { type: "append_items", items: [user("one"), said("two")] } };
  await Promise.all([1, 2, 3, 4].map(() => it.applyHistoryTransaction(append)));
  assert.deepEqual(await it.getItems(), [user("one"), said("two")]);
  const again = JSON.parse(JSON.stringify(append));
  again.transaction = { items: again.transaction.items.map(({ role, type, ...rest }) => ({ ...rest, type, role })), type: "append_items" };
  await it.applyHistoryTransaction(again);
  const replace = {
    operationId: "op-2",
    transaction: { type: "replace_suffix", expectedSuffix: [said("two")], replacement: [call("c1"), result("c1", "Rain.")] },
  };
  await it.applyHistoryTransaction(replace);
  await it.applyHistoryTransaction(replace);
  assert.deepEqual(await it.getItems(), [user("one"), call("c1"), result("c1", "Rain.")]);
  await it.addItems([user("three")]);
  await it.applyHistoryTransaction(replace);
  assert.equal((await it.getItems()).length, 4);
  const all = { operationId: "op-3", transaction: { type: "replace_suffix", expectedSuffix: await it.getItems(), replacement: [] } };
  await it.applyHistoryTransaction(all);
  assert.deepEqual(await it.getItems(), []);
});

test("a session that was cleared knows no operation of before", async (t) => {
  const it = await session(t);
  const append = { operationId: "op", transaction: { type: "append_items", items: [user("one")] } };
  for (let round = 0; round < 3; round++) {
    await it.applyHistoryTransaction(append);
    await it.applyHistoryTransaction(append);
    assert.deepEqual(await it.getItems(), [user("one")]);
    const other = { operationId: "op", transaction: { type: "append_items", items: [user(`two ${round}`)] } };
    await assert.rejects(it.applyHistoryTransaction(other), InvalidInputError);
    await it.clearSession();
    assert.deepEqual(await it.getItems(), []);
    assert.equal(await it.popItem(), undefined);
    await it.applyHistoryTransaction(other);
    assert.deepEqual(await it.getItems(), [user(`two ${round}`)]);
    await it.clearSession();
  }
  await it.clearSession();
  assert.deepEqual(await it.getItems(), []);
  assert.equal(await it.session.countEntries({ wholeSession: true, roles: ["user"] }), 6);
});

test("a transaction that cannot be made changes nothing", async (t) => {
  const it = await session(t);
  await it.addItems([user("one")]);
  await it.applyHistoryTransaction({ operationId: "op", transaction: { type: "append_items", items: [user("two")] } });
  const bad = [
    { operationId: "op", transaction: { type: "append_items", items: [user("another")] } },
    { operationId: "new", transaction: { type: "replace_suffix", expectedSuffix: [user("else")], replacement: [] } },
    { operationId: "new", transaction: { type: "replace_suffix", expectedSuffix: [user("0"), user("one"), user("two")], replacement: [] } },
    { operationId: " ", transaction: { type: "append_items", items: [] } },
    { operationId: 7, transaction: { type: "append_items", items: [] } },
    { operationId: "new", transaction: { type: "clear" } },
    { operationId: "new", transaction: null },
    { operationId: "new" },
    { operationId: "new", transaction: { type: "append_items", items: [7] } },
    { operationId: "new", transaction: { type: "append_items", items: "x" } },
  ];
  for (const args of bad) await assert.rejects(it.applyHistoryTransaction(args), InvalidInputError);
  const empty = await new LoopstoreSession("empty", { store: await own(t, Store.inMemory()) });
  await assert.rejects(empty.applyHistoryTransaction(bad[1]), InvalidInputError);
  assert.deepEqual(await it.getItems(), [user("one"), user("two")]);
  const long = { operationId: "o".repeat(5000), transaction: { type: "append_items", items: [user("three")] } };
  await it.applyHistoryTransaction(long);
  await it.applyHistoryTransaction(long);
  assert.equal((await it.getItems()).length, 3);
});

test("a call that was changed later stands in place of the first, and the record keeps what was said", async (t) => {
  const it = await session(t);
  assert.ok(isSessionHistoryRewriteAwareSession(it));
  await it.addItems([user("one"), call("c1"), call("c1"), call("c2"), result("c1", "Rain."), result("c2", "Sun.")]);
  const replacement = { ...call("c1"), arguments: '{"place":"Basel"}' };
  const mutations = [{ type: "replace_function_call", callId: "c1", replacement }];
  const after = applySessionHistoryMutations(await it.getItems(), mutations);
  await it.applyHistoryMutations({ mutations });
  assert.deepEqual(await it.getItems(), after);
  assert.deepEqual(after, [user("one"), replacement, call("c2"), result("c1", "Rain."), result("c2", "Sun.")]);
  const none = [{ type: "replace_function_call", callId: "none", replacement }];
  await it.applyHistoryMutations({ mutations: [] });
  await it.applyHistoryMutations({ mutations: none });
  assert.deepEqual(await it.getItems(), after);
  const bad = [{ type: "replace_message", callId: "c1", replacement }];
  await assert.rejects(it.applyHistoryMutations({ mutations: bad }), InvalidInputError);
  assert.equal((await it.session.search("Basel")).hits.length > 0, true);
  assert.equal((await it.session.search("Bern")).hits.length > 0, true);
});

test("the provider's own compaction is an overlay, and undo brings the originals back", async (t) => {
  const it = await session(t);
  const before = [user("one"), said("two"), user("three"), said("four")];
  await it.addItems(before);
  const compaction = { type: "compaction", id: "cmp_1", encrypted_content: "gAAAA".repeat(20) };
  await it.replaceHistoryWithCompaction([compaction, user("three"), said("four")]);
  assert.deepEqual(await it.getItems(), [compaction, user("three"), said("four")]);
  await it.addItems([user("five")]);
  assert.deepEqual((await it.getItems()).at(-1), user("five"));
  assert.equal((await it.getItems()).length, 4);
  await it.session.undo();
  assert.deepEqual(await it.getItems(), [...before, user("five")]);
  assert.equal((await it.session.search("two")).hits.length > 0, true);
  const empty = new LoopstoreSession("empty", { store: await own(t, Store.inMemory()) });
  await empty.replaceHistoryWithCompaction([compaction]);
  assert.deepEqual(await empty.getItems(), [compaction]);
});

test("a compaction that comes with a model's answer goes through the overlay", async (t) => {
  const it = await session(t);
  const compaction = { type: "compaction", id: "cmp_1", encrypted_content: "gAAAA".repeat(20) };
  const compacting = { async getResponse() { return { usage: new Usage(), output: [compaction, said("Shorter now.")] }; } };
  await run(new Agent({ name: "stand-in", model }), "Will it rain?", { session: it });
  const before = await it.getItems();
  await run(new Agent({ name: "compacting", model: compacting }), "And tomorrow?", { session: it });
  assert.equal((await it.getItems())[0].type, "compaction");
  await it.session.undo();
  assert.deepEqual((await it.getItems()).slice(0, before.length), before);
});

test("the SDK's session that compacts keeps the record in ours", async (t) => {
  const it = await session(t);
  const compaction = { type: "compaction", id: "cmp_1", encrypted_content: "gAAAA".repeat(20) };
  const client = { responses: { compact: async () => ({ output: [compaction], usage: {} }) } };
  const wrapped = new OpenAIResponsesCompactionSession({ client, underlyingSession: it, model: "gpt-5", compactionMode: "input" });
  await wrapped.addItems([user("one"), said("two", "msg_2"), user("three"), said("four", "msg_4")]);
  await wrapped.runCompaction({ force: true, compactionMode: "input" });
  assert.deepEqual((await it.getItems()).map(({ type }) => type), ["compaction"]);
  assert.equal(await it.session.countEntries({ wholeSession: true }), 5);
});

test("loopstore compacts by its policy, as an overlay", async (t) => {
  const it = await session(t, { policy: { window: 4000, keepFirst: 1, keepRecent: 1 } });
  assert.equal(await it.runCompaction(), null);
  for (let at = 0; at < 20; at++) await it.addItems([user(`Question ${at}. ${"word ".repeat(300)}`), said(`Answer ${at}.`)]);
  const before = await it.getItems();
  await it.runCompaction({ force: true });
  const after = await it.getItems();
  assert.ok(after.length < before.length);
  for (const item of after) assert.ok(!("$responses" in item) && (item.role || item.type));
  assert.deepEqual(after.at(-1), before.at(-1));
  await it.session.undo();
  assert.deepEqual(await it.getItems(), before);
});

test("what was not said through the SDK comes in its form", async (t) => {
  const it = await session(t);
  const tool = { id: "c1", type: "function", function: { name: "forecast", arguments: "{}" } };
  await it.session.append(
    [
      { role: "user", content: "Rain?" },
      { role: "assistant", content: null, tool_calls: [tool] },
      { role: "tool", tool_call_id: "c1", content: "Yes." },
      { role: "assistant", content: "It will rain." },
    ],
    openai,
  );
  const items = await it.getItems();
  assert.deepEqual(items.map(({ type }) => type), ["message", "function_call", "function_call_result", "message"]);
  assert.deepEqual([items[1].callId, items[2].callId, items[2].name], ["c1", "c1", "forecast"]);
  const agent = new Agent({ name: "stand-in", model });
  assert.equal((await run(agent, "Sure?", { session: it })).finalOutput, "I see 5 items.");
});

test("what is no session or no item is refused", async (t) => {
  const store = await own(t, Store.inMemory());
  assert.throws(() => new LoopstoreSession("", { store }), InvalidInputError);
  assert.throws(() => new LoopstoreSession("s", { store: "agent.db" }), InvalidInputError);
  assert.throws(() => new LoopstoreSession("s", { store, onDelete: "never" }), InvalidInputError);
  const it = new LoopstoreSession("s", { store });
  const ring = user("x");
  ring.ring = ring;
  for (const bad of ["x", null, [7], [null], [ring], [{ big: 10n }]]) await assert.rejects(it.addItems(bad), InvalidInputError);
  assert.equal(await it.getSessionId(), "s");
  await it.addItems([]);
  assert.equal(await it.session.exists(), false);
  const required = createRequire(import.meta.url)("loopstore/openai-agents");
  assert.ok(new required.LoopstoreSession("s", { store }));
});
