import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import { InMemorySessionStore, foldSessionSummary, getSessionMessages, listSessions } from "@anthropic-ai/claude-agent-sdk";
import { InvalidInputError, Store } from "loopstore";
import { LoopstoreSessionStore } from "loopstore/claude";

import { own, place } from "./support.mjs";

const ID = "0b1e5c9e-0000-4000-8000-000000000001";
const key = { projectKey: "-tmp-it's (a) 100% *project*!", sessionId: ID };

function entry(number, role, text, more = {}) {
  return {
    type: role,
    uuid: `uuid-${number}`,
    parentUuid: number ? `uuid-${number - 1}` : null,
    sessionId: ID,
    timestamp: `2026-01-01T00:00:${String(number % 60).padStart(2, "0")}Z`,
    cwd: "/tmp",
    message: { role, content: [{ type: "text", text }], id: `msg_${number}` },
    ...more,
  };
}

const chat = (count) => Array.from({ length: count }, (_, at) => entry(at, at % 2 ? "assistant" : "user", `message ${at}`));

async function sessions(t, options) {
  return new LoopstoreSessionStore(await own(t, Store.inMemory()), options);
}

test("entries come back as they came, in their order, and each uuid once", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const it = new LoopstoreSessionStore(store);
  const entries = chat(6);
  const title = { type: "custom-title", customTitle: "A title", nested: { z: 1, a: [null, 1e300, "\u2028"] } };
  assert.equal(await it.load(key), null);
  await it.append(key, []);
  assert.equal(await it.load(key), null);
  await Promise.all(entries.map((one) => it.append(key, [one])));
  await it.append(key, [title, title]);
  await it.append(key, entries.slice(2));
  await it.append({ ...key, subpath: "subagents/agent-1" }, [entry(1, "user", "in the sub-agent")]);
  await store.close();
  const again = new LoopstoreSessionStore(await own(t, Store.open(path)));
  assert.deepEqual(await again.load(key), [...entries, title, title]);
  assert.deepEqual(await again.listSubkeys(key), ["subagents/agent-1"]);
  assert.equal((await again.load({ ...key, subpath: "subagents/agent-1" })).length, 1);
  assert.equal(await again.load({ ...key, projectKey: "another" }), null);
});

test("entries that the caller changes afterwards are kept as they were", async (t) => {
  const it = await sessions(t);
  const one = entry(0, "user", "as it was");
  const append = it.append(key, [one]);
  one.message.content[0].text = "changed";
  await append;
  assert.equal((await it.load(key))[0].message.content[0].text, "as it was");
});

test("what was mirrored is understood: found, shown and recalled", async (t) => {
  const it = await sessions(t);
  await it.append(key, [entry(0, "user", "Which port?"), entry(1, "assistant", "The server listens on 7071.")]);
  const session = it.store.session(ID);
  assert.match((await session.recall("which port listens", 300)).text, /7071/);
  assert.deepEqual(await it.understand(key), [ID]);
  const apart = await sessions(t, { understand: false });
  await apart.append(key, chat(2));
  assert.equal(await apart.store.session(ID).exists(), false);
});

test("sessions are listed as the SDK's own store lists them, with the same summaries", async (t) => {
  const it = await sessions(t);
  const theirs = new InMemorySessionStore();
  for (const [number, sessionId] of [ID, "another", "third, 100% odd"].entries()) {
    const own_ = { ...key, sessionId };
    const entries = chat(2 + number);
    await it.append(own_, entries);
    await theirs.append(own_, entries);
  }
  const ids = async (store) => (await store.listSessions(key.projectKey)).map(({ sessionId }) => sessionId).sort();
  assert.deepEqual(await ids(it), await ids(theirs));
  for (const { mtime } of await it.listSessions(key.projectKey)) assert.ok(Number.isInteger(mtime) && mtime > 1.7e12);
  for (let round = 0; round < 3; round++) {
    const summaries = await it.listSessionSummaries(key.projectKey);
    for (const { sessionId, data, mtime } of summaries) {
      const own_ = { ...key, sessionId };
      assert.deepEqual(data, foldSessionSummary(undefined, own_, await it.load(own_)).data);
      assert.equal(mtime, (await it.listSessions(key.projectKey)).find((one) => one.sessionId === sessionId).mtime);
    }
    await it.append(key, [entry(50 + round, "user", `more ${round}`)]);
  }
  assert.deepEqual(await it.listSessionSummaries("nowhere"), []);
});

test("the SDK's own functions read our store", async (t) => {
  const it = await sessions(t);
  const projectKey = "-tmp";
  await it.append({ projectKey, sessionId: ID }, chat(4));
  const [info] = await listSessions({ dir: "/tmp", sessionStore: it });
  assert.equal(info.sessionId, ID);
  assert.equal((await getSessionMessages(ID, { dir: "/tmp", sessionStore: it })).length, 4);
});

test("deleting takes a session with its sub-agents, and its id may be used again", async (t) => {
  for (const onDelete of ["hide", "erase"]) {
    const it = await sessions(t, { onDelete });
    await it.delete(key);
    await it.append(key, chat(4));
    await it.append({ ...key, subpath: "subagents/a" }, [entry(0, "user", "sub")]);
    await it.append({ ...key, subpath: "subagents/b" }, [entry(0, "user", "sub")]);
    await it.listSessionSummaries(key.projectKey);
    await it.delete({ ...key, subpath: "subagents/a" });
    assert.deepEqual(await it.listSubkeys(key), ["subagents/b"]);
    await it.delete(key);
    assert.equal(await it.load(key), null);
    assert.deepEqual(await it.listSubkeys(key), []);
    assert.deepEqual(await it.listSessions(key.projectKey), []);
    assert.equal((await it.store.search("message")).hits.length, 0);
    await it.append(key, [entry(0, "user", "anew")]);
    assert.equal((await it.load(key)).length, 1);
    const [{ data }] = await it.listSessionSummaries(key.projectKey);
    assert.deepEqual(data, foldSessionSummary(undefined, key, await it.load(key)).data);
  }
});

test("what is no store, no key or no entry is refused", async (t) => {
  assert.throws(() => new LoopstoreSessionStore("agent.db"), InvalidInputError);
  const it = await sessions(t);
  assert.throws(() => new LoopstoreSessionStore(it.store, { onDelete: "never" }), InvalidInputError);
  await assert.rejects(it.append({ projectKey: 7, sessionId: ID }, chat(1)), InvalidInputError);
  const ring = entry(0, "user", "x");
  ring.ring = ring;
  await assert.rejects(it.append(key, [entry(1, "user", "y"), ring]), InvalidInputError);
  assert.equal(await it.load(key), null);
  const long = entry(0, "user", "x", { uuid: "u".repeat(2000) });
  await it.append(key, [long]);
  await it.append(key, [long]);
  assert.equal((await it.load(key)).length, 1);
  const required = createRequire(import.meta.url)("loopstore/claude");
  const other = new required.LoopstoreSessionStore(it.store);
  assert.equal((await other.listSessionSummaries(key.projectKey)).length, 1);
});
