import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";

import * as loopstore from "loopstore";

import { assistant, fill, openai, own, place, root, user } from "./support.mjs";

const { Store } = loopstore;

test("a chat that was closed goes on as it was", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const done = await store.session("weather").append(user("Will it rain?"), openai);
  assert.deepEqual(done, {
    loopId: "loop-1",
    turns: [0, 1],
    seqs: [0, 1],
    tokens: done.tokens,
    begun: ["loop-1"],
    duplicate: false,
    notes: [],
  });
  await store.close();
  const again = await Store.open(path);
  const chat = again.session("weather");
  await chat.append(assistant("No."), openai);
  const { messages } = await chat.context(openai);
  assert.deepEqual(messages, [user("Will it rain?"), assistant("No.")]);
  assert.equal((await again.verify()).ok, true);
  await again.close();
});

test("a message in any of its shapes is the same message", async (t) => {
  const store = await own(t, Store.inMemory());
  const one = user("Will it rain?");
  const shapes = [
    one,
    [one],
    new Set([one]),
    JSON.stringify(one),
    JSON.stringify([one]),
    Buffer.from(JSON.stringify(one)),
    new Uint8Array(Buffer.from(JSON.stringify([one]))),
  ];
  for (const [index, shape] of shapes.entries()) {
    const chat = store.session(`chat-${index}`);
    await chat.append(shape, openai);
    assert.deepEqual((await chat.context(openai)).messages, [one]);
  }
});

test("without a format a text may stand for the blocks, and what is no message names the formats", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append({ role: "user", content: "Will it rain?" });
  assert.deepEqual((await chat.context(openai)).messages, [user("Will it rain?")]);
  await assert.rejects(chat.append({ role: "tool", tool_call_id: "c", content: "rain" }), /name the format: openai/);
});

test("a buffer that is changed after the call does not change what is stored", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const bytes = Buffer.from(JSON.stringify(user("as it was given")));
  const append = chat.append(bytes, openai);
  bytes.fill(0);
  await append;
  assert.deepEqual((await chat.context(openai)).messages, [user("as it was given")]);
});

test("a context as bytes is the JSON of the context", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 3);
  const bytes = await chat.contextBytes({ format: "anthropic" });
  assert.ok(Buffer.isBuffer(bytes));
  assert.deepEqual(JSON.parse(bytes.toString()), await chat.context({ format: "anthropic" }));
});

test("a policy can leave the clearing to Anthropic", async (t) => {
  const store = await own(t, Store.inMemory());
  const clearToolResults = { keep: 2, excludeTools: ["gauge"], byProvider: true };
  const chat = store.session("chat", { policy: { window: 200_000, clearToolResults } });
  await fill(chat, 3);
  const { request } = await chat.prepare({ format: "anthropic" });
  const [edit] = request.context_management.edits;
  assert.deepEqual([edit.keep.value, edit.exclude_tools], [2, ["gauge"]]);
  assert.deepEqual((await chat.context({ format: "anthropic" })).context_management.edits, [edit]);
  assert.equal("context_management" in (await chat.prepare({ format: "openai" })).request, false);
});

test("what Anthropic reports as cleared is a marker from that call on", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const anthropic = { format: "anthropic" };
  const answer = (edit) => ({
    role: "assistant",
    content: [{ type: "text", text: "It will." }],
    context_management: { applied_edits: [edit] },
  });
  const call = { type: "tool_use", id: "c1", name: "forecast", input: {} };
  const result = { type: "tool_result", tool_use_id: "c1", content: "rain ".repeat(200) };
  await chat.append({ role: "user", content: "Will it rain?" }, anthropic);
  await chat.append({ role: "assistant", content: [call] }, anthropic);
  await chat.append({ role: "user", content: [result] }, anthropic);
  const before = (await chat.context()).messages;
  const cleared = { type: "clear_tool_uses_20250919", cleared_tool_uses: 1, cleared_input_tokens: 250 };
  assert.deepEqual((await chat.append(answer(cleared), anthropic)).notes, []);
  assert.match((await chat.context()).messages[2].content[0].text, /^\[cleared: 1,000 bytes/);
  const { notes } = await chat.append(answer({ type: "clear_images_2027" }), anthropic);
  assert.equal(notes.length, 1);
  assert.match(notes[0], /clear_images_2027/);
  await chat.undo();
  assert.deepEqual((await chat.context()).messages.slice(0, 3), before);
});

