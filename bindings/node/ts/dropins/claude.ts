/**
 * A session store for the Claude Agent SDK.
 *
 * ```js
 * import { query } from "@anthropic-ai/claude-agent-sdk";
 * import { LoopstoreSessionStore } from "loopstore/claude";
 *
 * const sessionStore = new LoopstoreSessionStore(store);
 * for await (const message of query({ prompt: "Will it rain?", options: { sessionStore } })) ...
 * ```
 *
 * The entries that the SDK mirrors are stored and returned unchanged, each `uuid` once. They are also imported: the
 * store has the session under its own id, with its prompts, turns, tool calls, compactions and sub-agents, as an
 * import of the transcript makes it. So it can be searched, shown, compacted and exported.
 */

import { createHash } from "node:crypto";

import type { SessionKey, SessionStore, SessionStoreEntry, SessionSummaryEntry } from "@anthropic-ai/claude-agent-sdk" with {
  "resolution-mode": "import",
};

import { type EntryPlace, InvalidInputError, ReadOnlyError, type Session, Store, checked, encode } from "#core";

const ENTRY = "claudeEntry";
const IMPORTED = "claudeImported";
const SUMMARY = "claudeSummary";

/** A transcript of fewer bytes is imported again with each batch, a longer one after it grew by a sixteenth. */
const SMALL = 2 << 20;
const GROWTH = 16;

/** Options of a session store. */
export interface LoopstoreSessionStoreOptions {
  /** The effect of `delete`: hide the session and keep the record, or erase it. */
  onDelete?: "hide" | "erase" | undefined;
  /** True to import the mirrored entries, so that they can be searched, shown and compacted; the default. */
  understand?: boolean | undefined;
}

interface Listed {
  rest: string;
  mtime: number;
  createdAt: string | null;
}

interface Kept {
  summary: SessionSummaryEntry;
  after: EntryPlace;
  createdAt: string | null;
}

/** The `SessionStore` of the Claude Agent SDK, with all of its optional methods. */
export class LoopstoreSessionStore implements SessionStore {
  /** The store. */
  readonly store: Store;
  readonly #erases: boolean;
  readonly #understands: boolean;
  /** The size of each transcript at its last import, and now. */
  readonly #sizes = new Map<string, [understood: number, now: number]>();
  /** The running calls of each transcript: its batches are stored in the order of the calls. */
  readonly #underWay = new Map<string, Promise<unknown>>();

  /** Takes an open store, which stays open. */
  constructor(store: Store, options?: LoopstoreSessionStoreOptions) {
    const { onDelete = "hide", understand = true } = checked(options, ["onDelete", "understand"], "LoopstoreSessionStore");
    if (!(store instanceof Store)) throw new InvalidInputError("LoopstoreSessionStore takes a Store that is open");
    if (onDelete !== "hide" && onDelete !== "erase") {
      throw new InvalidInputError(`onDelete is \`hide\` or \`erase\`, not ${String(onDelete)}`);
    }
    this.store = store;
    this.#erases = onDelete === "erase";
    this.#understands = understand;
  }

  /** Runs `work` after the earlier calls for the same transcript. */
  async #inOrder<T>(id: string, work: () => Promise<T>): Promise<T> {
    const before = this.#underWay.get(id) ?? Promise.resolve();
    const done = before.then(work, work);
    this.#underWay.set(id, done);
    try {
      return await done;
    } finally {
      if (this.#underWay.get(id) === done) this.#underWay.delete(id);
    }
  }

  /** Stores a batch of entries, each `uuid` once. They are durable when the promise is fulfilled. */
  async append(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    const id = idOf(key);
    // Later changes of the entries by the caller do not count.
    const parts = entries.map((data) => ({
      key: keyOf(data),
      messages: encode({ role: "extension", kind: ENTRY, data }),
    }));
    if (parts.length > 0) await this.#inOrder(id, () => this.#append(key, id, parts));
  }

