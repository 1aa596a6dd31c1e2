"""LangGraph on a store: real graphs, lists of messages, other processes, damage."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph")

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from loopstore import InvalidInputError, Store
from loopstore.langgraph import ExistsError, ForeignThreadError, LoopstoreSaver, UnreadableError

Config = dict[str, Any]


def config(thread: str = "t", **more: Any) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def chat(saver: Any, answer: Any = None) -> Any:
    """Return a graph that answers, with a call and its result in between."""

    def model(state: MessagesState) -> Any:
        asked = state["messages"][-1]
        if answer is not None:
            return {"messages": answer(state["messages"])}
        if isinstance(asked, ToolMessage):
            return {"messages": [AIMessage(f"done {asked.content}")]}
        call = {"name": "look", "args": {"at": asked.content}, "id": f"call-{len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def tool(state: MessagesState) -> Any:
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        return {
            "messages": [
                ToolMessage(f"saw {call['args']['at']}", tool_call_id=call["id"], name=call["name"])
                for call in last.tool_calls
            ]
        }

    def goes_on(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tool" if isinstance(last, AIMessage) and last.tool_calls else "__end__"

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", goes_on, ["tool", "__end__"])
    graph.add_edge("tool", "model")
    return graph.compile(checkpointer=saver)


def put(
    saver: LoopstoreSaver, messages: list[Any], parent: Config | None = None, thread: str = "t"
) -> Config:
    """Put a list of messages as the next checkpoint."""
    checkpoint = empty_checkpoint()
    version = saver.get_next_version(None, None)
    if parent is not None and (before := saver.get_tuple(parent)):
        version = saver.get_next_version(before.checkpoint["channel_versions"]["messages"], None)
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": version}
    return saver.put(
        parent or config(thread), checkpoint, {"source": "loop", "step": 0}, {"messages": version}
    )


def state(saver: LoopstoreSaver, at: Config) -> list[BaseMessage]:
    found = saver.get_tuple(at)
    assert found is not None
    messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return messages


def stored(store: Store, thread: str = "t") -> list[str]:
    """Return all messages of a session that a model may see, in the order in which they were stored."""
    rows = store.sql(
        "SELECT coalesce(m.text, '') AS text FROM v_messages m JOIN v_loops l USING (session_id, loop_id) "
        f"WHERE m.session_id = '{thread}' AND m.role <> 'extension' "
        "ORDER BY l.started_at, length(l.loop_id), l.loop_id, m.seq"
    )
    return [row["text"] for row in rows]


def shown(store: Store, thread: str = "t") -> list[str]:
    context = store.session(thread).context()
    return [
        "".join(block.get("text", "") for block in message["content"])
        for message in context["messages"]
    ]


def as_memory_says(invoke: Any) -> tuple[Any, Any, Store]:
    """Run a graph with loopstore's saver and with LangGraph's own in memory, and compare the results."""
    store = Store.in_memory()
    ours, theirs = LoopstoreSaver(store), InMemorySaver()
    return invoke(ours), invoke(theirs), store


def plain(snapshot: Any) -> Any:
    """Return the content of a graph's snapshot, without ids that differ from run to run."""
    return (
        json.loads(json.dumps(snapshot.values, default=lambda value: value.model_dump(exclude={"id"}))),
        snapshot.next,
        snapshot.metadata["source"],
        snapshot.metadata["step"],
        len(snapshot.tasks),
    )


def test_a_graph_has_the_history_that_it_has_in_memory_and_each_message_is_stored_once() -> None:
    def invoke(saver: Any) -> Any:
        graph = chat(saver)
        for asked in ("one", "two", "three"):
            graph.invoke({"messages": [("user", asked)]}, config())
        return [plain(each) for each in graph.get_state_history(config())]

    ours, theirs, store = as_memory_says(invoke)
    assert ours == theirs
    expected = []
    for asked in ("one", "two", "three"):
        expected += [asked, "", f"saw {asked}", f"done saw {asked}"]
    assert stored(store) == expected
    assert shown(store) == expected
    assert store.session("t").context()["faults"] == []
    assert store.verify()["problems"] == []
    assert [hit["role"] for hit in store.search("saw two")["hits"]][0] in ("toolResult", "assistant")


