/**
 * A cache of the message lists that a saver stored and read.
 *
 * A list nearly always grows at its end. So a list is compared with the one before it, and only the new messages are
 * written, whatever the length. Messages are compared by their fields and not only by identity: a message that was
 * changed in place is another message.
 */

import type { BaseMessage } from "@langchain/core/messages";

import type { Json } from "#core";

/** A message of a session: its loop and its sequence there. */
export type Place = [loopId: string, seq: number];

/** A part of a list: one message, or the messages from one to another. */
export type Segment = [Place] | [Place, Place];

const OWN = new Set(["lc_kwargs", "lc_namespace", "lc_serializable"]);

/** A message that is stored. */
export class Known {
  readonly #kind: unknown;
  readonly #names: string[] = [];
  readonly #values: unknown[] = [];

  constructor(
    readonly message: BaseMessage,
    readonly place: Place,
    readonly before: Known | null,
    readonly isSingle: boolean,
  ) {
    this.#kind = message.constructor;
    for (const [name, value] of Object.entries(message)) {
      if (value === undefined || OWN.has(name)) continue;
      this.#names.push(name);
      this.#values.push(snapshot(value));
    }
  }

  /** Returns true if a message has the same content. It is called for each message of a list at each checkpoint. */
  isSame(message: BaseMessage): boolean {
    if (this.#kind !== message.constructor) return false;
    const fields = message as unknown as Json;
    const [names, values] = [this.#names, this.#values];
    for (let at = 0; at < names.length; at++) {
      if (!equal(values[at], fields[names[at] as string])) return false;
    }
    let count = 0;
    for (const name of Object.keys(fields)) if (fields[name] !== undefined && !OWN.has(name)) count++;
    return count === names.length;
  }

  /** Returns true if the message is directly after another one on a line. */
  follows(other: Known | null): boolean {
    return other !== null && this.before !== null && equal(this.before.place, other.place);
  }
}

function snapshot(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snapshot);
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, snapshot(inner)]));
}

function equal(one: unknown, other: unknown): boolean {
  if (typeof one === "string") return one === other;
  if (Object.is(one, other)) return typeof one !== "object" || one === null || !isMutable(one);
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one)) {
    return Array.isArray(other) && one.length === other.length && one.every((inner, at) => equal(inner, other[at]));
  }
  if (Object.getPrototypeOf(one) !== Object.prototype || Object.getPrototypeOf(other) !== Object.prototype) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => name in other && equal((one as Json)[name], (other as Json)[name]))
  );
}

/** Returns true if a value is kept without a copy, and may have been changed since. */
function isMutable(value: object): boolean {
  return !Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype;
}

/** A list as it was last stored or read. */
export interface Remembered {
  segments: Segment[];
  known: Known[];
}

/** The known lists and messages of a thread. */
export class Thread {
  readonly lists = new Map<string, Remembered>();
  readonly byId = new Map<string, Known>();

  constructor(readonly session: number) {}

  /** Remembers a list of a namespace and channel. */
  note(key: string, remembered: Remembered): void {
    const last = this.lists.get(key)?.known ?? [];
    this.lists.set(key, remembered);
    // Of a list that continues the last one, only the end is new.
    const goesOn = last.length > 0 && remembered.known[last.length - 1] === last.at(-1);
    for (const known of goesOn ? remembered.known.slice(last.length) : remembered.known) {
      if (typeof known.message.id === "string") this.byId.set(known.message.id, known);
    }
  }

  /** Returns the position at which a message is stored; `null` if it is not stored. */
  find(message: BaseMessage): Known | null {
    const known = typeof message.id === "string" ? this.byId.get(message.id) : undefined;
    return known?.isSame(message) ? known : null;
  }
}

/** The threads that were used last. */
export class Memory {
  readonly #threads = new Map<string, Thread>();

  /** Returns the known lists of a thread. */
  get(name: string): Thread | undefined {
    const thread = this.#threads.get(name);
    if (thread !== undefined) {
      this.#threads.delete(name);
      this.#threads.set(name, thread);
    }
    return thread;
  }