  async #append(key: SessionKey, id: string, parts: { key: string | null; messages: string }[]): Promise<void> {
    const mirror = this.store.session(id);
    await mirror.appendBatch(parts);
    if (!this.#understands) return;
    let [before, size] = this.#sizes.get(id) ?? [0, 0];
    for (const { messages } of parts) size += messages.length;
    const isDue = size < SMALL || size - before > Math.floor(size / GROWTH);
    this.#sizes.set(id, [isDue ? size : before, size]);
    if (isDue) await this.#understand(key, mirror);
  }

  /**
   * Imports all mirrored entries of a key, and returns the ids of its sessions.
   *
   * `append` calls it: with each batch while the transcript is small, later after it has grown by a sixteenth.
   */
  async understand(key: SessionKey): Promise<string[]> {
    const id = idOf(key);
    return await this.#inOrder(id, () => this.#understand(key, this.store.session(id)));
  }

  async #understand(key: SessionKey, mirror: Session): Promise<string[]> {
    const lines = (await entriesOf(mirror)).map((entry) => JSON.stringify(entry));
    const name = [key.projectKey, key.sessionId, key.subpath ?? ""].join("/").replace(/\/$/, "");
    let sessions: string[];
    try {
      ({ sessions } = await this.store.importBytes(lines.join("\n"), { format: "claude-code", name: `${name}.jsonl` }));
    } catch (error) {
      // It contains no conversation yet.
      if (error instanceof InvalidInputError) return [];
      throw error;
    }
    const known = new Set((await mirror.appendKeys(`${IMPORTED}/`)).map((one) => one.key));
    for (const session of sessions) {
      const key = `${IMPORTED}/${session}`;
      if (!known.has(key)) await mirror.append({ role: "extension", kind: IMPORTED, data: session }, { key });
    }
    return sessions;
  }

  /** Returns all entries of a key unchanged; `null` if there are none. */
  async load(key: SessionKey): Promise<SessionStoreEntry[] | null> {
    const id = idOf(key);
    const entries = await this.#inOrder(id, () => entriesOf(this.store.session(id)));
    return entries.length > 0 ? entries : null;
  }

  /** Returns the sessions of a project, each with the time of its last write. */
  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    return (await this.#sessions(projectKey)).map(({ rest, mtime }) => ({ sessionId: decodeURIComponent(rest), mtime }));
  }

  async #sessions(projectKey: string): Promise<Listed[]> {
    return (await this.#listed(`claude/${quoted(projectKey)}/`)).filter(({ rest }) => !rest.includes("/"));
  }

  /** Returns the ends of the ids of sessions with this prefix, each with the time of its last write. */
  async #listed(prefix: string): Promise<Listed[]> {
    const rows = await this.store.sql<{ session_id: string; last_active_at: string | null; created_at: string | null }>(
      "SELECT session_id, last_active_at, created_at FROM v_sessions" +
        ` WHERE substr(session_id, 1, ${prefix.length}) = '${prefix.replaceAll("'", "''")}' AND hidden_at IS NULL`,
    );
    return rows.map((row) => ({
      rest: row.session_id.slice(prefix.length),
      mtime: row.last_active_at ? Date.parse(row.last_active_at) : 0,
      createdAt: row.created_at,
    }));
  }

  /** Returns the SDK's summary of each session of a project; only new entries are read for it. */
  async listSessionSummaries(projectKey: string): Promise<SessionSummaryEntry[]> {
    const { foldSessionSummary } = await import("@anthropic-ai/claude-agent-sdk");
    const index = this.store.session(`claude-index-js/${quoted(projectKey)}`);
    const summaries: SessionSummaryEntry[] = [];
    const fresh: { key: string; messages: object }[] = [];
    for (const { rest, mtime, createdAt } of await this.#sessions(projectKey)) {
      const key: SessionKey = { projectKey, sessionId: decodeURIComponent(rest) };
      let [number, kept] = await keptSummary(index, rest);
      // Another session had the id before.
      if (kept?.createdAt !== createdAt) kept = null;
      const mirror = this.store.session(idOf(key));
      const found = await mirror.entries({ kinds: [ENTRY], after: kept?.after });
      let summary = kept?.summary;
      if (found.length > 0 || summary === undefined) {
        const entries = found.map(({ message }) => message["data"] as SessionStoreEntry);
        summary = foldSessionSummary(summary, key, entries);
      }
      const last = found.at(-1);
      if (last !== undefined) {
        const data: Kept = { summary, after: { loopId: last.loop_id, seq: last.seq }, createdAt };
        const messages = { role: "extension", kind: SUMMARY, data };
        fresh.push({ key: `${rest}/${String(number + 1).padStart(12, "0")}`, messages });
      }
      summaries.push({ ...summary, mtime });
    }
    if (fresh.length > 0) {
      await index.appendBatch(fresh).catch((error: unknown) => {
        if (!(error instanceof ReadOnlyError)) throw error;
      });
    }
    return summaries;
  }

  /**
   * Deletes a session with its sub-agents, or with a `subpath` one of these.
   *
   * The record stays hidden, unless `onDelete` is `erase`; the id may be used again.
   */
  async delete(key: SessionKey): Promise<void> {
    const own = idOf(key);
    const ids = [own];
    if (!key.subpath) ids.push(...(await this.#listed(`${own}/`)).map(({ rest }) => `${own}/${rest}`));
    for (const id of ids) await this.#inOrder(id, () => this.#delete(id));
  }

  async #delete(id: string): Promise<void> {
    const mirror = this.store.session(id);
    this.#sizes.delete(id);
    if (!(await mirror.exists())) return;
    for (const { key } of await mirror.appendKeys(`${IMPORTED}/`)) {
      await this.#remove(this.store.session(key.slice(IMPORTED.length + 1)));
    }
    await this.#remove(mirror);
  }

  async #remove(session: Session): Promise<void> {
    if (!(await session.exists())) return;
    if (this.#erases) await session.erase({ reason: "delete" });
    else await session.hide();
  }

  /** Returns the subpaths with entries under a session. */
  async listSubkeys(key: { projectKey: string; sessionId: string }): Promise<string[]> {
    const { projectKey, sessionId } = key;
    const listed = await this.#listed(`${idOf({ projectKey, sessionId })}/`);
    return listed.map(({ rest }) => rest.split("/").map(decodeURIComponent).join("/"));
  }
}

