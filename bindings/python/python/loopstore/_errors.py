"""The exceptions of loopstore, by what a caller can do about them.

Every one is a `LoopstoreError`. Its text says what went wrong and what to do; nothing of a write was kept,
unless it is an `UnconfirmedError`.
"""

from __future__ import annotations


class LoopstoreError(Exception):
    """The base of all exceptions of this package."""


class InvalidInputError(LoopstoreError, ValueError):
    """An id, message, query or option cannot be used; correct the call."""


class NotFoundError(LoopstoreError, LookupError):
    """There is no such session, loop, run, turn or call.

    `what` says what was looked for, and `id` its id, where that is known.
    """

    what: str | None = None
    id: str | None = None


class ExistsError(LoopstoreError):
    """There is a session or loop of this id; choose another."""


class BusyError(LoopstoreError):
    """Another writer held the database longer than the timeout; try again."""


class LoopHeldError(LoopstoreError):
    """Another program drives the loop under a lease; wait until it is done.

    `loop_id`, `owner` and `until` say which loop, who, and until when, where that is known.
    """

    loop_id: str | None = None
    owner: str | None = None
    until: str | None = None


class TooLargeError(LoopstoreError):
    """Something does not fit: `needed` of `unit` are needed, and `budget` fit."""

    needed: int = 0
    budget: int = 0
    unit: str = "tokens"
    reason: str | None = None


class NeedsCompactionError(TooLargeError):
    """The context does not fit; compact the session, or allow more."""


class BudgetTooSmallError(TooLargeError):
    """Not even the smallest context or answer fits; allow more."""


class OpenError(LoopstoreError):
    """The database cannot be opened; the text says why."""


class StorageError(LoopstoreError, OSError):
    """A file or a server cannot be read or written; check it, then try again."""


class DiskFullError(StorageError):
    """The disk is full; free some space and try again."""


class ReadOnlyError(StorageError):
    """The store was opened for reading, or its file can only be read."""


class UnconfirmedError(StorageError):
    """The database did not confirm a commit: look whether it was applied before you try again.

    An append with a `key` can simply be tried again.
    """


class DamagedError(LoopstoreError):
    """The database is damaged; restore a backup, or save what is intact with `loopstore verify --salvage`."""


class ForeignThreadError(LoopstoreError):
    """The thread's state was written by another language's LangGraph, whose values this one cannot read.

    Its messages and its search are shared. Use another thread id, or read the state in that language.
    """


class UnreadableError(LoopstoreError):
    """A part of a thread's state is not there any more: it was redacted or is damaged; the text says which."""


class ClosedError(LoopstoreError, RuntimeError):
    """The store was closed; open it again."""


class ForkedError(LoopstoreError):
    """The store was opened before the process was forked; open it again in this process."""


class UnsupportedError(LoopstoreError):
    """This build of loopstore lacks a feature; the text says how to build it with that."""


class InternalError(LoopstoreError):
    """loopstore failed in itself, which should not happen; please report it."""
