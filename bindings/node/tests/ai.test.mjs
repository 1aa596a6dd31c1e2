import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import { convertToModelMessages, simulateReadableStream, streamText, validateUIMessages } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { InvalidInputError, Store } from "loopstore";
import { LoopstoreChats } from "loopstore/ai";

import { openai, own, place } from "./support.mjs";

const user = (id, text) => ({ id, role: "user", parts: [{ type: "text", text }] });
const answer = (id, text) => ({ id, role: "assistant", parts: [{ type: "step-start" }, { type: "text", text, state: "done" }] });
const withTool = {
  id: "a-tool",
  role: "assistant",
  metadata: { model: "stand-in", at: 17 },
  parts: [
    { type: "step-start" },
    { type: "reasoning", text: "They ask for the weather.", providerMetadata: { x: { signature: "s" } } },
    { type: "tool-forecast", toolCallId: "c1", state: "output-available", input: { place: "Bern" }, output: { rain: true } },
    { type: "dynamic-tool", toolName: "other", toolCallId: "c2", state: "output-error", input: {}, errorText: "no network" },
    { type: "step-start" },
    { type: "text", text: "It will rain in Bern.", state: "done" },
    { type: "source-url", sourceId: "s1", url: "https://example.com", title: "Weather" },
    { type: "data-chart", id: "d1", data: { points: [1, 2.5, null] } },
  ],
};
const ALL = [
  { id: "sys", role: "system", parts: [{ type: "text", text: "Be brief." }] },
  user("u1", "Hello, 世界! 🦀 \u2028"),
  withTool,
  { id: "u2", role: "user", parts: [{ type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" }, { type: "text", text: "What is this?" }] },
  { id: "u3", role: "user", parts: [{ type: "file", mediaType: "application/pdf", filename: "a.pdf", url: "https://example.com/a.pdf" }] },
  answer("a2", "A picture."),
  { id: "empty", role: "assistant", parts: [] },
];

async function chats(t, options) {
  return new LoopstoreChats(await own(t, Store.inMemory()), options);
}

test("messages come back as they were saved, from another store too", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const it = new LoopstoreChats(store);
  assert.deepEqual(await it.load("chat"), []);
  await it.save("chat", ALL);
  await store.close();
  const again = new LoopstoreChats(await own(t, Store.open(path)));
  assert.deepEqual(await again.load("chat"), ALL);
  await again.save("chat", ALL);
  assert.equal(await again.session("chat").countEntries({ wholeSession: true, kinds: ["uiMessage"] }), ALL.length);
  assert.ok((await validateUIMessages({ messages: ALL.slice(1, 2) })).length === 1);
});

test("what messages say is found, counted and shown to a model as any other", async (t) => {
  const it = await chats(t);
  await it.save("chat", ALL);
  const { messages } = await it.session("chat").context(openai);
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool", "tool", "assistant", "user", "user", "assistant"]);
  assert.match((await it.store.search("rain in Bern")).hits[0].snippet, /Bern/);
  const compacted = it.session("chat").withPolicy({ keepFirst: 1, keepRecent: 1, window: 4000 });
  await compacted.compact({ force: true });
  assert.deepEqual(await it.load("chat"), ALL);
});

test("a message that was changed, and a list that lost its end, make a branch", async (t) => {
  const it = await chats(t);
  const begin = [user("u1", "Rain?"), answer("a1", "No."), user("u2", "Snow?")];
  await it.save("chat", begin);
  const grown = [...begin, answer("a2", "Ye")];
  await it.save("chat", grown);
  const done = [...begin, answer("a2", "Yes, tomorrow.")];
  await it.save("chat", done);
  assert.deepEqual(await it.load("chat"), done);
  await it.save("chat", begin.slice(0, 2));
  assert.deepEqual(await it.load("chat"), begin.slice(0, 2));
  assert.deepEqual((await it.session("chat").context(openai)).messages.length, 2);
  const edited = [user("u1", "Sun?"), answer("a1", "Yes.")];
  await it.save("chat", edited);
  assert.deepEqual(await it.load("chat"), edited);
  await it.save("chat", []);
  assert.deepEqual(await it.load("chat"), []);
  await it.save("chat", edited);
  assert.deepEqual(await it.load("chat"), edited);
  assert.ok((await it.store.search("snow")).hits.length > 0);
});

test("messages that are added after a changed one are kept, also those equal to stored ones", async (t) => {
  const it = await chats(t);
  await it.save("chat", [user("u1", "Rain?"), answer("a1", "No."), user("u2", "Snow?")]);
  const edited = [user("u1", "Sun?"), answer("a1", "No.")];
  assert.deepEqual(await it.add("chat", edited), edited);
  // Before the changed message, a stored message is not added again.
  const last = answer("a1", "Yes.");
  assert.deepEqual(await it.add("chat", [edited[0], last]), [edited[0], last]);
  assert.equal(await it.session("chat").countEntries({ kinds: ["uiMessage"] }), 2);
});

test("a stream of the SDK goes on with a chat, and saves it", async (t) => {
  const it = await chats(t);
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const model = new MockLanguageModelV3({
    doStream: async ({ prompt }) => ({
      stream: simulateReadableStream({
        chunks: [
          { type: "stream-start", warnings: [] },
          { type: "text-start", id: "1" },
          { type: "text-delta", id: "1", delta: `I see ${prompt.length} messages.` },
          { type: "text-end", id: "1" },
          { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
        ],
      }),
    }),
  });
  for (const [round, text] of ["Hello!", "And now?"].entries()) {
    const messages = await it.add("chat", user(`u${round}`, text));
    const result = streamText({ model, messages: await convertToModelMessages(messages) });
    const stream = result.toUIMessageStream({
      originalMessages: messages,
      generateMessageId: () => `a${round}`,
      onFinish: ({ messages: all }) => it.save("chat", all),
    });
    for await (const _ of stream);
  }
  const said = (await it.load("chat")).map(({ parts }) => parts.find(({ type }) => type === "text").text);
  assert.deepEqual(said, ["Hello!", "I see 1 messages.", "And now?", "I see 3 messages."]);
});

test("chats are listed and deleted, and their ids may be used again", async (t) => {
  for (const onDelete of ["hide", "erase"]) {
    const it = await chats(t, { onDelete });
    await it.save("one", [user("u1", "first chat")]);
    await it.save("two", [user("u1", "second chat")]);
    assert.deepEqual((await it.list()).map(({ id }) => id).sort(), ["one", "two"]);
    await it.delete("one");
    await it.delete("nobody");
    assert.deepEqual((await it.list()).map(({ id }) => id), ["two"]);
    assert.deepEqual(await it.load("one"), []);
    await it.save("one", [user("u9", "anew")]);
    assert.equal((await it.load("one"))[0].id, "u9");
  }
});

test("two programs that add to one chat lose nothing of each other's", async (t) => {
  const path = place(t);
  const [one, two] = [await own(t, Store.open(path)), await own(t, Store.open(path))].map((store) => new LoopstoreChats(store));
  for (let at = 0; at < 10; at++) await Promise.all([one.add("chat", user(`a${at}`, "x")), two.add("chat", user(`b${at}`, "y"))]);
  const ids = (await one.load("chat")).map(({ id }) => id);
  assert.deepEqual([...ids].sort(), [..."0123456789"].flatMap((at) => [`a${at}`, `b${at}`]).sort());
});

test("a list that three calls save at once is stored once, and a message id once", async (t) => {
  const path = place(t);
  const [one, two] = [await own(t, Store.open(path)), await own(t, Store.open(path))].map((store) => new LoopstoreChats(store));
  const list = [user("u1", "Rain?"), answer("a1", "No."), user("u2", "Snow?")];
  await Promise.all([one, one, one, two].map((it) => it.save("chat", list)));
  assert.deepEqual(await one.load("chat"), list);
  const count = (it) => it.session("chat").countEntries({ wholeSession: true, kinds: ["uiMessage"] });
  assert.equal(await count(one), 3);
  // A request that is sent again, also by several programs at once.
  await Promise.all([one, two, one].map((it) => it.add("chat", user("u3", "Sun?"))));
  await one.add("chat", [user("u1", "Rain?"), user("u3", "Sun?"), user("u3", "Sun?")]);
  assert.equal(await count(two), 4);
  assert.deepEqual(await two.load("chat"), [...list, user("u3", "Sun?")]);
  // A message that is sent again with other words replaces what follows it.
  assert.deepEqual(await one.add("chat", user("u2", "Hail?")), [list[0], list[1], user("u2", "Hail?")]);
  await assert.rejects(one.save("chat", [user("u1", "x"), user("u1", "y")]), /two messages have the id `u1`/);
  // Back to the list of before, in a branch of its own.
  await one.save("chat", list);
  assert.deepEqual(await two.load("chat"), list);
  // Messages without an id are never the same.
  await one.add("chat", [user("", "a"), user("", "a")]);
  assert.equal((await one.load("chat")).length, 5);
});

test("the list of chats has no other sessions", async (t) => {
  const it = await chats(t);
  await it.save("chat", [user("u1", "Hello")]);
  await it.save("emptied", [user("u1", "Hello")]);
  await it.save("emptied", []);
  for (let at = 0; at < 40; at++) await it.store.session(`agent-${at}`).append({ role: "user", content: "x" }, openai);
  assert.deepEqual((await it.list()).map(({ id }) => id).sort(), ["chat", "emptied"]);
});

test("half of a surrogate pair is the same message again, and NaN is refused", async (t) => {
  const it = await chats(t);
  const list = [user("u1", "a\ud800b")];
  await it.save("chat", list);
  await it.save("chat", list);
  assert.equal((await it.load("chat"))[0].parts[0].text, "a\ufffdb");
  assert.equal(await it.session("chat").countEntries({ wholeSession: true }), 2);
  await assert.rejects(it.save("chat", [{ ...list[0], metadata: { score: NaN } }]), /metadata\.score cannot be written as JSON/);
});

test("what is no chat and no message is refused, and nothing is stored", async (t) => {
  assert.throws(() => new LoopstoreChats("agent.db"), InvalidInputError);
  const it = await chats(t);
  assert.throws(() => new LoopstoreChats(it.store, { onDelete: "never" }), InvalidInputError);
  const ring = user("u1", "x");
  ring.ring = ring;
  for (const bad of [null, 7, "x", {}, { id: "x", role: "user" }, ring]) {
    await assert.rejects(it.save("chat", [user("u0", "fine"), bad]), InvalidInputError);
    await assert.rejects(it.add("chat", [bad]), InvalidInputError);
  }
  await assert.rejects(it.save("chat", "x"), InvalidInputError);
  assert.equal(await it.session("chat").exists(), false);
  const required = createRequire(import.meta.url)("loopstore/ai");
  assert.ok(new required.LoopstoreChats(it.store));
});
