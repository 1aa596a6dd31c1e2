import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Store } from "loopstore";

import { fill, own, root } from "./support.mjs";

test("what the native part returns has the types that TypeScript says", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  await fill(chat);
  const compact = await chat.compact({ force: true });
  await chat.undo();
  const line = { type: "user", uuid: "u-1", parentUuid: null, sessionId: "s-1", message: { role: "user", content: "Hello" } };
  const imported = await store.importBytes(JSON.stringify(line), { format: "claude-code", name: "s-1.jsonl" });
  const found = [
    ["CompactReport", compact],
    ["Context", await chat.context()],
    ["FlipReport", await chat.redo()],
    ["CompactReport", await chat.compact({ force: true, dryRun: true })],
    ["SearchResults", await chat.search("file number 7")],
    ["SessionResults", await store.searchSessions("file number 7")],
    ["RunRow[]", await chat.history()],
    ["SessionRow[]", await store.sessions()],
    ["SessionView", await chat.show()],
    ["PinReport", await chat.pin("loop-1", 0)],
    ["PinRow[]", await chat.pins()],
    ["Expanded", await chat.expand(0, 1, { loopId: "loop-1" })],
    ["Entry[]", await chat.entries({ last: 2 })],
    ["Recall", await chat.recall("file number 7", 300)],
    ["Prepared", await chat.prepare()],
    ["CallState", await chat.startCall("call-1")],
    ["Appended", await chat.append({ role: "user", content: "x" }, { format: "openai" })],
    ["VerifyReport", await store.verify()],
    ["Record<string, number>", await store.stats()],
    ["EraseReport", await chat.erase()],
    ["ImportReport", imported],
  ];
  const names = [...new Set(found.map(([name]) => name.replace("[]", "")))].filter((name) => !name.includes("<"));
  const lines = found.map(([name, value], at) => `export const value${at}: ${name} = ${JSON.stringify(value)};`);
  const folder = join(root, "dist", "shapes");
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "shapes.mts"), `import type { ${names.join(", ")} } from "loopstore";\n${lines.join("\n")}\n`);
  const options = { module: "node16", moduleResolution: "node16", strict: true, noEmit: true, types: ["node"] };
  const project = { extends: "../../tsconfig.base.json", compilerOptions: { ...options, declaration: false }, include: ["*.mts"] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(project));
  const done = spawnSync(join(root, "node_modules", ".bin", "tsc"), ["-p", folder], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout);
});
