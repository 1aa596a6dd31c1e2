"""Sessions of Google's Agent Development Kit (ADK) that are kept by loopstore.

    from google.adk.runners import Runner
    from loopstore.adk import LoopstoreSessionService

    service = LoopstoreSessionService("agent.db")
    runner = Runner(app_name="weather", agent=agent, session_service=service)

Events are returned exactly as they were appended, as far as ADK writes them as JSON. Their texts are also stored
as messages, which are searched, counted, compacted and shown as those of any other session of loopstore:
`service.session(...)` returns it. A compaction of loopstore changes the results of `context` and `prepare`, never
the events.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.platform import time as platform_time
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from loopstore import _loopstore, _store
from loopstore._adk import clean, messages_of
from loopstore._adk_events import Events
from loopstore._adk_input import compacted
from loopstore._adk_state import (
    DELTA,
    Place,
    StateLog,
    about_of,
    dumps,
    extension,
    is_time,
    loads,
    place_of,
)
from loopstore._arguments import Path
from loopstore._errors import InvalidInputError
from loopstore._json import encode
from loopstore._policy import Policy, native_or_none
from loopstore._store import Json, Store
from loopstore._workers import Workers

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse

_CREATED = "adkSession"
_EVENT = "adkEvent"

_MAX_PART = 150
"""Bytes of a name within an id. A longer one is known by its digest."""

_PAGE = 256
"""How many events are read at a time where it is not known how many are needed."""


class LoopstoreSessionService(BaseSessionService):
    """The session service of ADK. It may be used from all threads, and by several processes at once."""

    def __init__(
        self,
        store: Store | Path = ":memory:",
        *,
        on_delete: Literal["hide", "erase"] = "hide",
        on_stale: Literal["refuse", "merge"] = "refuse",
    ) -> None:
        """Open or wrap a store.

        Args:
            store: An open store, which stays open; or the path of a database, which `close` closes.
            on_delete: The effect of `delete_session`: hide the session and keep the record, or erase it.
            on_stale: The effect of `append_event` with a session object that lacks the newest event: reject it
                with `StaleSessionError`, as ADK's database does, or append it anyway.
        """
        if on_delete not in ("hide", "erase"):
            raise InvalidInputError(f"on_delete is `hide` or `erase`, not {on_delete!r}")
        if on_stale not in ("refuse", "merge"):
            raise InvalidInputError(f"on_stale is `refuse` or `merge`, not {on_stale!r}")
        self._owns_store = not isinstance(store, Store)
        if isinstance(store, Store):
            self.store = store
        else:
            self.store = Store.open(store)
        self.on_delete = on_delete
        self.on_stale = on_stale
        self._workers = Workers("service")
        self._read_events = Events()
        self._locks = [Lock() for _ in range(64)]

    def session(self, *, app_name: str, user_id: str, session_id: str) -> _store.Session:
        """Return a session as loopstore's handle: `search`, `compact`, `undo`, `report`."""
        return self.store.session(_id(app_name, user_id, session_id))

    def before_model_callback(
        self, *, policy: Policy | None = None
    ) -> Callable[[CallbackContext, LlmRequest], Awaitable[LlmResponse | None]]:
        """Return a callback that gives the model the compacted context, and leaves the events whole.

        It is the `before_model_callback` of an `LlmAgent` whose runner has this service, or one of several. It compacts
        the session if the policy requires it, and replaces in the request the contents that the compaction covers.
        `service.session(...)` shows the compaction and can undo it.

        Contents that ADK made itself stay: instructions, and what other agents said. The policy's `system_tokens`
        are for these.

        Args:
            policy: The policy of the compactions; by default that of the store.
        """

        async def compact(
            callback_context: CallbackContext, llm_request: LlmRequest
        ) -> LlmResponse | None:
            of = callback_context.session
            id = _id(of.app_name, of.user_id, of.id)
            given = native_or_none(policy, asyncio.get_running_loop())

            def prepare(cancel: _loopstore.CancelFlag) -> tuple[list[Json], list[Json]] | None:
                log = _store.Session(self.store._native.session(id, given))
                ready = log._prepare("loopstore", False, True, cancel)
                is_raw = all(part["section"] == "raw" for part in ready.request["parts"])
                if is_raw and not log.history():
                    return None
                found = log.entries(roles=["user", "assistant", "toolResult"])
                return ready.messages, [entry["message"] for entry in found]

            found = await self._workers.cancellable(prepare)
            if found is not None:
                llm_request.contents = compacted(llm_request.contents, *found)
            return None

        return compact

    # Sessions.

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session.

        Raises:
            AlreadyExistsError: A session with this id exists.
        """
        session_id = _stripped(session_id) or str(uuid.uuid4())
        id = _id(app_name, user_id, session_id)
        app, user, own = _scopes(_plain(state))
        now = platform_time.get_time()
        about = {"app": app_name, "user": user_id, "id": session_id, "time": now}
        new = encode([extension(_CREATED, about, own)])

        def create() -> Session:
            if self.store.session(id).append_batch([("created", new)])[0].duplicate:
                raise AlreadyExistsError(f"Session with id {session_id} already exists.")
            if app:
                StateLog(self.store, _app_id(app_name)).add(app)
            if user:
                StateLog(self.store, _user_id(app_name, user_id)).add(user)
            found = self._get(id, GetSessionConfig(num_recent_events=0))
            if found is None:
                raise SessionNotFoundError(f"Session {session_id} was deleted meanwhile.")
            return found

        return await self._workers.run(create)

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events, or those that `config` selects; `None` if there is none."""
        id = _id(app_name, user_id, _stripped(session_id))
        return await self._workers.run(lambda: self._get(id, config))

    def _created(self, log: _store.Session) -> tuple[Json, Place, Json] | None:
        """Return the description of a session, its beginning, and its first state."""
        at = log.appended("created")
        if at is None:
            return None
        found = log.entries(loop_id=at.loop_id, seqs=at.seqs)
        if not found:
            return None
        data = found[0]["message"]["data"]
        return data["about"], place_of(found[0]), loads(data["json"])

    def _get(
        self, id: str, config: GetSessionConfig | None, shared: dict[str, Json] | None = None
    ) -> Session | None:
        log = self.store.session(id)
        created = self._created(log)
        if created is None:
            return None
        about, start, first = created
        # The events are read before the state: the state then includes that of the newest event.
        events = self._events(log, start, config)
        newest = events[-1:] or log.entries(kinds=[_EVENT], after=start, last=1)
        last = newest[0] if newest else None
        state = StateLog.of(log, start).read(first)
        for prefix, of in (
            (State.APP_PREFIX, _app_id(about["app"])),
            (State.USER_PREFIX, _user_id(about["app"], about["user"])),
        ):
            if shared is None or of not in shared:
                values = StateLog(self.store, of).read({})
                if shared is not None:
                    shared[of] = values
            else:
                values = shared[of]
            state.update({prefix + key: value for key, value in values.items()})
        session = Session(
            id=about["id"],
            app_name=about["app"],
            user_id=about["user"],
            state=state,
            events=[self._read_events.read(entry["message"]["data"]["json"]) for entry in events],
            last_update_time=about["time"] if last is None else about_of(last)["time"],
        )
        session._storage_update_marker = _marker(last, start)
        return session

    def _events(
        self, log: _store.Session, start: Place, config: GetSessionConfig | None
    ) -> list[Json]:
        most = config.num_recent_events if config else None
        since = config.after_timestamp if config else None
        if most == 0:
            return []
        if since is None:
            return log.entries(kinds=[_EVENT], after=start, last=most)
        pages: list[list[Json]] = []
        before: Place | None = None
        while most is None or sum(map(len, pages)) < most:
            page = log.entries(kinds=[_EVENT], after=start, before=before, last=_PAGE)
            if not page:
                break
            before = place_of(page[0])
            is_young = [about_of(entry)["time"] >= since for entry in page]
            pages.insert(0, [entry for entry, young in zip(page, is_young, strict=True) if young])
            # Clocks of writers differ, and a run may end after a later one: but not by this many events.
            if not any(is_young[: _PAGE // 2]):
                break
        events = [entry for page in pages for entry in page]
        return events if most is None else events[-most:]

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of a user, or of all users of an app: without events, last active last."""
        prefix = f"adk/{_part(app_name)}/"
        if user_id is not None:
            prefix += f"{_part(user_id)}/"

        def read() -> ListSessionsResponse:
            rows = self.store.sql(
                "SELECT session_id FROM v_sessions WHERE hidden_at IS NULL"
                " AND substr(session_id, 1, :size) = :prefix",
                {"size": len(prefix), "prefix": prefix},
            )
            shared: dict[str, Json] = {}
            none = GetSessionConfig(num_recent_events=0)
            found = [self._get(row["session_id"], none, shared) for row in rows]
            sessions = [session for session in found if session is not None]
            sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
            return ListSessionsResponse(sessions=sessions)

        return await self._workers.run(read)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, if it exists: see `on_delete`. Its id may be used again."""
        id = _id(app_name, user_id, _stripped(session_id))

        def delete() -> None:
            log = self.store.session(id)
            if not log.exists():
                return
            if self.on_delete == "erase":
                log.erase(reason="delete_session")
            else:
                log.hide()

        await self._workers.run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, with keys without `user:`."""
        id = _user_id(app_name, user_id)
        return await self._workers.run(lambda: StateLog(self.store, id).read({}))

    # Events.

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session and to its object; a partial one to neither.

        The event is durable when this returns. If the same event is appended again, for example because the
        result of the first attempt was lost, it is stored once.

        Raises:
            SessionNotFoundError: The session does not exist.
            StaleSessionError: The session object lacks the newest event. Get the session again.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        id = _id(session.app_name, session.user_id, session.id)
        text = dumps(_dumped(event))
        key = "event/" + hashlib.sha256(text.encode()).hexdigest()
        app, user, own = _scopes(_plain(event.actions.state_delta))
        parts = messages_of(event)
        about = {"id": clean(event.id), "author": clean(event.author), "time": event.timestamp}
        parts.append({"role": "extension", "kind": _EVENT, "data": {"about": about, "json": text}})
        if own:
            parts.append(extension(DELTA, {}, own))
        new = encode(parts)

        def append() -> bool:
            with self._locks[hash(id) % len(self._locks)]:
                log = self.store.session(id)
                begun = log.appended("created")
                if begun is None:
                    raise SessionNotFoundError(f"Session {session.id} not found.")
                start = (begun.loop_id, begun.seqs.start)
                is_new = log.appended(key) is None
                if is_new and self.on_stale == "refuse":
                    newest = log.entries(kinds=[_EVENT], last=1)
                    _refuse_stale(session, newest[0] if newest else None, start)
                # Under the key too, so that a second attempt completes the first one.
                if app:
                    StateLog(self.store, _app_id(session.app_name)).add(app, f"{id}/{key}")
                if user:
                    of = _user_id(session.app_name, session.user_id)
                    StateLog(self.store, of).add(user, f"{id}/{key}")
                at = log.append_batch([(key, new)])[0]
                if own and is_new and is_time(key):
                    created = self._created(log)
                    StateLog.of(log, start).write_whole(created[2] if created else {})
                # Only the state of the event may follow it.
                marker = f"{at.loop_id}/{at.seqs.stop - (2 if own else 1)}"
                session._storage_update_marker = marker
                session.last_update_time = event.timestamp
                return is_new

        is_new = await self._workers.run(append)
        # The object may already have what the store has.
        if not is_new and any(one == event for one in session.events if one.id == event.id):
            return event
        return self._commit_event_to_session(session, event)

    async def close(self) -> None:
        """End the threads, and close the store if this object opened it."""
        self._workers.close()
        if self._owns_store:
            self.store.close()

    async def __aenter__(self) -> LoopstoreSessionService:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _refuse_stale(session: Session, newest: Json | None, start: Place) -> None:
    marker = session._storage_update_marker
    if marker is not None:
        is_stale = marker != _marker(newest, start)
    else:
        # The object was made by another program: it is stale if the store has newer events.
        about = None if newest is None else about_of(newest)
        last = clean(session.events[-1].id) if session.events else None
        is_stale = (
            about is not None and about["time"] > session.last_update_time and about["id"] != last
        )
    if is_stale:
        raise StaleSessionError(
            "The session has been modified in storage since it was loaded. Please reload the session."
        )


def _plain(state: dict[str, Any] | None) -> Json:
    """Return a state as JSON, in the way that ADK writes that of an event."""
    if not state:
        return {}
    form: Json = _dumped(EventActions(state_delta=state))["state_delta"]
    return form


def _dumped(model: Event | EventActions) -> Json:
    try:
        return model.model_dump(mode="json", exclude_none=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"this cannot be written as JSON: {error}") from error


def _scopes(state: Json) -> tuple[Json, Json, Json]:
    """Split a state into those of the app, of the user and of the session."""
    app: Json = {}
    user: Json = {}
    own: Json = {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return app, user, own


def _marker(newest: Json | None, start: Place) -> str:
    loop_id, seq = start if newest is None else place_of(newest)
    return f"{loop_id}/{seq}"


def _stripped(id: str | None) -> str:
    if id is not None and not isinstance(id, str):
        raise InvalidInputError(f"a session id is a str, not {type(id).__name__}")
    return (id or "").strip()


def _part(name: str) -> str:
    """Write a name without the separator."""
    if not isinstance(name, str):
        raise InvalidInputError(f"an app's, user's or session's id is a str, not {type(name).__name__}")
    try:
        part = quote(name, safe="")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"an id is no Unicode text: {error}") from error
    # A `=` in a name is escaped.
    return part if len(part) <= _MAX_PART else "=" + hashlib.sha256(name.encode()).hexdigest()


def _id(app_name: str, user_id: str, session_id: str) -> str:
    return f"adk/{_part(app_name)}/{_part(user_id)}/{_part(session_id)}"


def _app_id(app_name: str) -> str:
    return f"adk-app/{_part(app_name)}"


def _user_id(app_name: str, user_id: str) -> str:
    return f"adk-user/{_part(app_name)}/{_part(user_id)}"
