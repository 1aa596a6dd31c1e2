"""Python's own `sqlite3` on the databases of open stores: another copy of SQLite in the same process.

`LOOPSTORE_TWO_COPIES=2000` plays that number of random histories, `LOOPSTORE_SEED=17` one.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loopstore import BusyError, Store

HISTORIES = int(os.environ.get("LOOPSTORE_TWO_COPIES", "40"))
SEEDS = [int(os.environ["LOOPSTORE_SEED"])] if "LOOPSTORE_SEED" in os.environ else range(HISTORIES)


def text_of(number: int) -> str:
    return f"message {number} " + "x" * 400


class Actor:
    """An actor that uses stores and connections of `sqlite3` at random, and records what was acknowledged."""

    def __init__(self, path: Path, name: str, seed: int, stores: int, others: int) -> None:
        self.path, self.name, self.random = path, name, random.Random(seed)
        self.stores: list[Store | None] = [None] * stores
        self.others: list[sqlite3.Connection | None] = [None] * others
        self.uncommitted: list[list[int]] = [[] for _ in range(others)]
        self.messages: list[str] = []
        self.notes: list[int] = []
        self.next = seed * 1000 % 2**40

    def act(self, times: int) -> None:
        for _ in range(times):
            who = self.random.randrange(len(self.stores) + len(self.others))
            if who < len(self.stores):
                self.with_store(who)
            else:
                self.with_other(who - len(self.stores))

    def with_store(self, at: int) -> None:
        store = self.stores[at]
        if store is None:
            self.stores[at] = Store.open(self.path)
            return
        # A store waits for five seconds, so it does not write while this thread holds the other copy's
        # transaction.
        holds = any(other is not None and other.in_transaction for other in self.others)
        choice = self.random.randrange(6)
        if choice == 0:
            store.close()
            self.stores[at] = None
        elif choice == 1:
            store.sql("SELECT count(*) AS n FROM v_messages")
        elif not holds:
            self.next += 1
            message = {"role": "user", "content": text_of(self.next)}
            try:
                store.session(f"{self.name}-{at}").append(message, format="openai")
            except BusyError:
                return
            self.messages.append(text_of(self.next))

    def with_other(self, at: int) -> None:
        other = self.others[at]
        if other is None:
            connect = sqlite3.connect(self.path, timeout=0.01, isolation_level=None, check_same_thread=False)
            self.others[at], self.uncommitted[at] = connect, []
            return
        acts: list[Callable[[], object]] = [
            lambda: other.execute("SELECT count(*) FROM v_messages").fetchall(),
            lambda: self.leave(at),
            lambda: other.execute("BEGIN IMMEDIATE"),
            lambda: other.execute("VACUUM"),
            lambda: other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(),
        ]
        if other.in_transaction:
            acts[2:] = [lambda: self.insert(other, at), lambda: self.commit(other, at), lambda: self.back(other, at)]
        try:
            self.random.choice(acts)()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise

    def leave(self, at: int) -> None:
        other = self.others[at]
        self.others[at] = None
        assert other is not None
        other.close()

    def insert(self, other: sqlite3.Connection, at: int) -> None:
        self.next += 1
        other.execute("INSERT INTO own_notes VALUES (?)", (self.next,))
        self.uncommitted[at].append(self.next)

    def commit(self, other: sqlite3.Connection, at: int) -> None:
        other.execute("COMMIT")
        self.notes += self.uncommitted[at]
        self.uncommitted[at] = []

    def back(self, other: sqlite3.Connection, at: int) -> None:
        other.execute("ROLLBACK")
        self.uncommitted[at] = []

    def close(self) -> None:
        everyone = [x for x in [*self.stores, *self.others] if x is not None]
        self.random.shuffle(everyone)
        for one in everyone:
            one.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("two") / "template.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE own_notes (n INTEGER PRIMARY KEY)")
    return path


def check(path: Path, actors: list[Actor], seed: int) -> None:
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)], seed
        notes = [n for (n,) in other.execute("SELECT n FROM own_notes ORDER BY n")]
        messages = sorted(text for (text,) in other.execute("SELECT text FROM v_messages"))
    assert notes == sorted(n for actor in actors for n in actor.notes), seed
    assert messages == sorted(m for actor in actors for m in actor.messages), seed
    with Store.open(path) as store:
        assert store.verify()["ok"], seed


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_one_thread(template: Path, tmp_path: Path, seed: int) -> None:
    path = Path(shutil.copy(template, tmp_path / "shared.db"))
    actor = Actor(path, "a", seed, stores=2 + seed % 3, others=2)
    actor.act(50)
    actor.close()
    check(path, [actor], seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_threads(template: Path, tmp_path: Path, seed: int) -> None:
    path = Path(shutil.copy(template, tmp_path / "shared.db"))
    actors = [Actor(path, f"t{at}", seed * 8 + at, stores=at % 2, others=1 - at % 2) for at in range(4)]

    def work(actor: Actor) -> None:
        actor.act(25)
        actor.close()

    threads = [threading.Thread(target=work, args=[actor]) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(path, actors, seed)


def test_a_reader_beside_an_open_store_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store.open(path)
    chat = store.session("s")
    for number in range(3):
        chat.append({"role": "user", "content": text_of(number)}, format="openai")
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM v_messages").fetchone() == (number + 1,)
        assert (tmp_path / "a.db-wal").exists()
    # Another process sees all of it, and leaves the log intact too.
    code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM v_messages').fetchone())"
    seen = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "(3,)"
    store.close()
    assert not (tmp_path / "a.db-wal").exists()


def test_a_store_whose_log_was_removed_writes_nothing_and_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    code = """
        import os, sys, loopstore
        path = sys.argv[1]
        old = loopstore.Store.open(path)
        old.session("s").append({"role": "user", "content": "one"}, format="openai")
        os.remove(path + "-wal")
        try:
            old.session("s").append({"role": "user", "content": "two"}, format="openai")
        except loopstore.LoopstoreError as error:
            print(error)
        new = loopstore.Store.open(path)
        for number in range(5):
            new.session("s").append({"role": "user", "content": str(number)}, format="openai")
        old.close()
        new.close()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True, check=True)
    assert "open the database again" in done.stdout
    with Store.open(path) as store:
        assert store.verify()["ok"]
        assert [m["content"][0]["text"] for m in store.session("s").context()["messages"]] == list("01234")
