"""The input of a LangGraph model: the messages of the state, read through the compactions of the thread's session.

The state is not changed. The session may lag behind it, since LangGraph stores checkpoints in the background: messages
of the state after the last stored one are added as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.serde.base import SerializerProtocol

from loopstore import _langchain
from loopstore._errors import DamagedError, InvalidInputError
from loopstore._loopstore import CancelFlag
from loopstore._policy import Policy, native_or_none
from loopstore._store import Prepared, Session, Store
from loopstore._workers import Workers

Json = dict[str, Any]

_LOG = logging.getLogger("loopstore.langgraph")
_STORED = (HumanMessage, AIMessage, ToolMessage)
"""Messages that a context has."""

_AWAIT = 0.06
"""Seconds of the last of the pauses, each twice as long as the one before, in which a checkpoint is waited for."""

_SUBGRAPH = "|"
"""Separates the parts of a checkpoint's namespace within a subgraph."""


class ModelInput(list[BaseMessage]):
    """The messages that a model gets: those of the state by their ids, and those of a compaction.

    A graph may store it as a value of its state, as `create_react_agent` does. The saver then stores the ids, not a
    second list of messages on the thread.
    """

    def __init__(self, messages: list[BaseMessage], of_state: frozenset[str]) -> None:
        """Take the messages, and the ids of those that are the state's own."""
        super().__init__(messages)
        self._of_state = of_state

    def write(self, encode: Callable[[BaseMessage], list[str]]) -> Json:
        """Return the form in which it is stored."""
        return {
            STORED: [
                message.id if message.id in self._of_state else encode(message) for message in self
            ]
        }


STORED = "loopstore.model_input"
"""The field of a stored `ModelInput`."""


def read_input(
    form: Json, values: Json, decode: Callable[[list[str]], BaseMessage]
) -> ModelInput:
    """Return a stored input; a message that was removed from the state since is no longer in it."""
    known: dict[str, BaseMessage] = {}
    for value in values.values():
        if type(value) is list:
            known.update((one.id, one) for one in value if isinstance(one, BaseMessage) and one.id)
    found: list[BaseMessage] = []
    for each in form[STORED]:
        if not isinstance(each, str):
            found.append(decode(each))
        elif each in known:
            found.append(known[each])
    return ModelInput(found, frozenset(known))