test("an append that is tried again with its key is made once", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const first = await chat.append(user("once"), { ...openai, key: "k" });
  const again = await chat.appendOnce("k", user("once"), openai);
  assert.deepEqual({ ...again, duplicate: false, begun: first.begun }, first);
  assert.equal(again.duplicate, true);
  assert.equal((await chat.entries()).length, 1);
  assert.deepEqual((await chat.appended("k")).seqs, first.seqs);
  assert.equal(await chat.appended("another"), null);
  const batch = await chat.appendBatch([{ key: "k2", messages: user("a") }, { messages: user("b") }], openai);
  assert.equal(batch.length, 2);
  assert.deepEqual((await chat.appendKeys()).map(({ key }) => key), ["k", "k2"]);
  assert.deepEqual((await chat.appendKeys("k", { after: "k", limit: 1 })).map(({ key }) => key), ["k2"]);
});

test("a compaction is an overlay: undone it is as if it had not been", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await fill(chat);
  const before = await chat.context();
  const report = await chat.compact({ force: true });
  assert.equal(report.outcome, "committed");
  assert.ok(report.tokens_after < report.tokens_before);
  const compacted = await chat.context();
  assert.ok(compacted.tokens < before.tokens);
  await chat.undo();
  assert.deepEqual(await chat.context(), before);
  await chat.redo(report.run_id, { reason: "it was right" });
  assert.deepEqual(await chat.context(), compacted);
  const [run] = await chat.history();
  assert.equal(run.run_id, report.run_id);
  assert.equal((await store.history())[0].run_id, report.run_id);
});

test("prepare compacts when the policy says so, and its messages fit", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await fill(chat, 30);
  for (const format of ["openai", "responses", "anthropic", "loopstore"]) {
    const ready = await chat.prepare({ format });
    assert.ok(ready.tokens < 6000);
    assert.ok(ready.messages.length > 0);
    assert.deepEqual(ready.request.input ?? ready.request.messages, ready.messages);
  }
  assert.equal((await chat.history()).length, 1);
});

test("old tool results are cleared before anything is compacted", async (t) => {
  const clearToolResults = { keep: 1, excludeTools: ["gauge"] };
  const store = await own(t, Store.inMemory({ policy: { window: 6000, clearToolResults } }));
  const chat = store.session("chat");
  await chat.append({ role: "user", content: [{ type: "text", text: "How is the weather?" }] });
  for (const [hour, toolName] of ["radar", "gauge", "radar", "radar", "radar", "radar"].entries()) {
    const id = `c${hour}`;
    const content = [{ type: "text", text: "rain, ".repeat(600) }];
    await chat.append([
      { role: "assistant", content: [{ type: "toolCall", id, name: toolName, arguments: {} }] },
      { role: "toolResult", toolCallId: id, toolName, content },
    ]);
  }
  await chat.append({ role: "assistant", content: [{ type: "text", text: "It rains." }] });
  const before = await chat.context();
  const ready = await chat.prepare();
  assert.equal(ready.cleared.edits.length, 4);
  assert.equal(ready.cleared.skipped.length, 1);
  assert.equal(ready.notCleared, null);
  assert.ok(!ready.wasCompacted && ready.tokens === ready.cleared.tokens_after);
  assert.equal((await chat.prepare()).cleared, null);
  assert.deepEqual((await chat.history()).map(({ strategy }) => strategy), ["clear"]);
  await chat.undo();
  assert.deepEqual(await chat.context(), before);
  const report = await chat.compact({ policy: { window: 6000, clearToolResults: { atLeast: 100_000 } } });
  assert.match(report.not_cleared, /100000/);
  assert.equal(report.outcome, "committed");
});

for (const [kind, summarizer] of [
  ["a function", () => "They read files."],
  ["an async function", async () => ({ text: "They read files.", model: "stand-in", usage: { input: 3, output: 2 } })],
]) {
  test(`${kind} that summarises is asked, and its text is what the model sees`, async (t) => {
    const store = await own(t, Store.inMemory());
    const chat = store.session("chat");
    await fill(chat);
    let asked;
    const policy = {
      window: 6000,
      keepFirst: 1,
      keepRecent: 1,
      summarizerName: "stand-in",
      summarizer: (request) => ((asked = request), summarizer(request)),
    };
    const report = await chat.compact({ force: true, policy });
    assert.equal(report.outcome, "committed");
    assert.ok(asked.prompt.length > 0 && asked.maxTokens > 0 && asked.timeout > 0);
    assert.ok(asked.signal instanceof AbortSignal);
    assert.match(JSON.stringify((await chat.context(openai)).messages), /They read files\./);
  });
}

