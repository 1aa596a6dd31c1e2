// A LangGraph.js agent whose threads are sessions: a second run continues them. The model is a mock.
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";

/** Returns an answer as `{ messages: [await llm.invoke(messages)] }` does. */
function model({ messages }) {
  const said = messages.filter((message) => message.getType() === "human");
  return { messages: [new AIMessage(`You have said ${said.length} things.`)] };
}

const path = process.argv[2] ?? "agent.db";
const store = await Store.open(path);
const graph = new StateGraph(MessagesAnnotation).addNode("model", model).addEdge(START, "model");
const agent = graph.compile({ checkpointer: new LoopstoreSaver(store) });
for (const prompt of ["Hello!", "What have I said so far?"]) {
  const config = { configurable: { thread_id: "chat" } };
  const { messages } = await agent.invoke({ messages: [new HumanMessage(prompt)] }, config);
  console.log(`> ${prompt}\n${messages.at(-1).content}`);
}
console.log(`${(await store.session("chat").context()).messages.length} messages are kept in ${path}.`);
await store.close();
