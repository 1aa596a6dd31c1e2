"""The policy: when and how an agent's contexts are compacted."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from loopstore import _arguments, _loopstore
from loopstore._errors import InvalidInputError
from loopstore._interrupt import on_caller
from loopstore._json import decode, encode


class SummaryRequest(TypedDict):
    """The request to a summariser."""

    system: str
    """Who the summariser is."""
    prompt: str
    """What it is to summarise, and how."""
    asked_tokens: int
    """Tokens that the prompt asks for."""
    max_tokens: int
    """Tokens after which the answer may be cut."""
    temperature: float | None
    """The temperature; `None` leaves it to the model."""
    timeout: float
    """Seconds until the answer comes too late."""


class SummaryAnswer(TypedDict, total=False):
    """The answer of a summariser; a plain text is accepted too."""

    text: str
    """The summary."""
    model: str
    """The model that wrote it."""
    usage: Mapping[str, int]
    """Tokens as reported: `input` and `output`, and what else is known."""


Summarizer = Callable[
    [SummaryRequest], str | SummaryAnswer | Awaitable[str] | Awaitable[SummaryAnswer]
]
"""Writes a summary from a prompt: a function, or a coroutine function."""


class ClearToolResults(TypedDict, total=False):
    """The tool results that a policy clears before anything is compacted."""

    keep: int
    """The newest results that stay, whatever their tools; 3 by default."""
    at_least: int
    """Tokens that clearing must free, else nothing is cleared; 1,000 by default."""
    exclude_tools: Sequence[str]
    """The names of tools whose results are never cleared."""
    by_provider: bool
    """Whether the provider clears them: requests for Anthropic then have the setting `context_management`, and a
    compaction clears nothing; `False` by default."""


class ProposedBlock(TypedDict):
    """A block of a proposed compaction."""

    loop_id: str
    """The loop."""
    kind: str
    """`current`, `earlier` or `rollup`."""
    turns: list[int] | None
    """The first and the last of the turns that the text replaces; `None` if the block only shortens turns."""
    text: str | None
    """The text that replaces the turns; `None` if the block has none."""


class Proposal(TypedDict):
    """A compaction that is ready to be committed."""

    session_id: str
    """The session."""
    loop_id: str
    """The loop in which the context ends."""
    strategy: str
    """The strategy of the texts."""
    tokens_before: int
    """Tokens of the context now."""
    tokens_after: int
    """Tokens of the context with the blocks."""
    bytes_before: int
    """Bytes of the context now."""
    bytes_after: int
    """Bytes of the context with the blocks."""
    messages_before: int
    """The number of messages of the context now."""
    messages_after: int
    """The number of messages of the context with the blocks."""
    blocks: list[ProposedBlock]
    """The blocks to be written, from the root to the leaf."""
    messages: list[dict[str, Any]]
    """The messages that the next model call would have with the blocks, in loopstore's own form."""


class Refuse(TypedDict):
    """The decision not to commit the blocks: the same plan is not proposed again."""

    refuse: str
    """The reason, which the run records."""


class Postpone(TypedDict):
    """The decision not to commit the blocks now: the next compaction proposes them again."""

    postpone: str
    """The reason, which the run records."""


class Rewrite(TypedDict):
    """The decision to commit the blocks with other texts."""

    rewrite: Mapping[int, str]
    """The new texts, by the positions of their blocks in `Proposal.blocks`."""


Approval = bool | Refuse | Postpone | Rewrite
"""The decision about a proposal: `True` commits it, and `False` refuses it."""

Approve = Callable[[Proposal], Approval | Awaitable[Approval]]
"""Decides about a compaction before its commit: a function, or a coroutine function."""


class WindowWarning(TypedDict):
    """A context that comes near its compaction."""

    session_id: str
    """The session."""
    tokens: int
    """Tokens of the context and of the system prompt."""
    window: int
    """The window in tokens."""
    percent: int
    """The used share of the window in percent."""


Warn = Callable[[WindowWarning], object]
"""Is called before a compaction comes near: a function, or a coroutine function."""

NativeHook = Callable[[bytes, _loopstore.CancelFlag], bytes]
NativePolicy = tuple[
    bytes,
    str | None,
    tuple[Callable[[dict[str, Any]], bytes], str] | None,
    tuple[NativeHook | None, NativeHook | None, float | None],
]

_POLL_INTERVAL = 0.05
"""The interval in seconds in which a waiting hook checks its cancellation."""


