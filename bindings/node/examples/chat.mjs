// A chat that outlives its process: a second run continues it. The model is a mock.
import { Store } from "loopstore";

/** Returns an answer as `client.chat.completions.create({ model, ...request })` does. */
function model(request) {
  const count = Math.floor(request.messages.length / 2) + 1;
  return { role: "assistant", content: `You have said ${count} things.` };
}

const path = process.argv[2] ?? "chat.db";
const store = await Store.open(path, { policy: { window: 128_000 } });
// Also `appended`, `conflict` and `slow`: for logs and measurements.
store.events.on("compacted", ({ sessionId, report }) => console.log(`${sessionId} now has ${report.tokens_after} tokens.`));
store.events.on("summarizerFailed", ({ report }) => console.warn(`The summariser failed: ${report.error}`));
const chat = store.session("chat");
for (const prompt of ["Hello!", "What have I said so far?"]) {
  await chat.append({ role: "user", content: prompt }, { format: "openai" });
  const ready = await chat.prepare({ format: "openai" }); // Compacted if needed; it fits, or is an error.
  const answer = model(ready.request);
  await chat.append(answer, { format: "openai" });
  console.log(`> ${prompt}\n${answer.content}`);
}
console.log(`${(await chat.context()).messages.length} messages are kept in ${path}.`);
await store.close();
