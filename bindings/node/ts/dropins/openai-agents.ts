/**
 * A session of the OpenAI Agents SDK that is kept by loopstore.
 *
 * ```js
 * import { Agent, run } from "@openai/agents";
 * import { LoopstoreSession } from "loopstore/openai-agents";
 *
 * const session = new LoopstoreSession("user-17", { store });
 * await run(agent, "Will it rain?", { session });
 * ```
 *
 * The items that the SDK adds are stored once and never changed. `getItems` returns the context: each item as it was
 * added, with summaries in place of compacted ones. `popItem` and `clearSession` begin a branch, and the record
 * stays. The same session can be searched, shown and exported with `loopstore`.
 */

import { createHash, randomUUID } from "node:crypto";

import type {
  AgentInputItem,
  OpenAIResponsesCompactionArgs,
  OpenAIResponsesCompactionAwareSession,
  SessionHistoryRewriteArgs,
  SessionHistoryRewriteAwareSession,
  SessionHistoryTransactionArgs,
  SessionHistoryTransactionAwareSession,
} from "@openai/agents";

import {
  type Calls,
  InvalidInputError,
  type NativeSession,
  type Policy,
  Session,
  Store,
  checked,
  encode,
} from "#core";

import { ofResponses, reviver, shown, written } from "./_items.js";

/** Options of a session. */
export interface LoopstoreSessionOptions {
  /** An open store, which stays open. */
  store: Store;
  /** The policy of loopstore's compactions; by default at 90 % of a window of 128,000 tokens. */
  policy?: Policy | undefined;
  /** The effect of `clearSession`: begin again and keep the record, or erase it. */
  onDelete?: "keep" | "erase" | undefined;
}

/**
 * The `Session` of the OpenAI Agents SDK, also its compaction-aware one, with its transactions.
 *
 * Several objects of one session id, in any number of processes, are the same session.
 */