def test_state_comes_back_as_it_came_in_another_process(tmp_path: Path) -> None:
    messages = [
        SystemMessage("be brief", id="s"),
        HumanMessage([{"type": "text", "text": "look"}], id="h", name="ann"),
        AIMessage(
            [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            id="a",
            tool_calls=[{"name": "f", "args": {}, "id": "c"}],
            response_metadata={"model_name": "m", "finish_reason": "tool_calls"},
            usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        ),
        ToolMessage("r", tool_call_id="c", artifact={"rows": (1, 2)}, status="error", id="t"),
        AIMessage("a\ud800b", id="u"),
        HumanMessage("ends with \x00", additional_kwargs={"deep": [{"x": 1.0}]}),
    ]
    path = tmp_path / "agent.db"
    with Store.open(path) as store:
        at = put(LoopstoreSaver(store), list(messages))
    with Store.open(path) as store:
        saver = LoopstoreSaver(store)
        found = state(saver, at)
        serde = saver.serde
        expected = [serde.loads_typed(serde.dumps_typed(message)) for message in messages]
        assert found == expected
        assert list(map(type, found)) == list(map(type, expected))
        assert store.session("t").context(format="anthropic")["messages"]
        # The graph continues, and nothing is stored again.
        put(saver, [*found, HumanMessage("next")], at)
        assert len(stored(store)) == 6


def test_values_of_all_kinds_come_back() -> None:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]
        note: Any

    values: list[Any] = [None, b"\x00\xff", {1: 2}, (1, 2), {"a": [1.5, True]}, {3, 4}, "x" * 5000, -0.0]

    def invoke(saver: Any) -> Any:
        graph = StateGraph(State)
        step = iter(values)
        graph.add_node("one", lambda _: {"log": [1], "note": next(step)})
        graph.add_edge(START, "one")
        agent = graph.compile(checkpointer=saver)
        found = []
        for _ in values:
            agent.invoke({"log": []}, config())
            found.append(repr(agent.get_state(config()).values))
        return found

    ours, theirs, _ = as_memory_says(invoke)
    assert ours == theirs


def test_removed_replaced_and_mutated_messages_are_as_the_graph_left_them() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    step: list[Any] = []
    graph = chat(saver, lambda messages: step.pop()(messages))

    def run(work: Any) -> list[BaseMessage]:
        step.append(work)
        graph.invoke({"messages": [HumanMessage(f"q{len(stored(store))}")]}, config())
        fresh = chat(LoopstoreSaver(store), None).get_state(config()).values["messages"]
        held = graph.get_state(config()).values["messages"]
        assert fresh == held
        found: list[BaseMessage] = held
        return found

    run(lambda _: [AIMessage("a1", id="a1")])
    found = run(lambda messages: [RemoveMessage(id=messages[0].id), AIMessage("a2", id="a2")])
    assert [message.content for message in found] == ["a1", "q2", "a2"]
    found = run(lambda _: [AIMessage("a1 again", id="a1"), AIMessage("a3", id="a3")])
    assert [message.content for message in found] == ["a1 again", "q2", "a2", "q4", "a3"]

    def mutate(messages: list[AnyMessage]) -> list[AnyMessage]:
        messages[-2].content = "changed in place"
        messages[2].additional_kwargs["mark"] = [1]
        return [messages[-2], AIMessage("a4", id="a4")]

    found = run(mutate)
    assert [message.content for message in found][-3:] == ["changed in place", found[-2].content, "a4"]
    assert found[2].additional_kwargs == {"mark": [1]}
    found = run(lambda messages: [AIMessage("last, edited", id=messages[-2].id)])
    assert "last, edited" in [message.content for message in found]
    # No message is gone from the record.
    for text in ("a1", "a2", "a3", "a4"):
        assert text in stored(store)
    assert store.verify()["problems"] == []


