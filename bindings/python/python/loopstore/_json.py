"""Conversion of values to the JSON that the native part reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from loopstore import _loopstore
from loopstore._errors import InvalidInputError

Form = Literal["loopstore", "openai", "responses", "anthropic"]
"""The form of messages: loopstore's own, or that of a provider's API."""

Message = Mapping[str, Any]
"""A message as a dictionary."""

Messages = Message | Iterable[Message] | str | bytes
"""A message, several of them, or the JSON of either. A provider's form also takes whole answers."""

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True
).encode


def encode(value: Any) -> bytes:
    """Write a value as JSON."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"this cannot be written as JSON: {error}") from error


def messages(given: Messages) -> bytes:
    """Write messages as JSON; JSON is passed on unchanged."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"the JSON is not Unicode text: {error}") from error
    if isinstance(given, (dict, list)):
        return encode(given)
    if isinstance(given, Mapping):
        return encode(dict(given))
    if isinstance(given, Iterable):
        return encode([dict(one) if isinstance(one, Mapping) else one for one in given])
    raise TypeError(
        f"messages are a dict, an iterable of dicts, or JSON as str or bytes, not {type(given).__name__}"
    )


decode = _loopstore.decode
"""Reads JSON, as `json.loads` does."""
