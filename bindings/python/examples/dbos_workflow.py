"""A workflow of DBOS whose steps return the id of a context, not its messages: its history stays small."""

import json
import sqlite3
import sys

import loopstore
from dbos import DBOS

path = sys.argv[1] if len(sys.argv) > 1 else "chat.db"
DBOS(config={"name": "report", "system_database_url": f"sqlite:///{path}.dbos", "log_level": "WARNING"})
chat = loopstore.Store.open(path).session("report", policy=loopstore.Policy(128_000))
@DBOS.step()
def prepare(page: int) -> str:
    chat.append({"role": "user", "content": f"{page} " + "numbers " * 500}, format="openai", key=f"page {page}")
    chat.prepare()  # Compacted if needed.
    return str(chat.record_context()["manifest_id"])
@DBOS.step()
def answer(manifest: str) -> int:
    request = chat.as_of(manifest=manifest, format="openai")  # A step that runs twice appends its answer once.
    chat.append({"role": "assistant", "content": "done"}, format="openai", key=f"answer {manifest}")
    return len(json.dumps(request))
@DBOS.workflow()
def report() -> int:
    return sum(answer(prepare(page)) for page in range(20))
DBOS.launch()
read, system = report(), sqlite3.connect(f"{path}.dbos")
tables = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")
held = sum(len(str(row)) for name in tables for row in system.execute(f"SELECT * FROM {name}"))
print(f"The model read {read:,} bytes; DBOS's rows have {held:,}, {100 * held / read:.2f} %.")
