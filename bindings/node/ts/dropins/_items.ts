/** Conversion between items of the Agents SDK and of the Responses API. */

import type { AgentInputItem } from "@openai/agents";

import { InvalidInputError, checkNumbers, whole } from "#core";

type Item = Record<string, unknown>;

const BYTES = "$loopstoreBytes";

/** Writes an item, with its binary data as Base64. */
export function written(item: unknown): string {
  try {
    const text = JSON.stringify(item, function (this: Item, key: string, value: unknown) {
      // A Buffer has been replaced by its own JSON.
      const own = this[key];
      return own instanceof Uint8Array ? { [BYTES]: Buffer.from(own).toString("base64") } : value;
    });
    if (text !== undefined) {
      checkNumbers(item, text);
      return whole(text);
    }
  } catch (error) {
    if (error instanceof InvalidInputError) throw error;
    throw new InvalidInputError(`an item cannot be written as JSON: ${(error as Error).message}`, { cause: error });
  }
  throw new InvalidInputError(`an item cannot be written as JSON: ${typeof item}`);
}

/** Reads the output of `written`: for `JSON.parse`. */
export function reviver(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const text = (value as Item)[BYTES];
  return typeof text === "string" ? new Uint8Array(Buffer.from(text, "base64")) : value;
}

/** Returns the equivalent item of the Responses API; `null` if there is none. */
export function shown(item: Item): Item | null {
  const { id, status } = item;
  const own = { ...(id === undefined ? {} : { id }), ...(status === undefined ? {} : { status }) };
  switch (item["type"]) {
    case "function_call": {
      const { callId, name, arguments: given } = item;
      return { type: "function_call", call_id: callId, name, arguments: given, ...own };
    }
    case "function_call_result":
      return { type: "function_call_output", call_id: item["callId"], output: output(item["output"]) };
    case "reasoning": {
      const summary = list(item["content"]).map(({ text }) => ({ type: "summary_text", text }));
      const sealed = (item["providerData"] as Item | undefined)?.["encrypted_content"];
      return { type: "reasoning", summary, ...own, ...(typeof sealed === "string" ? { encrypted_content: sealed } : {}) };
    }
    case "compaction": {
      const { type, encrypted_content } = item;
      return { type, encrypted_content, ...own };
    }
    case undefined:
    case "message":
      return message(item, own);
    default:
      return null;
  }
}

function message({ role, content }: Item, own: Item): Item | null {
  if (role === "assistant") {
    const parts = list(content).map((part) => (part["type"] === "output_text" ? text(part, { annotations: [] }) : part));
    return { type: "message", role, content: parts, ...own };
  }
  if (typeof content === "string") return { role, content };
  const parts = list(content).map((part) => {
    if (part["type"] === "input_text") return text(part, {});
    if (part["type"] === "input_image" && typeof part["image"] === "string") {
      return { type: "input_image", image_url: part["image"], detail: part["detail"] ?? "auto" };
    }
    return part;
  });
  return { type: "message", role, content: parts };
}

const text = (part: Item, more: Item): Item => ({ type: part["type"], text: part["text"], ...more });

function output(given: unknown): unknown {
  if (typeof given === "string") return given;
  if (!Array.isArray(given)) {
    const { type, text: said } = (given ?? {}) as Item;
    return type === "text" ? said : JSON.stringify(given);
  }
  return list(given).map((part) => {
    const said = part["type"] === "input_text" || part["type"] === "text" ? part["text"] : JSON.stringify(part);
    return { type: "input_text", text: said };
  });
}

function list(given: unknown): Item[] {
  return Array.isArray(given) ? given.filter((part) => typeof part === "object" && part !== null) : [];
}

/** Returns items of the Agents SDK, also for messages that were not made of such items. */
export function ofResponses(items: unknown[]): AgentInputItem[] {
  const names = new Map<unknown, unknown>();
  return items.map((given) => {
    const item = given as Item;
    const foreign = item["$responses"];
    const made = typeof foreign === "object" && foreign !== null ? ofResponse(foreign as Item, names) : item;
    if (made["type"] === "function_call") names.set(made["callId"], made["name"]);
    return made as unknown as AgentInputItem;
  });
}

function ofResponse(item: Item, names: Map<unknown, unknown>): Item {
  const { id, call_id: callId } = item;
  const own = id === undefined ? {} : { id };
  switch (item["type"]) {
    case "function_call": {
      const { name, arguments: given, status = "completed" } = item;
      return { type: "function_call", callId, name, arguments: given, status, ...own };
    }
    case "function_call_output": {
      const parts = item["output"];
      const output = typeof parts === "string" ? { type: "text", text: parts } : parts;
      return { type: "function_call_result", callId, name: names.get(callId) ?? "tool", status: "completed", output, ...own };
    }
    case "reasoning": {
      const content = list(item["summary"]).map((part) => ({ type: "input_text", text: part["text"] }));
      const sealed = item["encrypted_content"];
      const providerData = sealed === undefined ? {} : { providerData: { encrypted_content: sealed } };
      return { type: "reasoning", content, ...own, ...providerData };
    }
    case "compaction":
      return item;
    case undefined:
    case "message":
      return said(item, own);
    default:
      return { type: "unknown", providerData: item };
  }
}

function said({ role, content, status = "completed" }: Item, own: Item): Item {
  if (role === "assistant") {
    const parts = typeof content === "string" ? [{ type: "output_text", text: content }] : list(content).map((part) => text(part, {}));
    return { type: "message", role, status, content: parts, ...own };
  }
  if (role === "developer" || role === "system") {
    const lines = typeof content === "string" ? content : list(content).map((part) => part["text"]).join("\n");
    return { type: "message", role: "system", content: lines };
  }
  if (typeof content === "string") return { type: "message", role, content };
  const parts = list(content).map((part) => {
    if (part["type"] !== "input_image") return part;
    const { detail, image_url: image } = part;
    return { type: "input_image", image, ...(detail === undefined ? {} : { detail }) };
  });
  return { type: "message", role, content: parts };
}
