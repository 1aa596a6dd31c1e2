"""The session service for Google's ADK, compared with the one that ADK keeps in memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import loopstore
from loopstore.adk import LoopstoreSessionService

WHO: dict[str, str] = {"app_name": "weather", "user_id": "ada"}


@pytest.fixture(params=["loopstore", "adk"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseSessionService]:
    """Return the service under test, and ADK's own, which must behave the same."""
    if request.param == "adk":
        yield InMemorySessionService()
        return
    with loopstore.Store.open(tmp_path / "a.db") as store:
        yield LoopstoreSessionService(store)


@pytest.fixture
def ours(store: loopstore.Store) -> LoopstoreSessionService:
    """Return a service over an open store."""
    return LoopstoreSessionService(store)


def says(text: str, author: str = "user", **more: Any) -> Event:
    """Return an event with a text."""
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, content=content, **more)


def sets(**delta: Any) -> Event:
    """Return an event that changes the state; `app_x` is `app:x`."""
    known = ("app_", "user_", "temp_")
    named = {
        key.replace("_", ":", 1) if key.startswith(known) else key: value
        for key, value in delta.items()
    }
    return Event(author="agent", actions=EventActions(state_delta=named))


async def get(service: BaseSessionService, id: str = "s", **config: Any) -> Session:
    """Return a session that must exist."""
    given = GetSessionConfig(**config) if config else None
    found = await service.get_session(**WHO, session_id=id, config=given)
    assert found is not None
    return found


def texts(session: Session) -> list[str]:
    """Return the texts of the events of a session."""
    return texts_of(session.events)


def texts_of(events: list[Event]) -> list[str]:
    """Return the texts of events."""
    return [event.content.parts[0].text for event in events]  # type: ignore[union-attr,index,misc]