def _shown(value: Any) -> str:
    """Return a field for `repr`: a number readable, a function by its name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return str(getattr(value, "__qualname__", None) or repr(value)) if callable(value) else repr(value)


@dataclass(frozen=True, repr=False)
class Policy:
    """When and how contexts are compacted: the window, the turns that are kept, and the strategy of the text.

    `None` means the default of loopstore: a window of 128,000 tokens (64,000 with the trigger `target`), 2 turns
    kept at the start and 10 at the end, and the text of a digest that needs no model.

    >>> policy = Policy(200_000, system_tokens=4_000, keep_recent=40)
    """

    window: int | None = None
    """Tokens that the model's window has, system prompt and tools included."""
    model: str | None = None
    """The model, for its window; `window` wins over it."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Windows of models by the beginnings of their names; they join those that loopstore knows."""
    system_tokens: int | None = None
    """Tokens of the system prompt and the tools."""
    system_prompts: Literal["appended", "all", "none"] | None = None
    """The system prompts that requests for a provider may begin with: the newest that the agent appended itself,
    those of imported transcripts too, or none."""
    max_bytes: int | None = None
    """Bytes of JSON that the messages may have."""
    trigger: Literal["headroom", "reserves", "target"] | None = None
    """When to compact, and what to come down to."""
    trigger_params: Mapping[str, int | float] = field(default_factory=dict)
    """Parameters of the trigger, by name."""
    keep_first: int | None = None
    """Turns kept word for word from the start of the current loop."""
    keep_recent: int | str | None = None
    """How much is kept at the end: turns, or `user-turns:N`, `messages:N`."""
    room_turns: int | None = None
    """Typical turns that a compaction leaves room for; 0 uses the target size whole."""
    keep_prompts: int | None = None
    """Tokens of what people wrote that stay word for word in every compaction, the newest first."""
    recent_window: Literal["loop", "chain"] | None = None
    """Where the turns kept at the end may lie."""
    max_summary_tokens: int | None = None
    """Tokens that the summary of a loop may have."""
    max_rollup_tokens: int | None = None
    """Tokens that the rollup of older loops may have."""
    tool_output_lines: int | None = None
    """Lines left of each tool output in the turns kept at the end."""
    scope: str | None = None
    """How many earlier loops are taken in: `fixed:N` or `token-budget`."""
    provider: Literal["openai", "anthropic"] | None = None
    """The provider that contexts go to: what it compacted itself, and only it can read, then stands for all
    before it. For every other one, and without it, the originals are read."""
    older_loops: Literal["skip", "rollup"] | None = None
    """What becomes of the loops before these."""
    clear_tool_results: ClearToolResults | None = None
    """The tool results to clear first; only if that is not enough, the context is compacted."""
    strategy: Literal["one-liner", "digest"] | None = None
    """What makes the texts, where there is no summariser."""
    summarizer: Summarizer | None = None
    """Writes the summaries; if it fails, the digest stands in, and the audit row says so."""
    summarizer_name: str | None = None
    """How the audit rows name the summariser; by default the name of the function."""
    approve: Approve | None = None
    """Decides about each compaction before its commit. If it raises an error, nothing is committed, and the call that
    compacts raises that error."""
    warn: Warn | None = None
    """Called by each `prepare` that does not compact once the context has reached `warn_at` of the window. The call
    raises an error of it."""
    warn_at: float | None = None
    """The fraction of the window, such as 0.8, from which `warn` is called."""

    def __repr__(self) -> str:
        given = [
            f"{each.name}={_shown(value)}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and value != {}
        ]
        return f"Policy({', '.join(given)})"

    def __post_init__(self) -> None:
        _check(self)
        _loopstore.check_policy(native(self))


_TOKENS = (
    "system_tokens",
    "keep_prompts",
    "max_summary_tokens",
    "max_rollup_tokens",
)
_WORDS = {
    "trigger": ("headroom", "reserves", "target"),
    "system_prompts": ("appended", "all", "none"),
    "recent_window": ("loop", "chain"),
    "provider": ("openai", "anthropic"),
    "older_loops": ("skip", "rollup"),
    "strategy": ("one-liner", "digest"),
}
_SCOPE = re.compile(r"fixed:\d+|token-budget")
_KEPT = re.compile(r"((user-turns|messages):)?\d+")
_SHARES = ("trigger", "target", "share", "compact_at_pct", "compact_budget_threshold_pct")
_DEFAULT_WINDOW = 128_000
_RESERVES = {"system": 2_000, "output": 4_000, "safety": 5_000}


