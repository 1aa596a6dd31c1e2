// Python, Node and the command line on one database at once: run by `.ci/run`, with a Python that has the package in
// LOOPSTORE_PYTHON.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

import { ForeignThreadError, Store } from "loopstore";
import { LoopstoreSession } from "loopstore/openai-agents";
import { LoopstoreSaver } from "loopstore/langgraph";

import { own, place, root, run, user } from "./support.mjs";

const python = process.env.LOOPSTORE_PYTHON;
const command = join(root, "dist", "core", "command.js");
const COUNT = 25;

/** Runs a Python program with arguments, and returns its output. */
const py = (program, ...args) => execFileSync(python, ["-c", program, ...args], { encoding: "utf8" });

/** Runs a program, which must succeed. */
async function ended(program, args, input) {
  const child = spawn(program, args, { cwd: root, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(input ?? "");
  let out = "";
  child.stdout.on("data", (data) => (out += data));
  const code = await new Promise((resolve) => child.on("close", resolve));
  assert.equal(code, 0, `${program} ${args[0]}`);
  return out;
}

test("four processes of three languages write one history, and each reads the same context", async (t) => {
  const path = place(t);
  const inNode = `import { Store } from "loopstore";
    const [path, who] = process.argv.slice(-2);
    const store = await Store.open(path);
    for (let at = 0; at < ${COUNT}; at++)
      await store.session("shared").append({ role: "user", content: who + " " + at }, { format: "openai" });
    await store.close();`;
  const inPython = `import sys, loopstore
with loopstore.Store.open(sys.argv[1]) as store:
    for at in range(${COUNT}):
        store.session("shared").append({"role": "user", "content": f"python {at}"}, format="openai")`;
  const lines = Array.from({ length: COUNT }, (_, at) => JSON.stringify(user(`command ${at}`))).join("\n");
  const done = await Promise.all([
    run(inNode, [path, "node"]),
    run(inNode, [path, "another"]),
    ended(python, ["-c", inPython, path]),
    ended(process.execPath, [command, "--db", path, "append", "shared", "--format", "openai"], lines),
  ]);
  for (const { code, err } of done.slice(0, 2)) assert.equal(code, 0, err);
  const store = await own(t, Store.open(path));
  const chat = store.session("shared");
  assert.equal((await store.verify()).ok, true);
  const said = (await chat.entries({ wholeSession: true })).map(({ message }) => message.content[0].text);
  for (const who of ["node", "another", "python", "command"]) {
    const wanted = Array.from({ length: COUNT }, (_, at) => `${who} ${at}`);
    assert.deepEqual(said.filter((text) => text.startsWith(`${who} `)), wanted);
  }
  for (const format of ["openai", "responses", "anthropic", "loopstore"]) {
    const ours = (await chat.contextBytes({ format })).toString();
    const program = `import sys, loopstore
store = loopstore.Store.open(sys.argv[1], read_only=True)
sys.stdout.buffer.write(store.session("shared")._native.context(sys.argv[2], None, None, (None, None, None, None), False))`;
    assert.equal(py(program, path, format), ours, format);
  }
  const told = JSON.parse(await ended(process.execPath, [command, "--db", path, "context", "shared", "--format", "openai"]));
  assert.deepEqual(told.messages, (await chat.context({ format: "openai" })).messages);
});

test("a thread of LangGraph of the other language is refused by each, and its messages are shared", async (t) => {
  const path = place(t);
  const write = `import sys
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
import loopstore
from loopstore.langgraph import LoopstoreSaver
with loopstore.Store.open(sys.argv[1]) as store:
    checkpoint = {**empty_checkpoint(), "channel_values": {"messages": [HumanMessage("said in Python")]}, "channel_versions": {"messages": "1"}}
    LoopstoreSaver(store).put({"configurable": {"thread_id": "py", "checkpoint_ns": ""}}, checkpoint, {"step": 1}, {"messages": "1"})`;
  py(write, path);
  const store = await own(t, Store.open(path));
  const saver = new LoopstoreSaver(store);
  const of = (thread_id) => ({ configurable: { thread_id, checkpoint_ns: "" } });
  await assert.rejects(saver.getTuple(of("py")), ForeignThreadError);
  assert.equal((await store.session("py").context({ format: "openai" })).messages[0].content, "said in Python");
  const { HumanMessage } = await import("@langchain/core/messages");
  const { emptyCheckpoint } = await import("@langchain/langgraph-checkpoint");
  const values = { channel_values: { messages: [new HumanMessage("said in JavaScript")] }, channel_versions: { messages: 1 } };
  await saver.put(of("js"), { ...emptyCheckpoint(), ...values }, { source: "loop", step: 1, parents: {} }, { messages: 1 });
  const read = `import sys, loopstore
from loopstore.langgraph import ForeignThreadError, LoopstoreSaver
with loopstore.Store.open(sys.argv[1]) as store:
    try:
        LoopstoreSaver(store).get_tuple({"configurable": {"thread_id": "js", "checkpoint_ns": ""}})
    except ForeignThreadError as error:
        print(error)
    print(store.session("js").context(format="openai")["messages"][0]["content"], len(store.search("said")["hits"]))`;
  const [error, rest] = py(read, path).trim().split("\n");
  assert.match(error, /JavaScript/);
  assert.equal(rest, "said in JavaScript 2");
});

test("a session of the Agents SDK of one language is read in the other", async (t) => {
  const path = place(t);
  const write = `import asyncio, sys
from loopstore.openai_agents import LoopstoreSession
with LoopstoreSession("s", sys.argv[1]) as session:
    asyncio.run(session.add_items([
        {"role": "user", "content": "Rain?"},
        {"type": "function_call", "call_id": "c1", "name": "forecast", "arguments": "{}", "id": "fc_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "Yes."}]))`;
  py(write, path);
  const store = await own(t, Store.open(path));
  const session = new LoopstoreSession("s", { store });
  const items = await session.getItems();
  assert.deepEqual(items.map(({ type }) => type), ["message", "function_call", "function_call_result"]);
  assert.deepEqual([items[1].callId, items[2].callId, items[2].output.text], ["c1", "c1", "Yes."]);
  await session.addItems([
    { type: "function_call", callId: "c2", name: "forecast", arguments: "{}", status: "completed" },
    { type: "function_call_result", callId: "c2", name: "forecast", status: "completed", output: { type: "text", text: "No." } },
  ]);
  const read = `import asyncio, json, sys
from loopstore.openai_agents import LoopstoreSession
with LoopstoreSession("s", sys.argv[1]) as session:
    print(json.dumps(asyncio.run(session.get_items())))`;
  const theirs = JSON.parse(py(read, path));
  assert.deepEqual([theirs.length, theirs[3].call_id, theirs[3].name, theirs[4].output], [5, "c2", "forecast", "No."]);
  assert.ok(!("callId" in theirs[3]));
});
