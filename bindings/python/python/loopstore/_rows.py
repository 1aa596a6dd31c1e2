"""Rows as lists of dictionaries, which notebooks show as a table."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

_MOST_ROWS = 50
_MOST_CHARACTERS = 200


class Rows(list[dict[str, Any]]):
    """A list of dictionaries: `pandas.DataFrame(rows)` takes it, and a notebook shows it as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        columns = list(dict.fromkeys(name for row in self for name in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(_row(row.get(name) for name in columns) for row in self[:_MOST_ROWS])
        rest = len(self) - _MOST_ROWS
        more = f"<p>and {rest:,} more rows</p>" if rest > 0 else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
            if columns
            else "<p>no rows</p>"
        )


def _row(values: Iterable[Any]) -> str:
    return "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in values) + "</tr>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _MOST_CHARACTERS:
        text = text[: _MOST_CHARACTERS - 1] + "…"
    return escape(text).replace("\n", "<br>")