def _check(policy: Policy) -> None:
    """Fail if a field has another type or is out of range, and name the field."""
    _arguments.optional_count("window", policy.window, "tokens", least=1)
    for name in _TOKENS:
        _arguments.optional_count(name, getattr(policy, name), "tokens")
    _arguments.optional_count("max_bytes", policy.max_bytes, "bytes", least=1)
    _arguments.optional_count(
        "keep_first", policy.keep_first, "turns", most=_arguments.MOST_PLACE
    )
    _arguments.optional_count("tool_output_lines", policy.tool_output_lines, "lines")
    _arguments.optional_text("model", policy.model)
    _arguments.optional_text("summarizer_name", policy.summarizer_name)
    for name, words in _WORDS.items():
        _arguments.optional_choice(name, getattr(policy, name), words)
    scope = _arguments.optional_text("scope", policy.scope)
    if scope is not None and not _SCOPE.fullmatch(scope):
        raise _arguments.wrong_value("scope", "`fixed:N` (loops) or `token-budget`", scope)
    kept = policy.keep_recent
    if not isinstance(kept, str):
        _arguments.optional_count("keep_recent", kept, "turns", most=_arguments.MOST_PLACE)
    elif not _KEPT.fullmatch(kept):
        expected = "a number of turns, `user-turns:N` or `messages:N`"
        raise _arguments.wrong_value("keep_recent", expected, kept)
    for name in ("models", "trigger_params"):
        if not isinstance(getattr(policy, name), Mapping):
            raise _arguments.wrong_type(name, "a dict", getattr(policy, name))
    for model, window in policy.models.items():
        _arguments.text("a model of models", model)
        _arguments.count(f"models[{model!r}]", window, "tokens", least=1)
    for parameter, value in policy.trigger_params.items():
        name = f"trigger_params[{parameter!r}]"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _arguments.wrong_type(name, "a number", value)
        if parameter in _SHARES and not 0 <= value <= 1:
            raise _arguments.wrong_value(name, "a share from 0 to 1", value)
        if parameter in ("max_attempts", *_RESERVES):
            _arguments.count(name, value, "tokens" if parameter in _RESERVES else "attempts")
    _check_clearing(policy.clear_tool_results)
    _check_functions(policy)
    _check_window(policy)


