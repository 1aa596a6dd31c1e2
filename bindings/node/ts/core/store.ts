/** A store, and the calls on all its sessions. */

import type { EventEmitter } from "node:events";

import {
  type Instant,
  type Path,
  count,
  flag,
  location,
  optionalChoice,
  optionalCount,
  optionalIso,
  optionalMilliseconds,
  optionalText,
  path as pathOf,
  paths as pathsOf,
  seconds,
  text as textOf,
  texts,
  wrongType,
} from "./arguments.js";
import { type Abortable, Calls } from "./calls.js";
import { InvalidInputError, guarded } from "./errors.js";
import type { StoreEvents } from "./events.js";
import { withSuggestion } from "./formats.js";
import { type Json, checked, decode, decodeExact, encode, encodeOptions } from "./json.js";
import { type NativeOpenOptions, NativeStore, allowsOtherCopies } from "./native.js";
import { type Policy, native } from "./policy.js";
import { type SearchOptions, searched } from "./search.js";
import { type SqlParams, withParams } from "./sql.js";
import { type Recall, Session, recalled } from "./session.js";
import type { ImportReport, RunRow, SearchResults, SessionResults, SessionRow, VerifyReport } from "./types.js";

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
export interface SessionsOptions extends Abortable {
  /** Only sessions of this importer. */
  source?: string | undefined;
  /** Only sessions whose project contains this text. */
  project?: string | undefined;
  /** Only sessions with this text in title, prompt or id. */
  text?: string | undefined;
  /** Only sessions that were active at this time or later. */
  since?: Instant | undefined;
  /** Only sessions after this one in the list: with `limit`, the next page. */
  after?: string | undefined;
  /** The maximum number of sessions. */
  limit?: number | undefined;
}

/** Options of `Store.sql`. */
export interface SqlOptions extends Abortable {
  /** The maximum number of rows; further ones are left out. */
  maxRows?: number | undefined;
  /** The time limit in seconds; 60 by default, `null` is no limit. */
  timeout?: number | null | undefined;
}

/** Options of `Store.recall`. */
export interface StoreRecallOptions extends Abortable {
  /** Only from messages of this session. */
  session?: string | undefined;
  /** Only from sessions that were imported from this format. */
  source?: string | undefined;
  /** Only from sessions whose project folder has this in its path. */
  project?: string | undefined;
  /** Only from messages of this time or later, as for `search`. */
  since?: number | Instant | undefined;
  /** Only from messages of this time or earlier. */
  until?: number | Instant | undefined;
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
  return {
    allow: texts("allow", allow ?? []),
    only: texts("only", only ?? []),
    min_confidence: optionalChoice("minConfidence", minConfidence, ["low", "medium", "high"]),
  };
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
   *
   * `~` at the start of the path is the home folder, and `":memory:"` a database in memory. A URL as of ORMs is
   * understood too: `sqlite:///relative.db`, `sqlite:////absolute.db`, and `sqlite://` in memory.
   */
  static async open(path: Path, options?: OpenOptions): Promise<Store> {
    const given = checked(options, [...STORE, "durability", "key", "readOnly"], "Store.open");
    const { policy, counter, durability, key, readOnly } = given;
    const file = location("path", path);
    if (file === null) {
      if (isGiven(key) || isGiven(durability) || readOnly) {
        throw new InvalidInputError(
          "`key`, `durability` and `readOnly` are for a file; a database in memory has none of them",
        );
      }
      return await Store.inMemory({ policy, counter });
    }
    if (isGiven(key) && typeof key !== "string" && !(key instanceof Uint8Array)) {
      throw new InvalidInputError(`\`key\` is a text or bytes, not ${typeof key}`);
    }
    const opened = set({
      counter: optionalText("counter", counter),
      durability: optionalChoice("durability", durability, ["full", "normal"]),
      key: typeof key === "string" ? textOf("key", key) : key,
      readOnly: flag("readOnly", readOnly),
    });
    if (!allowsOtherCopies()) process.emitWarning(ONE_COPY);
    return Store.#opened(() => NativeStore.open(file, native(policy), opened));
  }

  /** Opens a database in memory, which is lost when the store is closed. */
  static async inMemory(options?: StoreOptions): Promise<Store> {
    const { policy, counter } = checked(options, STORE, "Store.inMemory");
    const opened = set({ counter: optionalText("counter", counter) });
    return Store.#opened(() => NativeStore.inMemory(native(policy), opened));
  }

  /** Opens a PostgreSQL database (a build with the feature `postgres`). */
  static async connect(url: string, options?: ConnectOptions): Promise<Store> {
    const { policy, counter, readOnly } = checked(options, [...STORE, "readOnly"], "Store.connect");
    if (textOf("url", url).startsWith("sqlite:")) {
      throw new InvalidInputError("`url` is that of a file: use Store.open(url)");
    }
    const opened = set({ counter: optionalText("counter", counter), readOnly: flag("readOnly", readOnly) });
    return Store.#opened(() => NativeStore.connect(url, native(policy), opened));
  }

