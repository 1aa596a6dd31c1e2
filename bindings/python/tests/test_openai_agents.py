"""The session for the OpenAI Agents SDK: the contract of its protocol, and the additions of loopstore."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, Runner
from agents.items import ModelResponse
from agents.memory import Session as AgentsSession
from agents.memory import SessionSettings
from agents.memory.session import is_openai_responses_compaction_aware_session
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import loopstore
from loopstore import Policy, Store
from loopstore.openai_agents import LoopstoreSession


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


def output(text: str, number: int = 1) -> Any:
    """Return an answer as the SDK adds it."""
    return {
        "id": f"msg_{number}",
        "content": [{"annotations": [], "text": text, "type": "output_text", "logprobs": []}],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    }


def call(id: str, name: str = "forecast", arguments: str = '{"days": 3, "place": "Bern, Switzerland"}') -> Any:
    return {
        "arguments": arguments,
        "call_id": id,
        "name": name,
        "type": "function_call",
        "id": f"fc_{id}",
        "status": "completed",
    }


def result(id: str, text: str) -> Any:
    return {"call_id": id, "output": text, "type": "function_call_output"}


@pytest.fixture
def session(store: Store) -> LoopstoreSession:
    return LoopstoreSession("s1", store)


class Stand(Model):
    """A mock of a model, which answers with the number of items that it was given."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **more: Any) -> ModelResponse:
        count = 1 if isinstance(input, str) else len(input)
        text = ResponseOutputText(annotations=[], text=f"{count} items", type="output_text", logprobs=[])
        message = ResponseOutputMessage(
            id="msg_1", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id="resp_1")

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


async def test_a_runner_goes_on_with_what_was_said(session: LoopstoreSession) -> None:
    agent = Agent(name="stand", model=Stand())
    first = await Runner.run(agent, "Will it rain?", session=session)
    second = await Runner.run(agent, "And tomorrow?", session=session)
    assert (first.final_output, second.final_output) == ("1 items", "3 items")
    items = await session.get_items()
    assert [item["role"] for item in items] == ["user", "assistant"] * 2  # type: ignore[typeddict-item]
    assert session.session.search("tomorrow")["hits"]


def test_it_is_a_session_of_the_protocol(session: LoopstoreSession) -> None:
    assert isinstance(session, AgentsSession)
    assert is_openai_responses_compaction_aware_session(session)


ITEMS: list[Any] = [
    user("Hello, 世界! 🦀 'quotes\" \\ and \n lines \u2028"),
    assistant("Hi there, and this is long enough to be stored only once in the database."),
    output("This is an answer that is long enough to be stored only once in the database."),
    output(""),
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"role": "system", "content": "You are brief. " * 5},
    {"role": "developer", "content": [{"type": "input_text", "text": "Never mention the weather in Bern."}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think about the weather of tomorrow."}]},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAAABsealed" * 10},
    call("c1"),
    result("c1", "Rain from noon on, " * 30),
    call("c2", arguments="not JSON at all, but a text of many words"),
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Part one."}]},
    {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "*** Begin Patch of a file\n"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "Done."},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}},
    {"type": "item_reference", "id": "msg_9"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}, {"type": "input_text", "text": "What is this?"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "detail": "auto"}]},
    {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]},
    {"type": "compaction", "encrypted_content": "gAAAA" * 20, "id": "cmp_1"},
    {"anything": {"goes": [1, 2.5, None, True, 2**70, 1e-300]}},
    {"text": '{"$loopstore":0} in a text that is long enough to be looked at'},
    {"$loopstore": 0, "role": "user", "content": "A text that is long enough to be replaced by a mark."},
    {"role": "user", "content": ""},
]


@pytest.mark.parametrize("item", ITEMS, ids=range(len(ITEMS)))
async def test_an_item_comes_back_as_it_came(session: LoopstoreSession, item: Any) -> None:
    await session.add_items([item])
    assert await session.get_items() == [item]
    assert await session.get_items(5) == [item]
    assert await session.pop_item() == item
    assert await session.get_items() == []


