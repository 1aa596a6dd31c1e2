"""The model of an agent of LangChain gets the compacted context, and the state stays whole.

LangChain is not installed here: the middleware is called as an agent of LangChain calls it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import loopstore
from loopstore import Policy, Store
from loopstore.langgraph import LoopstoreSaver

POLICY = Policy(4_000, keep_first=0, keep_recent=3)
THREAD: Any = {"configurable": {"thread_id": "t"}}


@dataclass(frozen=True)
class Request:
    """A request to a model, with the parts of LangChain's that matter here."""

    messages: list[BaseMessage]
    tools: list[str] = field(default_factory=lambda: ["gauge"])

    def override(self, **changes: Any) -> Request:
        """Return a request with other values."""
        return replace(self, **changes)


@pytest.fixture
def langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for `langchain.agents.middleware`."""
    module: Any = ModuleType("langchain.agents.middleware")
    module.AgentMiddleware = type("AgentMiddleware", (), {})
    for name in ("langchain", "langchain.agents"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", module)


def answer(request: Request, inputs: list[list[BaseMessage]]) -> AIMessage:
    """Answer as a model, and record the input."""
    assert request.tools == ["gauge"]
    inputs.append(request.messages)
    return AIMessage("rain, " * 300)


def graph_of(saver: LoopstoreSaver, inputs: list[list[BaseMessage]], is_async: bool) -> Any:
    """Return a graph whose model is called through the middleware."""
    middleware = saver.middleware(policy=POLICY)

    def model(state: MessagesState) -> dict[str, Any]:
        request = Request(state["messages"])
        return {"messages": [middleware.wrap_model_call(request, lambda given: answer(given, inputs))]}

    async def later(state: MessagesState) -> dict[str, Any]:
        async def handler(given: Request) -> AIMessage:
            return answer(given, inputs)

        return {"messages": [await middleware.awrap_model_call(Request(state["messages"]), handler)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", later if is_async else model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def check(store: Store, state: list[BaseMessage], inputs: list[list[BaseMessage]]) -> None:
    """Check what the model got, and what the state has."""
    assert len(state) == 40 and len(inputs[-1]) < 20
    assert inputs[-1][-1].id == state[-2].id
    assert [run["outcome"] for run in store.session("t").history()][-1] == "committed"


@pytest.mark.usefixtures("langchain")
def test_the_model_sees_the_compacted_context(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        inputs: list[list[BaseMessage]] = []
        graph = graph_of(LoopstoreSaver(store), inputs, is_async=False)
        for turn in range(20):
            state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?")]}, THREAD)["messages"]
        check(store, state, inputs)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="coroutines of a graph have no config before Python 3.11")
@pytest.mark.usefixtures("langchain")
async def test_coroutines_see_it_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        inputs: list[list[BaseMessage]] = []
        graph = graph_of(LoopstoreSaver(store), inputs, is_async=True)
        for turn in range(20):
            asked = {"messages": [HumanMessage(f"Question {turn}?")]}
            state = (await graph.ainvoke(asked, THREAD))["messages"]
        check(store, state, inputs)


def test_without_langchain_the_error_names_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(loopstore.UnsupportedError, match="pip install langchain"):
        LoopstoreSaver(store).middleware()
