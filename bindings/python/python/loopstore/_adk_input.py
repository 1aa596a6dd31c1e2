"""The contents that an ADK model gets, read through the compactions of the session.

ADK makes the contents from the events, and adds instructions of its own. A content whose message the context shows
unchanged stays as it is, with all that only ADK and the provider know of it. One whose message the context replaced is
removed, and the summary or the shortened result takes its place. Contents that are no message of the session stay.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from google.genai import types

from loopstore._adk import forms_of

Json = dict[str, Any]

_OWN_ID = "adk-"
"""The beginning of ids that ADK makes for calls, and removes from requests."""


def compacted(
    contents: list[types.Content], shown: list[Json], originals: list[Json]
) -> list[types.Content]:
    """Return the contents of the request.

    Args:
        contents: The contents that ADK made.
        shown: The messages of the context.
        originals: All messages of the session.
    """
    groups = _grouped(shown)
    keys = [_key(group) for group in groups]
    known = {_key(group) for group in _grouped(originals)}
    given = [_content_keys(content) for content in contents]
    places = _places(keys, given, known)
    taken = {place for place in places if place is not None}
    # Contents that are no message of the session.
    foreign = [at for at, each in enumerate(given) if at not in taken and not (each and known.issuperset(each))]
    found: list[types.Content] = []
    done: set[int] = set()

    def add_foreign(until: int) -> None:
        while foreign and foreign[0] < until:
            found.append(contents[foreign.pop(0)])

    own = [at for at, each in enumerate(given) if each and known.issuperset(each)]
    add_foreign(own[0] if own else len(contents))
    for group, key, place in zip(groups, keys, places, strict=True):
        if place is not None:
            add_foreign(place)
            if place not in done:
                done.add(place)
                found.append(contents[place])
        elif key not in known:
            found.append(_content(group))
    add_foreign(len(contents))
    return found


def _places(keys: list[str], given: list[list[str]], known: set[str]) -> list[int | None]:
    """Return the content of each group; `None` if the context made the group, or ADK left the message out.

    Equal messages occur several times. Those before the first summary are the first ones, those after it the last
    ones.
    """
    places: list[int | None] = [None] * len(keys)
    made = next((at for at, key in enumerate(keys) if key not in known), len(keys))
    next_place, at = 0, 0
    while at < made:
        for place in range(next_place, len(given)):
            size = len(given[place])
            if size and keys[at : at + size] == given[place]:
                places[at : at + size] = [place] * size
                next_place, at = place + 1, at + size
                break
        else:
            at += 1
    last, at = len(given), len(keys)
    while at > made:
        for place in range(last - 1, next_place - 1, -1):
            size = len(given[place])
            if size and at - size >= made and keys[at - size : at] == given[place]:
                places[at - size : at] = [place] * size
                last, at = place, at - size
                break
        else:
            at -= 1
    return places


def _grouped(messages: Iterable[Json]) -> list[list[Json]]:
    """Return the messages, with the results of the calls of one answer together."""
    groups: list[list[Json]] = []
    for message in messages:
        is_result = message["role"] == "toolResult"
        if is_result and groups and groups[-1][0]["role"] == "toolResult":
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _content_keys(content: types.Content) -> list[str]:
    return [_key(group) for group in _grouped(forms_of(content, "", "user"))]


def _key(group: list[Json]) -> str:
    """Return what equal messages have in common: ADK removes its own ids of calls."""
    return json.dumps(
        [
            [
                message["role"],
                message.get("toolName"),
                [{**block, "id": None} for block in message.get("content") or []],
            ]
            for message in group
        ],
        sort_keys=True,
    )


def _content(group: list[Json]) -> types.Content:
    """Return a content for messages that a compaction made."""
    role = "model" if group[0]["role"] == "assistant" else "user"
    if group[0]["role"] == "toolResult":
        return types.Content(role=role, parts=[_response(message) for message in group])
    blocks = group[0].get("content") or []
    return types.Content(role=role, parts=[part for block in blocks if (part := _part(block))])


def _response(message: Json) -> types.Part:
    blocks = message.get("content") or []
    text = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
    name = "error" if message.get("isError") else "result"
    response = types.FunctionResponse(
        id=_call_id(message.get("toolCallId")), name=message.get("toolName"), response={name: text}
    )
    return types.Part(function_response=response)


def _part(block: Json) -> types.Part | None:
    kind = block.get("type")
    if kind == "text":
        return types.Part(text=block["text"])
    if kind == "thinking":
        return types.Part(text=block["thinking"], thought=True)
    if kind == "toolCall":
        call = types.FunctionCall(
            id=_call_id(block.get("id")), name=block["name"], args=block.get("arguments") or {}
        )
        return types.Part(function_call=call)
    if kind == "image":
        blob = types.Blob(data=base64.b64decode(block["data"]), mime_type=block["mimeType"])
        return types.Part(inline_data=blob)
    return None


def _call_id(id: str | None) -> str | None:
    return None if id is None or id.startswith(_OWN_ID) else id
