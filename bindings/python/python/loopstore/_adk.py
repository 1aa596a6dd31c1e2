"""Conversion of events of ADK to messages of loopstore."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

from google.adk.events import Event
from google.genai import types

from loopstore._json import encode

Json = dict[str, Any]

_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 48


def clean(text: str) -> str:
    """Replace characters that no text can contain."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def messages_of(event: Event) -> list[Json]:
    """Return the messages of an event: the prompt of a user, an answer with its calls, or results.

    They are for reading and searching; the event itself is stored with them. A compaction has no message.
    """
    content = event.content
    if content is None or event.actions.compaction is not None:
        return []
    messages = forms_of(content, event.id, event.author)
    if messages and messages[-1]["role"] == "assistant":
        _add_usage(messages[-1], event)
    if 0 <= event.timestamp < 2**40:
        for message in messages:
            message["timestamp"] = int(event.timestamp * 1000)
    return messages


def forms_of(content: types.Content, name: str, author: str) -> list[Json]:
    """Return the messages of a content; `name` is the beginning of ids for calls without one."""
    results: list[Json] = []
    blocks: list[Json] = []
    for number, part in enumerate(content.parts or []):
        if part.function_response is not None:
            results.append(_result(part.function_response))
        elif (block := _block(part, f"{name}-{number}")) is not None:
            blocks.append(block)
    messages = results
    is_user = content.role == "user" or (content.role is None and author == "user")
    if blocks:
        is_call = any(block["type"] == "toolCall" for block in blocks)
        if is_user and not is_call:
            messages.append({"role": "user", "content": blocks})
        else:
            form: Json = {"role": "assistant", "content": blocks}
            if is_call:
                form["stopReason"] = "toolUse"
            messages.append(form)
    return messages


def _add_usage(form: Json, event: Event) -> None:
    """Add the model of an answer, and its usage."""
    if event.model_version:
        form["model"] = clean(event.model_version)
    used = event.usage_metadata
    if used is not None and used.prompt_token_count is not None:
        cached = used.cached_content_token_count or 0
        output = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
        usage = {
            "input": used.prompt_token_count - cached,
            "output": output,
            "cache_read": cached,
            "total_tokens": used.total_token_count or used.prompt_token_count + output,
        }
        if all(0 <= count < 2**53 for count in usage.values()):
            form["usage"] = usage


def _block(part: types.Part, name: str) -> Json | None:
    if part.function_call is not None:
        call = part.function_call
        return {
            "type": "toolCall",
            "id": clean(call.id or name),
            "name": clean(call.name or ""),
            "arguments": _plain(call.args or {}),
        }
    if part.text is not None:
        if not part.text:
            return None
        if part.thought:
            return {"type": "thinking", "thinking": clean(part.text)}
        return _text(part.text)
    blob = part.inline_data
    if blob is not None and blob.data and (blob.mime_type or "").startswith("image/"):
        data = base64.b64encode(blob.data).decode()
        return {"type": "image", "data": data, "mimeType": clean(blob.mime_type or "")}
    if part.executable_code is not None:
        return _text(part.executable_code.code or "")
    if part.code_execution_result is not None:
        return _text(part.code_execution_result.output or "")
    if part.file_data is not None:
        return _text(f"[{part.file_data.mime_type}: {part.file_data.file_uri}]")
    if blob is not None:
        return _text(f"[{blob.mime_type}: {len(blob.data or b'')} bytes]")
    return None


def _result(answer: types.FunctionResponse) -> Json:
    response = answer.response or {}
    only = response.get("result", response.get("output", response.get("error")))
    text = only if isinstance(only, str) and len(response) == 1 else encode(_plain(response)).decode()
    return {
        "role": "toolResult",
        "toolCallId": clean(answer.id or f"adk-{answer.name}"),
        "toolName": clean(answer.name or ""),
        "content": [_text(text)],
        "isError": "error" in response,
    }


def _text(text: str) -> Json:
    return {"type": "text", "text": clean(text)}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; a value that JSON cannot represent, or not safely, is shown as text."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {clean(str(key)): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in value]
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return clean(str(value))
