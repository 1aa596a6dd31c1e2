"""The middleware of LangChain's agents that gives the model the compacted context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.config import get_config

from loopstore._compacted import ModelHook
from loopstore._errors import UnsupportedError
from loopstore._policy import Policy
from loopstore._store import Store

_KEY = "messages"


def middleware(store: Store, serde: SerializerProtocol, policy: Policy | None) -> Any:
    """Return an `AgentMiddleware`. LangChain is imported only here: the saver works without it."""
    try:
        base: Any = import_module("langchain.agents.middleware").AgentMiddleware
    except ImportError as error:
        raise UnsupportedError(
            "the middleware is for agents of LangChain, which is not installed: run `pip install langchain`"
        ) from error
    hook = ModelHook(store, serde, policy, _KEY, _KEY)

    class LoopstoreMiddleware(base):  # type: ignore[misc]
        """Calls the model with the compacted context; the state stays whole."""

        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            """Call the model."""
            found = hook({_KEY: request.messages}, get_config())
            return handler(request.override(messages=list(found[_KEY])))

        async def awrap_model_call(
            self, request: Any, handler: Callable[[Any], Awaitable[Any]]
        ) -> Any:
            """Call the model, for a coroutine."""
            found = await hook.later({_KEY: request.messages}, get_config())
            return await handler(request.override(messages=list(found[_KEY])))

    return LoopstoreMiddleware()
