"""Checkpoints of LangGraph in a store: a drop-in for its savers.

>>> from langgraph.graph import START, MessagesState, StateGraph
>>> import loopstore
>>> from loopstore.langgraph import LoopstoreSaver
>>> graph = StateGraph(MessagesState)
>>> _ = graph.add_node("model", lambda state: {"messages": [("ai", "No.")]})
>>> _ = graph.add_edge(START, "model")
>>> store = loopstore.Store.in_memory()
>>> agent = graph.compile(checkpointer=LoopstoreSaver(store))
>>> thread = {"configurable": {"thread_id": "weather"}}
>>> len(agent.invoke({"messages": [("user", "Will it rain?")]}, thread)["messages"])
2
>>> store.session("weather").context(format="openai")["messages"][1]["content"]
'No.'

A thread is a session. Its state is returned exactly as it was stored. A message is stored once, at its first
occurrence, however many checkpoints and writes contain it, and is searched, counted, shown and compacted as any
other message of loopstore; an unchanged value is not written again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, ParamSpec, TypeVar, cast

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS

from loopstore import _compacted, _langchain, _loopstore, _message_refs
from loopstore._arguments import Path
from loopstore._errors import (
    DamagedError,
    ExistsError,
    ForeignThreadError,
    InvalidInputError,
    UnreadableError,
)
from loopstore._items import LoopstoreStore
from loopstore._json import decode, encode
from loopstore._compacted import STORED, ModelInput, read_input
from loopstore._langchain import is_plain
from loopstore._lists import Known, Memory, Pending, Remembered, Thread, pending
from loopstore._message_refs import MessageRefs
from loopstore._policy import Policy
from loopstore._store import Store

__all__ = [
    "ExistsError",
    "ForeignThreadError",
    "LoopstoreSaver",
    "LoopstoreStore",
    "UnreadableError",
]

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]

_Refs = list[tuple[str, str, str]]
"""Thread, namespace and id of checkpoints."""

_COMPRESS = 256
"""Bytes of an encoded value from which on it is tried to be compressed."""

_AWAIT = 0.1
"""Seconds that writes wait at most for their checkpoint: a graph stores both at once, in any order."""

_ENCODED = "langgraph.encoded"
"""The field of metadata that JSON does not hold."""


class _UnknownMessageError(Exception):
    """A message is unchanged, and not known: the checkpoint is read whole."""


class LoopstoreSaver(BaseCheckpointSaver[str]):
    """A saver that keeps LangGraph's checkpoints in a store, for programs with and without asyncio.

    It may be used from all threads, and several processes may work on one database, and on one thread of
    LangGraph. `on_delete` is the effect of `delete_thread`: with "hide" the thread is no longer found, its id may
    be used again, and the record stays; with "erase" its content is removed.
    """

    def __init__(
        self,
        store: Store | Path,
        *,
        serde: SerializerProtocol | None = None,
        on_delete: Literal["hide", "erase"] = "hide",
    ) -> None:
        """Wrap an open store, or open or create the database at a path."""
        super().__init__(serde=serde)
        if on_delete not in ("hide", "erase"):
            raise InvalidInputError(f"on_delete is 'hide' or 'erase', not {on_delete!r}")
        self.store = store if isinstance(store, Store) else Store.open(store)
        self.on_delete = on_delete
        self._native = _loopstore.Checkpoints(self.store._native)
        self._memory = Memory()
        # LangGraph stores the checkpoints of a graph and of its subgraphs from several threads: the later one
        # must find the messages of the earlier one.
        self._process = os.getpid()
        self._locks = [threading.Lock() for _ in range(64)]

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str) -> Iterator[LoopstoreSaver]:
        """Open a database for the duration of the context; ":memory:" is a database in memory."""
        with Store.open(conn_string) as store:
            yield cls(store)

    def pre_model_hook(
        self,
        *,
        policy: Policy | None = None,
        messages_key: str = "messages",
        input_key: str = "llm_input_messages",
    ) -> Runnable[Any, dict[str, list[AnyMessage]]]:
        """Return a hook that gives the model the compacted context, and leaves the state whole.

        It is the `pre_model_hook` of `create_react_agent`. In a graph of your own a node calls
        `hook.invoke(state, config)["llm_input_messages"]`, or awaits `hook.ainvoke`. It compacts the thread's session
        if the policy requires it. `store.session(thread_id)` shows the compaction and can undo it.

        Args:
            policy: The policy of the compactions; by default that of the store.
            messages_key: The key of the messages in the state.
            input_key: The key of the model's input in the result.
        """
        return _compacted.pre_model_hook(
            self.store, self.serde, policy, messages_key, input_key
        )

    def middleware(self, *, policy: Policy | None = None) -> Any:
        """Return the middleware that does so for an agent of LangChain, whose state stays whole.

        `create_agent(model, tools, checkpointer=saver, middleware=[saver.middleware()])` of `langchain.agents`, which
        must be installed.

        Args:
            policy: The policy of the compactions; by default that of the store.
        """
        from loopstore._middleware import middleware

        return middleware(self.store, self.serde, policy)

    # Values.

    @property
    def _is_open(self) -> bool:
        """Return true if stored values may be readable: a custom serializer may encrypt them."""
        return isinstance(self.serde, JsonPlusSerializer)

    def _write_in(self, channel: str, value: Any, refs: MessageRefs) -> Any:
        """Write a value of a channel, with references to the messages in it if possible."""
        if isinstance(value, ModelInput) and self._is_open:
            return {"value": value.write(self._encode)}
        form = refs.write(channel, value) if self._is_open else None
        return self._write(value) if form is None else form

    def _write(self, value: Any) -> Any:
        """Write a value: as JSON if JSON represents it exactly, else in LangGraph's encoding."""
        if isinstance(value, ModelInput):
            value = list(value)
        if self._is_open and is_plain(value) and not (isinstance(value, dict) and STORED in value):
            return {"value": value}
        kind, data = self.serde.dumps_typed(value)
        if len(data) >= _COMPRESS and len(packed := zlib.compress(data, 1)) < len(data):
            return [kind, base64.b64encode(packed).decode(), "zlib"]
        return [kind, base64.b64encode(data).decode()]

    def _encode(self, message: BaseMessage) -> list[str]:
        kind, data = self.serde.dumps_typed(message)
        return [kind, base64.b64encode(data).decode()]

    def _resolved(self, value: Any, values: Json) -> Any:
        """Return a value with the messages that a stored input of a model refers to."""
        if isinstance(value, dict) and STORED in value:
            return read_input(value, values, self._read)
        return value

    def _read(self, form: Any, thread: Thread | None = None) -> Any:
        try:
            if isinstance(form, dict):
                if "said" in form:
                    return _message_refs.read(form, self._referenced(form, thread))
                return form["value"]
            kind, text, *packing = form
            data = base64.b64decode(text)
            if packing:
                data = zlib.decompress(data)
        except (IndexError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise DamagedError(f"a stored value cannot be read: {error!r}") from error
        return self.serde.loads_typed((kind, data))

    def _write_metadata(self, value: Any) -> Any:
        """Write metadata as JSON, so that it can be searched; tuples become lists."""
        value = _listed(value)
        if is_plain(value) and not (isinstance(value, dict) and _ENCODED in value):
            return value
        kind, data = self.serde.dumps_typed(value)
        return {_ENCODED: [kind, base64.b64encode(data).decode()]}

    def _read_metadata(self, form: Any) -> Any:
        return self._read(form[_ENCODED]) if isinstance(form, dict) and _ENCODED in form else form

    def _referenced(self, form: Json, thread: Thread | None) -> list[BaseMessage]:
        return [
            self._stored(place, stored, thread)
            for part in form["list"]
            for place, stored in zip(part["places"], part["messages"], strict=True)
        ]

    def _stored(
        self, place: list[Any], stored: Json | None, thread: Thread | None
    ) -> BaseMessage:
        """Read a message, or copy the known one if the store has it unchanged."""
        if stored is not None:
            return _langchain.read(stored, self.serde)
        known = thread.by_place.get((place[0], place[1])) if thread is not None else None
        message = known.copy() if known is not None else None
        if message is None:
            raise _UnknownMessageError
        return message

    def _write_message(self, message: BaseMessage) -> Json:
        return _langchain.write(message, self.serde)

    def _read_value(
        self,
        form: Json,
        lists: dict[str, Remembered] | None = None,
        channel: str = "",
        thread: Thread | None = None,
    ) -> Any:
        if "list" not in form:
            return self._read(form["data"], thread)
        segments: list[Any] = []
        messages: list[BaseMessage] = []
        all_known: list[Known] = []
        for part in form["list"]:
            segments.append(part["segment"])
            is_single = len(part["segment"]) == 1
            before: Known | None = None
            for place, stored in zip(part["places"], part["messages"], strict=True):
                message = self._stored(place, stored, thread)
                at = (place[0], place[1])
                if stored is None and thread is not None:
                    known = thread.by_place[at].at(before, is_single)
                else:
                    known = Known(message, at, before, is_single)
                messages.append(message)
                all_known.append(known)
                before = known
        found = Remembered.of(segments, messages, all_known)
        if lists is not None:
            lists[channel] = found
        return messages.copy()

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its writes; the newest one if the config names none."""
        thread, ns = _thread(config), _ns(config)
        return self._get(thread, ns, _checkpoint_id(config))

    def _get(self, thread: str, ns: str, checkpoint_id: str | None) -> CheckpointTuple | None:
        id = None if checkpoint_id is None else str(checkpoint_id)
        known = self._memory.get(thread)
        if known is not None and known.by_place:
            # Messages that are known need not be read again: the store only tells which ones changed.
            found = self._native.get(thread, ns, id, False)
            form = None if found is None else decode(found)
            try:
                if form is not None and form["session"] == known.session:
                    return self._tuple(thread, form, known)
            except _UnknownMessageError:
                pass
        found = self._native.get(thread, ns, id, True)
        return None if found is None else self._tuple(thread, decode(found))

    def _tuple(self, thread: str, found: Json, known: Thread | None = None) -> CheckpointTuple:
        ns: str = found["ns"]
        lists: dict[str, Remembered] = {}
        values = {
            channel: self._read_value(value, lists, channel, known)
            for channel, value in found["values"].items()
        }
        writes = [
            (task, channel, self._resolved(self._read(value, known), values))
            for task, channel, value in found["writes"]
        ]
        for channel, value in values.items():
            values[channel] = self._resolved(value, values)
        self._memory.note(
            thread,
            found["session"],
            [((ns, channel), remembered) for channel, remembered in lists.items()],
            found["id"],
        )
        checkpoint: Json = self._read(found["checkpoint"])
        checkpoint = {
            **checkpoint,
            "id": found["id"],
            "channel_values": values,
            "channel_versions": found["versions"],
        }
        parent: str | None = found["parent"]
        if checkpoint.get("v", 4) < 4 and parent is not None and TASKS not in values:
            self._migrate(thread, ns, parent, checkpoint)
        metadata = {key: self._read_metadata(value) for key, value in found["metadata"].items()}
        return CheckpointTuple(
            _config(thread, ns, found["id"]),
            cast(Checkpoint, checkpoint),
            cast(CheckpointMetadata, metadata),
            None if parent is None else _config(thread, ns, parent),
            writes,
        )

    def _migrate(self, thread: str, ns: str, parent: str, checkpoint: Json) -> None:
        """Add the messages of its parent's tasks to a checkpoint of an older version, as newer versions have
        them.
        """
        found = self._native.get(thread, ns, parent, True)
        sent = decode(found)["writes"] if found is not None else []
        sends = [self._read(value) for _, channel, value in sent if channel == TASKS]
        if sends:
            versions: ChannelVersions = checkpoint["channel_versions"]
            checkpoint["channel_values"][TASKS] = sends
            newest = max(versions.values(), key=str) if versions else None
            versions[TASKS] = newest if newest is not None else self.get_next_version(None, None)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, the newest first: of a thread, or of all without a config."""
        for thread, ns, checkpoint_id in self._list(config, filter, before, limit):
            if (found := self._get(thread, ns, checkpoint_id)) is not None:
                yield found

    def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> _Refs:
        query: Json = {}
        if config is not None:
            query["thread"] = _thread(config)
            query["ns"] = config["configurable"].get("checkpoint_ns")
            query["id"] = _checkpoint_id(config)
        if before is not None:
            query["before"] = _checkpoint_id(before)
        if limit is not None:
            query["limit"] = max(limit, 0)
        if filter:
            query["filter"] = {
                key: self._write_metadata(value) for key, value in filter.items()
            }
        found = decode(self._native.list(encode(query)))
        return [(each["thread"], each["ns"], each["id"]) for each in found]

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. It is durable when this returns."""
        with self._lock(_thread(config)):
            return self._put(config, checkpoint, metadata, new_versions)

    def _lock(self, thread: str) -> AbstractContextManager[Any]:
        if self._process != os.getpid():
            # A lock may have been held when the process was forked; the store rejects the call then.
            return nullcontext()
        return self._locks[hash(thread) % len(self._locks)]

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, ns, parent = _thread(config), _ns(config), _checkpoint_id(config)
        values: Json = checkpoint["channel_values"]
        rest = {
            key: value
            for key, value in checkpoint.items()
            if key not in ("id", "channel_values", "channel_versions")
        }
        merged = get_checkpoint_metadata(config, metadata)
        new: Json = {
            "ns": ns,
            "id": checkpoint["id"],
            "parent": parent,
            "checkpoint": self._write(rest),
            "versions": checkpoint["channel_versions"],
            "metadata": {key: self._write_metadata(value) for key, value in merged.items()},
        }
        changed = [channel for channel in new_versions if channel in values]
        unchanged = {channel for channel in values if channel not in new_versions}
        while True:
            known = self._known(thread, ns, parent, changed, values)
            refs = MessageRefs(known, ns, parent, self._write_message)
            lists: dict[str, Pending] = {}
            stored: Json = {}
            for channel in changed:
                value = values[channel]
                if self._is_open and _is_messages(value):
                    lists[channel] = pending(known, (ns, channel), value, self._write_message)
                    stored[channel] = {"list": lists[channel].parts}
                else:
                    stored[channel] = {"data": self._write_in(channel, value, refs)}
            new["values"], new["unchanged"] = stored, sorted(unchanged)
            new["said"] = refs.lists
            refers = lists or refs.lists
            new["session"] = known.session if known is not None and refers else None
            answer = decode(self._native.put(thread, encode(new)))
            if "missing" in answer:
                # LangGraph states that they are unchanged since a checkpoint that is not the parent.
                changed += answer["missing"]
                unchanged.difference_update(answer["missing"])
            elif "stale" in answer:
                self._memory.forget(thread)
            else:
                break
        _log_notes(answer)
        refs.note(answer["said"])
        if known is not None:
            known.carry(ns, parent, checkpoint["id"])
        self._memory.note(
            thread,
            answer["session"],
            [
                ((ns, channel), lists[channel].stored(where))
                for channel, where in answer["lists"].items()
            ],
            checkpoint["id"],
        )
        return _config(config["configurable"]["thread_id"], ns, checkpoint["id"])

    def _known(
        self, thread: str, ns: str, parent: str | None, changed: Sequence[str], values: Json
    ) -> Thread | None:
        """Return the known state of a thread; its last state is read if none is known."""
        known = self._memory.get(thread)
        lists = [channel for channel in changed if self._is_open and _is_messages(values[channel])]
        if not lists:
            return known
        if parent is not None and (
            known is None or any((ns, channel) not in known.lists for channel in lists)
        ):
            self._get(thread, ns, parent)
        elif known is None and ns:
            # A subgraph begins with messages of its parent graph.
            self._get(thread, "", None)
        return self._memory.get(thread)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task. They are durable when this returns."""
        until = time.monotonic() + _AWAIT
        while self._awaits(config, writes) and time.monotonic() < until:
            time.sleep(0.0005)
        self._put_writes(config, writes, task_id, task_path)

    def _awaits(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]]) -> bool:
        """Return true if a checkpoint is about to be stored after whose messages those of the writes belong."""
        checkpoint_id, known = _checkpoint_id(config), self._memory.get(_thread(config))
        if checkpoint_id is None or known is None or not known.awaits(_ns(config), checkpoint_id):
            return False
        return any(isinstance(value, BaseMessage) or _is_messages(value) for _, value in writes)

    def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        checkpoint_id = _checkpoint_id(config)
        if checkpoint_id is None:
            raise InvalidInputError("put_writes needs the checkpoint_id that the task goes on from")
        thread, ns = _thread(config), _ns(config)
        new: Json = {"ns": ns, "id": checkpoint_id, "task": task_id, "path": task_path}
        with self._lock(thread):
            while True:
                known = self._memory.get(thread)
                refs = MessageRefs(known, ns, checkpoint_id, self._write_message)
                new["writes"] = [
                    [WRITES_IDX_MAP.get(channel, index), channel, self._write_in(channel, value, refs)]
                    for index, (channel, value) in enumerate(writes)
                ]
                new["said"] = refs.lists
                new["session"] = known.session if known is not None and refs.lists else None
                answer = decode(self._native.put_writes(thread, encode(new)))
                if "stale" not in answer:
                    break
                self._memory.forget(thread)
            _log_notes(answer)
            refs.note(answer["said"])

    # Whole threads.

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread: see `on_delete`."""
        self._memory.forget(str(thread_id))
        self._native.delete_thread(str(thread_id), self.on_delete == "erase")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in all threads."""
        self._native.delete_for_runs(encode([str(run) for run in run_ids]))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one, which has none yet."""
        self._native.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints: all but the newest of each namespace, or with "delete" all.

        What a delta channel of the newest needs of earlier ones stays.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(f"strategy is 'keep_latest' or 'delete', not {strategy!r}")
        for thread in thread_ids:
            self._native.prune(str(thread), strategy == "keep_latest")

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of channels on the way to a checkpoint."""
        if not channels:
            return {}
        found = self._native.history(
            _thread(config), _ns(config), _checkpoint_id(config), encode(list(channels))
        )
        history: dict[str, DeltaChannelHistory] = {}
        for channel, written in decode(found).items():
            entry: DeltaChannelHistory = {
                "writes": [(task, name, self._read(value)) for task, name, value in written["writes"]]
            }
            if written["seed"] is not None:
                entry["seed"] = self._read_value(written["seed"])
            history[channel] = entry
        return history

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version after `current` that no other writer of the thread uses."""
        last = 0 if current is None else int(str(current).split(".", 1)[0])
        return f"{last + 1:010}.{random.getrandbits(40):010x}"

    # The same for asyncio.

    async def _run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **options)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do as `get_tuple`."""
        return await self._run(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do as `list`."""
        for thread, ns, checkpoint_id in await self._run(
            self._list, config, filter, before, limit
        ):
            if (found := await self._run(self._get, thread, ns, checkpoint_id)) is not None:
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do as `put`."""
        return await self._run(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do as `put_writes`."""
        until = time.monotonic() + _AWAIT
        while self._awaits(config, writes) and time.monotonic() < until:
            await asyncio.sleep(0.0005)
        await self._run(self._put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Do as `delete_thread`."""
        await self._run(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do as `delete_for_runs`."""
        await self._run(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do as `copy_thread`."""
        await self._run(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do as `prune`."""
        await self._run(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Do as `get_delta_channel_history`."""
        return await self._run(self.get_delta_channel_history, config=config, channels=channels)


def _log_notes(answer: Json) -> None:
    """Log the parts of reports of cleared content that are not recorded as edits."""
    for note in answer.get("notes", ()):
        _LOG.warning("%s", note)


def _is_messages(value: Any) -> bool:
    if type(value) is not list or not value:
        return False
    return all(issubclass(kind, BaseMessage) for kind in set(map(type, value)))


def _listed(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _listed(inner) for key, inner in value.items()}
    return list(map(_listed, value)) if kind in (list, tuple) else value


def _thread(config: RunnableConfig) -> str:
    try:
        return str(config["configurable"]["thread_id"])
    except (KeyError, TypeError) as error:
        raise InvalidInputError("the config names no thread_id") from error


def _ns(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _checkpoint_id(config: RunnableConfig) -> str | None:
    """Return the id of the checkpoint; an empty id means none, as for LangGraph's own savers."""
    return get_checkpoint_id(config) or None


def _config(thread: Any, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }
