import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { place, root } from "./support.mjs";

const folder = join(root, "examples");

for (const name of readdirSync(folder)) {
  test(`the example ${name} runs, and again on what it left`, (t) => {
    const lines = readFileSync(join(folder, name), "utf8").trimEnd().split("\n");
    assert.ok(lines.length <= 30, `${lines.length} lines`);
    const path = place(t);
    for (let round = 0; round < 2; round++) {
      const done = spawnSync(process.execPath, [join(folder, name), path], { encoding: "utf8", timeout: 60_000 });
      assert.equal(done.status, 0, done.stderr);
      assert.ok(done.stdout.length > 0);
      assert.doesNotMatch(done.stderr, /error/i);
    }
  });
}
