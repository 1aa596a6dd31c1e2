"""A session store for the Claude Agent SDK.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from loopstore.claude import LoopstoreSessionStore

    store = LoopstoreSessionStore("agent.db")
    async for message in query(prompt="Will it rain?", options=ClaudeAgentOptions(session_store=store)):
        ...

The entries that the SDK mirrors are stored and returned unchanged, each `uuid` once. They are also imported: the
store has the session under its own id, with its prompts, turns, tool calls, compactions and sub-agents, as an
import of the transcript makes it. So it can be searched, shown, compacted and exported with `loopstore.Store`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from types import TracebackType
from typing import Any, Literal, TypeVar, cast
from urllib.parse import quote, unquote

from anyio import to_thread
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from sniffio import current_async_library

from loopstore._arguments import Path
from loopstore._errors import InvalidInputError, ReadOnlyError
from loopstore._json import encode, encode_message
from loopstore._store import Json, Session, Store
from loopstore._workers import Workers

T = TypeVar("T")

_ENTRY = "claudeEntry"
_IMPORTED = "claudeImported"
_SUMMARY = "claudeSummary"

# A transcript of fewer bytes is imported again with each batch, a longer one after it grew by a sixteenth.
_SMALL = 2 << 20
_GROWTH = 16


class LoopstoreSessionStore(SessionStore):
    """The `SessionStore` of the Claude Agent SDK, with all of its optional methods."""

    def __init__(
        self,
        store: Store | Path = ":memory:",
        *,
        on_delete: Literal["hide", "erase"] = "hide",
        understand: bool = True,
    ) -> None:
        """Open or wrap a store.

        Args:
            store: An open store, which stays open; or the path of a database, which `close` closes.
            on_delete: The effect of `delete`: hide the session and keep the record, or erase it.
            understand: True to import the mirrored entries, so that they can be searched, shown and compacted.
        """
        if on_delete not in ("hide", "erase"):
            raise InvalidInputError(f"on_delete is `hide` or `erase`, not {on_delete!r}")
        self._owns_store = not isinstance(store, Store)
        if isinstance(store, Store):
            self.store = store
        else:
            self.store = Store.open(store)
        self._on_delete = on_delete
        self._understands = understand
        self._workers = Workers("store")
        # The size of each transcript at its last import, and now.
        self._sizes: dict[str, tuple[int, int]] = {}
        self._lock = Lock()

    async def _run(self, work: Callable[[], T]) -> T:
        if current_async_library() == "asyncio":
            return await self._workers.run(work)
        # The SDK also runs on trio, which has its own threads.
        self._workers.check()
        return await to_thread.run_sync(work)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store a batch of entries, each `uuid` once. They are durable when it returns."""
        if entries:
            await self._run(lambda: self._append(key, entries))

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        mirror = self.store.session(_id(key))
        parts: list[tuple[str | None, bytes]] = []
        for entry in entries:
            text, _ = encode_message({"role": "extension", "kind": _ENTRY, "data": entry})
            parts.append((_key_of(entry), text))
        mirror.append_batch(parts)
        if not self._understands:
            return
        with self._lock:
            before, size = self._sizes.get(mirror.id, (0, 0))
            size += sum(len(text) for _, text in parts)
            is_due = size < _SMALL or size - before > size // _GROWTH
            self._sizes[mirror.id] = (size if is_due else before, size)
        if is_due:
            self._understand(key, mirror)

    async def understand(self, key: SessionKey) -> list[str]:
        """Import all mirrored entries of a key, and return the ids of its sessions.

        `append` calls it: with each batch while the transcript is small, later after it has grown by a sixteenth.
        """
        return await self._run(lambda: self._understand(key, self.store.session(_id(key))))

    def _understand(self, key: SessionKey, mirror: Session) -> list[str]:
        lines = b"\n".join(encode(entry) for entry in self._entries(mirror))
        name = "/".join([key["project_key"], key["session_id"], key.get("subpath") or ""])
        try:
            report = self.store.import_bytes(
                lines, format="claude-code", name=name.rstrip("/") + ".jsonl"
            )
        except InvalidInputError:
            # It contains no conversation yet.
            return []
        sessions: list[str] = report["sessions"]
        known = {one for one, _ in mirror.append_keys(_IMPORTED)}
        for session in sessions:
            name = f"{_IMPORTED}/{session}"
            if name not in known:
                note = {"role": "extension", "kind": _IMPORTED, "data": session}
                mirror.append(note, key=name)
        return sessions

    def _entries(
        self, mirror: Session, after: tuple[str, int] | None = None
    ) -> list[SessionStoreEntry]:
        found = mirror.entries(kinds=[_ENTRY], after=after)
        return [cast(SessionStoreEntry, entry["message"]["data"]) for entry in found]

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a key unchanged; `None` if there are none."""
        return await self._run(lambda: self._entries(self.store.session(_id(key))) or None)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, each with the time of its last write."""

        def read() -> list[SessionStoreListEntry]:
            return [
                {"session_id": unquote(rest), "mtime": mtime}
                for rest, mtime in self._listed(f"claude/{_quoted(project_key)}/")
                if "/" not in rest
            ]

        return await self._run(read)

    def _listed(self, prefix: str) -> list[tuple[str, int]]:
        """Return the ends of the ids of sessions with this prefix, each with the time of its last write."""
        rows = self.store.sql(
            "SELECT session_id, last_active_at FROM v_sessions"
            " WHERE substr(session_id, 1, :size) = :prefix AND hidden_at IS NULL",
            {"size": len(prefix), "prefix": prefix},
        )
        return [(row["session_id"][len(prefix) :], _millis(row["last_active_at"])) for row in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of each session of a project; only new entries are read for it."""
        listed = await self.list_sessions(project_key)
        return await self._run(lambda: self._summaries(project_key, listed))

    def _summaries(
        self, project_key: str, listed: list[SessionStoreListEntry]
    ) -> list[SessionSummaryEntry]:
        index = self.store.session(f"claude-index/{_quoted(project_key)}")
        summaries: list[SessionSummaryEntry] = []
        new: list[tuple[str | None, bytes]] = []
        for one in listed:
            key: SessionKey = {"project_key": project_key, "session_id": one["session_id"]}
            number, kept = self._kept_summary(index, one["session_id"])
            mirror = self.store.session(_id(key))
            after = tuple(kept["after"]) if kept else None
            found = mirror.entries(kinds=[_ENTRY], after=after)
            before: SessionSummaryEntry | None = kept["summary"] if kept else None
            if found or before is None:
                entries = [entry["message"]["data"] for entry in found]
                before = fold_session_summary(before, key, entries)
            if found:
                last = found[-1]
                data = {"summary": before, "after": [last["loop_id"], last["seq"]]}
                new.append(_summary(one["session_id"], number + 1, data))
            summaries.append({**before, "mtime": one["mtime"]})
        if new:
            try:
                index.append_batch(new)
            except ReadOnlyError:
                pass
        return summaries

    def _kept_summary(self, index: Session, session_id: str) -> tuple[int, Json | None]:
        """Return the newest stored summary of a session, with its number."""
        found = index.append_keys(f"{_quoted(session_id)}/", descending=True, limit=1)
        if not found:
            return 0, None
        name, at = found[0]
        kept = index.entries(loop_id=at.loop_id, seqs=at.seqs)[0]["message"]["data"]
        return int(name.rsplit("/", 1)[1]), kept

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with its sub-agents, or with a `subpath` one of these.

        The record stays hidden, unless `on_delete` is `erase`; the id may be used again.
        """
        await self._run(lambda: self._delete(key))

    def _delete(self, key: SessionKey) -> None:
        own = _id(key)
        ids = [own]
        if not key.get("subpath"):
            ids += [f"{own}/{rest}" for rest, _ in self._listed(f"{own}/")]
            index = self.store.session(f"claude-index/{_quoted(key['project_key'])}")
            number, kept = self._kept_summary(index, key["session_id"])
            if kept:
                index.append_batch([_summary(key["session_id"], number + 1, None)])
        for id in ids:
            mirror = self.store.session(id)
            if not mirror.exists():
                continue
            for name, _ in mirror.append_keys(f"{_IMPORTED}/"):
                self._remove(self.store.session(name[len(_IMPORTED) + 1 :]))
            self._remove(mirror)
            self._sizes.pop(id, None)

    def _remove(self, session: Session) -> None:
        if not session.exists():
            return
        if self._on_delete == "erase":
            session.erase(reason="delete")
        else:
            session.hide()

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths with entries under a session."""
        prefix = f"{_id(cast(SessionKey, key))}/"

        def read() -> list[str]:
            return [unquote(rest) for rest, _ in self._listed(prefix)]

        return await self._run(read)

    def close(self) -> None:
        """End the threads, and close the store if this object opened it."""
        self._workers.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> LoopstoreSessionStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _id(key: SessionKey) -> str:
    """Return the id of the session with the entries of a key."""
    id = f"claude/{_quoted(key['project_key'])}/{_quoted(key['session_id'])}"
    subpath = key.get("subpath")
    return f"{id}/{quote(subpath, safe='/')}" if subpath else id


def _key_of(entry: SessionStoreEntry) -> str | None:
    """Return the identity of an entry, if it has one."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    key = f"uuid/{uuid}"
    return key if len(key.encode()) <= 512 else hashlib.sha256(uuid.encode()).hexdigest()


def _summary(session_id: str, number: int, data: Any) -> tuple[str | None, bytes]:
    message = {"role": "extension", "kind": _SUMMARY, "data": data}
    return f"{_quoted(session_id)}/{number:012}", encode(message)


def _millis(time: str | None) -> int:
    """Convert a time of the store to milliseconds since the epoch."""
    if not time:
        return 0
    return int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)
