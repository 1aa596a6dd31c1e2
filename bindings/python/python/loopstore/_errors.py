"""The exceptions of loopstore, by what a caller can do about them.

All of them are a `LoopstoreError`, whose text states the failure and the remedy. A write that failed had no
effect, unless the exception is an `UnconfirmedError`.
"""

from __future__ import annotations


class LoopstoreError(Exception):
    """The base of all exceptions of this package."""


class InvalidInputError(LoopstoreError, ValueError):
    """An id, message, query or option cannot be used; correct the call."""


class NotFoundError(LoopstoreError, LookupError):
    """The session, loop, run, turn or call does not exist.

    `what` is the kind of the missing object, and `id` its id, if they are known.
    """

    what: str | None = None
    id: str | None = None


class ExistsError(LoopstoreError):
    """A session or loop with this id exists; choose another id."""


class BusyError(LoopstoreError):
    """Another writer held the database longer than the timeout; try again."""


class LoopHeldError(LoopstoreError):
    """Another program drives the loop under a lease; wait until it is done.

    `loop_id`, `owner` and `until` are the loop, the owner of the lease and its end, if they are known.
    """

    loop_id: str | None = None
    owner: str | None = None
    until: str | None = None


class TooLargeError(LoopstoreError):
    """Something does not fit: `needed` of `unit` are required, and `budget` are allowed."""

    needed: int = 0
    budget: int = 0
    unit: str = "tokens"
    reason: str | None = None


class NeedsCompactionError(TooLargeError):
    """The context does not fit; compact the session, or allow more."""


class BudgetTooSmallError(TooLargeError):
    """Not even the smallest context or answer fits; allow more."""


class OpenError(LoopstoreError):
    """The database cannot be opened; the text states the reason."""


class StorageError(LoopstoreError, OSError):
    """A file or a server cannot be read or written; check it, then try again."""


class DiskFullError(StorageError):
    """The disk is full; free some space and try again."""


class ReadOnlyError(StorageError):
    """The store was opened for reading, or its file can only be read."""


class UnconfirmedError(StorageError):
    """The database did not confirm a commit: check whether it was applied before you repeat the call.

    An append with a `key` can be repeated safely.
    """


class DamagedError(LoopstoreError):
    """The database is damaged; restore a backup, or save what is intact with `loopstore verify --salvage`."""


class ForeignThreadError(LoopstoreError):
    """The thread's state was written by LangGraph of another language, whose values cannot be read here.

    Its messages and its search are shared. Use another thread id, or read the state in that language.
    """


class UnreadableError(LoopstoreError):
    """A part of a thread's state was redacted or is damaged; the text states which part."""


class ClosedError(LoopstoreError, RuntimeError):
    """The store was closed; open it again."""


class ForkedError(LoopstoreError):
    """The store was opened before the process was forked; open it again in this process."""


class UnsupportedError(LoopstoreError):
    """This build of loopstore lacks a feature; the text states how to build it."""


class InternalError(LoopstoreError):
    """loopstore itself failed, which should not happen; please report it."""
