"""Conversion of values to the JSON that the native part reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any, Literal, Protocol

from loopstore import _loopstore
from loopstore._errors import InvalidInputError

Form = Literal["loopstore", "openai", "responses", "anthropic"]
"""The form of messages: loopstore's own, or that of a provider's API."""

FORMS = ("loopstore", "openai", "responses", "anthropic")

Message = Mapping[str, Any]
"""A message as a dictionary."""

class Model(Protocol):
    """An object of a provider's SDK, or another model of pydantic."""

    def model_dump(self, *, mode: str = ..., warnings: bool = ...) -> dict[str, Any]:
        """Return the object as a dictionary."""


Messages = Message | Model | Iterable[Message | Model] | str | bytes
"""A message, several of them, or the JSON of either. A provider's form also takes whole answers, and the objects of
its SDK may stand for dictionaries everywhere in a message."""

HALF_PAIR = "half of a surrogate pair, replaced by U+FFFD"
"""The note on a text with a character that Unicode text cannot contain; an import has the same."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HAS_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_DEPTH = 200

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True
).encode


def _plain(value: Any) -> Any:
    """Return what JSON has for an object of Python; a model of pydantic is what its `model_dump` returns."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json", warnings=False)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is no JSON")


_encode_message = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    separators=(",", ":"),
    check_circular=True,
    default=_plain,
).encode


def encode(value: Any) -> bytes:
    """Write a value as JSON."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(_refusal(value, error)) from error


def encode_message(value: Any) -> tuple[bytes, bool]:
    """Write messages as JSON; the second value is true if a text had half of a surrogate pair.

    Objects of pydantic are written as their dictionaries, times as ISO 8601 text, and half of a surrogate pair as
    U+FFFD. NaN and infinite numbers are refused: JSON has none.
    """
    try:
        text = _encode_message(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(_refusal(value, error)) from error
    try:
        return text.encode(), False
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text).encode(), True


def _refusal(value: Any, error: Exception) -> str:
    """Return the text of an error, with the place of what cannot be written."""
    if isinstance(error, RecursionError) or "Circular" in str(error):
        return "this cannot be written as JSON: it contains itself, or nests too deep"
    found = _unwritable(value, "", 0)
    if found is None:
        return f"this cannot be written as JSON: {error}"
    place, what = found
    return f"{place or 'this'} cannot be written as JSON: {what}"


def _unwritable(value: Any, place: str, depth: int) -> tuple[str, str] | None:
    """Return the place and the description of the first part of a value that is no JSON."""
    if depth > _MAX_DEPTH or value is None or isinstance(value, (str, bool, int)):
        if isinstance(value, str) and _SURROGATE.search(value):
            return place, "it has half of a surrogate pair"
        return None
    if isinstance(value, float):
        is_number = math.isfinite(value)
        return None if is_number else (place, f"JSON has no {value}; write None, or a text")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                return place, f"the key {key!r} is no text"
            if found := _unwritable(inner, f"{place}.{key}" if place else str(key), depth + 1):
                return found
        return None
    if isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            if found := _unwritable(inner, f"{place}[{at}]", depth + 1):
                return found
        return None
    try:
        plain = _plain(value)
    except Exception as error:
        return place, str(error)
    return _unwritable(plain, place, depth + 1)


def messages(given: Messages) -> tuple[bytes, list[str]]:
    """Write messages as JSON, with notes on what was replaced; JSON is passed on unchanged otherwise."""
    if isinstance(given, (bytes, str)):
        is_halved = False
        if isinstance(given, bytes):
            text = given
        else:
            try:
                text = given.encode()
            except UnicodeEncodeError:
                text, is_halved = _SURROGATE.sub("\ufffd", given).encode(), True
        if _HAS_ESCAPE.search(text):
            whole = _ESCAPE.sub(lambda one: b"\\ufffd" if one[1] else one[0], text)
            is_halved, text = is_halved or whole != text, whole
        return text, [HALF_PAIR] if is_halved else []
    if isinstance(given, (dict, list)):
        value: Any = given
    elif isinstance(given, Mapping):
        value = dict(given)
    elif callable(getattr(given, "model_dump", None)):
        # A model of pydantic can be iterated over: its fields.
        value = _plain(given)
    elif isinstance(given, Iterable):
        value = list(given)
    else:
        raise TypeError(
            "`given` is a message, several, or their JSON: a dict, an object of an SDK, an iterable of these, a str or"
            f" bytes, not {type(given).__name__}"
        )
    if isinstance(value, list):
        for at, one in enumerate(value):
            if not isinstance(one, Mapping) and not callable(getattr(one, "model_dump", None)):
                raise TypeError(
                    f"`given[{at}]` is a message, as a dict or an object of an SDK, not {type(one).__name__}"
                )
    text, is_halved = encode_message(value)
    return text, [HALF_PAIR] if is_halved else []


decode = _loopstore.decode
"""Reads JSON, as `json.loads` does."""
