// The model of a LangGraph agent gets the compacted context, and the state stays whole.
import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeListChatModel } from "@langchain/core/utils/testing";
import { AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { MemorySaver, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { InvalidInputError, NotFoundError, Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";
import { z } from "zod";

import { own, place } from "./support.mjs";

const POLICY = { window: 4000, keepFirst: 0, keepRecent: 3 };
const thread = { configurable: { thread_id: "t" } };

/** A model that records its input, and answers with long texts and sometimes with a call. */
class Recorder extends FakeListChatModel {
  inputs = [];
  calls;

  constructor(calls = false) {
    super({ responses: [""] });
    this.calls = calls;
  }

  bindTools() {
    return this;
  }

  async _generate(messages) {
    this.inputs.push([...messages]);
    const number = this.inputs.length;
    const call = { name: "gauge", args: { hour: number }, id: `c${number}`, type: "tool_call" };
    const isCall = this.calls && messages.at(-1).getType() !== "tool";
    const message = isCall ? new AIMessage({ content: "", tool_calls: [call] }) : new AIMessage(`Answer ${number}: ${"rain, ".repeat(200)}`);
    return { generations: [{ text: "", message }] };
  }
}

const gauge = tool(async ({ hour }) => Array.from({ length: 300 }, (_, line) => `line ${line} of hour ${hour}`).join("\n"), {
  name: "gauge",
  description: "Reads the gauge of an hour.",
  schema: z.object({ hour: z.number() }),
});

const agent = (saver, llm, options = {}) =>
  createReactAgent({ llm, tools: [gauge], preModelHook: saver.preModelHook({ policy: POLICY }), checkpointer: saver, ...options });

const questions = (messages) => messages.filter((one) => one.getType() === "human").map(({ content }) => content);
const contents = (messages) => messages.map(({ content }) => content);

function check(model, state, turns) {
  assert.deepEqual(questions(state), Array.from({ length: turns }, (_, n) => `Question ${n}?`));
  const last = model.inputs.at(-1);
  assert.ok(last.length < state.length / 2, `${last.length} of ${state.length}`);
  assert.equal(last.at(-1).id, state.at(-2).id);
  for (const given of model.inputs) {
    assert.ok(JSON.stringify(contents(given)).length < 4000 * 5);
    const calls = new Set(given.flatMap((message) => message.tool_calls ?? []).map(({ id }) => id));
    for (const message of given) if (message.getType() === "tool") assert.ok(calls.has(message.tool_call_id));
    const ids = given.flatMap(({ id }) => id ?? []);
    assert.equal(new Set(ids).size, ids.length);
  }
}

for (const calls of [false, true]) {
  test(`the model sees the compacted context, ${calls ? "with" : "without"} calls`, async (t) => {
    const path = place(t);
    const store = await own(t, Store.open(path));
    const [model, saver] = [new Recorder(calls), new LoopstoreSaver(store)];
    const graph = agent(saver, model);
    let state;
    for (let turn = 0; turn < 20; turn++) {
      ({ messages: state } = await graph.invoke({ messages: [new HumanMessage(`Question ${turn}?`)] }, thread));
    }
    check(model, state, 20);
    assert.deepEqual(contents((await graph.getState(thread)).values.messages), contents(state));
    // One line: the input is no list of messages of its own.
    const chat = store.session("t");
    const roles = ["user", "assistant", "toolResult"];
    assert.equal(await chat.countEntries({ wholeSession: true, roles }), state.length);
    assert.equal((await store.verify()).ok, true);
    // Another process reads the stored inputs.
    const read = new LoopstoreSaver(await own(t, Store.open(path)));
    const tuple = await read.getTuple(thread);
    assert.deepEqual(contents(tuple.checkpoint.channel_values.messages), contents(state));
    const input = tuple.checkpoint.channel_values.llmInputMessages;
    if (input !== undefined) assert.deepEqual(contents(input), contents(model.inputs.at(-1)));
    const stored = [];
    for await (const { pendingWrites } of read.list(thread)) {
      stored.unshift(...pendingWrites.filter(([, channel]) => channel === "llmInputMessages").map(([, , value]) => contents(value)));
    }
    assert.deepEqual(stored, model.inputs.map(contents));
    // What is undone is read again.
    assert.ok((await chat.context()).messages.length < state.length);
    for (;;) {
      try {
        await chat.undo();
      } catch (error) {
        assert.ok(error instanceof NotFoundError);
        break;
      }
    }
    assert.equal((await chat.context()).messages.length, state.length);
  });
}

test("a state that is not stored yet is added", async (t) => {
  for (const durability of ["sync", "async", "exit"]) {
    const store = await own(t, Store.inMemory());
    const [model, saver] = [new Recorder(true), new LoopstoreSaver(store)];
    const graph = agent(saver, model);
    for (let turn = 0; turn < 10; turn++) {
      const asked = { messages: [new HumanMessage(`Question ${turn}?`)] };
      const { messages } = await graph.invoke(asked, { ...thread, durability });
      for (const given of model.inputs.slice(-2)) assert.ok(contents(given).includes(`Question ${turn}?`), durability);
      assert.equal(messages.length, (turn + 1) * 4);
    }
  }
});

test("a graph of one's own calls the hook", async (t) => {
  const store = await own(t, Store.inMemory());
  const saver = new LoopstoreSaver(store);
  const hook = saver.preModelHook({ policy: POLICY, inputKey: "input" });
  const inputs = [];
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("model", async (state, config) => {
      inputs.push((await hook(state, config)).input);
      return { messages: [new AIMessage("rain, ".repeat(300))] };
    })
    .addEdge(START, "model")
    .compile({ checkpointer: saver });
  await graph.updateState(thread, { messages: [new SystemMessage({ content: "Be brief.", id: "s" })] });
  let state;
  for (let turn = 0; turn < 20; turn++) {
    ({ messages: state } = await graph.invoke({ messages: [new HumanMessage(`Question ${turn}?`)] }, thread));
  }
  assert.equal(state.length, 41);
  assert.ok(inputs.at(-1).length < 20);
  assert.equal(inputs.at(-1)[0].content, "Be brief.");
  assert.equal(inputs.at(-1).at(-1).content, "Question 19?");
});

test("the middleware of LangChain calls the model with the compacted context", async (t) => {
  const store = await own(t, Store.inMemory());
  const saver = new LoopstoreSaver(store);
  const { name, wrapModelCall } = saver.middleware({ policy: POLICY });
  assert.equal(name, "loopstore");
  const inputs = [];
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("model", async ({ messages }, config) => {
      const request = { messages, runtime: { configurable: config.configurable }, tools: ["kept"] };
      const answer = await wrapModelCall(request, (changed) => {
        assert.deepEqual(changed.tools, ["kept"]);
        inputs.push(changed.messages);
        return new AIMessage("rain, ".repeat(300));
      });
      return { messages: [answer] };
    })
    .addEdge(START, "model")
    .compile({ checkpointer: saver });
  let state;
  for (let turn = 0; turn < 20; turn++) {
    ({ messages: state } = await graph.invoke({ messages: [new HumanMessage(`Question ${turn}?`)] }, thread));
  }
  assert.equal(state.length, 40);
  assert.ok(inputs.at(-1).length < 20);
  assert.equal(inputs.at(-1).at(-1), state.at(-2));
});

test("an edited state is what the model gets", async (t) => {
  const store = await own(t, Store.inMemory());
  const [model, saver] = [new Recorder(), new LoopstoreSaver(store)];
  const graph = agent(saver, model);
  for (let turn = 0; turn < 3; turn++) {
    await graph.invoke({ messages: [new HumanMessage({ content: `Question ${turn}?`, id: `q${turn}` })] }, thread);
  }
  const edit = [new RemoveMessage({ id: "q1" }), new HumanMessage({ content: "Edited?", id: "q0" })];
  await graph.updateState(thread, { messages: edit });
  await graph.invoke({ messages: [new HumanMessage("Question 3?")] }, thread);
  const given = contents(model.inputs.at(-1));
  assert.ok(given.includes("Edited?") && !given.includes("Question 1?") && !given.includes("Question 0?"));
  assert.equal(given.at(-1), "Question 3?");
});

test("a graph without the saver is warned of, and one without a thread is refused", async (t) => {
  const store = await own(t, Store.inMemory());
  const [model, saver] = [new Recorder(), new LoopstoreSaver(store)];
  const warnings = [];
  const listener = ({ message }) => warnings.push(message);
  process.on("warning", listener);
  t.after(() => process.off("warning", listener));
  const other = agent(saver, model, { checkpointer: new MemorySaver() });
  for (let turn = 0; turn < 2; turn++) await other.invoke({ messages: [new HumanMessage("Rain?")] }, thread);
  await new Promise(setImmediate);
  assert.match(warnings.join("\n"), /LoopstoreSaver with this store/);
  assert.equal(model.inputs.at(-1).length, 3);
  const bare = agent(saver, model, { checkpointer: undefined });
  await assert.rejects(bare.invoke({ messages: [new HumanMessage("Rain?")] }), /thread_id/);
  const hook = saver.preModelHook();
  await assert.rejects(hook({}, thread), InvalidInputError);
  await assert.rejects(hook({ messages: [] }, { configurable: { thread_id: "t", checkpoint_ns: "a|b" } }), /outermost graph/);
  assert.throws(() => saver.preModelHook({ policy: { window: -1 } }), InvalidInputError);
  assert.throws(() => saver.middleware({ hook: 1 }), InvalidInputError);
});

test("a shortened result of a tool keeps its id and its call", async (t) => {
  const store = await own(t, Store.inMemory());
  const [model, saver] = [new Recorder(true), new LoopstoreSaver(store)];
  const policy = { window: 100_000, clearToolResults: { keep: 1, atLeast: 1 }, trigger: "target", triggerParams: { trigger: 0.01, target: 0.005 } };
  const graph = createReactAgent({ llm: model, tools: [gauge], preModelHook: saver.preModelHook({ policy }), checkpointer: saver });
  let state;
  for (let turn = 0; turn < 6; turn++) {
    ({ messages: state } = await graph.invoke({ messages: [new HumanMessage(`Question ${turn}?`)] }, thread));
  }
  const results = model.inputs.at(-1).filter((message) => message instanceof ToolMessage);
  const originals = new Map(state.map((message) => [message.id, message]));
  assert.ok(results.some((message) => originals.get(message.id)?.content !== message.content) || model.inputs.at(-1).length < state.length);
  for (const message of results) assert.equal(originals.get(message.id).tool_call_id, message.tool_call_id);
});
