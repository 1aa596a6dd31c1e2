"use strict";
// Loads the native part that was built for this machine.

const { existsSync } = require("node:fs");
const { join } = require("node:path");

const root = join(__dirname, "..", "..");
const { platform, arch } = process;
const kinds = platform === "linux" ? ["-gnu", "-musl"] : platform === "win32" ? ["-msvc"] : [""];

function load() {
  const failed = [];
  for (const kind of kinds) {
    const path = join(root, `loopstore.${platform}-${arch}${kind}.node`);
    if (!existsSync(path)) continue;
    try {
      return require(path);
    } catch (error) {
      failed.push(error);
    }
  }
  const why = failed.length ? failed.map((error) => error.message).join("; ") : "it is not there";
  throw new Error(
    `loopstore has no native part for ${platform}-${arch} (${why}); build it with \`npm run build\` in ${root}`,
    { cause: failed[0] },
  );
}

module.exports = load();
