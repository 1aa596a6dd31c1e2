"""Fixtures and helpers that several tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import loopstore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[loopstore.Store]:
    """Return a store in a file."""
    with loopstore.Store.open(tmp_path / "agent.db") as store:
        yield store


@pytest.fixture
def chat(store: loopstore.Store) -> loopstore.Session:
    """Return an empty session."""
    return store.session("weather")


def user(text: str) -> dict[str, Any]:
    """Return a user message in loopstore's form."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    """Return an answer in loopstore's form."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def talk(chat: loopstore.Session, turns: int = 40) -> None:
    """Append so many messages that a compaction gains tokens."""
    chat.append(user("How is the weather?"))
    chat.append([assistant(f"Hour {hour}: " + "rain, " * 200) for hour in range(turns)])
