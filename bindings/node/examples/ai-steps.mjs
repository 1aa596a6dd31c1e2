// A long agent of the Vercel AI SDK whose model sees the compacted context. The model is a mock.
import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Store } from "loopstore";
import { LoopstoreSteps } from "loopstore/ai";
import { z } from "zod";

const execute = async ({ hour }) => `Rain in hour ${hour}.\n`.repeat(100);
const gauge = tool({ description: "Reads the gauge.", inputSchema: z.object({ hour: z.number() }), execute });
const seen = [];
const doGenerate = async ({ prompt }) => {
  seen.push(prompt.length);
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const call = { type: "tool-call", toolCallId: crypto.randomUUID(), toolName: "gauge", input: `{"hour":${seen.length}}` };
  const [content, reason] = seen.length % 20 ? [call, "tool-calls"] : [{ type: "text", text: "It rained." }, "stop"];
  return { content: [content], finishReason: { unified: reason, raw: reason }, usage, warnings: [] };
};

const store = await Store.open(process.argv[2] ?? "steps.db", { policy: { window: 8_000 } });
const steps = new LoopstoreSteps(store);
const messages = [...(await steps.load("task")), { role: "user", content: "How much rain fell?" }];
const prepareStep = steps.prepareStep("task"); // Stores each step, and compacts if needed.
const model = new MockLanguageModelV3({ doGenerate });
const result = await generateText({ model, tools: { gauge }, messages, stopWhen: stepCountIs(50), prepareStep });
await steps.save("task", [...messages, ...result.response.messages]);
console.log(`${result.text} The model saw at most ${Math.max(...seen)} messages at a time.`);
console.log(`${(await steps.load("task")).length} messages are kept.`);
await store.close();
