/**
 * Conversion of LangChain's messages to loopstore's, and back without loss.
 *
 * A message is stored so that it is searched, counted and shown as any other: its text, calls and results are in the
 * fields of loopstore's messages. Its other fields are in the field `langgraph`. A message that JSON cannot
 * represent is also stored in LangGraph's own encoding.
 */

import type { BaseMessage } from "@langchain/core/messages";

import { DamagedError, type Json } from "#core";

/** The field of a message, or the type of a block, with data that only LangChain uses. */
export const MARK = "langgraph";

const MODULE = ["langchain_core", "messages"];

const DEFAULT_CLASS: Record<string, string> = {
  user: "HumanMessage",
  assistant: "AIMessage",
  toolResult: "ToolMessage",
  extension: "SystemMessage",
};

const KNOWN = new Set([
  ...Object.values(DEFAULT_CLASS),
  "AIMessageChunk",
  "ChatMessage",
  "FunctionMessage",
  "HumanMessageChunk",
  "RemoveMessage",
  "SystemMessageChunk",
  "ToolMessageChunk",
]);

const DEFAULTS: Record<string, string> = {
  additional_kwargs: "{}",
  response_metadata: "{}",
  tool_calls: "[]",
  invalid_tool_calls: "[]",
};

const STOP_REASONS: Record<string, string> = {
  stop: "stop",
  end_turn: "stop",
  stop_sequence: "stop",
  STOP: "stop",
  length: "length",
  max_tokens: "length",
  MAX_TOKENS: "length",
  tool_calls: "toolUse",
  tool_use: "toolUse",
  function_call: "toolUse",
};

/** The form in which LangChain writes a message. */
interface Serialized {
  lc: number;
  type: string;
  id: string[];
  kwargs: Json;
}

interface Kept {
  class?: string;
  list?: 1;
  fields?: Json;
  raw?: [kind: string, data: string];
}

/** Writes any value as a text with its kind. */
export type Encode = (value: unknown) => Promise<[kind: string, data: string]>;

/** Returns true if JSON represents a value exactly; `undefined` in an object is lost either way. */
export function isPlain(value: unknown, depth = 0): boolean {
  switch (typeof value) {
    case "string":
      return !/\p{Surrogate}/u.test(value);
    case "boolean":
      return true;
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0);
    case "object":
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (depth >= 48 || typeof (value as { toJSON?: unknown }).toJSON === "function") return false;
  if (Array.isArray(value)) return value.every((inner) => isPlain(inner, depth + 1)) && Object.keys(value).length === value.length;
  const kind = Object.getPrototypeOf(value) as unknown;
  if (kind !== Object.prototype && kind !== null) return false;
  return Object.entries(value).every(([name, inner]) => isPlain(name) && isPlain(inner, depth + 1));
}

/** Writes a message in loopstore's form. */
export async function write(message: BaseMessage, encode: Encode): Promise<Json> {
  const told = message.toJSON() as unknown as Serialized;
  const name = told.id?.at(-1) ?? "";
  const kwargs = defined(told.kwargs);
  const isKnown =
    told.type === "constructor" && told.id.slice(0, -1).join() === MODULE.join() && KNOWN.has(name) && isPlain(kwargs);
  const kept: Kept = isKnown ? {} : { raw: await encode(message) };
  const fields: Json = isKnown ? { ...kwargs } : {};
  const form = formOf(message, isKnown ? kwargs : {}, fields, kept);
  if (isKnown) {
    if (name !== DEFAULT_CLASS[form["role"] as string]) kept.class = name;
    for (const [field, value] of Object.entries(DEFAULTS)) {
      if (field in fields && JSON.stringify(fields[field]) === value) fields[field] = 0;
    }
    if (Object.keys(fields).length > 0) kept.fields = fields;
  }
  if (form["role"] === "extension") (form["data"] as Json)[MARK] = kept;
  else form[MARK] = kept;
  return form;
}

/** Returns an object without its undefined fields. */
function defined(value: Json): Json {
  return Object.fromEntries(
    Object.entries(value ?? {})
      .filter(([, inner]) => inner !== undefined)
      .map(([name, inner]) => [name, withoutUndefined(inner)]),
  );
}

function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  const isObject = typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
  return isObject && !("toJSON" in value) ? defined(value as Json) : value;
}

