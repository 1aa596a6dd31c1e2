"""LangGraph's long-term memory in a store: items that agents put, and find by their words.

A namespace is a session, `langgraph-store/…`; each version of an item is a message in it. So a former version stays in
the record, and items are found by the store's own search, without embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from loopstore import _arguments
from loopstore._arguments import Path
from loopstore._errors import ExistsError, InvalidInputError
from loopstore._json import encode_message
from loopstore._store import Session, Store
from loopstore._workers import Workers

Json = dict[str, Any]
Namespace = tuple[str, ...]

_ROOT = "langgraph-store/"
_FIELD = "langgraphItem"
_HIDDEN = "langgraph.item"
"""The kind of the message of an item that is not searched."""

_FOUND = 4
"""How many hits are read for each item that is asked for: older versions and filtered items are among them."""

_OPERATORS = {
    "$eq": lambda one, other: one == other,
    "$ne": lambda one, other: one != other,
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}


class LoopstoreStore(BaseStore):
    """A store of LangGraph that keeps its items in loopstore, for programs with and without asyncio.

    `search(query=...)` finds items by their words. Values are JSON. `PutOp.index=False` takes an item out of the search;
    a list of fields searches only these.
    """

    def __init__(self, store: Store | Path) -> None:
        """Wrap an open store, or open or create the database at a path."""
        self.store = store if isinstance(store, Store) else Store.open(store)
        self._workers = Workers("store")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order, and return their results."""
        return [self._run(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do as `batch`."""
        given = list(ops)
        return await self._workers.run(lambda: self.batch(given))

    def _run(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(_session_id(op.namespace), op.namespace, op.key)
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise _arguments.wrong_type("op", "an operation of LangGraph's stores", op)

    def _get(self, id: str, namespace: Namespace, key: str) -> Item | None:
        chat = self.store.session(id)
        newest = chat.append_keys(_item(key), descending=True, limit=1)
        return _read(chat, namespace, newest[0][1]) if newest else None

    def _put(self, op: PutOp) -> None:
        chat = self.store.session(_session_id(op.namespace))
        if op.value is not None and not isinstance(op.value, dict):
            raise _arguments.wrong_type("value", "a dict, or None", op.value)
        while True:
            newest = chat.append_keys(_item(op.key), descending=True, limit=1)
            before = _read(chat, op.namespace, newest[0][1]) if newest else None
            if before is None and op.value is None:
                return
            number = int(newest[0][0].rsplit("/", 1)[1]) + 1 if newest else 0
            now = datetime.now(timezone.utc).isoformat()
            made = before.created_at.isoformat() if before is not None else now
            data = {"key": op.key, "value": op.value, "created_at": made, "updated_at": now}
            try:
                message = encode_message(_message(op, data))[0]
                chat.append(message, key=f"{_item(op.key)}{number:012}")
            except ExistsError:
                # Another program put the item meanwhile; the later one counts.
                continue
            return

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[SearchItem] = []
        for id, namespace in self._sessions(op.namespace_prefix):
            chat = self.store.session(id)
            if op.query:
                items = self._by_words(chat, namespace, op)
            else:
                items = [(item, None) for item in self._items(chat, namespace)]
            found += [
                SearchItem(
                    namespace, item.key, item.value, item.created_at, item.updated_at, score
                )
                for item, score in items
                if _matches(item.value, op.filter or {})
            ]
        if op.query:
            found.sort(key=lambda item: -(item.score or 0.0))
        else:
            found.sort(key=lambda item: item.updated_at, reverse=True)
        return found[op.offset : op.offset + op.limit]

    def _by_words(
        self, chat: Session, namespace: Namespace, op: SearchOp
    ) -> list[tuple[Item, float | None]]:
        wanted = (op.offset + op.limit) * _FOUND
        found: dict[str, tuple[Item, float | None]] = {}
        offset: int | None = 0
        while offset is not None and len(found) < op.offset + op.limit:
            page = chat.search(str(op.query), role="user", limit=max(wanted, 1), offset=offset)
            for hit in page["hits"]:
                seqs = range(hit["seq"], hit["seq"] + 1)
                entry = chat.entries(loop_id=hit["loop_id"], seqs=seqs)
                key = (_data(entry[0]["message"]) or {}).get("key") if entry else None
                if key is None or key in found:
                    continue
                newest = chat.append_keys(_item(key), descending=True, limit=1)
                at = newest[0][1]
                item = _read(chat, namespace, at)
                is_newest = (at.loop_id, hit["seq"]) == (hit["loop_id"], at.seqs.start)
                if item is not None and is_newest:
                    found[key] = (item, hit["score"])
            offset = page["next"] if isinstance(page["next"], int) else None
        return list(found.values())

    def _items(self, chat: Session, namespace: Namespace) -> list[Item]:
        """Return the newest versions of all items."""
        newest = {name.rsplit("/", 1)[0]: at for name, at in chat.append_keys("item/")}
        found = [_read(chat, namespace, at) for at in newest.values()]
        return [item for item in found if item is not None]

    def _sessions(self, prefix: Namespace) -> list[tuple[str, Namespace]]:
        """Return the sessions of the namespaces that begin in this way."""
        whole = _session_id(prefix) if prefix else _ROOT
        rows = self.store.sql(
            "SELECT session_id FROM v_sessions WHERE hidden_at IS NULL"
            " AND substr(session_id, 1, :size) = :prefix ORDER BY session_id",
            {"size": len(whole), "prefix": whole},
        )
        ids = [row["session_id"] for row in rows]
        found = [(id, tuple(map(unquote, id[len(_ROOT) :].split("/")))) for id in ids]
        return [(id, space) for id, space in found if space[: len(prefix)] == tuple(prefix)]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        found: dict[Namespace, None] = {}
        for id, namespace in self._sessions(()):
            fits = all(_fits(namespace, condition) for condition in op.match_conditions or ())
            if fits and self._items(self.store.session(id), namespace):
                found[namespace[: op.max_depth]] = None
        return sorted(found)[op.offset : op.offset + op.limit]


def _session_id(namespace: Namespace) -> str:
    if not namespace or not all(isinstance(part, str) and part for part in namespace):
        raise _arguments.wrong_value("namespace", "a tuple of texts", namespace)
    id = _ROOT + "/".join(quote(part, safe="") for part in namespace)
    if len(id) > 512:
        raise InvalidInputError(f"`namespace` is too long: its id has {len(id)} bytes, and 512 fit")
    return id


def _item(key: str) -> str:
    """Return the beginning of the names of an item's versions."""
    return f"item/{quote(_arguments.text('key', key), safe='')}/"


def _message(op: PutOp, data: Json) -> Json:
    if op.value is None or op.index is False:
        return {"role": "extension", "kind": _HIDDEN, "data": data}
    values = op.value if op.index is None else [_field(op.value, path) for path in op.index]
    text = "\n".join(_words(values))
    return {"role": "user", "content": [{"type": "text", "text": text}], _FIELD: data}


def _field(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _words(value: Any) -> Iterable[str]:
    """Return the texts of a value, with the names of its fields."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{name}: " + ", ".join(_words(inner))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _words(inner)
    elif value is not None:
        yield str(value)


def _data(message: Json) -> Json | None:
    data: Json | None = message.get(_FIELD) or message.get("data")
    return data


def _read(chat: Session, namespace: Namespace, at: Any) -> Item | None:
    """Return a version of an item; `None` if it is a deletion."""
    found = chat.entries(loop_id=at.loop_id, seqs=at.seqs)
    data = _data(found[0]["message"]) if found else None
    if data is None or data.get("value") is None:
        return None
    return Item(
        value=data["value"],
        key=data["key"],
        namespace=namespace,
        created_at=datetime.fromisoformat(data["created_at"]),
        updated_at=datetime.fromisoformat(data["updated_at"]),
    )


def _matches(value: Any, filter: Json) -> bool:
    return isinstance(value, dict) and all(
        _agrees(value.get(name), wanted) for name, wanted in filter.items()
    )


def _agrees(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if not any(str(name).startswith("$") for name in wanted):
        return _matches(value, wanted)
    for name, other in wanted.items():
        if name not in _OPERATORS:
            known = ", ".join(_OPERATORS)
            raise InvalidInputError(f"`filter` has the unknown operator {name}; known are {known}")
        try:
            if not _OPERATORS[name](value, other):
                return False
        except TypeError:
            # A value of another type is neither larger nor smaller.
            return False
    return True


def _fits(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", given) for wanted, given in zip(path, part, strict=True))
