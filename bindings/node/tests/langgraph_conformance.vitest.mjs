// LangGraph's own tests of savers, all of them.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { Store } from "loopstore";
import { LoopstoreSaver } from "loopstore/langgraph";

const memory = {
  checkpointerName: "loopstore, in memory",
  createCheckpointer: async () => new LoopstoreSaver(await Store.inMemory()),
  destroyCheckpointer: (saver) => saver.store.close(),
};

let folder;
const file = {
  checkpointerName: "loopstore, in a file",
  async createCheckpointer() {
    folder = mkdtempSync(join(tmpdir(), "loopstore-"));
    return new LoopstoreSaver(await Store.open(join(folder, "agent.db")));
  },
  async destroyCheckpointer(saver) {
    await saver.store.close();
    rmSync(folder, { recursive: true });
  },
};

for (const initializer of [memory, file]) {
  validate(initializer);
  deltaChannelHistoryTests(initializer);
}