class ModelHook:
    """The hook: a function of the state for a graph, and one for its coroutines."""

    def __init__(
        self,
        store: Store,
        serde: SerializerProtocol,
        policy: Policy | None,
        source: str,
        target: str,
    ) -> None:
        self._store = store
        self._serde = serde
        self._policy = policy
        self._source = source
        self._target = target
        self._workers = Workers("hook")

    def __call__(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Return the input of the model as an update of the state."""
        chat, messages = self._session(config, None), self._messages(state)
        last = _last_stored(chat, messages)
        return self._update(messages, last, chat.prepare(create=True), config)

    async def later(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Return the input of the model, for a coroutine."""
        loop = asyncio.get_running_loop()
        messages = self._messages(state)

        def work(cancel: CancelFlag) -> tuple[str | None, Prepared]:
            chat = self._session(config, loop)
            last = _last_stored(chat, messages)
            return last, chat._prepare("loopstore", False, True, cancel)

        last, ready = await self._workers.cancellable(work)
        return self._update(messages, last, ready, config)

    def _session(self, config: RunnableConfig, loop: asyncio.AbstractEventLoop | None) -> Session:
        given = config.get("configurable") or {}
        thread = given.get("thread_id")
        if thread is None:
            raise InvalidInputError(
                "the hook needs a `thread_id`: compile the graph with a LoopstoreSaver, and give a thread"
            )
        if _SUBGRAPH in str(given.get("checkpoint_ns") or ""):
            raise InvalidInputError(
                "the hook is for the model of the outermost graph: the messages of a subgraph are not on the line of"
                " the thread's session"
            )
        policy = native_or_none(self._policy, loop)
        return Session(self._store._native.session(str(thread), policy))

    def _messages(self, state: Any) -> list[BaseMessage]:
        found = state.get(self._source) if isinstance(state, Mapping) else getattr(state, self._source, None)
        if not isinstance(found, list):
            raise InvalidInputError(f"the state has no list of messages under `{self._source}`")
        return found

    def _update(
        self, messages: list[BaseMessage], last: str | None, ready: Prepared, config: RunnableConfig
    ) -> dict[str, Any]:
        return {self._target: self._input(messages, last, ready, config)}

    def _input(
        self, messages: list[BaseMessage], last: str | None, ready: Prepared, config: RunnableConfig
    ) -> ModelInput:
        thread = (config.get("configurable") or {}).get("thread_id")
        places = {message.id: at for at, message in enumerate(messages) if message.id}
        if last is None:
            if sum(isinstance(message, HumanMessage) for message in messages) > 1:
                _LOG.warning(
                    "thread %s has no stored messages; the model gets all of the state: does the graph use"
                    " LoopstoreSaver with this store?",
                    thread,
                )
            return ModelInput(messages, frozenset(places))
        shown = [_read(form, self._serde) for form in ready.messages]
        known = [places.get(message.id) for message in shown if message.id is not None]
        if last not in places or None in known or known != sorted(known, key=lambda at: at or 0):
            _LOG.warning(
                "the stored messages of thread %s are not those of the state, which is being edited; the model gets"
                " all of the state",
                thread,
            )
            return ModelInput(messages, frozenset(places))
        stored = places[last] + 1
        given = {message.id for message in shown if message.id is not None}
        system = [message for message in messages[:stored] if isinstance(message, SystemMessage)]
        rest = [message for message in messages[stored:] if message.id not in given or message.id is None]
        own = frozenset(
            message.id
            for message in shown
            if message.id is not None and message == messages[places[message.id]]
        )
        changed = given - own
        return ModelInput([*system, *shown, *rest], frozenset(places) - changed)


def _last_stored(chat: Session, messages: list[BaseMessage]) -> str | None:
    """Return the id of the last stored message; `None` if there is none.

    A checkpoint that is just being stored is waited for: a context that has all messages fits the window.
    """
    wanted = next((message.id for message in reversed(messages) if isinstance(message, _STORED)), None)
    pause = 0.001
    while True:
        found = _last_id(chat)
        if wanted is None or found == wanted or pause > _AWAIT:
            return found
        time.sleep(pause)
        pause *= 2


def _last_id(chat: Session) -> str | None:
    if not chat.exists():
        return None
    found = chat.entries(roles=["user", "assistant", "toolResult"], last=1)
    if not found:
        return None
    id = (found[0]["message"].get(_langchain.MARK) or {}).get("id")
    return id if isinstance(id, str) else ""


def _read(form: Json, serde: SerializerProtocol) -> BaseMessage:
    """Return a message of a context: one of the state, perhaps shortened, or a summary."""
    if _langchain.MARK in form:
        try:
            return _langchain.read(dict(form), serde)
        except DamagedError:
            # The texts of an edit are not in the form in which the message was written.
            pass
    blocks = form.get("content") or []
    text = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
    if form["role"] == "assistant":
        calls: list[Any] = [
            {"name": block["name"], "args": block["arguments"], "id": block["id"], "type": "tool_call"}
            for block in blocks
            if block.get("type") == "toolCall"
        ]
        return AIMessage(text, tool_calls=calls, id=_id(form))
    if form["role"] == "toolResult":
        status: Any = "error" if form.get("isError") else "success"
        return ToolMessage(
            text,
            tool_call_id=form["toolCallId"],
            name=form.get("toolName"),
            status=status,
            id=_id(form),
        )
    return HumanMessage(text, id=_id(form))


def _id(form: Json) -> str | None:
    id: str | None = (form.get(_langchain.MARK) or {}).get("id")
    return id


def pre_model_hook(
    store: Store,
    serde: SerializerProtocol,
    policy: Policy | None,
    source: str,
    target: str,
) -> Runnable[Any, dict[str, list[AnyMessage]]]:
    """Return the hook as a runnable."""
    made = ModelHook(store, serde, policy, source, target)

    def hook(state: Any, config: RunnableConfig) -> Any:
        return made(state, config)

    async def later(state: Any, config: RunnableConfig) -> Any:
        return await made.later(state, config)

    return RunnableLambda(hook, afunc=later, name="loopstore")
