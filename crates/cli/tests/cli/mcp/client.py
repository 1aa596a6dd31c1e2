"""Asks the tools of `loopstore mcp` through the official client of the protocol.

usage: client.py PROGRAM DATABASE SESSION; prints one JSON document.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def ask(program: str, database: str, session: str) -> dict:
    arguments = ["--db", database, "mcp", session, "--max-tokens", "500"]
    # A server is given little of the environment else, and the key stands there.
    server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        tools = (await client.list_tools()).tools

        async def call(name: str, **given) -> str:
            result = await client.call_tool(name, given)
            return "".join(block.text for block in result.content)

        found = json.loads(await call("search_history", query="needle"))
        hit = found["hits"][0]
        return {
            "tools": sorted(tool.name for tool in tools),
            "hit": {key: hit[key] for key in ("loop_id", "turn", "hidden")},
            "recalled": await call("recall", question="needle"),
            "turn": await call("expand", loop_id=hit["loop_id"], first=hit["turn"]),
            "overview": json.loads(await call("context_overview"))["parts"][0]["section"],
            "runs": len(json.loads(await call("compaction_history"))["runs"]),
            "wrong": await call("expand", first=999),
        }


print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))
