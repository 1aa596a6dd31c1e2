"""Wrong arguments, broken files, full disks: an exception that states the remedy, never an abort."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import assistant, talk, user

import loopstore
from loopstore import Policy, Session, Store, _loopstore


def python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program in its own process."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("given", [None, 3, 2.5, object(), [3], [None], [[]], "", b"", "{", b"[1]", "\ud800", {}, [{}]])
def test_what_is_no_message_is_refused(chat: Session, given: Any) -> None:
    for form in ("loopstore", "openai", "responses", "anthropic"):
        with pytest.raises((TypeError, loopstore.InvalidInputError)):
            chat.append(given, format=form)  # type: ignore[arg-type]
    assert chat.context(create=True)["messages"] == [] and not chat.exists()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "nobody", "content": []},
        {"role": "user", "content": 7},
        {"role": "toolResult", "content": []},
        {"role": "user", "content": [{"type": "text", "text": float("nan")}]},
        {"role": "user", "content": [{"type": "text", "text": b"bytes"}]},
    ],
)
def test_a_message_that_cannot_be_kept_is_told_by_its_place(chat: Session, message: Any) -> None:
    with pytest.raises(loopstore.InvalidInputError) as caught:
        chat.append([user("first"), message])
    assert str(caught.value) and isinstance(caught.value, ValueError)
    assert not chat.exists()


def test_a_message_of_a_provider_without_its_format_is_refused_with_the_way_out(chat: Session) -> None:
    message = {"role": "tool", "tool_call_id": "c", "content": "rain"}
    with pytest.raises(loopstore.InvalidInputError, match="name the format: openai"):
        chat.append(message)


def test_json_that_nests_too_deep_is_refused(chat: Session) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for given in ({"role": "user", "content": deep}, b"[" * 100_000 + b"]" * 100_000):
        with pytest.raises(loopstore.InvalidInputError):
            chat.append(given)
    # Python itself frees such a value only in steps.
    while deep:
        deep = deep[0]


def test_arguments_of_wrong_types_are_type_errors(store: Store, chat: Session) -> None:
    calls: list[Any] = [
        lambda: Store.open(3),  # type: ignore[arg-type]
        lambda: Store(None),  # type: ignore[arg-type]
        lambda: Session("weather"),  # type: ignore[arg-type]
        lambda: store.session(None),  # type: ignore[arg-type]
        lambda: store.search(b"rain"),  # type: ignore[arg-type]
        lambda: store.sql(None),  # type: ignore[arg-type]
        lambda: chat.fork("loop-1", "0"),  # type: ignore[arg-type]
        lambda: chat.context(max_tokens="many"),  # type: ignore[arg-type]
        lambda: chat.append(user("a"), key=7),  # type: ignore[arg-type]
        lambda: chat.as_of(),
        lambda: chat.set_title(None),  # type: ignore[arg-type]
        lambda: chat.expand("a", "b"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    for overflow in (lambda: chat.context(max_tokens=-1), lambda: chat.fork("loop-1", 2**40)):
        with pytest.raises(loopstore.InvalidInputError, match="`max_tokens`|`turn`"):
            overflow()


def test_an_unknown_word_says_which_ones_are_known(store: Store, chat: Session) -> None:
    calls: list[Any] = [
        lambda: chat.context(format="yaml"),  # type: ignore[arg-type]
        lambda: chat.append(user("a"), format="yaml"),  # type: ignore[arg-type]
        lambda: store.search("rain", role="king"),
        lambda: Store.in_memory(counter="guess"),
        lambda: Store.open("x.db", durability="maybe"),  # type: ignore[arg-type]
        lambda: chat.export("yaml"),
        lambda: store.import_bytes(b"", format="yaml"),
    ]
    for call in calls:
        with pytest.raises(loopstore.InvalidInputError, match="known|not one of"):
            call()


def test_what_is_not_there_is_not_found(store: Store, chat: Session) -> None:
    assert chat.context(create=True)["messages"] == [] and chat.leaf() is None
    assert chat.prepare(create=True).messages == [] and chat.recall("anything", 200).parts == []
    assert chat.entries() == [] and chat.append_keys() == [] and chat.appended("key") is None
    calls: list[Any] = [
        chat.context,
        chat.prepare,
        lambda: chat.context(format="openai"),
        lambda: chat.prepare(format="responses"),
        chat.undo,
        chat.redo,
        chat.pins,
        chat.show,
        chat.hide,
        chat.report,
        chat.compact,
        chat.end_loop,
        lambda: chat.export("markdown"),
        lambda: chat.fork("loop-1", 0),
        lambda: chat.at_loop("loop-9"),
        lambda: chat.as_of("loop-1", 0),
        lambda: chat.start_call("c1"),
    ]
    for call in calls:
        with pytest.raises(loopstore.NotFoundError):
            call()
    with pytest.raises(loopstore.NotFoundError) as caught:
        chat.undo()
    assert (caught.value.what, caught.value.id) == ("session", "weather")
    for id in ("", "x" * 513):
        with pytest.raises(loopstore.InvalidInputError):
            store.session(id)


def test_a_budget_that_is_too_small_says_what_is_needed(store: Store, chat: Session) -> None:
    talk(chat)
    with pytest.raises(loopstore.NeedsCompactionError) as needs:
        chat.context(max_tokens=100)
    assert needs.value.needed > needs.value.budget == 100 and needs.value.unit == "tokens"
    with pytest.raises(loopstore.BudgetTooSmallError) as small:
        store.session("weather", policy=Policy(10)).prepare()
    assert isinstance(small.value, loopstore.TooLargeError)
    assert small.value.needed > small.value.budget


def test_sql_only_reads(store: Store, chat: Session) -> None:
    chat.append(user("a"))
    for query in ("DELETE FROM messages", "DROP TABLE sessions", "SELECT 1; SELECT 2", "nonsense", ""):
        with pytest.raises(loopstore.LoopstoreError):
            store.sql(query)
    assert store.sql("SELECT 1 AS a", max_rows=1) == [{"a": 1}]
    with pytest.raises(loopstore.InvalidInputError):
        store.sql("SELECT 1", timeout=-1)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.db")
    chat = store.session("weather")
    chat.append(user("a"))
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    for call in (chat.context, store.stats, lambda: store.session("b"), lambda: chat.append(user("b"))):
        with pytest.raises(loopstore.ClosedError):
            call()


def test_a_store_that_is_closed_in_the_middle_of_calls(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.db")
    done: list[object] = []

    def write(number: int) -> None:
        try:
            chat = store.session(f"s{number}")
            for n in range(1000):
                chat.append(user(str(n)))
                done.append(n)
        except loopstore.ClosedError:
            done.append("closed")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    while len(done) < 40:
        pass
    store.close()
    for thread in threads:
        thread.join()
    acknowledged = sum(isinstance(one, int) for one in done)
    with Store.open(tmp_path / "a.db") as again:
        assert again.stats()["messages"] == acknowledged
        assert again.verify()["ok"]


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 8192])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    with pytest.raises((loopstore.OpenError, loopstore.DamagedError)) as caught:
        Store.open(path)
    assert "a.db" in str(caught.value)
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "other.db")
    for path in (tmp_path, tmp_path / "missing" / "a.db", tmp_path / "link.db"):
        with pytest.raises(loopstore.OpenError):
            Store.open(path)
    with pytest.raises(loopstore.OpenError):
        Store.open(tmp_path / "b.db", read_only=True)
    with pytest.raises((loopstore.UnsupportedError, loopstore.OpenError)):
        Store.connect("postgres://nobody@127.0.0.1:1/none")


def test_damage_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        for number in range(20):
            talk(store.session(f"s{number}"), 20)
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content) - 4096, 40_960):
        content[at : at + 512] = os.urandom(512)
    path.write_bytes(content)
    told = 0
    try:
        with Store.open(path) as store:
            for number in range(20):
                try:
                    store.session(f"s{number}").context(check=True)
                except loopstore.LoopstoreError:
                    told += 1
            told += not store.verify()["ok"]
    except loopstore.LoopstoreError:
        told += 1
    assert told


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    # In its own process, a limit on the size of files acts as a full disk.
    ran = python(
        """
        import resource, signal, sys, loopstore
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = loopstore.Store.open(sys.argv[1])
        chat = store.session("weather")
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        kept = 0
        try:
            while True:
                chat.append({"role": "user", "content": "rain " * 2000}, format="openai")
                kept += 1
        except loopstore.StorageError as error:
            assert str(error)
        print(kept)
        """,
        tmp_path / "a.db",
    )
    assert ran.returncode == 0, ran.stderr
    with Store.open(tmp_path / "a.db") as store:
        assert store.stats()["messages"] == int(ran.stdout) > 0
        assert store.verify()["ok"]
        store.session("weather").append(user("There is room again."))


def test_a_panic_is_an_exception() -> None:
    with pytest.raises(loopstore.InternalError, match="a screw came loose"):
        _loopstore._panic("a screw came loose")


def test_a_summariser_that_fails_leaves_the_digest(store: Store) -> None:
    def fails(request: object) -> str:
        raise KeyError("no model")

    async def fails_later(request: object) -> str:
        raise TimeoutError("too late")

    def answers_nonsense(request: object) -> Any:
        return 7

    summarizers: list[Any] = [fails, fails_later, answers_nonsense]
    for summarizer in summarizers:
        chat = store.session(summarizer.__name__)
        talk(chat)
        report = chat.compact(force=True, policy=Policy(summarizer=summarizer))
        assert (report["outcome"], report["fallback"]) == ("committed", "digest")
        assert report["error"]


def test_a_summariser_writes_the_summary(store: Store) -> None:
    asked = []

    def write(request: loopstore.SummaryRequest) -> loopstore.SummaryAnswer:
        asked.append(request)
        return {"text": "## Plan\nStay inside on Tuesday.", "model": "stand-in", "usage": {"input": 9, "output": 3}}

    async def write_later(request: loopstore.SummaryRequest) -> str:
        return "## Plan\nStay inside on Tuesday."

    for summarizer in (write, write_later):
        chat = store.session(summarizer.__name__, policy=Policy(summarizer=summarizer))
        talk(chat)
        report = chat.compact(force=True)
        assert (report["strategy"], report["fallback"], report["error"]) == ("summarize", None, None)
        assert "Stay inside on Tuesday." in str(chat.context())
    assert asked[0]["prompt"] and asked[0]["system"] and asked[0]["max_tokens"] > 0
    assert store.history("write")[0]["outcome"] == "committed"


def test_an_interpreter_may_exit_with_a_store_open(tmp_path: Path) -> None:
    endings = ["pass", "sys.exit(3)", "raise RuntimeError", "import os; os._exit(4)"]
    for number, ending in enumerate(endings):
        ran = python(
            f"""
            import sys, threading, asyncio, loopstore
            from loopstore import Store
            store = Store.open(sys.argv[1])
            chat = store.session("weather")
            chat.append({{"role": "user", "content": "a"}}, format="openai")
            def run():
                while True:
                    chat.context()
            threading.Thread(target=run, daemon=True).start()
            {ending}
            """,
            tmp_path / f"{number}.db",
        )
        assert ran.returncode == [0, 3, 1, 4][number], ran.stderr
        assert "panicked" not in ran.stderr and "Fatal" not in ran.stderr
        with Store.open(tmp_path / f"{number}.db") as store:
            assert store.stats()["messages"] == 1


def test_the_command_line_comes_along(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        store.session("weather").append(user("Will it rain?"))
    run = [sys.executable, "-m", "loopstore", "--db", str(path)]
    listed = subprocess.run([*run, "sessions"], capture_output=True, text=True, check=True)
    assert "Will it rain?" in listed.stdout
    wrong = subprocess.run([*run, "nonsense"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "nonsense" in wrong.stderr


def test_nothing_leaks(tmp_path: Path) -> None:
    calls = int(os.environ.get("LOOPSTORE_LEAK_CALLS", "8000"))

    def size() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def work(store: Store, count: int) -> None:
        chat = store.session("weather")
        for number in range(count // 8):
            chat.append_once("once", user("Will it rain?"))
            chat.context()
            chat.context(format="anthropic")
            chat.prepare(format="responses")
            store.session("other")
            chat.entries(last=1)
            for bad in (lambda: chat.append("{"), lambda: chat.at_loop("none")):
                try:
                    bad()
                except loopstore.LoopstoreError:
                    pass

    with Store.in_memory() as store:
        store.session("weather").append([user("a"), assistant("b")])
        work(store, calls // 4)
        before = size()
        work(store, calls)
        assert size() - before < 4 << 20
