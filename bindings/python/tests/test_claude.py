"""The store for the Claude Agent SDK: the SDK's own suite, and the additions of loopstore."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey

import loopstore
from loopstore import Store
from loopstore.claude import LoopstoreSessionStore

KEY: SessionKey = {"project_key": "-home-ann-garden", "session_id": "0b1e5c9e-0000-4000-8000-000000000001"}


def record(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return an entry as Claude Code writes it."""
    return {
        "type": kind,
        "uuid": f"0b1e5c9e-0000-4000-9000-{number:012}",
        "parentUuid": f"0b1e5c9e-0000-4000-9000-{number - 1:012}" if number else None,
        "sessionId": KEY["session_id"],
        "timestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "cwd": "/home/ann/garden",
        "isSidechain": False,
        "message": {"role": kind, "content": content, **more},
    }


def prompt(number: int, text: str) -> Any:
    return record(number, "user", text)


def answer(number: int, text: str) -> Any:
    return record(
        number,
        "assistant",
        [{"type": "text", "text": text}],
        id=f"msg_{number}",
        model="claude-sonnet-4-5",
        usage={"input_tokens": 10, "output_tokens": 5},
    )


async def test_the_suite_of_the_sdk_passes_in_memory() -> None:
    await run_session_store_conformance(LoopstoreSessionStore)


async def test_the_suite_of_the_sdk_passes_in_files(tmp_path: Path) -> None:
    count = iter(range(1000))
    await run_session_store_conformance(
        lambda: LoopstoreSessionStore(tmp_path / f"{next(count)}.db")
    )


async def test_the_suite_of_the_sdk_passes_where_delete_erases() -> None:
    await run_session_store_conformance(lambda: LoopstoreSessionStore(on_delete="erase"))


def test_it_runs_under_trio(tmp_path: Path) -> None:
    trio = pytest.importorskip("trio")

    async def program() -> None:
        await run_session_store_conformance(LoopstoreSessionStore)
        with LoopstoreSessionStore(tmp_path / "agent.db") as sdk:
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(sdk.append, KEY, [prompt(number, "Will it rain?")])
            with trio.move_on_after(0):
                await sdk.append(KEY, [prompt(8, "And now?")])
            assert len(await sdk.load(KEY) or []) in (8, 9)
        with pytest.raises(loopstore.ClosedError):
            await sdk.load(KEY)

    trio.run(program)


