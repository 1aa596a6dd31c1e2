/** A store, and the calls on all its sessions. */

import { fileURLToPath } from "node:url";

import { type Abortable, Calls } from "./calls.js";
import { InvalidInputError, guarded } from "./errors.js";
import { type Json, checked, decode, encode, encodeOptions } from "./json.js";
import { type NativeOpenOptions, NativeStore, allowsOtherCopies } from "./native.js";
import { type Policy, native } from "./policy.js";
import { type SearchOptions, searched } from "./search.js";
import { type Recall, Session, recalled } from "./session.js";
import type { ImportReport, RunRow, SearchResults, SessionResults, SessionRow, VerifyReport } from "./types.js";

/** A path of a file, or its URL. */
export type Path = string | URL;

/** Options of every way to open a store. */
export interface StoreOptions {
  /** The policy of sessions that are given no policy of their own. */
  policy?: Policy | undefined;
  /** The token counter; by default that of the database, `heuristic` for a new one. */
  counter?: string | undefined;
}

/** Options of `Store.open`. */
export interface OpenOptions extends StoreOptions {
  /** The cost of a power loss: nothing (`full`), or the last appends (`normal`). */
  durability?: "full" | "normal" | undefined;
  /** The key of an encrypted database (a build with the feature `sqlcipher`). */
  key?: string | Uint8Array | undefined;
  /** True to open the database for reading only. */
  readOnly?: boolean | undefined;
}

/** Options of `Store.connect`. */
export interface ConnectOptions extends StoreOptions {
  /** True to open the database for reading only. */
  readOnly?: boolean | undefined;
}

/** Options of `Store.search`. */
export interface StoreSearchOptions extends SearchOptions {
  /** Only messages of this session. */
  session?: string | undefined;
  /** Only sessions that were imported from this format. */
  source?: string | undefined;
  /** Only sessions whose project folder has this in its path. */
  project?: string | undefined;
}

/** The selection of sessions. */
export interface SessionsOptions {
  /** Only sessions of this importer. */
  source?: string | undefined;
  /** Only sessions whose project contains this text. */
  project?: string | undefined;
  /** Only sessions with this text in title, prompt or id. */
  text?: string | undefined;
  /** Only sessions that were active at this time or later, as ISO-8601 text. */
  since?: string | undefined;
  /** Only sessions after this one in the list: with `limit`, the next page. */
  after?: string | undefined;
  /** The maximum number of sessions. */
  limit?: number | undefined;
}

/** Options of `Store.sql`. */
export interface SqlOptions extends Abortable {
  /** The maximum number of rows; more is an error. */
  maxRows?: number | undefined;
  /** The time limit in seconds; 60 by default. */
  timeout?: number | undefined;
}

/** Options of `Store.import`. */
export interface ImportOptions extends Abortable, RedactionPolicy {
  /** The format; by default it is detected for each file. */
  format?: string | undefined;
  /** Only this session of the files. */
  session?: string | undefined;
  /** True to replace secrets by markers before anything is stored. */
  redact?: boolean | undefined;
  /** True to keep the files themselves too, compressed; the default. */
  keepSource?: boolean | undefined;
}

/** The policy that selects the secrets to replace. */
export interface RedactionPolicy {
  /** Values that are no secrets, or the ids of false findings. */
  allow?: string[] | undefined;
  /** The rules that apply, such as `github-pat`; all if there is none. */
  only?: string[] | undefined;
  /** The lowest confidence with which a secret is replaced; `medium` by default. */
  minConfidence?: "low" | "medium" | "high" | undefined;
}

/** Options of `Store.importBytes`. */
export interface ImportBytesOptions {
  /** The format. */
  format: string;
  /** The name of the transcript; in some formats it is the id. */
  name?: string | undefined;
}

/** Returns the redaction policy for the native part. */
export function redactionOf({ allow, only, minConfidence }: RedactionPolicy): Json {
  return { allow: allow ?? [], only: only ?? [], min_confidence: minConfidence };
}

/** Returns a path as text. */
export function pathOf(path: Path): string {
  if (path instanceof URL) return fileURLToPath(path);
  if (typeof path !== "string") throw new InvalidInputError(`a path is a string or a URL, not ${typeof path}`);
  return path;
}

const STORE = ["policy", "counter"] as const;

const ONE_COPY =
  "do not open the database with another copy of SQLite in this process while the store is open: on this system " +
  "that would take the locks of the store away and destroy the database; use `Store.sql`";

/**
 * A database of sessions.
 *
 * Calls are promises and run on worker threads. A store belongs to its process, and to the thread that opened it: a
 * worker opens its own. It is closed by `await using`, by `close`, and when it is no longer used.
 */
export class Store implements AsyncDisposable, Disposable {
  readonly #native: NativeStore;
  readonly #calls = new Calls();

  /** Wraps a native store: use `Store.open`, `Store.inMemory` or `Store.connect`. */
  constructor(nativeStore: NativeStore) {
    if (!(nativeStore instanceof NativeStore)) {
      throw new InvalidInputError("use Store.open(path), Store.inMemory() or Store.connect(url)");
    }
    this.#native = nativeStore;
  }

  /**
   * Opens a SQLite database, which is created if it does not exist.
   *
   * On Linux, another copy of SQLite in this process (better-sqlite3, for example) may have the same file open. On
   * other systems it must not while the store is open (a warning of the process states it): the locks of a file belong
   * to the process there, and the first close of the file removes them. Other processes may use the file on every
   * system.
   */
  static async open(path: Path, options?: OpenOptions): Promise<Store> {
    if (!allowsOtherCopies()) process.emitWarning(ONE_COPY);
    const { policy, ...given } = checked(options, [...STORE, "durability", "key", "readOnly"], "Store.open");
    return Store.#opened(() => NativeStore.open(pathOf(path), native(policy), set(given)));
  }