def test_a_list_of_the_callers_own_reducer_goes_without_ids() -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], operator.add]

    def invoke(saver: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("one", lambda state: {"messages": [AIMessage(f"a{len(state['messages'])}")]})
        graph.add_edge(START, "one")
        agent = graph.compile(checkpointer=saver)
        for _ in range(5):
            agent.invoke({"messages": [HumanMessage("q")]}, config())
        return [message.content for message in agent.get_state(config()).values["messages"]]

    ours, theirs, store = as_memory_says(invoke)
    assert ours == theirs == stored(store)


def test_going_back_in_time_is_a_branch() -> None:
    store = Store.in_memory()
    graph = chat(LoopstoreSaver(store), lambda messages: [AIMessage(f"a{len(messages)}")])
    for asked in ("q1", "q2"):
        graph.invoke({"messages": [("user", asked)]}, config())
    earlier = next(
        each for each in graph.get_state_history(config()) if len(each.values.get("messages", [])) == 2
    )
    graph.invoke({"messages": [("user", "other")]}, earlier.config)
    newest = graph.get_state(config()).values["messages"]
    assert [message.content for message in newest] == ["q1", "a1", "other", "a3"] == shown(store)
    assert stored(store).count("q1") == 1


def test_an_interrupt_waits_and_a_call_may_be_edited_before_it_runs() -> None:
    def invoke(saver: Any) -> Any:
        class State(MessagesState):
            approved: bool

        def ask(state: State) -> Any:
            answer = interrupt({"call": state["messages"][-1].tool_calls})
            edited = state["messages"][-1].model_copy(
                update={"tool_calls": [{"name": "rm", "args": answer, "id": "c1", "type": "tool_call"}]}
            )
            return {"messages": [edited], "approved": True}

        graph = StateGraph(State)
        call = {"name": "rm", "args": {"all": True}, "id": "c1"}
        graph.add_node("model", lambda _: {"messages": [AIMessage("", id="a", tool_calls=[call])]})
        graph.add_node("ask", ask)
        graph.add_node(
            "tool", lambda _: {"messages": [ToolMessage("ok", id="r", tool_call_id="c1")]}
        )
        graph.add_edge(START, "model")
        graph.add_edge("model", "ask")
        graph.add_edge("ask", "tool")
        agent = graph.compile(checkpointer=saver)
        agent.invoke({"messages": [HumanMessage("q", id="q")]}, config())
        waits = agent.get_state(config()).tasks[0].interrupts[0].value
        agent.invoke(Command(resume={"all": False}), config())
        return waits, agent.get_state(config()).values

    ours, theirs, store = as_memory_says(invoke)
    assert ours == theirs
    assert ours[1]["messages"][1].tool_calls[0]["args"] == {"all": False}
    assert shown(store) == ["q", "", "ok"]


def test_a_subgraph_stores_what_it_shares_once() -> None:
    def invoke(saver: Any) -> Any:
        inner = StateGraph(MessagesState)
        inner.add_node("x", lambda state: {"messages": [AIMessage(f"x{len(state['messages'])}")]})
        inner.add_node("y", lambda state: {"messages": [AIMessage(f"y{len(state['messages'])}")]})
        inner.add_edge(START, "x")
        inner.add_edge("x", "y")
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner.compile())
        outer.add_node("end", lambda state: {"messages": [AIMessage(f"e{len(state['messages'])}")]})
        outer.add_edge(START, "inner")
        outer.add_edge("inner", "end")
        agent = outer.compile(checkpointer=saver)
        for asked in ("one", "two"):
            agent.invoke({"messages": [("user", asked)]}, config())
        spaces = {each.config["configurable"]["checkpoint_ns"].split(":")[0] for each in saver.list(None)}
        texts = [message.content for message in agent.get_state(config()).values["messages"]]
        return sorted(spaces), texts

    ours, theirs, store = as_memory_says(invoke)
    assert ours == theirs
    assert stored(store) == ours[1] == shown(store)