async def test_items_come_back_in_order(session: LoopstoreSession) -> None:
    items = [item for item in ITEMS if item.get("type") != "compaction"]
    await session.add_items(items)
    await session.add_items(items)
    assert await session.get_items() == items * 2
    for limit in (1, 7, len(items), len(items) + 1, len(items) * 2, 1000):
        assert await session.get_items(limit) == (items * 2)[-limit:]
    for item in reversed(items * 2):
        assert await session.pop_item() == item
    assert await session.pop_item() is None


async def test_a_long_text_is_stored_once(session: LoopstoreSession) -> None:
    text = "rain " * 20_000
    await session.add_items([output(text), call("c1", arguments=f'{{"text":"{text}"}}'), result("c1", text)])
    assert session.store.stats()["bytes"] < 3.2 * len(text)


async def test_limits(session: LoopstoreSession, store: Store) -> None:
    items = [user(str(n)) for n in range(10)]
    await session.add_items(items)
    assert await session.get_items(3) == items[-3:]
    assert await session.get_items(0) == []
    assert await session.get_items(-1) == items
    limited = LoopstoreSession("s1", store, session_settings=SessionSettings(limit=2))
    assert await limited.get_items() == items[-2:]
    assert await limited.get_items(4) == items[-4:]
    limited = LoopstoreSession("s1", store, session_settings={"limit": 3})
    assert await limited.get_items() == items[-3:]
    assert await LoopstoreSession("never", store).get_items(3) == []


async def test_nothing_is_added_by_nothing(session: LoopstoreSession) -> None:
    await session.add_items([])
    assert await session.get_items() == [] and not session.session.exists()
    assert await session.pop_item() is None
    await session.clear_session()
    assert session.store.sessions() == []


async def test_pop_takes_the_last_of_several_items_of_one_answer(session: LoopstoreSession) -> None:
    items = [user("Weather?"), call("c1"), call("c2"), result("c1", "Rain."), result("c2", "Snow."), output("Both.")]
    await session.add_items(items)
    for left in range(len(items) - 1, 2, -1):
        assert await session.pop_item() == items[left]
        assert await session.get_items() == items[:left]
    await session.add_items([user("Never mind.")])
    assert await session.get_items() == [*items[:3], user("Never mind.")]
    # The record keeps the removed item.
    assert session.session.count_entries(whole_session=True) >= len(items) + 1
    assert session.store.verify()["ok"]


async def test_pop_goes_back_over_turns_and_loops(session: LoopstoreSession) -> None:
    items = [item for n in range(6) for item in (user(f"Q{n}"), assistant(f"A{n}"))]
    for item in items:
        await session.add_items([item])
    for left in range(len(items) - 1, -1, -1):
        assert await session.pop_item() == items[left]
        assert await session.get_items() == items[:left]
    assert await session.pop_item() is None
    await session.add_items(items)
    assert await session.get_items() == items


async def test_clear_begins_anew_and_keeps_the_record(session: LoopstoreSession) -> None:
    await session.add_items([user("Will it rain?"), assistant("No.")])
    await session.clear_session()
    assert await session.get_items() == [] and await session.get_items(5) == []
    assert await session.pop_item() is None
    await session.add_items([user("Again.")])
    assert await session.get_items() == [user("Again.")]
    assert session.store.search("rain")["hits"]


async def test_clear_can_erase(store: Store) -> None:
    session = LoopstoreSession("s1", store, on_delete="erase")
    await session.add_items([user("Will it rain?")])
    await session.clear_session()
    assert not store.search("rain")["hits"] and not session.session.exists()
    await session.add_items([user("Again.")])
    assert await session.get_items() == [user("Again.")]


async def test_sessions_do_not_meet(store: Store) -> None:
    one, two = LoopstoreSession("one", store), LoopstoreSession("two", store)
    await one.add_items([user("1")])
    await two.add_items([user("2")])
    assert await one.get_items() == [user("1")]
    await one.clear_session()
    assert await two.get_items() == [user("2")]