async def test_a_session_is_created_and_found(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s", state={"mood": "dry"})
    assert (made.id, made.app_name, made.user_id, made.events) == ("s", "weather", "ada", [])
    assert made.state == {"mood": "dry"} and made.last_update_time > 0
    assert await get(service) == made
    other = await service.create_session(**WHO)
    assert other.id and other.id != "s"


async def test_an_id_is_given_once(service: BaseSessionService) -> None:
    await service.create_session(**WHO, session_id="s", state={"user:tries": 1})
    with pytest.raises(AlreadyExistsError, match="s already exists"):
        await service.create_session(**WHO, session_id="s", state={"user:tries": 2})
    assert (await get(service)).state == {"user:tries": 1}


@pytest.mark.parametrize("id", ["", "  "])
async def test_an_empty_id_is_none(service: BaseSessionService, id: str) -> None:
    assert (await service.create_session(**WHO, session_id=id)).id.strip()


async def test_what_is_not_there_is_not_found(service: BaseSessionService) -> None:
    assert await service.get_session(**WHO, session_id="s") is None
    assert (await service.list_sessions(app_name="weather")).sessions == []
    assert (await service.list_sessions(**WHO)).sessions == []
    assert await service.get_user_state(**WHO) == {}
    await service.delete_session(**WHO, session_id="s")
    made = Session(id="s", **WHO)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(made, says("Hello?"))
    assert await service.get_session(**WHO, session_id="s") is None


async def test_state_has_three_scopes(service: BaseSessionService) -> None:
    state = {"app:unit": "°C", "user:home": "Rome", "temp:x": 1, "mood": "dry"}
    made = await service.create_session(**WHO, session_id="s", state=state)
    assert made.state == {key: value for key, value in state.items() if key != "temp:x"}
    await service.append_event(made, sets(app_unit="K", user_home="Oslo", mood="wet", temp_y=2))
    assert made.state["temp:y"] == 2
    same_user = await service.create_session(**WHO, session_id="t")
    assert same_user.state == {"app:unit": "K", "user:home": "Oslo"}
    other = await service.create_session(app_name="weather", user_id="bob", session_id="s")
    assert other.state == {"app:unit": "K"}
    other_app = await service.create_session(app_name="news", user_id="ada", session_id="s")
    assert other_app.state == {}
    assert (await get(service)).state == {"app:unit": "K", "user:home": "Oslo", "mood": "wet"}
    assert await service.get_user_state(**WHO) == {"home": "Oslo"}


async def test_temporary_state_is_not_stored(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    done = await service.append_event(made, sets(temp_x=1, kept=2))
    assert done.actions.state_delta == {"kept": 2} and made.state == {"temp:x": 1, "kept": 2}
    found = await get(service)
    assert found.state == {"kept": 2} and found.events[0].actions.state_delta == {"kept": 2}


async def test_state_that_changes_often_is_what_was_set_last(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s", state={"first": 0})
    for number in range(150):
        await service.append_event(made, sets(**{f"k{number % 7}": number, "user_n": number}))
        assert made.state["user:n"] == number
    assert (await get(service)).state == made.state
    assert await service.get_user_state(**WHO) == {"n": 149}


async def test_a_partial_event_is_not_stored(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    partial = says("It w", "agent", partial=True)
    assert await service.append_event(made, partial) is partial
    assert made.events == [] and (await get(service)).events == []


def every_event() -> list[Event]:
    """Return one event of each kind."""
    call = types.FunctionCall(id="c1", name="radar", args={"at": [1, {"ü": None}], "x": 0.1})
    answer = types.FunctionResponse(id="c1", name="radar", response={"result": "rain", "n": 2**70})
    blob = types.Blob(data=bytes(range(256)), mime_type="image/png")
    old = types.Content(role="model", parts=[types.Part(text="They spoke of rain.")])
    parts: list[tuple[str, str, list[types.Part]]] = [
        ("user", "user", [types.Part(text="Will it rain? 🌧 \u2028 \0"), types.Part(inline_data=blob)]),
        ("agent", "model", [types.Part(text="hm", thought=True, thought_signature=b"\xff\0")]),
        ("agent", "model", [types.Part(text="I look."), types.Part(function_call=call)]),
        ("agent", "user", [types.Part(function_response=answer)]),
        ("agent", "model", [types.Part(executable_code=types.ExecutableCode(code="1+1"))]),
        ("agent", "model", [types.Part(text="")]),
        ("agent", "model", []),
    ]
    made = [
        Event(author=author, invocation_id="i", content=types.Content(role=role, parts=said))
        for author, role, said in parts
    ]
    made[2].long_running_tool_ids = {"c1"}
    made[2].usage_metadata = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=10, candidates_token_count=5, total_token_count=15
    )
    compaction = EventCompaction(start_timestamp=1.5, end_timestamp=2.5, compacted_content=old)
    odd = {"none": None, "big": 2**80, "small": 5e-324, "deep": [{"a": [None]}], "": "", "\0": "\0"}
    made += [
        Event(author="user", actions=EventActions(compaction=compaction)),
        Event(author="agent", actions=EventActions(state_delta=odd, escalate=True)),
        Event(author="agent", branch="a.b", error_code="E", error_message="no", turn_complete=True),
        Event(author="agent", custom_metadata={"k": [1, 2.5]}, timestamp=1e9 + 1 / 3),
        Event(author="user", actions=EventActions(rewind_before_invocation_id="i")),
    ]
    return made


async def test_events_come_back_as_they_went_in(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    events = every_event()
    for event in events:
        assert await service.append_event(made, event) is event
    found = await get(service)
    assert found.events == events == made.events
    assert found.state == made.state
    assert found.last_update_time == made.last_update_time == events[-1].timestamp


async def test_recent_events_and_those_after_a_time(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    for number in range(300):
        await service.append_event(made, says(f"{number}", timestamp=1000.0 + number))
    say = [f"{number}" for number in range(300)]
    assert texts(await get(service)) == say
    assert texts(await get(service, num_recent_events=3)) == say[-3:]
    assert texts(await get(service, num_recent_events=1000)) == say
    none = await get(service, num_recent_events=0)
    assert none.events == [] and none.last_update_time == 1299.0
    assert texts(await get(service, after_timestamp=1290.0)) == say[290:]
    assert texts(await get(service, after_timestamp=1010.5)) == say[11:]
    assert texts(await get(service, after_timestamp=0.0)) == say
    assert texts(await get(service, after_timestamp=5000.0)) == []
    assert texts(await get(service, after_timestamp=1290.0, num_recent_events=2)) == say[-2:]
    assert texts(await get(service, after_timestamp=1298.0, num_recent_events=9)) == say[-2:]
    with pytest.raises(ValueError, match="num_recent_events"):
        GetSessionConfig(num_recent_events=-1)


async def test_events_after_a_time_need_not_stand_in_its_order(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    for number, at in enumerate([5.0, *range(100, 400), 1.0, 4.0, 2.0, 350.0]):
        await ours.append_event(made, says(f"{number}", timestamp=at))
    assert texts(await get(ours, after_timestamp=398)) == ["299", "300"]
    assert texts(await get(ours, after_timestamp=350))[-2:] == ["300", "304"]
    found = texts(await get(ours, after_timestamp=4))
    assert found == [f"{number}" for number in range(305) if number not in (301, 303)]
    assert texts(await get(ours, after_timestamp=4, num_recent_events=3)) == ["300", "302", "304"]


async def test_sessions_are_listed_by_user_and_app(service: BaseSessionService) -> None:
    for app, user, id in [("weather", "ada", "b"), ("weather", "ada", "a"), ("weather", "bob", "c"),
                          ("news", "ada", "d"), ("weather2", "ada", "e")]:  # fmt: skip
        made = await service.create_session(
            app_name=app, user_id=user, session_id=id, state={"id": id, "user:of": user}
        )
        await service.append_event(made, says("Hello", timestamp=5000.0 - ord(id)))
    listed = (await service.list_sessions(**WHO)).sessions
    assert [one.id for one in listed] == ["b", "a"] and all(one.events == [] for one in listed)
    assert listed[0].state == {"id": "b", "user:of": "ada"}
    listed = (await service.list_sessions(app_name="weather")).sessions
    assert [one.id for one in listed] == ["c", "b", "a"]
    assert listed[0].state["user:of"] == "bob" and listed[0].last_update_time == 5000.0 - 99


async def test_a_deleted_id_may_be_used_again(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s", state={"a": 1, "user:u": 1})
    await service.append_event(made, says("Forget this."))
    await service.delete_session(**WHO, session_id="s")
    assert await service.get_session(**WHO, session_id="s") is None
    assert (await service.list_sessions(**WHO)).sessions == []
    with pytest.raises(SessionNotFoundError):
        await service.append_event(made, says("Are you there?"))
    again = await service.create_session(**WHO, session_id="s")
    assert again.events == [] and again.state == {"user:u": 1}
    await service.append_event(again, says("Anew."))
    assert texts(await get(service)) == ["Anew."]


ODD = ["a/b", "a", "b/a", "a%2Fb", "../a", "ü 🌧", "'; --", "a\nb", "x" * 400, "x" * 401, "ü" * 300, "~", "="]


async def test_ids_do_not_clash(service: BaseSessionService) -> None:
    ids = [(one, other, one) for one in ODD for other in ("a", "a/b", "ü" * 300)]
    for app, user, id in ids:
        state = {"me": [app, user, id]}
        await service.create_session(app_name=app, user_id=user, session_id=id, state=state)
    for app, user, id in ids:
        found = await service.get_session(app_name=app, user_id=user, session_id=id)
        assert found is not None and found.state == {"me": [app, user, id]} and found.id == id
        listed = (await service.list_sessions(app_name=app, user_id=user)).sessions
        assert [one.id for one in listed] == [id]
    assert len((await service.list_sessions(app_name="a/b")).sessions) == 3


async def test_the_same_event_is_stored_once(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    event = sets(user_n=1, n=1)
    await service.append_event(made, event)
    await service.append_event(made, event)
    await service.append_event(made, event.model_copy(deep=True))
    assert len(made.events) == 1 and (await get(service)).events == [event]
    other = says("Another with its id", id=event.id)
    await service.append_event(made, other)
    assert (await get(service)).events == [event, other]


async def test_branches_may_append_to_one_object(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s")
    events = [says(f"{number}", "agent") for number in range(20)]
    await asyncio.gather(*(service.append_event(made, event) for event in events))
    assert sorted(texts(made)) == sorted(texts(await get(service))) == sorted(texts_of(events))
    await service.append_event(made, says("Last"))
    assert texts(await get(service))[-1] == "Last"


async def test_what_is_got_is_a_copy(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s", state={"list": [1]})
    made.state["list"].append(2)
    made.state["more"] = 1
    assert (await get(service)).state == {"list": [1]}


# Behaviour that only a persistent store has.


async def test_events_are_messages(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    for event in every_event():
        await ours.append_event(made, event)
    session = ours.session(**WHO, session_id="s")
    messages = session.context()["messages"]
    roles = [one["role"] for one in messages if one["role"] != "extension"]
    assert roles == ["user", "assistant", "assistant", "toolResult", "assistant"]
    assert session.search("radar", tool="radar")["hits"] or session.search("rain")["hits"]
    assert session.search("Will it rain", role="user")["hits"]
    answer = next(one for one in messages if one.get("stopReason") == "toolUse")
    assert answer["content"][1]["arguments"] == {"at": [1, {"ü": None}], "x": 0.1}
    assert answer["usage"]["input"] == 10 and answer["usage"]["output"] == 5
    assert ours.store.verify()["ok"]


async def test_a_call_without_an_id_is_kept(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    for number in range(2):
        part = types.Part(function_call=types.FunctionCall(name="radar", args={"n": number}))
        await ours.append_event(made, Event(author="a", content=types.Content(role="model", parts=[part])))
        part = types.Part(function_response=types.FunctionResponse(name="radar", response={"error": "x"}))
        await ours.append_event(made, Event(author="a", content=types.Content(role="user", parts=[part])))
    assert (await get(ours)).events == made.events


async def test_a_stale_session_object_is_refused(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    stale = await get(ours)
    await ours.append_event(made, says("First"))
    with pytest.raises(StaleSessionError, match="reload"):
        await ours.append_event(stale, sets(n=1, user_n=1))
    assert stale.events == [] and "n" not in stale.state
    assert await ours.get_user_state(**WHO) == {}
    unmarked = Session(id="s", **WHO)
    with pytest.raises(StaleSessionError):
        await ours.append_event(unmarked, says("Second"))
    fresh = await get(ours)
    await ours.append_event(fresh, says("Second"))
    seen = Session(id="s", **WHO, events=fresh.events)
    await ours.append_event(seen, says("Third"))
    assert texts(await get(ours)) == ["First", "Second", "Third"]


async def test_of_two_copies_one_is_stale(ours: LoopstoreSessionService) -> None:
    await ours.create_session(**WHO, session_id="s")
    for number in range(5):
        now = await get(ours)
        copies = [now.model_copy(deep=True) for _ in range(2)]
        tries = [ours.append_event(copy, sets(**{f"n{number}": 1})) for copy in copies]
        done = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(one, StaleSessionError) for one in done) == 1
    found = await get(ours)
    assert len(found.events) == len(found.state) == 5
    # An object without a marker is known by its newest event.
    found._storage_update_marker = None
    found.last_update_time -= 0.001
    await ours.append_event(found, says("Known"))


async def test_a_stale_session_object_may_be_merged(store: loopstore.Store) -> None:
    service = LoopstoreSessionService(store, on_stale="merge")
    made = await service.create_session(**WHO, session_id="s")
    stale = await get(service)
    await service.append_event(made, sets(a=1, b=1))
    await service.append_event(stale, sets(b=2))
    found = await get(service)
    assert found.state == {"a": 1, "b": 2} and len(found.events) == 2


async def test_delete_hides_or_erases(store: loopstore.Store) -> None:
    for on_delete in ("hide", "erase"):
        service = LoopstoreSessionService(store, on_delete=on_delete)  # type: ignore[arg-type]
        made = await service.create_session(**WHO, session_id=on_delete)
        await service.append_event(made, says(f"The word is {on_delete}word."))
        await service.delete_session(**WHO, session_id=on_delete)
        rows = store.sql(f"SELECT * FROM v_messages WHERE text LIKE '%{on_delete}word%'")
        assert bool(rows) == (on_delete == "hide")
        again = await service.create_session(**WHO, session_id=on_delete)
        await service.append_event(again, says("Anew."))
        assert texts(await get(service, on_delete)) == ["Anew."]


async def test_a_compaction_of_loopstore_changes_no_event(tmp_path: Path) -> None:
    policy = loopstore.Policy(2_000, keep_recent=2)
    with loopstore.Store.open(tmp_path / "a.db", policy=policy) as store:
        service = LoopstoreSessionService(store)
        made = await service.create_session(**WHO, session_id="s")
        session = service.session(**WHO, session_id="s")

        async def compact() -> list[str]:
            return [
                (await asyncio.to_thread(session.compact, force=True))["outcome"] for _ in range(8)
            ]

        async def append() -> None:
            for number in range(40):
                author = "user" if number % 4 == 0 else "agent"
                await service.append_event(made, says(f"{number}: " + "rain, " * 100, author))

        await append()
        outcomes, _ = await asyncio.gather(compact(), append())
        assert "committed" in outcomes
        assert (await get(service)).events == made.events and len(made.events) == 80
        assert store.verify()["ok"]
        shown = store.session(session.id).context()
        assert shown["tokens"] < 80 * 100


async def test_what_cannot_be_kept_is_refused(ours: LoopstoreSessionService) -> None:
    for wrong in ({"app_name": 1}, {"user_id": None}, {"session_id": 7}, {"user_id": "\ud800"}):
        with pytest.raises(loopstore.InvalidInputError):
            await ours.create_session(**{**WHO, "session_id": "s", **wrong})  # type: ignore[arg-type]
    with pytest.raises(loopstore.InvalidInputError, match="on_delete"):
        LoopstoreSessionService(on_delete="keep")  # type: ignore[arg-type]
    with pytest.raises(loopstore.InvalidInputError, match="on_stale"):
        LoopstoreSessionService(on_stale="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        LoopstoreSessionService(17)  # type: ignore[arg-type]
    assert (await ours.list_sessions(app_name="weather")).sessions == []


def nested(depth: int) -> dict[str, Any]:
    """Return a dictionary that contains a nested one."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": [value]}
    return value


async def test_odd_content_is_kept_all_the_same(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    call, answer = types.FunctionCall, types.FunctionResponse
    for role, part in [
        ("user", types.Part(text="half a pair: \ud83c")),
        ("model", types.Part(function_call=call(id="\0", name="\0", args={"\0": 1}))),
        ("model", types.Part(function_call=call(id="", name="", args={}))),
        ("model", types.Part(function_call=call(id="c", name="n" * 5000, args=nested(60)))),
        ("model", types.Part(function_call=call(id="c", name="again", args={"n": 2**80}))),
        ("user", types.Part(function_response=answer(id="c", name="n", response=nested(60)))),
        ("user", types.Part(function_response=answer(id="of none", name="n", response={}))),
        ("user", types.Part(inline_data=types.Blob(data=b"", mime_type="image/png"))),
        ("user", types.Part(inline_data=types.Blob(data=b"abc", mime_type="audio/wav"))),
        ("user", types.Part(file_data=types.FileData(file_uri="gs://a", mime_type="video/mp4"))),
        (None, types.Part(text="of nobody")),
        ("model", types.Part(text="x" * 1_000_000)),
    ]:
        event = Event(author="agent", timestamp=-5.0, content=types.Content(role=role, parts=[part]))
        event.actions.state_delta = {"deep": nested(60), "half": "\ud83c"}
        await ours.append_event(made, event)
        assert (await get(ours, num_recent_events=1)).events == [event]
    assert (await get(ours)).state == made.state
    assert ours.session(**WHO, session_id="s").context(format="openai")
    assert ours.store.verify()["ok"]


async def test_an_event_that_is_no_json_is_refused(ours: LoopstoreSessionService) -> None:
    made = await ours.create_session(**WHO, session_id="s")
    for wrong in (sets(deep=nested(3000)), says("when?", timestamp=float("nan"))):
        with pytest.raises(loopstore.InvalidInputError):
            await ours.append_event(made, wrong)
    assert made.events == [] and (await get(ours)).events == []
    await ours.append_event(made, says("Now."))


async def test_a_closed_service_says_so() -> None:
    async with LoopstoreSessionService() as service:
        await service.create_session(**WHO, session_id="s")
    with pytest.raises(loopstore.ClosedError):
        await service.get_session(**WHO, session_id="s")


async def test_a_service_does_not_go_through_a_fork(ours: LoopstoreSessionService) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ours.get_session(**WHO, session_id="s").send(None)
        except loopstore.ForkedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_one_of_many_creates_a_session(ours: LoopstoreSessionService) -> None:
    tries = [ours.create_session(**WHO, session_id="s") for _ in range(20)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, Session) for one in done) == 1
    assert sum(isinstance(one, AlreadyExistsError) for one in done) == 19


async def append_some(service: LoopstoreSessionService, name: str, count: int) -> None:
    """Append as programs do that share a session: a program with a stale session gets it again."""
    for number in range(count):
        author = "user" if number % 2 else "agent"
        event = says(f"{name}-{number}", author)
        event.actions.state_delta = {f"user:{name}": number, name: number}
        while True:
            try:
                await service.append_event(await get(service, num_recent_events=1), event)
                break
            except (StaleSessionError, loopstore.BusyError):
                continue


def append_in_threads(path: str, name: str, count: int, on_stale: str) -> None:
    """Append from eight threads, each with its own event loop."""
    import threading

    with loopstore.Store.open(path) as store:
        service = LoopstoreSessionService(store, on_stale=on_stale)  # type: ignore[arg-type]
        threads = [
            threading.Thread(target=lambda n=n: asyncio.run(append_some(service, f"{name}{n}", count)))  # type: ignore[misc]
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("on_stale", ["refuse", "merge"])
async def test_four_processes_of_eight_threads_lose_nothing(tmp_path: Path, on_stale: str) -> None:
    path, spawn = str(tmp_path / "a.db"), multiprocessing.get_context("spawn")
    count = 2 if on_stale == "refuse" else 4
    with loopstore.Store.open(path) as store:
        service = LoopstoreSessionService(store)
        await service.create_session(**WHO, session_id="s")
        names = [f"p{n}-" for n in range(4)]
        writers = [
            spawn.Process(target=append_in_threads, args=(path, name, count, on_stale)) for name in names
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            await asyncio.to_thread(writer.join)
        assert [writer.exitcode for writer in writers] == [0] * 4
        found = await get(service)
        said = texts(found)
        assert len(said) == len(set(said)) == 32 * count
        for name in (f"{name}{n}" for name in names for n in range(8)):
            assert [one for one in said if one.startswith(f"{name}-")] == [
                f"{name}-{number}" for number in range(count)
            ]
            assert found.state[name] == found.state[f"user:{name}"] == count - 1
        assert store.verify()["ok"]


async def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    code = """
        import asyncio, sys
        from test_adk import WHO, get, says
        from loopstore.adk import LoopstoreSessionService

        async def main():
            service = LoopstoreSessionService(sys.argv[1])
            session = await get(service)
            for number in range(len(session.events), 10**6):
                event = says(str(number), "agent")
                event.actions.state_delta = {"n": number, "user:n": number, "app:n": number}
                await service.append_event(session, event)
                print(number, flush=True)

        asyncio.run(main())
    """
    path = str(tmp_path / "a.db")
    async with LoopstoreSessionService(path) as service:
        await service.create_session(**WHO, session_id="s")
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    for kill in range(3):
        command = [sys.executable, "-c", textwrap.dedent(code), path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=there) as writer:
            assert writer.stdout is not None
            for _ in range(3 + kill):
                last = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            last = max([last, *map(int, writer.stdout.read().split())])
        async with LoopstoreSessionService(path) as service:
            found = await get(service)
            said = texts(found)
            assert said == [str(number) for number in range(len(said))]
            assert last + 1 <= len(said) <= last + 2
            # An event that exists has changed all states.
            for key in ("n", "user:n", "app:n"):
                assert len(said) - 1 <= found.state[key] <= len(said)
            assert service.store.verify()["ok"]
