/**
 * The input of a LangGraph model: the messages of the state, read through the compactions of the thread's session.
 *
 * The state is not changed. The session may lag behind it, since LangGraph stores checkpoints in the background:
 * messages of the state after the last stored one are added as they are.
 */

import { AIMessage, type BaseMessage, HumanMessage, ToolMessage, isBaseMessage } from "@langchain/core/messages";
import type { RunnableConfig } from "@langchain/core/runnables";

import { DamagedError, InvalidInputError, type Json, type Policy, type Prepared, type Session, type Store } from "#core";

import { MARK } from "./_messages.js";

/** Messages that a context has. */
const STORED_TYPES = new Set(["human", "ai", "tool", "function"]);

/** Milliseconds of the last of the pauses, each twice as long as the one before, in which a checkpoint is waited for. */
const LAST_PAUSE = 60;

/** Separates the parts of a checkpoint's namespace within a subgraph. */
const SUBGRAPH = "|";

/** The field of a stored input of a model: the ids of the state's own messages, and the other messages. */
export const INPUT = "loopstore.model_input";

/** The work of a saver that its model inputs need. */
export interface InputSource {
  store: Store;
  /** Waits until the running calls of a thread have ended. */
  settled: (thread: string) => Promise<unknown>;
  /** Reads a stored message. */
  decode: (form: Json) => Promise<BaseMessage>;
}

/** Messages that a compaction made or changed: an id stands for every other message of an input. */
export const madeMessages = new WeakSet<BaseMessage>();

/** Returns the messages that a model gets in place of the messages of a state. */
export async function modelInput(
  source: InputSource,
  policy: Policy | undefined,
  messages: unknown,
  config: RunnableConfig,
): Promise<BaseMessage[]> {
  if (!Array.isArray(messages) || !messages.every((one) => isBaseMessage(one))) {
    throw new InvalidInputError("the state has no list of messages under the key of the hook");
  }
  const thread = threadOf(config);
  await source.settled(thread);
  const chat = source.store.session(thread, { policy });
  const last = await lastStored(chat, messages);
  const ready = await chat.prepare({ create: true });
  return await inputOf(source, thread, messages, last, ready);
}

function threadOf(config: RunnableConfig): string {
  const { thread_id: thread, checkpoint_ns: ns } = config?.configurable ?? {};
  if (typeof thread !== "string" && typeof thread !== "number") {
    throw new InvalidInputError(
      "the hook needs a `thread_id`: compile the graph with a LoopstoreSaver, and give a thread in `configurable`",
    );
  }
  if (typeof ns === "string" && ns.includes(SUBGRAPH)) {
    throw new InvalidInputError(
      "the hook is for the model of the outermost graph: the messages of a subgraph are not on the line of the thread's session",
    );
  }
  return String(thread);
}

/**
 * Returns the id of the last stored message; `null` if there is none.
 *
 * A checkpoint that is just being stored is waited for: a context that has all messages fits the window.
 */