async def test_all_objects_of_a_session_see_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with LoopstoreSession("s", path) as one, LoopstoreSession("s", path) as two:
        await one.add_items([user("a"), assistant("b")])
        assert await two.get_items() == [user("a"), assistant("b")]
        assert await two.pop_item() == assistant("b")
        assert await one.get_items() == [user("a")]
        await one.add_items([user("c")])
        await two.add_items([user("d")])
        assert await one.get_items() == await two.get_items() == [user("a"), user("c"), user("d")]
        await two.clear_session()
        assert await one.get_items() == []


async def test_concurrent_calls_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with LoopstoreSession("s", path) as one, LoopstoreSession("s", path) as two:
        await asyncio.gather(
            *(side.add_items([user(f"{name}{n}"), assistant(f"{name}{n}")])
              for n in range(30) for name, side in (("a", one), ("b", two)))
        )
        items = await one.get_items()
        assert len(items) == 120
        popped = await asyncio.gather(*(side.pop_item() for _ in range(10) for side in (one, two)))
        assert popped.count(None) == 0
        left = await two.get_items()
        assert left == items[:100]
        assert sorted(map(str, popped)) == sorted(map(str, items[100:]))


@pytest.mark.parametrize("items", [[{"a": object()}], [{"a": float("inf")}], [{(1, 2): 1}]])
async def test_what_is_no_json_is_refused_whole(session: LoopstoreSession, items: Any) -> None:
    with pytest.raises(loopstore.InvalidInputError):
        await session.add_items([user("first"), *items])
    assert await session.get_items() == []


async def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = LoopstoreSession("s", tmp_path / "a.db")
    session.close()
    for work in (session.add_items([user("a")]), session.get_items(), session.pop_item()):
        with pytest.raises(loopstore.ClosedError):
            await work
    # The SDK's own session reports it in the same way.
    assert issubclass(loopstore.ClosedError, RuntimeError)
    with pytest.raises(loopstore.ClosedError):
        await session.add_items([])


async def test_options_that_are_none_are_refused(store: Store) -> None:
    for options in (
        {"session_id": ""},
        {"compaction": "magic"},
        {"compaction_mode": "guess"},
        {"on_delete": "maybe"},
        {"session_settings": {"limits": 3}},
    ):
        with pytest.raises(loopstore.InvalidInputError):
            LoopstoreSession(**{"session_id": "s", "store": store, **options})  # type: ignore[arg-type]


def talk(turns: int) -> list[Any]:
    return [item for n in range(turns) for item in (user(f"Question {n}"), output("rain, " * 200, n))]


async def test_a_compaction_is_an_overlay(store: Store) -> None:
    session = LoopstoreSession("s", store, policy=Policy(6_000))
    items = talk(40)
    await session.add_items(items)
    await session.run_compaction({"response_id": "resp_1", "store": True})
    short = await session.get_items()
    assert len(short) < len(items) and short[-2:] == items[-2:]
    assert await session.get_items(2) == items[-2:]
    await session.add_items([user("And now?")])
    assert await session.get_items() == [*short, user("And now?")]
    assert await session.pop_item() == user("And now?")
    assert await session.get_items() == short
    session.session.undo()
    assert await session.get_items() == items


async def test_a_compaction_waits_until_it_is_due(session: LoopstoreSession) -> None:
    await session.run_compaction()
    await session.add_items(talk(30))
    await session.run_compaction()
    assert len(await session.get_items()) == 60
    await session.run_compaction({"force": True})
    assert len(await session.get_items()) < 60


async def test_an_item_written_during_a_compaction_is_there_afterwards(store: Store) -> None:
    session: LoopstoreSession
    asked = 0

    async def summarize(request: Any) -> str:
        nonlocal asked
        asked += 1
        await LoopstoreSession("s", store).add_items([user(f"Meanwhile {asked}")])
        return "## Task\nWatch the weather.\n\n## Done\nIt rains."

    session = LoopstoreSession("s", store, policy=Policy(6_000, summarizer=summarize))
    await session.add_items(talk(40))
    await session.run_compaction({"force": True})
    items = await session.get_items()
    assert asked and len(items) < 60
    assert items[-asked:] == [user(f"Meanwhile {n + 1}") for n in range(asked)]


