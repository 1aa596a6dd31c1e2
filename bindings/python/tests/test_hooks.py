"""A person in the loop: the approval of a compaction, and the warning before one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import assistant, talk, user

import loopstore
from loopstore import AsyncStore, Policy, Proposal, Session, Store, WindowWarning

TEXT = "It rained for a day."


def texts(chat: Session) -> list[str]:
    """Return the texts of the context."""
    return [part["text"] for message in chat.context()["messages"] for part in message["content"]]


def with_text(proposal: Proposal) -> int:
    """Return the position of a block with a text."""
    return next(at for at, block in enumerate(proposal["blocks"]) if block["text"])


def test_a_proposal_is_what_a_commit_makes(chat: Session) -> None:
    talk(chat)
    seen: list[Proposal] = []

    def approve(proposal: Proposal) -> bool:
        seen.append(proposal)
        return True

    report = chat.compact(policy=Policy(6_000, approve=approve))
    assert report["outcome"] == "committed"
    [proposal] = seen
    for size in ("tokens", "bytes", "messages"):
        for when in ("before", "after"):
            assert proposal[f"{size}_{when}"] == report[f"{size}_{when}"]  # type: ignore[literal-required]
    assert (proposal["session_id"], proposal["loop_id"]) == ("weather", "loop-1")
    assert proposal["strategy"] == report["strategy"]
    assert proposal["messages"] == chat.context()["messages"]
    block = proposal["blocks"][with_text(proposal)]
    assert block["text"] in texts(chat)
    assert (block["loop_id"], block["kind"]) == ("loop-1", "current")
    assert block["turns"] == report["blocks"][0]["keep_compacted"]


def test_each_decision_has_its_effect(chat: Session) -> None:
    talk(chat)
    before = chat.context()
    decisions: list[Any] = [{"postpone": "later"}, {"postpone": "later"}, {"refuse": "never"}]
    asked = []

    def approve(proposal: Proposal) -> Any:
        asked.append(proposal)
        return decisions.pop(0)

    held = chat.with_policy(Policy(6_000, approve=approve))
    for error in ("postponed: later", "postponed: later", "never"):
        report = held.compact()
        assert (report["outcome"], report["error"]) == ("vetoed", error)
    # A refused plan is not proposed again.
    assert held.compact()["outcome"] == "not_needed"
    assert len(asked) == 3 and chat.context() == before
    with pytest.raises(loopstore.NeedsCompactionError, match="never"):
        held.prepare()
    chat.append([assistant("more rain, " * 100) for _ in range(4)])
    decisions.append(False)
    assert held.compact()["outcome"] == "vetoed"
    chat.append([assistant("more rain, " * 100) for _ in range(4)])
    rewriting = Policy(6_000, approve=lambda proposal: {"rewrite": {with_text(proposal): TEXT}})
    ready = chat.with_policy(rewriting).prepare()
    assert ready.was_compacted
    assert TEXT in texts(chat)
    chat.undo()
    assert TEXT not in texts(chat)


def test_an_error_of_an_approval_commits_nothing_and_is_raised(chat: Session) -> None:
    talk(chat)
    before = chat.context()
    errors: list[BaseException] = [KeyError("no person"), KeyboardInterrupt(), ZeroDivisionError("x")]

    def approve(proposal: Proposal) -> bool:
        raise errors[0]

    held = chat.with_policy(Policy(6_000, approve=approve))
    for call in (held.compact, held.prepare, lambda: held.compact(force=True)):
        with pytest.raises(type(errors[0])) as raised:
            call()  # type: ignore[operator]
        assert raised.value is errors.pop(0)
    assert chat.context() == before
    rows = chat.history()
    assert [row["outcome"] for row in rows] == ["vetoed"] * 3
    assert "no person" in rows[-1]["error"]
    # The same plan is proposed again.
    assert chat.compact(policy=Policy(6_000, approve=lambda proposal: True))["outcome"] == "committed"


def test_an_answer_that_is_no_decision_commits_nothing(chat: Session) -> None:
    talk(chat)
    before = chat.context()
    wrong: list[Any] = [None, 1, "yes", [], {}, {"reject": "x"}, {"refuse": 1}, object(), {"rewrite": ["text"]}]
    wrong.append({"refuse": "x", "postpone": "y"})
    for answer in wrong:
        policy = Policy(6_000, approve=lambda proposal, answer=answer: answer)
        with pytest.raises(loopstore.InvalidInputError):
            chat.compact(policy=policy)
    assert chat.context() == before
    # A text that does not fit is an error of the run, as in Rust.
    policy = Policy(6_000, approve=lambda proposal: {"rewrite": {99: "text"}})
    assert chat.compact(policy=policy)["outcome"] == "failed"
    assert chat.context() == before


def test_an_approval_may_use_the_store(store: Store) -> None:
    chat, other = store.session("weather"), store.session("other")
    talk(chat)
    talk(other)

    def fails(proposal: Proposal) -> bool:
        raise KeyError("inner")

    def approve(proposal: Proposal) -> bool:
        assert len(chat.context()["messages"]) == proposal["messages_before"]
        chat.append(user("Meanwhile."))
        with pytest.raises(KeyError, match="inner"):
            other.compact(policy=Policy(6_000, approve=fails))
        return True

    report = chat.compact(policy=Policy(6_000, approve=approve))
    assert report["outcome"] == "committed"
    assert texts(chat)[-1] == "Meanwhile."


def test_each_thread_gets_the_error_of_its_own_approval(store: Store) -> None:
    found: dict[int, str] = {}
    together = threading.Barrier(4)

    def run(at: int) -> None:
        chat = store.session(f"weather-{at}")
        talk(chat)

        def approve(proposal: Proposal) -> bool:
            together.wait(timeout=60)
            raise KeyError(f"error {at}")

        try:
            chat.compact(policy=Policy(6_000, approve=approve))
        except KeyError as error:
            found[at] = str(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {at: f"'error {at}'" for at in range(4)}


async def test_a_coroutine_decides_on_the_callers_loop(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        talk(chat.blocking)
        loops = []

        async def approve(proposal: Proposal) -> bool:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0.2)
            raise TimeoutError("nobody answered")

        with pytest.raises(TimeoutError, match="nobody answered"):
            await chat.compact(policy=Policy(6_000, approve=approve))
        assert loops == [asyncio.get_running_loop()]

        async def accept(proposal: Proposal) -> bool:
            return True

        held = chat.with_policy(Policy(6_000, approve=accept))
        assert (await held.prepare()).was_compacted


async def test_a_call_that_is_cancelled_while_a_person_thinks_commits_nothing(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        talk(chat.blocking)
        begun, ended = asyncio.Event(), asyncio.Event()

        async def approve(proposal: Proposal) -> bool:
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()
            return True

        before = await chat.context()
        task = asyncio.create_task(chat.compact(policy=Policy(6_000, approve=approve)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 30)
        for _ in range(200):
            runs = await chat.history()
            if runs[0]["outcome"] != "running":
                break
            await asyncio.sleep(0.05)
        assert (runs[0]["outcome"], runs[0]["error"]) == ("failed", "cancelled")
        assert await chat.context() == before


def test_a_coroutine_decides_without_a_loop(chat: Session) -> None:
    talk(chat)

    async def approve(proposal: Proposal) -> bool:
        await asyncio.sleep(0)
        return True

    assert chat.compact(policy=Policy(6_000, approve=approve))["outcome"] == "committed"


def test_a_warning_comes_before_the_compaction(chat: Session) -> None:
    talk(chat, 10)
    tokens = chat.prepare().tokens
    warnings: list[WindowWarning] = []
    for window, expected in ((tokens * 4, 0), (tokens * 2, 1)):
        policy = Policy(window, warn=warnings.append, warn_at=0.4)
        assert not chat.with_policy(policy).prepare().was_compacted
        assert len(warnings) == expected
    warning = warnings[0]
    assert warning == {"session_id": "weather", "tokens": tokens, "window": tokens * 2, "percent": 50}

    def warn(warning: WindowWarning) -> None:
        raise ConnectionError("nobody hears it")

    held = chat.with_policy(Policy(tokens * 2, warn=warn, warn_at=0.4))
    with pytest.raises(ConnectionError, match="nobody hears it"):
        held.prepare()


def test_hooks_that_cannot_work_are_refused() -> None:
    def warn(warning: WindowWarning) -> None:
        pass

    for fraction in (0, 0.001, 1.5, 80, -1, float("nan")):
        with pytest.raises(loopstore.InvalidInputError, match="from 0.01 to 1"):
            Policy(warn=warn, warn_at=fraction)
    with pytest.raises(loopstore.InvalidInputError, match="both"):
        Policy(warn=warn)
    with pytest.raises(loopstore.InvalidInputError, match="both"):
        Policy(warn_at=0.8)
    with pytest.raises(TypeError, match="`approve` is a function"):
        Policy(approve=True)  # type: ignore[arg-type]


def test_prompts_are_kept_within_their_tokens(chat: Session) -> None:
    for at in range(12):
        chat.append([user(f"Prompt {at}: how is the weather?"), assistant("rain, " * 300)])
    report = chat.compact(force=True, policy=Policy(20_000, keep_first=0, keep_recent=1, keep_prompts=60))
    assert report["prompts_kept"] > 0 and report["prompts_left_out"] > 0
    quoted = [text for text in texts(chat) if text.startswith("[Kept prompt, ")]
    assert len(quoted) == report["prompts_kept"]
    assert "Prompt 10:" in quoted[-1]
