"""Ctrl-C ends a waiting call, and nothing is committed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from conftest import talk

import loopstore
from loopstore import Policy, Session, Store
from loopstore._interrupt import interruptible

BEGIN = """
import sys, time, loopstore
from loopstore import Policy, Store
store = Store.open(sys.argv[1])
chat = store.session("weather")
def slow(*given):
    print("begun", flush=True)
    time.sleep(3000)
"""
END = """
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
print([row["outcome"] for row in chat.history()], len(chat.context()["messages"]))
"""
ENDLESS = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"


def interrupted(code: str, path: Path) -> list[str]:
    """Run a program, interrupt it once it prints, and return the lines that it prints then."""
    program = BEGIN + "try:\n" + textwrap.indent(textwrap.dedent(code), "    ") + END
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "begun\n"
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=50)
    assert ran.returncode == 0, err
    return out.splitlines()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("chat.compact(force=True, policy=Policy(summarizer=slow))", "failed"),
        ("chat.with_policy(Policy(6_000, summarizer=slow)).prepare()", "failed"),
        ("chat.compact(force=True, policy=Policy(approve=slow))", "vetoed"),
    ],
)
def test_a_compaction_ends_and_commits_nothing(tmp_path: Path, code: str, outcome: str) -> None:
    with Store.open(tmp_path / "a.db") as store:
        talk(store.session("weather"))
        before = store.session("weather").context()
    assert interrupted(code, tmp_path / "a.db") == ["interrupted", f"['{outcome}'] {len(before['messages'])}"]
    with Store.open(tmp_path / "a.db") as store:
        chat = store.session("weather")
        assert chat.context() == before
        assert chat.compact(force=True)["outcome"] == "committed"
        assert store.verify()["ok"]


def test_a_query_ends(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        talk(store.session("weather"), 2)
    code = f"""
    import threading
    threading.Timer(0.5, lambda: print("begun", flush=True)).start()
    store.sql({ENDLESS!r}, timeout=None)
    """
    assert interrupted(code, tmp_path / "a.db") == ["interrupted", "[] 3"]


def test_a_hook_runs_on_the_thread_of_its_call(store: Store, chat: Session) -> None:
    talk(chat)
    other = store.session("other")
    talk(other)
    threads = []

    def approve(proposal: loopstore.Proposal) -> bool:
        threads.append(threading.current_thread())
        if proposal["session_id"] == "weather":
            # A call within a hook.
            assert other.compact(policy=Policy(6_000, approve=approve))["outcome"] == "committed"
        return True

    assert chat.compact(policy=Policy(6_000, approve=approve))["outcome"] == "committed"
    assert threads == [threading.main_thread()] * 2


def test_one_helper_serves_one_call_after_the_other(chat: Session) -> None:
    talk(chat, 2)
    for _ in range(20):
        chat.prepare()
        with pytest.raises(KeyError, match="x"):
            interruptible(lambda: {}["x"])
    helpers = [one for one in threading.enumerate() if one.name == "loopstore-call"]
    assert len(helpers) <= 2


def test_a_call_of_another_thread_stays_on_it() -> None:
    found = []

    def run() -> None:
        found.append(interruptible(threading.current_thread) is threading.current_thread())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True]
