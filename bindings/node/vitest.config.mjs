// LangGraph's own tests of savers use vitest.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globals: true,
    include: ["tests/**/*.vitest.mjs"],
    server: { deps: { external: [/dist/, /\.node$/] } },
    // A test that hangs fails; no test judges a time.
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
