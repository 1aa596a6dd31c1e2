import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

import { Store } from "loopstore";

import { openai, own, place, root, run, user } from "./support.mjs";

const command = join(root, "dist", "core", "command.js");

/** Runs the command line of the package. */
function cli(...args) {
  const done = spawnSync(process.execPath, [command, ...args], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout;
}

test("four processes that write at once make one history", async (t) => {
  const path = place(t);
  const program = `
    import { Store } from "loopstore";
    const [path, who] = process.argv.slice(-2);
    const store = await Store.open(path);
    const shared = store.session("shared"), own = store.session("own-" + who);
    for (let at = 0; at < 40; at++) {
      const message = (text) => ({ role: "user", content: text });
      await Promise.all([
        shared.append(message(who + " says " + at), { format: "openai", key: who + "/" + at }),
        own.append(message(who + " notes " + at), { format: "openai" }),
      ]);
    }
    await store.close();`;
  const done = await Promise.all(["a", "b", "c", "d"].map((who) => run(program, [path, who])));
  for (const { code, err } of done) assert.equal(code, 0, err);
  const store = await own(t, Store.open(path));
  const shared = store.session("shared");
  assert.equal(await shared.countEntries({ wholeSession: true }), 160);
  for (const who of ["a", "b", "c", "d"]) {
    assert.equal(await store.session(`own-${who}`).countEntries(), 40);
    const said = (await shared.entries({ wholeSession: true })).map(({ message }) => message.content[0].text);
    const mine = said.filter((text) => text.startsWith(`${who} says`));
    assert.deepEqual(mine, Array.from({ length: 40 }, (_, at) => `${who} says ${at}`));
  }
  assert.equal((await store.verify()).ok, true);
});

test("the command line and the package read and write the same session", async (t) => {
  const path = place(t);
  const store = await own(t, Store.open(path));
  await store.session("chat").append(user("from the package"), openai);
  const message = JSON.stringify({ role: "assistant", content: "from the command line" });
  const done = spawnSync(process.execPath, [command, "--db", path, "append", "chat", "--format", "openai"], {
    input: message,
    encoding: "utf8",
  });
  assert.equal(done.status, 0, done.stderr);
  const own_ = (await store.session("chat").context(openai)).messages;
  assert.deepEqual(own_.map(({ content }) => content), ["from the package", "from the command line"]);
  const told = JSON.parse(cli("--db", path, "context", "chat", "--format", "openai"));
  assert.deepEqual(told.messages, own_);
  assert.equal(spawnSync(process.execPath, [command, "--db", path, "context", "nobody"]).status > 0, true);
});

test("a process that is killed in a write leaves whole appends", async (t) => {
  const path = place(t);
  const program = `
    import { Store } from "loopstore";
    const store = await Store.open(process.argv.at(-1));
    const chat = store.session("chat");
    const three = [1, 2, 3].map((at) => ({ role: "user", content: at + "x".repeat(5000) }));
    console.log("ready");
    for (;;) await Promise.all([chat.append(three, { format: "openai" }), chat.append(three, { format: "openai" })]);`;
  for (let round = 0; round < 5; round++) {
    const writer = run(program, [path]);
    await new Promise((ready) => writer.child.stdout.once("data", ready));
    await new Promise((done) => setTimeout(done, 20 + round * 15));
    writer.child.kill("SIGKILL");
    assert.equal((await writer).signal, "SIGKILL");
    const store = await Store.open(path);
    assert.equal((await store.session("chat").countEntries({ wholeSession: true })) % 3, 0);
    assert.equal((await store.verify()).ok, true);
    await store.close();
  }
});
