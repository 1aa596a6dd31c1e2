"""The front door for asyncio: the same names, on worker threads.

A call runs on a thread, which waits in the native part without the GIL. If the task of a call is cancelled,
`prepare` and `compact` commit nothing unless the commit had begun; an append may have been made, which its `key`
makes safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal

from loopstore import _arguments
from loopstore._arguments import Instant, Path, Paths
from loopstore._json import Form, Messages
from loopstore._policy import Policy, native, native_or_none
from loopstore._rows import Rows
from loopstore._sql import Params
from loopstore._store import (
    Appended,
    CallState,
    Confidence,
    EditTarget,
    Json,
    Prepared,
    Recall,
    Session,
    Store,
)
from loopstore._workers import Workers

_THREADS = 8


class AsyncStore:
    """A database of sessions, for asyncio: `Store` with coroutines in place of functions.

    >>> async def chat() -> int:
    ...     async with await AsyncStore.in_memory() as store:
    ...         session = store.session("weather")
    ...         await session.append({"role": "user", "content": "Rain?"}, format="openai")
    ...         return len((await session.context())["messages"])
    >>> asyncio.run(chat())
    1
    """

    def __init__(self, store: Store, *, threads: int = _THREADS) -> None:
        """Wrap an open store; at most `threads` of its calls run at once."""
        self._store = store
        self._workers = Workers("store", threads)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        policy: Policy | None = None,
        counter: str | None = None,
        durability: Literal["full", "normal"] | None = None,
        key: str | bytes | None = None,
        read_only: bool = False,
        threads: int = _THREADS,
    ) -> AsyncStore:
        """As `Store.open`."""
        store = await asyncio.to_thread(
            Store.open,
            path,
            policy=policy,
            counter=counter,
            durability=durability,
            key=key,
            read_only=read_only,
        )
        return cls(store, threads=threads)

    @classmethod
    async def in_memory(
        cls, *, policy: Policy | None = None, counter: str | None = None, threads: int = _THREADS
    ) -> AsyncStore:
        """As `Store.in_memory`."""
        return cls(Store.in_memory(policy=policy, counter=counter), threads=threads)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        policy: Policy | None = None,
        counter: str | None = None,
        read_only: bool = False,
        threads: int = _THREADS,
    ) -> AsyncStore:
        """As `Store.connect`."""
        store = await asyncio.to_thread(
            Store.connect, url, policy=policy, counter=counter, read_only=read_only
        )
        return cls(store, threads=threads)

    @property
    def blocking(self) -> Store:
        """The store, for code that may block."""
        return self._store

    @property
    def place(self) -> str:
        """As `Store.place`."""
        return self._store.place

    @property
    def closed(self) -> bool:
        """As `Store.closed`."""
        return self._store.closed

    async def close(self) -> None:
        """As `Store.close`."""
        await self._workers.run(self._store.close)
        self._workers.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.closed:
            await self.close()

    def session(self, id: str, *, policy: Policy | None = None) -> AsyncSession:
        """As `Store.session`; coroutines of the policy's functions run on the event loop of the caller.

        It need not be awaited, and may be.
        """
        given = native_or_none(policy, _running_loop())
        session = Session(self._store._native.session(_arguments.text("id", id), given))
        return AsyncSession(session, self._workers)

    async def search(
        self,
        text: str,
        *,
        session: str | None = None,
        by: Literal["message", "session"] = "message",
        source: str | None = None,
        project: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Json:
        """As `Store.search`."""
        return await self._workers.run(
            self._store.search,
            text,
            session=session,
            by=by,
            source=source,
            project=project,
            role=role,
            tool=tool,
            since=since,
            until=until,
            hidden=hidden,
            limit=limit,
            offset=offset,
        )

    async def recall(
        self,
        question: str,
        max_tokens: int,
        *,
        session: str | None = None,
        source: str | None = None,
        project: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
    ) -> Recall:
        """As `Store.recall`."""
        return await self._workers.run(
            self._store.recall,
            question,
            max_tokens,
            session=session,
            source=source,
            project=project,
            since=since,
            until=until,
        )

    async def sessions(
        self,
        *,
        source: str | None = None,
        project: str | None = None,
        text: str | None = None,
        since: Instant | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Rows:
        """As `Store.sessions`."""
        return await self._workers.run(
            self._store.sessions,
            source=source,
            project=project,
            text=text,
            since=since,
            after=after,
            limit=limit,
        )

    async def history(self, session: str | None = None) -> Rows:
        """As `Store.history`."""
        return await self._workers.run(self._store.history, session)

    async def sql(
        self,
        query: str,
        params: Params | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | timedelta | None = 60.0,
    ) -> Rows:
        """As `Store.sql`."""
        return await self._workers.run(
            self._store.sql, query, params, max_rows=max_rows, timeout=timeout
        )

    async def import_(
        self,
        *paths: Paths,
        format: str | None = None,
        session: str | None = None,
        redact: bool = False,
        allow: Iterable[str] = (),
        only: Iterable[str] = (),
        min_confidence: Confidence | None = None,
        keep_source: bool = True,
    ) -> Json:
        """As `Store.import_`."""
        return await self._workers.run(
            self._store.import_,
            *paths,
            format=format,
            session=session,
            redact=redact,
            allow=allow,
            only=only,
            min_confidence=min_confidence,
            keep_source=keep_source,
        )

    async def import_bytes(
        self, transcript: bytes, *, format: str, name: Path = "transcript"
    ) -> Json:
        """As `Store.import_bytes`."""
        return await self._workers.run(
            self._store.import_bytes, transcript, format=format, name=name
        )

    async def stats(self) -> dict[str, int]:
        """As `Store.stats`."""
        return await self._workers.run(self._store.stats)

    async def verify(self) -> Json:
        """As `Store.verify`."""
        return await self._workers.run(self._store.verify)

    def __repr__(self) -> str:
        return f"<loopstore.AsyncStore {'(closed)' if self.closed else self.place}>"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of the caller; `None` outside of one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class AsyncSession:
    """One agent's history, for asyncio: `Session` with coroutines. Get one with `AsyncStore.session`."""

    def __await__(self) -> Generator[None, None, AsyncSession]:
        """Return the handle itself: `await store.session(id)` is the same as without `await`."""
        yield from ()
        return self

    def __init__(self, session: Session, workers: Workers) -> None:
        """Take a session and the threads of its store."""
        self._session = session
        self._workers = workers

    @property
    def id(self) -> str:
        """As `Session.id`."""
        return self._session.id

    @property
    def blocking(self) -> Session:
        """The handle, for code that may block."""
        return self._session

    def __repr__(self) -> str:
        return f"<loopstore.AsyncSession {self.id!r}>"

    def with_policy(self, policy: Policy) -> AsyncSession:
        """As `Session.with_policy`."""
        loop = asyncio.get_running_loop()
        session = self._session._native.with_policy(native(policy, loop))
        return AsyncSession(Session(session), self._workers)

    async def leaf(self) -> str | None:
        """As `Session.leaf`."""
        return await self._workers.run(self._session.leaf)

    async def append(
        self, given: Messages, *, format: Form = "loopstore", key: str | None = None
    ) -> Appended:
        """As `Session.append`."""
        return await self._workers.run(self._session.append, given, format=format, key=key)

    async def append_once(
        self, key: str, given: Messages, *, format: Form = "loopstore"
    ) -> Appended:
        """As `Session.append_once`."""
        return await self._workers.run(self._session.append_once, key, given, format=format)

    async def append_batch(
        self,
        parts: Iterable[tuple[str | None, Messages]],
        *,
        format: Form = "loopstore",
    ) -> list[Appended]:
        """As `Session.append_batch`."""
        return await self._workers.run(self._session.append_batch, parts, format=format)

    async def appended(self, key: str) -> Appended | None:
        """As `Session.appended`."""
        return await self._workers.run(self._session.appended, key)

    async def append_keys(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> list[tuple[str, Appended]]:
        """As `Session.append_keys`."""
        return await self._workers.run(
            self._session.append_keys,
            prefix,
            after=after,
            before=before,
            descending=descending,
            limit=limit,
        )

    async def entries(
        self,
        *,
        whole_session: bool = False,
        loop_id: str | None = None,
        seqs: range | None = None,
        roles: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        after: tuple[str, int] | None = None,
        before: tuple[str, int] | None = None,
        last: int | None = None,
        limit: int | None = None,
    ) -> Rows:
        """As `Session.entries`."""
        return await self._workers.run(
            self._session.entries,
            whole_session=whole_session,
            loop_id=loop_id,
            seqs=seqs,
            roles=roles,
            kinds=kinds,
            after=after,
            before=before,
            last=last,
            limit=limit,
        )

    async def count_entries(
        self,
        *,
        whole_session: bool = False,
        loop_id: str | None = None,
        seqs: range | None = None,
        roles: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        after: tuple[str, int] | None = None,
        before: tuple[str, int] | None = None,
    ) -> int:
        """As `Session.count_entries`."""
        return await self._workers.run(
            self._session.count_entries,
            whole_session=whole_session,
            loop_id=loop_id,
            seqs=seqs,
            roles=roles,
            kinds=kinds,
            after=after,
            before=before,
        )

    async def exists(self) -> bool:
        """As `Session.exists`."""
        return await self._workers.run(self._session.exists)

    async def hide(self) -> str:
        """As `Session.hide`."""
        return await self._workers.run(self._session.hide)

    async def unhide(self, id: str) -> AsyncSession:
        """As `Session.unhide`."""
        session = await self._workers.run(self._session.unhide, id)
        return AsyncSession(session, self._workers)

    async def erase(self, *, reason: str | None = None) -> Json:
        """As `Session.erase`."""
        return await self._workers.run(self._session.erase, reason=reason)

    async def redact(
        self,
        *,
        reason: str | None = None,
        with_files: bool = False,
        dry_run: bool = False,
        allow: Iterable[str] = (),
        only: Iterable[str] = (),
        min_confidence: Confidence | None = None,
    ) -> Json:
        """As `Session.redact`."""
        return await self._workers.run(
            self._session.redact,
            reason=reason,
            with_files=with_files,
            dry_run=dry_run,
            allow=allow,
            only=only,
            min_confidence=min_confidence,
        )

    async def context(
        self,
        *,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        format: Form = "loopstore",
        check: bool = False,
        create: bool = False,
    ) -> Json:
        """As `Session.context`."""
        return await self._workers.run(
            self._session.context,
            max_tokens=max_tokens,
            max_bytes=max_bytes,
            format=format,
            check=check,
            create=create,
        )

    async def as_of(
        self,
        loop_id: str | None = None,
        turn: int | None = None,
        *,
        run: str | None = None,
        time: Instant | None = None,
        manifest: str | None = None,
        format: Form = "loopstore",
    ) -> Json:
        """As `Session.as_of`."""
        return await self._workers.run(
            self._session.as_of, loop_id, turn, run=run, time=time, manifest=manifest, format=format
        )

    async def record_context(self) -> Json:
        """As `Session.record_context`."""
        return await self._workers.run(self._session.record_context)

    async def prepare(
        self, *, format: Form = "loopstore", for_length: bool = False, create: bool = False
    ) -> Prepared:
        """As `Session.prepare`; a cancelled call commits nothing unless the commit had begun."""
        return await self._workers.cancellable(
            lambda cancel: self._session._prepare(format, for_length, create, cancel)
        )

    async def compact(
        self, *, force: bool = False, dry_run: bool = False, policy: Policy | None = None
    ) -> Json:
        """As `Session.compact`; coroutines of the policy's functions run on this event loop."""
        given = native_or_none(policy, asyncio.get_running_loop())
        return await self._workers.cancellable(
            lambda cancel: self._session._compact(force, dry_run, given, cancel)
        )

    async def undo(self, run: str | None = None, *, reason: str | None = None) -> Json:
        """As `Session.undo`."""
        return await self._workers.run(self._session.undo, run, reason=reason)

    async def redo(self, run: str | None = None, *, reason: str | None = None) -> Json:
        """As `Session.redo`."""
        return await self._workers.run(self._session.redo, run, reason=reason)

    async def drop(
        self,
        *targets: EditTarget,
        match: str | None = None,
        tool: str | None = None,
        larger: int | None = None,
        older_than: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """As `Session.drop`."""
        return await self._workers.run(
            self._session.drop,
            *targets,
            match=match,
            tool=tool,
            larger=larger,
            older_than=older_than,
            dry_run=dry_run,
            reason=reason,
        )

    async def clear(
        self,
        *targets: EditTarget,
        match: str | None = None,
        tool: str | None = None,
        larger: int | None = None,
        older_than: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """As `Session.clear`."""
        return await self._workers.run(
            self._session.clear,
            *targets,
            match=match,
            tool=tool,
            larger=larger,
            older_than=older_than,
            dry_run=dry_run,
            reason=reason,
        )

    async def replace(
        self,
        target: EditTarget,
        text: str,
        *,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """As `Session.replace`."""
        return await self._workers.run(
            self._session.replace, target, text, dry_run=dry_run, reason=reason
        )

    async def restore(self, *targets: EditTarget) -> list[Json]:
        """As `Session.restore`."""
        return await self._workers.run(self._session.restore, *targets)

    async def fork(self, loop_id: str, turn: int, seq: int | None = None) -> AsyncSession:
        """As `Session.fork`."""
        session = await self._workers.run(self._session.fork, loop_id, turn, seq)
        return AsyncSession(session, self._workers)

    async def at_loop(self, loop_id: str) -> AsyncSession:
        """As `Session.at_loop`."""
        session = await self._workers.run(self._session.at_loop, loop_id)
        return AsyncSession(session, self._workers)

    async def begin_loop(
        self,
        id: str | None = None,
        *,
        fresh: bool = False,
        agent: str | None = None,
        kind: str | Mapping[str, Any] | None = None,
    ) -> str:
        """As `Session.begin_loop`."""
        return await self._workers.run(
            self._session.begin_loop, id, fresh=fresh, agent=agent, kind=kind
        )

    async def end_loop(
        self, status: Literal["Completed", "Rejected", "Aborted"] = "Completed"
    ) -> None:
        """As `Session.end_loop`."""
        await self._workers.run(self._session.end_loop, status)

    async def open_calls(self) -> list[Json]:
        """As `Session.open_calls`."""
        return await self._workers.run(self._session.open_calls)

    async def start_call(self, call_id: str) -> CallState:
        """As `Session.start_call`."""
        return await self._workers.run(self._session.start_call, call_id)

    async def child(self, call_id: str, id: str) -> AsyncSession:
        """As `Session.child`."""
        session = await self._workers.run(self._session.child, call_id, id)
        return AsyncSession(session, self._workers)

    async def pin(self, loop_id: str, turn: int, seq: int | None = None) -> Json:
        """As `Session.pin`."""
        return await self._workers.run(self._session.pin, loop_id, turn, seq)

    async def unpin(self, loop_id: str, turn: int, seq: int | None = None) -> Json:
        """As `Session.unpin`."""
        return await self._workers.run(self._session.unpin, loop_id, turn, seq)

    async def pins(self) -> list[Json]:
        """As `Session.pins`."""
        return await self._workers.run(self._session.pins)

    async def search(
        self,
        text: str,
        *,
        role: str | None = None,
        tool: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Json:
        """As `Session.search`."""
        return await self._workers.run(
            self._session.search,
            text,
            role=role,
            tool=tool,
            since=since,
            until=until,
            hidden=hidden,
            limit=limit,
            offset=offset,
        )

    async def recall(self, question: str, max_tokens: int) -> Recall:
        """As `Session.recall`."""
        return await self._workers.run(self._session.recall, question, max_tokens)

    async def expand(
        self,
        first: int,
        last: int,
        *,
        loop_id: str | None = None,
        match: str | None = None,
        max_tokens: int | None = None,
        start: str | None = None,
    ) -> Json:
        """As `Session.expand`."""
        return await self._workers.run(
            self._session.expand,
            first,
            last,
            loop_id=loop_id,
            match=match,
            max_tokens=max_tokens,
            start=start,
        )

    async def history(self) -> Rows:
        """As `Session.history`."""
        return await self._workers.run(self._session.history)

    async def show(self) -> Json:
        """As `Session.show`."""
        return await self._workers.run(self._session.show)

    async def export(self, format: str, *, loop_id: str | None = None) -> bytes:
        """As `Session.export`, in memory."""
        return await self._workers.run(self._session.export, format, loop_id=loop_id)

    async def export_to(self, format: str, path: Path, *, loop_id: str | None = None) -> None:
        """As `Session.export`, to a file."""
        await self._workers.run(self._session.export, format, path, loop_id=loop_id)

    async def report(self) -> str:
        """As `Session.report`, in memory."""
        return await self._workers.run(self._session.report)

    async def report_to(self, path: Path) -> None:
        """As `Session.report`, to a file."""
        await self._workers.run(self._session.report, path)

    async def set_title(self, title: str) -> None:
        """As `Session.set_title`."""
        await self._workers.run(self._session.set_title, title)

    async def set_project(self, folder: Path) -> None:
        """As `Session.set_project`."""
        await self._workers.run(self._session.set_project, folder)
