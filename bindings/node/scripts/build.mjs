// Builds the package: the native part with cargo, and `dist` with the TypeScript compiler.
// Options: `--debug` for a quick build, `--types` to skip the native part; other options are passed to cargo, such as
// `--features postgres,sqlcipher`, or `--profile dist` as for a release.
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { declarations } from "./types.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const given = process.argv.slice(2);
const rest = given.filter((one) => one !== "--debug" && one !== "--types");

function run(program, args, options = {}) {
  const done = spawnSync(program, args, { cwd: root, stdio: "inherit", encoding: "utf8", maxBuffer: 1 << 30, ...options });
  if (done.error) throw done.error;
  if (done.status !== 0) process.exit(done.status ?? 1);
  return done.stdout;
}

/** Builds the native part, and writes the types of its Rust code. */
function native() {
  const noted = mkdtempSync(join(tmpdir(), "loopstore-types-"));
  // The macros record no types in a build that is up to date.
  utimesSync(join(root, "src", "lib.rs"), new Date(), new Date());
  const mode = given.includes("--debug") || given.includes("--profile") ? [] : ["--release"];
  const args = ["build", "--package", "loopstore-node", "--locked", "--message-format=json-render-diagnostics"];
  const told = run("cargo", [...args, ...mode, ...rest], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: noted },
  });
  const lines = readdirSync(noted).flatMap((name) => readFileSync(join(noted, name), "utf8").trim().split("\n"));
  writeFileSync(join(root, "ts", "core", "native.d.ts"), declarations(lines));
  rmSync(noted, { recursive: true });
  const made = told.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const ours = made.find(({ reason, target }) => reason === "compiler-artifact" && target.name === "loopstore_node");
  const library = ours.filenames.find((name) => /\.(so|dylib|dll)$/.test(name));
  const { platform, arch } = process;
  const isMusl = platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
  const kind = { linux: isMusl ? "-musl" : "-gnu", win32: "-msvc" }[platform] ?? "";
  const path = join(root, `loopstore.${platform}-${arch}${kind}.node`);
  // A program that has the old file open keeps it.
  rmSync(path, { force: true });
  cpSync(library, path);
}

const tsc = (project) => run(join(root, "node_modules", ".bin", "tsc"), ["-p", project]);

if (!given.includes("--types")) native();
const dist = join(root, "dist");
rmSync(dist, { recursive: true, force: true });
mkdirSync(join(dist, "core"), { recursive: true });
for (const name of ["native.js", "native.d.ts"]) {
  cpSync(join(root, "ts", "core", name), join(dist, "core", name));
}
tsc("tsconfig.json");
// `import` and `require` share one core module, so that its classes are the same for both.
for (const name of ["index", "internal"]) {
  const text = `export * from "./core/${name}.js";\n`;
  writeFileSync(join(dist, `${name}.mjs`), text);
  writeFileSync(join(dist, `${name}.d.mts`), text);
}
// A folder with modules of another kind is a package of its own, with its own path to the core.
const esm = join(dist, "esm");
mkdirSync(esm, { recursive: true });
const scope = { type: "module", imports: { "#core": { types: "./core.d.mts", default: "./core.mjs" } } };
writeFileSync(join(esm, "package.json"), `${JSON.stringify(scope, null, 2)}\n`);
for (const name of ["core.mjs", "core.d.mts"]) {
  writeFileSync(join(esm, name), 'export * from "../core/internal.js";\n');
}
tsc("tsconfig.cjs.json");
tsc("tsconfig.esm.json");