def _check_clearing(given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        expected = "a dict of `keep`, `at_least` and `exclude_tools`"
        raise _arguments.wrong_type("clear_tool_results", expected, given)
    for name, value in given.items():
        shown = f"clear_tool_results[{name!r}]"
        if name == "keep":
            _arguments.count(shown, value, "results")
        elif name == "at_least":
            _arguments.count(shown, value, "tokens")
        elif name == "exclude_tools":
            _arguments.texts(shown, value)
        elif name == "by_provider":
            _arguments.flag(shown, value)
        else:
            known = "keep, at_least, exclude_tools, by_provider"
            raise InvalidInputError(f"`clear_tool_results` has no field {name!r}; known are {known}")


def _check_functions(policy: Policy) -> None:
    if policy.summarizer is not None:
        _arguments.function("summarizer", policy.summarizer, "a SummaryRequest")
    if policy.approve is not None:
        _arguments.function("approve", policy.approve, "a Proposal")
    if policy.warn is not None:
        _arguments.function("warn", policy.warn, "a WindowWarning")
    fraction: Any = policy.warn_at
    if fraction is not None and (isinstance(fraction, bool) or not isinstance(fraction, (int, float))):
        raise _arguments.wrong_type("warn_at", "a fraction of the window, such as 0.8", fraction)


def _check_window(policy: Policy) -> None:
    """Fail if nothing of the window is left for messages."""
    window = policy.window
    if window is None:
        if policy.model is not None or policy.trigger == "target":
            return
        window = _DEFAULT_WINDOW
    system, kept = policy.system_tokens or 0, "`system_tokens`"
    if policy.trigger == "reserves":
        reserves = {**_RESERVES, **policy.trigger_params}
        system = int(max(system, reserves["system"]) + reserves["output"] + reserves["safety"])
        kept = "the reserves for the system prompt, the answer and safety (`trigger_params`)"
    if window <= system:
        raise InvalidInputError(
            f"`window` of {window:,} tokens leaves none for messages: {kept} take {system:,}; give a larger window, or"
            " smaller reserves"
        )


def native_or_none(
    policy: Policy | None, loop: asyncio.AbstractEventLoop | None = None
) -> NativePolicy | None:
    """Return the policy for the native part; `None` if there is none."""
    return None if policy is None else native(policy, loop)


def native(
    policy: Policy, loop: asyncio.AbstractEventLoop | None = None
) -> NativePolicy:
    """Return the policy for the native part; coroutines of its functions run on `loop`."""
    if not isinstance(policy, Policy):
        way = "write loopstore.Policy(**fields)" if isinstance(policy, Mapping) else "see loopstore.Policy"
        raise TypeError(f"`policy` is a loopstore.Policy, not {_arguments.typed(policy)}: {way}")
    given = {
        "policy": policy.trigger,
        "policy_param": dict(policy.trigger_params),
        "max_tokens": policy.window,
        "max_bytes": policy.max_bytes,
        "system_tokens": policy.system_tokens,
        "system_prompts": policy.system_prompts,
        "model": policy.model,
        "models": dict(policy.models),
        "keep_first": policy.keep_first,
        "keep_recent": policy.keep_recent,
        "room_turns": policy.room_turns,
        "keep_prompts": policy.keep_prompts,
        "max_summary_tokens": policy.max_summary_tokens,
        "max_rollup_tokens": policy.max_rollup_tokens,
        "tool_output_lines": policy.tool_output_lines,
        "scope": policy.scope,
        "older_loops": policy.older_loops,
        "recent_window": policy.recent_window,
        "strategy": policy.strategy,
        "clear_tool_results": policy.clear_tool_results,
    }
    settings = encode({key: value for key, value in given.items() if value is not None})
    hooks = (_hook(policy.approve, loop), _hook(policy.warn, loop, answers=False), policy.warn_at)
    if policy.summarizer is None:
        return settings, policy.provider, None, hooks
    name = policy.summarizer_name or str(getattr(policy.summarizer, "__name__", "python"))
    return settings, policy.provider, (_asking(policy.summarizer, loop), name), hooks


def _hook(
    function: Callable[[Any], Any] | None,
    loop: asyncio.AbstractEventLoop | None,
    *,
    answers: bool = True,
) -> NativeHook | None:
    """Return a function that calls a hook of either kind from its own thread."""
    if function is None:
        return None
    if not callable(function):
        raise TypeError(f"a hook is a function, not {type(function).__name__}")

    def call(given: bytes, cancel: _loopstore.CancelFlag) -> bytes:
        return on_caller(lambda: run(given, cancel))

    def run(given: bytes, cancel: _loopstore.CancelFlag) -> bytes:
        answer = function(decode(given))
        if inspect.isawaitable(answer):
            answer = _awaited_until(answer, loop, cancel)
        return encode(answer) if answers else b"null"

    return call


def _awaited_until(
    answer: Awaitable[Any],
    loop: asyncio.AbstractEventLoop | None,
    cancel: _loopstore.CancelFlag,
) -> Any:
    """Wait for a coroutine for as long as its call is wanted: a person may need a day."""

    async def result() -> Any:
        return await answer

    if loop is None or loop.is_closed():
        return asyncio.run(result())
    future = asyncio.run_coroutine_threadsafe(result(), loop)
    while not wait([future], _POLL_INTERVAL).done:
        if cancel.is_cancelled() or loop.is_closed():
            future.cancel()
            raise asyncio.CancelledError
    return future.result()


def _asking(
    summarizer: Summarizer, loop: asyncio.AbstractEventLoop | None
) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that calls a summariser of either kind from its own thread."""

    def ask(request: dict[str, Any]) -> bytes:
        answer: Any = summarizer(SummaryRequest(**request))  # type: ignore[typeddict-item]
        if inspect.isawaitable(answer):
            answer = _awaited(answer, loop, request["timeout"])
        if isinstance(answer, str):
            answer = {"text": answer}
        if not isinstance(answer, Mapping):
            raise TypeError(f"a summariser returns a str or a dict, not {type(answer).__name__}")
        return encode(dict(answer))

    return ask


def _awaited(
    answer: Awaitable[Any], loop: asyncio.AbstractEventLoop | None, timeout: float
) -> Any:
    async def wait() -> Any:
        return await asyncio.wait_for(answer, timeout)

    if loop is None or loop.is_closed():
        return asyncio.run(wait())
    return asyncio.run_coroutine_threadsafe(wait(), loop).result(timeout)
