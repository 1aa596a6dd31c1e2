"""Time per call in one run: the OpenAI Agents SDK's own SQLite session and loopstore's; and the
cost of a call from Python above the native part.

    python bench/sessions.py [TURNS...]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents.memory import SQLiteSession

from loopstore import Store, _loopstore
from loopstore._json import encode
from loopstore.openai_agents import LoopstoreSession

ROUNDS = 40


def turn(number: int) -> list[Any]:
    """Return the items of a turn with a tool."""
    text = f"It will rain from noon on in place {number}. " * 10
    return [
        {"role": "user", "content": f"Will it rain in place {number}?"},
        {"type": "function_call", "call_id": f"c{number}", "name": "forecast", "arguments": "{}", "id": f"fc_{number}", "status": "completed"},
        {"type": "function_call_output", "call_id": f"c{number}", "output": text * 4},
        {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": text, "annotations": []}]},
    ]  # fmt: skip


async def medians(calls: dict[str, Callable[[int], Awaitable[object]]]) -> dict[str, float]:
    """Return the median of each call in microseconds; the calls alternate, so that both run under the same load.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        for name, call in calls.items():
            begun = time.perf_counter()
            await call(number)
            times[name].append((time.perf_counter() - begun) * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


async def sessions(folder: Path, turns: int) -> None:
    """Compare both sessions at each number of turns."""
    theirs = SQLiteSession("s", folder / f"theirs-{turns}.db")
    ours = LoopstoreSession("s", folder / f"ours-{turns}.db")
    for number in range(turns):
        await theirs.add_items(turn(number))
    for first in range(0, turns, 500):
        parts = [item for number in range(first, min(first + 500, turns)) for item in turn(number)]
        await ours.add_items(parts)
    add = await medians(
        {
            "theirs": lambda number: theirs.add_items(turn(turns + number)),
            "ours": lambda number: ours.add_items(turn(turns + number)),
        }
    )
    read = await medians(
        {"theirs": lambda _: theirs.get_items(40), "ours": lambda _: ours.get_items(40)}
    )
    for what, found in (("add a turn", add), ("read the last 40", read)):
        ratio = found["ours"] / found["theirs"]
        print(f"{turns:>6} turns  {what:<17} SQLiteSession {found['theirs']:>7.0f} µs"
              f"  LoopstoreSession {found['ours']:>7.0f} µs  ratio {ratio:.2f}")  # fmt: skip
    theirs.close()
    ours.close()


def overhead() -> None:
    """Print the cost that Python adds to a call: dictionaries instead of bytes, and the call of the native part.
    """
    store = Store.in_memory()
    chat = store.session("weather")
    message = {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]}
    given = encode(message)
    native = chat._native
    cancel = _loopstore.CancelFlag()
    calls: dict[str, Callable[[], object]] = {
        "append, dict": lambda: chat.append(message),
        "append, bytes, native": lambda: native.append("loopstore", given, None),
        "leaf": chat.leaf,
        "a call that does nothing": cancel.is_cancelled,
        "closed": lambda: store.closed,
    }
    for name, call in calls.items():
        times = []
        for _ in range(2000):
            begun = time.perf_counter()
            call()
            times.append((time.perf_counter() - begun) * 1e6)
        print(f"{name:<26} {statistics.median(times):>8.2f} µs")


def main() -> None:
    """Measure at each number of turns."""
    overhead()
    with tempfile.TemporaryDirectory() as folder:
        for turns in [int(arg) for arg in sys.argv[1:]] or [10, 1000, 10_000]:
            asyncio.run(sessions(Path(folder), turns))


main()
