// Written by `loopstore install`; `loopstore install opencode --uninstall` takes it away again.
// Records the session after each turn, and hands the summary what the record holds. Whatever fails, OpenCode
// goes on by itself.
import { spawn } from "node:child_process";

const [PROGRAM, ...OPTIONS] = WORDS;
const LIMIT = 2500;
const INTRODUCTION =
  "The following working state was made from the recorded session and is exact. " +
  "Take it into the summary word for word:\n\n";

function hook(event, input) {
  return new Promise((resolve) => {
    const child = spawn(PROGRAM, [...OPTIONS, event], { stdio: ["pipe", "pipe", "ignore"] });
    let answer = "";
    const timer = setTimeout(() => {
      child.kill();
      resolve("");
    }, LIMIT);
    const end = (text) => {
      clearTimeout(timer);
      resolve(text);
    };
    child.on("error", () => end(""));
    child.stdin.on("error", () => {});
    child.stdout.on("data", (chunk) => (answer += chunk));
    child.on("close", () => end(answer));
    child.stdin.end(input);
  });
}

export const Loopstore = async ({ client }) => {
  const call = async (event, id) => {
    try {
      const path = { id };
      const info = (await client.session.get({ path })).data;
      const messages = (await client.session.messages({ path })).data;
      return info && messages ? await hook(event, JSON.stringify({ info, messages })) : "";
    } catch {
      return "";
    }
  };
  return {
    event: async ({ event }) => {
      if (event.type === "session.idle") await call(event.type, event.properties.sessionID);
    },
    "experimental.session.compacting": async (input, output) => {
      try {
        const answer = await call("experimental.session.compacting", input.sessionID);
        const { context } = JSON.parse(answer);
        if (context) output.context.push(INTRODUCTION + context);
      } catch {
        // OpenCode makes its own summary.
      }
    },
  };
};
