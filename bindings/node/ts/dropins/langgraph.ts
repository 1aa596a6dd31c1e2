/**
 * Checkpoints of LangGraph.js in a store: a drop-in for its savers.
 *
 * ```js
 * import { LoopstoreSaver } from "loopstore/langgraph";
 *
 * const agent = graph.compile({ checkpointer: new LoopstoreSaver(store) });
 * ```
 *
 * `saver.preModelHook()` gives the model of `createReactAgent` the compacted context of its thread, and
 * `createMiddleware(saver.middleware())` that of LangChain's `createAgent`. The state stays whole.
 *
 * A thread is a session. Its state is returned exactly as it was stored. A message of a list is stored once, however
 * many checkpoints contain it, and is searched, counted, shown and compacted as any other message of loopstore; an
 * unchanged value is not written again. A thread that LangGraph for Python wrote is rejected with a
 * `ForeignThreadError`: its values are in an encoding of Python's. Its messages and its search are shared.
 */

import { deflateSync, inflateSync } from "node:zlib";

import { type BaseMessage, isBaseMessage } from "@langchain/core/messages";
import type { RunnableConfig } from "@langchain/core/runnables";
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  type DeltaChannelHistory,
  type PendingWrite,
  type SerializerProtocol,
  TASKS,
  WRITES_IDX_MAP,
  getCheckpointId,
  maxChannelVersion,
} from "@langchain/langgraph-checkpoint";

import {
  type Calls,
  DamagedError,
  InvalidInputError,
  type Json,
  NativeCheckpoints,
  type Policy,
  Store,
  checked,
  decode,
  encode,
} from "#core";

import { Known, Memory, type Pending, type Place, type Remembered, type Segment, type StoredList, pending, stored } from "./_lists.js";
import { isPlain, read, write } from "./_messages.js";
import { INPUT, modelInput, readInput, writeInput } from "./_model_input.js";

/** The size in bytes from which an encoded value is compressed. */
const COMPRESS = 256;

/** The field of metadata that JSON cannot represent. */
const ENCODED = "langgraph.encoded";

/** Options of a saver. */
export interface LoopstoreSaverOptions {
  /** The serializer of values; with a custom one, nothing is stored readable. */
  serde?: SerializerProtocol | undefined;
  /** The effect of `deleteThread`: hide the thread and keep the record, or erase it. */
  onDelete?: "hide" | "erase" | undefined;
}

/** Options of `LoopstoreSaver.preModelHook`. */
export interface PreModelHookOptions {
  /** The policy of the compactions; by default that of the store. */
  policy?: Policy | undefined;
  /** The key of the messages in the state. */
  messagesKey?: string | undefined;
  /** The key of the model's input in the result. */
  inputKey?: string | undefined;
}

/** The part of LangChain's request to a model that the middleware needs. */
interface ModelRequest {
  messages: BaseMessage[];
  runtime: object;
}

/** The configuration of LangChain's `createMiddleware`. */
export interface LoopstoreMiddleware {
  /** The name of the middleware. */
  name: string;
  /** Calls the model with the compacted context. */
  // The request and the result of a handler have types of LangChain, which this module does not import.
  wrapModelCall: (request: any, handler: (request: any) => any) => Promise<any>;
}

interface StoredMessages {
  segment: Segment;
  places: Place[];
  messages: Json[];
}

type StoredValue = { data: unknown } | { list: StoredMessages[] };

interface StoredCheckpoint {
  ns: string;
  id: string;
  parent: string | null;
  checkpoint: unknown;
  versions: ChannelVersions;
  metadata: Json;
  values: Record<string, StoredValue>;
  writes: [task: string, channel: string, value: unknown][];
  session: number;
}

type Answer =
  | { missing: string[] }
  | { stale: string }
  | { session: number; lists: Record<string, StoredList>; notes?: string[] };

/**
 * A saver that keeps LangGraph's checkpoints in a store. Several processes may work on one database, and on one thread.
 */
export class LoopstoreSaver extends BaseCheckpointSaver {
  /** The store. */
  readonly store: Store;
  readonly #native: NativeCheckpoints;
  readonly #calls: Calls;
  readonly #isOpen: boolean;
  readonly #erases: boolean;
  readonly #memory = new Memory();
  /** The channels with the input of a model. */
  readonly #inputs = new Set<string>();
  /** The running calls of each thread: a later checkpoint must find the messages of an earlier one. */
  readonly #underWay = new Map<string, Promise<unknown>>();

