"""What the provider's own compaction is asked with, and what of its answer can be sent to it again."""

from __future__ import annotations

from typing import Any

from agents.usage import Usage

from loopstore._errors import InvalidInputError
from loopstore._store import Json

_CANDIDATES = 10

# Items that wait for another one, which names the same call.
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
    """Return the items that a compaction makes shorter: neither prompts nor compactions."""
    return [
        item
        for item in items
        if item.get("role") != "user" and item.get("type") != "compaction"
    ]


def has_many_candidates(context: dict[str, Any]) -> bool:
    """Whether a compaction is due where nobody else decides."""
    return len(context["compaction_candidate_items"]) >= _CANDIDATES


def is_open(items: list[Json]) -> bool:
    """Whether a call waits for its result: one that came behind a compaction would belong to nothing."""
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


def given(items: list[Json]) -> list[Json]:
    """Return items as the provider takes them: without what the SDK notes in them, or only answers hold."""
    return [
        {
            name: value
            for name, value in item.items()
            if name != "created_by" and not name.startswith("_agents_")
        }
        for item in items
    ]


def answered(output: list[Any]) -> list[Json]:
    """Return the items of an answer so that each can be sent again."""
    items: list[Json] = [
        item
        if isinstance(item, dict)
        else item.model_dump(exclude_unset=True, warnings=False)
        for item in output
    ]
    if not items:
        raise InvalidInputError("the provider's compaction holds nothing; nothing was changed")
    # An answer's id is of use only together with the reasoning that led to it.
    has_reasoning = any(item.get("type") == "reasoning" for item in items)
    return [_sendable(item, has_reasoning) for item in items]


def _sendable(item: Json, has_reasoning: bool) -> Json:
    if item.get("role") == "assistant" and not has_reasoning:
        return {name: value for name, value in item.items() if name != "id"}
    if item.get("role") == "user" and isinstance(item.get("content"), list):
        return {**item, "content": [_part(part) for part in item["content"]]}
    return item


def _part(part: Any) -> Any:
    """Leave out of a prompt's part what says nothing: the provider sends nulls, and takes none."""
    if not isinstance(part, dict) or part.get("type") not in _SOURCES:
        return part
    said = {name: value for name, value in part.items() if value is not None}
    if not any(said.get(name) for name in _SOURCES[part["type"]]):
        raise InvalidInputError(
            f"an {part['type']} of the provider's compaction is empty; nothing was changed"
        )
    return said


def usage(told: Any) -> Usage:
    """Return what a compaction used, for the run that it belongs to."""
    return Usage(
        requests=1,
        input_tokens=told.input_tokens or 0,
        output_tokens=told.output_tokens or 0,
        total_tokens=told.total_tokens or 0,
        input_tokens_details=told.input_tokens_details,
        output_tokens_details=told.output_tokens_details,
    )
