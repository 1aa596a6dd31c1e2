"""Threads that wait for a store in place of an event loop.

A call is passed to a thread through a queue, and its result to the loop as one callback: the futures of an
executor, and their connection to those of asyncio, take longer than many calls.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from loopstore import _loopstore
from loopstore._errors import ClosedError, ForkedError
from loopstore._work import Work

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Threads that start when they are needed. They belong to the process that created them."""

    def __init__(self, what: str, threads: int = 4) -> None:
        """Allow at most `threads` calls of `what` at once."""
        self._what = what
        self._pool = _Pool(f"loopstore-{what}", threads)
        weakref.finalize(self, self._pool.close)

    def check(self) -> None:
        """Raise an error if no more calls may begin."""
        if self._pool.is_forked():
            raise ForkedError(
                f"this {self._what} was opened before the process was forked; open it again in this process"
            )
        if self._pool.is_closed:
            raise ClosedError(f"the {self._what} is closed; open it again")

    def _begin(self, work: Callable[[], T]) -> _Call[T]:
        self.check()
        call = _Call(asyncio.get_running_loop(), work)
        if not self._pool.take(call):
            raise ClosedError(f"the {self._what} is closed; open it again")
        return call

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run `work` on a thread; not at all, if its caller is cancelled before it has begun."""
        call = self._begin(lambda: work(*args, **options))
        try:
            await call.waiter
        except asyncio.CancelledError:
            call.is_wanted = False
            raise
        return call.result()

    async def cancellable(self, work: Callable[[_loopstore.CancelFlag], T]) -> T:
        """Run `work` on a thread; its cancel flag is set if the caller is cancelled."""
        cancel = _loopstore.CancelFlag()
        try:
            return await self.run(work, cancel)
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def settled(
        self, work: Callable[[], T], cancel: _loopstore.CancelFlag | None = None
    ) -> T:
        """Run `work` on a thread. The work has ended when this returns or raises, cancelled or not."""
        call = self._begin(work)
        cancelled: asyncio.CancelledError | None = None
        while not call.is_done:
            try:
                await call.waiter
            except asyncio.CancelledError as error:
                call.waiter = call.loop.create_future()
                cancelled = error
                if cancel is not None:
                    cancel.cancel()
        if cancelled is not None:
            raise cancelled
        return call.result()

    def close(self) -> None:
        """End the threads after their calls."""
        self._pool.close()


class _Call(Work[T]):
    """A call that is passed to a thread, and its result."""

    __slots__ = ("is_done", "is_wanted", "loop", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> None:
        super().__init__(work)
        self.loop = loop
        self.waiter: asyncio.Future[None] = loop.create_future()
        self.is_wanted = True
        self.is_done = False

    def run(self) -> None:
        """Do the work, on a thread, if its caller still waits."""
        if self.is_wanted:
            self._run()

    def report(self) -> None:
        """Pass the result to the loop, from a thread."""
        try:
            self.loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            # The loop was closed meanwhile: no task waits any more.
            pass

    def _end(self) -> None:
        self.is_done = True
        if not self.waiter.done():
            self.waiter.set_result(None)


class _Pool:
    """The state that the threads refer to, so that they do not keep the `Workers` alive."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._process = os.getpid()
        self._lock = Lock()
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._open = 0
        self.is_closed = False
        _POOLS.add(self)

    def is_forked(self) -> bool:
        """Return true in a forked process: the threads do not exist there, and the lock may be held forever."""
        return self._process != os.getpid()

    def take(self, call: _Call[Any]) -> bool:
        """Pass a call to a thread, unless the pool is closed."""
        with self._lock:
            if self.is_closed:
                return False
            if len(self._threads) < min(self._open + 1, self._most):
                name = f"{self._name}-{len(self._threads)}"
                thread = Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._open += 1
            self._calls.put(call)
        return True

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            # First, so that a caller that continues with another call finds this thread free.
            with self._lock:
                self._open -= 1
            call.report()
            del call

    def close(self) -> None:
        """End each thread after the calls in the queue."""
        if self.is_forked():
            return
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                for _ in self._threads:
                    self._calls.put(None)

    def join(self) -> None:
        """Wait until the threads of this process have ended."""
        if not self.is_forked():
            for thread in self._threads:
                thread.join()


_POOLS: weakref.WeakSet[_Pool] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all threads before the interpreter ends: no thread may return from a call afterwards."""
    pools = list(_POOLS)
    for pool in pools:
        pool.close()
    for pool in pools:
        pool.join()
