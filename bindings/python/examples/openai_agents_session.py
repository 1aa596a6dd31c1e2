"""The OpenAI Agents SDK with a session that loopstore keeps. The model is a mock."""

import asyncio
import sys
from typing import Any

from agents import Agent, ModelResponse, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from loopstore.openai_agents import LoopstoreSession


class StandIn(Model):
    async def get_response(self, *args: Any, **given: Any) -> ModelResponse:
        words = ResponseOutputText(type="output_text", text=f"I see {len(given['input'])} items.", annotations=[])
        said = ResponseOutputMessage(
            id="msg_1", type="message", role="assistant", status="completed", content=[words]
        )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


with LoopstoreSession("user-17", sys.argv[1] if len(sys.argv) > 1 else "agents.db") as session:
    agent = Agent(name="weather", model=StandIn())
    for prompt in ["Will it rain?", "And tomorrow?"]:
        print(asyncio.run(Runner.run(agent, prompt, session=session)).final_output)
    print(session.session.search("tomorrow")["hits"][0]["snippet"])
