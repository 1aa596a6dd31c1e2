"""Parameters of SQL."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import assistant, user

import loopstore
from loopstore import AsyncStore, Session, Store
from loopstore._sql import with_params


@pytest.mark.parametrize(
    "value",
    [None, 0, -1, 2**63 - 1, -(2**63) + 1, 1.5, -1e-9, 1e300, "", "Rome", "it's", "a'';--", "\\", "日本 🦀", "?", ":x"],
)
def test_a_value_comes_back(store: Store, value: Any) -> None:
    assert store.sql("SELECT ? AS x", [value]) == [{"x": value}]
    assert store.sql("SELECT :x AS x, :x AS y", {"x": value}) == [{"x": value, "y": value}]


def test_values_of_other_types_are_written_as_the_views_show_them(store: Store) -> None:
    at = datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    row = store.sql(
        "SELECT ? AS yes, ? AS at, ? AS day, ? AS data, ? AS price",
        [True, at, date(2026, 3, 1), b"\x00\xff", Decimal("1.25")],
    )
    expected = {"yes": 1, "at": "2026-03-01T12:00:00.000Z", "day": "2026-03-01", "data": "00ff", "price": 1.25}
    assert row == [expected]


def test_what_looks_like_a_parameter_may_be_none() -> None:
    query = "SELECT '? :a', \"?\", `:b`, 1 -- ? :c\n/* ? */ , x::text, $$ ? $$, $t$ :d $t$, E'\\'?', a12b, ?2, ?1, ?"
    assert with_params(query, ["one", 2]).endswith("a12b, (2), 'one', (2)")
    assert with_params(query, ["one", 2]).startswith(query[: query.index(", ?2")])
    assert with_params("SELECT ?", None) == "SELECT ?"
    assert with_params("SELECT -?, 1-?", [-1, -2]) == "SELECT -(-1), 1-(-2)"
    assert with_params("SELECT a[1: n], ?", [1]) == "SELECT a[1: n], (1)"


def test_bytes_are_bytes_on_a_server_too() -> None:
    assert with_params("SELECT ?", [b"\x00\xff"]) == "SELECT X'00ff'"
    # PostgreSQL reads `X'00ff'` as bits, and cannot compare them with bytes.
    assert with_params("SELECT ?", [b"\x00\xff"], is_postgres=True) == "SELECT '\\x00ff'::bytea"


@pytest.mark.parametrize(
    ("query", "params", "text"),
    [
        ("SELECT ?", [], r"params\[0\]"),
        ("SELECT ?", [1, 2], r"no parameter for `params\[1\]`"),
        ("SELECT :a", {}, ":a"),
        ("SELECT :a", {"a": 1, "b": 2}, "no parameter for `:b`"),
        ("SELECT :a", [1], "as a dict"),
        ("SELECT ?", {"a": 1}, "as a list"),
        ("SELECT ?", "x", "`params`"),
        ("SELECT ?", 3, "`params`"),
        ("SELECT ?", [object()], r"params\[0\]"),
        ("SELECT ?", [float("nan")], r"params\[0\]"),
        ("SELECT ?", ["a\0b"], "zero character"),
        ("SELECT ?", ["\ud800"], "surrogate"),
        ("SELECT ?", None, "parameters"),
    ],
)
def test_parameters_that_do_not_match_are_refused(store: Store, query: str, params: Any, text: str) -> None:
    with pytest.raises((TypeError, loopstore.InvalidInputError), match=text):
        store.sql(query, params)


async def test_parameters_reach_the_views(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        for city in ("Rome", "O'Brien"):
            await store.session(city).append([user("Rain?"), assistant("No.")])
        query = "SELECT session_id FROM v_sessions WHERE session_id = ? AND last_active_at > ?"
        hour = datetime.now() - timedelta(hours=1)
        assert await store.sql(query, ["O'Brien", hour]) == [{"session_id": "O'Brien"}]
        assert await store.sql(query, ["O'Brien", datetime.now() + timedelta(hours=1)]) == []


async def test_an_async_session_may_be_awaited_or_not(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = store.session("weather")
        await chat.append(user("Rain?"))
        awaited = await store.session("weather")
        assert len((await awaited.context())["messages"]) == 1
        assert await chat is chat


def test_an_async_session_may_be_made_outside_of_a_loop() -> None:
    store = AsyncStore(Store.in_memory())
    chat = store.session("weather")
    asyncio.run(chat.append(user("Rain?")))
    assert chat.blocking.exists()


def test_json_and_html_are_forms_of_an_export(chat: Session, tmp_path: Path) -> None:
    chat.append([user("Will it rain?"), assistant("No.")])
    side = chat.fork("loop-1", 0)
    side.append(user("Sure?"))
    assert chat.export("json") == chat.export("phi-core")
    assert chat.export("html").startswith(b"<!doctype html>")
    assert chat.export("html", loop_id=str(side.leaf())).startswith(b"<!doctype html>")
    chat.export("html", tmp_path / "a.html")
    chat.export("json", tmp_path / "a.json")
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    with Store.in_memory() as other:
        assert other.import_(tmp_path / "a.json")["added_messages"] == 3
    with pytest.raises(loopstore.InvalidInputError, match="not one of"):
        chat.export("yaml")
