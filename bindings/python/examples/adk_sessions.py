"""Google's ADK with sessions that loopstore keeps. The agent calls no model."""

import asyncio
import sys
from collections.abc import AsyncGenerator

from google.adk.agents import BaseAgent, InvocationContext
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.genai.types import Content, Part

from loopstore.adk import LoopstoreSessionService


class Counter(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        count = EventActions(state_delta={"user:asked": ctx.session.state.get("user:asked", 0) + 1})
        said = Content(role="model", parts=[Part(text=f"I see {len(ctx.session.events)} events.")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=said, actions=count)


async def main(path: str) -> None:
    async with LoopstoreSessionService(path) as service:
        runner = Runner(app_name="weather", agent=Counter(name="counter"), session_service=service)
        await runner.run_debug(["Will it rain?", "And tomorrow?"], user_id="ada", session_id="s")
        state = await service.get_user_state(app_name="weather", user_id="ada")
        print(state, service.store.search("tomorrow")["hits"][0]["snippet"])


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "adk.db"))
