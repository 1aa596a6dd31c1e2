"""Checks and conversions of arguments: an error names the argument, its unit, and what was given."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from os import PathLike, fspath
from os.path import expanduser
from typing import Any, TypeVar

from loopstore._errors import InvalidInputError

Path = str | PathLike[str]
"""A path; `~` at its start is the home folder."""

Paths = Path | Iterable[Path]
"""A path, or several."""

Instant = datetime | date | timedelta | str
"""A time: a `datetime` (without a zone it is local), a `date` (the whole day, local), a `timedelta` (so long ago), or
ISO 8601 text (without a zone it is UTC)."""

T = TypeVar("T")

_MEMORY = ":memory:"
_MOST = 2**63 - 1
MOST_PLACE = 2**32 - 1
"""The last position of a turn or message, and the largest number of them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_SHOWN = 60

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*([Zz]|[+-]\d\d(?::?\d\d)?)?)?"
)


def shown(value: Any) -> str:
    """Return a value for an error, cut to a part of a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def typed(value: Any) -> str:
    """Return a value for an error, with its type."""
    text, kind = shown(value), type(value).__name__
    return text if value is None or text.startswith((kind, "<")) else f"the {kind} {text}"


def wrong_type(name: str, expected: str, value: Any) -> TypeError:
    """Return the error of an argument of another type."""
    return TypeError(f"`{name}` is {expected}, not {typed(value)}")


def wrong_value(name: str, expected: str, value: Any) -> InvalidInputError:
    """Return the error of an argument that is out of range, or unknown."""
    return InvalidInputError(f"`{name}` is {expected}, not {shown(value)}")


def text(name: str, value: Any) -> str:
    """Return a text that can be stored."""
    if not isinstance(value, str):
        raise wrong_type(name, "a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            at = f"character {error.start} of it is half of a surrogate pair"
            raise InvalidInputError(f"`{name}` is not Unicode text: {at}") from error
    return value


def optional_text(name: str, value: Any) -> str | None:
    """Return a text that can be stored, or `None`."""
    return None if value is None else text(name, value)


def count(name: str, value: Any, unit: str = "", least: int = 0, most: int = _MOST) -> int:
    """Return a whole number: an `int`, or a number that can be an index, such as those of NumPy."""
    expected = f"a whole number{' of ' + unit if unit else ''}"
    if isinstance(value, bool):
        raise wrong_type(name, expected, value)
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(name, expected, value) from None
    if not least <= number <= most:
        bounds = f"from {least}" if number < least else f"up to {most}"
        raise wrong_value(name, f"{expected} {bounds}", value)
    return number


def optional_count(
    name: str, value: Any, unit: str = "", least: int = 0, most: int = _MOST
) -> int | None:
    """Return a whole number, or `None`."""
    return None if value is None else count(name, value, unit, least, most)


def place(name: str, value: Any, what: str = "turn") -> int:
    """Return the position of a turn, or of a message."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(name, f"the position of a {what}, a whole number from 0", value)
    number = operator.index(value)
    if not 0 <= number <= MOST_PLACE:
        raise wrong_value(name, f"the position of a {what}, a whole number from 0", value)
    return number


def optional_place(name: str, value: Any, what: str = "turn") -> int | None:
    """Return the position of a turn, or of a message, or `None`."""
    return None if value is None else place(name, value, what)


def seconds(name: str, value: Any) -> float | None:
    """Return a time span in seconds: a number or a `timedelta`; `None` is no limit."""
    expected = "a number of seconds, or a timedelta"
    if value is None:
        return None
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, bool) or not hasattr(value, "__float__"):
        raise wrong_type(name, expected, value)
    else:
        found = float(value)
    if not 0 <= found < 2**53:
        raise wrong_value(name, f"{expected} from 0; None is no limit", value)
    return found