class Provider:
    """A mock of a client of OpenAI."""

    def __init__(self, session: LoopstoreSession | None = None) -> None:
        self.responses = self
        self.asked: list[dict[str, Any]] = []
        self.session = session
        self.output: list[Any] = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Question 0"}]},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAsealed"},
        ]

    async def compact(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if self.session is not None:
            await self.session.add_items([user("Meanwhile")])
        return SimpleNamespace(output=self.output, usage=None)


async def test_the_providers_own_compaction_stands_for_what_was_before(store: Store) -> None:
    writer = LoopstoreSession("s", store)
    client: Any = Provider(writer)
    session = LoopstoreSession("s", store, compaction="openai", client=client, model="gpt-5")
    items = talk(12)
    await session.add_items(items)
    await session.run_compaction()
    assert client.asked == [{"model": "gpt-5", "input": items}]
    assert await session.get_items() == [*client.output, user("Meanwhile")]
    await session.add_items([user("Next"), output("Yes.")])
    assert await session.get_items() == [*client.output, user("Meanwhile"), user("Next"), output("Yes.")]
    assert await session.get_items(2) == [user("Next"), output("Yes.")]
    # The originals are stored: for search, and for every other model.
    assert session.session.search("Question 7")["hits"]
    assert await writer.get_items() == [*items, user("Meanwhile"), user("Next"), output("Yes.")]
    runs = store.history("s")
    assert [(run["strategy"], run["outcome"]) for run in runs] == [("provider:openai", "committed")]
    assert store.verify()["ok"]


async def test_the_providers_own_compaction_can_be_undone_and_redone(store: Store) -> None:
    client: Any = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    items = talk(12)
    await session.add_items(items)
    await session.run_compaction()
    assert await session.get_items() == client.output
    session.session.undo()
    assert await session.get_items() == items
    session.session.redo()
    assert await session.get_items() == client.output
    await session.add_items([user("Next")])
    session.session.undo()
    assert await session.get_items() == [*items, user("Next")]
    # A second compaction replaces the first one.
    await session.run_compaction()
    assert client.asked[1]["input"] == [*items, user("Next")]
    assert await session.get_items() == client.output


async def test_a_compaction_that_nothing_followed_is_what_pop_item_takes_back(store: Store) -> None:
    client: Any = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    items = talk(12)
    await session.add_items(items)
    await session.run_compaction()
    assert await session.pop_item() == client.output[-1]
    assert await session.get_items() == items
    assert await session.pop_item() == items[-1]
    assert await session.get_items() == items[:-1]


async def test_what_is_taken_back_while_the_provider_compacts_is_no_part_of_it(store: Store) -> None:
    class Clearing(Provider):
        async def compact(self, **asked: Any) -> Any:
            await LoopstoreSession("s", store).clear_session()
            return SimpleNamespace(output=self.output, usage=None)

    client: Any = Clearing()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    await session.add_items(talk(12))
    with pytest.raises(loopstore.LoopstoreError, match="taken back"):
        await session.run_compaction()
    assert await session.get_items() == []


async def test_items_of_one_turn_that_came_meanwhile_follow_the_compaction(store: Store) -> None:
    class Answering(Provider):
        async def compact(self, **asked: Any) -> Any:
            await LoopstoreSession("s", store).add_items([output("It is noon.")])
            return SimpleNamespace(output=self.output, usage=None)

    client: Any = Answering()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    await session.add_items([*talk(12), output("One moment."), user("What time is it?")])
    await session.run_compaction()
    # No turn of this prompt's loop was complete: the prompt is shown with its answer.
    assert await session.get_items() == [*client.output, user("What time is it?"), output("It is noon.")]
    await session.run_compaction({"force": True})
    await session.add_items([output("Anything else?")])
    assert await session.get_items() == [*client.output, output("It is noon."), output("Anything else?")]


async def test_the_provider_is_asked_when_it_is_due(store: Store) -> None:
    client: Any = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    await session.run_compaction({"force": True})
    await session.add_items(talk(9))
    await session.run_compaction({"response_id": "resp_1", "store": True})
    assert client.asked == []
    await session.run_compaction({"response_id": "resp_1", "store": True, "force": True})
    assert client.asked == [{"model": "gpt-4.1", "previous_response_id": "resp_1"}]
    await session.run_compaction({"response_id": "resp_2", "store": False, "force": True})
    assert "input" in client.asked[1]
    with pytest.raises(ValueError, match="response_id"):
        await LoopstoreSession("t", store, compaction="openai", client=client).run_compaction(
            {"compaction_mode": "previous_response_id"}
        )


async def test_a_response_is_not_asked_for_once_its_items_were_taken_back(store: Store) -> None:
    client: Any = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    assert await session.pop_item() is None
    stored: Any = {"response_id": "resp_1", "store": True}
    forced: Any = {"force": True}
    for take_back in (session.pop_item, session.clear_session):
        await session.add_items(talk(2))
        await session.run_compaction(stored)
        await session.run_compaction(forced)
        assert client.asked.pop() == {"model": "gpt-4.1", "previous_response_id": "resp_1"}
        await session.add_items([user("Never mind.")])
        await session.run_compaction(stored)
        await take_back()
        await session.add_items([user("Something else.")])
        await session.run_compaction(forced)
        assert client.asked.pop()["input"][-1] == user("Something else.")
    # A response that was not stored counts as stored as soon as the run says so.
    await session.add_items(talk(2))
    await session.run_compaction({"response_id": "resp_2", "store": False})
    await session.run_compaction({"response_id": "resp_2", "store": True, "force": True})
    assert client.asked.pop()["previous_response_id"] == "resp_2"


async def test_how_the_provider_gets_the_history_can_be_chosen(store: Store) -> None:
    client: Any = Provider()
    asked: Any = {"response_id": "resp_1", "store": True, "force": True}
    items = talk(2)
    for name, options, way in (
        ("input", {"compaction_mode": "input"}, "input"),
        ("id", {"compaction_mode": "previous_response_id", "session_settings": {"limit": 1}}, "previous_response_id"),
        ("auto", {"session_settings": {"limit": 4}}, "previous_response_id"),
        # No response contains the items that the limit hides.
        ("limited", {"session_settings": {"limit": 3}}, "input"),
    ):
        session = LoopstoreSession(name, store, compaction="openai", client=client, **options)  # type: ignore[arg-type]
        await session.add_items(items)
        await session.run_compaction(asked)
        assert client.asked.pop() == {"model": "gpt-4.1", way: items if way == "input" else "resp_1"}


async def test_what_somebody_else_added_is_no_part_of_a_response(store: Store) -> None:
    client = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)  # type: ignore[arg-type]
    await session.get_items()
    await session.add_items(talk(6))
    other = LoopstoreSession("s", store)
    await other.add_items([user("Mine.")])
    by_id: Any = {"force": True, "response_id": "resp_1", "compaction_mode": "previous_response_id"}
    await session.run_compaction(by_id)
    assert client.asked == []
    assert len(await other.get_items()) == 13
    await session.run_compaction({"force": True, "response_id": "resp_1"})
    assert client.asked.pop()["input"][-1]["content"] == "Mine."
    # Its next response includes the items that the session has read since.
    await session.get_items()
    await session.add_items(talk(1))
    await session.run_compaction({**by_id, "response_id": "resp_2"})
    assert client.asked.pop()["previous_response_id"] == "resp_2"


