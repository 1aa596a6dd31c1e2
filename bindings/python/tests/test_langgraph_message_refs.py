"""Messages in the writes of tasks and in the input of a graph: each is stored once, and returned unchanged."""

from __future__ import annotations

import operator
import random
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph")

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from loopstore import Store, langgraph
from loopstore.langgraph import LoopstoreSaver

Config = dict[str, Any]


def config(thread: str = "t") -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def often(store: Store, text: str) -> int:
    """Return the number of rows of the database that contain a text."""
    rows = store.sql(f"SELECT count(*) AS n FROM v_messages WHERE payload LIKE '%{text}%'")
    return int(rows[0]["n"])


def shown(store: Store) -> list[str]:
    messages = store.session("t").context()["messages"]
    return ["".join(block.get("text", "") for block in each["content"]) for each in messages]


def chat(saver: Any, schema: Any = MessagesState, **nodes: Any) -> Any:
    graph = StateGraph(schema)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile(checkpointer=saver)


def echo(state: Any) -> Any:
    return {"messages": [AIMessage(f"answer to {state['messages'][-1].content}")]}


def plain(value: Any) -> Any:
    """Return a value without ids, which differ from run to run."""
    if isinstance(value, BaseMessage):
        return value.model_dump(exclude={"id"})
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def told(saver: Any) -> Any:
    """Return all data of a thread from a saver, except ids, versions and times."""
    return [
        (
            plain(found.checkpoint["channel_values"]),
            sorted(found.checkpoint["channel_versions"]),
            found.metadata,
            sorted((channel, repr(plain(value))) for _, channel, value in found.pending_writes or []),
        )
        for found in saver.list(config())
    ]


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
def test_each_message_is_stored_once_and_everything_comes_back(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Writes that waited too long for their checkpoint are stored whole: on a busy machine the wait is longer.
    monkeypatch.setattr(langgraph, "_AWAIT", 600)
    store = Store.in_memory()
    ours, theirs = LoopstoreSaver(store), InMemorySaver()
    for saver in (ours, theirs):
        graph = chat(saver, model=echo)
        for number in range(8):
            asked = {"messages": [HumanMessage(f"question <{number}>")]}
            graph.invoke(asked, config(), durability=durability)
    assert told(ours) == told(theirs)
    again = LoopstoreSaver(store)
    assert told(again) == told(theirs)
    texts = [text for n in range(8) for text in (f"question <{n}>", f"answer to question <{n}>")]
    assert shown(store) == texts
    # The question, and the answer that repeats it.
    assert [often(store, f"question <{n}>") for n in range(8)] == [2] * 8


def test_a_reducer_that_gives_no_ids_leaves_messages_without() -> None:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    store = Store.in_memory()
    graph = chat(LoopstoreSaver(store), State, model=echo)
    for number in range(5):
        state = graph.invoke({"messages": [HumanMessage(f"<{number}>")]}, config())
    assert [message.id for message in state["messages"]] == [None] * 10
    loaded = chat(LoopstoreSaver(store), State, model=echo).get_state(config()).values["messages"]
    assert loaded == state["messages"]
    assert len(shown(store)) == 10


def test_tasks_that_end_in_another_order_than_they_stand_change_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(langgraph, "_AWAIT", 600)

    def slow(name: str, seconds: float) -> Any:
        def node(state: MessagesState) -> Any:
            time.sleep(seconds)
            return {"messages": [AIMessage(f"{name} on {state['messages'][-1].content}", id=None)]}

        return node

    store = Store.in_memory()
    ours, theirs = LoopstoreSaver(store), InMemorySaver()
    for saver in (ours, theirs):
        graph = chat(saver, a=slow("a", 0.06), b=slow("b", 0.03), c=slow("c", 0))
        for number in range(3):
            graph.invoke({"messages": [HumanMessage(str(number))]}, config())
    assert told(ours) == told(theirs)
    state = graph.get_state(config()).values["messages"]
    assert shown(store) == [message.content for message in state]


def test_what_a_step_said_that_failed_is_in_no_state_and_in_no_context() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    is_broken = False

    def broken(state: MessagesState) -> Any:
        if is_broken:
            time.sleep(0.03)
            raise RuntimeError("no model")
        return {}

    graph = chat(saver, model=echo, broken=broken)
    graph.invoke({"messages": [HumanMessage("one")]}, config())
    graph.invoke({"messages": [HumanMessage("two")]}, config())
    is_broken = True
    with pytest.raises(RuntimeError):
        graph.invoke({"messages": [HumanMessage("three")]}, config())
    pending = saver.get_tuple(config())
    assert pending is not None
    written = [value for _, channel, value in pending.pending_writes or [] if channel == "messages"]
    assert [message.content for [message] in written] == ["answer to three"]
    is_broken = False
    state = graph.invoke({"messages": [HumanMessage("four")]}, config())
    texts = [message.content for message in state["messages"]]
    assert texts[-3:] == ["three", "four", "answer to four"]
    assert shown(store) == texts
    assert store.verify()["problems"] == []


def test_a_step_is_resumed_by_another_saver_with_what_was_said() -> None:
    store = Store.in_memory()
    is_broken = True

    def once(state: MessagesState) -> Any:
        if is_broken:
            time.sleep(0.03)
            raise RuntimeError("once")
        return {"messages": [AIMessage("at last", id="last")]}

    graph = chat(LoopstoreSaver(store), model=echo, once=once)
    with pytest.raises(RuntimeError):
        graph.invoke({"messages": [HumanMessage("one")]}, config())
    is_broken = False
    state = chat(LoopstoreSaver(store), model=echo, once=once).invoke(None, config())
    texts = [message.content for message in state["messages"]]
    assert sorted(texts) == ["answer to one", "at last", "one"]
    assert shown(store) == texts


def test_a_message_that_is_changed_after_it_was_written_is_another_one() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    checkpoint = empty_checkpoint()
    first = HumanMessage("first", id="1")
    checkpoint["channel_values"] = {"messages": [first]}
    checkpoint["channel_versions"] = {"messages": "1"}
    at = saver.put(config(), checkpoint, {"source": "input", "step": -1}, {"messages": "1"})
    answer = AIMessage("draft", id="2")
    saver.put_writes(at, [("messages", [answer, SystemMessage("be brief", id="3")])], "task")
    saver.put_writes(at, [("messages", answer), ("other", [first, answer])], "task-2")
    answer.content = "final"
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [first, answer]}
    checkpoint["channel_versions"] = {"messages": "2"}
    after = saver.put(at, checkpoint, {"source": "loop", "step": 0}, {"messages": "2"})
    for each in (saver, LoopstoreSaver(store)):
        found = each.get_tuple(at)
        assert found is not None and found.pending_writes is not None
        values = {(task, channel): value for task, channel, value in found.pending_writes}
        assert [message.content for message in values["task", "messages"]] == ["draft", "be brief"]
        assert values["task-2", "messages"].content == "draft"
        assert [message.content for message in values["task-2", "other"]] == ["first", "draft"]
        now = each.get_tuple(after)
        assert now is not None
        assert now.checkpoint["channel_values"]["messages"] == [first, answer]
    assert shown(store) == ["first", "final"]


