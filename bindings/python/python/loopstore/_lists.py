"""A cache of the message lists that a saver stored and read.

A list nearly always grows at its end. So a list is compared with the one before it, and only the new messages
are written, whatever the length. Messages are compared by their fields and not only by identity: a message that
was changed in place is another message.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter, is_
from threading import Lock
from typing import Any

from langchain_core.messages import BaseMessage

from loopstore import _langchain
from loopstore._langchain import Json, is_plain, snapshot

Place = tuple[str, int]

Key = tuple[str, str]
"""A namespace and a channel."""

_fields: Callable[[Any], Json] = attrgetter("__dict__")
_extra: Callable[[Any], Json | None] = attrgetter("__pydantic_extra__")
_set = object.__setattr__

_AWAIT_NAME = 0.05
"""Seconds that a message waits at most for the id that a reducer gives it: the graph goes on beside this thread."""


class Known:
    """A message that is stored."""

    __slots__ = (
        "_given",
        "_holders",
        "_is_plain",
        "before",
        "extra",
        "fields",
        "is_loose",
        "is_single",
        "kind",
        "place",
    )

    def __init__(
        self, message: BaseMessage, place: Place, before: Known | None, is_single: bool
    ) -> None:
        """Remember a message, and the message before it on its line."""
        self.kind = type(message)
        self.fields: Json = snapshot(message.__dict__)
        self.extra: Json | None = snapshot(message.__pydantic_extra__)
        # The fields that were given when the message was made.
        self._given = frozenset(message.__pydantic_fields_set__)
        self._is_plain: bool | None = None
        # The fields with lists and dictionaries, which a copy does not share.
        self._holders: list[tuple[str, Any]] = []
        self.place = place
        self.before = before
        self.is_single = is_single
        # True until a list contains the message: it was stored after one.
        self.is_loose = False

    def at(self, before: Known | None, is_single: bool) -> Known:
        """Return the same message on another line."""
        if self.before is before and self.is_single is is_single:
            self.is_loose = False
            return self
        known: Known = Known.__new__(Known)
        known.kind, known.fields, known.extra = self.kind, self.fields, self.extra
        known._given, known._is_plain, known._holders = self._given, self._is_plain, self._holders
        known.place, known.before, known.is_single = self.place, before, is_single
        known.is_loose = False
        return known

    def copy(self) -> BaseMessage | None:
        """Return a new object with the content; `None` if it may share parts with another one."""
        if self._is_plain is None:
            self._holders = [
                (name, value) for name, value in self.fields.items() if type(value) in (dict, list)
            ]
            is_own = _langchain.is_class(self.kind)
            # After `_holders`, since another thread that reads it may copy the message at once.
            self._is_plain = is_own and is_plain(self.fields) and is_plain(self.extra or {})
        if not self._is_plain:
            return None
        # The result of validation: the fields are those of a valid message. Validation takes ten times as long.
        message: BaseMessage = self.kind.__new__(self.kind)
        fields = self.fields.copy()
        for name, value in self._holders:
            # Nearly all of them are empty.
            fields[name] = snapshot(value) if value else value.copy()
        extra = self.extra
        _set(message, "__dict__", fields)
        _set(message, "__pydantic_extra__", None if extra is None else snapshot(extra) if extra else {})
        _set(message, "__pydantic_fields_set__", set(self._given))
        _set(message, "__pydantic_private__", None)
        return message

    def is_same(self, message: BaseMessage) -> bool:
        """Return true if the message has the same content."""
        return (
            self.kind is type(message)
            and self.fields == message.__dict__
            and (self.extra or None) == (message.__pydantic_extra__ or None)
        )

    def follows(self, other: Known | None) -> bool:
        """Return true if the message is directly after another one on a line."""
        return other is not None and self.before is not None and self.before.place == other.place


@dataclass(slots=True)
class Remembered:
    """A list as it was last stored or read."""

    segments: list[Any] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    messages: list[BaseMessage] = field(default_factory=list)
    # The same as columns: a comparison of lists runs without a step of Python for each message.
    fields: list[Json] = field(default_factory=list)
    extra: list[Json | None] = field(default_factory=list)

    def add(self, message: BaseMessage, known: Known) -> None:
        """Add a message after the others."""
        self.known.append(known)
        self.messages.append(message)
        self.fields.append(known.fields)
        self.extra.append(known.extra)

    @classmethod
    def of(
        cls, segments: list[Any], messages: list[BaseMessage], known: list[Known]
    ) -> Remembered:
        """Return a list that was read whole."""
        fields, extra = [each.fields for each in known], [each.extra for each in known]
        return cls(segments, known, messages, fields, extra)

    def begins(self, messages: list[BaseMessage]) -> bool:
        """Return true if a list continues this one."""
        count = len(self.messages)
        if len(messages) < count:
            return False
        first = messages[:count]
        if list(map(_fields, first)) != self.fields or list(map(_extra, first)) != self.extra:
            return False
        # An object never changes its class.
        return all(map(is_, first, self.messages)) or list(map(type, first)) == [
            known.kind for known in self.known
        ]


class Thread:
    """The known lists and messages of a thread."""

    __slots__ = (
        "_at",
        "_loose",
        "_naming",
        "_tails",
        "_unnamed",
        "by_id",
        "by_place",
        "lists",
        "session",
    )

    def __init__(self, session: int) -> None:
        """Begin with nothing."""
        self.session = session
        self.lists: dict[Key, Remembered] = {}
        self.by_id: dict[str, Known] = {}
        # A stored message never changes, except that a redaction removes its content.
        self.by_place: dict[Place, Known] = {}
        # The checkpoint whose lists `lists` has.
        self._at: dict[Key, str] = {}
        # The last message that is stored after a list.
        self._tails: dict[Key, Known] = {}
        self._loose: dict[int, tuple[BaseMessage, Known]] = {}
        # Messages without an id that were written before they were in a list, and the channels whose reducer gave
        # such messages an id.
        self._unnamed: dict[int, tuple[Key, BaseMessage]] = {}
        self._naming: set[Key] = set()

    def note(self, key: Key, remembered: Remembered, checkpoint: str) -> None:
        """Remember a list of a namespace and channel, as a checkpoint has it."""
        last = self.lists.get(key)
        self.lists[key] = remembered
        self._at[key] = checkpoint
        count = len(last.known) if last is not None else 0
        # All of them are compared: lists with different beginnings may have the same last message.
        if last is None or remembered.known[:count] != last.known:
            count = 0
        for known in remembered.known[count:]:
            self.by_place[known.place] = known
            if isinstance(own := known.fields.get("id"), str):
                self.by_id[own] = known
        self._note_named(remembered.messages[count:])
        self._keep_tail(key, remembered)

    def carry(self, ns: str, parent: str | None, checkpoint: str) -> None:
        """Remember that a checkpoint has the lists of its parent."""
        for key, at in list(self._at.items()):
            if at == parent and key[0] == ns:
                self._at[key] = checkpoint

    def find(self, message: BaseMessage) -> Known | None:
        """Return the position at which a message is stored."""
        loose = self._loose.get(id(message))
        known = loose[1] if loose is not None and loose[0] is message else None
        if known is None and isinstance(message.id, str):
            known = self.by_id.get(message.id)
        return known if known is not None and known.is_same(message) else None

    def tail(self, key: Key, checkpoint: str | None) -> Known | None:
        """Return the message after which a message of a checkpoint is stored; `None` if it is not known."""
        if checkpoint is None or self._at.get(key) != checkpoint:
            return None
        if key in self._tails:
            return self._tails[key]
        return next((known for known in reversed(self.lists[key].known) if not known.is_single), None)

    def awaits(self, ns: str, checkpoint: str) -> bool:
        """Return true if a checkpoint is newer than all known ones, and so probably about to be stored."""
        found = [at for key, at in list(self._at.items()) if key[0] == ns]
        return bool(found) and all(at < checkpoint for at in found)

    def may_be_new(self, key: Key, message: BaseMessage) -> bool:
        """Return true if a message that no list contains yet will be at the end of one."""
        if isinstance(message.id, str):
            return message.id not in self.by_id
        if self.lists[key].known[-1].fields.get("id") is None:
            return True
        if key not in self._naming:
            self._unnamed[id(message)] = (key, message)
            return False
        return is_named(message) and message.id not in self.by_id

    def say(self, key: Key, message: BaseMessage, known: Known) -> None:
        """Remember a message that is stored after a list."""
        self._tails[key] = known
        self._loose[id(message)] = (message, known)
        self.by_place[known.place] = known
        if isinstance(own := known.fields.get("id"), str):
            self.by_id[own] = known

    def _note_named(self, new: list[BaseMessage]) -> None:
        for message in new:
            self._loose.pop(id(message), None)
            key, unnamed = self._unnamed.get(id(message), (None, None))
            if key is not None and unnamed is message and message.id is not None:
                self._naming.add(key)

    def _keep_tail(self, key: Key, remembered: Remembered) -> None:
        """Forget the messages after a list that has continued in another way."""
        end = next((known for known in reversed(remembered.known) if not known.is_single), None)
        tail: Known | None = self._tails.get(key)
        while tail is not None and tail.is_loose and not tail.follows(end):
            tail = tail.before
        if tail is None or not tail.is_loose:
            self._tails.pop(key, None)
        if not self._tails:
            self._loose.clear()
        unnamed = list(self._unnamed.items())
        self._unnamed = {at: found for at, found in unnamed if found[0] != key}


def is_named(message: BaseMessage) -> bool:
    """Return true once the reducer has given a message an id; false if it does not do so soon.

    The id is never set here: a reducer that runs at the same time would replace it, and the message that is then in
    the list would be another one than the one that is stored.
    """
    until = time.monotonic() + _AWAIT_NAME
    while message.id is None and time.monotonic() < until:
        time.sleep(0.0002)
    return message.id is not None


class Memory:
    """The threads that were used last."""

    def __init__(self, threads: int = 128, messages: int = 200_000) -> None:
        """Remember at most `threads` threads, and about `messages` messages."""
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._most = threads
        self._most_messages = messages
        self._lock = Lock()

    def get(self, thread: str) -> Thread | None:
        """Return the known lists of a thread."""
        with self._lock:
            found = self._threads.get(thread)
            if found is not None:
                self._threads.move_to_end(thread)
            return found

    def note(
        self,
        thread: str,
        session: int,
        lists: Iterable[tuple[Key, Remembered]],
        checkpoint: str,
    ) -> None:
        """Remember lists of a thread, as a checkpoint has them."""
        with self._lock:
            found = self._threads.get(thread)
            if found is None or found.session != session:
                found = self._threads[thread] = Thread(session)
            self._threads.move_to_end(thread)
            for key, remembered in lists:
                found.note(key, remembered, checkpoint)
            if len(found.lists) > 64 or len(found.by_place) > self._most_messages:
                # Namespaces of subgraphs are temporary.
                del self._threads[thread]
            while len(self._threads) > 1 and (
                len(self._threads) > self._most
                or sum(len(each.by_place) for each in self._threads.values()) > self._most_messages
            ):
                self._threads.popitem(last=False)

    def forget(self, thread: str) -> None:
        """Forget a thread."""
        with self._lock:
            self._threads.pop(thread, None)


@dataclass(slots=True)
class Pending:
    """A list that is being stored."""

    parts: list[Json]
    kept: list[tuple[BaseMessage, Known | None]]
    base: Remembered | None

    def stored(self, answer: Json) -> Remembered:
        """Return the list, after the store returned the positions of its new messages."""
        segments = answer["segments"]
        if self.base is not None and not self.kept:
            # Only the version may be new.
            return self.base
        done = self.base if self.base is not None else Remembered()
        if self.base is not None:
            done = Remembered(
                segments,
                list(done.known),
                list(done.messages),
                list(done.fields),
                list(done.extra),
            )
        done.segments = segments
        new = iter(answer["new"])
        before = done.known[-1] if done.known else None
        at = len(self.base.segments) - 1 if self.base is not None else -1
        # As in `_find`.
        run = before
        for message, known in self.kept:
            if known is None:
                loop_id, seq, segment = next(new)
                is_single = len(segments[segment]) == 1
                goes_on = segment == at and before is not None and not before.is_single
                known = Known(message, (loop_id, seq), before if goes_on else None, is_single)
                at, run = segment, None
            else:
                if not known.follows(run):
                    at += 1
                run = known
                known.is_loose = False
            done.add(message, known)
            before = known
        return done


def pending(
    thread: Thread | None,
    key: Key,
    messages: list[BaseMessage],
    write: Callable[[BaseMessage], Json],
) -> Pending:
    """Find the stored messages of a list, and write the others."""
    base = thread.lists.get(key) if thread is not None else None
    if base is not None and base.begins(messages):
        rest = messages[len(base.messages) :]
        head: Json = {"kept": list(base.segments)}
        kept = _find(thread, rest, {}, head, base.known[-1] if base.known else None, write)
        return Pending(kept[0], kept[1], base)
    by_object: dict[int, Known] = {}
    if base is not None:
        by_object = dict(zip(map(id, base.messages), base.known, strict=True))
    parts, found = _find(thread, messages, by_object, None, None, write)
    return Pending(parts, found, None)


def _find(
    thread: Thread | None,
    messages: list[BaseMessage],
    by_object: dict[int, Known],
    head: Json | None,
    before: Known | None,
    write: Callable[[BaseMessage], Json],
) -> tuple[list[Json], list[tuple[BaseMessage, Known | None]]]:
    """Find messages, and return them with the parts of their list: the first part is `head`."""
    parts: list[Json] = [] if head is None else [head]
    found: list[tuple[BaseMessage, Known | None]] = []
    for message in messages:
        known = by_object.get(id(message))
        if known is not None and not known.is_same(message):
            known = None
        if known is None and thread is not None:
            known = thread.find(message)
        if known is not None and known.is_loose and not known.follows(before):
            # The message was written, but another one is before it: the order of the list is what a model sees.
            known = None
        if known is None:
            if not parts:
                parts.append({})
            parts[-1].setdefault("new", []).append(write(message))
            before = None
        else:
            if not parts or "new" in parts[-1]:
                parts.append({"kept": []})
            segments = parts[-1]["kept"]
            if known.is_single:
                segments.append([known.place])
            elif known.follows(before):
                segments[-1] = [segments[-1][0], known.place]
            else:
                segments.append([known.place, known.place])
            before = known
        found.append((message, known))
    return parts, found