  static async #opened(open: () => Promise<NativeStore>): Promise<Store> {
    return new Store(await new Calls().run(open));
  }

  /** The native store, for the drop-ins of this package. */
  static native(store: Store): [NativeStore, Calls] {
    return [store.#native, store.#calls];
  }

  /**
   * The events of the calls on this store and its sessions, for logs and measurements. They are emitted after their
   * call has succeeded; an error of a listener is an uncaught exception.
   */
  get events(): EventEmitter<StoreEvents> {
    return this.#calls.events.emitter;
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
    textOf("id", id);
    const made = guarded(() => this.#native.session(id, policy === undefined ? undefined : native(policy)));
    return new Session(made, this.#calls);
  }

  /**
   * Finds messages by their words, including messages that a compaction hides.
   *
   * The text is a question in plain words, optionally with `"phrase"`, `-word`, `+word` and `word*`.
   */
  async search(text: string, options?: StoreSearchOptions & Abortable): Promise<SearchResults> {
    textOf("text", text);
    const [query, signal] = searched(options, ["session", "source", "project"]);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, false, cancel), signal));
  }

  /** Finds the best sessions, each with its best messages. */
  async searchSessions(text: string, options?: StoreSearchOptions & Abortable): Promise<SessionResults> {
    textOf("text", text);
    const [query, signal] = searched(options, ["session", "source", "project"]);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, true, cancel), signal));
  }

  /** Answers a question from all messages, in at most `maxTokens` tokens. */
  async recall(question: string, maxTokens: number, options?: StoreRecallOptions): Promise<Recall> {
    const known = ["session", "source", "project", "since", "until", "signal"] as const;
    const { session, source, project, since, until, signal } = checked(options, known, "recall");
    const query = encode({
      session: optionalText("session", session),
      source: optionalText("source", source),
      project: optionalText("project", project),
      since: optionalMilliseconds("since", since),
      until: optionalMilliseconds("until", until, true),
    });
    const most = count("maxTokens", maxTokens, "tokens");
    textOf("question", question);
    return recalled(await this.#calls.run((cancel) => this.#native.recall(question, query, most, cancel), signal));
  }

  /** Returns the rows of the view `v_sessions`, last active first. */
  async sessions(options?: SessionsOptions): Promise<SessionRow[]> {
    const known = ["source", "project", "text", "since", "after", "limit", "signal"] as const;
    const { source, project, text, since, after, limit, signal } = checked(options, known, "sessions");
    const query = encodeOptions({
      source: optionalText("source", source),
      project: optionalText("project", project),
      text: optionalText("text", text),
      since: optionalIso("since", since),
      after: optionalText("after", after),
      limit: optionalCount("limit", limit, "sessions"),
    });
    return decode(await this.#calls.read(() => this.#native.sessions(query), signal));
  }

  /** Returns all attempts to compact, newest first, each with its undos and redos as `flips`. */
  async history(session?: string, options?: Abortable): Promise<RunRow[]> {
    const { signal } = checked(options, ["signal"], "history");
    const id = optionalText("session", session);
    return decode(await this.#calls.read(() => this.#native.history(id), signal));
  }

  /**
   * Runs one read-only query, and returns its rows. A whole number beyond 2^53 is a `bigint`.
   *
   * `params` are the values of `?` as an array, or those of `:name` as an object. On PostgreSQL, a query with `params`
   * has `jsonb_exists(a, 'b')` in place of `a ? 'b'`, and a space after the colon of a slice: `a[1: n]`.
   *
   * ```js
   * await store.sql("SELECT * FROM v_messages WHERE session_id = ?", [id], { maxRows: 100 });
   * ```
   */
  async sql<Row = Json>(query: string, params?: SqlParams | null, options?: SqlOptions): Promise<Row[]> {
    const { maxRows, timeout = 60, signal } = checked(options, ["maxRows", "timeout", "signal"], "sql");
    const text = withParams(textOf("query", query), params, this.place.startsWith("postgres:") ? "postgres" : "sqlite");
    const most = optionalCount("maxRows", maxRows, "rows");
    const limit = seconds("timeout", timeout);
    return decodeExact(await this.#calls.run((cancel) => this.#native.sql(text, most, limit, cancel), signal));
  }

  /** Imports transcripts of other tools, files and folders; a second import adds only new content. */
  async import(paths: Path | Iterable<Path>, options?: ImportOptions): Promise<ImportReport> {
    const known = ["format", "session", "redact", "allow", "only", "minConfidence", "keepSource", "signal"] as const;
    const given = checked(options, known, "import");
    const { signal, redact, allow, only, minConfidence, keepSource = true } = given;
    const format = optionalText("format", given.format);
    const imported = {
      paths: pathsOf("paths", paths),
      redact: flag("redact", redact),
      redaction: encode(redactionOf({ allow, only, minConfidence })),
      keepSource: flag("keepSource", keepSource),
      ...set({ format, session: optionalText("session", given.session) }),
    };
    const work = () => this.#calls.run((cancel) => this.#native.importPaths(imported, cancel), signal);
    return decode(await withSuggestion(format, work));
  }

  /** Imports a transcript from memory. */
  async importBytes(transcript: string | Uint8Array, options: ImportBytesOptions): Promise<ImportReport> {
    const { format, name = "transcript" } = checked(options, ["format", "name"], "importBytes");
    if (typeof transcript !== "string" && !(transcript instanceof Uint8Array)) {
      throw wrongType("transcript", "a text or bytes", transcript);
    }
    const [file, form] = [pathOf("name", name), textOf("format", format)];
    const work = () => this.#calls.run(() => this.#native.importBytes(file, transcript, form));
    return decode(await withSuggestion(form, work));
  }

  /** Returns statistics of the database. */
  async stats(): Promise<Record<string, number>> {
    return decode(await this.#calls.run(() => this.#native.stats()));
  }

  /** Derives every digest and total again. */
  async verify(options?: Abortable): Promise<VerifyReport> {
    const { signal } = checked(options, ["signal"], "verify");
    return decode(await this.#calls.run((cancel) => this.#native.verify(cancel), signal));
  }
}

const isGiven = (value: unknown) => value !== undefined && value !== null;

/** Returns the options that are set. */
function set<T extends object>(given: T): { [Name in keyof T]: Exclude<T[Name], undefined> } & NativeOpenOptions {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null)) as never;
}
