"""A LangGraph agent whose model gets the compacted context, while its state stays whole. The model is a mock."""

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from loopstore import Policy, Store
from loopstore.langgraph import LoopstoreSaver

with Store.open(sys.argv[1] if len(sys.argv) > 1 else "agent.db") as store:
    saver = LoopstoreSaver(store)
    # With an agent of langgraph.prebuilt: create_react_agent(model, tools, pre_model_hook=hook, ...).
    hook = saver.pre_model_hook(policy=Policy(4_000))

    def model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        given = hook.invoke(state, config)["llm_input_messages"]
        return {"messages": [AIMessage(f"I got {len(given)} messages. " + "Rain, " * 200)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    agent = graph.compile(checkpointer=saver)
    thread: Any = {"configurable": {"thread_id": "weather"}}
    for day in range(20):
        state = agent.invoke({"messages": [HumanMessage(f"Day {day}?")]}, thread)["messages"]
    print(f"The state has {len(state)} messages. {state[-1].content[:20]}")
