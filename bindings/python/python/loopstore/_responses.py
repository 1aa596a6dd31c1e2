"""The request for the provider's own compaction, and the items of its answer that can be sent again."""

from __future__ import annotations

from typing import Any

from agents.usage import Usage

from loopstore._errors import InvalidInputError
from loopstore._store import Json

_CANDIDATES = 10

# Items that wait for another one, which refers to the same call.
_RESULTS = {
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "function_call": "function_call_output",
    "local_shell_call": "local_shell_call_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
    "shell_call": "shell_call_output",
}
_NAMES = ("call_id", "approval_request_id", "id")
_SOURCES = {
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
}


def candidates(items: list[Json]) -> list[Json]:
    """Return the items that a compaction shortens: neither prompts nor compactions."""
    return [
        item
        for item in items
        if item.get("role") != "user" and item.get("type") != "compaction"
    ]


def has_many_candidates(context: dict[str, Any]) -> bool:
    """Return true if a compaction is due by default."""
    return len(context["compaction_candidate_items"]) >= _CANDIDATES


def is_open(items: list[Json]) -> bool:
    """Return true if a call waits for its result: a result after a compaction would have no call."""
    done = {
        (item["type"], item[name])
        for item in items
        for name in _NAMES
        if isinstance(item.get("type"), str) and isinstance(item.get(name), str)
    }
    return any(
        (result, item.get("call_id") or item.get("id")) not in done
        for item in items
        if (result := _RESULTS.get(str(item.get("type"))))
    )


def sendable(items: list[Json]) -> list[Json]:
    """Return items in the form that the provider accepts: without fields of the SDK, or of answers only."""
    return [
        {
            name: value
            for name, value in item.items()
            if name != "created_by" and not name.startswith("_agents_")
        }
        for item in items
    ]


def answered(output: list[Any]) -> list[Json]:
    """Return the items of an answer in a form that can be sent again."""
    items: list[Json] = [
        item
        if isinstance(item, dict)
        else item.model_dump(exclude_unset=True, warnings=False)
        for item in output
    ]
    if not items:
        raise InvalidInputError("the provider's compaction holds nothing; nothing was changed")
    # The id of an answer is valid only together with the reasoning before it.
    has_reasoning = any(item.get("type") == "reasoning" for item in items)
    return [_sendable(item, has_reasoning) for item in items]


def _sendable(item: Json, has_reasoning: bool) -> Json:
    if item.get("role") == "assistant" and not has_reasoning:
        return {name: value for name, value in item.items() if name != "id"}
    if item.get("role") == "user" and isinstance(item.get("content"), list):
        return {**item, "content": [_part(part) for part in item["content"]]}
    return item


def _part(part: Any) -> Any:
    """Remove empty fields from a part of a prompt: the provider sends nulls, and rejects them."""
    if not isinstance(part, dict) or part.get("type") not in _SOURCES:
        return part
    filled = {name: value for name, value in part.items() if value is not None}
    if not any(filled.get(name) for name in _SOURCES[part["type"]]):
        raise InvalidInputError(
            f"an {part['type']} of the provider's compaction is empty; nothing was changed"
        )
    return filled


def usage(reported: Any) -> Usage:
    """Return the usage of a compaction, for its run."""
    return Usage(
        requests=1,
        input_tokens=reported.input_tokens or 0,
        output_tokens=reported.output_tokens or 0,
        total_tokens=reported.total_tokens or 0,
        input_tokens_details=reported.input_tokens_details,
        output_tokens_details=reported.output_tokens_details,
    )
