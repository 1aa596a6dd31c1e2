"""The front door: a store, and a session's handle."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from html import escape
from types import TracebackType
from typing import Any, Literal, NamedTuple, overload

from loopstore import _arguments, _log, _loopstore
from loopstore._arguments import Instant, Path, Paths
from loopstore._errors import InvalidInputError, NotFoundError
from loopstore._interrupt import interruptible
from loopstore._json import FORMS, Form, Messages, decode, encode, messages
from loopstore._policy import Policy, native, native_or_none
from loopstore._rows import Rows
from loopstore._sql import Params, with_params

Json = dict[str, Any]
_START = re.compile(r"\d+(:\d+)?")
Confidence = Literal["low", "medium", "high"]
EditTarget = str | Mapping[str, Any]
"""A target of an edit: `LOOP:TURN`, `LOOP:FIRST..LAST`, `LOOP:TURN:SEQ`, `LOOP:TURN:SEQ:PART` or the id of a call; or
these as a dictionary: `call`, or `loop_id` and `turn`, with `last_turn`, or with `seq` and `part`."""


class Appended(NamedTuple):
    """The result of an append."""

    loop_id: str
    """The loop that holds the last of the messages."""
    turns: range
    """The turns that they belong to in that loop, those included that they joined."""
    seqs: range
    """Their sequences in that loop."""
    tokens: int
    """The tokens of all of them."""
    begun: list[str]
    """The loops that they began, in order."""
    duplicate: bool
    """Whether the session had an append of this key before, and nothing was appended now."""
    notes: list[str]
    """What was completed in tool calls and results that came without an id or a name, and what was replaced in texts:
    a sentence for each."""

    def __repr__(self) -> str:
        if self.duplicate:
            what = "a duplicate of an earlier append"
        else:
            what = f"{_counted(len(self.seqs), 'message')}, {_counted(self.tokens, 'token')}"
        begun = f", began {', '.join(self.begun)}" if self.begun else ""
        notes = f", {_counted(len(self.notes), 'note')}: {'; '.join(self.notes)}" if self.notes else ""
        return f"<loopstore.Appended {what}: {self.loop_id}, {_turns(self.turns)}{begun}{notes}>"


class CallState(NamedTuple):
    """The state of a tool call."""

    state: Literal["new", "started", "finished"]
    """`new`: run it. `started`: a run before this one may have been cut off. `finished`: it has a result."""
    key: str | None
    """The same at every attempt, so that a tool can keep its work from being done twice."""
    message: Json | None
    """The result, once there is one."""


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _turns(turns: range) -> str:
    if len(turns) == 0:
        return "no turn"
    return f"turn {turns[0]}" if len(turns) == 1 else f"turns {turns[0]} to {turns[-1]}"


@dataclass(frozen=True, repr=False)
class Prepared:
    """The context of the next model call, which fits the policy's window."""

    request: Json
    """What goes into the request, in the form that was asked for."""
    loop_id: str
    """The loop in which it ends."""
    tokens: int
    """The sum of the messages' counts."""
    bytes: int
    """The sum of the messages' JSON."""
    was_compacted: bool
    """Whether it was compacted for this call."""
    cleared: Json | None
    """The tool results that the policy cleared first: what `Session.clear` returns."""
    not_cleared: str | None
    """Why the policy, although it fired, cleared no tool results."""
    compactions: list[Json]
    """The attempts to compact it, in order: what `Session.compact` returns."""
    faults: list[Json]
    """What a provider would object to in the originals."""
    mended: list[Json]
    """What was done so that the provider accepts it."""
    open_calls: list[Json]
    """The tool calls that wait for their results, each with `id`, `name` and `arguments`."""

    def __repr__(self) -> str:
        parts = [_counted(len(self.messages), "message"), _counted(self.tokens, "token")]
        if self.was_compacted:
            parts.append("compacted")
        for name, one in (
            ("faults", "fault"),
            ("mended", "mending"),
            ("open_calls", "open call"),
        ):
            if found := getattr(self, name):
                parts.append(_counted(len(found), one))
        return f"<loopstore.Prepared {', '.join(parts)}: {self.loop_id}>"

    @property
    def messages(self) -> list[Json]:
        """The messages of the request, or its items in the form `responses`."""
        found: list[Json] = self.request["input" if "input" in self.request else "messages"]
        return found


