// Tool calls that are known to have started: after a crash, a restart sees which ones may have been made.
import { Store } from "loopstore";

const anthropic = { format: "anthropic" };
const call = { type: "tool_use", id: "call-1", name: "book_flight", input: { to: "Bern" } };

const store = await Store.open(process.argv[2] ?? "tools.db");
const chat = store.session("trip");
if (!(await chat.exists())) {
  await chat.append({ role: "user", content: "Book a flight to Bern." }, anthropic);
  await chat.append({ role: "assistant", content: [call] }, anthropic); // The answer of a model.
}
for (const { id, name, arguments: input } of await chat.openCalls()) {
  const { state, key } = await chat.startCall(id); // Durable before the tool runs.
  if (state === "started") console.log(`${name} may have been interrupted: the key ${key} tells whether it was made.`);
  const content = `Booked ${input.to}, once for the key ${key}.`; // A tool that takes idempotency keys.
  const result = { type: "tool_result", tool_use_id: id, content };
  await chat.append({ role: "user", content: [result] }, anthropic); // This finishes the call.
  console.log(content);
}
const { state } = await chat.startCall(call.id);
console.log(`The call is ${state}, and is not run again.`);
await store.close();
