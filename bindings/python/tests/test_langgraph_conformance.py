"""LangGraph's own suite of savers: all capabilities, base and extended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from loopstore import Store
from loopstore.langgraph import LoopstoreSaver


@pytest.mark.parametrize("on_disk", [False, True])
async def test_every_capability_is_there_and_passes(on_disk: bool, tmp_path: Path) -> None:
    made = iter(range(100))

    @checkpointer_test(name="LoopstoreSaver")
    async def saver() -> AsyncIterator[LoopstoreSaver]:
        path = tmp_path / f"{next(made)}.db"
        with Store.open(path) if on_disk else Store.in_memory() as store:
            yield LoopstoreSaver(store)
            assert store.verify()["problems"] == []

    report = await validate(saver)
    for capability in Capability:
        result = report.results[capability.value]
        assert result.detected, capability
        assert result.passed, (capability, result.failures)
        assert result.tests_passed > 0
