"""The model of a LangGraph agent gets the compacted context, and the state stays whole."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent

import loopstore
from loopstore import Policy, Store
from loopstore.langgraph import LoopstoreSaver

POLICY = Policy(4_000, keep_first=0, keep_recent=3)


class Recorder(BaseChatModel):
    """A model that records its input, and answers with long texts and sometimes with a call."""

    inputs: list[list[BaseMessage]] = []  # noqa: RUF012
    calls: bool = False

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        self.inputs.append(list(messages))
        number = len(self.inputs)
        if self.calls and not isinstance(messages[-1], ToolMessage):
            call = {"name": "gauge", "args": {"hour": number}, "id": f"c{number}", "type": "tool_call"}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage(f"Answer {number}: " + "rain, " * 200)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def gauge(hour: int) -> str:
    """Read the gauge of an hour."""
    return "\n".join(f"line {line} of hour {hour}" for line in range(300))


def agent(saver: LoopstoreSaver, model: Recorder, **more: Any) -> Any:
    hook = saver.pre_model_hook(policy=POLICY)
    return create_react_agent(model, [gauge], pre_model_hook=hook, checkpointer=saver, **more)


THREAD: Any = {"configurable": {"thread_id": "t"}}


def check(store: Store, model: Recorder, state: list[BaseMessage], turns: int) -> None:
    """Check what the model got, and what the state and the session have."""
    assert [message.content for message in state if message.type == "human"] == [f"Question {n}?" for n in range(turns)]
    chat = store.session("t")
    assert [run["outcome"] for run in chat.history()][-1] == "committed"
    last = model.inputs[-1]
    assert len(last) < len(state) / 2
    assert any("Question 0?" in str(message.content) or "ummar" in str(message.content) for message in last)
    assert last[-1].id == state[-2].id
    sizes = [sum(len(str(message.content)) for message in given) for given in model.inputs]
    assert max(sizes) < 4_000 * 5
    # No result without its call.
    for given in model.inputs:
        made = {call["id"] for message in given if isinstance(message, AIMessage) for call in message.tool_calls}
        assert {message.tool_call_id for message in given if isinstance(message, ToolMessage)} <= made


@pytest.mark.parametrize("calls", [False, True])
def test_the_model_sees_the_compacted_context(tmp_path: Path, calls: bool) -> None:
    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[], calls=calls), LoopstoreSaver(store)
        graph = agent(saver, model)
        for turn in range(20):
            state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?")]}, THREAD)["messages"]
        check(store, model, state, 20)
        assert graph.get_state(THREAD).values["messages"] == state
        # What is undone is read again.
        chat = store.session("t")
        assert len(chat.context()["messages"]) < len(state)
        with pytest.raises(loopstore.NotFoundError):
            while True:
                chat.undo()
        assert len(chat.context()["messages"]) == len(state)
        assert graph.get_state(THREAD).values["messages"] == state


async def test_coroutines_see_it_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[], calls=True), LoopstoreSaver(store)
        graph = agent(saver, model)
        for turn in range(20):
            asked = {"messages": [HumanMessage(f"Question {turn}?")]}
            state = (await graph.ainvoke(asked, THREAD))["messages"]
        check(store, model, state, 20)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_state_that_is_not_stored_yet_is_added(tmp_path: Path, durability: Any) -> None:
    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[], calls=True), LoopstoreSaver(store)
        graph = agent(saver, model)
        for turn in range(12):
            asked = {"messages": [HumanMessage(f"Question {turn}?")]}
            state = graph.invoke(asked, THREAD, durability=durability)["messages"]
            for given in model.inputs[-2:]:
                assert f"Question {turn}?" in [message.content for message in given]
                ids = [message.id for message in given if message.id is not None]
                assert len(ids) == len(set(ids))
        assert len(state) == 12 * 4


def test_a_stored_input_refers_to_the_messages_of_the_state(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[], calls=True), LoopstoreSaver(store)
        graph = agent(saver, model)
        for turn in range(12):
            state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?")]}, THREAD)["messages"]
        # One line: the input is no list of messages of its own.
        assert len({entry["message"]["langgraph"]["id"] for entry in store.session("t").entries(
            whole_session=True, roles=["user", "assistant", "toolResult"])}) == len(state)  # fmt: skip
        assert len(store.session("t").entries(roles=["user", "assistant", "toolResult"])) == len(state)
        assert store.verify()["ok"]
        saved = saver.get_tuple(THREAD)
        assert saved is not None
    with Store.open(tmp_path / "a.db") as store:
        read = LoopstoreSaver(store).get_tuple(THREAD)
        assert read is not None and read.checkpoint["channel_values"]["messages"] == state
        given = read.checkpoint["channel_values"].get("llm_input_messages")
        assert given is None or list(given) == model.inputs[-1]
        inputs = [
            value
            for each in LoopstoreSaver(store).list(THREAD)
            for _, channel, value in each.pending_writes or []
            if channel == "llm_input_messages"
        ]
        assert [list(each) for each in reversed(inputs)] == model.inputs


def test_a_graph_of_ones_own_calls_the_hook(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        saver, inputs = LoopstoreSaver(store), []
        hook = saver.pre_model_hook(policy=POLICY)

        def model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            inputs.append(hook.invoke(state, config)["llm_input_messages"])
            return {"messages": [AIMessage("rain, " * 300)]}

        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_edge(START, "model")
        graph = builder.compile(checkpointer=saver)
        graph.update_state(THREAD, {"messages": [SystemMessage("Be brief.", id="s")]})
        for turn in range(20):
            state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?")]}, THREAD)["messages"]
        assert len(state) == 41 and len(inputs[-1]) < 20
        assert inputs[-1][0] == state[0] and inputs[-1][-1].content == "Question 19?"


def test_an_edited_state_is_what_the_model_gets(tmp_path: Path, caplog: Any) -> None:
    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[]), LoopstoreSaver(store)
        graph = agent(saver, model)
        for turn in range(3):
            state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?", id=f"q{turn}")]}, THREAD)["messages"]
        graph.update_state(THREAD, {"messages": [RemoveMessage(id="q1"), HumanMessage("Edited?", id="q0")]})
        graph.invoke({"messages": [HumanMessage("Question 3?")]}, THREAD)
        given = [message.content for message in model.inputs[-1]]
        assert "Edited?" in given and "Question 1?" not in given and "Question 0?" not in given
        assert given[-1] == "Question 3?" and len(given) == len(state) + 0


def test_a_graph_without_the_saver_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    with Store.open(tmp_path / "a.db") as store:
        model, saver = Recorder(inputs=[]), LoopstoreSaver(store)
        hook = saver.pre_model_hook(policy=POLICY)
        graph = create_react_agent(model, [], pre_model_hook=hook, checkpointer=InMemorySaver())
        with caplog.at_level(logging.WARNING, "loopstore"):
            for _ in range(2):
                graph.invoke({"messages": [HumanMessage("Rain?")]}, THREAD)
        assert [record for record in caplog.records if "LoopstoreSaver with this store" in record.getMessage()]
        assert len(model.inputs[-1]) == 3
        bare = create_react_agent(model, [], pre_model_hook=hook)
        with pytest.raises(loopstore.InvalidInputError, match="thread_id"):
            bare.invoke({"messages": [HumanMessage("Rain?")]})
