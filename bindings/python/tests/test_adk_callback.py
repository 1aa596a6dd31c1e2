"""The model of an ADK agent gets the compacted context, and the events stay whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.genai import types

import loopstore
from loopstore import Policy
from loopstore._adk_input import compacted
from loopstore.adk import LoopstoreSessionService

WHO: Any = {"app_name": "weather", "user_id": "ada", "session_id": "s"}


class Recorder(BaseLlm):
    """A model that records its requests, and calls a tool twice before it answers."""

    requests: list[list[types.Content]] = []  # noqa: RUF012
    calls: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append([content.model_copy(deep=True) for content in llm_request.contents])
        last = (llm_request.contents[-1].parts or [types.Part(text="")])[0]
        if self.calls and last.function_response is None:
            calls = [types.FunctionCall(name="gauge", args={"hour": hour}) for hour in (1, 2)]
            parts = [types.Part(function_call=call, thought_signature=b"signed") for call in calls]
        else:
            parts = [types.Part(text=f"Answer {len(self.requests)}: " + "rain, " * 150)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def gauge(hour: int) -> dict[str, Any]:
    """Read the gauge of an hour."""
    return {"result": "\n".join(f"line {line} of {hour}" for line in range(200))}


def words(content: types.Content) -> str:
    return "".join(part.text or "" for part in content.parts or [])


def check_pairs(contents: list[types.Content]) -> None:
    """Check that each content with calls is followed by one with their responses, and each response has its call."""
    open_calls: list[str] = []
    for content in contents:
        parts = content.parts or []
        calls = [str(part.function_call.name) for part in parts if part.function_call]
        responses = [str(part.function_response.name) for part in parts if part.function_response]
        assert responses == open_calls
        open_calls = calls


@pytest.mark.parametrize("calls", [False, True])
async def test_the_model_sees_the_compacted_context(tmp_path: Path, calls: bool) -> None:
    async with LoopstoreSessionService(tmp_path / "a.db") as service:
        model = Recorder(model="m", requests=[], calls=calls)
        callback = service.before_model_callback(policy=Policy(5_000, keep_first=1, keep_recent=4))
        agent = LlmAgent(
            name="a", model=model, tools=[gauge], instruction="Be brief.", before_model_callback=callback
        )
        runner = Runner(app_name="weather", agent=agent, session_service=service)
        turns = 24
        for turn in range(turns):
            asked = [f"Question {turn}?"]
            await runner.run_debug(asked, user_id="ada", session_id="s", quiet=True)
        session = await service.get_session(**WHO)
        assert session is not None
        log = service.session(**WHO)
        assert "committed" in [run["outcome"] for run in log.history()]
        texts = [words(event.content) for event in session.events if event.content and event.author == "user"]
        assert texts == [f"Question {turn}?" for turn in range(turns)]
        assert len(session.events) == turns * (4 if calls else 2)
        for contents in model.requests:
            check_pairs(contents)
            assert sum(len(content.model_dump_json(exclude_none=True)) for content in contents) < 5_000 * 6
        last = model.requests[-1]
        assert len(last) < len(session.events) / 2
        assert f"Question {turns - 1}?" in [words(content) for content in last]
        if calls:
            signed = [part for content in last for part in content.parts or [] if part.thought_signature]
            assert signed and last[-1].parts[0].function_response is not None  # type: ignore[index]
        # Without its compactions the session is what it was.
        with pytest.raises(loopstore.NotFoundError):
            while True:
                log.undo()
        assert len(log.context()["messages"]) == turns * (5 if calls else 2)


async def test_a_short_session_is_sent_as_it_is(tmp_path: Path) -> None:
    async with LoopstoreSessionService(tmp_path / "a.db") as service:
        given: list[list[list[types.Content]]] = []
        for callback in (None, service.before_model_callback()):
            model = Recorder(model="m", requests=[], calls=True)
            agent = LlmAgent(name="a", model=model, tools=[gauge], before_model_callback=callback)
            runner = Runner(app_name=f"weather{len(given)}", agent=agent, session_service=service)
            for turn in range(2):
                await runner.run_debug([f"Question {turn}?"], user_id="ada", session_id="s", quiet=True)
            given.append(model.requests)
        assert given[0] == given[1]


def text(role: str, words: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=words)])


def form(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": words}]}


def test_contents_that_are_no_message_stay_in_their_places() -> None:
    contents = [
        text("user", "an instruction"),
        text("user", "one"),
        text("model", "ok"),
        text("user", "for context: another agent said two"),
        text("user", "three"),
        text("model", "ok"),
        text("user", "a reminder"),
        text("user", "four"),
        text("user", "not stored yet"),
    ]
    originals = [form("user", "one"), form("assistant", "ok"), form("user", "three"), form("assistant", "ok"), form("user", "four")]
    shown = [form("user", "[Summary] one, ok, three"), form("assistant", "ok"), form("user", "four")]
    found = [words(content) for content in compacted(contents, shown, originals)]
    assert found == [
        "an instruction",
        "[Summary] one, ok, three",
        "for context: another agent said two",
        "ok",
        "a reminder",
        "four",
        "not stored yet",
    ]
    assert compacted(contents, originals, originals) == contents
    # Contents that ADK left out stay out.
    assert compacted(contents[:1], originals, originals) == contents[:1]
