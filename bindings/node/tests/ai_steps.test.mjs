// The model of an agent of the AI SDK gets the compacted context, and the record stays whole.
import assert from "node:assert/strict";
import { test } from "node:test";

import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { InvalidInputError, Store } from "loopstore";
import { LoopstoreSteps } from "loopstore/ai";
import { z } from "zod";

import { own, place } from "./support.mjs";

const POLICY = { window: 6000, keepFirst: 1, keepRecent: 3 };
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

/** Returns a model that records its prompts, and calls a tool in each of its first steps. */
function recorder(calls) {
  const prompts = [];
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      prompts.push(prompt);
      const step = prompts.length;
      const call = { type: "tool-call", toolCallId: `c${step}`, toolName: "gauge", input: JSON.stringify({ hour: step }) };
      const isDone = step > calls;
      return {
        content: isDone ? [{ type: "text", text: "It will rain." }] : [{ type: "text", text: `Step ${step}.` }, call],
        finishReason: { unified: isDone ? "stop" : "tool-calls", raw: "stop" },
        usage,
        warnings: [],
      };
    },
  });
  return { model, prompts };
}

const gauge = tool({
  description: "Read the gauge of an hour.",
  inputSchema: z.object({ hour: z.number() }),
  execute: async ({ hour }) => ({ hour, lines: Array.from({ length: 150 }, (_, line) => `line ${line} of hour ${hour}`) }),
});

const size = (value) => JSON.stringify(value).length;

/** Checks that each result in a prompt has its call before it. */
function paired(prompt) {
  const parts = prompt.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const calls = new Set();
  for (const { type, toolCallId } of parts) {
    if (type === "tool-call") calls.add(toolCallId);
    if (type === "tool-result") assert.ok(calls.has(toolCallId), `a result without its call ${toolCallId}`);
  }
}

test("a long agent's model sees the compacted context, and the record stays whole", async (t) => {
  const path = place(t);
  const store = await own(t, Store.open(path));
  const steps = new LoopstoreSteps(store, { policy: POLICY, onError: assert.fail });
  const { model, prompts } = recorder(40);
  const messages = [{ role: "user", content: "How much rain fell in forty hours?" }];
  const result = await generateText({
    model,
    system: "Be brief.",
    tools: { gauge },
    messages,
    stopWhen: stepCountIs(60),
    prepareStep: steps.prepareStep("task"),
  });
  assert.equal(result.text, "It will rain.");
  await steps.save("task", [...messages, ...result.response.messages]);
  assert.equal(prompts.length, 41);
  // Each prompt fits, has the system prompt, and ends with the newest result.
  for (const [at, prompt] of prompts.entries()) {
    paired(prompt);
    assert.equal(prompt[0].role, "system");
    assert.ok(size(prompt) < POLICY.window * 6, `prompt ${at} has ${size(prompt)} bytes`);
    if (at > 0) assert.match(JSON.stringify(prompt.at(-1)), new RegExp(`of hour ${at}\\b`));
  }
  assert.ok(size(result.response.messages) > 4 * size(prompts.at(-1)));
  assert.match(JSON.stringify(prompts.at(-1)), /forty hours/);
  const chat = steps.session("task");
  const committed = (await chat.history()).filter(({ outcome }) => outcome === "committed");
  assert.ok(committed.length >= 2);
  // The record has all messages, each once, and the agent goes on from them in another process.
  const all = [...messages, ...result.response.messages];
  const plain = (list) => JSON.parse(JSON.stringify(list));
  assert.deepEqual(await steps.load("task"), plain(all));
  const again = new LoopstoreSteps(await own(t, Store.open(path)), { policy: POLICY, onError: assert.fail });
  const loaded = await again.load("task");
  assert.deepEqual(loaded, plain(all));
  const next = recorder(0);
  await generateText({
    model: next.model,
    messages: [...loaded, { role: "user", content: "And tomorrow?" }],
    prepareStep: again.prepareStep("task"),
  });
  assert.ok(next.prompts[0].length < 30);
  assert.match(JSON.stringify(next.prompts[0].at(-1)), /And tomorrow/);
  assert.equal((await again.load("task")).length, loaded.length + 1);
  // What is undone is read again.
  for (const { run_id: id } of (await chat.history()).filter(({ outcome }) => outcome === "committed")) await chat.undo(id);
  assert.equal((await chat.context()).messages.length, (await chat.countEntries()));
});

