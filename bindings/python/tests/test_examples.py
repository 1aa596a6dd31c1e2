"""The examples run, and are short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# `test_temporal.py` runs this one without the server that it needs.
NEED_SERVER = {"temporal_workflow"}
EXAMPLES = sorted(
    path for path in (Path(__file__).parent.parent / "examples").glob("*.py") if path.stem not in NEED_SERVER
)
SAYS = {
    "adk_compacted": "20 answers. I got ",
    "adk_sessions": "I see 3 events.",
    "chat": "4 messages are kept",
    "claude_sessions": "7071",
    "dbos_workflow": ", 0.",
    "langgraph_compacted": "The state has 40 messages.",
    "openai_agents_session": "I see 3 items.",
    "queue_worker": " 0.",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) <= 30
    command = [sys.executable, str(example), str(tmp_path / "a.db")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert SAYS.get(example.stem, "") in ran.stdout