export class LoopstoreSession
  implements
    OpenAIResponsesCompactionAwareSession,
    SessionHistoryRewriteAwareSession,
    SessionHistoryTransactionAwareSession
{
  /** The session's id. */
  readonly sessionId: string;
  readonly #store: Store;
  readonly #policy: Policy;
  readonly #erases: boolean;

  constructor(sessionId: string, options: LoopstoreSessionOptions) {
    const { store, policy, onDelete = "keep" } = checked(options, ["store", "policy", "onDelete"], "LoopstoreSession");
    if (!(store instanceof Store)) throw new InvalidInputError("the option `store` is a Store that is open");
    if (onDelete !== "keep" && onDelete !== "erase") {
      throw new InvalidInputError(`onDelete is \`keep\` or \`erase\`, not ${String(onDelete)}`);
    }
    this.sessionId = sessionId;
    this.#store = store;
    // The provider's own compactions apply to it: the SDK calls no other provider in this mode.
    this.#policy = { provider: "openai", ...policy };
    this.#erases = onDelete === "erase";
    // An invalid id fails here.
    void this.session;
  }

  /** The session as loopstore's handle, for functions that the SDK does not have: `search`, `undo`, `report`. */
  get session(): Session {
    // A handle stays on its line; another program may have moved the current loop.
    return this.#store.session(this.sessionId, { policy: this.#policy });
  }

  #native(): [NativeSession, Calls] {
    return Session.native(this.session);
  }

  /** Returns the session's id. */
  async getSessionId(): Promise<string> {
    return this.sessionId;
  }

  /**
   * Returns the items of the context, oldest first; with `limit` only this number from the end, and none from 0 down.
   */
  async getItems(limit?: number): Promise<AgentInputItem[]> {
    if (limit !== undefined && limit <= 0) return [];
    const [session, calls] = this.#native();
    const items = await calls.run(() => session.items(limit));
    return ofResponses(JSON.parse(items, reviver) as unknown[]);
  }

  /** Appends items: all of them or, with an error, none. They are durable when the promise is fulfilled. */
  async addItems(items: AgentInputItem[]): Promise<void> {
    const [session, calls] = this.#native();
    const given = pairs(items);
    await calls.run(async () => {
      if (items.length > 0) await session.appendItems(given);
    });
  }

  /** Removes the last item and returns it. The record keeps it. */
  async popItem(): Promise<AgentInputItem | undefined> {
    const [session, calls] = this.#native();
    const item = await calls.run(() => session.popItem());
    if (item === null) return undefined;
    return ofResponses([JSON.parse(item, reviver)])[0];
  }

  /** Begins again without items. The record stays, unless `onDelete` is `erase`. */
  async clearSession(): Promise<void> {
    const { session } = this;
    if (!(await session.exists())) return;
    if (this.#erases) {
      await session.erase({ reason: "clearSession" });
      return;
    }
    const age = await this.#age(session);
    const hasOperations = (await session.appendKeys(operations(age), { limit: 1 })).length > 0;
    await session.beginLoop({ fresh: true });
    if (hasOperations) await this.session.appendOnce(`${CLEARED}${String(age + 1).padStart(12, "0")}`, FORGOTTEN);
  }

  /** Returns the number of clears since an operation: an operation from before a clear may be made again. */
  async #age(session: Session): Promise<number> {
    const [last] = await session.appendKeys(CLEARED, { descending: true, limit: 1 });
    return last === undefined ? 0 : Number(last.key.slice(CLEARED.length));
  }

  /**
   * Makes a change of the history once: the same operation again does nothing, and an operation with the same id and
   * another change is rejected. All of it is made, or nothing.
   */
  async applyHistoryTransaction({ operationId, transaction }: SessionHistoryTransactionArgs): Promise<void> {
    if (typeof operationId !== "string" || !operationId.trim()) {
      throw new InvalidInputError("a transaction has an operationId: a text that is not empty");
    }
    if (typeof transaction !== "object" || transaction === null) {
      throw new InvalidInputError(`a transaction is an object, not ${transaction === null ? "null" : typeof transaction}`);
    }
    const [session, calls] = this.#native();
    const digest = sha256(canonical(JSON.parse(written(transaction))));
    const name = Buffer.byteLength(operationId) <= 400 ? operationId : sha256(operationId);
    const key = `${operations(await this.#age(this.session))}${name}`;
    if (transaction.type === "append_items") {
      const given = pairs(transaction.items);
      await calls.run(() => session.changeItems(key, digest, undefined, given));
    } else if (transaction.type === "replace_suffix") {
      const given = pairs(transaction.replacement);
      const expected = written(transaction.expectedSuffix);
      await calls.run(() => session.changeItems(key, digest, expected, given));
    } else {
      const type: unknown = Reflect.get(transaction, "type");
      throw new InvalidInputError(`unknown transaction \`${String(type)}\`; known are append_items, replace_suffix`);
    }
  }

  /**
   * Replaces calls by others, as the SDK requests when an approval changed them. Everything from the first of them on
   * is appended again on a branch; the record keeps the original calls.
   */
  async applyHistoryMutations({ mutations }: SessionHistoryRewriteArgs): Promise<void> {
    const items = await this.getItems();
    const changed = mutations.reduce(mutated, items);
    const first = items.findIndex((item, at) => item !== changed[at]);
    if (first < 0) return;
    const [session, calls] = this.#native();
    const [expected, given] = [written(items.slice(first)), pairs(changed.slice(first))];
    await calls.run(() => session.changeItems(`mutation/${randomUUID()}`, sha256(given), expected, given));
  }

  /**
   * Replaces all items by the provider's own compaction and the items that it retained: an overlay, which
   * `session.undo()` undoes.
   */
  async replaceHistoryWithCompaction(items: AgentInputItem[]): Promise<void> {
    const [session, calls] = this.#native();
    const given = pairs(items);
    await calls.run(async () => {
      if (!(await session.sealItems(given))) await session.appendItems(given);
    });
  }

  /** Compacts the session if the policy requires it: as an overlay, which `session.undo()` undoes. */
  async runCompaction(args?: OpenAIResponsesCompactionArgs): Promise<null> {
    const { session } = this;
    if ((await session.leaf()) !== null) await session.compact({ force: args?.force ?? false });
    return null;
  }
}

const CLEARED = "cleared/";
const FORGOTTEN = { role: "extension", kind: "items.cleared", data: null } as const;

/** Returns the prefix of the keys of operations, by the number of clears. */
const operations = (age: number) => (age === 0 ? "operation/" : `operation-${age}/`);

/** Makes one change of a list; items that stay are the same objects. */
function mutated(items: AgentInputItem[], mutation: SessionHistoryRewriteArgs["mutations"][number]): AgentInputItem[] {
  const { type, callId, replacement } = mutation;
  if (type !== "replace_function_call") {
    throw new InvalidInputError(`unknown mutation \`${String(type)}\`; known is replace_function_call`);
  }
  const isMeant = (item: AgentInputItem) => item.type === "function_call" && item.callId === callId;
  const first = items.findIndex(isMeant);
  return items.flatMap((item, at) => (at === first ? [replacement] : isMeant(item) ? [] : [item]));
}

/** Writes items, each with the equivalent item of the Responses API. */
function pairs(items: AgentInputItem[]): string {
  if (!Array.isArray(items)) throw new InvalidInputError(`items are an array, not ${typeof items}`);
  const given = items.map((item) => {
    if (typeof item !== "object" || item === null) throw new InvalidInputError(`an item is an object, not ${typeof item}`);
    const text = written(item);
    const same = shown(JSON.parse(text));
    return `[${text},${same === null ? "null" : encode(same)}]`;
  });
  return `[${given.join(",")}]`;
}

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Writes JSON in which the order of names does not matter. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => {
    if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)));
  });
}