test("a short context is sent as it is", async (t) => {
  const store = await own(t, Store.inMemory());
  const steps = new LoopstoreSteps(store, { onError: assert.fail });
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: [{ type: "text", text: "What is this?" }, { type: "image", image: new Uint8Array([1, 2, 3]) }] },
    { role: "assistant", content: "A picture." },
    { role: "assistant", content: [{ type: "reasoning", text: "Hm.", providerOptions: { x: { signature: "s" } } }, { type: "text", text: "Yes." }] },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "a", toolName: "f", input: {} }, { type: "tool-call", toolCallId: "b", toolName: "g", input: { x: [1] } }] },
    {
      role: "tool",
      content: [
        { type: "tool-result", toolCallId: "a", toolName: "f", output: { type: "json", value: [1, null] } },
        { type: "tool-result", toolCallId: "b", toolName: "g", output: { type: "error-text", value: "no network" } },
      ],
    },
    { role: "user", content: "Again." },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "d", toolName: "f", input: {} }, { type: "tool-approval-request", approvalId: "p", toolCallId: "d" }] },
    { role: "tool", content: [{ type: "tool-approval-response", approvalId: "p", approved: true }] },
    { role: "tool", content: [{ type: "tool-result", toolCallId: "d", toolName: "f", output: { type: "text", value: "done" } }] },
    { role: "user", content: "Again." },
  ];
  const prepare = steps.prepareStep("task");
  for (let step = 0; step < 2; step++) {
    const { messages: sent } = await prepare({ messages, stepNumber: step, steps: [] });
    assert.equal(sent.length, messages.length);
    for (const [at, message] of sent.entries()) assert.equal(message, messages[at], `message ${at}`);
  }
  assert.equal(await steps.shouldCompact("task"), false);
  const loaded = await steps.load("task");
  assert.equal(loaded[1].content[1].image, "AQID");
  assert.deepEqual(loaded.slice(2), messages.slice(2));
  await steps.save("task", messages);
  assert.equal((await steps.load("task")).length, messages.length);
});

test("approvals and files reach the model where a compaction changes or covers the messages around them", async (t) => {
  const store = await own(t, Store.inMemory());
  const clearing = { window: 100_000, clearToolResults: { keep: 1, atLeast: 1 }, trigger: "target", triggerParams: { trigger: 0.01, target: 0.005 } };
  const steps = new LoopstoreSteps(store, { policy: clearing, onError: assert.fail });
  const call = (id) => ({ type: "tool-call", toolCallId: id, toolName: "f", input: {} });
  const result = (id, value) => ({ type: "tool-result", toolCallId: id, toolName: "f", output: { type: "text", value } });
  const request = (id) => ({ type: "tool-approval-request", approvalId: `p-${id}`, toolCallId: id });
  const approval = (id) => ({ type: "tool-approval-response", approvalId: `p-${id}`, approved: true });
  const file = { role: "assistant", content: [{ type: "file", data: "AQID", mediaType: "image/png" }] };
  const again = { role: "user", content: "Again." };
  const long = "rain ".repeat(2000);
  const messages = [
    again,
    { role: "assistant", content: [call("a"), call("b"), request("b")] },
    { role: "tool", content: [result("a", long), approval("a")] },
    { role: "tool", content: [approval("b")] },
    { role: "tool", content: [result("b", "done")] },
    file,
    again,
    { role: "tool", content: [approval("c")] },
    again,
    { role: "assistant", content: [call("d"), request("d")] },
    { role: "tool", content: [approval("d")] },
  ];
  const { messages: sent } = await steps.prepareStep("task")({ messages });
  assert.deepEqual(sent.map((one) => messages.indexOf(one)), messages.map((one, at) => (at === 2 ? -1 : messages.indexOf(one))));
  assert.doesNotMatch(JSON.stringify(sent), /rain rain/);
  assert.deepEqual(sent[2].content.map(({ type }) => type), ["tool-result", "tool-approval-response"]);
  // A compaction covers an approval with its request, and leaves the newest one.
  const many = Array.from({ length: 30 }, (_, at) => [
    { role: "user", content: `${at} ${"snow ".repeat(300)}` },
    { role: "assistant", content: [call(`c${at}`), request(`c${at}`)] },
    { role: "tool", content: [approval(`c${at}`)] },
    { role: "tool", content: [result(`c${at}`, "done")] },
  ]).flat();
  const covering = new LoopstoreSteps(store, { policy: POLICY, onError: assert.fail });
  const { messages: fewer } = await covering.prepareStep("long")({ messages: many.slice(0, -1) });
  assert.ok(fewer.length < many.length / 2);
  assert.equal(fewer.at(-1), many.at(-2));
  const ids = (type, key) => fewer.flatMap(({ content }) => (Array.isArray(content) ? content : [])).filter((part) => part.type === type).map((part) => part[key]);
  assert.deepEqual(ids("tool-approval-response", "approvalId"), ids("tool-approval-request", "approvalId"));
});

