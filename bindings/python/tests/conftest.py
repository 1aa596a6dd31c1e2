"""What several tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loopstore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[loopstore.Store]:
    """A store in a file."""
    with loopstore.Store.open(tmp_path / "agent.db") as store:
        yield store


@pytest.fixture
def chat(store: loopstore.Store) -> loopstore.Session:
    """A session that nothing was said in."""
    return store.session("weather")


def user(text: str) -> dict[str, Any]:
    """A user message in loopstore's form."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    """An answer in loopstore's form."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def talk(chat: loopstore.Session, turns: int = 40) -> None:
    """Say so much that a compaction gains something."""
    chat.append(user("How is the weather?"))
    chat.append([assistant(f"Hour {hour}: " + "rain, " * 200) for hour in range(turns)])


Talk = Callable[[loopstore.Session, int], None]
