"""Edits: messages that contexts show in another form or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import assistant, user

import loopstore
from loopstore import Session


@pytest.fixture
def edited(chat: Session) -> Session:
    for nth in range(3):
        chat.append([user(f"question {nth}"), assistant(f"answer {nth} " + "long " * 400)])
    return chat


def test_what_was_dropped_is_restored_word_for_word(edited: Session) -> None:
    before = edited.context()
    report = edited.drop("loop-1:0", reason="a detour")
    assert report["run_id"] and len(report["edits"]) == 2
    assert report["tokens_after"] < report["tokens_before"]
    assert len(edited.context()["messages"]) == len(before["messages"]) - 2
    assert len(edited.restore({"loop_id": "loop-1", "turn": 0})) == 1
    assert edited.context() == before
    edited.drop({"loop_id": "loop-1", "turn": 0, "last_turn": 0})
    edited.undo()
    assert edited.context() == before


def test_texts_are_cleared_by_conditions_and_replaced(edited: Session) -> None:
    before = edited.context()
    dry = edited.clear(larger=1_000, older_than=1, dry_run=True)
    assert dry["run_id"] is None and edited.context() == before
    assert edited.clear(larger=1_000, older_than=1)["tokens_after"] == dry["tokens_after"]
    assert "cleared" in str(edited.context()["messages"][1])
    edited.replace("loop-1:0:0", "a better question")
    assert "a better question" in str(edited.context()["messages"][0])


@pytest.mark.parametrize(
    "target", ["", "loop-1:2..1", "loop-9:0", "no-such-call", {}, {"turn": -1}, {"call": 3}, 7]
)
def test_a_wrong_target_is_an_input_error_and_edits_nothing(edited: Session, target: Any) -> None:
    before = edited.context()
    with pytest.raises((TypeError, loopstore.InvalidInputError)):
        edited.drop(target)
    with pytest.raises(loopstore.InvalidInputError):
        edited.drop()
    with pytest.raises(loopstore.InvalidInputError):
        edited.restore("loop-1:0")
    assert edited.context() == before
