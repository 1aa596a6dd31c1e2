"""A call that another thread makes, and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Work(Generic[T]):
    """A function, and its result."""

    __slots__ = ("_error", "_value", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        """Take the function."""
        self._work: Callable[[], T] | None = work
        self._value: T | None = None
        self._error: BaseException | None = None

    def _run(self) -> None:
        work, self._work = self._work, None
        try:
            self._value = cast(Callable[[], T], work)()
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        """Return the result, or raise the exception."""
        error, self._error = self._error, None
        if error is None:
            return cast(T, self._value)
        try:
            raise error
        finally:
            # The traceback of the exception refers to this frame.
            del error