def test_parallel_tasks_and_sends() -> None:
    class State(TypedDict):
        got: Annotated[list[int], operator.add]

    def invoke(saver: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("fan", lambda _: {})
        graph.add_node("one", lambda given: {"got": [given["n"]]})
        graph.add_edge(START, "fan")
        graph.add_conditional_edges("fan", lambda _: [Send("one", {"n": n}) for n in range(8)], ["one"])
        agent = graph.compile(checkpointer=saver)
        agent.invoke({"got": []}, config())
        return [plain(each) for each in agent.get_state_history(config())]

    ours, theirs, _ = as_memory_says(invoke)
    assert ours == theirs


def test_what_is_encrypted_is_nowhere_in_the_file(tmp_path: Path) -> None:
    class Turned(CipherProtocol):
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "turned", bytes(byte ^ 0x5A for byte in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes(byte ^ 0x5A for byte in ciphertext)

    path = tmp_path / "agent.db"
    with Store.open(path) as store:
        saver = LoopstoreSaver(store, serde=EncryptedSerializer(Turned()))
        graph = chat(saver)
        graph.invoke({"messages": [("user", "the-secret-word")]}, config())
        assert graph.get_state(config()).values["messages"][0].content == "the-secret-word"
        assert stored(store) == []
    assert all(b"the-secret-word" not in each.read_bytes() for each in tmp_path.iterdir())


def test_a_deleted_thread_is_hidden_or_erased_and_its_id_is_free() -> None:
    for how in ("hide", "erase"):
        store = Store.in_memory()
        saver = LoopstoreSaver(store, on_delete=how)  # type: ignore[arg-type]
        graph = chat(saver)
        graph.invoke({"messages": [("user", "before")]}, config())
        saver.delete_thread("t")
        assert saver.get_tuple(config()) is None
        assert list(saver.list(None)) == []
        graph.invoke({"messages": [("user", "after")]}, config())
        assert shown(store)[0] == "after"
        # Another saver still remembers the earlier state.
        late = LoopstoreSaver(store)
        at = late.get_tuple(config())
        assert at is not None
        saver.delete_thread("t")
        put(saver, [HumanMessage("once more", id="m")])
        put(late, [*at.checkpoint["channel_values"]["messages"], HumanMessage("late", id="l")])
        assert [m.content for m in state(late, config())] == ["after", "", "saw after", "done saw after", "late"]
        said = store.sql("SELECT count(*) AS n FROM v_messages WHERE text = 'before'")[0]["n"]
        assert said == (1 if how == "hide" else 0)
        saver.delete_thread("nobody")
        assert store.verify()["problems"] == []


def test_a_copy_goes_its_own_way_and_an_occupied_target_is_refused() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    graph = chat(saver)
    graph.invoke({"messages": [("user", "one")]}, config())
    saver.copy_thread("t", "u")
    graph.invoke({"messages": [("user", "two")]}, config("u"))
    assert len(graph.get_state(config()).values["messages"]) == 4
    assert len(graph.get_state(config("u")).values["messages"]) == 8
    assert shown(store, "u")[:4] == shown(store)
    with pytest.raises(ExistsError, match="delete it first"):
        saver.copy_thread("t", "u")


def test_wrong_arguments_are_told() -> None:
    saver = LoopstoreSaver(Store.in_memory())
    good = empty_checkpoint()
    with pytest.raises(InvalidInputError, match="thread_id"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(InvalidInputError):
        saver.get_tuple(config(""))
    with pytest.raises(InvalidInputError):
        saver.put(config("x" * 600), good, {}, {})
    with pytest.raises(InvalidInputError, match="checkpoint_id"):
        saver.put_writes(config(), [("x", 1)], "task")
    with pytest.raises(InvalidInputError, match="keep_latest"):
        saver.prune(["t"], strategy="oldest")
    with pytest.raises(InvalidInputError, match="on_delete"):
        LoopstoreSaver(Store.in_memory(), on_delete="shred")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        saver.put(config(), {**good, "channel_values": {"x": object()}}, {}, {"x": 1})
    assert saver.get_tuple(config()) is None
    assert saver.get_tuple(config(checkpoint_id="nothing")) is None
    assert list(saver.list(config("nobody"))) == []


async def test_an_empty_checkpoint_id_names_the_newest() -> None:
    saver, nothing = LoopstoreSaver(Store.in_memory()), config(checkpoint_id="")
    first = saver.put(nothing, empty_checkpoint() | {"channel_values": {"a": "seed"}}, {}, {"a": 1})
    saver.put_writes(first, [("a", "more")], "task")
    newest = saver.put(first, empty_checkpoint(), {"step": 1}, {})
    found = saver.get_tuple(nothing)
    assert found is not None and found.config == newest and found.parent_config == first
    root = saver.get_tuple(first)
    assert root is not None and root.parent_config is None
    assert saver.get_delta_channel_history(config=nothing, channels=["a"]) == {
        "a": {"seed": "seed", "writes": [("task", "a", "more")]}
    }
    assert [one.config async for one in saver.alist(nothing)] == [newest, first]
    assert len(list(saver.list(config(), before=nothing))) == 2
    with pytest.raises(InvalidInputError, match="checkpoint_id"):
        saver.put_writes(nothing, [("a", "more")], "task")


def test_a_thread_of_the_other_language_is_refused() -> None:
    store = Store.in_memory()
    note = {"role": "extension", "kind": "langgraph.checkpoint", "data": {}}
    store.session("t").append([note], key="lg-js/c//1/00000000")
    saver = LoopstoreSaver(store)
    with pytest.raises(ForeignThreadError, match="JavaScript"):
        saver.get_tuple(config())
    with pytest.raises(ForeignThreadError):
        put(saver, [HumanMessage("q")])


def test_a_value_that_cannot_be_read_is_told() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    store.session("t").append(
        [{"role": "extension", "kind": "langgraph.checkpoint", "data": {"id": 7}}],
        key="lg-py/c//1/00000000",
    )
    with pytest.raises(UnreadableError, match="checkpoint"):
        saver.get_tuple(config())
    store.session("t").append([{"role": "user", "content": []}], key="lg-py/c//2/00000000")
    with pytest.raises(UnreadableError, match="message"):
        saver.get_tuple(config())


def test_eight_threads_lose_nothing() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            graph = chat(saver)
            for turn in range(4):
                for thread in (f"own-{n}", "shared"):
                    graph.invoke({"messages": [("user", f"{n}-{turn}")]}, config(thread))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for n in range(8):
        assert len(state(saver, config(f"own-{n}"))) == 16
    asked = {text for text in stored(store, "shared") if "-" in text and " " not in text}
    assert asked == {f"{n}-{turn}" for n in range(8) for turn in range(4)}
    for found in saver.list(config("shared")):
        kinds = [message.type for message in found.checkpoint["channel_values"].get("messages", [])]
        assert "human" in kinds or not kinds
    assert store.verify()["problems"] == []


async def test_many_tasks_at_once() -> None:
    with Store.in_memory() as store:
        saver = LoopstoreSaver(store)
        graph = chat(saver)
        await asyncio.gather(
            *(graph.ainvoke({"messages": [("user", "q")]}, config(f"t{n}")) for n in range(50))
        )
        assert len([each async for each in saver.alist(None, filter={"source": "input"})]) == 50


def _process(path: str, n: int) -> None:
    with Store.open(path) as store:
        graph = chat(LoopstoreSaver(store))
        for turn in range(5):
            graph.invoke({"messages": [("user", f"{n}-{turn}")]}, config("shared"))


def test_four_processes_do_not_lose_each_others_checkpoints(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.db")
    Store.open(path).close()
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_process, args=(path, n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    with Store.open(path) as store:
        saver = LoopstoreSaver(store)
        inputs = list(saver.list(config("shared"), filter={"source": "input"}))
        assert len(inputs) == 20
        for found in saver.list(config("shared")):
            assert saver.get_tuple(found.config) is not None
        assert store.verify()["problems"] == []


_KILLED = """
import sys
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from loopstore import Store
from loopstore.langgraph import LoopstoreSaver
saver = LoopstoreSaver(Store.open(sys.argv[1]))
at, messages, version = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, [], None
for n in range(100_000):
    messages = [*messages, HumanMessage(f"m{n}", id=str(n))]
    version = saver.get_next_version(version, None)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": version}
    at = saver.put(at, checkpoint, {"step": n}, {"messages": version})
    saver.put_writes(at, [("messages", messages[-1])], "task")
    print(n, flush=True)
"""


@pytest.mark.parametrize("after", [1, 7, 30])
def test_what_was_acknowledged_before_a_kill_is_there(tmp_path: Path, after: int) -> None:
    path = tmp_path / "agent.db"
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < after:
        pass
    time.sleep(0.003 * after)
    os.kill(process.pid, signal.SIGKILL)
    acknowledged = after
    for line in process.stdout.read().splitlines():
        acknowledged = max(acknowledged, int(line))
    process.wait()
    with Store.open(path) as store:
        saver = LoopstoreSaver(store)
        found = list(saver.list(config()))
        assert acknowledged <= len(found) - 1 <= acknowledged + 1
        for each in found:
            step = each.metadata["step"]
            messages = each.checkpoint["channel_values"]["messages"]
            assert [message.content for message in messages] == [f"m{n}" for n in range(step + 1)]
            assert each.pending_writes or step >= acknowledged
        assert store.verify()["problems"] == []


def test_a_compaction_during_puts_changes_no_state() -> None:
    store = Store.in_memory()
    saver = LoopstoreSaver(store)
    done = threading.Event()
    outcomes: list[str] = []

    def compact() -> None:
        while not done.is_set():
            if store.session("t").leaf() is not None:
                outcomes.append(store.session("t").compact(force=True)["outcome"])

    worker = threading.Thread(target=compact)
    worker.start()
    graph = chat(saver, lambda messages: [AIMessage(f"a{len(messages)} " + "word " * 300)])
    for n in range(25):
        graph.invoke({"messages": [("user", f"q{n} " + "word " * 300)]}, config())
    done.set()
    worker.join()
    found = LoopstoreSaver(store).get_tuple(config())
    assert found is not None
    texts = [message.content.split()[0] for message in found.checkpoint["channel_values"]["messages"]]
    expected = []
    for n in range(25):
        expected += [f"q{n}", f"a{2 * n + 1}"]
    assert texts == expected
    assert "committed" in outcomes
    assert store.verify()["problems"] == []


def test_the_list_of_a_long_thread_is_stored_in_little_space(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    said = 0
    with Store.open(path, durability="normal") as store:
        saver = LoopstoreSaver(store)
        at, messages, version = config(), [], None
        for n in range(600):
            text = " ".join(f"word{n}-{i}" for i in range(200))
            said += len(text)
            messages = [*messages, (HumanMessage if n % 2 == 0 else AIMessage)(text, id=str(n))]
            version = saver.get_next_version(version, None)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": version}
            at = saver.put(at, checkpoint, {"step": n}, {"messages": version})
    assert path.stat().st_size < 3 * said
