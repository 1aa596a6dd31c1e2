"""A session of the OpenAI Agents SDK that is kept by loopstore.

    from agents import Agent, Runner
    from loopstore.openai_agents import LoopstoreSession

    session = LoopstoreSession("user-17", "agent.db")
    result = await Runner.run(agent, "Will it rain?", session=session)

What the SDK adds is stored once and never changed. `get_items` gives the context: each item as it was added,
and what a compaction put in place of others. `pop_item` and `clear_session` begin a branch, and the record
stays. The same session can be searched, shown and exported with `loopstore.Store`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from agents.memory import SessionSettings
from agents.memory.session import OpenAIResponsesCompactionArgs, SessionABC

from loopstore import _loopstore, _responses
from loopstore._errors import ClosedError, InvalidInputError
from loopstore._json import decode, encode
from loopstore._policy import Policy, native
from loopstore._store import Json, Path, Session, Store
from loopstore._workers import Workers

if TYPE_CHECKING:
    from agents import RunContextWrapper
    from agents.items import TResponseInputItem
    from openai import AsyncOpenAI

Mode = Literal["previous_response_id", "input", "auto"]

Decision = Callable[[dict[str, Any]], bool]


class LoopstoreSession(SessionABC):
    """The `Session` of the OpenAI Agents SDK, also its compaction-aware one.

    Several objects of one session id, in any number of threads and processes, are the same session.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | Path = ":memory:",
        *,
        policy: Policy | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        compaction: Literal["loopstore", "openai"] = "loopstore",
        client: AsyncOpenAI | None = None,
        model: str = "gpt-4.1",
        compaction_mode: Mode = "auto",
        should_trigger_compaction: Decision | None = None,
        on_delete: Literal["keep", "erase"] = "keep",
    ) -> None:
        """Take a session of a store.

        Args:
            session_id: The session's id.
            store: An open store, which stays open; or the path of a database, which `close` closes.
            policy: When and how loopstore compacts; by default at 90 % of a window of 128,000 tokens.
            session_settings: The SDK's settings: `limit` is the default of `get_items`.
            compaction: Who compacts: loopstore, by the policy; or the provider (`responses.compact`), whose
                sealed item is kept as it came and stands for what was before it.
            client: The client that asks the provider.
            model: The model that the provider compacts with.
            compaction_mode: How the provider gets the history: as the items, by the id of the last response, or
                with `auto` by the id where the provider stored that response.
            should_trigger_compaction: Decides whether the provider is asked; by default once ten items are
                neither prompts nor compactions.
            on_delete: What `clear_session` does: begin anew and keep the record, or erase it.
        """
        if compaction not in ("loopstore", "openai"):
            raise InvalidInputError(f"compaction is `loopstore` or `openai`, not {compaction!r}")
        if on_delete not in ("keep", "erase"):
            raise InvalidInputError(f"on_delete is `keep` or `erase`, not {on_delete!r}")
        if compaction_mode not in ("auto", "previous_response_id", "input"):
            raise InvalidInputError(
                f"compaction_mode is `auto`, `previous_response_id` or `input`, not {compaction_mode!r}"
            )
        if isinstance(session_settings, dict):
            session_settings = _settings(session_settings)
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self.policy = policy
        self.compaction = compaction
        self.model = model
        self.compaction_mode = compaction_mode
        self.on_delete = on_delete
        self._client = client
        self._decides = (
            _responses.has_many_candidates
            if should_trigger_compaction is None
            else should_trigger_compaction
        )
        self._owns_store = not isinstance(store, Store)
        if isinstance(store, Store):
            self.store = store
        else:
            in_memory = str(store) == ":memory:"
            self.store = Store.in_memory() if in_memory else Store.open(store)
        self._native()  # An id that is none is told here.
        self._workers = Workers("session")
        self._response_id: str | None = None
        self._unstored_response_id: str | None = None
        # How many items the session had when this object last read or wrote it; None: not known.
        self._known: int | None = None

    @property
    def session(self) -> Session:
        """The session as loopstore has it, for what the SDK has no name for: `search`, `undo`, `report`."""
        return Session(self._native())

    def _native(self, loop: asyncio.AbstractEventLoop | None = None) -> _loopstore.Session:
        """Return a handle that goes on from where the session is now, whoever brought it there."""
        policy = native(self.policy, loop) if self.policy else None
        session = self.store._native.session(self.session_id, policy)
        # Its own compactions count for the provider; every other model reads the originals.
        return session.for_provider("openai") if self.compaction == "openai" else session

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the context, oldest first.

        Args:
            limit: Only the last so many; by default that of `session_settings`, else all. None for 0, and
                all for a negative number.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit == 0:
            return []
        most = None if limit is None or limit < 0 else limit

        def read() -> list[TResponseInputItem]:
            items: list[TResponseInputItem] = decode(self._native().items(most))
            return items

        items = await self._workers.settled(read)
        self._known = len(items) if most is None or len(items) < most else None
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items: all of them or, with an exception, none. When it returns they are durable."""
        if self.store.closed:
            raise ClosedError("the store is closed; open it again")
        if items:
            known, self._known = self._known, None
            await self._workers.settled(lambda: self._native().append_items(encode(list(items))))
            self._known = None if known is None else known + len(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item back and return it; `None` if there is none. The record keeps it."""
        # Taken, for all that is known, if the call fails.
        item: bytes | None = b""
        try:
            item = await self._workers.settled(lambda: self._native().pop_item())
        finally:
            if item is not None:
                self._forget_responses()
        return None if item is None else cast("TResponseInputItem", decode(item))

    async def clear_session(self) -> None:
        """Begin anew: no item is left. The record stays, unless `on_delete` is `erase`."""

        def clear() -> None:
            session = self._native()
            if not session.exists():
                return
            if self.on_delete == "erase":
                session.erase("clear_session")
            else:
                session.begin_loop(None, True, None, None)

        try:
            await self._workers.settled(clear)
        finally:
            self._forget_responses()

    def _forget_responses(self) -> None:
        """Forget the last response: what the provider stored for it has items that are not there any more."""
        self._response_id = self._unstored_response_id = None
        self._known = None

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Compact the session, if that is due: as an overlay, which `session.undo()` takes back.

        While a call waits for its result the provider is asked only by `force`. It is asked with the items, or
        by `previous_response_id` not at all, where somebody else added some that its last response does not know.

        Args:
            args: Of the SDK: `force` compacts whatever the policy or the decision says; `response_id`,
                `store` and `compaction_mode` say how the provider gets the history where it is asked.
            wrapper: The context of the run, whose usage counts what the provider used.
        """
        given: dict[str, Any] = dict(args or {})
        force = bool(given.get("force"))
        if self.compaction == "openai":
            await self._compact_by_provider(given, force, wrapper)
            return
        loop = asyncio.get_running_loop()
        cancel = _loopstore.CancelFlag()

        def compact() -> None:
            session = self._native(loop)
            if session.leaf() is not None:
                session.compact(force, False, None, cancel)

        await self._workers.settled(compact, cancel)

    async def _compact_by_provider(
        self, given: dict[str, Any], force: bool, wrapper: RunContextWrapper[Any] | None
    ) -> None:
        mode = self._mode(given)
        found = await self._workers.settled(lambda: self._native().items_to_seal())
        if found is None:
            return
        items = _responses.given(decode(found[0]))
        is_foreign = self._known not in (None, len(items))
        if mode == "previous_response_id" and (is_foreign or self._is_hidden(len(items))):
            if (given.get("compaction_mode") or self.compaction_mode) == "auto":
                mode = "input"
            elif is_foreign:
                return
        context = {
            "response_id": self._response_id,
            "compaction_mode": mode,
            "compaction_candidate_items": _responses.candidates(items),
            "session_items": items,
        }
        if not force and (_responses.is_open(items) or not self._decides(context)):
            return
        asked: dict[str, Any] = {"model": self.model}
        if mode == "previous_response_id":
            asked["previous_response_id"] = self._response_id
        else:
            asked["input"] = items
        answer = await self._openai().responses.compact(**asked)
        if wrapper is not None and (told := getattr(answer, "usage", None)) is not None:
            wrapper.usage.add(_responses.usage(told))
        output = _responses.answered(answer.output or [])
        _, loop_id, seq = found
        self._known = None
        await self._workers.settled(lambda: self._native().seal_items(encode(output), loop_id, seq))

    def _mode(self, given: dict[str, Any]) -> Literal["previous_response_id", "input"]:
        """Say how the provider gets the history."""
        self._response_id = given.get("response_id") or self._response_id
        is_stored = given.get("store")
        if is_stored is False:
            self._unstored_response_id = self._response_id
        elif is_stored and self._unstored_response_id == self._response_id:
            self._unstored_response_id = None
        mode = given.get("compaction_mode") or self.compaction_mode
        if mode == "previous_response_id" and self._response_id is None:
            raise ValueError("compaction by previous_response_id needs a response_id")
        if mode == "auto":
            is_known = self._response_id not in (None, self._unstored_response_id)
            return "previous_response_id" if is_known else "input"
        return "input" if mode == "input" else "previous_response_id"

    def _is_hidden(self, count: int) -> bool:
        """Whether a limit keeps some of so many items from the model, so that no response has them all."""
        limit = self.session_settings.limit if self.session_settings else None
        return limit is not None and 0 <= limit < count

    def _openai(self) -> AsyncOpenAI:
        if self._client is None:
            from agents.models._openai_shared import get_default_openai_client
            from openai import AsyncOpenAI

            self._client = get_default_openai_client() or AsyncOpenAI()
        return self._client

    def close(self) -> None:
        """Let the threads go, and close the store if this object opened it."""
        self._workers.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> LoopstoreSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _settings(given: dict[str, Any]) -> SessionSettings:
    known = [field.name for field in dataclasses.fields(SessionSettings)]
    if unknown := sorted(set(given) - set(known)):
        raise InvalidInputError(
            f"unknown session settings: {', '.join(unknown)}; known are {', '.join(known)}"
        )
    return SessionSettings(**given)
