"""Events of ADK from their stored texts.

A runner reads the whole session before each turn, and validation takes most of that time: the validators of ADK's
models are Python. A text always makes the same event, so an event that was validated before is copied. A copy takes less
than half of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from threading import Lock
from typing import Any

from google.adk.events import Event
from pydantic import BaseModel

from loopstore._adk_state import loads
from loopstore._errors import DamagedError

_ATOMS = (str, int, float, bool, bytes, type(None))
_set = object.__setattr__

Maker = Callable[[], Any]
"""Makes a new object, which shares nothing that can be changed with an earlier one."""


class _SharedError(Exception):
    """A value has parts that cannot be copied."""


class Events:
    """Reads events, and remembers those that it read last."""

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        """Remember events of at most about this number of characters."""
        self._most = most_bytes
        self._size = 0
        self._makers: dict[str, Maker] = {}
        self._lock = Lock()

    def read(self, text: str) -> Event:
        """Return the event of a text, as a new object."""
        maker = self._makers.get(text)
        if maker is not None:
            made: Event = maker()
            return made
        try:
            form = loads(text)
            event = Event.model_validate(form)
        except ValueError as error:
            raise DamagedError(f"a stored event cannot be read: {error}") from error
        # An event without them gets new ones each time.
        if form.get("id") and "timestamp" in form:
            try:
                self._remember(text, _maker(event))
            except _SharedError:
                pass
        return event

    def _remember(self, text: str, maker: Maker) -> None:
        with self._lock:
            if text in self._makers or len(text) > self._most // 4:
                return
            self._makers[text] = maker
            self._size += len(text)
            while self._size > self._most:
                oldest = next(iter(self._makers))
                del self._makers[oldest]
                self._size -= len(oldest)


def _maker(value: Any) -> Maker:
    """Return a function that makes equal values."""
    kind = type(value)
    if kind is dict or kind is list:
        return _container(value, value.items() if kind is dict else enumerate(value))
    if kind is set and all(isinstance(each, _ATOMS) for each in value):
        own: set[Any] = value.copy()
        return own.copy
    if isinstance(value, BaseModel):
        return _model(value)
    raise _SharedError


def _parts(items: Any) -> list[tuple[Any, Maker]]:
    """Return the makers of the values that are no atoms."""
    found = []
    for name, value in items:
        if not isinstance(value, (*_ATOMS, Enum)):
            found.append((name, _maker(value)))
    return found


def _container(value: Any, items: Any) -> Maker:
    own, parts = value.copy(), _parts(items)
    copy: Maker = own.copy
    if not parts:
        return copy

    def make() -> Any:
        made = copy()
        for name, part in parts:
            made[name] = part()
        return made

    return make


def _model(value: BaseModel) -> Maker:
    if value.__pydantic_private__:
        raise _SharedError
    kind = type(value)
    private = value.__pydantic_private__
    fields, parts = dict(value.__dict__), _parts(value.__dict__.items())
    extra = None if value.__pydantic_extra__ is None else _maker(value.__pydantic_extra__)
    given = frozenset(value.__pydantic_fields_set__)
    new = kind.__new__

    def make() -> Any:
        # The result of validation: the fields are those of a valid model.
        made = new(kind)
        own = fields.copy()
        for name, part in parts:
            own[name] = part()
        _set(made, "__dict__", own)
        _set(made, "__pydantic_extra__", None if extra is None else extra())
        _set(made, "__pydantic_fields_set__", set(given))
        _set(made, "__pydantic_private__", private)
        return made

    return make