  /** Takes an open store, which stays open. */
  constructor(store: Store, options?: LoopstoreSaverOptions) {
    const { serde, onDelete = "hide" } = checked(options, ["serde", "onDelete"], "LoopstoreSaver");
    super(serde);
    if (!(store instanceof Store)) throw new InvalidInputError("LoopstoreSaver takes a Store that is open");
    if (onDelete !== "hide" && onDelete !== "erase") {
      throw new InvalidInputError(`onDelete is \`hide\` or \`erase\`, not ${String(onDelete)}`);
    }
    this.store = store;
    const [native, calls] = Store.native(store);
    this.#native = new NativeCheckpoints(native);
    this.#calls = calls;
    // A custom serializer may encrypt.
    this.#isOpen = serde === undefined;
    this.#erases = onDelete === "erase";
  }

  /**
   * Returns a hook that gives the model the compacted context of its thread, and leaves the state whole: the option
   * `preModelHook` of `createReactAgent`. In a graph of your own a node calls it with its state and config.
   *
   * It compacts the thread's session if the policy requires it. `store.session(threadId)` shows the compaction and can
   * undo it.
   */
  preModelHook<State extends object = object>(
    options?: PreModelHookOptions,
  ): (state: State, config: RunnableConfig) => Promise<Record<string, BaseMessage[]>> {
    const known = ["policy", "messagesKey", "inputKey"] as const;
    const { policy, messagesKey = "messages", inputKey = "llmInputMessages" } = checked(options, known, "preModelHook");
    this.#checkPolicy(policy);
    this.#inputs.add(inputKey);
    return async (state, config) => ({
      [inputKey]: await this.#input(policy, (state as Json)[messagesKey], config),
    });
  }

  /**
   * Returns the middleware that does so for an agent of LangChain:
   * `createAgent({ model, tools, checkpointer: saver, middleware: [createMiddleware(saver.middleware())] })`.
   */
  middleware(options?: { policy?: Policy | undefined }): LoopstoreMiddleware {
    const { policy } = checked(options, ["policy"], "middleware");
    this.#checkPolicy(policy);
    return {
      name: "loopstore",
      wrapModelCall: async (request: ModelRequest, handler: (request: ModelRequest) => unknown) => {
        const messages = await this.#input(policy, request.messages, request.runtime as RunnableConfig);
        return await handler({ ...request, messages });
      },
    };
  }

