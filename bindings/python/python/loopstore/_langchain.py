"""Conversion of LangChain's messages to loopstore's, and back without loss.

A message is stored so that it is searched, counted and shown as any other: its text, calls and results are in
the fields of loopstore's messages. Its other fields are in the field `langgraph`: the id, and fields with other
values than the default. A message that JSON cannot represent is also stored in LangGraph's own encoding.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any, Protocol

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

from loopstore._errors import DamagedError

Json = dict[str, Any]

MARK = "langgraph"
"""The field of a message, or of a block, that holds what only LangChain knows."""

_MAX_DEPTH = 48


class Serde(Protocol):
    """A serializer of any value to bytes."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value."""


_CLASSES: dict[str, type[BaseMessage]] = {
    kind.__name__: kind
    for kind in (
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        HumanMessageChunk,
        RemoveMessage,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
        ToolMessageChunk,
    )
}
_DEFAULT_CLASS = {
    "user": "HumanMessage",
    "assistant": "AIMessage",
    "toolResult": "ToolMessage",
    "extension": "SystemMessage",
}
_DEFAULTS: Json = {
    "additional_kwargs": {},
    "response_metadata": {},
    "name": None,
    "id": None,
    "tool_calls": [],
    "invalid_tool_calls": [],
    "usage_metadata": None,
    "artifact": None,
    "status": "success",
}
_STOP_REASONS = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "STOP": "stop",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "function_call": "toolUse",
}
_HOLDERS = frozenset((dict, list))
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/]+={0,2})\Z")
_SURROGATES = re.compile("[\ud800-\udfff]")


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return true if JSON represents a value exactly."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _SURROGATES.search(value) is None
    if kind is bool or kind is int or value is None:
        return True
    if kind is float:
        return math.isfinite(value)
    if depth >= _MAX_DEPTH:
        return False
    # Loops: a generator for each level takes twice as long.
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str or not is_plain(key):
                return False
            if inner is not None and not is_plain(inner, depth + 1):
                return False
        return True
    if kind is list:
        for inner in value:  # noqa: SIM110
            if not is_plain(inner, depth + 1):
                return False
        return True
    return False


def is_class(kind: type) -> bool:
    """Return true for LangChain's own classes of messages, whose fields are all there is to them."""
    return _CLASSES.get(kind.__name__) is kind


def clean(text: str) -> str:
    """Replace characters that no text can contain."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def snapshot(value: Any) -> Any:
    """Copy lists and dictionaries, so that later changes of them are detected."""
    kind = type(value)
    if kind is dict:
        return {
            key: snapshot(inner) if type(inner) in _HOLDERS else inner
            for key, inner in value.items()
        }
    if kind is list:
        return [snapshot(inner) if type(inner) in _HOLDERS else inner for inner in value]
    return value


def write(message: BaseMessage, serde: Serde) -> Json:
    """Write a message in loopstore's form."""
    fields: Json = message.model_dump()
    is_known = _CLASSES.get(type(message).__name__) is type(message) and is_plain(fields)
    kept: Json = {}
    if not is_known:
        kind, data = serde.dumps_typed(message)
        kept["raw"] = [kind, base64.b64encode(data).decode()]
    if isinstance(message, (SystemMessage, ChatMessage, RemoveMessage)):
        form = _system(message, fields, kept, is_known)
    elif isinstance(message, AIMessage):
        form = _assistant(message, fields, kept, is_known)
    elif isinstance(message, (ToolMessage, FunctionMessage)):
        form = _result(message, fields, kept, is_known)
    else:
        form = {"role": "user", "content": _content(message.content, kept, is_known)}
    if is_known:
        name = type(message).__name__
        if name != _DEFAULT_CLASS[form["role"]]:
            kept["class"] = name
        if (own := fields.pop("id", None)) is not None:
            kept["id"] = own
        fields.pop("content", None)
        fields.pop("type", None)
        rest = {
            key: value
            for key, value in fields.items()
            if key not in _DEFAULTS or type(value) is not type(_DEFAULTS[key]) or value != _DEFAULTS[key]
        }
        if rest:
            kept["fields"] = rest
    if form["role"] == "extension":
        form["data"][MARK] = kept
    else:
        form[MARK] = kept
    return form


