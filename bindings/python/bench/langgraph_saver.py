"""LangGraph's checkpoints: a put and reads compared with `SqliteSaver`, in one run, and the size of the databases.

    python bench/langgraph_saver.py [--turns 500] [--bytes 1000] [--folder DIR] [--durability full|normal]

A turn is a question and an answer of the given size. "put" stores a checkpoint per turn with the list so far;
"graph" runs a real graph, which stores about three per turn; after its 100th turn the newest state and the last twenty
are read, in processor time. Both savers sync in the same way: with `full` at
each commit, with `normal` at none.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from loopstore import Store
from loopstore.langgraph import LoopstoreSaver

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=2 + n % 9)) for n in range(4000)]


def text(size: int) -> str:
    """Return prose of a size."""
    words: list[str] = []
    while size > 0:
        words.append(random.choice(WORDS))
        size -= len(words[-1]) + 1
    return " ".join(words)


def open_both(folder: Path, name: str, durability: Any) -> tuple[Store, dict[str, Any], Any]:
    """Open a store and a database of SQLite, each with a saver."""
    connection = sqlite3.connect(folder / f"{name}-sqlite.db", check_same_thread=False)
    theirs = SqliteSaver(connection)
    theirs.setup()
    if durability == "normal":
        connection.execute("PRAGMA synchronous = NORMAL")
    store = Store.open(folder / f"{name}-loopstore.db", durability=durability)
    return store, {"loopstore": LoopstoreSaver(store), "sqlite": theirs}, connection


def sizes(folder: Path, name: str, said: int) -> str:
    """Print the sizes of the databases."""
    told = []
    for which in ("loopstore", "sqlite"):
        size = sum(each.stat().st_size for each in folder.glob(f"{name}-{which}.db*"))
        told.append(f"{which} {size / 1e6:.1f} MB = {size / said:.2f} x")
    return f"{name}: database, times the bytes of the messages: " + ", ".join(told)


def puts(folder: Path, args: argparse.Namespace) -> None:
    """Put a checkpoint per turn."""
    store, savers, connection = open_both(folder, "put", args.durability)
    at: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in savers}
    messages: list[Any] = []
    said = 0
    for turn in range(args.turns):
        new = [HumanMessage(text(args.bytes), id=f"q{turn}"), AIMessage(text(args.bytes), id=f"a{turn}")]
        said += sum(len(message.content) for message in new)
        messages = [*messages, *new]
        for name, saver in savers.items():
            config = at.get(name) or {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            version = versions[name] = saver.get_next_version(versions.get(name), None)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": version}
            metadata = {"source": "loop", "step": turn, "parents": {}}
            begun = time.perf_counter()
            at[name] = saver.put(config, checkpoint, metadata, {"messages": version})
            times[name].append(time.perf_counter() - begun)
    for turn in (10, 50, 100, 200, 500, 1000, 2000):
        if turn <= args.turns:
            ours, theirs = (
                1000 * statistics.median(times[name][max(turn - 20, 0) : turn])
                for name in ("loopstore", "sqlite")
            )
            print(f"put, turn {turn}: loopstore {ours:.2f} ms, sqlite {theirs:.2f} ms, ratio {ours / theirs:.3f}")
    store.close()
    connection.close()
    print(sizes(folder, "put", said))


def graphs(folder: Path, args: argparse.Namespace) -> None:
    """Run the turns in a graph."""
    store, savers, connection = open_both(folder, "graph", args.durability)
    said = 0
    times: dict[str, list[float]] = {name: [] for name in savers}
    answers: list[str] = []
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [AIMessage(answers[-1])]})
    graph.add_edge(START, "model")
    agents = {name: graph.compile(checkpointer=saver) for name, saver in savers.items()}
    for turn in range(args.turns):
        asked, answered = text(args.bytes), text(args.bytes)
        answers.append(answered)
        said += len(asked) + len(answered)
        for name, agent in agents.items():
            begun = time.perf_counter()
            agent.invoke({"messages": [HumanMessage(asked)]}, {"configurable": {"thread_id": "t"}})
            times[name].append(time.perf_counter() - begun)
        if turn == 99:
            reads(agents, savers)
    ours, theirs = (1000 * statistics.median(times[name][-20:]) for name in ("loopstore", "sqlite"))
    print(f"graph, the last turns: loopstore {ours:.1f} ms, sqlite {theirs:.1f} ms, ratio {ours / theirs:.3f}")
    store.close()
    connection.close()
    print(sizes(folder, "graph", said))


def reads(agents: dict[str, Any], savers: dict[str, Any]) -> None:
    """Read the newest state, and the last twenty."""
    thread: Any = {"configurable": {"thread_id": "t"}}
    for what, count, read in (
        ("get_tuple", 50, lambda name: savers[name].get_tuple(thread)),
        ("history of 20", 10, lambda name: list(agents[name].get_state_history(thread, limit=20))),
    ):
        found: dict[str, list[float]] = {name: [] for name in savers}
        for name in savers:
            for _ in range(count):
                begun = time.process_time()
                read(name)
                found[name].append(time.process_time() - begun)
        ours, theirs = (1000 * statistics.median(found[name]) for name in ("loopstore", "sqlite"))
        print(f"{what}, turn 100: loopstore {ours:.2f} ms, sqlite {theirs:.2f} ms, ratio {ours / theirs:.2f}")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--bytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    args = parser.parse_args()
    random.seed(7)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        puts(Path(folder), args)
        graphs(Path(folder), args)


main()
