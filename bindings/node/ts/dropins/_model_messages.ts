/** Conversion of the Vercel AI SDK's `ModelMessage`s to loopstore's messages, and back. */

import type { AssistantContent, AssistantModelMessage, ModelMessage, ToolModelMessage, ToolResultPart } from "ai";

import { InvalidInputError, type Json, encode, whole } from "#core";

import { type Given, digestOf } from "./_saved_list.js";

/** The field of a stored message with data that only the SDK uses, and the kind of a message without another form. */
export const MARK = "modelMessage";

/** The mark of a stored message. */
export interface Mark {
  /** The digest of the message, of which a tool message has a form for each result. */
  digest: string;
  /** The message itself, if its forms do not represent it exactly. */
  raw?: ModelMessage;
  /** True if the content is a text and not a list. */
  isText?: true;
  /** The type of the output of a tool. */
  output?: "json" | "error-json";
}

/** Returns the stored form of a message. Binary data becomes Base64. */
export function formsOf(message: ModelMessage): Given {
  if (typeof message !== "object" || message === null || !("role" in message) || !("content" in message)) {
    throw new InvalidInputError("a message is a ModelMessage: an object with a role and content");
  }
  const plain = plainOf(message) as ModelMessage;
  const text = whole(encode(plain));
  const digest = digestOf(text);
  const own = JSON.parse(text) as ModelMessage;
  const forms = contentForms(own);
  if (forms.length === 0) return { digest, forms: [{ role: "extension", kind: MARK, data: { digest, raw: own } }] };
  for (const [at, form] of forms.entries()) form[MARK] = { ...(form[MARK] as object), ...(at === 0 ? { digest } : { digest: "" }) };
  const isExact = canonical(messageOf(forms)) === canonical(own);
  if (!isExact) forms[0] = { ...forms[0], [MARK]: { digest, raw: own } };
  return { digest, forms };
}

/** Writes JSON in which the order of names does not matter. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => {
    if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)));
  });
}

/** Replaces binary data and URLs by texts, which JSON would lose. */
function plainOf(value: unknown): unknown {
  if (value instanceof URL) return value.href;
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString("base64");
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(plainOf);
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plainOf(inner)]));
}

function contentForms(message: ModelMessage): Json[] {
  const text = typeof message.content === "string" ? [{ type: "text", text: message.content }] : undefined;
  const mark = text === undefined ? {} : { isText: true };
  switch (message.role) {
    case "user": {
      const blocks = text ?? (message.content as unknown as ({ type: string } & Json)[]).flatMap(userBlock);
      return [{ role: "user", content: blocks, [MARK]: mark }];
    }
    case "assistant": {
      const blocks = text ?? assistantBlocks(message.content as Exclude<AssistantContent, string>);
      return [{ role: "assistant", content: blocks, [MARK]: mark }];
    }
    case "tool":
      return message.content.flatMap((part) => (part.type === "tool-result" ? [resultForm(part)] : []));
    default:
      return [];
  }
}

function userBlock(part: { type: string } & Json): Json[] {
  if (part.type === "text") return [{ type: "text", text: part["text"] }];
  const data = (part["image"] ?? part["data"]) as unknown;
  const mimeType = (part["mediaType"] ?? (part.type === "image" ? "image/png" : "")) as string;
  const isData = typeof data === "string" && /^[A-Za-z0-9+/]+=*$/.test(data);
  if (isData && mimeType.startsWith("image/")) return [{ type: "image", data, mimeType }];
  return [{ type: "text", text: `[file ${String(part["filename"] ?? mimeType ?? part.type)}]` }];
}

function assistantBlocks(content: Exclude<AssistantContent, string>): Json[] {
  return content.flatMap((part): Json[] => {
    if (part.type === "text") return [{ type: "text", text: part.text }];
    if (part.type === "reasoning") return [{ type: "thinking", thinking: part.text }];
    if (part.type !== "tool-call") return [];
    const { toolCallId: id, toolName: name, input } = part;
    const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
    return [{ type: "toolCall", id, name, arguments: isObject ? input : { input } }];
  });
}

