"""Logging, under the logger `loopstore`.

`DEBUG` has each append, `INFO` each compaction, `WARNING` what a person may want to look at: a summariser that failed and
gave way to the digest, a compaction that failed or lost a race, and a write that waited long for another program.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from loopstore._errors import BusyError

T = TypeVar("T")

LOG = logging.getLogger("loopstore")
LOG.addHandler(logging.NullHandler())

SLOW = 1.0
"""Seconds from which a write is slow: it takes milliseconds, unless another program holds the database."""


def written(session: str, what: str, work: Callable[[], T]) -> T:
    """Run a write, and log if it waits long for the database."""
    begun = time.monotonic()
    try:
        done = work()
    except BusyError:
        LOG.warning(
            "%s of session `%s` gave up after %.1f s: another program holds the database",
            what,
            session,
            time.monotonic() - begun,
        )
        raise
    if (seconds := time.monotonic() - begun) >= SLOW:
        LOG.warning(
            "%s of session `%s` took %.1f s: another program may have held the database, or the disk is slow",
            what,
            session,
            seconds,
        )
    return done


def appended(session: str, done: Iterable[Any]) -> None:
    """Log appends."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    for one in done:
        if one.duplicate:
            LOG.debug("session `%s` had this append already, in %s", session, one.loop_id)
        else:
            LOG.debug(
                "appended %d message%s (%d tokens) to session `%s`, %s",
                len(one.seqs),
                "" if len(one.seqs) == 1 else "s",
                one.tokens,
                session,
                one.loop_id,
            )


def compacted(session: str, report: dict[str, Any]) -> None:
    """Log the outcome of a compaction."""
    outcome, error = report.get("outcome"), report.get("error")
    if outcome == "committed":
        LOG.info(
            "compacted session `%s` from %s to %s tokens (%s, run %s)",
            session,
            report.get("tokens_before"),
            report.get("tokens_after"),
            report.get("strategy"),
            report.get("run_id"),
        )
    elif outcome == "conflict":
        LOG.warning(
            "the compaction of session `%s` was not committed: another one was made meanwhile",
            session,
        )
    elif outcome == "failed":
        LOG.warning("the compaction of session `%s` failed: %s", session, error)
    elif outcome == "vetoed":
        LOG.info("the compaction of session `%s` was not approved: %s", session, error)
    else:
        LOG.debug("session `%s` was not compacted: %s", session, outcome)
    if fallback := report.get("fallback"):
        LOG.warning(
            "the summarizer gave way to `%s` in session `%s`: %s", fallback, session, error
        )
