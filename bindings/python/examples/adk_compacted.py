"""An agent of Google's ADK whose model gets the compacted context; its events stay whole. The model is a mock."""

import asyncio
import sys
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse  # type: ignore[attr-defined]
from google.adk.runners import Runner
from google.genai.types import Content, Part

import loopstore.adk


class StandIn(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        said = [Part(text=f"I got {len(llm_request.contents)} contents. " + "Rain, " * 200)]
        yield LlmResponse(content=Content(role="model", parts=said))


async def main(path: str) -> None:
    async with loopstore.adk.LoopstoreSessionService(path) as service:
        hook = service.before_model_callback(policy=loopstore.Policy(4_000))
        agent = LlmAgent(name="weather", model=StandIn(model="m"), before_model_callback=hook)
        runner: Any = Runner(app_name="weather", agent=agent, session_service=service)
        answers = await runner.run_debug([f"Day {day}?" for day in range(20)], quiet=True)
    print(f"{len(answers)} answers. {answers[-1].content.parts[0].text[:20]}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "adk.db"))