async def test_the_provider_gets_and_gives_only_what_can_be_sent_again(store: Store) -> None:
    client: Any = Provider()
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA", "created_by": "server"}
    image = {"type": "input_image", "image_url": "https://example.com/a.png", "file_id": None, "detail": "auto"}
    client.output = [
        {"type": "message", "role": "user", "content": [image, {"type": "input_text", "text": "What is this?"}]},
        output("A tree."),
        sealed,
    ]
    session = LoopstoreSession("s", store, compaction="openai", client=client, compaction_mode="input")
    noted = {**call("c1"), "_agents_tool_title": "Forecast", "_agents_tool_description": "Tells it."}
    await session.add_items([user("Weather?"), noted, result("c1", "Rain.")])
    await session.run_compaction({"force": True})
    assert client.asked.pop()["input"] == [user("Weather?"), call("c1"), result("c1", "Rain.")]
    items: list[Any] = await session.get_items()
    assert items[0]["content"][0] == {"type": "input_image", "image_url": image["image_url"], "detail": "auto"}
    assert items[1] == {name: value for name, value in output("A tree.").items() if name != "id"}
    assert items[2] == sealed
    await session.add_items([user("Next.")])
    await session.run_compaction({"force": True})
    assert "created_by" not in client.asked.pop()["input"][2]
    # The id of an answer belongs to its reasoning; an empty image could never be sent.
    client.output = [{"type": "reasoning", "id": "rs_1", "summary": []}, output("A tree."), sealed]
    await session.run_compaction({"force": True})
    assert await session.get_items() == client.output
    client.output = [{"role": "user", "content": [{"type": "input_image", "image_url": None}]}, sealed]
    await session.add_items([user("Once more.")])
    before = await session.get_items()
    with pytest.raises(loopstore.InvalidInputError, match="nothing was changed"):
        await session.run_compaction({"force": True})
    assert await session.get_items() == before


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "look", "arguments": "{}", "server_label": "s"}


