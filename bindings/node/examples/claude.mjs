// The Claude Agent SDK's sessions in loopstore. The entries are examples of those that the SDK mirrors.
import { listSessions } from "@anthropic-ai/claude-agent-sdk";
import { Store } from "loopstore";
import { LoopstoreSessionStore } from "loopstore/claude";

const sessionId = "0b1e5c9e-0000-4000-8000-000000000001";

function entry(number, role, text) {
  const message = { role, content: [{ type: "text", text }], id: `msg_${number}` };
  const parentUuid = number ? `uuid-${number - 1}` : null;
  const timestamp = `2026-01-01T00:00:0${number}Z`;
  return { type: role, uuid: `uuid-${number}`, parentUuid, sessionId, timestamp, cwd: "/tmp", message };
}

const store = await Store.open(process.argv[2] ?? "claude.db");
const sessionStore = new LoopstoreSessionStore(store); // query({ prompt, options: { sessionStore } })
const said = [entry(0, "user", "Which port?"), entry(1, "assistant", "The server listens on 7071.")];
await sessionStore.append({ projectKey: "-tmp", sessionId }, said);
console.log((await listSessions({ dir: "/tmp", sessionStore })).map(({ summary }) => summary));
console.log((await store.session(sessionId).recall("which port listens", 300)).text);
await store.close();