async function entriesOf(mirror: Session): Promise<SessionStoreEntry[]> {
  const found = await mirror.entries({ kinds: [ENTRY] });
  return found.map(({ message }) => message["data"] as SessionStoreEntry);
}

/** Returns the newest stored summary of a session, with its number. */
async function keptSummary(index: Session, name: string): Promise<[number: number, kept: Kept | null]> {
  const [newest] = await index.appendKeys(`${name}/`, { descending: true, limit: 1 });
  if (newest === undefined) return [0, null];
  const { loopId, seqs } = newest.appended;
  const [entry] = await index.entries({ loopId, seqs });
  return [Number(newest.key.slice(name.length + 1)), (entry?.message["data"] as Kept | undefined) ?? null];
}

/** Quotes a part of an id, as the other languages do. */
function quoted(part: string): string {
  const code = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(part).replace(/[!'()*]/g, code);
}

/** Returns the id of the session with the entries of a key. */
function idOf({ projectKey, sessionId, subpath }: SessionKey): string {
  if (typeof projectKey !== "string" || typeof sessionId !== "string") {
    throw new InvalidInputError("a session's key has a projectKey and a sessionId, which are texts");
  }
  const id = `claude/${quoted(projectKey)}/${quoted(sessionId)}`;
  return subpath ? `${id}/${subpath.split("/").map(quoted).join("/")}` : id;
}

/** Returns the identity of an entry, if it has one. */
function keyOf({ uuid }: SessionStoreEntry): string | null {
  if (typeof uuid !== "string" || !uuid) return null;
  const key = `uuid/${uuid}`;
  return Buffer.byteLength(key) <= 512 ? key : createHash("sha256").update(uuid).digest("hex");
}