@pytest.mark.parametrize(
    ("waiting", "answer"),
    [
        (call("c1"), result("c1", "Rain.")),
        (
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "a"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        ),
        (APPROVAL, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}),
    ],
    ids=["function", "custom", "approval"],
)
async def test_a_call_is_compacted_together_with_its_result(store: Store, waiting: Any, answer: Any) -> None:
    client: Any = Provider()
    session = LoopstoreSession("s", store, compaction="openai", client=client)
    await session.add_items([*talk(12), user("Weather?"), waiting])
    await session.run_compaction()
    assert client.asked == []
    await session.add_items([answer])
    await session.run_compaction()
    assert client.asked[0]["input"][-2:] == [waiting, answer]
    assert await session.get_items() == client.output


async def test_a_run_counts_what_the_providers_compaction_used(store: Store) -> None:
    class Counting(Provider):
        async def compact(self, **asked: Any) -> Any:
            used = SimpleNamespace(
                input_tokens=100, output_tokens=20, total_tokens=120, input_tokens_details=None, output_tokens_details=None
            )
            return SimpleNamespace(output=self.output, usage=used)

    client: Any = Counting()
    session = LoopstoreSession(
        "s", store, compaction="openai", client=client, should_trigger_compaction=lambda context: True
    )
    done = await Runner.run(Agent(name="stand", model=Stand()), "Will it rain?", session=session)
    assert done.context_wrapper.usage.total_tokens == 120
    assert await session.get_items() == client.output


async def test_a_provider_that_fails_changes_nothing(store: Store) -> None:
    class Failing(Provider):
        async def compact(self, **asked: Any) -> Any:
            raise OSError("no network")

    session = LoopstoreSession("s", store, compaction="openai", client=Failing())  # type: ignore[arg-type]
    items = talk(12)
    await session.add_items(items)
    with pytest.raises(OSError, match="no network"):
        await session.run_compaction()
    assert await session.get_items() == items
    empty: Any = Provider()
    empty.output = []
    with pytest.raises(loopstore.InvalidInputError, match="nothing"):
        await LoopstoreSession("s", store, compaction="openai", client=empty).run_compaction()
    assert await session.get_items() == items


async def test_a_write_whose_task_is_cancelled_is_settled(session: LoopstoreSession) -> None:
    task = asyncio.create_task(session.add_items(talk(20)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await session.get_items()) in (0, 40)
