"""Parameters of SQL: their values are written into the query as literals.

A query only reads, and SQLite and PostgreSQL read these literals alike, except bytes. A placeholder within a text, a
name or a comment is none. Two forms of PostgreSQL are taken for placeholders: the operator `?` of `jsonb`, and a slice
`a[1:n]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from loopstore import _arguments
from loopstore._errors import InvalidInputError

Params = Sequence[Any] | Mapping[str, Any]
"""The values of `?`, in order, or those of `:name`, by name."""

_TOKEN = re.compile(
    r"""(?P<skip>
        [eE]'(?:[^'\\]|''|\\.)*'          # A text of PostgreSQL with escapes.
      | '(?:[^']|'')*'
      | "(?:[^"]|"")*"
      | `(?:[^`]|``)*`
      | (?<!\w)\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
      | --[^\n]*
      | /\*.*?\*/
      | ::                                # A cast of PostgreSQL.
      | \w+
    )
    | \?(?P<number>\d+)?
    | :(?P<name>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


def with_params(query: str, params: Params | None, *, is_postgres: bool = False) -> str:
    """Return the query with the values of its parameters, as the store reads them."""
    if params is None:
        return query
    if isinstance(params, (str, bytes)) or not isinstance(params, (Sequence, Mapping)):
        expected = "a list of values for each `?`, or a dict of values for each `:name`"
        raise _arguments.wrong_type("params", expected, params)
    used: set[Any] = set()
    following = 0

    def value(token: re.Match[str]) -> str:
        nonlocal following
        if token["skip"] is not None:
            return token[0]
        name: Any = token["name"]
        if name is None:
            if token["number"] is None:
                name, following = following, following + 1
            else:
                name = following = int(token["number"]) - 1
                following += 1
        used.add(name)
        return _literal(_chosen(params, name), _shown(name), is_postgres)

    text = _TOKEN.sub(value, query)
    given: Any = params if isinstance(params, Mapping) else range(len(params))
    if left := [name for name in given if name not in used]:
        names = ", ".join(map(_shown, left))
        raise InvalidInputError(f"the query has no parameter for {names} of `params`")
    return text


def _shown(name: Any) -> str:
    return f"`:{name}`" if isinstance(name, str) else f"`params[{name}]`"


def _chosen(params: Params, name: Any) -> Any:
    if isinstance(name, str) != isinstance(params, Mapping):
        way = "a dict" if isinstance(name, str) else "a list"
        raise InvalidInputError(f"the query needs {_shown(name)}: give `params` as {way}")
    try:
        return params[name]
    except LookupError:
        raise InvalidInputError(f"the query needs {_shown(name)}, which `params` lacks") from None


def _literal(value: Any, name: str, is_postgres: bool) -> str:
    """Write a value as a literal."""
    name = name.strip("`")
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        if "\0" in value:
            raise _arguments.wrong_value(name, "a text without a zero character", value)
        return "'" + _arguments.text(name, value).replace("'", "''") + "'"
    if isinstance(value, datetime):
        # As the views show times.
        at = value.astimezone(timezone.utc).replace(tzinfo=None)
        return f"'{at.isoformat(timespec='milliseconds')}Z'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    if isinstance(value, (bytes, bytearray, memoryview)):
        # On PostgreSQL, `X''` is a bit string.
        return f"'\\x{bytes(value).hex()}'::bytea" if is_postgres else f"X'{bytes(value).hex()}'"
    if hasattr(value, "__index__"):
        return f"({value.__index__()})"
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return f"({value!r})" if isinstance(value, float) else f"({value})"
    expected = "None, a bool, a number, a text, bytes, or a time"
    raise _arguments.wrong_type(name, expected, value)
