"""Many processes, threads and tasks, some of which are killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import assistant, talk, user

import loopstore
from loopstore import AsyncStore, Policy, Store

KILLS = int(os.environ.get("LOOPSTORE_KILLS", "10"))


def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    code = """
        import sys, loopstore
        chat = loopstore.Store.open(sys.argv[1]).session("weather")
        n = int(sys.argv[2])
        while True:
            chat.append([{"role": "user", "content": f"{n} {part}"} for part in "ab"], format="openai")
            print(n, flush=True)
            n += 1
    """
    path, said = tmp_path / "a.db", 0
    for kill in range(KILLS):
        command = [sys.executable, "-c", textwrap.dedent(code), str(path), str(said)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(1 + kill % 7):
                said = int(writer.stdout.readline()) + 1
            time.sleep(0.002 * (kill % 5))
            writer.send_signal(signal.SIGKILL)
            said = max([said, *(int(line) + 1 for line in writer.stdout.read().split())])
        with Store.open(path) as store:
            texts = [m["content"][0]["text"] for m in store.session("weather").context()["messages"]]
            assert store.verify()["ok"]
        # The acknowledged messages are stored, complete and in order, possibly followed by an unacknowledged one.
        whole = [f"{n} {part}" for n in range(len(texts) // 2) for part in "ab"]
        assert texts == whole and said <= len(texts) // 2 <= said + 1
        said = len(texts) // 2


def append_many(path: str, name: str, count: int) -> None:
    with Store.open(path) as store:
        chat = store.session("weather")

        def write(thread: int) -> None:
            for number in range(count):
                chat.append(user(f"{name}-{thread}-{number}"))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_four_processes_of_eight_threads_write_one_session(tmp_path: Path) -> None:
    path, spawn = str(tmp_path / "a.db"), multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=append_many, args=(path, f"p{n}", 10)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Store.open(path) as store:
        messages = store.session("weather").context()["messages"]
        assert store.verify()["ok"]
    texts = [message["content"][0]["text"] for message in messages]
    assert len(set(texts)) == len(texts) == 320
    for process in range(4):
        for thread in range(8):
            own = [text for text in texts if text.startswith(f"p{process}-{thread}-")]
            assert own == [f"p{process}-{thread}-{number}" for number in range(10)]


def test_a_store_does_not_go_through_a_fork(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.db")
    chat = store.session("weather")
    chat.append(user("before"))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            chat.context()

    # These threads hold locks during the fork.
    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for call in (chat.context, store.stats, store.close, lambda: store.session("b")):
                    try:
                        call()
                        os._exit(2)
                    except loopstore.ForkedError as error:
                        assert "open it again" in str(error)
                del chat, store
                with Store.open(tmp_path / "a.db") as own:
                    own.session("weather").append(user("of the child"))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    for thread in threads:
        thread.join()
    chat.append(user("after"))
    assert len(chat.context()["messages"]) == 7
    store.close()


async def test_an_async_store_does_not_go_through_a_fork(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        await chat.append(user("before"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                chat.append(user("of the child")).send(None)
            except loopstore.ForkedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_five_hundred_tasks(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db", durability="normal") as store:

        async def chat(number: int) -> int:
            session = await store.session(f"s{number % 50}")
            await session.append(user(f"{number}"))
            await session.append(assistant(f"{number}"))
            return len((await session.context())["messages"])

        assert min(await asyncio.gather(*map(chat, range(500)))) >= 2
        assert (await store.stats())["messages"] == 1000
        assert (await store.verify())["ok"]
        assert len(await store.sessions()) == 50


async def test_the_async_face_has_every_name(tmp_path: Path) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Store) <= public(AsyncStore)
    assert public(loopstore.Session) <= public(loopstore.AsyncSession)
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather", policy=Policy(6_000))
        talk(chat.blocking)
        ready = await chat.prepare(format="openai")
        assert ready.was_compacted
        assert (await chat.undo())["outcome"] == "undone"
        assert (await chat.redo())["outcome"] == "redone"
        side = await chat.fork("loop-1", 3)
        await side.append(user("aside"))
        assert await side.leaf() != await chat.leaf()
        assert (await chat.search("rain"))["hits"] and (await store.search("rain", by="session"))["sessions"]
        assert (await chat.recall("rain", 300)).parts and (await chat.show())["loops"]
        assert b"rain" in await chat.export("markdown")
        await chat.report_to(tmp_path / "a.html")
        assert (await chat.as_of("loop-1", 0))["messages"] and await chat.history()
        assert (await chat.entries(last=1))[0]["seq"] and await chat.count_entries() > 40
    with pytest.raises(loopstore.ClosedError):
        await chat.context()


async def test_a_message_appended_during_a_compaction_is_there_afterwards(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        talk(chat.blocking)

        async def summarize(request: loopstore.SummaryRequest) -> str:
            await chat.append(user("Meanwhile."))
            return "## Plan\nStay inside."

        report = await chat.compact(force=True, policy=Policy(summarizer=summarize))
        assert (report["outcome"], report["fallback"]) == ("committed", None)
        context = await chat.context()
        assert context["messages"][-1]["content"][0]["text"] == "Meanwhile."
        assert "Stay inside." in str(context)


async def test_a_compaction_whose_task_is_cancelled_commits_nothing(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        talk(chat.blocking)
        begun = asyncio.Event()

        async def summarize(request: loopstore.SummaryRequest) -> str:
            begun.set()
            await asyncio.sleep(30)
            return "never"

        before = await chat.context()
        task = asyncio.create_task(chat.compact(force=True, policy=Policy(summarizer=summarize)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            runs = await chat.history()
            if runs and runs[0]["outcome"] != "running":
                break
            await asyncio.sleep(0.05)
        assert (await chat.context())["messages"] == before["messages"]


def test_the_lock_of_the_interpreter_is_free_during_a_call(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        chat = store.session("weather")
        talk(chat, 400)
        turns, stop = [0], threading.Event()

        def count() -> None:
            while not stop.is_set():
                turns[0] += 1

        counter = threading.Thread(target=count)
        counter.start()
        before = turns[0]
        store.verify()
        during = turns[0] - before
        stop.set()
        counter.join()
        assert during > 100
