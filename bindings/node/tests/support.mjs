// Helpers of the tests.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Creates a folder that is removed with the test, and returns the path of a file in it. */
export function place(t, name = "agent.db") {
  const folder = mkdtempSync(join(tmpdir(), "loopstore-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, name);
}

/** Opens a store that is closed with the test. */
export async function own(t, opening) {
  const store = await opening;
  t.after(() => store.close());
  return store;
}

export const user = (content) => ({ role: "user", content });
export const assistant = (content) => ({ role: "assistant", content });
export const openai = { format: "openai" };

/** Appends this number of turns with outputs of tools, which a compaction shortens. */
export async function fill(session, turns = 12) {
  for (let turn = 0; turn < turns; turn++) {
    const id = `call-${turn}`;
    const call = { id, type: "function", function: { name: "read", arguments: '{"path":"notes.txt"}' } };
    await session.append(
      [
        user(`Please read file number ${turn}. ${"Carefully. ".repeat(60)}`),
        { role: "assistant", content: null, tool_calls: [call] },
        { role: "tool", tool_call_id: id, content: "a line of the file\n".repeat(60) },
        assistant(`It says line ${turn}.`),
      ],
      openai,
    );
  }
}

/** Runs a Node program, given as text, and returns its output and its exit code. */
export function run(program, args = [], options = {}) {
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program, "--", ...args], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    ...options,
  });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  const done = new Promise((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal, out, err }));
  });
  return Object.assign(done, { child });
}
