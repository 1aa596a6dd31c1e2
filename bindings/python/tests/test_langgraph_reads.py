"""Reads of states whose messages a saver knows: the store returns only what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint

from loopstore import Store
from loopstore._lists import Known, Remembered, Thread
from loopstore.langgraph import LoopstoreSaver

CALL = {"name": "gauge", "args": {"hour": [1, {"half": 0.5}]}, "id": "c1", "type": "tool_call"}
MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief.", id="s"),
    HumanMessage([{"type": "text", "text": "Rain?"}, "now"], id="q", name="ada"),
    AIMessage("", id="a", tool_calls=[CALL], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),  # type: ignore[list-item]
    ToolMessage("7 mm", id="r", tool_call_id="c1", name="gauge", artifact={"raw": [7]}),
    AIMessage("It rains.", id="b", additional_kwargs={"x": {"y": 1}}, response_metadata={"model_name": "m"}),
]


class Calls:
    """A native saver that records which messages each read asks for."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.whole: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def get(self, thread: str, ns: str, id: str | None, all_bodies: bool) -> Any:
        self.whole.append(all_bodies)
        return self._native.get(thread, ns, id, all_bodies)


def config(thread: str = "t") -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put(saver: LoopstoreSaver, messages: list[BaseMessage], at: RunnableConfig | None = None) -> RunnableConfig:
    version = saver.get_next_version(None, None)  # type: ignore[arg-type]
    checkpoint = empty_checkpoint()
    checkpoint["v"] = 4
    checkpoint["channel_values"] = {"messages": messages}
    checkpoint["channel_versions"] = {"messages": version}
    return saver.put(at or config(), checkpoint, {"source": "loop"}, {"messages": version})


def state(found: CheckpointTuple | None) -> list[BaseMessage]:
    assert found is not None
    messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return messages


def watched(saver: LoopstoreSaver) -> Calls:
    calls = Calls(saver._native)
    saver._native = calls  # type: ignore[assignment]
    return calls


@pytest.mark.parametrize("by", ["put", "get"])
def test_a_known_state_is_what_is_stored_and_is_not_read_again(tmp_path: Path, by: str) -> None:
    with Store.open(tmp_path / "a.db") as store:
        put(LoopstoreSaver(store), MESSAGES)
        saver = LoopstoreSaver(store)
        if by == "get":
            saver.get_tuple(config())
        else:
            put(saver, [*MESSAGES, HumanMessage("And now?", id="z")], saver.get_tuple(config()).config)  # type: ignore[union-attr]
        calls = watched(saver)
        fresh = state(LoopstoreSaver(store).get_tuple(config()))
        for _ in range(2):
            found = state(saver.get_tuple(config()))
            assert found == fresh and [type(one) for one in found] == [type(one) for one in fresh]
            assert [one.model_dump() for one in found] == [one.model_dump() for one in fresh]
            assert [one.model_dump_json() for one in found] == [one.model_dump_json() for one in fresh]
            assert list(saver.list(config(), limit=1))[0].checkpoint["channel_values"]["messages"] == fresh
        assert calls.whole == [False] * 4
        # What a caller does with a message is its own.
        found[1].content = "changed"
        found[2].tool_calls[0]["args"]["hour"].append(2)  # type: ignore[attr-defined]
        found[4].additional_kwargs["x"]["y"] = 2
        assert state(saver.get_tuple(config())) == fresh
        # And it can be stored as another one.
        put(saver, found, saver.get_tuple(config()).config)  # type: ignore[union-attr]
        assert state(LoopstoreSaver(store).get_tuple(config())) == found


def test_what_another_saver_stored_is_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "a.db") as other:
        saver, second = LoopstoreSaver(store), LoopstoreSaver(other)
        first = put(saver, MESSAGES)
        more = [*MESSAGES, HumanMessage("And now?", id="n")]
        put(second, more, first)
        calls = watched(saver)
        assert state(saver.get_tuple(config())) == more
        assert calls.whole == [False, True]
        assert state(saver.get_tuple(first)) == MESSAGES
        assert calls.whole[2:] == [False]


def test_a_redaction_is_seen(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "a.db") as other:
        saver = LoopstoreSaver(store)
        secret = HumanMessage("git clone https://me:hunter2@example.org/x", id="x")
        put(saver, [*MESSAGES, secret])
        assert "hunter2" in str(state(saver.get_tuple(config())))
        assert other.session("t").redact()["secrets"] == {"url-password": 1}
        try:
            found = str(state(saver.get_tuple(config())))
        except Exception as error:
            found = str(error)
        try:
            fresh = str(state(LoopstoreSaver(other).get_tuple(config())))
        except Exception as error:
            fresh = str(error)
        assert "hunter2" not in found and found == fresh


def test_a_thread_that_was_deleted_is_another_one(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "a.db") as other:
        saver, second = LoopstoreSaver(store), LoopstoreSaver(other)
        put(saver, MESSAGES)
        second.delete_thread("t")
        assert saver.get_tuple(config()) is None
        put(second, [HumanMessage("Another one.", id="o")])
        assert state(saver.get_tuple(config())) == [HumanMessage("Another one.", id="o")]


def test_a_message_that_json_does_not_hold_is_read_whole(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        saver = LoopstoreSaver(store)
        put(saver, [*MESSAGES, HumanMessage("odd", id="o", additional_kwargs={"at": (1, 2)})])
        calls = watched(saver)
        assert state(saver.get_tuple(config())) == state(LoopstoreSaver(store).get_tuple(config()))
        assert calls.whole == [False, True]


def test_a_message_that_another_thread_copies_at_the_same_time_shares_nothing() -> None:
    class Watched(Known):
        """Copies itself as soon as it is known to be plain."""

        other: BaseMessage | None = None

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "_is_plain" and value:
                self.other = self.copy()

    known = Watched(MESSAGES[2], ("loop-1", 0), None, False)
    copies = [known.copy(), known.other]
    for copy in copies:
        assert copy == MESSAGES[2]
        assert isinstance(copy, AIMessage)
        copy.tool_calls[0]["args"]["hour"].append(2)
        assert known.copy() == MESSAGES[2]


def test_a_list_with_another_beginning_is_remembered_whole() -> None:
    def segment(at: int, message: BaseMessage) -> Known:
        return Known(message, ("loop-1", at), None, False)

    def remembered(*all_known: Known) -> Remembered:
        return Remembered.of([], [MESSAGES[known.place[1]] for known in all_known], list(all_known))

    thread = Thread(1)
    first, last, other = (segment(at, MESSAGES[at]) for at in (1, 2, 4))
    thread.note(("", "messages"), remembered(first, last), "1")
    # A message at the start of a segment is the same object in both lists.
    thread.note(("", "messages"), remembered(other, last.at(None, False)), "2")
    assert thread.find(MESSAGES[4]) is other
    assert thread.by_place[other.place] is other
