"""Arguments: what is taken, and errors that name the argument."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pydantic
import pytest
from conftest import assistant, user

import loopstore
from loopstore import AsyncStore, Policy, Session, Store, _arguments

NAMED = re.compile(r"`[a-z_]+[^`]*`")
"""The name of an argument."""
INNARDS = re.compile(r"line \d+ column|u64|u32|usize|i64|struct|PyO3|expected a sequence|codec")
"""Words of serde, Rust and codecs."""


# The place of a database.


@pytest.mark.parametrize("place", [":memory:", Path(":memory:"), "sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_leaves_no_file(place: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open(place) as store:
        store.session("weather").append(user("Will it rain?"))
    assert list(tmp_path.iterdir()) == []


async def test_a_database_in_memory_is_opened_without_blocking(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    async with await AsyncStore.open(":memory:") as store:
        chat = await store.session("weather")
        await chat.append(user("Will it rain?"))
    assert list(tmp_path.iterdir()) == []


def test_the_home_folder_and_urls_are_understood(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    absolute = f"sqlite:///{tmp_path}/c.db"
    assert absolute.startswith("sqlite:////")
    for place in ("~/a.db", Path("~/b.db"), absolute, "sqlite:///d.db", "sqlite:///~/e.db", "f.db"):
        Store.open(place).close()
    names = {path.name for path in tmp_path.iterdir() if path.suffix == ".db"}
    assert names == {"a.db", "b.db", "c.db", "d.db", "e.db", "f.db"}
    with Store.open("~/a.db") as store:
        chat = store.session("weather")
        chat.append(user("Will it rain?"))
        chat.export("jsonl", "~/out.jsonl")
        assert store.import_([Path("~/out.jsonl")])["files"] == 1


def test_a_place_that_is_no_file_says_what_to_do() -> None:
    for place, way in [
        ("postgres://ann@db/x", "Store.connect"),
        ("mysql://db/x", "sqlite:///PATH"),
        ("sqlite://db.db", "sqlite:///relative.db"),
        ("sqlite:///db.db?mode=ro", "without a host and options"),
        ("file:db.db?mode=ro", "not a URI"),
        ("", "a path"),
        ("a\0b", "zero character"),
    ]:
        with pytest.raises(loopstore.InvalidInputError, match=way):
            Store.open(place)
    with pytest.raises(loopstore.InvalidInputError, match="Store.open"):
        Store.connect("sqlite:///x.db")
    for options in ({"key": "k"}, {"read_only": True}, {"durability": "full"}):
        with pytest.raises(loopstore.InvalidInputError, match="in memory"):
            Store.open(":memory:", **options)  # type: ignore[arg-type]


# Times.


def test_a_time_is_taken_in_every_shape(monkeypatch: Any) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    __import__("time").tzset()
    at = "2026-03-01T12:00:00.250Z"
    zone = timezone(timedelta(hours=2))
    for given in (
        at,
        "2026-03-01 14:00:00.25+02:00",
        "2026-03-01T12:00:00,250999z",
        "2026-03-01T14:00:00.250+0200",
        "2026-03-01T12:00:00.250",
        datetime(2026, 3, 1, 12, 0, 0, 250_999, tzinfo=timezone.utc),
        datetime(2026, 3, 1, 14, 0, 0, 250_000, tzinfo=zone),
        datetime(2026, 3, 1, 17, 30, 0, 250_000),
    ):
        assert _arguments.iso("time", given) == at
        assert _arguments.milliseconds("since", given) == 1_772_366_400_250
    assert _arguments.milliseconds("since", 1_772_366_400_250) == 1_772_366_400_250
    assert _arguments.iso("time", date(2026, 3, 1)) == "2026-02-28T18:30:00.000Z"
    assert _arguments.iso("time", date(2026, 3, 1), is_end=True) == "2026-03-01T18:29:59.999Z"
    assert _arguments.iso("time", "2026-03-01") == "2026-03-01T00:00:00.000Z"
    assert _arguments.iso("time", "2026-03-01", is_end=True) == "2026-03-01T23:59:59.999Z"
    assert _arguments.iso("time", datetime(999, 1, 1, tzinfo=timezone.utc)) == "0999-01-01T00:00:00.000Z"
    ago = _arguments.milliseconds("since", timedelta(days=1))
    now = _arguments.milliseconds("since", timedelta(0))
    assert ago is not None and now is not None and 86_400_000 <= now - ago < 86_500_000
    monkeypatch.undo()
    __import__("time").tzset()


def test_what_is_no_time_is_refused_with_the_name_of_the_argument(store: Store, chat: Session) -> None:
    chat.append([user("a"), assistant("b")])
    wrong: list[Any] = ["yesterday", "2026-13-01", "2026-01-01T25:00", "", "12:00", 2.5, True, b"2026", [1], "٢٠٢٦-01-01"]
    for given in wrong:
        for name, call in {
            "since": lambda given=given: store.search("a", since=given),
            "until": lambda given=given: chat.search("a", until=given),
            "time": lambda given=given: chat.as_of(time=given),
        }.items():
            with pytest.raises((TypeError, loopstore.InvalidInputError), match=f"`{name}`"):
                call()
        with pytest.raises((TypeError, loopstore.InvalidInputError), match="`since`"):
            store.sessions(since=given)
    for far in (timedelta.max, 2**63):
        with pytest.raises(loopstore.InvalidInputError, match="`since`"):
            store.search("a", since=far)


def test_times_choose_what_is_found(store: Store, chat: Session) -> None:
    old = {**user("rain in March"), "timestamp": 1_772_366_400_250}
    chat.append([old, {**assistant("rain indeed"), "timestamp": 1_772_366_401_000}])
    store.session("now").append(user("rain today"))
    for since in (timedelta(hours=1), date.today() - timedelta(days=1), datetime.now() - timedelta(hours=1)):
        assert [hit["session_id"] for hit in store.search("rain", since=since)["hits"]] == ["now"]
    for until in (date(2026, 3, 1), "2026-03-01", datetime(2026, 3, 2, tzinfo=timezone.utc)):
        assert len(store.search("rain", until=until)["hits"]) == 2
        assert "March" in store.recall("rain", 400, until=until).text
        assert "today" not in store.recall("rain", 400, until=until).text
    assert {row["session_id"] for row in store.sessions(since=timedelta(hours=1))} == {"now", "weather"}
    assert store.sessions(since=datetime.now() + timedelta(days=1)) == []
    assert store.session("now").as_of(time=datetime.now() + timedelta(seconds=2))["messages"]
    assert store.session("now").as_of(time=date.today() + timedelta(days=1))["messages"]


async def test_times_are_taken_by_the_coroutines_too(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = await store.session("weather")
        await chat.append(user("rain"))
        assert (await store.search("rain", since=timedelta(hours=1)))["hits"]
        assert (await chat.search("rain", since=timedelta(hours=1)))["hits"]
        assert await store.sessions(since=timedelta(hours=1))
        assert (await store.recall("rain", 300, since=timedelta(hours=1))).parts
        assert (await chat.as_of(time=datetime.now() + timedelta(seconds=2)))["messages"]
        with pytest.raises(loopstore.InvalidInputError, match="`since`"):
            await store.sessions(since="yesterday")


# Objects of SDKs.


class Block(pydantic.BaseModel):
    """A part of an answer, as the SDKs have it."""

    type: str = "text"
    text: str
    at: datetime | None = None


class Answer(pydantic.BaseModel):
    """An answer, as the SDKs have it."""

    role: str = "assistant"
    content: list[Block]


def test_objects_of_pydantic_stand_for_dictionaries(chat: Session) -> None:
    answer = Answer(content=[Block(text="No.")])
    chat.append(user("Will it rain?"))
    chat.append(answer, format="anthropic")
    chat.append({"role": "user", "content": [Block(text="And now?")]}, format="anthropic")
    chat.append([answer, {"role": "user", "content": "Thanks."}], format="anthropic")
    chat.append_batch([("k", answer), (None, [answer])], format="anthropic")
    texts = [m["content"][0]["text"] for m in chat.context()["messages"]]
    assert texts == ["Will it rain?", "No.", "And now?", "No.", "Thanks.", "No.", "No."]


def test_answers_of_the_sdk_of_openai_are_appended_as_they_are(chat: Session) -> None:
    types = pytest.importorskip("openai.types.chat")
    whole = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None,
                     "message": {"role": "assistant", "content": "No.", "refusal": None}}],
    }  # fmt: skip
    answer = types.ChatCompletion.model_validate(whole)
    chat.append({"role": "user", "content": "Rain?"}, format="openai")
    chat.append(answer, format="openai")
    chat.append({"role": "user", "content": "Sure?"}, format="openai")
    chat.append(answer.choices[0].message, format="openai")
    assert [m["role"] for m in chat.context(format="openai")["messages"]] == ["user", "assistant"] * 2


# Values that JSON cannot hold.


def test_a_time_in_a_message_is_iso_text(chat: Session) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    block = {"type": "toolCall", "id": "c", "name": "book", "arguments": {"at": at, "day": at.date()}}
    chat.append([user("Book it."), {"role": "assistant", "content": [block]}])
    arguments = chat.context()["messages"][1]["content"][0]["arguments"]
    assert arguments == {"at": "2026-03-01T12:00:00+00:00", "day": "2026-03-01"}


@pytest.mark.parametrize(
    "given",
    [
        user("a\ud800b"),
        '{"role":"user","content":"a\\ud800b"}',
        '{"role":"user","content":"a\\uD800b"}'.encode(),
        '{"role":"user","content":"a\ud800b"}',
    ],
)
def test_half_of_a_surrogate_pair_is_replaced_as_in_an_import(chat: Session, given: Any) -> None:
    done = chat.append(given)
    assert done.notes == ["half of a surrogate pair, replaced by U+FFFD"]
    assert chat.append_batch([(None, given)])[0].notes == done.notes
    assert chat.context()["messages"][0]["content"][0]["text"] == "a\ufffdb"


def test_whole_pairs_and_escaped_backslashes_stay(chat: Session) -> None:
    text = '{"role":"user","content":"\\ud83e\\udd80 \\\\ud800 \\\\\\\\ud800 \\\\"}'
    assert chat.append(text).notes == []
    assert chat.context()["messages"][0]["content"][0]["text"] == json.loads(text)["content"]


def test_what_json_has_not_is_refused_with_its_place(chat: Session) -> None:
    call = {"type": "toolCall", "id": "c", "name": "f", "arguments": {"x": [1, float("nan")]}}
    for given, place in [
        ([user("a"), {"role": "assistant", "content": [call]}], r"\[1\].content\[0\].arguments.x\[1\].*NaN|nan"),
        ({"role": "user", "content": b"x"}, "content cannot be written as JSON: a bytes"),
        ({"role": "user", "content": {("a", "b"): 1}}, "the key"),
        ({"role": "user", "content": [float("inf")]}, r"content\[0\].*inf"),
    ]:
        with pytest.raises(loopstore.InvalidInputError, match=place):
            chat.append(given)  # type: ignore[arg-type]
    assert not chat.exists()


# Errors.


def wrong_calls(store: Store, chat: Session) -> dict[str, Callable[[], Any]]:
    """Return calls with one wrong argument each, by its name."""
    anything: Any = object()
    minus: Any = -1
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("path", lambda: Store.open(anything)),
        ("key", lambda: Store.open("x.db", key=anything)),
        ("durability", lambda: Store.open("x.db", durability=anything)),
        ("read_only", lambda: Store.open("x.db", read_only=anything)),
        ("counter", lambda: Store.in_memory(counter=anything)),
        ("policy", lambda: Store.in_memory(policy=anything)),
        ("policy", lambda: store.session("a", policy={})),  # type: ignore[arg-type]
        ("policy", lambda: chat.compact(policy="digest")),  # type: ignore[arg-type]
        ("policy", lambda: chat.with_policy({"window": 9})),  # type: ignore[arg-type]
        ("id", lambda: store.session("\ud800")),
        ("text", lambda: store.search("\ud800")),
        ("session", lambda: store.search("a", session=anything)),
        ("hidden", lambda: store.search("a", hidden="no")),  # type: ignore[arg-type]
        ("limit", lambda: store.search("a", limit=minus)),
        ("offset", lambda: store.search("a", offset=minus)),
        ("by", lambda: store.search("a", by="turn")),  # type: ignore[arg-type]
        ("max_tokens", lambda: store.recall("a", minus)),
        ("max_tokens", lambda: chat.recall("a", "9")),  # type: ignore[arg-type]
        ("limit", lambda: store.sessions(limit=True)),
        ("session", lambda: store.history(anything)),
        ("max_rows", lambda: store.sql("SELECT 1", max_rows=minus)),
        ("timeout", lambda: store.sql("SELECT 1", timeout=minus)),
        ("timeout", lambda: store.sql("SELECT 1", timeout="9")),  # type: ignore[arg-type]
        ("paths", lambda: store.import_()),
        ("paths", lambda: store.import_([])),
        ("paths", lambda: store.import_([3])),  # type: ignore[list-item]
        ("transcript", lambda: store.import_bytes("x", format="pi")),  # type: ignore[arg-type]
        ("key", lambda: chat.append(user("a"), key=anything)),
        ("given", lambda: chat.append(anything)),
        ("given[1]", lambda: chat.append([user("a"), 3])),  # type: ignore[list-item]
        ("start", lambda: chat.expand(0, 0, start="x")),
        ("parts", lambda: chat.append_batch(anything)),
        ("parts[0]", lambda: chat.append_batch(["a"])),  # type: ignore[list-item]
        ("limit", lambda: chat.append_keys(limit=minus)),
        ("seqs", lambda: chat.entries(loop_id="loop-1", seqs=[1])),  # type: ignore[arg-type]
        ("roles", lambda: chat.entries(roles="user")),
        ("after", lambda: chat.entries(after=3)),  # type: ignore[arg-type]
        ("last", lambda: chat.entries(last=minus)),
        ("max_bytes", lambda: chat.context(max_bytes=minus)),
        ("check", lambda: chat.context(check=anything)),
        ("format", lambda: chat.context(format="yaml")),  # type: ignore[arg-type]
        ("loop_id", lambda: chat.as_of("loop-1")),
        ("turn", lambda: chat.as_of("loop-1", minus)),
        ("turn", lambda: chat.fork("loop-1", 2**40)),
        ("seq", lambda: chat.fork("loop-1", 0, minus)),
        ("last", lambda: chat.expand(0, minus)),
        ("larger", lambda: chat.drop(larger=minus)),
        ("target", lambda: chat.drop(7)),  # type: ignore[arg-type]
        ("target['turn']", lambda: chat.drop({"turn": minus})),
        ("target", lambda: chat.drop({"turns": 3})),
        ("reason", lambda: chat.drop("loop-1:0", reason=anything)),
        ("text", lambda: chat.replace("loop-1:0", anything)),
        ("kind", lambda: chat.begin_loop(kind=anything)),
        ("call_id", lambda: chat.start_call(anything)),
        ("turn", lambda: chat.pin("loop-1", "0")),  # type: ignore[arg-type]
        ("run", lambda: chat.undo(anything)),
        ("title", lambda: chat.set_title(anything)),
        ("folder", lambda: chat.set_project(anything)),
        ("path", lambda: chat.report(anything)),
        ("only", lambda: chat.redact(only="github-pat")),
        ("min_confidence", lambda: chat.redact(min_confidence="some")),  # type: ignore[arg-type]
    ]
    return {f"{number} {name}": call for number, (name, call) in enumerate(calls)}


def test_an_error_names_its_argument(store: Store, chat: Session) -> None:
    chat.append([user("a"), assistant("b")])
    for label, call in wrong_calls(store, chat).items():
        name = label.split(" ", 1)[1]
        with pytest.raises((TypeError, loopstore.InvalidInputError)) as caught:
            call()
        assert f"`{name}`" in str(caught.value), (label, caught.value)
        assert not INNARDS.search(str(caught.value)), (label, caught.value)
    assert store.stats()["messages"] == 2


def test_a_number_of_another_library_is_a_number(chat: Session) -> None:
    class Number:
        def __index__(self) -> int:
            return 0

    number: Any = Number()
    chat.append([user("a"), assistant("b")])
    assert chat.expand(number, number)["messages"]
    assert chat.entries(last=number) == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"window": 0}, "window"),
        ({"window": "128k"}, "window"),
        ({"window": 1.5}, "window"),
        ({"window": True}, "window"),
        ({"system_tokens": -1}, "system_tokens"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"keep_first": -1}, "keep_first"),
        ({"keep_recent": -1}, "keep_recent"),
        ({"keep_recent": "all"}, "keep_recent"),
        ({"keep_prompts": "all"}, "keep_prompts"),
        ({"tool_output_lines": -1}, "tool_output_lines"),
        ({"scope": "all"}, "scope"),
        ({"trigger": "full"}, "trigger"),
        ({"strategy": "summarize"}, "strategy"),
        ({"provider": "google"}, "provider"),
        ({"older_loops": "drop"}, "older_loops"),
        ({"recent_window": "all"}, "recent_window"),
        ({"system_prompts": True}, "system_prompts"),
        ({"model": 4}, "model"),
        ({"models": {"a": "b"}}, "models['a']"),
        ({"models": 3}, "models"),
        ({"trigger_params": {"target": "half"}}, "trigger_params['target']"),
        ({"clear_tool_results": True}, "clear_tool_results"),
        ({"clear_tool_results": {"keep": -1}}, "clear_tool_results['keep']"),
        ({"clear_tool_results": {"kept": 5}}, "clear_tool_results"),
        ({"trigger": "target", "trigger_params": {"target": 7}}, "trigger_params['target']"),
        ({"trigger": "target", "trigger_params": {"max_attempts": 1.5}}, "trigger_params['max_attempts']"),
        ({"trigger": "reserves", "trigger_params": {"output": -1}}, "trigger_params['output']"),
        ({"summarizer": "gpt-5"}, "summarizer"),
        ({"summarizer": lambda: "text"}, "summarizer"),
        ({"approve": lambda one, two: True}, "approve"),
        ({"warn": "me", "warn_at": 0.8}, "warn"),
        ({"warn": print, "warn_at": "80 %"}, "warn_at"),
        ({"window": 1_000, "system_tokens": 1_000}, "window"),
        ({"window": 11_000, "trigger": "reserves"}, "window"),
        ({"window": 20_000, "trigger": "reserves", "trigger_params": {"output": 14_000}}, "window"),
        ({"system_tokens": 128_000}, "window"),
    ],
)
def test_a_policy_that_cannot_work_fails_at_once(fields: Any, name: str) -> None:
    with pytest.raises((TypeError, loopstore.InvalidInputError)) as caught:
        Policy(**fields)
    assert f"`{name}`" in str(caught.value), caught.value
    assert not INNARDS.search(str(caught.value)), caught.value


def test_a_policy_that_can_work_is_taken() -> None:
    def write(request: loopstore.SummaryRequest) -> str:
        return "text"

    class Writer:
        def __call__(self, request: loopstore.SummaryRequest) -> str:
            return "text"

        def write(self, *args: Any, **more: Any) -> str:
            return "text"

    for summarizer in (write, Writer(), Writer().write, lambda request, model="m": "text"):
        Policy(summarizer=summarizer)
    Policy(11_001, trigger="reserves")
    Policy(20_000, system_tokens=19_999)
    Policy(keep_recent="user-turns:3", scope="fixed:2")


async def test_an_error_of_an_async_call_names_its_argument(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        with pytest.raises(TypeError, match="`policy`"):
            await store.session("a", policy={})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="`id`"):
            await store.session(3)  # type: ignore[arg-type]
        chat = await store.session("a")
        with pytest.raises(loopstore.InvalidInputError, match="`max_tokens`"):
            await chat.context(max_tokens=-1)
        with pytest.raises(TypeError, match="`policy`"):
            await chat.compact(policy="digest")  # type: ignore[arg-type]


def test_an_unknown_format_names_the_one_that_was_meant(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}")
    for given, meant in (("claude", "claude-code"), ("Codex", "codex"), ("gemini", "gemini-cli"), ("openai", "openai-")):
        with pytest.raises(loopstore.InvalidInputError, match=f"did you mean `{meant}"):
            store.import_(path, format=given)
        with pytest.raises(loopstore.InvalidInputError, match=f"did you mean `{meant}"):
            store.import_bytes(b"{}", format=given)
    with pytest.raises(loopstore.InvalidInputError) as caught:
        store.import_(path, format="parquet")
    assert "known formats are" in str(caught.value) and "did you mean" not in str(caught.value)


def test_a_list_of_paths_is_imported_as_each_of_them(store: Store, chat: Session, tmp_path: Path) -> None:
    chat.append([user("a"), assistant("b")])
    for name in ("a", "b"):
        chat.export("jsonl", tmp_path / f"{name}.jsonl")
    with Store.in_memory() as other:
        report = other.import_([tmp_path / "a.jsonl", os.fspath(tmp_path / "b.jsonl")])
        assert (report["files"], report["added_messages"]) == (2, 2)
