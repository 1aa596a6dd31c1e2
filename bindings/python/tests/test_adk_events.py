"""Events of ADK that are read again are copies of the validated ones: equal, and independent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.genai import types

import loopstore
from loopstore._adk_events import Events
from loopstore.adk import LoopstoreSessionService

WHO: dict[str, str] = {"app_name": "weather", "user_id": "ada", "session_id": "s"}


def events() -> list[Event]:
    """Return events with all kinds of parts."""
    call = types.FunctionCall(id="c1", name="look", args={"at": [1, 2.5, None, {"x": "é"}]})
    response = types.FunctionResponse(id="c1", name="look", response={"saw": ["rain"]})
    return [
        Event(author="user", content=types.Content(role="user", parts=[types.Part(text="Rain?")])),
        Event(
            author="agent",
            content=types.Content(
                role="model",
                parts=[
                    types.Part(text="Hm.", thought=True, thought_signature=b"\x00\xff"),
                    types.Part(function_call=call),
                    types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG")),
                ],
            ),
            long_running_tool_ids={"c1"},
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=5),
            finish_reason=types.FinishReason.STOP,
        ),
        Event(author="agent", content=types.Content(parts=[types.Part(function_response=response)])),
        Event(author="agent", actions=EventActions(state_delta={"n": 1, "deep": {"a": [1]}}, escalate=True)),
        Event(author="agent", custom_metadata={"k": [{"v": 1}]}, error_code="E", partial=None),
    ]


def text_of(event: Event) -> str:
    """Return the text of an event."""
    return json.dumps(event.model_dump(mode="json", exclude_none=True), ensure_ascii=False)


def same(one: Any, other: Any) -> None:
    """Check that two events are equal in all that Python shows of them."""
    assert one == other and type(one) is type(other)
    assert one.model_fields_set == other.model_fields_set
    assert one.model_dump() == other.model_dump()
    assert one.model_dump_json(exclude_unset=True) == other.model_dump_json(exclude_unset=True)
    assert repr(one) == repr(other)


@pytest.mark.parametrize("event", events(), ids=range(len(events())))
def test_an_event_that_is_read_again_is_the_validated_one(event: Event) -> None:
    reader, text = Events(), text_of(event)
    validated = Event.model_validate(json.loads(text))
    for _ in range(3):
        same(reader.read(text), validated)


@pytest.mark.parametrize("event", events(), ids=range(len(events())))
def test_a_change_of_an_event_does_not_reach_the_next_one(event: Event) -> None:
    reader, text = Events(), text_of(event)
    validated = Event.model_validate(json.loads(text))
    for _ in range(3):
        read = reader.read(text)
        read.author = "changed"
        read.branch = "changed"
        read.actions.state_delta["more"] = 1
        read.actions.state_delta.setdefault("deep", {})["b"] = 2
        if read.custom_metadata:
            read.custom_metadata["k"][0]["v"] = 2
        if read.long_running_tool_ids:
            read.long_running_tool_ids.add("c2")
        for part in (read.content.parts or []) if read.content else []:
            part.text = "changed"
            if part.function_call and part.function_call.args:
                part.function_call.args["at"].append(3)
        if read.content and read.content.parts:
            read.content.parts.clear()
    same(reader.read(text), validated)


def test_what_is_remembered_is_bounded() -> None:
    reader = Events(most_bytes=20_000)
    for number in range(200):
        text = text_of(Event(author="user", content=types.Content(parts=[types.Part(text=f"{number} " + "x" * 900)])))
        assert reader.read(text) == reader.read(text)
        assert sum(map(len, reader._makers)) == reader._size <= 20_000
    large = text_of(Event(author="user", content=types.Content(parts=[types.Part(text="x" * 9_000)])))
    assert reader.read(large) == reader.read(large) and large not in reader._makers


def test_an_event_without_an_id_is_new_each_time() -> None:
    reader = Events()
    text = '{"author": "user", "timestamp": 5.0}'
    assert reader.read(text).id != reader.read(text).id


def test_what_is_no_event_is_an_error_each_time() -> None:
    reader = Events()
    for text in ("{", "[]", '{"author": 5}', "5"):
        for _ in range(2):
            with pytest.raises(loopstore.DamagedError, match="a stored event cannot be read"):
                reader.read(text)


async def test_sessions_that_are_read_again_are_independent(tmp_path: Path) -> None:
    with loopstore.Store.open(tmp_path / "a.db") as store:
        service = LoopstoreSessionService(store)
        session = await service.create_session(**WHO)
        given = events()
        for event in given:
            await service.append_event(session, event)
        read: list[Session] = []
        for _ in range(3):
            found = await service.get_session(**WHO)
            assert found is not None
            read.append(found)
        assert [event.id for event in read[0].events] == [event.id for event in given]
        assert read[0].events == read[1].events == read[2].events
        read[1].events[0].content = None
        assert read[0].events[0].content is not None and read[2].events[0].content is not None
        # The same id again is another session.
        await service.delete_session(**WHO)
        await service.create_session(**WHO)
        found = await service.get_session(**WHO)
        assert found is not None and found.events == []
