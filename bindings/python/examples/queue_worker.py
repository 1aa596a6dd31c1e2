"""A queue whose jobs hold the id of a context, not its messages: the queue stays small."""

import json
import sqlite3
import sys

import loopstore

path = sys.argv[1] if len(sys.argv) > 1 else "chat.db"
queue = sqlite3.connect(":memory:")
queue.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, job TEXT, result TEXT)")
read = 0
with loopstore.Store.open(path) as store:
    chat = store.session("report", policy=loopstore.Policy(128_000))
    for page in range(20):
        chat.append({"role": "user", "content": f"{page} " + "numbers " * 500}, format="openai")
        chat.prepare()  # Compacted if needed.
        job = json.dumps([chat.id, chat.record_context()["manifest_id"]])
        queue.execute("INSERT INTO jobs (job) VALUES (?)", [job])
        # The worker, perhaps another process: a job that runs twice appends its answer once.
        for key, job in queue.execute("SELECT id, job FROM jobs WHERE result IS NULL").fetchall():
            session, manifest = json.loads(job)
            worker = store.session(session)
            request = worker.as_of(manifest=manifest, format="openai")
            answer = {"role": "assistant", "content": f"{len(request['messages'])} messages"}
            worker.append(answer, format="openai", key=f"job {key}")
            queue.execute("UPDATE jobs SET result = 'appended' WHERE id = ?", [key])
            read += len(json.dumps(request))
held = queue.execute("SELECT sum(length(job) + length(result)) FROM jobs").fetchone()[0]
print(f"The model read {read:,} bytes; the queue holds {held:,}, {100 * held / read:.2f} %.")
