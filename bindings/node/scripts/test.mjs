// Runs the tests: the types, the test programs of `tests`, and LangGraph's own tests of savers.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const names = process.argv.slice(2);

function run(program, ...args) {
  const { status, error } = spawnSync(program, args, { cwd: root, stdio: "inherit" });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

const bin = (name) => join(root, "node_modules", ".bin", name);
const all = readdirSync(join(root, "tests")).filter((name) => name.endsWith(".test.mjs"));
const wanted = names.length ? all.filter((name) => names.some((part) => name.startsWith(part))) : all;
if (!names.length) run(bin("tsc"), "-p", "tsconfig.tests.json");
const typed = names.length ? [] : [join("dist", "tests", "types.mjs")];
run(process.execPath, "--test", ...typed, ...wanted.map((name) => join("tests", name)));
if (!names.length && existsSync(join(root, "vitest.config.mjs"))) run(bin("vitest"), "run");