test("a changed list is a branch, and concurrent saves store a list once", async (t) => {
  const path = place(t);
  const one = new LoopstoreSteps(await own(t, Store.open(path)));
  const two = new LoopstoreSteps(await own(t, Store.open(path)));
  const list = ["a", "b", "c"].map((content) => ({ role: "user", content }));
  await Promise.all([one, two, one, two].map((steps) => steps.save("task", list)));
  assert.deepEqual(await one.load("task"), list);
  assert.equal(await one.session("task").countEntries({ wholeSession: true }), 3);
  const edited = [list[0], { role: "user", content: "B" }];
  await one.save("task", edited);
  assert.deepEqual(await two.load("task"), edited);
  await two.save("task", list);
  assert.deepEqual(await one.load("task"), list);
  await one.save("task", []);
  assert.deepEqual(await one.load("task"), []);
});

test("the next step says whether it compacts", async (t) => {
  const steps = new LoopstoreSteps(await own(t, Store.inMemory()), { policy: POLICY });
  assert.equal(await steps.shouldCompact("task"), false);
  const text = "rain ".repeat(400);
  const list = Array.from({ length: 20 }, (_, at) => ({ role: at % 2 ? "assistant" : "user", content: `${at} ${text}` }));
  await steps.save("task", list.slice(0, 2));
  assert.equal(await steps.shouldCompact("task"), false);
  await steps.save("task", list);
  assert.equal(await steps.shouldCompact("task"), true);
  const { messages } = await steps.prepareStep("task")({ messages: list });
  assert.ok(messages.length < list.length);
  assert.equal(await steps.shouldCompact("task"), false);
});

test("where a step cannot be prepared, the model gets all messages, and the error is reported", async (t) => {
  const store = await own(t, Store.inMemory());
  const errors = [];
  const steps = new LoopstoreSteps(store, { policy: { window: 500, systemTokens: 400 }, onError: (error) => errors.push(error) });
  const list = [{ role: "user", content: "rain ".repeat(2000) }];
  assert.deepEqual(await steps.prepareStep("task")({ messages: list }), {});
  assert.equal(errors.length, 1);
  assert.equal(errors[0].code, "ERR_LOOPSTORE_BUDGET_TOO_SMALL");
  assert.deepEqual(await steps.load("task"), list);
  const closed = await Store.inMemory();
  const other = new LoopstoreSteps(closed);
  const warning = new Promise((resolve) => process.once("warning", resolve));
  await closed.close();
  assert.deepEqual(await other.prepareStep("task")({ messages: list }), {});
  assert.match((await warning).message, /the model gets all messages: the store is closed/);
});

test("wrong arguments are refused", async (t) => {
  const store = await own(t, Store.inMemory());
  assert.throws(() => new LoopstoreSteps("x"), InvalidInputError);
  assert.throws(() => new LoopstoreSteps(store, { policy: { window: -1 } }), InvalidInputError);
  assert.throws(() => new LoopstoreSteps(store, { onError: 5 }), InvalidInputError);
  const steps = new LoopstoreSteps(store);
  assert.throws(() => steps.prepareStep(5), InvalidInputError);
  for (const wrong of [null, "x", {}, [5], [{ role: "user" }], [{ role: "user", content: 10n }]]) {
    await assert.rejects(steps.save("task", wrong), InvalidInputError);
  }
  assert.equal(await steps.session("task").exists(), false);
});
