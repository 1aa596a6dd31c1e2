// A LangGraph.js agent whose model sees the compacted context, and whose state stays whole. The model is a mock.
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";

const store = await Store.open(process.argv[2] ?? "compacted.db", { policy: { window: 4_000 } });
const saver = new LoopstoreSaver(store);
// The option `preModelHook` of `createReactAgent`; LangChain's `createAgent` takes `createMiddleware(saver.middleware())`.
const hook = saver.preModelHook();
let seen = 0;

async function model(state, config) {
  const { llmInputMessages: input } = await hook(state, config);
  seen = input.length;
  return { messages: [new AIMessage("It rains in Bern. ".repeat(40))] }; // `[await llm.invoke(input)]`
}

const graph = new StateGraph(MessagesAnnotation).addNode("model", model).addEdge(START, "model");
const agent = graph.compile({ checkpointer: saver });
const config = { configurable: { thread_id: "chat" } };
let messages;
for (let day = 0; day < 30; day++) {
  ({ messages } = await agent.invoke({ messages: [new HumanMessage(`Will it rain on day ${day}?`)] }, config));
}
console.log(`The state has ${messages.length} messages; the model saw ${seen}.`);
await store.session("chat").undo(); // What a compaction replaced comes back.
console.log(`${(await store.session("chat").context()).messages.length} messages are in the context after an undo.`);
await store.close();
