"""ADK's events: an append and a read compared with ADK's own `DatabaseSessionService` on SQLite, in one run.

    python bench/adk_sessions.py [--turns 10 100 1000] [--bytes 1000] [--folder DIR] [--durability full|normal]

A turn is a question, a call, its result and an answer. Each service appends to its own session, which already
has the given number of turns; both sync in the same way: with `full` at each commit, with `normal` at none. A read
returns the whole session, in processor time; the first read of a process validates each event once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService, Session
from google.genai import types
from sqlalchemy import event

from loopstore import Store
from loopstore.adk import LoopstoreSessionService

ROUNDS = 20


def turn(number: int, size: int) -> list[Event]:
    """Return the events of a turn."""
    call = f"call-{number}"
    long = ("It will rain from noon on. " * (size // 27 + 1))[:size]
    parts: list[tuple[str, types.Part]] = [
        ("user", types.Part(text=f"Will it rain in place {number}? {long}")),
        ("agent", types.Part(function_call=types.FunctionCall(id=call, name="look", args={"at": number}))),
        ("agent", types.Part(function_response=types.FunctionResponse(id=call, name="look", response={"saw": long}))),
        ("agent", types.Part(text=long)),
    ]  # fmt: skip
    return [
        Event(
            author=author,
            invocation_id=f"i{number}",
            content=types.Content(role="user" if author == "user" else "model", parts=[part]),
            actions=EventActions(state_delta={"turn": number}),
        )
        for author, part in parts
    ]


async def append(service: BaseSessionService, session: Session, events: list[Event]) -> float:
    """Append events, and return the seconds per event."""
    begun = time.perf_counter()
    for each in events:
        await service.append_event(session, each)
    return (time.perf_counter() - begun) / len(events)


async def read(service: BaseSessionService) -> float:
    """Return the median of the seconds of processor time in which a session is read."""
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        await service.get_session(app_name="weather", user_id="ada", session_id="s")
        times.append(time.process_time() - begun)
    return statistics.median(times)


async def measure(folder: Path, args: argparse.Namespace) -> None:
    """Append turns to both, and print the time per event at each number of turns."""
    theirs = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
    level = args.durability.upper()

    @event.listens_for(theirs.db_engine.sync_engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {level}")

    store = Store.open(folder / "loopstore.db", durability=args.durability)
    services: dict[str, BaseSessionService] = {"loopstore": LoopstoreSessionService(store), "adk": theirs}
    sessions = {
        name: await service.create_session(app_name="weather", user_id="ada", session_id="s")
        for name, service in services.items()
    }
    times: dict[str, list[float]] = {name: [] for name in services}
    for number in range(max(args.turns)):
        events = turn(number, args.bytes)
        for name, service in services.items():
            copies = [each.model_copy(deep=True) for each in events]
            times[name].append(await append(service, sessions[name], copies))
        if number + 1 in args.turns:
            ours, other = (1000 * statistics.median(times[name][-ROUNDS:]) for name in services)
            print(f"append, turn {number + 1}: loopstore {ours:.2f} ms, adk {other:.2f} ms, ratio {ours / other:.3f}")
            ours, other = [1000 * await read(service) for service in services.values()]
            print(f"get_session, {4 * (number + 1)} events: loopstore {ours:.2f} ms, adk {other:.2f} ms, ratio {ours / other:.2f}")
    store.close()
    await theirs.db_engine.dispose()


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--bytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        asyncio.run(measure(Path(folder), args))


main()