def test_writes_on_a_thread_that_was_deleted_meanwhile_begin_anew() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    graph = chat(saver, model=echo)
    for text in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(text)]}, config())
    last = saver.get_tuple(config())
    assert last is not None
    LoopstoreSaver(store).delete_thread("t")
    saver.put_writes(last.config, [("messages", [AIMessage("late", id="late")])], "task")
    assert saver.get_tuple(config()) is None
    state = graph.invoke({"messages": [HumanMessage("three")]}, config())
    assert [message.content for message in state["messages"]] == ["three", "answer to three"]
    assert shown(store) == ["three", "answer to three"]


def test_a_turn_of_a_graph_costs_little_more_than_what_it_says(tmp_path: Path) -> None:
    words = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=2 + n % 9)) for n in range(4000)]
    say = random.Random(7)
    said = 0

    def text() -> str:
        nonlocal said
        found = " ".join(say.choice(words) for _ in range(145))
        said += len(found)
        return found

    def grown(turns: int) -> int:
        with Store.open(tmp_path / "a.db", durability="normal") as store:
            graph = chat(LoopstoreSaver(store), model=lambda _: {"messages": [AIMessage(text())]})
            for _ in range(turns):
                graph.invoke({"messages": [HumanMessage(text())]}, config())
        return (tmp_path / "a.db").stat().st_size

    before, said = grown(20), 0
    assert (grown(100) - before) / said < 2.9
