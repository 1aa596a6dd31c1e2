"""A state of ADK as a log of its changes, and the stored form of its values."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

from loopstore import _store
from loopstore._adk import clean
from loopstore._errors import InvalidInputError
from loopstore._json import encode
from loopstore._store import Json, Store

Place = tuple[str, int]
"""A loop and a sequence."""

DELTA = "adkState"
WHOLE = "adkWholeState"

_WHOLE_EVERY = 64
"""After so many deltas, on average, the whole state is written."""


class StateLog:
    """A state as a log of deltas in a session, with a whole state from time to time.

    A whole state records the delta that it includes last, so a concurrent delta of another writer is not lost.
    """

    def __init__(self, store: Store, id: str) -> None:
        self._log = store.session(id)
        self._start: Place | None = None

    @classmethod
    def of(cls, log: _store.Session, start: Place) -> StateLog:
        """Return the state of a session that begins at a position."""
        state = cls.__new__(cls)
        state._log, state._start = log, start
        return state

    def add(self, delta: Json, key: str | None = None) -> None:
        """Write a change; under a key once."""
        name = hashlib.sha256((key or uuid.uuid4().hex).encode()).hexdigest()
        new = encode([extension(DELTA, {}, delta)])
        done = self._log.append_batch([(name if key else None, new)])[0]
        if not done.duplicate and is_time(name):
            self.write_whole({})

    def _fold(self, first: Json) -> tuple[Json, Place | None]:
        whole = self._log.entries(kinds=[WHOLE], after=self._start, last=1)
        state, after = dict(first), self._start
        if whole:
            loop_id, seq = about_of(whole[0])["after"]
            state, after = loads(whole[0]["message"]["data"]["json"]), (loop_id, seq)
        for entry in self._log.entries(kinds=[DELTA], after=after):
            state.update(loads(entry["message"]["data"]["json"]))
            after = place_of(entry)
        return state, after

    def read(self, first: Json) -> Json:
        """Return the state, which began as `first`."""
        return self._fold(first)[0]

    def write_whole(self, first: Json) -> None:
        """Write the whole state."""
        state, after = self._fold(first)
        if after is not None:
            self._log.append(encode([extension(WHOLE, {"after": list(after)}, state)]))


def is_time(digest: str) -> bool:
    """Return true if the whole state is written after the change with this digest.

    The digest decides, so that no program has to count the changes so far.
    """
    return int(digest[-8:], 16) % _WHOLE_EVERY == 0


def extension(kind: str, about: Json, values: Json) -> Json:
    """Store values as text: numbers of any size are kept exactly."""
    return {"role": "extension", "kind": kind, "data": {"about": about, "json": dumps(values)}}


def dumps(value: Any) -> str:
    """Write a value as JSON, with numbers of any size."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Half of a surrogate pair is no valid text, and is one when it is escaped.
        return text if clean(text) == text else json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"this cannot be written as JSON: {error}") from error


def loads(text: str) -> Json:
    """Read a value that `dumps` wrote."""
    value: Json = json.loads(text)
    return value


def about_of(entry: Json) -> Json:
    """Return the fields of an entry other than its values."""
    about: Json = entry["message"]["data"]["about"]
    return about


def place_of(entry: Json) -> Place:
    """Return the position of an entry."""
    return entry["loop_id"], entry["seq"]
