"""The logger `loopstore`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import talk, user

import loopstore
from loopstore import AsyncStore, Policy, Session, Store, _log


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return the messages of a level, and forget all."""
    found = [record.getMessage() for record in caplog.records if record.levelno == level]
    caplog.clear()
    return found


def test_appends_and_compactions_are_logged(chat: Session, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "loopstore")
    done = chat.append(user("Will it rain?"), key="k")
    chat.append(user("Will it rain?"), key="k")
    assert lines(caplog, logging.DEBUG) == [
        f"appended 1 message ({done.tokens} tokens) to session `weather`, loop-1",
        "session `weather` had this append already, in loop-1",
    ]
    talk(chat)
    caplog.clear()
    report = chat.compact(force=True)
    expected = f"compacted session `weather` from {report['tokens_before']} to {report['tokens_after']} tokens"
    assert lines(caplog, logging.INFO)[0].startswith(expected)
    assert chat.compact(force=True, dry_run=True)["run_id"] is None and not caplog.records
    talk(chat)
    caplog.clear()
    assert chat.with_policy(Policy(8_000)).prepare().was_compacted
    assert lines(caplog, logging.INFO)[0].startswith("compacted session `weather` from")
    assert "hour" not in caplog.text.lower()


def test_what_gives_way_or_fails_is_a_warning(chat: Session, caplog: pytest.LogCaptureFixture) -> None:
    def fails(request: object) -> str:
        raise KeyError("no model")

    talk(chat)
    chat.compact(force=True, policy=Policy(summarizer=fails))
    [warning] = lines(caplog, logging.WARNING)
    assert warning == "the summarizer gave way to `digest` in session `weather`: KeyError: 'no model'"
    for outcome, level, text in (
        ("conflict", logging.WARNING, "another one was made meanwhile"),
        ("failed", logging.WARNING, "failed: why"),
        ("vetoed", logging.INFO, "not approved: why"),
        ("no_gain", logging.DEBUG, "no_gain"),
    ):
        caplog.set_level(logging.DEBUG, "loopstore")
        _log.compacted("weather", {"outcome": outcome, "error": "why"})
        assert text in lines(caplog, level)[0]


def test_a_write_that_waits_is_a_warning(
    store: Store, chat: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    chat.append(user("Will it rain?"))
    assert lines(caplog, logging.WARNING) == []
    monkeypatch.setattr(_log, "SLOW", 0.0)
    chat.append(user("And now?"))
    assert "an append of session `weather` took" in lines(caplog, logging.WARNING)[0]
    chat.append_batch([(None, user("And now?"))])
    assert "another program" in lines(caplog, logging.WARNING)[0]

    def busy() -> None:
        raise loopstore.BusyError("busy")

    with pytest.raises(loopstore.BusyError):
        _log.written("weather", "an append", busy)
    assert "gave up after" in lines(caplog, logging.WARNING)[0]


async def test_async_calls_are_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "loopstore")
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = store.session("weather")
        await chat.append(user("Will it rain?"))
        assert "appended 1 message" in caplog.text
        talk(chat.blocking)
        await chat.compact(force=True)
        assert "compacted session `weather`" in caplog.text


def test_nothing_is_printed_by_a_program_without_logging(tmp_path: Path) -> None:
    code = "import sys, loopstore; loopstore._log.compacted('a', {'outcome': 'failed'})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