test("a summariser that fails, or says nothing, leaves the digest in its place", async (t) => {
  const bad = [
    () => { throw new Error("no model"); },
    async () => { throw new Error("no model"); },
    () => 17,
    () => undefined,
    () => ({ txt: "misspelt" }),
    () => { throw undefined; },
  ];
  for (const summarizer of bad) {
    const store = await own(t, Store.inMemory());
    const chat = store.session("chat");
    await fill(chat);
    const policy = { window: 6000, keepFirst: 1, keepRecent: 1, summarizer };
    const report = await chat.compact({ force: true, policy });
    assert.equal(report.outcome, "committed");
    assert.ok((await chat.context()).tokens < 6000);
  }
});

test("a context as of a turn, a run and a time is what was seen then", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await fill(chat);
  const first = await chat.asOf({ loopId: "loop-1", turn: 0 }, openai);
  assert.equal(first.messages[0].role, "user");
  const report = await chat.compact({ force: true });
  const then = await chat.asOf({ run: report.run_id });
  assert.deepEqual(then.messages, (await chat.context()).messages);
  assert.deepEqual((await chat.asOf({ time: new Date(Date.now() + 60_000) })).messages, then.messages);
});

test("a recorded context is built again from its id, whatever came later", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await assert.rejects(chat.recordContext(), loopstore.NotFoundError);
  await fill(chat);
  const before = await chat.context();
  const { manifestId, ...size } = await chat.recordContext();
  assert.deepEqual(size, { messages: before.messages.length, tokens: before.tokens, bytes: before.bytes });
  await chat.append([user("And now?")], openai);
  await chat.compact({ force: true });
  assert.deepEqual((await chat.asOf({ manifest: manifestId })).messages, before.messages);
  await assert.rejects(chat.asOf({ manifest: "nothing" }), loopstore.NotFoundError);
});

test("a fork goes its own way, and the other handle stays on its line", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append([user("Will it rain?"), assistant("No.")], openai);
  const side = await chat.fork("loop-1", 0);
  await side.append(user("And snow?"), openai);
  assert.equal((await chat.context(openai)).messages.length, 2);
  assert.equal((await side.context(openai)).messages.at(-1).content, "And snow?");
  const again = await chat.atLoop(await side.leaf());
  assert.deepEqual(await again.context(), await side.context());
});

test("what was said is found, recalled, expanded and counted", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await fill(chat);
  await chat.compact({ force: true });
  const { hits } = await chat.search("file number 7", { role: "user", limit: 3 });
  assert.match(hits[0].snippet, /7/);
  assert.ok((await store.search("file number", { hidden: true })).hits.length > 0);
  assert.equal((await store.search("file", { until: new Date(0) })).hits.length, 0);
  assert.equal((await store.searchSessions("file number")).sessions[0].session_id, "chat");
  assert.ok((await chat.recall("file number 7", 300)).text.length > 0);
  assert.ok((await store.recall("file number 7", 300, { session: "chat" })).tokens <= 300);
  const { messages } = await chat.expand(0, 0, { loopId: "loop-1" });
  assert.ok(messages.length > 0);
  assert.equal(await chat.countEntries({ roles: ["user"] }), 12);
  assert.equal((await chat.entries({ last: 2 })).length, 2);
  const [first] = await chat.entries({ limit: 1 });
  const rest = await chat.entries({ after: { loopId: first.loop_id, seq: first.seq } });
  assert.equal(rest.length, (await chat.countEntries()) - 1);
});

test("sessions are listed page by page, and say what they are", async (t) => {
  const store = await own(t, Store.open(place(t)));
  for (const id of ["bern", "rome", "oslo"]) await store.session(id).append(user("Will it rain?"), openai);
  const ids = (rows) => rows.map((row) => row.session_id);
  const first = ids(await store.sessions({ limit: 2 }));
  const second = ids(await store.sessions({ limit: 2, after: first[1] }));
  assert.deepEqual([...first, ...second], ids(await store.sessions()));
  assert.equal(second.length, 1);
  await assert.rejects(store.sessions({ after: "paris" }), loopstore.NotFoundError);
  await assert.rejects(store.sessions({ limit: -1 }), loopstore.InvalidInputError);
  assert.equal(inspect(store.session("bern")), 'Session { "bern" }');
  assert.equal(inspect(store), `Store { ${JSON.stringify(store.place)} }`);
  await store.close();
  assert.equal(inspect(store), "Store { closed }");
});

