"""A LangGraph agent whose threads are sessions: a second run continues them. The model is a mock."""

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import loopstore
from loopstore.langgraph import LoopstoreSaver


def model(state: MessagesState) -> dict[str, Any]:
    """Return an answer as `llm.invoke(state["messages"])` does."""
    said = [message for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(f"You have said {len(said)} things.")]}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_edge(START, "model")
path = sys.argv[1] if len(sys.argv) > 1 else "agent.db"
with loopstore.Store.open(path) as store:
    agent = graph.compile(checkpointer=LoopstoreSaver(store))
    for prompt in ["Hello!", "What have I said so far?"]:
        config: Any = {"configurable": {"thread_id": "chat"}}
        answer = agent.invoke({"messages": [HumanMessage(prompt)]}, config)["messages"][-1]
        print(f"> {prompt}\n{answer.content}")
    print(f"{len(store.session('chat').context()['messages'])} messages are kept in {path}.")
