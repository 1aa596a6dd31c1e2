"""A workflow of Temporal whose activities return the id of a context, not its messages: its history stays small."""

import asyncio
import concurrent.futures
import json
import os
from datetime import timedelta

import loopstore
from temporalio import activity, client, worker, workflow

def session() -> loopstore.Session:
    store = loopstore.Store.open(os.environ.get("CHAT_DB", "chat.db"))
    return store.session("report", policy=loopstore.Policy(128_000))
@activity.defn
def prepare(page: int) -> str:
    chat = session()  # An activity that runs twice appends its prompt once.
    chat.append({"role": "user", "content": f"{page} " + "numbers " * 500}, format="openai", key=f"page {page}")
    chat.prepare()  # Compacted if needed.
    return str(chat.record_context()["manifest_id"])
@activity.defn
def answer(manifest: str) -> int:
    chat = session()
    request = chat.as_of(manifest=manifest, format="openai")
    chat.append({"role": "assistant", "content": "done"}, format="openai", key=f"answer {manifest}")
    return len(json.dumps(request))
@workflow.defn
class Report:
    @workflow.run
    async def run(self, pages: int) -> int:
        read, limit = 0, timedelta(minutes=5)
        for page in range(pages):
            manifest = await workflow.execute_activity(prepare, page, start_to_close_timeout=limit)
            read += await workflow.execute_activity(answer, manifest, start_to_close_timeout=limit)
        return read
async def main() -> None:
    service = await client.Client.connect("localhost:7233")
    with concurrent.futures.ThreadPoolExecutor() as threads:
        async with worker.Worker(
            service, task_queue="reports", workflows=[Report], activities=[prepare, answer], activity_executor=threads
        ):
            print(await service.execute_workflow(Report.run, 20, id="report", task_queue="reports"))
if __name__ == "__main__":
    asyncio.run(main())
