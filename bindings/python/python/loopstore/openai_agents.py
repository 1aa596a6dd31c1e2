"""A session of the OpenAI Agents SDK that is kept by loopstore.

    from agents import Agent, Runner
    from loopstore.openai_agents import LoopstoreSession

    session = LoopstoreSession("user-17", "agent.db")
    result = await Runner.run(agent, "Will it rain?", session=session)

The items that the SDK adds are stored once and never changed. `get_items` returns the context: each item as it
was added, with summaries in place of compacted ones. `pop_item` and `clear_session` begin a branch, and the
record stays. The same session can be searched, shown and exported with `loopstore.Store`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from agents.memory import SessionSettings
from agents.memory.session import OpenAIResponsesCompactionArgs, SessionABC

from loopstore import _log, _loopstore, _responses
from loopstore._arguments import Path
from loopstore._errors import ClosedError, InvalidInputError
from loopstore._json import decode, encode, encode_message
from loopstore._policy import Policy, native
from loopstore._store import Json, Session, Store
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
        """Open or wrap the store of a session.

        Args:
            session_id: The session's id.
            store: An open store, which stays open; or the path of a database, which `close` closes.
            policy: The policy of loopstore's compactions; by default at 90 % of a window of 128,000 tokens.
            session_settings: The SDK's settings: `limit` is the default of `get_items`.
            compaction: The compacting side: loopstore, by the policy; or the provider (`responses.compact`),
                whose sealed item is stored unchanged and replaces the items before it.
            client: The client for requests to the provider.
            model: The model that the provider compacts with.
            compaction_mode: The way in which the provider gets the history: as the items, by the id of the last
                response, or with `auto` by the id if the provider stored that response.
            should_trigger_compaction: Decides whether the provider is called; by default once ten items are
                neither prompts nor compactions.
            on_delete: The effect of `clear_session`: begin again and keep the record, or erase it.
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
            self.store = Store.open(store)
        self._native()  # An invalid id fails here.
        self._workers = Workers("session")
        self._response_id: str | None = None
        self._unstored_response_id: str | None = None
        # The number of items in the session when this object last read or wrote it; None if unknown.
        self._known: int | None = None

    @property
    def session(self) -> Session:
        """The session as loopstore's handle, for functions that the SDK does not have: `search`, `undo`,
        `report`.
        """
        return Session(self._native())

    def _native(self, loop: asyncio.AbstractEventLoop | None = None) -> _loopstore.Session:
        """Return a handle that continues from the current end of the session, whichever program wrote it."""
        policy = native(self.policy, loop) if self.policy else None
        session = self.store._native.session(self.session_id, policy)
        # The provider's own compactions apply to the provider; every other model reads the originals.
        return session.for_provider("openai") if self.compaction == "openai" else session

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the context, oldest first.

        Args:
            limit: The maximum number of items, from the end; by default that of `session_settings`, else all.
                None for 0, and all for a negative number.
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
        """Append items: all of them or, with an exception, none. They are durable when it returns."""
        if self.store.closed:
            raise ClosedError("the store is closed; open it again")
        if items:
            known, self._known = self._known, None
            await self._workers.settled(lambda: self._native().append_items(encode_message(list(items))[0]))
            self._known = None if known is None else known + len(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; `None` if there is none. The record keeps it."""
        # If the call fails, the item may have been removed.
        item: bytes | None = b""
        try:
            item = await self._workers.settled(lambda: self._native().pop_item())
        finally:
            if item is not None:
                self._forget_responses()
        return None if item is None else cast("TResponseInputItem", decode(item))

    async def clear_session(self) -> None:
        """Begin again without items. The record stays, unless `on_delete` is `erase`."""

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
        """Forget the last response: the provider stored items for it that the session no longer has."""
        self._response_id = self._unstored_response_id = None
        self._known = None

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Compact the session, if a compaction is due: as an overlay, which `session.undo()` undoes.

        While a call waits for its result the provider is called only with `force`. It gets the items; with
        `previous_response_id` it is not called if another program added items that its last response lacks.

        Args:
            args: Of the SDK: `force` compacts whatever the policy or the decision says; `response_id`, `store`
                and `compaction_mode` state how the provider gets the history.
            wrapper: The context of the run, whose usage includes that of the provider.
        """
        options: dict[str, Any] = dict(args or {})
        force = bool(options.get("force"))
        if self.compaction == "openai":
            await self._compact_by_provider(options, force, wrapper)
            return
        loop = asyncio.get_running_loop()
        cancel = _loopstore.CancelFlag()

        def compact() -> None:
            session = self._native(loop)
            if session.leaf() is not None:
                report = session.compact(force, False, None, cancel)
                _log.compacted(self.session_id, decode(report))

        await self._workers.settled(compact, cancel)

    async def _compact_by_provider(
        self, options: dict[str, Any], force: bool, wrapper: RunContextWrapper[Any] | None
    ) -> None:
        mode = self._mode(options)
        found = await self._workers.settled(lambda: self._native().items_to_seal())
        if found is None:
            return
        items = _responses.sendable(decode(found[0]))
        is_foreign = self._known not in (None, len(items))
        if mode == "previous_response_id" and (is_foreign or self._is_hidden(len(items))):
            if (options.get("compaction_mode") or self.compaction_mode) == "auto":
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
        request: dict[str, Any] = {"model": self.model}
        if mode == "previous_response_id":
            request["previous_response_id"] = self._response_id
        else:
            request["input"] = items
        answer = await self._openai().responses.compact(**request)
        if wrapper is not None and (used := getattr(answer, "usage", None)) is not None:
            wrapper.usage.add(_responses.usage(used))
        output = _responses.answered(answer.output or [])
        _, loop_id, seq = found
        self._known = None
        await self._workers.settled(lambda: self._native().seal_items(encode(output), loop_id, seq))

    def _mode(self, options: dict[str, Any]) -> Literal["previous_response_id", "input"]:
        """Return the way in which the provider gets the history."""
        self._response_id = options.get("response_id") or self._response_id
        is_stored = options.get("store")
        if is_stored is False:
            self._unstored_response_id = self._response_id
        elif is_stored and self._unstored_response_id == self._response_id:
            self._unstored_response_id = None
        mode = options.get("compaction_mode") or self.compaction_mode
        if mode == "previous_response_id" and self._response_id is None:
            raise ValueError("compaction by previous_response_id needs a response_id")
        if mode == "auto":
            is_known = self._response_id not in (None, self._unstored_response_id)
            return "previous_response_id" if is_known else "input"
        return "input" if mode == "input" else "previous_response_id"

    def _is_hidden(self, count: int) -> bool:
        """Return true if a limit hides some of the items from the model, so that no response has all of them."""
        limit = self.session_settings.limit if self.session_settings else None
        return limit is not None and 0 <= limit < count

    def _openai(self) -> AsyncOpenAI:
        if self._client is None:
            from agents.models._openai_shared import get_default_openai_client
            from openai import AsyncOpenAI

            self._client = get_default_openai_client() or AsyncOpenAI()
        return self._client

    def close(self) -> None:
        """End the threads, and close the store if this object opened it."""
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


def _settings(options: dict[str, Any]) -> SessionSettings:
    known = [field.name for field in dataclasses.fields(SessionSettings)]
    if unknown := sorted(set(options) - set(known)):
        raise InvalidInputError(
            f"unknown session settings: {', '.join(unknown)}; known are {', '.join(known)}"
        )
    return SessionSettings(**options)