def read(form: Json, serde: Serde) -> BaseMessage:
    """Read a message that `write` wrote."""
    try:
        if form.get("kind") == "langgraph.message":
            form = form["data"]
        role: str = form["role"]
        source: Json = form["data"] if role == "extension" else form
        kept: Json = source[MARK]
        if "raw" in kept:
            kind, data = kept["raw"]
            message: BaseMessage = serde.loads_typed((kind, base64.b64decode(data)))
            return message
        made = _CLASSES[kept.get("class", _DEFAULT_CLASS[role])]
        fields: Json = kept.get("fields", {})
        blocks = source.get("content", [])
        if role == "assistant":
            calls = [_call(block) for block in blocks if block["type"] == "toolCall"]
            if calls and "tool_calls" not in fields:
                fields["tool_calls"] = calls
            usage = form.get("usage")
            if kept.get("usage") and usage is not None:
                fields["usage_metadata"] = {
                    "input_tokens": usage["input"],
                    "output_tokens": usage["output"],
                    "total_tokens": usage["total_tokens"],
                }
        elif role == "toolResult":
            if made is ToolMessage or made is ToolMessageChunk:
                fields["tool_call_id"] = form["toolCallId"]
                if form.get("isError"):
                    fields.setdefault("status", "error")
            if form.get("toolName"):
                fields.setdefault("name", form["toolName"])
        content = _uncontent(blocks, kept)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"a stored message cannot be read: {error!r}") from error
    if made is RemoveMessage:
        return RemoveMessage(id=kept.get("id", ""), **fields)
    return made(content=content, id=kept.get("id"), **fields)


def _system(message: BaseMessage, fields: Json, kept: Json, is_known: bool) -> Json:
    data: Json = {"content": _content(message.content, kept, is_known)}
    return {"role": "extension", "kind": "system", "data": data}


def _assistant(message: AIMessage, fields: Json, kept: Json, is_known: bool) -> Json:
    calls = list(message.tool_calls)
    blocks = _content(message.content, kept, is_known, calls)
    shown = [_call_block(call) for call in calls]
    blocks += [block for block in shown if block is not None]
    form: Json = {"role": "assistant", "content": blocks}
    metadata = message.response_metadata if isinstance(message.response_metadata, dict) else {}
    for name, keys in (("model", ("model_name", "model")), ("provider", ("model_provider",))):
        if text := next((metadata[key] for key in keys if isinstance(metadata.get(key), str)), None):
            form[name] = clean(text)
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    if isinstance(reason, str):
        form["stopReason"] = _STOP_REASONS.get(reason, clean(reason))
    elif message.tool_calls:
        form["stopReason"] = "toolUse"
    usage = message.usage_metadata
    if usage is not None:
        _usage(dict(usage), form, kept, fields)
    if is_known:
        again = [_call(block) for block in blocks if block["type"] == "toolCall"]
        # Otherwise the order differs, or a call does not have the usual form.
        if again == fields.get("tool_calls"):
            fields.pop("tool_calls", None)
    return form


def _usage(usage: Json, form: Json, kept: Json, fields: Json) -> None:
    names = ("input_tokens", "output_tokens", "total_tokens")
    counts = [usage.get(name) for name in names]
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        return
    counted: Json = {"input": counts[0], "output": counts[1], "total_tokens": counts[2]}
    if set(usage) == set(names):
        kept["usage"] = 1
        fields.pop("usage_metadata", None)
    details = usage.get("input_token_details")
    if isinstance(details, dict):
        for name, key in (("cache_read", "cache_read"), ("cache_write", "cache_creation")):
            count = details.get(key)
            if type(count) is int and 0 <= count <= counted["input"]:
                counted[name] = count
                # loopstore counts only tokens that were not in the cache.
                counted["input"] -= count
    form["usage"] = counted