  /** Remembers lists of a thread. */
  note(name: string, session: number, lists: Iterable<[key: string, remembered: Remembered]>): void {
    let thread = this.get(name);
    if (thread?.session !== session) {
      thread = new Thread(session);
      this.#threads.set(name, thread);
    }
    for (const [key, remembered] of lists) thread.note(key, remembered);
    // Namespaces of subgraphs are temporary.
    if (thread.lists.size > 64 || thread.byId.size > 200_000) this.#threads.delete(name);
    for (const oldest of this.#threads.keys()) {
      if (this.#threads.size <= 128) break;
      this.#threads.delete(oldest);
    }
  }

  /** Forgets a thread. */
  forget(name: string): void {
    this.#threads.delete(name);
  }
}

/** A part of a list that is being stored: its stored messages, and the new messages after them. */
export interface Part {
  kept?: Segment[];
  new?: Json[];
}

/** A list that is being stored. */
export interface Pending {
  parts: Part[];
  found: { message: BaseMessage; known: Known | null }[];
  base: Remembered | null;
}

/** Finds the stored messages of a list, and writes the others. */
export async function pending(
  thread: Thread | undefined,
  key: string,
  messages: BaseMessage[],
  write: (message: BaseMessage) => Promise<Json>,
): Promise<Pending> {
  const last = thread?.lists.get(key);
  const known = last?.known ?? [];
  const goesOn = last !== undefined && begins(known, messages);
  const base = goesOn ? last : null;
  const parts: Part[] = base === null ? [] : [{ kept: [...base.segments] }];
  const rest = base === null ? messages : messages.slice(known.length);
  const found: Pending["found"] = [];
  let before = base?.known.at(-1) ?? null;
  for (const message of rest) {
    const one: Known | null = thread?.find(message) ?? null;
    if (one === null) {
      const part = parts.at(-1) ?? {};
      if (parts.length === 0) parts.push(part);
      (part.new ??= []).push(await write(message));
    } else {
      let part = parts.at(-1);
      if (part === undefined || part.new !== undefined) parts.push((part = { kept: [] }));
      const segments = (part.kept ??= []);
      const end = segments.at(-1);
      if (one.isSingle) segments.push([one.place]);
      else if (end !== undefined && one.follows(before)) segments[segments.length - 1] = [end[0], one.place];
      else segments.push([one.place, one.place]);
    }
    before = one;
    found.push({ message, known: one });
  }
  return { parts, found, base };
}

/** Returns true if a list continues the known one. */
function begins(known: Known[], messages: BaseMessage[]): boolean {
  if (messages.length < known.length) return false;
  for (let at = 0; at < known.length; at++) {
    if (!(known[at] as Known).isSame(messages[at] as BaseMessage)) return false;
  }
  return true;
}

/** The positions of the messages of a list: the whole list, and position and segment of each new message. */
export interface StoredList {
  segments: Segment[];
  new: [loopId: string, seq: number, segment: number][];
}

/** Returns a list, after the store returned the positions of its new messages. */
export function stored({ found, base }: Pending, { segments, new: places }: StoredList): Remembered {
  if (base !== null && found.length === 0) return base;
  const known = base === null ? [] : [...base.known];
  let before = known.at(-1) ?? null;
  let at = base === null ? -1 : base.segments.length - 1;
  let run = before;
  let next = 0;
  for (const { message, known: one } of found) {
    if (one !== null) {
      if (!one.follows(run)) at++;
      [run, before] = [one, one];
      known.push(one);
      continue;
    }
    const [loopId, seq, segment] = places[next++] ?? ["", 0, 0];
    const isSingle = segments[segment]?.length === 1;
    const goesOn = segment === at && before !== null && !before.isSingle;
    const made: Known = new Known(message, [loopId, seq], goesOn ? before : null, isSingle);
    [at, run, before] = [segment, null, made];
    known.push(made);
  }
  return { segments, known };
}
