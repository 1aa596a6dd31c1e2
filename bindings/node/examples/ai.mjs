// A chat of the Vercel AI SDK that loopstore keeps. The model is a mock.
import { convertToModelMessages, generateText } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Store } from "loopstore";
import { LoopstoreChats } from "loopstore/ai";

const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => ({
    content: [{ type: "text", text: `I see ${prompt.length} messages.` }],
    finishReason: { unified: "stop", raw: "stop" },
    usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } },
    warnings: [],
  }),
});

const store = await Store.open(process.argv[2] ?? "ai.db");
const chats = new LoopstoreChats(store);
for (const text of ["Will it rain?", "And tomorrow?"]) {
  const prompt = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text }] };
  const messages = await chats.add("weather", prompt);
  const answer = await generateText({ model, messages: await convertToModelMessages(messages) });
  const parts = [{ type: "text", text: answer.text }];
  await chats.add("weather", { id: crypto.randomUUID(), role: "assistant", parts });
  console.log(`> ${text}\n${answer.text}`);
}
console.log((await store.search("tomorrow")).hits[0].snippet);
await store.close();