  /** Fails if a policy cannot be used. */
  #checkPolicy(policy: Policy | undefined): void {
    this.store.session("policy", { policy });
  }

  async #input(policy: Policy | undefined, messages: unknown, config: RunnableConfig): Promise<BaseMessage[]> {
    const settled = async (thread: string) => await this.#underWay.get(thread)?.catch(() => {});
    const decoded = async (form: Json) => (await this.#messages([form]))[0] as BaseMessage;
    return await modelInput({ store: this.store, settled, decode: decoded }, policy, messages, config);
  }

  async #inOrder<T>(thread: string, work: () => Promise<T>): Promise<T> {
    const before = this.#underWay.get(thread) ?? Promise.resolve();
    const done = before.then(work, work);
    this.#underWay.set(thread, done);
    try {
      return await done;
    } finally {
      if (this.#underWay.get(thread) === done) this.#underWay.delete(thread);
    }
  }

  // Values.

  async #encode(value: unknown): Promise<[kind: string, data: string]> {
    const [kind, data] = await this.serde.dumpsTyped(value);
    return [kind, Buffer.from(data).toString("base64")];
  }

  /** Writes a value of a channel; the input of a model refers to the messages of the state. */
  async #writeIn(channel: string, value: unknown): Promise<unknown> {
    if (!this.#isInput(channel, value)) return await this.#write(value);
    return { value: await writeInput(value, (message) => this.#encode(message)) };
  }

  #isInput(channel: string, value: unknown): value is BaseMessage[] {
    return this.#inputs.has(channel) && this.#isList(value);
  }

  /** Returns a value with the messages that a stored input of a model refers to. */
  async #resolved(value: unknown, values: Json): Promise<unknown> {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, INPUT)) return value;
    return await readInput(value as Json, values, async (form) => (await this.#read(form)) as BaseMessage);
  }

  /** Writes a value: as JSON if JSON represents it exactly, else in LangGraph's encoding. */
  async #write(value: unknown): Promise<unknown> {
    const isInput = typeof value === "object" && value !== null && Object.hasOwn(value, INPUT);
    if (this.#isOpen && isPlain(value) && !isInput) return { value };
    const [kind, data] = await this.serde.dumpsTyped(value);
    const bytes = Buffer.from(data);
    if (bytes.length >= COMPRESS) {
      const packed = deflateSync(bytes, { level: 1 });
      if (packed.length < bytes.length) return [kind, packed.toString("base64"), "zlib"];
    }
    return [kind, bytes.toString("base64")];
  }

  async #read(form: unknown): Promise<unknown> {
    if (typeof form === "object" && form !== null && "value" in form) return form.value;
    if (!Array.isArray(form)) throw new DamagedError("a stored value cannot be read: it is in no known form");
    const [kind, text, packing] = form as string[];
    let data = Buffer.from(text ?? "", "base64");
    try {
      if (packing !== undefined) data = inflateSync(data);
    } catch (error) {
      throw new DamagedError(`a stored value cannot be read: ${String(error)}`, { cause: error });
    }
    return await this.serde.loadsTyped(kind ?? "", new Uint8Array(data));
  }

  async #writeMetadata(metadata: object): Promise<Json> {
    const out: Json = {};
    for (const [name, value] of Object.entries(metadata)) {
      if (value === undefined) continue;
      const isOwn = isPlain(value) && !(typeof value === "object" && value !== null && ENCODED in value);
      out[name] = isOwn ? value : { [ENCODED]: await this.#encode(value) };
    }
    return out;
  }

  async #readMetadata(form: unknown): Promise<unknown> {
    return typeof form === "object" && form !== null && ENCODED in form ? await this.#read(form[ENCODED]) : form;
  }

  #isList(value: unknown): value is BaseMessage[] {
    return this.#isOpen && Array.isArray(value) && value.length > 0 && value.every((one) => isBaseMessage(one));
  }

  async #messages(forms: Json[]): Promise<BaseMessage[]> {
    return await Promise.all(
      forms.map(async (form) => {
        const told = read(form);
        if ("raw" in told) return (await this.#read(told.raw)) as BaseMessage;
        return (await this.serde.loadsTyped("json", JSON.stringify(told))) as BaseMessage;
      }),
    );
  }

  async #readValue(value: StoredValue, note?: (remembered: Remembered) => void): Promise<unknown> {
    if (!("list" in value)) return await this.#read(value.data);
    const found: Remembered = { segments: [], known: [] };
    const all: BaseMessage[] = [];
    for (const part of value.list) {
      found.segments.push(part.segment);
      let before: Known | null = null;
      for (const [at, message] of (await this.#messages(part.messages)).entries()) {
        before = new Known(message, part.places[at] ?? ["", 0], before, part.segment.length === 1);
        found.known.push(before);
        all.push(message);
      }
    }
    note?.(found);
    return all;
  }

  // Reading.

  /** Returns a checkpoint with its writes; the newest one if the config names none. */
  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (config.configurable?.["thread_id"] === undefined) return undefined;
    return await this.#get(threadOf(config), nsOf(config), getCheckpointId(config) || undefined);
  }

  async #found(thread: string, ns: string, id: string | undefined): Promise<StoredCheckpoint | null> {
    const json = await this.#calls.run(() => this.#native.get(thread, ns, id));
    return json === null ? null : decode<StoredCheckpoint>(json);
  }

  async #get(thread: string, ns: string, id: string | undefined): Promise<CheckpointTuple | undefined> {
    const found = await this.#found(thread, ns, id);
    if (found === null) return undefined;
    const lists: [string, Remembered][] = [];
    const values: Record<string, unknown> = {};
    for (const [channel, value] of Object.entries(found.values)) {
      put(values, channel, await this.#readValue(value, (list) => lists.push([keyOf(ns, channel), list])));
    }
    for (const [channel, value] of Object.entries(values)) put(values, channel, await this.#resolved(value, values));
    this.#memory.note(thread, found.session, lists);
    const rest = (await this.#read(found.checkpoint)) as object;
    const checkpoint = {
      ...rest,
      id: found.id,
      channel_values: values,
      channel_versions: found.versions,
    } as Checkpoint;
    if (checkpoint.v < 4 && found.parent !== null) await this.#migrate(thread, ns, found.parent, checkpoint);
    const metadata: Json = {};
    for (const [name, value] of Object.entries(found.metadata)) put(metadata, name, await this.#readMetadata(value));
    const pendingWrites: CheckpointPendingWrite[] = [];
    for (const [task, channel, value] of found.writes) {
      pendingWrites.push([task, channel, await this.#resolved(await this.#read(value), values)]);
    }
    return {
      config: configOf(thread, ns, found.id),
      checkpoint,
      metadata: metadata as unknown as CheckpointMetadata,
      pendingWrites,
      ...(found.parent === null ? {} : { parentConfig: configOf(thread, ns, found.parent) }),
    };
  }

  /** Adds the messages of its parent's tasks to a checkpoint of an older version, as newer versions have them. */
  async #migrate(thread: string, ns: string, parent: string, checkpoint: Checkpoint): Promise<void> {
    const writes = (await this.#found(thread, ns, parent))?.writes ?? [];
    const sends: unknown[] = [];
    for (const [, channel, value] of writes) if (channel === TASKS) sends.push(await this.#read(value));
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = sends;
    checkpoint.channel_versions[TASKS] = versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }

  /** Lists checkpoints, the newest first: of a thread, or of all if the config names none. */
  async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    const { before, limit, filter } = options ?? {};
    const query: Json = {
      thread: config.configurable?.["thread_id"],
      ns: config.configurable?.["checkpoint_ns"],
      id: getCheckpointId(config) || undefined,
      before: before && (getCheckpointId(before) || undefined),
      limit: limit === undefined ? undefined : Math.max(limit, 0),
      filter: filter && (await this.#writeMetadata(filter)),
    };
    const json = await this.#calls.run(() => this.#native.list(encode(query)));
    for (const { thread, ns, id } of decode<{ thread: string; ns: string; id: string }[]>(json)) {
      const found = await this.#get(thread, ns, id);
      if (found !== undefined) yield found;
    }
  }

  /** Returns the writes of channels on the way to a checkpoint. */
  override async getDeltaChannelHistory(options: {
    config: RunnableConfig;
    channels: string[];
  }): Promise<Record<string, DeltaChannelHistory>> {
    const { config, channels } = options;
    if (channels.length === 0) return {};
    const [thread, ns, id] = [threadOf(config), nsOf(config), getCheckpointId(config) || undefined];
    const json = await this.#calls.run(() => this.#native.history(thread, ns, id, channels));
    const history: Record<string, DeltaChannelHistory> = {};
    type Told = { seed: StoredValue | null; writes: [string, string, unknown][] };
    for (const [channel, { seed, writes }] of Object.entries(decode<Record<string, Told>>(json))) {
      const entry: DeltaChannelHistory = { writes: [] };
      for (const [task, name, value] of writes) entry.writes.push([task, name, await this.#read(value)]);
      if (seed !== null) entry.seed = await this.#readValue(seed);
      put(history as Json, channel, entry);
    }
    return history;
  }

  // Writing.

  /** Stores a checkpoint. It is durable when the promise is fulfilled. */
  async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const thread = threadOf(config);
    return await this.#inOrder(thread, () => this.#put(thread, config, checkpoint, metadata, newVersions));
  }

  async #put(
    thread: string,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const [ns, parent] = [nsOf(config), getCheckpointId(config) || undefined];
    const { id, channel_values: values, channel_versions: versions, ...rest } = checkpoint;
    let present = Object.keys(values ?? {}).filter((channel) => values[channel] !== undefined);
    let changed = present.filter((channel) => Object.hasOwn(newVersions ?? {}, channel) || !Object.hasOwn(versions, channel));
    const told: Json = {
      ns,
      id,
      parent,
      checkpoint: await this.#write(rest),
      versions,
      metadata: await this.#writeMetadata(metadata ?? {}),
    };
    const messages = new Map<string, BaseMessage[]>();
    for (const channel of present) {
      const value = values[channel];
      if (this.#isList(value) && !this.#isInput(channel, value)) messages.set(channel, value);
    }
    for (;;) {
      const known = await this.#known(thread, ns, parent, changed.filter((channel) => messages.has(channel)));
      const lists: [channel: string, pending: Pending][] = [];
      const written: Json = {};
      for (const channel of changed) {
        const said = messages.get(channel);
        if (said !== undefined) {
          const list = await pending(known, keyOf(ns, channel), said, (one) => write(one, (it) => this.#encode(it)));
          lists.push([channel, list]);
          put(written, channel, { list: list.parts });
        } else {
          put(written, channel, { data: await this.#writeIn(channel, values[channel]) });
        }
      }
      const unchanged = present.filter((channel) => !changed.includes(channel)).sort();
      const session = lists.length > 0 ? known?.session : undefined;
      const json = encode({ ...told, values: written, unchanged, session });
      const answer: Answer = decode(await this.#calls.run(() => this.#native.put(thread, json)));
      if ("missing" in answer) {
        const { missing } = answer;
        // LangGraph states that they are unchanged: since a checkpoint that is not the parent, or that has no parent
        // and is forked; otherwise since none at all, and then there is nothing to read them from.
        if (parent !== undefined || metadata?.source === "fork") changed = [...changed, ...missing];
        else present = present.filter((channel) => !missing.includes(channel));
      } else if ("stale" in answer) {
        this.#memory.forget(thread);
      } else {
        const noted = lists.map(([channel, list]): [string, Remembered] => {
          return [keyOf(ns, channel), stored(list, answer.lists[channel] ?? { segments: [], new: [] })];
        });
        this.#memory.note(thread, answer.session, noted);
        for (const note of answer.notes ?? []) process.emitWarning(note, "LoopstoreWarning");
        return configOf(thread, ns, id);
      }
    }
  }

  /** Returns the known state of a thread; its last state is read if none is known. */
  async #known(thread: string, ns: string, parent: string | undefined, lists: string[]): Promise<ReturnType<Memory["get"]>> {
    const known = this.#memory.get(thread);
    if (lists.length === 0) return known;
    if (parent !== undefined && lists.some((channel) => !known?.lists.has(keyOf(ns, channel)))) {
      await this.#get(thread, ns, parent);
    } else if (known === undefined && ns) {
      // A subgraph begins with messages of its parent graph.
      await this.#get(thread, "", undefined);
    }
    return this.#memory.get(thread);
  }

  /** Stores the writes of a task. They are durable when the promise is fulfilled. */
  async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath = ""): Promise<void> {
    const thread = threadOf(config);
    const id = getCheckpointId(config);
    if (!id) throw new InvalidInputError("putWrites needs the checkpoint_id that the task goes on from");
    const told: unknown[] = [];
    for (const [index, [channel, value]] of writes.entries()) {
      told.push([WRITES_IDX_MAP[channel] ?? index, channel, await this.#writeIn(channel, value)]);
    }
    const json = encode({ ns: nsOf(config), id, task: taskId, path: taskPath, writes: told });
    await this.#inOrder(thread, () => this.#calls.run(() => this.#native.putWrites(thread, json)));
  }

  /** Deletes a thread: see `onDelete`. */
  async deleteThread(threadId: string): Promise<void> {
    await this.#inOrder(threadId, async () => {
      this.#memory.forget(threadId);
      await this.#calls.run(() => this.#native.deleteThread(threadId, this.#erases));
    });
  }
}

const keyOf = (ns: string, channel: string) => JSON.stringify([ns, channel]);

/** Sets a field, whatever its name is. */
function put(object: Json, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, configurable: true, enumerable: true, writable: true });
}

function threadOf(config: RunnableConfig): string {
  const thread: unknown = config?.configurable?.["thread_id"];
  if (typeof thread === "string" || typeof thread === "number") return String(thread);
  throw new InvalidInputError("the config names no thread_id: give one in `configurable`");
}

function nsOf(config: RunnableConfig): string {
  return String(config.configurable?.["checkpoint_ns"] ?? "");
}

function configOf(thread: string, ns: string, id: string): RunnableConfig {
  return { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: id } };
}
