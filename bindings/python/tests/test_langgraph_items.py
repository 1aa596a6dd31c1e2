"""The store for LangGraph's long-term memory, compared with the one that LangGraph keeps in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

import loopstore
from loopstore import Store
from loopstore.langgraph import LoopstoreStore


@pytest.fixture(params=["loopstore", "langgraph"])
def items(request: pytest.FixtureRequest, store: Store) -> BaseStore:
    """Return the store under test, and LangGraph's own, which must behave the same."""
    return LoopstoreStore(store) if request.param == "loopstore" else InMemoryStore()


def keys(found: list[Any]) -> list[str]:
    return [item.key for item in found]


def test_an_item_is_put_changed_and_deleted(items: BaseStore) -> None:
    place = ("users", "ada/1")
    assert items.get(place, "tea") is None
    items.put(place, "tea", {"likes": ["green", {"n": 1}], "x": None})
    first = items.get(place, "tea")
    assert first is not None and first.value == {"likes": ["green", {"n": 1}], "x": None}
    assert (first.key, first.namespace) == ("tea", place)
    items.put(place, "tea", {"likes": "black"})
    second = items.get(place, "tea")
    assert second is not None and second.value == {"likes": "black"}
    assert second.updated_at >= first.updated_at
    if isinstance(items, LoopstoreStore):
        assert second.created_at == first.created_at
    items.delete(place, "tea")
    items.delete(place, "never")
    assert items.get(place, "tea") is None and items.search(place) == []
    items.put(place, "tea", {"likes": "none"})
    assert keys(items.search(place)) == ["tea"]


def test_items_are_listed_and_filtered(items: BaseStore) -> None:
    for number in range(5):
        items.put(("notes", "a"), f"k/{number}", {"n": number, "kind": "odd" if number % 2 else "even", "in": {"x": number}})
    items.put(("notes", "b"), "other", {"n": 9, "kind": "odd"})
    items.put(("notes2",), "far", {"n": 9})
    assert set(keys(items.search(("notes",)))) == {*(f"k/{n}" for n in range(5)), "other"}
    assert set(keys(items.search(("notes",), filter={"kind": "odd"}))) == {"k/1", "k/3", "other"}
    assert set(keys(items.search(("notes",), filter={"n": {"$gte": 3, "$ne": 9}}))) == {"k/3", "k/4"}
    assert keys(items.search(("notes",), filter={"in": {"x": 2}})) == ["k/2"]
    assert len(items.search(("notes",), limit=2)) == 2
    pages = [keys(items.search(("notes",), limit=4, offset=at)) for at in (0, 4, 8)]
    assert sorted(sum(pages, [])) == sorted([*(f"k/{n}" for n in range(5)), "other"])
    assert items.search(("none",)) == []


def test_namespaces_are_listed(items: BaseStore) -> None:
    for place in (("a", "b", "c"), ("a", "b", "d"), ("a", "x"), ("z", "c")):
        items.put(place, "k", {"n": 1})
    items.put(("gone",), "k", {"n": 1})
    items.delete(("gone",), "k")
    listed = items.list_namespaces()
    assert [one for one in listed if one != ("gone",)] == [("a", "b", "c"), ("a", "b", "d"), ("a", "x"), ("z", "c")]
    assert items.list_namespaces(prefix=("a",), max_depth=2) == [("a", "b"), ("a", "x")]
    assert items.list_namespaces(suffix=("c",)) == [("a", "b", "c"), ("z", "c")]
    assert items.list_namespaces(prefix=("a", "*"), limit=1, offset=1) == [("a", "b", "d")]


async def test_coroutines_do_the_same(items: BaseStore) -> None:
    await items.aput(("a",), "k", {"n": 1})
    found = await items.aget(("a",), "k")
    assert found is not None and found.value == {"n": 1}
    assert keys(await items.asearch(("a",), filter={"n": 1})) == ["k"]
    assert await items.alist_namespaces() == [("a",)]
    await items.adelete(("a",), "k")
    assert await items.aget(("a",), "k") is None


def test_items_are_found_by_their_words(store: Store) -> None:
    items = LoopstoreStore(store)
    items.put(("users", "ada"), "drink", {"text": "likes green tea in the morning"})
    items.put(("users", "ada"), "food", {"text": "eats no fish"})
    items.put(("users", "bob"), "drink", {"text": "drinks coffee, never tea"})
    found = items.search(("users",), query="who drinks tea")
    assert {(item.namespace[1], item.key) for item in found} == {("ada", "drink"), ("bob", "drink")}
    assert all(item.score for item in found)
    assert keys(items.search(("users", "ada"), query="tea", filter={"text": "x"})) == []
    # A former version is not found, a hidden item neither.
    items.put(("users", "ada"), "drink", {"text": "likes water"})
    assert keys(items.search(("users", "ada"), query="tea")) == []
    assert keys(items.search(("users", "ada"), query="water")) == ["drink"]
    items.put(("users", "ada"), "secret", {"text": "water polo"}, index=False)
    items.put(("users", "ada"), "title", {"title": "water", "text": "polo"}, index=["text"])
    assert keys(items.search(("users", "ada"), query="water")) == ["drink"]
    assert keys(items.search(("users", "ada"), query="polo")) == ["title"]


def test_two_programs_and_a_restart_lose_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as one, Store.open(tmp_path / "a.db") as two:
        first, second = LoopstoreStore(one), LoopstoreStore(two)
        for number in range(5):
            first.put(("a",), "k", {"n": number, "by": 1})
            second.put(("a",), "k", {"n": number, "by": 2})
        found = first.get(("a",), "k")
        assert found is not None and found.value == {"n": 4, "by": 2}
    with Store.open(tmp_path / "a.db") as again:
        found = LoopstoreStore(again).get(("a",), "k")
        assert found is not None and found.value == {"n": 4, "by": 2}
        assert again.verify()["ok"] and len(again.session("langgraph-store/a").entries()) == 10


def test_wrong_arguments_are_named(store: Store) -> None:
    items = LoopstoreStore(store)
    with pytest.raises(loopstore.InvalidInputError, match="`namespace`"):
        items.put(("x" * 600,), "k", {"n": 1})
    with pytest.raises(loopstore.InvalidInputError, match="NaN|nan"):
        items.put(("a",), "k", {"n": float("nan")})
    items.put(("a",), "k", {"n": 1})
    with pytest.raises(loopstore.InvalidInputError, match="unknown operator"):
        items.search(("a",), filter={"n": {"$in": [1]}})
