"""The Claude Agent SDK's sessions in loopstore. The entries are examples of those that the SDK mirrors."""

import asyncio
import sys
from typing import Any

from claude_agent_sdk import list_sessions_from_store

from loopstore.claude import LoopstoreSessionStore

ID = "0b1e5c9e-0000-4000-8000-000000000001"


def entry(number: int, role: str, text: str) -> Any:
    message = {"role": role, "content": [{"type": "text", "text": text}], "id": f"msg_{number}"}
    parent = f"uuid-{number - 1}" if number else None
    return {"type": role, "uuid": f"uuid-{number}", "parentUuid": parent, "sessionId": ID,
            "timestamp": f"2026-01-01T00:00:0{number}Z", "cwd": "/tmp", "message": message}  # fmt: skip


async def main(path: str) -> None:
    with LoopstoreSessionStore(path) as store:  # ClaudeAgentOptions(session_store=store)
        said = [entry(0, "user", "Which port?"), entry(1, "assistant", "The server listens on 7071.")]
        await store.append({"project_key": "-tmp", "session_id": ID}, said)
        print([info.summary for info in await list_sessions_from_store(store, directory="/tmp")])
        print(store.store.session(ID).recall("which port listens", 300).text)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "claude.db"))
