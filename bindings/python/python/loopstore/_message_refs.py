"""References from values to messages: in the writes of tasks, and in the input of a graph.

A message occurs there first, and in a list of messages one or two checkpoints later. So it is stored as a
message of that list at once, and the value refers to it; the list then finds the stored message.

A message without an id gets one when the channel's reducer takes it. If the reducer of a channel is known to do
so, the id is waited for; if it does not come soon, the value is stored with its content, and the list stores the
message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage

from loopstore._langchain import Json, is_plain
from loopstore._lists import Key, Known, Thread

START = "__start__"
"""The channel that holds the input of a graph: a value for each channel."""


class MessageRefs:
    """The messages that the values of one record refer to."""

    def __init__(
        self,
        thread: Thread | None,
        ns: str,
        checkpoint: str | None,
        write: Callable[[BaseMessage], Json],
    ) -> None:
        """Begin without messages, for values that belong to a checkpoint."""
        self._thread = thread
        self._ns = ns
        self._checkpoint = checkpoint
        self._write_message = write
        self.lists: list[list[Json]] = []
        self._count = 0
        self._new: list[tuple[Key, int, list[tuple[BaseMessage, Known]]]] = []

    def write(self, channel: str, value: Any) -> Json | None:
        """Write a value that contains messages; `None` if it contains none, or one cannot be stored."""
        before = len(self.lists), self._count, len(self._new)
        shape = self._input(value) if channel == START else self._shape(channel, value)
        if shape is not None:
            return {"said": shape}
        lists, self._count, new = before
        del self.lists[lists:], self._new[new:]
        return None

    def _input(self, value: Any) -> Any:
        if type(value) is not dict or not all(type(key) is str and is_plain(key) for key in value):
            return None
        shapes = {key: self._shape(key, inner) for key, inner in value.items()}
        rest = {key: {"value": value[key]} for key, shape in shapes.items() if shape is None}
        if len(rest) == len(shapes) or not is_plain(rest):
            return None
        return {**shapes, **rest}

    def note(self, answer: list[Json]) -> None:
        """Remember the stored messages; does nothing if the record existed before."""
        if self._thread is not None and answer:
            for key, at, new in self._new:
                places = answer[at]["new"]
                for (message, known), (loop_id, seq, _) in zip(new, places, strict=True):
                    known.place = (loop_id, seq)
                    self._thread.say(key, message, known)

    def _shape(self, channel: str, value: Any) -> Any:
        """Return the form of a value with messages: a number for one, the begins and counts of a list."""
        if isinstance(value, BaseMessage):
            found = self._find(channel, [value])
            return None if found is None else found[0][0]
        if type(value) is list and value and all(isinstance(each, BaseMessage) for each in value):
            return self._find(channel, value)
        return None

    def _find(self, channel: str, messages: list[BaseMessage]) -> list[list[int]] | None:
        thread, key = self._thread, (self._ns, channel)
        if thread is None:
            return None
        kept: list[Any] = []
        new: list[tuple[BaseMessage, Known]] = []
        forms: list[Json] = []
        before: Known | None = None
        tail = thread.tail(key, self._checkpoint)
        for message in messages:
            known = thread.find(message)
            if known is not None:
                if new:
                    # They would be separated from the end of the list.
                    return None
                if known.is_single:
                    kept.append([known.place])
                elif known.follows(before):
                    kept[-1] = [kept[-1][0], known.place]
                else:
                    kept.append([known.place, known.place])
                before = known
                continue
            if tail is None or any(key == other for other, *_ in self._new):
                return None
            if not thread.may_be_new(key, message):
                return None
            known = Known(message, ("", 0), new[-1][1] if new else tail, False)
            form = self._write_message(message)
            # The graph continues while this is written, and may change the message.
            if form["role"] == "extension" or not known.is_same(message):
                return None
            known.is_loose = True
            new.append((message, known))
            forms.append(form)
        shape = []
        if kept:
            self.lists.append([{"kept": kept}])
            shape.append([self._count, len(messages) - len(new)])
        if new and tail is not None:
            self._new.append((key, len(self.lists), new))
            self.lists.append([{"behind": list(tail.place), "new": forms}])
            shape.append([self._count + len(messages) - len(new), len(new)])
        self._count += len(messages)
        return shape


def read(form: Json, messages: list[BaseMessage]) -> Any:
    """Return a value that refers to these messages."""
    shape = form["said"]
    if type(shape) is dict:
        return {
            key: part["value"] if type(part) is dict else _read(part, messages)
            for key, part in shape.items()
        }
    return _read(shape, messages)


def _read(shape: Any, messages: list[BaseMessage]) -> Any:
    if type(shape) is int:
        return messages[shape]
    found: list[BaseMessage] = []
    for first, count in shape:
        if not 0 <= first <= first + count <= len(messages):
            raise ValueError("a value refers to a message that is not there")
        found += messages[first : first + count]
    return found
