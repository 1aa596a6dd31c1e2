/** Texts of objects for people: what `console.log` and a REPL print. */

import { shown } from "./arguments.js";
import type { Appended } from "./native.js";
import type { Prepared, Recall } from "./session.js";

const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** Gives an object a text that is printed in place of its fields; the fields stay what they are. */
export function printed<T extends object>(object: T, text: (object: T) => string): T {
  return Object.defineProperty(object, INSPECT, { enumerable: false, value: () => text(object) });
}

function counted(count: number, one: string): string {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}

/** Returns the text of the result of an append. */
export function printedAppended({ loopId, turns, seqs, tokens, begun, duplicate, notes }: Appended): string {
  const what = duplicate
    ? "a duplicate of an earlier append"
    : `${counted(seqs[1] - seqs[0], "message")}, ${counted(tokens, "token")}`;
  const [first, last] = [turns[0], turns[1] - 1];
  const range = last < first ? "no turn" : last === first ? `turn ${first}` : `turns ${first} to ${last}`;
  const more = begun.length > 0 ? `, began ${begun.join(", ")}` : "";
  const noted = notes.length > 0 ? `, ${counted(notes.length, "note")}: ${notes.join("; ")}` : "";
  return `Appended { ${what}: ${loopId}, ${range}${more}${noted} }`;
}

/** Returns the text of a context. */
export function printedPrepared(ready: Omit<Prepared, "request" | "messages"> & { messages: unknown[] }): string {
  const parts = [counted(ready.messages.length, "message"), counted(ready.tokens, "token")];
  if (ready.wasCompacted) parts.push("compacted");
  if (ready.faults.length > 0) parts.push(counted(ready.faults.length, "fault"));
  if (ready.mended.length > 0) parts.push(counted(ready.mended.length, "mending"));
  if (ready.openCalls.length > 0) parts.push(counted(ready.openCalls.length, "open call"));
  return `Prepared { ${parts.join(", ")}: ${ready.loopId} }`;
}

/** Returns the text of an answer. */
export function printedRecall({ text, tokens, parts }: Recall): string {
  return `Recall { ${counted(parts.length, "part")}, ${counted(tokens, "token")}: ${shown(text)} }`;
}
