// Edits: messages that contexts show in another form or not at all.
import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidInputError, Store } from "loopstore";

import { fill, own } from "./support.mjs";

test("a dropped turn and cleared results are restored word for word", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 4);
  const before = await chat.context();
  const dropped = await chat.drop("call-0", { reason: "a detour" });
  assert.ok(dropped.run_id && dropped.tokens_after < dropped.tokens_before);
  assert.ok((await chat.context()).messages.length < before.messages.length);
  assert.equal((await chat.restore({ call: "call-0" })).length, 1);
  assert.deepEqual(await chat.context(), before);
  const dry = await chat.clear([], { tool: "read", larger: 500, olderThan: 1, dryRun: true });
  assert.equal(dry.run_id, null);
  assert.deepEqual(await chat.context(), before);
  const cleared = await chat.clear([], { tool: "read", larger: 500, olderThan: 1 });
  assert.equal(cleared.tokens_after, dry.tokens_after);
  await chat.undo();
  await chat.replace("call-1", "a better text");
  assert.match(JSON.stringify(await chat.context()), /a better text/);
});

test("a wrong target is an input error and edits nothing", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, 2);
  const before = await chat.context();
  for (const target of ["", "loop-1:2..1", "loop-9:0", "none", {}, { turn: -1 }, { call: 3 }, 7, []]) {
    await assert.rejects(chat.drop(target), InvalidInputError);
    await assert.rejects(chat.restore(target), InvalidInputError);
  }
  assert.deepEqual(await chat.context(), before);
});