def flag(name: str, value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    return value


def choice(name: str, value: T, known: Collection[str]) -> T:
    """Return one of some words."""
    if not isinstance(value, str):
        raise wrong_type(name, "one of " + ", ".join(known), value)
    if value not in known:
        words = ", ".join(known)
        raise InvalidInputError(f"unknown `{name}` {shown(value)}; known are {words}")
    return value


def optional_choice(name: str, value: T, known: Collection[str]) -> T:
    """Return one of some words, or `None`."""
    return value if value is None else choice(name, value, known)


def texts(name: str, value: Any) -> list[str]:
    """Return a list of texts; a single text is an error, since it is also a list of its characters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise wrong_type(name, "a list of texts", value)
    return [text(f"{name}[{at}]", each) for at, each in enumerate(value)]


def optional_texts(name: str, value: Any) -> list[str] | None:
    """Return a list of texts, or `None`."""
    return None if value is None else texts(name, value)


def path(name: str, value: Any) -> str:
    """Return a path, with the home folder in place of `~`."""
    found = fspath(value) if isinstance(value, PathLike) else value
    if not isinstance(found, str):
        raise wrong_type(name, "a path, as text or pathlib.Path", value)
    if not found:
        raise wrong_value(name, "a path", value)
    if "\0" in found:
        raise wrong_value(name, "a path, which has no zero character", value)
    return expanduser(found)


def location(name: str, value: Any) -> str | None:
    """Return the path of a database file; `None` is a database in memory.

    A text may also be a URL as of SQLAlchemy: `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://`.
    """
    found = path(name, value)
    if found == _MEMORY:
        return None
    if not isinstance(value, str):
        return found
    scheme, colon, rest = value.partition("://")
    if not colon:
        if value.startswith("file:"):
            raise InvalidInputError(f"`{name}` is a path, not a URI of SQLite: give the path in {value}")
        return found
    if scheme in ("postgres", "postgresql"):
        raise InvalidInputError(f"`{name}` is the URL of a server: use Store.connect(url)")
    if scheme not in ("sqlite", "sqlite3"):
        raise wrong_value(name, "a path, or a URL of the form sqlite:///PATH", value)
    if rest in ("", "/", "/" + _MEMORY, _MEMORY):
        return None
    if not rest.startswith("/") or "?" in rest:
        expected = "of the form sqlite:///relative.db or sqlite:////absolute.db, without a host and options"
        raise wrong_value(name, f"a path, or a URL {expected}", value)
    return path(name, rest[1:])


def paths(name: str, given: Iterable[Any]) -> list[str]:
    """Return the paths of all arguments, which may be lists of paths."""

    def each() -> Iterator[Any]:
        for one in given:
            if isinstance(one, (str, bytes, PathLike)) or not isinstance(one, Iterable):
                yield one
            else:
                yield from one

    found = [path(name, one) for one in each()]
    if not found:
        raise InvalidInputError(f"`{name}` names no file and no folder: give at least one")
    return found


def function(name: str, value: Any, argument: str) -> None:
    """Fail unless the value is a function that can be called with one argument."""
    if not callable(value):
        raise wrong_type(name, f"a function of {argument}", value)
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        # A function of another language may have none.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"`{name}` is called with one argument, {argument}, and takes {signature}: {error}"
        ) from None


def _moment(name: str, value: Any, is_end: bool) -> datetime:
    """Return an instant in UTC; the last one of a day if it ends a range."""
    expected = "a datetime, a date, a timedelta, or ISO 8601 text such as 2026-01-31T12:00:00Z"
    try:
        if isinstance(value, datetime):
            return value.astimezone(timezone.utc)
        if isinstance(value, date):
            return _of_day(value, is_end).astimezone(timezone.utc)
        if isinstance(value, timedelta):
            return datetime.now(timezone.utc) - value
        if isinstance(value, str):
            return _of_text(name, value, is_end, expected)
    except (OverflowError, OSError) as error:
        raise InvalidInputError(f"`{name}` is out of range: {shown(value)}: {error}") from error
    raise wrong_type(name, expected, value)


def _of_day(day: date, is_end: bool) -> datetime:
    begin = datetime.combine(day, time())
    return begin if not is_end else begin + timedelta(days=1) - _MILLISECOND


def _of_text(name: str, value: str, is_end: bool, expected: str) -> datetime:
    found = _ISO.fullmatch(value.strip())
    if found is None:
        raise wrong_value(name, expected, value)
    day, minutes, second, fraction, zone = found.groups()
    try:
        if minutes is None:
            return _of_day(date.fromisoformat(day), is_end).replace(tzinfo=timezone.utc)
        read = datetime.fromisoformat(f"{day}T{minutes}:{second or '00'}")
        read = read.replace(microsecond=int((fraction or "0").ljust(6, "0")[:6]))
        if zone is None or zone in "Zz":
            return read.replace(tzinfo=timezone.utc)
        hours, rest = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        offset = timedelta(hours=hours, minutes=rest)
        place = timezone(-offset if zone[0] == "-" else offset)
        return read.replace(tzinfo=place).astimezone(timezone.utc)
    except ValueError as error:
        raise InvalidInputError(f"`{name}` is no time: {shown(value)}: {error}") from error


def iso(name: str, value: Any, *, is_end: bool = False) -> str:
    """Return an instant as ISO 8601 text in UTC, with milliseconds."""
    at = _moment(name, value, is_end)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def optional_iso(name: str, value: Any, *, is_end: bool = False) -> str | None:
    """Return an instant as ISO 8601 text in UTC, or `None`."""
    return None if value is None else iso(name, value, is_end=is_end)


def milliseconds(name: str, value: Any, *, is_end: bool = False) -> int | None:
    """Return an instant in milliseconds since 1970; a number is one already."""
    if value is None:
        return None
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return count(name, value, "milliseconds since 1970", least=-_MOST - 1)
    return (_moment(name, value, is_end) - _EPOCH) // _MILLISECOND
