/**
 * Chats of the Vercel AI SDK that are kept by loopstore: `UIMessage`s in and out.
 *
 * ```js
 * import { createUIMessageStreamResponse, streamText, convertToModelMessages } from "ai";
 * import { LoopstoreChats } from "loopstore/ai";
 *
 * const chats = new LoopstoreChats(store);
 * const messages = await chats.add(chatId, message);
 * const result = streamText({ model, messages: await convertToModelMessages(messages) });
 * return result.toUIMessageStreamResponse({
 *   originalMessages: messages,
 *   onFinish: ({ messages }) => chats.save(chatId, messages),
 * });
 * ```
 *
 * `LoopstoreSteps` does so for the `ModelMessage`s of an agent, and its `prepareStep` gives the model the compacted
 * context:
 *
 * ```js
 * const steps = new LoopstoreSteps(store, { policy: { window: 200_000 } });
 * const messages = [...(await steps.load("task")), { role: "user", content: prompt }];
 * const result = await generateText({ model, tools, messages, prepareStep: steps.prepareStep("task") });
 * await steps.save("task", [...messages, ...result.response.messages]);
 * ```
 *
 * A message is stored once and returned unchanged. Its content is imported too: its texts, reasoning, tool calls and
 * results are searched, counted, compacted and shown as those of any other message. A message that was saved again
 * with other content, or a list that is shorter than before, makes a branch: the record keeps the earlier messages.
 */

import type { UIMessage } from "ai";

import { InvalidInputError, type Json, Session, Store, checked, encode, whole } from "#core";

import { type Given, type Kept, appendNew, inOrder, saveList } from "./_saved_list.js";

export { LoopstoreSteps, type LoopstoreStepsOptions } from "./_steps.js";

const KIND = "uiMessage";

/** Options of the chats. */
export interface LoopstoreChatsOptions {
  /** The effect of `delete`: hide the chat and keep the record, or erase it. */
  onDelete?: "hide" | "erase" | undefined;
}

/** A message of the line, with its position. */
interface Stored extends Kept {
  message: UIMessage;
}

/** The number of sessions that are checked at once. */
const AT_ONCE = 16;

/** Chats, each a session. Several processes may add to one chat. */
export class LoopstoreChats<Message extends UIMessage = UIMessage> {
  /** The store. */
  readonly store: Store;
  readonly #erases: boolean;

  /** Takes an open store, which stays open. */
  constructor(store: Store, options?: LoopstoreChatsOptions) {
    const { onDelete = "hide" } = checked(options, ["onDelete"], "LoopstoreChats");
    if (!(store instanceof Store)) throw new InvalidInputError("LoopstoreChats takes a Store that is open");
    if (onDelete !== "hide" && onDelete !== "erase") {
      throw new InvalidInputError(`onDelete is \`hide\` or \`erase\`, not ${String(onDelete)}`);
    }
    this.store = store;
    this.#erases = onDelete === "erase";
  }

  /** Returns the messages of a chat; none if there is no such chat. */
  async load(chatId: string): Promise<Message[]> {
    return (await stored(this.store.session(chatId))).map(({ message }) => message as Message);
  }

  /**
   * Appends messages to a chat, and returns all of its messages. A message with the id and content of a stored one is
   * not appended again. One with the id of a stored one and other content replaces it and what follows it, in a branch.
   */
  async add(chatId: string, messages: Message | Message[]): Promise<Message[]> {
    const given = givenList([messages].flat());
    await inOrder(this.store, chatId, async () => {
      const session = this.store.session(chatId);
      const leaf = await session.leaf();
      const before = await stored(session);
      const places = new Map(before.map(({ message }, at) => [message.id, at]));
      const placeOf = (one: GivenMessage) => (one.id === "" ? undefined : places.get(one.id));
      const differing = given.filter((one) => before[placeOf(one) ?? -1]?.digest !== one.digest);
      const changed = Math.min(...differing.map((one) => placeOf(one) ?? before.length), before.length);
      // A branch ends before the first changed message: a given message after that one is part of it, also an equal one.
      const added = given.filter((one) => (placeOf(one) ?? before.length) >= changed);
      if (changed < before.length) await saveList(session, leaf, before, [...before.slice(0, changed).map(again), ...added]);
      else await appendNew(session, leaf, before.length, added);
    });
    return await this.load(chatId);
  }

  /**
   * Makes the content of a chat equal to a list of messages: new messages are appended, each once, also if several
   * calls save the same list at a time. If the list differs from the stored messages, since a message was changed or
   * removed, a branch begins, and the record stays.
   */
  async save(chatId: string, messages: Message[]): Promise<void> {
    if (!Array.isArray(messages)) throw new InvalidInputError(`messages are an array, not ${typeof messages}`);
    const given = givenList(messages);
    await inOrder(this.store, chatId, async () => {
      const session = this.store.session(chatId);
      const leaf = await session.leaf();
      await saveList(session, leaf, await stored(session), given);
    });
  }

