"""How objects look in a REPL and in a notebook, and what unknown sessions and system prompts do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import assistant, talk, user

import loopstore
from loopstore import AsyncStore, Policy, Session, Store


def test_objects_print_on_one_line_for_people(store: Store, chat: Session, tmp_path: Path) -> None:
    done = chat.append([user("Will it rain?"), assistant("No.")])
    assert repr(done) == f"<loopstore.Appended 2 messages, {done.tokens} tokens: loop-1, turn 0, began loop-1>"
    chat.append([user("And now?"), assistant("No.")], key="k")
    assert "a duplicate" in repr(chat.append([user("And now?"), assistant("No.")], key="k"))
    assert "1 note: half of a surrogate pair" in repr(chat.append(user("\ud800")))
    assert repr(chat) == "<loopstore.Session 'weather'>"
    assert repr(store) == f"<loopstore.Store {tmp_path / 'agent.db'}>"
    talk(chat)
    ready = chat.with_policy(Policy(6_000)).prepare()
    assert repr(ready).startswith(f"<loopstore.Prepared {len(ready.messages)} messages, {ready.tokens:,} tokens, compacted")
    answer = chat.recall("rain", 300)
    assert repr(answer).startswith("<loopstore.Recall ") and "\n" not in repr(answer) and len(repr(answer)) < 150
    assert str(answer) == answer.text
    # An unpacked result stays a tuple.
    loop_id, *_ = done
    assert loop_id == "loop-1" and done == tuple(done)


def test_a_policy_prints_what_was_given() -> None:
    def write(request: loopstore.SummaryRequest) -> str:
        return "text"

    assert repr(Policy()) == "Policy()"
    assert repr(Policy(200_000, keep_recent=40)) == "Policy(window=200_000, keep_recent=40)"
    shown = repr(Policy(trigger="target", trigger_params={"target": 0.4}, summarizer=write, warn=print, warn_at=0.8))
    assert "trigger='target', trigger_params={'target': 0.4}" in shown and "write, warn=print" in shown
    assert "None" not in shown and eval(repr(Policy(9_000, scope="fixed:2"))) == Policy(9_000, scope="fixed:2")


def test_rows_are_lists_of_dictionaries_and_tables(store: Store, chat: Session) -> None:
    chat.append([user("<b>Will it rain?</b>"), assistant("No.")])
    talk(chat)
    chat.compact(force=True)
    for rows in (store.sql("SELECT 1 AS a"), store.sessions(), chat.history(), store.history(), chat.entries()):
        assert isinstance(rows, list) and isinstance(rows[0], dict)
        page: str = rows._repr_html_()
        assert page.startswith("<table>") and page.count("<tr>") == min(len(rows), 50) + 1
    assert "&lt;b&gt;Will it rain?&lt;/b&gt;" in store.sessions()._repr_html_()
    assert "committed" in chat._repr_html_() and "weather" in chat._repr_html_()
    many = store.sql("WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 60) SELECT a FROM n")
    assert "and 10 more rows" in many._repr_html_()
    assert store.sql("SELECT 1 WHERE 0")._repr_html_() == "<p>no rows</p>"


def test_an_unknown_session_is_not_an_empty_one(store: Store) -> None:
    chat = store.session("wether")
    for call in (chat.context, chat.prepare):
        with pytest.raises(loopstore.NotFoundError, match="create=True") as caught:
            call()  # type: ignore[operator]
        assert (caught.value.what, caught.value.id) == ("session", "wether")
    assert chat.context(create=True)["messages"] == []
    assert chat.prepare(format="openai", create=True).messages == []
    assert not chat.exists()
    # A session without messages has an empty context.
    chat.set_title("The weather")
    assert chat.context(format="responses")["input"] == []


async def test_an_unknown_session_is_not_an_empty_one_for_asyncio(tmp_path: Path) -> None:
    async with await AsyncStore.open(tmp_path / "a.db") as store:
        chat = store.session("wether")
        for call in (chat.context, chat.prepare):
            with pytest.raises(loopstore.NotFoundError):
                await call()  # type: ignore[operator]
        assert (await chat.context(create=True))["messages"] == []
        assert (await chat.prepare(create=True)).messages == []


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_comes_back_in_every_form(chat: Session, role: str) -> None:
    prompt: Any = {"role": role, "content": "Be brief."}
    question = {"role": "user", "content": "Will it rain?"}
    answer = {"role": "assistant", "content": "rain, " * 400}
    chat.append([prompt, question, answer], format="openai")
    for _ in range(20):
        chat.append([question, answer], format="openai")
    chat.compact(force=True, policy=Policy(4_000, keep_first=0, keep_recent=1))
    assert chat.context(format="openai")["messages"][0] == prompt
    assert chat.prepare(format="openai").messages[0] == prompt
    assert chat.context(format="anthropic")["system"] == "Be brief."
    assert "Be brief." in str(chat.context(format="responses"))
    assert "Be brief." in str(chat.context()["system"])
    # The newest one is in force.
    chat.append({"role": role, "content": "Be long."}, format="openai")
    assert chat.context(format="openai")["messages"][0]["content"] == "Be long."
    assert "Be brief." not in str(chat.context(format="openai")["messages"][0])
    hidden = chat.with_policy(Policy(system_prompts="none"))
    assert "Be long." not in str(hidden.context(format="openai"))