def _result(
    message: ToolMessage | FunctionMessage, fields: Json, kept: Json, is_known: bool
) -> Json:
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
    form: Json = {
        "role": "toolResult",
        "toolCallId": clean(call_id),
        "content": _content(message.content, kept, is_known),
    }
    if message.name:
        form["toolName"] = clean(message.name)
        fields.pop("name", None)
    if isinstance(message, ToolMessage):
        fields.pop("tool_call_id", None)
        if message.status == "error":
            form["isError"] = True
            fields.pop("status", None)
    return form


def _call_block(call: Any) -> Json | None:
    """Return the block of a call; `None` if it has no id, or arguments that cannot be shown."""
    call_id, name, args = call.get("id"), call.get("name"), call.get("args")
    if not (isinstance(call_id, str) and isinstance(name, str) and is_plain(args)):
        return None
    return {"type": "toolCall", "id": clean(call_id), "name": clean(name), "arguments": args}


def _call(block: Json) -> Json:
    return {
        "name": block["name"],
        "args": block["arguments"],
        "id": block["id"],
        "type": "tool_call",
    }


def _content(
    content: Any, kept: Json, is_known: bool, calls: list[Any] | None = None
) -> list[Json]:
    """Write the content of a message as blocks; removes the calls that are among them from `calls`."""
    if isinstance(content, str):
        return [{"type": "text", "text": clean(content)}] if content else []
    blocks: list[Json] = []
    if is_known:
        kept["list"] = 1
    for item in content:
        if not is_known:
            text = item if isinstance(item, str) else item.get("text") if isinstance(item, dict) else None
            if isinstance(text, str):
                blocks.append({"type": "text", "text": clean(text)})
        elif isinstance(item, str):
            blocks.append({"type": "text", "text": item, MARK: "text"})
        else:
            blocks.append(_block(item, calls))
    return blocks


def _block(item: Json, calls: list[Any] | None) -> Json:
    kind = item.get("type")
    if MARK in item:
        return {"type": MARK, "item": item}
    if kind == "text" and isinstance(item.get("text"), str):
        return item
    if kind == "thinking" and isinstance(item.get("thinking"), str):
        if isinstance(item.get("signature", ""), str):
            return item
    if kind == "image_url" and isinstance(url := item.get("image_url"), dict):
        found = _DATA_URL.match(url["url"]) if isinstance(url.get("url"), str) else None
        if found and len(found[2]) % 4 == 0:
            rest = {key: value for key, value in item.items() if key not in ("type", "image_url")}
            inner = {key: value for key, value in url.items() if key != "url"}
            return {
                "type": "image",
                "data": found[2],
                "mimeType": found[1],
                MARK: [rest, inner],
            }
    if kind == "tool_use" and calls is not None and set(item) >= {"id", "name", "input"}:
        for call in calls:
            shown = _call_block(call)
            if shown and (shown["id"], shown["name"]) == (item["id"], item["name"]):
                if json.dumps(shown["arguments"]) != json.dumps(item["input"]):
                    break
                calls.remove(call)
                rest = {
                    key: value
                    for key, value in item.items()
                    if key not in ("type", "id", "name", "input")
                }
                return {**shown, MARK: rest}
    # loopstore has its own fields in blocks of these types.
    if kind in ("text", "image", "thinking", "toolCall", "sealed", MARK) or not isinstance(kind, str):
        return {"type": MARK, "item": item}
    return item


def _uncontent(blocks: list[Json], kept: Json) -> str | list[str | Json]:
    if not kept.get("list"):
        text: str = next((block["text"] for block in blocks if block["type"] == "text"), "")
        return text
    content: list[str | Json] = []
    for block in blocks:
        kind, mark = block["type"], block.get(MARK)
        if kind == "toolCall":
            if mark is not None:
                content.append(
                    {
                        "type": "tool_use",
                        "id": block["id"],
                        "name": block["name"],
                        "input": block["arguments"],
                        **mark,
                    }
                )
        elif kind == "text" and mark is not None:
            content.append(block["text"])
        elif kind == "image":
            url = f"data:{block['mimeType']};base64,{block['data']}"
            rest: Json
            inner: Json
            rest, inner = mark or [{}, {}]
            content.append({"type": "image_url", "image_url": {"url": url, **inner}, **rest})
        elif kind == MARK:
            content.append(block["item"])
        else:
            content.append(block)
    return content
