"""The public functions of the package and their results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import assistant, talk, user

import loopstore
from loopstore import ClearToolResults, Policy, Session, Store


def test_what_was_appended_is_there_after_the_store_was_opened_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        done = store.session("weather").append([user("Will it rain?"), assistant("No.")])
    assert (done.loop_id, list(done.turns), list(done.seqs)) == ("loop-1", [0], [0, 1])
    assert done.tokens > 0 and not done.duplicate and done.begun == ["loop-1"]
    with Store.open(tmp_path / "a.db") as store:
        texts = [m["content"][0]["text"] for m in store.session("weather").context()["messages"]]
    assert texts == ["Will it rain?", "No."]


@pytest.mark.parametrize("given", ["dict", "list", "tuple", "generator", "str", "bytes", "words"])
def test_messages_come_in_every_shape(chat: Session, given: str) -> None:
    message = user("Ümläute, 日本語, 🦀")
    text = '{"role":"user","content":[{"type":"text","text":"Ümläute, 日本語, 🦀"}]}'
    shapes = {
        "dict": message,
        "list": [message],
        "tuple": (message,),
        "generator": (one for one in [message]),
        "str": text,
        "bytes": f"[{text}]".encode(),
        "words": {"role": "user", "content": "Ümläute, 日本語, 🦀"},
    }
    chat.append(shapes[given])  # type: ignore[arg-type]
    stored = chat.context()["messages"]
    assert len(stored) == 1 and stored[0]["content"] == message["content"]


@pytest.mark.parametrize(
    ("form", "question", "answer", "key"),
    [
        ("openai", {"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}, "messages"),
        (
            "responses",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
            "input",
        ),
        (
            "anthropic",
            {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
            "messages",
        ),
    ],
)
def test_what_a_provider_said_goes_back_to_it(
    chat: Session, form: loopstore.Form, question: object, answer: object, key: str
) -> None:
    chat.append([question, answer], format=form)  # type: ignore[list-item]
    request = chat.context(format=form)[key]
    assert [message["role"] for message in request] == ["user", "assistant"]
    assert "Rain?" in str(request[0]) and "No." in str(request[1])


def test_an_append_under_a_key_is_made_once(chat: Session) -> None:
    once = chat.append(user("Pay the bill."), key="request 17")
    again = chat.append_once("request 17", user("Pay the bill."))
    assert again.duplicate and again.seqs == once.seqs
    assert len(chat.context()["messages"]) == 1


def test_a_compaction_can_be_undone_and_put_back(chat: Session) -> None:
    talk(chat)
    before = chat.context()
    report = chat.compact(force=True)
    assert report["outcome"] == "committed"
    assert report["tokens_after"] < report["tokens_before"] == before["tokens"]
    short = chat.context()
    assert chat.undo(reason="a test")["outcome"] == "undone"
    assert chat.context() == before
    assert chat.redo()["run_id"] == report["run_id"]
    assert chat.context() == short
    history = chat.history()
    assert [run["run_id"] for run in history] == [report["run_id"]]
    assert [flip["kind"] for flip in history[0]["flips"]] == ["undo", "redo"]
    assert chat.as_of("loop-1", 39)["tokens"] == before["tokens"]
    assert chat.as_of(run=report["run_id"])["tokens"] == short["tokens"]
    assert chat.as_of(time="2999-01-01T00:00:00Z")["messages"]


def test_a_recorded_context_is_built_again_from_its_id(store: Store) -> None:
    chat = store.session("recorded")
    with pytest.raises(loopstore.NotFoundError):
        chat.record_context()
    chat.append([{"role": "user", "content": "Will it rain?"}], format="openai")
    before = chat.context()
    recorded = chat.record_context()
    assert recorded["messages"] == len(before["messages"])
    assert (recorded["tokens"], recorded["bytes"]) == (before["tokens"], before["bytes"])
    chat.append([{"role": "assistant", "content": "It will."}], format="openai")
    chat.compact(force=True)
    manifest = recorded["manifest_id"]
    assert chat.as_of(manifest=manifest)["messages"] == before["messages"]
    with pytest.raises(loopstore.NotFoundError):
        chat.as_of(manifest="nothing")
    with pytest.raises(loopstore.InvalidInputError):
        chat.as_of(run="r", manifest=manifest)


def test_prepare_compacts_when_the_window_fills(store: Store) -> None:
    chat = store.session("weather", policy=Policy(6_000))
    talk(chat)
    ready = chat.prepare(format="anthropic")
    assert ready.was_compacted and ready.tokens < 6_000
    assert ready.compactions[0]["outcome"] == "committed"
    assert ready.messages == ready.request["messages"] != []
    assert not chat.prepare().was_compacted
    assert chat.prepare(for_length=True).tokens <= ready.tokens


def test_old_tool_results_are_cleared_before_anything_is_compacted(store: Store) -> None:
    policy = Policy(6_000, clear_tool_results={"keep": 1, "exclude_tools": ("gauge",)})
    chat = store.session("weather", policy=policy)
    chat.append(user("How is the weather?"))
    for hour, tool in enumerate(["radar", "gauge", "radar", "radar", "radar", "radar"]):
        call = {"type": "toolCall", "id": f"c{hour}", "name": tool, "arguments": {}}
        result = {"role": "toolResult", "toolCallId": f"c{hour}", "toolName": tool}
        text = {"type": "text", "text": "rain, " * 600}
        chat.append([{"role": "assistant", "content": [call]}, {**result, "content": [text]}])
    chat.append(assistant("It rains."))
    before = chat.context()
    ready = chat.prepare()
    assert ready.cleared is not None and ready.not_cleared is None
    assert (len(ready.cleared["edits"]), len(ready.cleared["skipped"])) == (4, 1)
    assert not ready.was_compacted and ready.compactions == []
    assert ready.tokens == ready.cleared["tokens_after"]
    again = chat.prepare()
    assert (again.cleared, again.not_cleared) == (None, None)
    assert [run["strategy"] for run in chat.history()] == ["clear"]
    chat.undo()
    assert chat.context() == before
    # What clearing does not free is compacted, and the report says why nothing was cleared.
    report = chat.compact(policy=Policy(6_000, clear_tool_results={"at_least": 100_000}))
    assert "100000" in report["not_cleared"] and "cleared" not in report
    assert report["outcome"] == "committed"


def test_a_policy_can_leave_the_clearing_to_anthropic(store: Store) -> None:
    clear: ClearToolResults = {"keep": 2, "exclude_tools": ["gauge"], "by_provider": True}
    chat = store.session("weather", policy=Policy(200_000, clear_tool_results=clear))
    talk(chat)
    ready = chat.prepare(format="anthropic")
    edit = ready.request["context_management"]["edits"][0]
    assert edit["type"] == "clear_tool_uses_20250919"
    assert (edit["keep"]["value"], edit["exclude_tools"]) == (2, ["gauge"])
    assert chat.context(format="anthropic")["context_management"]["edits"] == [edit]
    assert "context_management" not in chat.prepare(format="openai").request


def test_what_anthropic_reports_as_cleared_is_a_marker_from_that_call_on(chat: Session) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "forecast", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "rain " * 200}
    cleared = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 250}

    def answer(edit: dict[str, object]) -> dict[str, object]:
        text = {"type": "text", "text": "It will."}
        return {"role": "assistant", "content": [text], "context_management": {"applied_edits": [edit]}}

    chat.append({"role": "user", "content": "Will it rain?"}, format="anthropic")
    chat.append({"role": "assistant", "content": [call]}, format="anthropic")
    chat.append({"role": "user", "content": [result]}, format="anthropic")
    before = chat.context()["messages"]
    assert chat.append(answer(cleared), format="anthropic").notes == []
    assert chat.context()["messages"][2]["content"][0]["text"].startswith("[cleared: 1,000 bytes")
    assert [run["strategy"] for run in chat.history()] == ["provider:anthropic"]
    notes = chat.append(answer({"type": "clear_images_2027"}), format="anthropic").notes
    assert len(notes) == 1 and "clear_images_2027" in notes[0]
    chat.undo()
    assert chat.context()["messages"][:3] == before


def test_a_dry_run_changes_nothing(chat: Session) -> None:
    talk(chat)
    before = chat.context()
    assert chat.compact(force=True, dry_run=True)["run_id"] is None
    assert chat.context() == before and chat.history() == []


def test_a_fork_is_a_line_of_its_own(chat: Session) -> None:
    chat.append([user("Will it rain?"), assistant("No.")])
    side = chat.fork("loop-1", 0)
    side.append(user("Are you sure?"))
    chat.append(user("And tomorrow?"))
    texts = [m["content"][0]["text"] for m in side.context()["messages"]]
    assert texts == ["Will it rain?", "No.", "Are you sure?"]
    texts = [m["content"][0]["text"] for m in chat.context()["messages"]]
    assert texts == ["Will it rain?", "No.", "And tomorrow?"]
    leaf = side.leaf()
    assert leaf is not None
    assert chat.at_loop(leaf).context()["loop_id"] == leaf


def test_loops_begin_and_end_on_purpose(chat: Session) -> None:
    chat.append([user("Will it rain?"), assistant("No.")])
    chat.end_loop("Aborted")
    assert chat.begin_loop("clean", fresh=True, agent="scout") == "clean"
    chat.append(user("What is the capital of France?"))
    assert len(chat.context()["messages"]) == 1
    shown = chat.show()
    assert [loop["status"] for loop in shown["loops"]] == ["Aborted", "Running"]
    with pytest.raises(loopstore.ExistsError):
        chat.begin_loop("clean")
    with pytest.raises(loopstore.InvalidInputError, match="Aborted"):
        chat.end_loop("Happy")  # type: ignore[arg-type]


def test_a_restart_knows_of_a_call_that_was_started(chat: Session) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "pay", "arguments": {}}
    chat.append([user("Pay the bill."), {"role": "assistant", "content": [call]}])
    first = chat.start_call("c1")
    assert first.state == "new" and first.key
    assert chat.start_call("c1") == ("started", first.key, None)
    child = chat.child("c1", "payment")
    child.append(user("Pay it."))
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "pay", "content": []}
    chat.append(result)
    assert chat.start_call("c1").state == "finished"
    with pytest.raises(loopstore.NotFoundError):
        chat.start_call("c2")


def test_a_pin_outlives_a_compaction(chat: Session) -> None:
    chat.append([user("How is the weather?"), assistant("The code is 7-11-19.")])
    talk(chat)
    chat.pin("loop-1", 0, 1)
    assert [pin["seq"] for pin in chat.pins()] == [1]
    chat.compact(force=True, policy=Policy(keep_first=0))
    assert "7-11-19" in str(chat.context())
    assert chat.unpin("loop-1", 0, 1)["outcome"] == "unpinned"


def test_what_a_compaction_hides_is_found(store: Store, chat: Session) -> None:
    chat.append([user("Which port?"), assistant("The server listens on 7071.")])
    talk(chat)
    chat.compact(force=True, policy=Policy(keep_first=0))
    hit = chat.search("listens", limit=1)["hits"][0]
    assert (hit["session_id"], hit["seq"]) == ("weather", 1)
    assert store.search("listens", by="session")["sessions"][0]["session_id"] == "weather"
    assert store.search("listens", session="weather", role="user")["hits"] == []
    answer = chat.recall("which port listens", 500)
    assert "7071" in answer.text and answer.tokens <= 500 and answer.parts
    assert store.recall("which port listens", 500).text == answer.text
    page = chat.expand(0, 0, loop_id="loop-1", match="port", max_tokens=500)
    assert page["messages"] and page["next"] is None
    with pytest.raises(loopstore.BudgetTooSmallError) as caught:
        store.recall("which port listens", 3)
    assert caught.value.needed > caught.value.budget == 3


def test_a_session_has_a_title_and_a_project(store: Store, chat: Session) -> None:
    chat.append(user("Will it rain?"))
    chat.set_title("The weather")
    chat.set_project(Path("/home/ann/garden"))
    assert [row["title"] for row in store.sessions(project="garden")] == ["The weather"]
    assert store.sessions(text="nothing of this") == []
    assert store.sql("SELECT session_id FROM v_sessions") == [{"session_id": "weather"}]


def test_sessions_are_listed_page_by_page(store: Store) -> None:
    for city in ["bern", "rome", "oslo"]:
        store.session(city).append(user("Will it rain?"))
    ids = [row["session_id"] for row in store.sessions()]
    first = [row["session_id"] for row in store.sessions(limit=2)]
    second = [row["session_id"] for row in store.sessions(limit=2, after=first[1])]
    assert (first + second, len(second)) == (ids, 1)
    with pytest.raises(loopstore.NotFoundError):
        store.sessions(after="paris")
    with pytest.raises(loopstore.InvalidInputError):
        store.sessions(limit=-1)


def test_a_session_goes_out_and_comes_in(store: Store, chat: Session, tmp_path: Path) -> None:
    talk(chat, 3)
    chat.export("jsonl", tmp_path / "weather.jsonl")
    assert b"How is the weather?" in chat.export("markdown")
    assert chat.report().startswith("<!doctype html>")
    chat.report(tmp_path / "weather.html")
    with Store.in_memory() as other:
        report = other.import_(tmp_path / "weather.jsonl")
        assert (report["sessions"], report["added_messages"]) == (["weather"], 4)
        assert other.import_(tmp_path / "weather.jsonl")["added_messages"] == 0
        assert other.session("weather").context()["tokens"] == chat.context()["tokens"]
    assert store.verify()["ok"] and store.stats()["messages"] == 4


def test_secrets_are_shown_first_and_replaced_as_the_policy_says(
    chat: Session, tmp_path: Path
) -> None:
    chat.append(user("git clone https://me:hunter2@example.org/x"))
    shown = chat.redact(dry_run=True)
    assert (shown["secrets"], shown["receipt"]) == ({"url-password": 1}, None)
    assert len(shown["findings"]) == 1
    assert chat.redact(dry_run=True, allow=["hunter2"])["secrets"] == {}
    assert chat.redact(dry_run=True, only=["github-pat"])["secrets"] == {}
    with pytest.raises(loopstore.InvalidInputError):
        chat.redact(only=["no-such"])
    with pytest.raises(loopstore.InvalidInputError):
        chat.redact(min_confidence="some")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        chat.redact(allow="hunter2")
    messages = [
        {"role": "user", "content": "git clone https://me:hunter2@example.org/x"},
        {"role": "assistant", "content": "Done."},
    ]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": messages}))
    assert chat.redact(reason="leaked")["receipt"] is not None
    assert "hunter2" not in str(chat.context())
    with Store.in_memory() as other:
        options = {"redact": True, "allow": ["hunter2"], "min_confidence": "high"}
        report = other.import_(tmp_path / "chat.json", **options)  # type: ignore[arg-type]
        assert "hunter2" in str(other.session(report["sessions"][0]).context())
    with Store.in_memory() as other:
        report = other.import_(tmp_path / "chat.json", redact=True)
        assert "hunter2" not in str(other.session(report["sessions"][0]).context())


def test_a_store_opened_for_reading_writes_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db", durability="normal") as store:
        store.session("weather").append(user("Will it rain?"))
    with Store.open(tmp_path / "a.db", read_only=True) as reader:
        assert len(reader.session("weather").context()["messages"]) == 1
        with pytest.raises(loopstore.ReadOnlyError):
            reader.session("weather").append(user("And now?"))


def test_the_counter_is_that_of_the_database(tmp_path: Path) -> None:
    assert "heuristic" in loopstore.COUNTERS
    Store.open(tmp_path / "a.db", counter="heuristic").close()
    Store.open(tmp_path / "a.db").close()
    with pytest.raises(loopstore.InvalidInputError, match="heuristic"):
        Store.open(tmp_path / "b.db", counter="guess")


def test_a_policy_that_says_nonsense_is_refused() -> None:
    for given, text in [
        ({"window": "x"}, "x"),
        ({"trigger": "sometimes"}, "sometimes"),
        ({"keep_recent": "all"}, "all"),
        ({"window": 0}, "0"),
        ({"clear_tool_results": {"kept": 5}}, "kept"),
        ({"clear_tool_results": {"keep": -1}}, "-1"),
        ({"clear_tool_results": {"exclude_tools": "ls"}}, "a list of texts"),
        ({"clear_tool_results": True}, "exclude_tools"),
        ({"model": "a-model-of-nobody"}, "a-model-of-nobody"),
        ({"trigger": "target", "trigger_params": {"triger": 0.5}}, "trigger"),
    ]:
        with pytest.raises((TypeError, loopstore.InvalidInputError), match=text):
            Policy(**given)  # type: ignore[arg-type]