async function lastStored(chat: Session, messages: BaseMessage[]): Promise<string | null> {
  const wanted = messages.filter((message) => STORED_TYPES.has(message.getType())).at(-1)?.id;
  for (let pause = 1; ; pause *= 2) {
    const found = await lastId(chat);
    if (wanted === undefined || found === wanted || pause > LAST_PAUSE) return found;
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function lastId(chat: Session): Promise<string | null> {
  if (!(await chat.exists())) return null;
  const [found] = await chat.entries({ roles: ["user", "assistant", "toolResult"], last: 1 });
  return found === undefined ? null : (idOf(found.message) ?? "");
}

function idOf(form: Json): string | undefined {
  const id = ((form[MARK] as Json | undefined)?.["fields"] as Json | undefined)?.["id"];
  return typeof id === "string" ? id : undefined;
}

async function inputOf(
  { decode }: InputSource,
  thread: string,
  messages: BaseMessage[],
  last: string | null,
  ready: Prepared,
): Promise<BaseMessage[]> {
  if (last === null) {
    if (messages.filter((message) => message.getType() === "human").length > 1) {
      warn(`thread ${thread} has no stored messages; the model gets all of the state: does the graph use LoopstoreSaver with this store?`);
    }
    return messages;
  }
  const places = new Map<string, number>();
  for (const [at, { id }] of messages.entries()) if (id !== undefined) places.set(id, at);
  const shown = await Promise.all((ready.messages as Json[]).map((form) => readForm(form, decode)));
  const known = shown.flatMap(({ id }) => (id === undefined ? [] : [places.get(id)]));
  const isOrdered = known.every((at, nth) => at !== undefined && (nth === 0 || at > (known[nth - 1] ?? -1)));
  const end = places.get(last);
  if (end === undefined || !isOrdered) {
    warn(`the stored messages of thread ${thread} are not those of the state, which is being edited; the model gets all of the state`);
    return messages;
  }
  const ids = new Set(shown.map(({ id }) => id));
  const system = messages.slice(0, end + 1).filter((message) => message.getType() === "system");
  const rest = messages.slice(end + 1).filter(({ id }) => id === undefined || !ids.has(id));
  const own = shown.map((message) => {
    const state = message.id === undefined ? undefined : messages[places.get(message.id) ?? -1];
    if (state !== undefined && isSame(message, state)) return state;
    madeMessages.add(message);
    return message;
  });
  return [...system, ...own, ...rest];
}

function isSame(one: BaseMessage, other: BaseMessage): boolean {
  return one.getType() === other.getType() && JSON.stringify(one.content) === JSON.stringify(other.content);
}

function warn(text: string): void {
  process.emitWarning(text, "LoopstoreWarning");
}

/** Returns a message of a context: one of the state, perhaps shortened, or a summary. */
async function readForm(form: Json, decode: InputSource["decode"]): Promise<BaseMessage> {
  if (MARK in form) {
    try {
      return await decode(form);
    } catch (error) {
      // The texts of an edit are not in the form in which the message was written.
      if (!(error instanceof DamagedError)) throw error;
    }
  }
  const blocks = (form["content"] ?? []) as Json[];
  const content = blocks.flatMap(({ type, text }) => (type === "text" ? [text as string] : [])).join("\n");
  const id = idOf(form);
  const fields = { content, ...(id === undefined ? {} : { id }) };
  if (form["role"] === "assistant") {
    const calls = blocks.filter(({ type }) => type === "toolCall");
    return new AIMessage({
      ...fields,
      tool_calls: calls.map((call) => ({
        name: call["name"] as string,
        args: call["arguments"] as Json,
        id: call["id"] as string,
        type: "tool_call",
      })),
    });
  }
  if (form["role"] === "toolResult") {
    const [name, callId] = [form["toolName"], form["toolCallId"]] as (string | undefined)[];
    return new ToolMessage({
      ...fields,
      tool_call_id: callId ?? "",
      status: form["isError"] === true ? "error" : "success",
      ...(name === undefined ? {} : { name }),
    });
  }
  return new HumanMessage(fields);
}

/** Returns the form in which an input of a model is stored: an id stands for each message of the state. */
export async function writeInput(
  messages: BaseMessage[],
  encode: (message: BaseMessage) => Promise<[kind: string, data: string]>,
): Promise<Json> {
  const parts = messages.map(async (message) => {
    return message.id !== undefined && !madeMessages.has(message) ? message.id : await encode(message);
  });
  return { [INPUT]: await Promise.all(parts) };
}

/** Returns a stored input; a message that was removed from the state since is no longer in it. */
export async function readInput(
  form: Json,
  values: Json,
  decode: (encoded: string[]) => Promise<BaseMessage>,
): Promise<BaseMessage[]> {
  const known = new Map<string, BaseMessage>();
  for (const value of Object.values(values)) {
    if (!Array.isArray(value)) continue;
    for (const one of value as unknown[]) if (isBaseMessage(one) && one.id !== undefined) known.set(one.id, one);
  }
  const found = (form[INPUT] as (string | string[])[]).map(async (each) => {
    if (typeof each === "string") return known.get(each);
    const message = await decode(each);
    madeMessages.add(message);
    return message;
  });
  return (await Promise.all(found)).filter((message) => message !== undefined);
}