function resultForm({ toolCallId, toolName, output }: ToolResultPart): Json {
  const form = (text: string, isError: boolean, mark: object): Json => {
    return { role: "toolResult", toolCallId, toolName, content: [{ type: "text", text }], isError, [MARK]: mark };
  };
  switch (output.type) {
    case "text":
      return form(output.value, false, {});
    case "error-text":
      return form(output.value, true, {});
    case "json":
    case "error-json":
      return form(JSON.stringify(output.value), output.type === "error-json", { output: output.type });
    case "execution-denied":
      return form(output.reason ?? "The execution was denied.", true, {});
    default: {
      const texts = output.value.flatMap((part) => (part.type === "text" ? [part.text] : []));
      return form(texts.join("\n"), false, {});
    }
  }
}

/** Returns the mark of a stored message; `undefined` if it is no part of a `ModelMessage`. */
export function markOf(form: Json): Mark | undefined {
  if (form["role"] === "extension") return form["kind"] === MARK ? (form["data"] as Mark) : undefined;
  return form[MARK] as Mark | undefined;
}

/** Returns the message of forms that belong together, as they are, whether or not a compaction changed them. */
export function messageOf(forms: readonly Json[]): ModelMessage {
  const [first = {}] = forms;
  const blocks = (first["content"] ?? []) as Json[];
  if (first["role"] === "toolResult") {
    const content = forms.map(resultOf);
    return { role: "tool", content } satisfies ToolModelMessage;
  }
  const isText = markOf(first)?.isText === true && blocks.every(({ type }) => type === "text");
  if (first["role"] === "assistant") {
    return { role: "assistant", content: isText ? textOf(blocks) : (blocks.flatMap(assistantPart) as never) } satisfies AssistantModelMessage;
  }
  if (isText) return { role: "user", content: textOf(blocks) };
  return { role: "user", content: blocks.flatMap(userPart) as never };
}

/** Returns a changed message with the parts of the original that no form has: files, and approvals of tools. */
export function withOtherParts(changed: ModelMessage, original: ModelMessage): ModelMessage {
  const [content, parts] = [changed.content, original.content];
  if (!Array.isArray(content) || !Array.isArray(parts) || changed.role !== original.role) return changed;
  const others =
    original.role === "assistant"
      ? (parts as Exclude<AssistantContent, string>).filter((part) => assistantBlocks([part]).length === 0)
      : (parts as { type: string }[]).filter(({ type }) => original.role === "tool" && type !== "tool-result");
  return others.length === 0 ? changed : ({ ...changed, content: [...content, ...others] } as ModelMessage);
}

function textOf(blocks: readonly Json[]): string {
  return blocks.map(({ text }) => text as string).join("\n");
}

function userPart({ type, text, data, mimeType }: Json): object[] {
  if (type === "image") return [{ type: "image", image: data, mediaType: mimeType }];
  return type === "text" ? [{ type: "text", text }] : [];
}

function assistantPart(block: Json): object[] {
  if (block["type"] === "text") return [{ type: "text", text: block["text"] }];
  if (block["type"] === "thinking") return [{ type: "reasoning", text: block["thinking"] }];
  if (block["type"] !== "toolCall") return [];
  return [{ type: "tool-call", toolCallId: block["id"], toolName: block["name"], input: block["arguments"] }];
}

function resultOf(form: Json): ToolResultPart {
  const text = textOf(((form["content"] ?? []) as Json[]).filter(({ type }) => type === "text"));
  const kind = markOf(form)?.output;
  const [toolCallId, toolName] = [form["toolCallId"] as string, form["toolName"] as string];
  const parsed = kind === undefined ? undefined : parsedOf(text);
  if (kind !== undefined && parsed !== undefined) {
    return { type: "tool-result", toolCallId, toolName, output: { type: kind, value: parsed as never } };
  }
  const type = form["isError"] === true ? "error-text" : "text";
  return { type: "tool-result", toolCallId, toolName, output: { type, value: text } };
}

/** Returns a value from JSON, which a compaction may have shortened. */
function parsedOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
