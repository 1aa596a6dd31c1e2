import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { test } from "node:test";

import { AIMessage, AIMessageChunk, BaseMessage, ChatMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { Annotation, Command, END, MessagesAnnotation, START, StateGraph, interrupt } from "@langchain/langgraph";
import { MemorySaver, emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import { ForeignThreadError, InvalidInputError, Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";

import { openai, own, place } from "./support.mjs";

async function saver(t, options) {
  return new LoopstoreSaver(await own(t, Store.inMemory()), options);
}

const thread = (id = "t") => ({ configurable: { thread_id: id } });

/** Returns a graph that answers with the number of messages that it sees. */
function chat(checkpointer) {
  return new StateGraph(MessagesAnnotation)
    .addNode("model", ({ messages }) => ({ messages: [new AIMessage(`I see ${messages.length} messages.`)] }))
    .addEdge(START, "model")
    .addEdge("model", END)
    .compile({ checkpointer });
}

const say = (graph, text, config = thread()) => graph.invoke({ messages: [new HumanMessage(text)] }, config);
const texts = (messages) => messages.map(({ content }) => content);

test("a conversation goes on in another process, and each message is stored once", async (t) => {
  const path = place(t);
  const first = await Store.open(path);
  await say(chat(new LoopstoreSaver(first)), "Will it rain?");
  await first.close();
  const store = await own(t, Store.open(path));
  const graph = chat(new LoopstoreSaver(store));
  for (let round = 0; round < 5; round++) await say(graph, `And on day ${round}?`);
  const { messages } = (await graph.getState(thread())).values;
  assert.equal(messages.length, 12);
  assert.ok(messages.every((message) => message instanceof BaseMessage));
  const session = store.session("t");
  assert.equal(await session.countEntries({ wholeSession: true, roles: ["user", "assistant"] }), 12);
  assert.deepEqual(texts(messages), (await session.context(openai)).messages.map(({ content }) => content));
  assert.match((await store.search("day 3")).hits[0].snippet, /3/);
  assert.equal((await store.verify()).ok, true);
});

const MESSAGES = [
  new HumanMessage({ content: "Hello, 世界! 🦀 \u2028", id: "h1", name: "ada" }),
  new HumanMessage({ content: [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=", detail: "low" } }], id: "h2" }),
  new AIMessage({ content: "", id: "a1", tool_calls: [{ name: "forecast", args: { place: "Bern", days: [1, 2.5, null] }, id: "c1", type: "tool_call" }] }),
  new AIMessage({ content: "x", id: "a2", tool_calls: [{ name: "odd", args: {}, id: undefined, type: "tool_call" }], invalid_tool_calls: [{ name: "bad", args: "{", id: "c9", error: "no JSON", type: "invalid_tool_call" }] }),
  new ToolMessage({ content: "Rain.", tool_call_id: "c1", id: "t1", name: "forecast", status: "error", artifact: { rows: [1] } }),
  new AIMessage({ content: [{ type: "text", text: "It rains." }, { type: "text", text: "Really.", annotations: [{ x: 1 }] }], id: "a3", additional_kwargs: { reasoning: "r" }, response_metadata: { model_name: "stand-in", finish_reason: "stop" }, usage_metadata: { input_tokens: 5, output_tokens: 2, total_tokens: 7, input_token_details: { cache_read: 3 } } }),
  new SystemMessage({ content: "Be brief.", id: "s1" }),
  new ChatMessage({ content: "As a bard.", role: "bard", id: "b1" }),
  new AIMessageChunk({ content: "part", id: "k1" }),
  new HumanMessage("without an id"),
  new HumanMessage({ content: "with what JSON has no place for", id: "m1", additional_kwargs: { set: new Set([1]), nan: NaN } }),
  new RemoveMessage({ id: "h9" }),
];

/** Returns the result of LangGraph's own saver for a value. */
async function theirs(values) {
  const memory = new MemorySaver();
  const config = await memory.put(thread(), { ...emptyCheckpoint(), channel_values: values }, {}, {});
  return (await memory.getTuple(config)).checkpoint.channel_values;
}

async function put(it, values, config = thread()) {
  const channel_versions = Object.fromEntries(Object.keys(values).map((name) => [name, 1]));
  const checkpoint = { ...emptyCheckpoint(), id: uuid6(0), channel_values: values, channel_versions };
  return await it.put(config, checkpoint, { source: "loop", step: 0, parents: {} }, channel_versions);
}

test("every kind of message and value comes back as LangGraph's own saver gives it back", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const values = {
    messages: MESSAGES,
    ...Object.fromEntries(MESSAGES.map((message, at) => [`one${at}`, [message]])),
    nested: { deep: [MESSAGES[0], { set: new Set([1, 2]), map: new Map([["a", 1]]), when: undefined }] },
    plain: { text: "\u0000 ok", number: 1e300, list: [[], {}, null, true] },
    bytes: new Uint8Array([0, 255, 1]),
    surrogate: "\ud800",
    zero: -0,
    empty: [],
    ["__proto__x"]: 1,
    long: "x".repeat(100_000),
  };
  const config = await put(new LoopstoreSaver(store), values);
  await store.close();
  const again = new LoopstoreSaver(await own(t, Store.open(path)));
  const found = (await again.getTuple(config)).checkpoint.channel_values;
  const wanted = await theirs(values);
  const sorted = (inner) => Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)));
  const isPlain = (inner) => typeof inner === "object" && inner !== null && !Array.isArray(inner);
  const told = (value) =>
    JSON.stringify(value, (_, inner) => (inner instanceof Set || inner instanceof Map ? [...inner] : isPlain(inner) ? sorted(inner) : inner));
  for (const name of Object.keys(values)) {
    assert.equal(told(found[name]), told(wanted[name]), name);
    if (Array.isArray(wanted[name])) {
      for (const [at, one] of wanted[name].entries()) assert.equal(found[name][at]?.constructor, one?.constructor, `${name} ${at}`);
    }
  }
});

test("a message that is edited, removed or changed in place is another one, and earlier states keep the first", async (t) => {
  const it = await saver(t);
  const [one, two, three] = ["one", "two", "three"].map((text) => new HumanMessage({ content: text, id: text }));
  const lists = [[one, two], [one, two, three], [one, three], [three, one, two], [new HumanMessage({ content: "ONE", id: "one" }), two, three], []];
  let config = thread();
  const configs = [];
  for (const [at, messages] of lists.entries()) {
    const checkpoint = { ...emptyCheckpoint(), id: uuid6(at), channel_values: { messages }, channel_versions: { messages: at + 1 } };
    config = await it.put(config, checkpoint, { source: "loop", step: at, parents: {} }, { messages: at + 1 });
    configs.push(config);
  }
  one.additional_kwargs.mood = { sad: true };
  const changed = { ...emptyCheckpoint(), id: uuid6(9), channel_values: { messages: [one, two] }, channel_versions: { messages: 9 } };
  config = await it.put(config, changed, {}, { messages: 9 });
  for (const [at, messages] of lists.entries()) {
    const found = (await it.getTuple(configs[at])).checkpoint.channel_values.messages;
    assert.deepEqual(texts(found), texts(messages), `list ${at}`);
    assert.ok(found.every((message) => message.additional_kwargs.mood === undefined));
  }
  assert.deepEqual((await it.getTuple(config)).checkpoint.channel_values.messages[0].additional_kwargs, { mood: { sad: true } });
});

test("going back in time is a branch, and an interrupt is taken up again", async (t) => {
  const it = await saver(t);
  const graph = chat(it);
  await say(graph, "one");
  const { config } = await graph.getState(thread());
  await say(graph, "two");
  await say(graph, "two, otherwise", config);
  assert.deepEqual(texts((await graph.getState(thread())).values.messages).at(-2), "two, otherwise");
  const history = [];
  for await (const state of graph.getStateHistory(thread())) history.push(state);
  assert.ok(history.length >= 8);
  const State = Annotation.Root({ answer: Annotation() });
  const asking = new StateGraph(State)
    .addNode("ask", () => ({ answer: interrupt("Sure?") }))
    .addEdge(START, "ask")
    .compile({ checkpointer: it });
  await asking.invoke({ answer: "" }, thread("ask"));
  assert.equal((await asking.getState(thread("ask"))).tasks[0].interrupts[0].value, "Sure?");
  assert.equal((await asking.invoke(new Command({ resume: "yes" }), thread("ask"))).answer, "yes");
});

test("a copy of the first checkpoint has its input, which runs once more", async (t) => {
  const graph = chat(await saver(t));
  await say(graph, "one");
  await say(graph, "two");
  const history = [];
  for await (const state of graph.getStateHistory(thread())) history.push(state);
  const copy = await graph.updateState(history.at(-1).config, null, "__copy__");
  const { next, parentConfig, tasks } = await graph.getState(copy);
  assert.deepEqual([next, parentConfig], [["__start__"], undefined]);
  assert.deepEqual(tasks.map(({ name }) => name), ["__start__"]);
  assert.deepEqual(texts((await graph.invoke(null, copy)).messages), ["one", "I see 1 messages."]);
  assert.equal((await graph.getState(history[0].config)).values.messages.length, 4);
});

test("a thread of LangGraph for Python is refused, and its messages and search are shared", async (t) => {
  const path = place(t);
  const store = await own(t, Store.open(path));
  // An append of LangGraph for Python, with the key that it has there.
  const key = "lg-py/c//1f0e8d3e-c6e6-66f2-85d9-60ece7bc0f2a/0000";
  const chatOf = store.session("python");
  await chatOf.append({ role: "user", content: "said in Python" }, openai);
  await chatOf.append({ role: "extension", kind: "langgraph.checkpoint", data: {} }, { key });
  const it = new LoopstoreSaver(store);
  for (const call of [
    () => it.getTuple(thread("python")),
    () => put(it, { x: 1 }, thread("python")),
    () => it.putWrites({ configurable: { thread_id: "python", checkpoint_id: "x" } }, [["x", 1]], "task"),
  ]) {
    await assert.rejects(call(), (error) => error instanceof ForeignThreadError && /Python/.test(error.message));
  }
  assert.equal((await store.session("python").context(openai)).messages[0].content, "said in Python");
  assert.equal((await store.search("Python")).hits.length, 1);
});

test("deleting hides or erases a thread, whose id may be used again", async (t) => {
  for (const onDelete of ["hide", "erase"]) {
    const it = await saver(t, { onDelete });
    const graph = chat(it);
    await say(graph, "first");
    await it.deleteThread("t");
    await it.deleteThread("nobody");
    assert.equal(await it.getTuple(thread()), undefined);
    assert.equal((await it.store.search("first")).hits.length, 0);
    await say(graph, "anew");
    assert.equal((await graph.getState(thread())).values.messages.length, 2);
  }
});

test("two savers on one thread lose nothing of each other's", async (t) => {
  const path = place(t);
  const graphs = [await own(t, Store.open(path)), await own(t, Store.open(path))].map((store) => chat(new LoopstoreSaver(store)));
  for (let at = 0; at < 6; at++) await say(graphs[at % 2], `turn ${at}`);
  const { messages } = (await graphs[0].getState(thread())).values;
  assert.deepEqual(texts(messages).filter((text) => text.startsWith("turn")), [0, 1, 2, 3, 4, 5].map((at) => `turn ${at}`));
  await Promise.all(Array.from({ length: 20 }, (_, at) => say(graphs[at % 2], "hi", thread(`own-${at}`))));
});

test("with a serializer of one's own nothing is stored readable", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const turned = (data) => Uint8Array.from(data, (byte) => byte ^ 0x5a);
  const inner = new MemorySaver().serde;
  const serde = {
    dumpsTyped: async (value) => { const [kind, data] = await inner.dumpsTyped(value); return [kind, turned(data)]; },
    loadsTyped: async (kind, data) => await inner.loadsTyped(kind, turned(data)),
  };
  const graph = chat(new LoopstoreSaver(store, { serde }));
  await say(graph, "a secret question");
  await say(graph, "another secret question");
  assert.deepEqual(texts((await graph.getState(thread())).values.messages).at(0), "a secret question");
  await store.close();
  assert.equal(spawnSync("grep", ["-c", "secret", path]).status, 1);
});

test("what names no thread, no store and no known option is refused", async (t) => {
  assert.throws(() => new LoopstoreSaver("agent.db"), InvalidInputError);
  const it = await saver(t);
  assert.throws(() => new LoopstoreSaver(it.store, { onDelete: "never" }), InvalidInputError);
  assert.equal(await it.getTuple({ configurable: {} }), undefined);
  await assert.rejects(put(it, { x: 1 }, { configurable: {} }), InvalidInputError);
  await assert.rejects(put(it, { x: 1 }, { configurable: { thread_id: {} } }), InvalidInputError);
  await assert.rejects(it.putWrites(thread(), [["x", 1]], "task"), InvalidInputError);
  assert.equal(JSON.stringify({ it }), '{"it":"[LoopstoreSaver]"}');
  const required = createRequire(import.meta.url)("loopstore/langgraph");
  assert.ok(new required.LoopstoreSaver(it.store));
});
