"""Calls that Ctrl-C ends at once.

Python runs the handlers of signals on its main thread, and only between its own instructions: a call in the native part
would hold Ctrl-C back until it returns. So the main thread leaves a long call to a helper thread and waits in Python.
The hooks of a policy still run on the main thread, as in every call without asyncio.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from loopstore import _loopstore
from loopstore._work import Work

T = TypeVar("T")

_POLL_INTERVAL = 0.05
"""The interval in seconds in which a waiting helper checks whether its call was interrupted."""

_PATIENCE = 5.0
"""Seconds in which a cancelled call ends: it looks at its flag more often, and a commit takes less."""


def interruptible(work: Callable[[], T], cancel: _loopstore.CancelFlag | None = None) -> T:
    """Run `work`, and let Ctrl-C end the wait for it.

    With `cancel` the flag is set, and the call has ended before the exception is raised. Without it the work only reads,
    and nobody waits for its end.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(signal.getsignal(signal.SIGINT)):
        return work()
    call: _Call[T] = _Call(work)
    _Helper.take().calls.put(call)
    try:
        while (hook := call.inbox.get()) is not None:
            hook.run()
    except BaseException:
        call.is_interrupted = True
        if cancel is not None:
            cancel.cancel()
            call.ended.wait(_PATIENCE)
        raise
    return call.result()


def on_caller(work: Callable[[], T]) -> T:
    """Run `work`, a hook, on the thread that waits for the call which this thread runs."""
    call: _Call[Any] | None = getattr(_LOCAL, "call", None)
    if call is None:
        return work()
    hook: _Hook[T] = _Hook(work)
    call.inbox.put(hook)
    while True:
        try:
            hook.done.get(timeout=_POLL_INTERVAL)
        except Empty:
            if call.is_interrupted and not hook.is_begun:
                raise KeyboardInterrupt from None
            continue
        return hook.result()


class _Hook(Work[T]):
    """A hook that the main thread runs."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(work)
        self.is_begun = False
        self.done: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """Run the hook. Ctrl-C meanwhile is its error, which the call raises."""
        self.is_begun = True
        try:
            self._run()
        finally:
            self.done.put(None)


class _Call(Work[T]):
    """A call that the main thread waits for."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(work)
        self.inbox: SimpleQueue[_Hook[Any] | None] = SimpleQueue()
        self.is_interrupted = False
        self.ended = threading.Event()

    def run(self) -> None:
        """Run the work, on a helper."""
        _LOCAL.call = self
        self._run()
        _LOCAL.call = None
        self.ended.set()


class _Helper:
    """A thread that runs one call after the other. A call within a hook has a helper of its own."""

    _idle: list[_Helper] = []  # noqa: RUF012
    _process = os.getpid()

    def __init__(self) -> None:
        self.calls: SimpleQueue[_Call[Any]] = SimpleQueue()
        threading.Thread(target=self._run, name="loopstore-call", daemon=True).start()

    @classmethod
    def take(cls) -> _Helper:
        """Return a helper that is free."""
        if cls._process != os.getpid():
            # Threads do not survive a fork.
            cls._idle, cls._process = [], os.getpid()
        try:
            return cls._idle.pop()
        except IndexError:
            return cls()

    def _run(self) -> None:
        while True:
            call = self.calls.get()
            call.run()
            # First, so that the next call finds this helper free.
            self._idle.append(self)
            call.inbox.put(None)
            del call


_LOCAL = threading.local()