async def test_what_is_mirrored_is_understood(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    await sdk.append(KEY, [prompt(0, "Which port does the server use?")])
    await sdk.append(KEY, [answer(1, "The server listens on port 7071.")])
    chat = store.session(KEY["session_id"])
    assert [m["role"] for m in chat.context()["messages"]] == ["user", "assistant"]
    assert store.search("listens port")["hits"][0]["session_id"] == KEY["session_id"]
    assert [row["project"] for row in store.sessions(text="which port")] == ["/home/ann/garden"]
    await sdk.append(KEY, [record for at in range(30) for record in (
        prompt(2 + 2 * at, f"Next question {at}"), answer(3 + 2 * at, "An answer. " * 100))])
    report = chat.compact(force=True)
    assert report["outcome"] == "committed" and report["tokens_after"] < report["tokens_before"]
    assert "<!doctype html>" in chat.report()
    # A compaction changes none of the entries that the SDK gets back, and later entries are imported too.
    loaded = await sdk.load(KEY)
    assert loaded is not None and len(loaded) == 62
    await sdk.append(KEY, [prompt(62, "Thank you.")])
    assert "Thank you." in str(chat.context()["messages"][-1])
    chat.undo()
    assert len(chat.context()["messages"]) == 63
    assert store.verify()["ok"]


async def test_entries_come_back_as_they_came(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    entries: list[Any] = [
        {"type": "x", "n": 1.0, "big": 2**70, "small": 1e-300, "text": "a\u2028b\x00🦀", "none": None},
        {"type": "summary", "summary": "", "leafUuid": "?"},
        {"type": "y", "uuid": "", "nested": {"a": [[], {}, [1, [2, [3]]]]}},
        {"type": "z", "uuid": "u" * 2000},
        {"type": "same"},
        {"type": "same"},
    ]
    await sdk.append(KEY, entries)
    assert await sdk.load(KEY) == entries
    # Entries with the same uuid are the same; entries without one are always different.
    await sdk.append(KEY, [entries[3], entries[4]])
    assert await sdk.load(KEY) == [*entries, entries[4]]


async def test_a_batch_that_is_tried_again_adds_what_was_missing(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    batch = [prompt(0, "One"), answer(1, "Two"), prompt(2, "Three")]
    await sdk.append(KEY, batch[:2])
    await sdk.append(KEY, batch)
    assert await sdk.load(KEY) == batch


async def test_two_objects_write_one_session(tmp_path: Path) -> None:
    with LoopstoreSessionStore(tmp_path / "a.db") as one, LoopstoreSessionStore(tmp_path / "a.db") as two:
        await asyncio.gather(
            *(side.append(KEY, [{"type": "x", "uuid": f"{name}{n}"}])  # type: ignore[typeddict-unknown-key]
              for n in range(25) for name, side in (("a", one), ("b", two)))
        )
        loaded = await one.load(KEY)
        assert loaded is not None and len({entry["uuid"] for entry in loaded}) == 50
        assert loaded == await two.load(KEY)


async def test_what_was_deleted_is_kept_and_its_id_is_free(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    await sdk.append(KEY, [prompt(0, "Which port?"), answer(1, "7071.")])
    await sdk.list_session_summaries(KEY["project_key"])
    await sdk.delete(KEY)
    assert await sdk.load(KEY) is None and store.search("7071")["hits"] == []
    assert store.sql("SELECT count(*) AS n FROM v_sessions WHERE hidden_at IS NOT NULL")[0]["n"] >= 2
    again = [prompt(0, "Something else.")]
    await sdk.append(KEY, again)
    assert await sdk.load(KEY) == again
    summary = (await sdk.list_session_summaries(KEY["project_key"]))[0]
    assert summary["data"]["first_prompt"] == "Something else."
    assert len(store.session(KEY["session_id"]).context()["messages"]) == 1


async def test_summaries_read_only_what_is_new(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    await sdk.append(KEY, [prompt(0, "Which port?")])
    first = await sdk.list_session_summaries(KEY["project_key"])
    await sdk.append(KEY, [{"type": "custom-title", "customTitle": "Ports"}])  # type: ignore[typeddict-unknown-key]
    second = await sdk.list_session_summaries(KEY["project_key"])
    assert first[0]["data"]["first_prompt"] == second[0]["data"]["first_prompt"] == "Which port?"
    assert second[0]["data"]["custom_title"] == "Ports"
    assert second == await sdk.list_session_summaries(KEY["project_key"])


@pytest.mark.parametrize("entries", [[{"type": object()}], [{"type": "x", "n": float("nan")}]])
async def test_what_is_no_json_is_refused(store: Store, entries: Any) -> None:
    sdk = LoopstoreSessionStore(store)
    with pytest.raises(loopstore.InvalidInputError):
        await sdk.append(KEY, entries)
    assert await sdk.load(KEY) is None


async def test_keys_with_slashes_and_quotes_stay_apart(store: Store) -> None:
    sdk = LoopstoreSessionStore(store)
    keys: list[SessionKey] = [
        {"project_key": "a/b", "session_id": "c"},
        {"project_key": "a", "session_id": "b/c"},
        {"project_key": "a", "session_id": "b", "subpath": "c"},
        {"project_key": "it's", "session_id": "'; DROP TABLE sessions --"},
    ]
    for number, key in enumerate(keys):
        await sdk.append(key, [{"type": "x", "n": number}])  # type: ignore[typeddict-unknown-key]
    for number, key in enumerate(keys):
        assert json.dumps(await sdk.load(key)) == json.dumps([{"type": "x", "n": number}])
    assert [s["session_id"] for s in await sdk.list_sessions("it's")] == [keys[3]["session_id"]]
    assert [s["session_id"] for s in await sdk.list_sessions("a")] == ["b/c"]
    assert await sdk.list_subkeys({"project_key": "a", "session_id": "b"}) == ["c"]
