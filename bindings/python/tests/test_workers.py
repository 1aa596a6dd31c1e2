"""The threads behind the coroutines."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loopstore
from loopstore._workers import Workers


def threads(what: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(f"loopstore-{what}-")]


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


async def test_one_call_at_a_time_needs_one_thread() -> None:
    workers = Workers("one")
    for number in range(50):
        assert await workers.run(lambda number: number, number) == number
    assert len(threads("one")) == 1
    workers.close()


async def test_as_many_calls_as_threads_are_under_way() -> None:
    workers, meet = Workers("three", 3), threading.Barrier(3)
    await asyncio.gather(*(workers.run(meet.wait, 10) for _ in range(9)))
    assert len(threads("three")) == 3
    workers.close()


@pytest.mark.parametrize("way", ["run", "settled"])
async def test_what_is_raised_is_raised_where_is_waited(way: str) -> None:
    workers = Workers("fail")

    def fail() -> None:
        raise KeyError("x")

    for _ in range(2):
        with pytest.raises(KeyError):
            await getattr(workers, way)(fail)
    assert len(threads("fail")) == 1
    workers.close()


async def test_a_call_that_is_cancelled_before_it_began_never_does() -> None:
    workers, go, done = Workers("never", 1), threading.Event(), []
    first = asyncio.create_task(workers.run(go.wait))
    second = asyncio.create_task(workers.run(done.append, 2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    await first
    await workers.run(done.append, 3)
    assert done == [3]
    workers.close()


async def test_a_call_that_is_to_be_settled_is_done_however_often_it_is_cancelled() -> None:
    workers, go, done = Workers("settled", 1), threading.Event(), []
    cancel = loopstore._loopstore.CancelFlag()

    def work() -> None:
        go.wait()
        done.append(cancel.is_cancelled())

    task = asyncio.create_task(workers.settled(work, cancel))
    for _ in range(3):
        await asyncio.sleep(0.01)
        task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done() and not done
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]
    workers.close()


def test_several_loops_share_the_threads() -> None:
    workers = Workers("loops", 2)

    async def count() -> int:
        return sum(await asyncio.gather(*(workers.run(lambda: 1) for _ in range(200))))

    counts: list[int] = []
    loops = [threading.Thread(target=lambda: counts.append(asyncio.run(count()))) for _ in range(4)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert counts == [200] * 4 and len(threads("loops")) <= 2
    workers.close()


def test_a_loop_may_be_closed_before_its_call_is_done() -> None:
    workers, go, done = Workers("closed", 1), threading.Event(), []

    async def leave() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(workers.run(go.wait), 0.01)

    asyncio.run(leave())
    go.set()
    asyncio.run(workers.run(done.append, 1))
    assert done == [1]
    workers.close()


async def test_who_closes_gets_what_was_begun_and_begins_nothing() -> None:
    workers, go = Workers("ended", 1), threading.Event()
    calls = [asyncio.create_task(workers.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    workers.close()
    workers.close()
    with pytest.raises(loopstore.ClosedError):
        await workers.run(go.wait)
    go.set()
    assert await asyncio.gather(*calls) == [True] * 3
    until(lambda: not threads("ended"))


async def test_threads_that_nobody_needs_end() -> None:
    workers = Workers("left")
    await workers.run(lambda: None)
    del workers
    gc.collect()
    until(lambda: not threads("left"))


async def test_what_came_back_is_not_kept() -> None:
    class Thing:
        pass

    workers = Workers("kept", 1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            await workers.run(Thing)
            with pytest.raises(KeyError):
                await workers.run({}.__getitem__, Thing())
        await workers.run(lambda: None)
        kept: list[Any] = [one for one in gc.get_objects() if isinstance(one, Thing)]
        assert len(kept) <= 1
    finally:
        gc.enable()
    workers.close()


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise RuntimeError"])
def test_an_interpreter_that_exits_waits_for_calls(tmp_path: Path, ending: str) -> None:
    program = f"""
import asyncio, sys, time
from loopstore import AsyncStore
async def main():
    store = await AsyncStore.open(sys.argv[1])
    chat = await store.session("weather")
    def late():
        time.sleep(0.2)
        chat.blocking.append({{"role": "user", "content": "late"}}, format="openai")
    for _ in range(3):
        task = asyncio.ensure_future(store._workers.run(late))
    await asyncio.sleep(0.05)
asyncio.run(main())
{ending}
"""
    path = tmp_path / "a.db"
    run = [sys.executable, "-c", program, str(path)]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert ran.returncode == {"pass": 0, "sys.exit(3)": 3}.get(ending, 1), ran.stderr
    assert "Fatal" not in ran.stderr and "panicked" not in ran.stderr
    with loopstore.Store.open(path) as store:
        assert store.stats()["messages"] == 3
