// Written by `loopstore install`; `loopstore install pi --uninstall` takes it away again.
// Records the session after each turn, and compacts from the record. Whatever fails, pi goes on by itself.
import { spawn } from "node:child_process";

const [PROGRAM, ...OPTIONS]: string[] = WORDS;
const LIMIT = 2500;

function hook(event: string, ctx: any): Promise<string> {
  return new Promise((resolve) => {
    try {
      const file = ctx.sessionManager.getSessionFile();
      if (!file) return resolve("");
      const child = spawn(PROGRAM, [...OPTIONS, event], { stdio: ["pipe", "pipe", "ignore"] });
      let answer = "";
      const timer = setTimeout(() => {
        child.kill();
        resolve("");
      }, LIMIT);
      const end = (text: string) => {
        clearTimeout(timer);
        resolve(text);
      };
      child.on("error", () => end(""));
      child.stdin.on("error", () => {});
      child.stdout.on("data", (chunk: Buffer) => (answer += chunk));
      child.on("close", () => end(answer));
      child.stdin.end(
        JSON.stringify({ session_id: ctx.sessionManager.getSessionId(), transcript_path: file }),
      );
    } catch {
      resolve("");
    }
  });
}

export default function (pi: any) {
  pi.on("agent_end", async (_event: any, ctx: any) => {
    await hook("agent_end", ctx);
  });
  pi.on("session_shutdown", async (_event: any, ctx: any) => {
    await hook("session_shutdown", ctx);
  });
  pi.on("session_before_compact", async (event: any, ctx: any) => {
    try {
      const { summary } = JSON.parse(await hook("session_before_compact", ctx));
      const { firstKeptEntryId, tokensBefore } = event.preparation;
      if (summary) return { compaction: { summary, firstKeptEntryId, tokensBefore } };
    } catch {
      // pi makes its own summary.
    }
  });
}