test("sessions are listed, titled, hidden, brought back and erased", async (t) => {
  const store = await own(t, Store.open(place(t)));
  const chat = store.session("chat");
  assert.equal(await chat.exists(), false);
  assert.equal(await chat.leaf(), null);
  await chat.append(user("Hello"), openai);
  await chat.setTitle("A greeting");
  await chat.setProject("/srv/greeter");
  assert.equal((await store.sessions({ project: "greeter" }))[0].title, "A greeting");
  assert.equal((await chat.show()).loops.length, 1);
  const kept = await chat.hide();
  assert.equal((await store.sessions()).length, 0);
  const back = await store.session(kept).unhide("chat");
  assert.equal(back.id, "chat");
  await back.erase({ reason: "asked for" });
  assert.equal(await store.session("chat").exists(), false);
  assert.equal((await store.stats()).sessions, 0);
});

test("loops, calls, sub-agents and pins are kept as in the other languages", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 1);
  const call = { id: "call-9", type: "function", function: { name: "read", arguments: "{}" } };
  await chat.append({ role: "assistant", content: null, tool_calls: [call] }, openai);
  const { state, key } = await chat.startCall("call-9");
  assert.deepEqual([state, typeof key], ["new", "string"]);
  assert.deepEqual((await chat.startCall("call-9")).key, key);
  const finished = await chat.startCall("call-0");
  assert.equal(finished.state, "finished");
  assert.equal(finished.message.role, "toolResult");
  const child = await chat.child("call-9", "helper");
  await child.append(user("Go"), openai);
  assert.equal((await chat.pins()).length, 0);
  await chat.pin("loop-1", 0);
  assert.ok((await chat.pins()).length > 0);
  await chat.unpin("loop-1", 0);
  assert.equal((await chat.pins()).length, 0);
  await chat.endLoop("Completed");
  assert.equal(await chat.beginLoop({ id: "mine", agent: "tester", kind: { Rerun: { tag: "again" } } }), "mine");
});

test("a session goes out as an export and a page, to memory or to a file", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 2);
  const bytes = await chat.export("jsonl");
  const path = place(t, "chat.jsonl");
  await chat.exportTo(path, "jsonl");
  assert.deepEqual(readFileSync(path), bytes);
  assert.match(await chat.report(), /^<!doctype html>/i);
  const page = place(t, "chat.html");
  await chat.reportTo(new URL(`file://${page}`));
  assert.match(readFileSync(page, "utf8"), /^<!doctype html>/i);
  const other = await own(t, Store.inMemory());
  const report = await other.import(path);
  assert.equal(report.messages, await chat.countEntries());
  assert.equal((await other.import([path])).added_messages, 0);
});

test("secrets are shown first, and replaced as the policy says", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append(user("git clone https://me:hunter2@example.org/x"));
  const shown = await chat.redact({ dryRun: true });
  assert.deepEqual([shown.secrets, shown.receipt, shown.findings.length], [{ "url-password": 1 }, null, 1]);
  assert.deepEqual((await chat.redact({ dryRun: true, allow: ["hunter2"] })).secrets, {});
  assert.deepEqual((await chat.redact({ dryRun: true, only: ["github-pat"] })).secrets, {});
  await assert.rejects(chat.redact({ only: ["no-such"] }), loopstore.InvalidInputError);
  await assert.rejects(chat.redact({ minConfidence: "some" }), loopstore.InvalidInputError);
  const path = place(t, "chat.json");
  const messages = [user("git clone https://me:hunter2@example.org/x"), { role: "assistant", content: "Done." }];
  writeFileSync(path, JSON.stringify({ messages }));
  assert.ok((await chat.redact({ reason: "leaked" })).receipt);
  assert.ok(!JSON.stringify(await chat.context()).includes("hunter2"));
  for (const [options, isKept] of [[{ allow: ["hunter2"], minConfidence: "high" }, true], [{}, false]]) {
    const other = await own(t, Store.inMemory());
    const { sessions } = await other.import(path, { redact: true, ...options });
    assert.equal(JSON.stringify(await other.session(sessions[0]).context()).includes("hunter2"), isKept);
  }
});

test("SQL reads, and nothing else", async (t) => {
  const store = await own(t, Store.inMemory());
  assert.deepEqual(await store.sql("SELECT count(*) AS n FROM v_messages"), [{ n: 0 }]);
  await assert.rejects(store.sql("DELETE FROM messages"), loopstore.LoopstoreError);
});

test("import and require give the same classes", async () => {
  const required = createRequire(import.meta.url)("loopstore");
  assert.equal(required.Store, Store);
  assert.equal(required.LoopstoreError, loopstore.LoopstoreError);
  const names = (given) => Object.keys(given).filter((name) => name !== "__esModule" && name !== "default").sort();
  assert.deepEqual(names(required), names(loopstore));
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  assert.equal(loopstore.version, version);
  assert.ok(loopstore.COUNTERS.includes("heuristic"));
});