@dataclass(frozen=True, repr=False)
class Recall:
    """The answer to a question."""

    text: str
    """The answer as text, each part under the place that it is from."""
    tokens: int
    """Tokens of the text, by the store's counter."""
    parts: list[Json]
    """The excerpts."""
    left_out: Json | None
    """What else was found."""

    def __repr__(self) -> str:
        size = f"{_counted(len(self.parts), 'part')}, {_counted(self.tokens, 'token')}"
        return f"<loopstore.Recall {size}: {_arguments.shown(self.text)}>"

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class Store:
    """A database of sessions.

    >>> store = Store.in_memory()
    >>> chat = store.session("weather")
    >>> chat.append({"role": "user", "content": "Will it rain?"}, format="openai").loop_id
    'loop-1'
    >>> chat.context(format="openai")
    {'messages': [{'role': 'user', 'content': 'Will it rain?'}]}

    All threads of a process may use one store. A forked process must open its own store. The store is closed by
    `close`, at the end of a `with`, and when it is no longer used.
    """

    __slots__ = ("_native", "__weakref__")

    def __init__(self, native_store: _loopstore.Store) -> None:
        """Wrap a native store: use `Store.open`, `Store.in_memory` or `Store.connect`."""
        if not isinstance(native_store, _loopstore.Store):
            raise TypeError("use Store.open(path), Store.in_memory() or Store.connect(url)")
        self._native = native_store

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        policy: Policy | None = None,
        counter: str | None = None,
        durability: Literal["full", "normal"] | None = None,
        key: str | bytes | None = None,
        read_only: bool = False,
    ) -> Store:
        """Open a SQLite database, which is created if it does not exist.

        >>> Store.open(":memory:")
        <loopstore.Store in memory>

        On Linux, Python's own `sqlite3` may have the same file open. On other systems it must not while the store
        is open (a `RuntimeWarning` states it): the locks of a file belong to the process there, and the first
        close of the file removes them. Other processes may use the file on every system; `Store.sql` reads
        everywhere.

        Args:
            path: The file; `~` at its start is the home folder. `":memory:"` is a database in memory, as `in_memory`
                opens it. A URL as of SQLAlchemy is understood too: `sqlite:///relative.db`,
                `sqlite:////absolute.db`, `sqlite://` (in memory).
            policy: The policy of sessions that are given no policy of their own.
            counter: The token counter; by default that of the database, `heuristic` for a new one.
            durability: The cost of a power loss: nothing (`full`), or the last appends (`normal`).
            key: The key of an encrypted database (a build with the feature `sqlcipher`).
            read_only: True to open the database for reading only.

        Raises:
            InvalidInputError: An argument cannot be used; the text names it.
            OpenError: The file is no database of this version, or cannot be read.
            DamagedError: The file is damaged.
            BusyError: Another program holds the database.
        """
        file = _arguments.location("path", path)
        if file is None:
            if key is not None or durability is not None or read_only:
                raise InvalidInputError(
                    "`key`, `durability` and `read_only` are for a file; a database in memory has none of them"
                )
            return cls.in_memory(policy=policy, counter=counter)
        counter = _arguments.optional_text("counter", counter)
        durability = _arguments.optional_choice("durability", durability, ("full", "normal"))
        read_only = _arguments.flag("read_only", read_only)
        if key is not None and not isinstance(key, (str, bytes)):
            raise TypeError(f"`key` is a text or bytes, not {type(key).__name__}")
        secret = _arguments.text("key", key).encode() if isinstance(key, str) else key
        if not _loopstore.allows_other_copies():
            warnings.warn(
                f"do not open {file} with `sqlite3` in this process while the store is open: on this system that"
                " would take the locks of the store away and destroy the database; use `Store.sql`",
                RuntimeWarning,
                stacklevel=2,
            )
        return cls(
            _loopstore.Store.open(
                file, _policy_or_default(policy), counter, durability, secret, read_only
            )
        )

    @classmethod
    def in_memory(cls, *, policy: Policy | None = None, counter: str | None = None) -> Store:
        """Open a database in memory, which is lost when the store is closed."""
        counter = _arguments.optional_text("counter", counter)
        return cls(_loopstore.Store.in_memory(_policy_or_default(policy), counter))

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        policy: Policy | None = None,
        counter: str | None = None,
        read_only: bool = False,
    ) -> Store:
        """Open a PostgreSQL database (a build with the feature `postgres`).

        Raises:
            OpenError: The server cannot be reached or rejects the connection, or the database has other content.
            UnsupportedError: This build does not support PostgreSQL.
        """
        url = _arguments.text("url", url)
        if url.startswith("sqlite:"):
            raise InvalidInputError("`url` is that of a file: use Store.open(url)")
        counter = _arguments.optional_text("counter", counter)
        read_only = _arguments.flag("read_only", read_only)
        return cls(_loopstore.Store.connect(url, _policy_or_default(policy), counter, read_only))

    @property
    def place(self) -> str:
        """The location of the database, without user and password."""
        return self._native.place()

    @property
    def closed(self) -> bool:
        """True if the store was closed."""
        return self._native.is_closed()

    def close(self) -> None:
        """Close the store and its sessions, after the running calls have ended."""
        self._native.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<loopstore.Store {'(closed)' if self.closed else self.place}>"

    def session(self, id: str, *, policy: Policy | None = None) -> Session:
        """Return a session's handle. A session that does not exist begins with its first append.

        Args:
            id: The session's id.
            policy: The policy of this handle, in place of the store's policy.

        Raises:
            InvalidInputError: The id is empty or longer than 512 bytes.
        """
        return Session(self._native.session(_arguments.text("id", id), native_or_none(policy)))

    def search(
        self,
        text: str,
        *,
        session: str | None = None,
        by: Literal["message", "session"] = "message",
        source: str | None = None,
        project: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Json:
        """Find messages by their words, including messages that a compaction hides.

        Args:
            text: A question in plain words, optionally with `"phrase"`, `-word`, `+word` and `word*`.
            session: Only messages of this session.
            by: `session` groups the hits: the best sessions, each with its best messages.
            source: Only sessions that were imported from this format.
            project: Only sessions whose project folder has this text in its path.
            role: Only messages of this role: `user`, `assistant`, `toolResult`.
            tool: Only calls of this tool and their results.
            since: Only messages of this time or later: a `datetime` (without a zone it is local), a `date`, a
                `timedelta` (so long ago), ISO 8601 text (without a zone it is UTC), or milliseconds since 1970.
            until: Only messages of this time or earlier; of a `date` all of the day.
            hidden: True for only messages that the context does not contain, false for only those that it
                contains.
            limit: The maximum number of hits; 20 by default.
            offset: The number of best hits to skip.

        Returns:
            `{"hits": [...], "indexed": ..., "next": ...}`; with `by="session"` `sessions` in place of `hits`.
        """
        text = _arguments.text("text", text)
        _arguments.choice("by", by, ("message", "session"))
        query = _search_query(
            session, source, project, role, tool, since, until, hidden, limit, offset
        )
        by_session = by == "session"
        found: Json = decode(
            interruptible(lambda: self._native.search(text, query, by_session))
        )
        return found

    def recall(
        self,
        question: str,
        max_tokens: int,
        *,
        session: str | None = None,
        source: str | None = None,
        project: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
    ) -> Recall:
        """Answer a question from all messages, in at most `max_tokens` tokens.

        Args:
            question: The question in plain words.
            max_tokens: The maximum number of tokens of the answer.
            session: Only from messages of this session.
            source: Only from sessions that were imported from this format.
            project: Only from sessions whose project folder has this text in its path.
            since: Only from messages of this time or later: as for `search`.
            until: Only from messages of this time or earlier.

        Raises:
            BudgetTooSmallError: The smallest answer does not fit.
        """
        question = _arguments.text("question", question)
        max_tokens = _arguments.count("max_tokens", max_tokens, "tokens")
        query = _search_query(session, source, project, None, None, since, until, None, None, 0)
        return _recalled(
            *interruptible(lambda: self._native.recall(question, query, max_tokens))
        )

    def sessions(
        self,
        *,
        source: str | None = None,
        project: str | None = None,
        text: str | None = None,
        since: Instant | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Rows:
        """Return the rows of the view `v_sessions`, last active first.

        Args:
            source: Only sessions of this importer.
            project: Only sessions whose project contains this text.
            text: Only sessions with this text in title, prompt or id.
            since: Only sessions that were active at this time or later: a `datetime`, a `date`, a `timedelta` (so
                long ago), or ISO 8601 text.
            after: Only sessions after this one in the list: with `limit`, the next page.
            limit: The maximum number of sessions.
        """
        given = {
            "source": _arguments.optional_text("source", source),
            "project": _arguments.optional_text("project", project),
            "text": _arguments.optional_text("text", text),
            "since": _arguments.optional_iso("since", since),
            "after": _arguments.optional_text("after", after),
            "limit": _arguments.optional_count("limit", limit, "sessions"),
        }
        return Rows(decode(self._native.sessions(encode(given))))

    def history(self, session: str | None = None) -> Rows:
        """Return all attempts to compact, newest first, each with its undos and redos as `flips`."""
        session = _arguments.optional_text("session", session)
        return Rows(decode(self._native.history(session)))

    def sql(
        self,
        query: str,
        params: Params | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | timedelta | None = 60.0,
    ) -> Rows:
        """Run one read-only query, and return its rows.

        >>> store = Store.in_memory()
        >>> store.sql("SELECT count(*) AS n FROM v_messages")
        [{'n': 0}]
        >>> store.sql("SELECT ? AS city, :days AS days", {"days": 3})
        Traceback (most recent call last):
        loopstore._errors.InvalidInputError: the query needs `params[0]`: give `params` as a list
        >>> store.sql("SELECT ? AS city", ["Rome"])
        [{'city': 'Rome'}]

        Args:
            query: The query, over the views and tables.
            params: The values of `?` as a list, or those of `:name` as a dict: numbers, texts, bytes, times.
                On PostgreSQL, a query with `params` has `jsonb_exists(a, 'b')` in place of `a ? 'b'`, and a space
                after the colon of a slice: `a[1: n]`.
            max_rows: The maximum number of rows.
            timeout: The maximum time in seconds, or as a `timedelta`; `None` is no limit.

        Raises:
            InvalidInputError: The query fails, would write, or does not match `params`.
            StorageError: The query takes longer than `timeout`.
        """
        is_postgres = self.place.startswith("postgres:")
        query = with_params(_arguments.text("query", query), params, is_postgres=is_postgres)
        max_rows = _arguments.optional_count("max_rows", max_rows, "rows")
        time = _arguments.seconds("timeout", timeout)
        return Rows(decode(interruptible(lambda: self._native.sql(query, max_rows, time))))

    def import_(
        self,
        *paths: Paths,
        format: str | None = None,
        session: str | None = None,
        redact: bool = False,
        allow: Iterable[str] = (),
        only: Iterable[str] = (),
        min_confidence: Confidence | None = None,
        keep_source: bool = True,
    ) -> Json:
        """Import transcripts of other tools; a second import adds only new content.

        Args:
            paths: Files and folders, or lists of them; `~` at the start of a path is the home folder.
            format: The format of the files; by default it is detected for each file.
            session: Only this session of the files.
            redact: True to replace secrets by markers before anything is stored.
            allow: With `redact`, values that are no secrets, or ids of false findings.
            only: With `redact`, the rules that apply, such as `github-pat`; all if it is empty.
            min_confidence: With `redact`, the lowest confidence with which a secret is replaced; `medium` by
                default.
            keep_source: True to keep the files themselves too, compressed.

        Returns:
            The imported content: `files`, `sessions`, `messages`, `added_messages`, `skipped` and more.
        """
        redaction = encode(_redaction(allow, only, min_confidence))
        files = _arguments.paths("paths", paths)
        format = _arguments.optional_text("format", format)
        session = _arguments.optional_text("session", session)
        given = redaction if _arguments.flag("redact", redact) else None
        keep_source = _arguments.flag("keep_source", keep_source)
        with _suggestion(format):
            found = self._native.import_paths(files, format, session, given, keep_source)
        report: Json = decode(found)
        return report

    def import_bytes(self, transcript: bytes, *, format: str, name: Path = "transcript") -> Json:
        """Import a transcript from memory; in some formats the name is the id."""
        if not isinstance(transcript, (bytes, bytearray, memoryview)):
            raise _arguments.wrong_type("transcript", "bytes", transcript)
        name = _arguments.path("name", name)
        format = _arguments.text("format", format)
        with _suggestion(format):
            found = self._native.import_bytes(name, bytes(transcript), format)
        report: Json = decode(found)
        return report

    def stats(self) -> dict[str, int]:
        """Return statistics of the database."""
        found: dict[str, int] = decode(self._native.stats())
        return found

    def verify(self) -> Json:
        """Derive every digest and total again: `{"ok": ..., "checked": ..., "problems": [...]}`."""
        found: Json = decode(interruptible(self._native.verify))
        return found


def _conditions(
    match: str | None, tool: str | None, larger: int | None, older_than: int | None
) -> Json:
    """Return the conditions of an edit for the native part."""
    return {
        "match": _arguments.optional_text("match", match),
        "tool": _arguments.optional_text("tool", tool),
        "larger": _arguments.optional_count("larger", larger, "bytes"),
        "older_than": _arguments.optional_count(
            "older_than", older_than, "turns", most=_arguments.MOST_PLACE
        ),
    }


def _redaction(
    allow: Iterable[str], only: Iterable[str], min_confidence: Confidence | None
) -> Json:
    """Return the redaction policy for the native part."""
    return {
        "allow": _arguments.texts("allow", allow),
        "only": _arguments.texts("only", only),
        "min_confidence": _arguments.optional_choice(
            "min_confidence", min_confidence, ("low", "medium", "high")
        ),
    }


class Session:
    """One agent's history. Get one with `Store.session`.

    A handle follows one line of loops: the session's current loop when the handle was first used, then the loops
    that continue it. A fork returns a handle of its own, and the other handle stays on its line.

    Turns and loops are derived from the messages. A turn is one model call with its inputs and its tool results.
    A loop is a prompt and everything until the agent stops.
    """

    __slots__ = ("_native", "__weakref__")

    def __init__(self, native_session: _loopstore.Session) -> None:
        """Wrap a native session: use `Store.session`."""
        if not isinstance(native_session, _loopstore.Session):
            raise TypeError("use Store.session(id)")
        self._native = native_session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._native.id

    def __repr__(self) -> str:
        return f"<loopstore.Session {self.id!r}>"

    def _repr_html_(self) -> str:
        """Return the attempts to compact the session as a table, for notebooks."""
        return f"<p>{escape(repr(self))}</p>" + self.history()._repr_html_()

    def with_policy(self, policy: Policy) -> Session:
        """Return a handle on the same line, with another policy."""
        return Session(self._native.with_policy(native(policy)))

    def leaf(self) -> str | None:
        """Return the loop that the handle continues; `None` if the session has none yet."""
        return self._native.leaf()

    def append(
        self, given: Messages, *, format: Form = "loopstore", key: str | None = None
    ) -> Appended:
        """Append messages: all of them or, with an exception, none. They are durable when it returns.

        Args:
            given: A message, several, or the JSON of either as `str` or `bytes`. In the form of a provider
                also a whole answer of its API. Objects of its SDK, and of pydantic, may stand for dictionaries. A
                `datetime` is stored as ISO 8601 text, half of a surrogate pair as U+FFFD (with a note); NaN is
                refused.
            format: The form of the messages.
            key: Append once: if the session has an append of these messages under this key, nothing is
                appended, and the result is that of the first append.

        Raises:
            ExistsError: Other messages were appended under the key.
            InvalidInputError: Something cannot be stored as a message; the text states its position.
            LoopHeldError: Another program drives the loop.
            BusyError: Another writer held the database too long.
        """
        format = _form(format)
        key = _arguments.optional_text("key", key)
        text, notes = messages(given)
        native = self._native
        made = _log.written(self.id, "an append", lambda: native.append(format, text, key))
        done = _appended(made, notes)
        _log.appended(self.id, (done,))
        return done

    def append_once(self, key: str, given: Messages, *, format: Form = "loopstore") -> Appended:
        """Append messages once: as `append` with `key`."""
        return self.append(given, format=format, key=key)

    def append_batch(
        self,
        parts: Iterable[tuple[str | None, Messages]],
        *,
        format: Form = "loopstore",
    ) -> list[Appended]:
        """Append several times in one transaction, in order: all of it or, with an exception, nothing.

        Args:
            parts: A key, or `None`, and messages for each append. A key that the session has already appends
                nothing, whatever the messages are: the first ones count.
            format: The form of the messages.
        """
        format = _form(format)
        given = [_part(at, part) for at, part in enumerate(_listed("parts", parts))]
        texts = [(key, text) for key, text, _ in given]
        made = _log.written(
            self.id, "an append", lambda: self._native.append_batch(format, texts)
        )
        done = [_appended(each, part[2]) for each, part in zip(made, given, strict=True)]
        _log.appended(self.id, done)
        return done

    def appended(self, key: str) -> Appended | None:
        """Return the result of the append under a key; `None` if there is none."""
        found = self._native.appended(_arguments.text("key", key))
        return None if found is None else _appended(found)

    def append_keys(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> list[tuple[str, Appended]]:
        """List the keys with a prefix in the order of their bytes, each with the result of its append."""
        found = self._native.append_keys(
            _arguments.text("prefix", prefix),
            _arguments.optional_text("after", after),
            _arguments.optional_text("before", before),
            _arguments.flag("descending", descending),
            _arguments.optional_count("limit", limit, "keys"),
        )
        return [(key, _appended(done)) for key, done in found]

    def entries(
        self,
        *,
        whole_session: bool = False,
        loop_id: str | None = None,
        seqs: range | None = None,
        roles: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        after: tuple[str, int] | None = None,
        before: tuple[str, int] | None = None,
        last: int | None = None,
        limit: int | None = None,
    ) -> Rows:
        """Return stored messages in order, including those that a compaction hides, and extensions.

        Args:
            whole_session: True for the messages of all loops, in place of the handle's line.
            loop_id: Only messages of this loop, in place of the line.
            seqs: With `loop_id`, only these sequences.
            roles: Only messages of these roles.
            kinds: Only extensions of these kinds; with `roles`, in addition to the messages.
            after: Only entries after this message: a loop and a sequence.
            before: Only entries before this message.
            last: Only this number of the last entries; earlier ones are not read.
            limit: Only this number of the first entries.

        Returns:
            A dict each: `loop_id`, `turn`, `seq`, `created_at` and `message`.
        """
        query = _entry_query(
            whole_session, loop_id, seqs, roles, kinds, after, before, last, limit
        )
        return Rows(decode(self._native.entries(query)))

    def count_entries(
        self,
        *,
        whole_session: bool = False,
        loop_id: str | None = None,
        seqs: range | None = None,
        roles: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        after: tuple[str, int] | None = None,
        before: tuple[str, int] | None = None,
    ) -> int:
        """Return the number of entries that `entries` would return."""
        query = _entry_query(
            whole_session, loop_id, seqs, roles, kinds, after, before, None, None
        )
        return self._native.count_entries(query)

    def exists(self) -> bool:
        """Return true if the session exists: a message was appended to it, or its title set."""
        return self._native.exists()

    def hide(self) -> str:
        """Hide the session, which frameworks call delete, and return its new id.

        A hidden session is in no list and no search, and its former id is free. `unhide` restores it.
        """
        return self._native.hide()

    def unhide(self, id: str) -> Session:
        """Restore a hidden session under a free id, and return its handle."""
        return Session(self._native.unhide(_arguments.text("id", id)))

    def erase(self, *, reason: str | None = None) -> Json:
        """Remove the session and all its content for good. Only a receipt remains."""
        reason = _arguments.optional_text("reason", reason)
        report: Json = decode(self._native.erase(reason))
        return report

    def redact(
        self,
        *,
        reason: str | None = None,
        with_files: bool = False,
        dry_run: bool = False,
        allow: Iterable[str] = (),
        only: Iterable[str] = (),
        min_confidence: Confidence | None = None,
    ) -> Json:
        """Replace the secrets in the session by markers. Later imports into it are redacted too.

        Args:
            reason: The reason; it is stored in the receipt.
            with_files: True to remove also kept files that contain other sessions.
            dry_run: True to change nothing; `findings` has each secret, masked, with its places.
            allow: Values that are no secrets, or ids of false findings.
            only: The rules that apply, such as `github-pat`; all if it is empty.
            min_confidence: The lowest confidence with which a secret is replaced; `medium` by default.

        Returns:
            What was replaced, or would be: `secrets`, `held_back`, `findings`, `messages`, `left` and more.
        """
        request = {
            "reason": _arguments.optional_text("reason", reason),
            "with_files": _arguments.flag("with_files", with_files),
            "dry_run": _arguments.flag("dry_run", dry_run),
            "policy": _redaction(allow, only, min_confidence),
        }
        report: Json = decode(self._native.redact(encode(request)))
        return report

    def context(
        self,
        *,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        format: Form = "loopstore",
        check: bool = False,
        create: bool = False,
    ) -> Json:
        """Build the context of the next model call, without changing anything.

        Args:
            max_tokens: The maximum number of tokens of the messages; more is an error.
            max_bytes: The maximum number of bytes of the messages as JSON; more is an error.
            format: `openai` returns `{"messages"}`, `responses` `{"instructions"?, "input"}`, `anthropic`
                `{"system"?, "messages"}`: keywords of the provider's call. `loopstore` returns `messages` with
                `tokens`, `parts`, `faults` and more.
            check: True to compare each message with its digest; a mismatch is a `DamagedError`.
            create: True for the empty context of a session that does not exist yet; its first append begins it.

        Raises:
            NotFoundError: The session does not exist, and `create` is false.
            NeedsCompactionError: The context does not fit.
        """
        built: Json = decode(
            self._native.context(
                _form(format),
                _arguments.optional_count("max_tokens", max_tokens, "tokens"),
                _arguments.optional_count("max_bytes", max_bytes, "bytes"),
                (None, None, None, None),
                _arguments.flag("check", check),
            )
        )
        self._check_exists(built, create)
        return built

    def _check_exists(self, built: Json, create: bool) -> None:
        """Fail if an empty context is that of a session that does not exist."""
        has_messages = built.get("messages") or built.get("input")
        if has_messages or _arguments.flag("create", create) or self._native.exists():
            return
        error = NotFoundError(
            f"session `{self.id}` not found; `Store.sessions` lists all, and with create=True a session that its first"
            " append begins has an empty context"
        )
        error.what, error.id = "session", self.id
        raise error

    def as_of(
        self,
        loop_id: str | None = None,
        turn: int | None = None,
        *,
        run: str | None = None,
        time: Instant | None = None,
        manifest: str | None = None,
        format: Form = "loopstore",
    ) -> Json:
        """Build the context of the next model call just after a turn, a run, at a time, or of a manifest.

        >>> chat = Store.in_memory().session("weather")
        >>> _ = chat.append({"role": "user", "content": "Will it rain?"}, format="openai")
        >>> len(chat.as_of("loop-1", 0)["messages"])
        1

        Args:
            loop_id: The loop of the turn.
            turn: The turn, by position from 0.
            run: Just after this compaction, for its own loop.
            time: Just after the last turn or compaction until this time: a `datetime` (without a zone it is local),
                a `date` (its end), a `timedelta` (so long ago), or ISO 8601 text (without a zone it is UTC).
            manifest: The context that `record_context` recorded. If a message of it was replaced or pruned since,
                this is an error.
            format: As for `context`.
        """
        place = None
        if loop_id is not None and turn is not None:
            place = (_arguments.text("loop_id", loop_id), _arguments.place("turn", turn))
        elif loop_id is not None or turn is not None:
            raise TypeError("`loop_id` and `turn` belong together: give both, or neither")
        at = (
            _arguments.optional_text("run", run),
            place,
            _arguments.optional_iso("time", time, is_end=True),
            _arguments.optional_text("manifest", manifest),
        )
        if at == (None, None, None, None):
            raise TypeError("as_of needs a loop and a turn, a run, a time, or a manifest")
        built: Json = decode(self._native.context(_form(format), None, None, at, False))
        return built

    def record_context(self) -> Json:
        """Record which messages the context of the next model call has, and return the id of that record.

        A job queue or a workflow engine passes the id in place of the messages, and its worker calls
        `as_of(manifest=...)`.

        >>> chat = Store.in_memory().session("weather")
        >>> _ = chat.append({"role": "user", "content": "Will it rain?"}, format="openai")
        >>> recorded = chat.record_context()
        >>> _ = chat.append({"role": "assistant", "content": "It will."}, format="openai")
        >>> len(chat.as_of(manifest=recorded["manifest_id"])["messages"])
        1

        Returns:
            `manifest_id`, and the number of `messages`, `tokens` and `bytes` of the context.
        """
        recorded: Json = decode(self._native.record_context())
        return recorded

    def prepare(
        self, *, format: Form = "loopstore", for_length: bool = False, create: bool = False
    ) -> Prepared:
        """Return the context of the next model call, compacted if the policy requires it.

        Args:
            format: As for `context`.
            for_length: True if the provider rejected the request or cut its answer for length: compacts in any
                case.
            create: True for the empty context of a session that does not exist yet; its first append begins it.

        Raises:
            NotFoundError: The session does not exist, and `create` is false.
            BudgetTooSmallError: Not even the last turn fits.
            NeedsCompactionError: A required compaction failed or was vetoed.
            Exception: The error of a hook of the policy.
        """
        return self._prepare(format, for_length, create, _loopstore.CancelFlag())

    def _prepare(
        self, format: Form, for_length: bool, create: bool, cancel: _loopstore.CancelFlag
    ) -> Prepared:
        for_length = _arguments.flag("for_length", for_length)
        form = _form(format)
        request, about = interruptible(
            lambda: self._native.prepare(form, for_length, cancel), cancel
        )
        built: Json = decode(request)
        self._check_exists(built, create)
        ready = Prepared(request=built, **decode(about))
        for report in ready.compactions:
            _log.compacted(self.id, report)
        return ready

    def compact(
        self,
        *,
        force: bool = False,
        dry_run: bool = False,
        policy: Policy | None = None,
    ) -> Json:
        """Compact by the policy: one run, which writes blocks over the loops. No original changes.

        Args:
            force: True to ignore the trigger, and to plan as if no block were active.
            dry_run: True to only report the plan.
            policy: The policy in place of the handle's; it may have a `summarizer` and an `approve`.

        Returns:
            The audit row: `run_id`, `outcome` (`committed`, `no_gain`, `not_needed`, `failed`, ...),
            `tokens_before`, `tokens_after`, `blocks` and more.

        Raises:
            KeyboardInterrupt: Ctrl-C, on the main thread: at once, also while a summariser runs, and nothing is
                committed unless the commit had begun.
        """
        given = native_or_none(policy)
        return self._compact(force, dry_run, given, _loopstore.CancelFlag())

    def _compact(
        self, force: bool, dry_run: bool, given: Any, cancel: _loopstore.CancelFlag
    ) -> Json:
        force = _arguments.flag("force", force)
        dry_run = _arguments.flag("dry_run", dry_run)
        report: Json = decode(
            interruptible(lambda: self._native.compact(force, dry_run, given, cancel), cancel)
        )
        if not dry_run:
            _log.compacted(self.id, report)
        return report

    def undo(self, run: str | None = None, *, reason: str | None = None) -> Json:
        """Undo the last compaction of the line, or the named one.

        Raises:
            NotFoundError: There is no such compaction.
        """
        run = _arguments.optional_text("run", run)
        reason = _arguments.optional_text("reason", reason)
        report: Json = decode(self._native.undo(run, reason))
        return report

    def redo(self, run: str | None = None, *, reason: str | None = None) -> Json:
        """Redo the compaction that was undone last, or the named one."""
        run = _arguments.optional_text("run", run)
        reason = _arguments.optional_text("reason", reason)
        report: Json = decode(self._native.redo(run, reason))
        return report

    def drop(
        self,
        *targets: EditTarget,
        match: str | None = None,
        tool: str | None = None,
        larger: int | None = None,
        older_than: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """Remove messages or parts from contexts. They stay stored; `undo` or `restore` takes it back.

        A tool call and its results are removed together, and so is what a provider bound to a removed part.

        Args:
            targets: The turns, messages, parts and calls.
            match: Also all messages that contain these words, and meet the other conditions.
            tool: Also all results of this tool.
            larger: Also all messages of more than this number of bytes.
            older_than: Also all messages that at least this number of complete turns follow.
            dry_run: True to return the report without writing anything.
            reason: The reason, stored with the run.

        Returns:
            The report: `run_id`, `edits`, `paired`, `bound`, `skipped`, `stale`, and the size of the context before
            and after.

        Raises:
            InvalidInputError: A target cannot be edited, or nothing matches.
        """
        conditions = _conditions(match, tool, larger, older_than)
        return self._edit("removed", targets, conditions, dry_run, reason)

    def clear(
        self,
        *targets: EditTarget,
        match: str | None = None,
        tool: str | None = None,
        larger: int | None = None,
        older_than: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """Show a marker of one line in place of messages or parts, such as old tool results: see `drop`."""
        conditions = _conditions(match, tool, larger, older_than)
        return self._edit("cleared", targets, conditions, dry_run, reason)

    def replace(
        self,
        target: EditTarget,
        text: str,
        *,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """Show a text in place of a message or a part: see `drop`. The text of a call is its arguments."""
        given = {"text": _arguments.text("text", text)}
        return self._edit("replaced", (target,), given, dry_run, reason)

    def restore(self, *targets: EditTarget) -> list[Json]:
        """Undo the edits of turns, messages, parts or calls, and return the reports of the undone runs.

        Raises:
            InvalidInputError: No live edit has these targets, or its run has other targets too: undo the run.
        """
        reports: list[Json] = decode(self._native.restore(encode(_targets(targets))))
        return reports

    def _edit(
        self,
        action: str,
        targets: Iterable[EditTarget],
        given: Json,
        dry_run: bool,
        reason: str | None,
    ) -> Json:
        request = {
            **given,
            "targets": _targets(targets),
            "dry_run": _arguments.flag("dry_run", dry_run),
            "reason": _arguments.optional_text("reason", reason),
        }
        report: Json = decode(self._native.edit(action, encode(request)))
        return report

    def fork(self, loop_id: str, turn: int, seq: int | None = None) -> Session:
        """Begin a branch after a complete turn, and return its handle. A branch is one row; nothing is copied.

        Args:
            loop_id: The loop.
            turn: The turn, by position from 0.
            seq: Within the turn, after this message.
        """
        return Session(self._native.fork(*_message_place(loop_id, turn, seq)))

    def at_loop(self, loop_id: str) -> Session:
        """Return a handle that continues this loop, such as a branch that was begun before."""
        return Session(self._native.at_loop(_arguments.text("loop_id", loop_id)))

    def begin_loop(
        self,
        id: str | None = None,
        *,
        fresh: bool = False,
        agent: str | None = None,
        kind: str | Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a loop explicitly, and return its id; appends begin loops by themselves.

        Args:
            id: The id of the loop; the next free `loop-N` by default.
            fresh: True to begin with an empty context, without a parent.
            agent: The agent that runs.
            kind: The kind of continuation: `Default`, `{"Rerun": {"tag": ...}}` or `{"Branch": {"tag": ...}}`.
        """
        if kind is not None and not isinstance(kind, (str, Mapping)):
            raise _arguments.wrong_type("kind", "a text, or a dict of one kind and its tag", kind)
        return self._native.begin_loop(
            _arguments.optional_text("id", id),
            _arguments.flag("fresh", fresh),
            _arguments.optional_text("agent", agent),
            encode(kind) if kind else None,
        )

    def end_loop(self, status: Literal["Completed", "Rejected", "Aborted"] = "Completed") -> None:
        """End the current loop of the handle. The next user message begins a new loop."""
        self._native.end_loop(_arguments.text("status", status))

    def open_calls(self) -> list[Json]:
        """Return the tool calls that wait for their results, each with `id`, `name` and `arguments`.

        Calls that can no longer get a result are left out: a prompt or a later answer follows them, or their loop
        has ended.
        """
        calls: list[Json] = decode(self._native.open_calls())
        return calls

    def start_call(self, call_id: str) -> CallState:
        """Record that a tool call is about to run, so that a restart knows of it.

        Appending the result finishes the call.
        """
        state, key, message = self._native.start_call(_arguments.text("call_id", call_id))
        return CallState(state, key, decode(message) if message else None)  # type: ignore[arg-type]

    def child(self, call_id: str, id: str) -> Session:
        """Begin the session of a sub-agent that a tool call starts, or continue it."""
        call_id = _arguments.text("call_id", call_id)
        return Session(self._native.child(call_id, _arguments.text("id", id)))

    def pin(self, loop_id: str, turn: int, seq: int | None = None) -> Json:
        """Keep a message verbatim through every compaction; without `seq`, all texts of the turn."""
        report: Json = decode(self._native.pin(*_message_place(loop_id, turn, seq)))
        return report

    def unpin(self, loop_id: str, turn: int, seq: int | None = None) -> Json:
        """Remove a pin."""
        report: Json = decode(self._native.unpin(*_message_place(loop_id, turn, seq)))
        return report

    def pins(self) -> list[Json]:
        """Return the pins on the line."""
        found: list[Json] = decode(self._native.pins())
        return found

    def search(
        self,
        text: str,
        *,
        role: str | None = None,
        tool: str | None = None,
        since: Instant | int | None = None,
        until: Instant | int | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Json:
        """Find messages of this session: see `Store.search`."""
        text = _arguments.text("text", text)
        query = _search_query(
            None, None, None, role, tool, since, until, hidden, limit, offset
        )
        found: Json = decode(interruptible(lambda: self._native.search(text, query)))
        return found

    def recall(self, question: str, max_tokens: int) -> Recall:
        """Answer a question from the messages of the session, in at most `max_tokens` tokens.

        The smallest answer takes about 100 tokens. A session that does not exist has an empty answer.
        """
        question = _arguments.text("question", question)
        max_tokens = _arguments.count("max_tokens", max_tokens, "tokens")
        return _recalled(*interruptible(lambda: self._native.recall(question, max_tokens)))

    def expand(
        self,
        first: int,
        last: int,
        *,
        loop_id: str | None = None,
        match: str | None = None,
        max_tokens: int | None = None,
        start: str | None = None,
    ) -> Json:
        """Return turns of a loop as they were recorded: `{"messages": [...], "tokens": ..., "next": ...}`.

        Args:
            first: The first turn.
            last: The last turn.
            loop_id: The loop; by default that of the handle.
            match: Only messages that match this query; long messages are cut to the lines around the matches.
            max_tokens: The maximum number of tokens of the answer; `next` is the position of the rest.
            start: The position to start from: `SEQ` or `SEQ:OFFSET`, the `next` of the answer before.
        """
        found: Json = decode(
            self._native.expand(
                (_arguments.place("first", first), _arguments.place("last", last)),
                _arguments.optional_text("loop_id", loop_id),
                _arguments.optional_text("match", match),
                _arguments.optional_count("max_tokens", max_tokens, "tokens"),
                _start(start),
            )
        )
        return found

    def history(self) -> Rows:
        """Return the attempts to compact this session, newest first."""
        return Rows(decode(self._native.history()))

    def show(self) -> Json:
        """Return the session's row of `v_sessions`, with its `loops` and their `blocks`."""
        session, loops = decode(self._native.show())
        shown: Json = {**session, "loops": [{**row, "blocks": blocks} for row, blocks in loops]}
        return shown

    @overload
    def export(self, format: str, *, loop_id: str | None = None) -> bytes: ...
    @overload
    def export(self, format: str, path: Path, *, loop_id: str | None = None) -> None: ...
    def export(
        self, format: str, path: Path | None = None, *, loop_id: str | None = None
    ) -> bytes | None:
        """Return the originals in another form, or write them to a file.

        Args:
            format: `json` (`phi-core`, the whole session as one document), `openai`, `responses`, `anthropic`,
                `markdown`, `jsonl`, `atif`, `html` (what `report` returns), `otlp-json` or
                `otlp-json-without-content`.
            path: The file, which is never incomplete; replaced if it exists.
            loop_id: Only the chain that ends in this loop.
        """
        format = _arguments.text("format", format)
        loop_id = _arguments.optional_text("loop_id", loop_id)
        file = None if path is None else _arguments.path("path", path)
        if format == "html":
            of = self._native if loop_id is None else self._native.at_loop(loop_id)
            return of.report(file)
        return self._native.export("phi-core" if format == "json" else format, loop_id, file)

    @overload
    def report(self) -> str: ...
    @overload
    def report(self, path: Path) -> None: ...
    def report(self, path: Path | None = None) -> str | None:
        """Return the session as one self-contained HTML page, or write it to a file."""
        page = self._native.report(None if path is None else _arguments.path("path", path))
        return None if page is None else page.decode()

    def set_title(self, title: str) -> None:
        """Set the title of the session, which lists show in place of its first prompt."""
        self._native.set_title(_arguments.text("title", title))

    def set_project(self, folder: Path) -> None:
        """Record the folder of the session's project."""
        self._native.set_project(_arguments.path("folder", folder))


def _appended(
    done: tuple[str, tuple[int, int], tuple[int, int], int, list[str], bool, list[str]],
    more_notes: Iterable[str] = (),
) -> Appended:
    loop_id, turns, seqs, tokens, begun, duplicate, notes = done
    notes += more_notes
    return Appended(loop_id, range(*turns), range(*seqs), tokens, begun, duplicate, notes)


def _entry_query(
    whole_session: bool,
    loop_id: str | None,
    seqs: range | None,
    roles: Iterable[str] | None,
    kinds: Iterable[str] | None,
    after: tuple[str, int] | None,
    before: tuple[str, int] | None,
    last: int | None,
    limit: int | None,
) -> bytes:
    if seqs is not None and (not isinstance(seqs, range) or seqs.step != 1):
        raise _arguments.wrong_type("seqs", "a range of sequences, such as range(3, 9)", seqs)
    return encode(
        {
            "whole_session": _arguments.flag("whole_session", whole_session),
            "loop_id": _arguments.optional_text("loop_id", loop_id),
            "seqs": None
            if seqs is None
            else (_arguments.place("seqs", seqs.start, "message"), max(seqs.start, seqs.stop)),
            "roles": _arguments.optional_texts("roles", roles),
            "kinds": _arguments.optional_texts("kinds", kinds),
            "after": _entry_place("after", after),
            "before": _entry_place("before", before),
            "last": _arguments.optional_count("last", last, "entries"),
            "limit": _arguments.optional_count("limit", limit, "entries"),
        }
    )


def _start(given: Any) -> str | None:
    """Return the position at which a page starts."""
    start = _arguments.optional_text("start", given)
    if start is not None and not _START.fullmatch(start):
        raise _arguments.wrong_value("start", "`SEQ` or `SEQ:OFFSET`, the `next` of a page", start)
    return start


def _entry_place(name: str, given: Any) -> tuple[str, int] | None:
    """Return the loop and the sequence of a message."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise _arguments.wrong_type(name, "the loop and the sequence of a message", given)
    return _arguments.text(name, given[0]), _arguments.place(name, given[1], "message")


def _message_place(loop_id: Any, turn: Any, seq: Any) -> tuple[str, int, int | None]:
    """Return the loop and the turn of a message, and its sequence."""
    return (
        _arguments.text("loop_id", loop_id),
        _arguments.place("turn", turn),
        _arguments.optional_place("seq", seq, "message"),
    )


@contextmanager
def _suggestion(given: str | None) -> Iterator[None]:
    """Add the known word that was probably meant to the error of an unknown format."""
    try:
        yield
    except InvalidInputError as error:
        text, known, words = str(error).partition("are ")
        if given is None or not known or not text.startswith("unknown format"):
            raise
        formats = words.split(", ")
        near = [one for one in formats if one.startswith(given) or given.startswith(one)]
        near = near or get_close_matches(given.lower(), formats, 1)
        if not near:
            raise
        raise InvalidInputError(f"{error}; did you mean `{near[0]}`?") from None


def _form(given: Any) -> Form:
    """Return the form of messages."""
    return _arguments.choice("format", given, FORMS)


def _policy_or_default(policy: Policy | None) -> Any:
    """Return the policy of a store for the native part."""
    return native(Policy() if policy is None else policy)


def _listed(name: str, given: Any) -> Iterable[Any]:
    """Return something that can be iterated over, and is no text."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise _arguments.wrong_type(name, "a list", given)
    return given


def _part(at: int, part: Any) -> tuple[str | None, bytes, list[str]]:
    """Return the key and the messages of one append of a batch, with notes."""
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        expected = "a key, or None, and messages, in a tuple"
        raise _arguments.wrong_type(f"parts[{at}]", expected, part)
    return _arguments.optional_text(f"the key of parts[{at}]", part[0]), *messages(part[1])


def _targets(given: Iterable[Any]) -> list[EditTarget]:
    """Return the targets of an edit."""
    found: list[EditTarget] = []
    for target in given:
        if isinstance(target, str):
            found.append(_arguments.text("target", target))
        elif isinstance(target, Mapping):
            found.append(_target_fields(target))
        else:
            expected = "a text such as LOOP:TURN or the id of a call, or a dict"
            raise _arguments.wrong_type("target", expected, target)
    return found


def _target_fields(given: Mapping[str, Any]) -> Json:
    """Return the fields of a target."""
    found: Json = {}
    for name, value in given.items():
        shown = f"target[{name!r}]"
        if name in ("call", "loop_id"):
            found[name] = _arguments.optional_text(shown, value)
        elif name in ("turn", "last_turn"):
            found[name] = _arguments.optional_place(shown, value)
        elif name in ("seq", "part"):
            found[name] = _arguments.optional_place(shown, value, "message or part")
        else:
            known = "call, loop_id, turn, last_turn, seq, part"
            raise InvalidInputError(f"`target` has no field {name!r}; known are {known}")
    return found


def _search_query(
    session: Any,
    source: Any,
    project: Any,
    role: Any,
    tool: Any,
    since: Any,
    until: Any,
    hidden: Any,
    limit: Any,
    offset: Any,
) -> bytes:
    """Return the conditions of a search for the native part."""
    return encode(
        {
            "session": _arguments.optional_text("session", session),
            "source": _arguments.optional_text("source", source),
            "project": _arguments.optional_text("project", project),
            "role": _arguments.optional_text("role", role),
            "tool": _arguments.optional_text("tool", tool),
            "since": _arguments.milliseconds("since", since),
            "until": _arguments.milliseconds("until", until, is_end=True),
            "hidden": None if hidden is None else _arguments.flag("hidden", hidden),
            "limit": _arguments.optional_count("limit", limit, "hits"),
            "offset": _arguments.count("offset", offset, "hits"),
        }
    )


def _recalled(answer: bytes, text: str) -> Recall:
    found = decode(answer)
    return Recall(text, found["tokens"], found["parts"], found["left_out"])
