// The OpenAI Agents SDK with a session that loopstore keeps. The model is a mock.
import { Agent, Usage, run } from "@openai/agents";
import { Store } from "loopstore";
import { LoopstoreSession } from "loopstore/openai-agents";

const model = {
  async getResponse({ input }) {
    const content = [{ type: "output_text", text: `I see ${input.length} items.` }];
    const answer = { type: "message", role: "assistant", status: "completed", content };
    return { usage: new Usage(), output: [answer] };
  },
  getStreamedResponse() {
    throw new Error("the stand-in does not stream");
  },
};

const store = await Store.open(process.argv[2] ?? "agents.db");
const session = new LoopstoreSession("user-17", { store });
const agent = new Agent({ name: "weather", model });
for (const prompt of ["Will it rain?", "And tomorrow?"]) {
  console.log((await run(agent, prompt, { session })).finalOutput);
}
console.log((await session.session.search("tomorrow")).hits[0].snippet);
await store.close();