function formOf(message: BaseMessage, kwargs: Json, fields: Json, kept: Kept): Json {
  const type = message.getType();
  const content = blocks(kwargs["content"] ?? message.content, kept);
  delete fields["content"];
  if (type === "human") return { role: "user", content };
  if (type === "ai") return assistant(message, content, fields);
  if (type === "tool" || type === "function") {
    const { tool_call_id: callId, status, name } = message as unknown as Record<string, unknown>;
    delete fields["tool_call_id"];
    const form: Json = { role: "toolResult", toolCallId: clean(callId), content };
    if (typeof name === "string" && name) form["toolName"] = clean(name);
    if (status === "error") form["isError"] = true;
    return form;
  }
  return { role: "extension", kind: "system", data: { content } };
}

function assistant(message: BaseMessage, content: Json[], fields: Json): Json {
  const calls = fields["tool_calls"];
  if (Array.isArray(calls) && calls.length > 0 && calls.every(isCall)) {
    for (const { id, name, args } of calls as Json[]) content.push({ type: "toolCall", id, name, arguments: args });
    delete fields["tool_calls"];
  }
  const form: Json = { role: "assistant", content };
  const told = (message.response_metadata ?? {}) as Json;
  const model = told["model_name"] ?? told["model"];
  if (typeof model === "string") form["model"] = clean(model);
  const reason = told["finish_reason"] ?? told["stop_reason"];
  if (typeof reason === "string") form["stopReason"] = STOP_REASONS[reason] ?? clean(reason);
  const { input_tokens: input, output_tokens: output, total_tokens } = (fields["usage_metadata"] ?? {}) as Json;
  if ([input, output, total_tokens].every((count) => Number.isSafeInteger(count) && (count as number) >= 0)) {
    form["usage"] = { input, output, total_tokens };
  }
  return form;
}

/** Returns true if a call has the usual form, so that its block is complete. */
function isCall(call: unknown): boolean {
  const { id, name, args, type, ...rest } = (call ?? {}) as Json;
  const isNamed = typeof id === "string" && typeof name === "string" && type === "tool_call";
  return isNamed && typeof args === "object" && args !== null && Object.keys(rest).length === 0;
}

const clean = (text: unknown) => (typeof text === "string" ? text.replace(/\p{Surrogate}/gu, "\ufffd") : "");

function blocks(content: unknown, kept: Kept): Json[] {
  const text = (said: string): Json => ({ type: "text", text: clean(said) });
  if (typeof content === "string") return content ? [text(content)] : [];
  if (!Array.isArray(content)) return [];
  if (kept.raw !== undefined) {
    return content.flatMap((item: Json) => (typeof item?.["text"] === "string" ? [text(item["text"])] : []));
  }
  kept.list = 1;
  return content.map((item: Json) => {
    const isText = item?.["type"] === "text" && typeof item["text"] === "string" && Object.keys(item).length === 2;
    return isText ? item : { type: MARK, item };
  });
}

/** Returns the form from which LangChain reads a message, or the encoding in which the message was stored. */
export function read(stored: Json): Serialized | { raw: [kind: string, data: string] } {
  try {
    const form = stored["kind"] === "langgraph.message" ? (stored["data"] as Json) : stored;
    const role = form["role"] as string;
    const source = role === "extension" ? (form["data"] as Json) : form;
    const kept = source[MARK] as Kept;
    if (kept.raw !== undefined) return { raw: kept.raw };
    const name = kept.class ?? DEFAULT_CLASS[role] ?? "";
    const kwargs: Json = { ...kept.fields };
    for (const [field, value] of Object.entries(DEFAULTS)) if (kwargs[field] === 0) kwargs[field] = JSON.parse(value);
    const said = (source["content"] ?? []) as Json[];
    if (role === "assistant" && !("tool_calls" in kwargs)) {
      const calls = said.filter(({ type }) => type === "toolCall");
      const call = ({ id, name: called, arguments: args }: Json) => ({ name: called, args, id, type: "tool_call" });
      if (calls.length > 0) kwargs["tool_calls"] = calls.map(call);
    }
    if (role === "toolResult" && name.startsWith("ToolMessage")) kwargs["tool_call_id"] = form["toolCallId"];
    if (name !== "RemoveMessage") kwargs["content"] = unblocked(said, kept);
    return { lc: 1, type: "constructor", id: [...MODULE, name], kwargs };
  } catch (error) {
    throw new DamagedError(`a stored message cannot be read: ${String(error)}`, { cause: error });
  }
}

function unblocked(said: Json[], kept: Kept): unknown {
  if (kept.list === undefined) return said.find(({ type }) => type === "text")?.["text"] ?? "";
  return said.flatMap((block) => (block["type"] === "toolCall" ? [] : [block["type"] === MARK ? block["item"] : block]));
}