  /** Opens a database in memory, which is lost when the store is closed. */
  static async inMemory(options?: StoreOptions): Promise<Store> {
    const { policy, ...given } = checked(options, STORE, "Store.inMemory");
    return Store.#opened(() => NativeStore.inMemory(native(policy), set(given)));
  }

  /** Opens a PostgreSQL database (a build with the feature `postgres`). */
  static async connect(url: string, options?: ConnectOptions): Promise<Store> {
    const { policy, ...given } = checked(options, [...STORE, "readOnly"], "Store.connect");
    return Store.#opened(() => NativeStore.connect(url, native(policy), set(given)));
  }

  static async #opened(open: () => Promise<NativeStore>): Promise<Store> {
    return new Store(await new Calls().run(open));
  }

  /** The native store, for the drop-ins of this package. */
  static native(store: Store): [NativeStore, Calls] {
    return [store.#native, store.#calls];
  }

  /** The location of the database, without user and password. */
  get place(): string {
    return guarded(() => this.#native.place());
  }

  /** True if the store was closed. */
  get closed(): boolean {
    return guarded(() => this.#native.isClosed());
  }

  /** Returns the text that `console.log` prints. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Store { ${this.closed ? "closed" : JSON.stringify(this.place)} }`;
  }

  /** Closes the store and its sessions, after the running calls have ended. Closing it again does nothing. */
  async close(): Promise<void> {
    await this.#calls.end();
    guarded(() => this.#native.close());
  }

  /** Closes the store as `close` does, without waiting: running calls continue. */
  [Symbol.dispose](): void {
    this.#calls.close();
    guarded(() => this.#native.close());
  }

  /** Closes the store: see `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Returns a session's handle. A session that does not exist begins with its first append.
   *
   * `options.policy` is the policy of this handle, in place of the store's policy.
   */
  session(id: string, options?: { policy?: Policy | undefined }): Session {
    const { policy } = checked(options, ["policy"], "session");
    const made = guarded(() => this.#native.session(id, policy === undefined ? undefined : native(policy)));
    return new Session(made, this.#calls);
  }

  /**
   * Finds messages by their words, including messages that a compaction hides.
   *
   * The text is a question in plain words, optionally with `"phrase"`, `-word`, `+word` and `word*`.
   */
  async search(text: string, options?: StoreSearchOptions & Abortable): Promise<SearchResults> {
    const [query, signal] = searched(options, ["session", "source", "project"]);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, false, cancel), signal));
  }

  /** Finds the best sessions, each with its best messages. */
  async searchSessions(text: string, options?: StoreSearchOptions & Abortable): Promise<SessionResults> {
    const [query, signal] = searched(options, ["session", "source", "project"]);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, true, cancel), signal));
  }

  /** Answers a question from all messages, in at most `maxTokens` tokens. */
  async recall(
    question: string,
    maxTokens: number,
    options?: { session?: string | undefined } & Abortable,
  ): Promise<Recall> {
    const { session, signal } = checked(options, ["session", "signal"], "recall");
    const query = encode({ session: session ?? null });
    const work = () => this.#calls.run((cancel) => this.#native.recall(question, query, maxTokens, cancel), signal);
    return recalled(await work());
  }

  /** Returns the rows of the view `v_sessions`, last active first. */
  async sessions(options?: SessionsOptions): Promise<SessionRow[]> {
    const given = checked(options, ["source", "project", "text", "since", "after", "limit"], "sessions");
    return decode(await this.#calls.run(() => this.#native.sessions(encodeOptions({ ...given }))));
  }

  /** Returns all attempts to compact, newest first, each with its undos and redos as `flips`. */
  async history(session?: string): Promise<RunRow[]> {
    return decode(await this.#calls.run(() => this.#native.history(session)));
  }

  /** Runs one read-only query, and returns its rows. */
  async sql<Row = Json>(query: string, options?: SqlOptions): Promise<Row[]> {
    const { maxRows, timeout = 60, signal } = checked(options, ["maxRows", "timeout", "signal"], "sql");
    return decode(await this.#calls.run((cancel) => this.#native.sql(query, maxRows, timeout, cancel), signal));
  }

  /** Imports transcripts of other tools, files and folders; a second import adds only new content. */
  async import(paths: Path | Path[], options?: ImportOptions): Promise<ImportReport> {
    const known = ["format", "session", "redact", "allow", "only", "minConfidence", "keepSource", "signal"] as const;
    const given = checked(options, known, "import");
    const { signal, redact = false, allow, only, minConfidence, keepSource = true, ...rest } = given;
    const redaction = JSON.stringify(redactionOf({ allow, only, minConfidence }));
    const imported = { paths: [paths].flat().map(pathOf), redact, redaction, keepSource, ...set(rest) };
    return decode(await this.#calls.run((cancel) => this.#native.importPaths(imported, cancel), signal));
  }

  /** Imports a transcript from memory. */
  async importBytes(transcript: string | Uint8Array, options: ImportBytesOptions): Promise<ImportReport> {
    const { format, name = "transcript" } = checked(options, ["format", "name"], "importBytes");
    return decode(await this.#calls.run(() => this.#native.importBytes(name, transcript, format)));
  }

  /** Returns statistics of the database. */
  async stats(): Promise<Record<string, number>> {
    return decode(await this.#calls.run(() => this.#native.stats()));
  }

  /** Derives every digest and total again. */
  async verify(): Promise<VerifyReport> {
    return decode(await this.#calls.run(() => this.#native.verify()));
  }
}

/** Returns the options that are set. */
function set<T extends object>(given: T): { [Name in keyof T]: Exclude<T[Name], undefined> } & NativeOpenOptions {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null)) as never;
}
