/** Lists of a framework's messages that are saved again and again as a whole: a session stores each message once. */

import { createHash } from "node:crypto";

import type { Json, Session, Store } from "#core";

/** A message of a list: its identity, and its stored form. */
export interface Given {
  digest: string;
  forms: Json[];
}

/** A stored message: its identity, and the position of the last message of its form. */
export interface Kept {
  digest: string;
  loopId: string;
  turn: number | null;
  seq: number;
}

/** Returns the digest of a text. */
export function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 22);
}

const underWay = new WeakMap<Store, Map<string, Promise<unknown>>>();

/** Runs `work` after the earlier calls for the same session of the store. */
export async function inOrder<T>(store: Store, id: string, work: () => Promise<T>): Promise<T> {
  let calls = underWay.get(store);
  if (calls === undefined) underWay.set(store, (calls = new Map()));
  const before = calls.get(id) ?? Promise.resolve();
  const done = before.then(work, work);
  calls.set(id, done);
  try {
    return await done;
  } finally {
    if (calls.get(id) === done) calls.delete(id);
  }
}

/**
 * Makes the messages of a session equal to a list, and returns the handle of its line. `leaf` is the loop in which the
 * stored messages ended before they were read.
 *
 * New messages are appended. If the list differs from the stored messages, a branch begins, and the record stays.
 */
export async function saveList(
  session: Session,
  leaf: string | null,
  before: readonly Kept[],
  given: readonly Given[],
): Promise<Session> {
  let same = 0;
  while (same < before.length && same < given.length && before[same]?.digest === given[same]?.digest) same++;
  let line = session;
  let end = leaf;
  if (same < before.length) {
    const last = before[same - 1];
    if (last === undefined) end = await session.beginLoop({ fresh: true });
    else {
      line = await session.fork(last.loopId, last.turn ?? 0, last.seq);
      end = await line.leaf();
    }
  }
  await appendNew(line, end, same, given.slice(same));
  return line;
}

/** Appends messages after the end of a line; if several programs append the same ones there, they are stored once. */
export async function appendNew(line: Session, leaf: string | null, count: number, added: readonly Given[]): Promise<void> {
  const forms = added.flatMap((one) => one.forms);
  if (forms.length === 0) return;
  const digest = digestOf(added.map((one) => one.digest).join("\n"));
  await line.append(forms, { key: `ai:${leaf ?? ""}:${count}:${digest}` });
}