  /** Returns the chat as loopstore's handle: for `context`, `compact`, `search`, `report`. */
  session(chatId: string): Session {
    return this.store.session(chatId);
  }

  /** Returns the chats, last active first; other sessions of the store are no chats. */
  async list(): Promise<{ id: string; title: string | null; lastActiveAt: Date | null }[]> {
    const rows = await this.store.sessions();
    const found: typeof rows = [];
    for (let at = 0; at < rows.length; at += AT_ONCE) {
      const some = rows.slice(at, at + AT_ONCE);
      const are = await Promise.all(some.map((row) => this.#isChat(row.session_id)));
      found.push(...some.filter((_, nth) => are[nth]));
    }
    return found.map(({ session_id: id, title, last_active_at: at }) => ({ id, title, lastActiveAt: at ? new Date(at) : null }));
  }

  async #isChat(id: string): Promise<boolean> {
    return (await this.store.session(id).entries({ wholeSession: true, kinds: [KIND], last: 1 })).length > 0;
  }

  /** Deletes a chat. The record stays hidden, unless `onDelete` is `erase`; the id may be used again. */
  async delete(chatId: string): Promise<void> {
    const session = this.store.session(chatId);
    if (!(await session.exists())) return;
    if (this.#erases) await session.erase({ reason: "delete" });
    else await session.hide();
  }
}

interface GivenMessage extends Given {
  id: string;
}

/** Returns messages with their stored forms, each id once. */
function givenList(messages: UIMessage[]): GivenMessage[] {
  const found: GivenMessage[] = [];
  const known = new Map<string, string>();
  for (const message of messages) {
    const digest = textOf(message);
    const id = typeof message.id === "string" ? message.id : "";
    const before = id === "" ? undefined : known.get(id);
    if (before === digest) continue;
    if (before !== undefined) throw new InvalidInputError(`two messages have the id \`${id}\`, and different content`);
    known.set(id, digest);
    found.push({ id, digest, forms: forms(JSON.parse(digest) as UIMessage) });
  }
  return found;
}

/** Returns a stored message as one that is given again: it is not appended. */
function again({ digest }: Stored): Given {
  return { digest, forms: [] };
}

function textOf(message: unknown): string {
  if (typeof message !== "object" || message === null || !Array.isArray((message as UIMessage).parts)) {
    throw new InvalidInputError("a message is a UIMessage: an object with an id, a role and parts");
  }
  return whole(encode(message));
}

/** Returns the stored form of a message: the message itself, and its content. */
function forms(message: UIMessage): Json[] {
  const itself = { role: "extension", kind: KIND, data: message };
  if (message.role === "user") {
    const content = message.parts.flatMap(userPart);
    return content.length > 0 ? [{ role: "user", content }, itself] : [itself];
  }
  return message.role === "assistant" ? [...assistantForms(message), itself] : [itself];
}

function userPart(part: UIMessage["parts"][number]): Json[] {
  if (part.type === "text") return [{ type: "text", text: part.text }];
  if (part.type !== "file") return [];
  const [, mimeType, base64] = /^data:([\w.+-]+\/[\w.+-]+);base64,([A-Za-z0-9+/]+=*)$/.exec(part.url) ?? [];
  const isImage = mimeType?.startsWith("image/") && base64 !== undefined;
  if (isImage) return [{ type: "image", data: base64, mimeType }];
  return [{ type: "text", text: `[file ${part.filename ?? part.mediaType}]` }];
}

/** Returns the model calls of a message, each with the results of its tools. */
function assistantForms(message: UIMessage): Json[] {
  const out: Json[] = [];
  let content: Json[] = [];
  let results: Json[] = [];
  const close = () => {
    if (content.length > 0) out.push({ role: "assistant", content }, ...results);
    [content, results] = [[], []];
  };
  for (const part of message.parts) {
    if (part.type === "step-start") close();
    else if (part.type === "text") content.push({ type: "text", text: part.text });
    else if (part.type === "reasoning") content.push({ type: "thinking", thinking: part.text });
    else if ("toolCallId" in part) {
      const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
      const { toolCallId: id, input = {}, state } = part;
      content.push({ type: "toolCall", id, name, arguments: input });
      const isError = state === "output-error";
      if (isError || state === "output-available") {
        const output = isError ? part.errorText : part.output;
        const text = typeof output === "string" ? output : (JSON.stringify(output) ?? "");
        results.push({ role: "toolResult", toolCallId: id, toolName: name, content: [{ type: "text", text }], isError });
      }
    }
  }
  close();
  return out;
}

async function stored(session: Session): Promise<Stored[]> {
  const found = await session.entries({ kinds: [KIND] });
  return found.map(({ loop_id: loopId, turn, seq, message }) => {
    const own = message["data"] as UIMessage;
    return { message: own, digest: JSON.stringify(own), loopId, turn, seq };
  });
}
