// Made from the Rust of the native part by `npm run build`: not to be edited.

/** JSON, as a text or as its bytes. */
export type GivenJson = string | Uint8Array

/** The result of an append. */
export interface Appended {
  /** The loop of the last of the messages. */
  loopId: string
  /**
   * The turns of the messages in that loop, including turns that existed before: the first, and the one
   * after the last.
   */
  turns: [first: number, end: number]
  /** The sequences of the messages in that loop: the first, and the one after the last. */
  seqs: [first: number, end: number]
  /** The tokens of all messages. */
  tokens: number
  /** The loops that the messages began, in order. */
  begun: Array<string>
  /** True if the session had an append of this key before, and nothing was appended now. */
  duplicate: boolean
  /** A sentence for each tool call or result that was completed because it had no id or name. */
  notes: Array<string>
}

/** Cancels a call from another thread. */
export declare class CancelFlag {
  constructor()
  /** Cancels the call: a call that has not begun does nothing. */
  cancel(): void
}

/** An append with a key. */
export interface KeyedAppend {
  /** The key. */
  key: string
  /** The result of the append. */
  appended: Appended
}

/** An earlier point of a session: a run, a turn of a loop, a time, or a manifest. */
export interface NativeAsOf {
  run?: string
  loopId?: string
  turn?: number
  time?: string
  manifest?: string
}

/** The state of a call, its key, and the message that finished it as JSON. */
export interface NativeCall {
  state: string
  key?: string
  message?: string
}

/** The checkpoints of a store. */
export declare class NativeCheckpoints {
  constructor(store: NativeStore)
  /**
   * Stores a checkpoint. Instead of an error the result may request another call: `missing` lists channels
   * whose values are needed, `stale` names a thread that was deleted since the caller read it.
   */
  put(thread: string, checkpoint: GivenJson): Promise<string>
  /** Stores the writes of a task; the result is that of `put`. */
  putWrites(thread: string, writes: GivenJson): Promise<string>
  get(thread: string, ns: string, id?: string | undefined | null): Promise<string | null>
  list(query: string): Promise<string>
  history(thread: string, ns: string, id: string | undefined | null, channels: Array<string>): Promise<string>
  deleteThread(thread: string, erase: boolean): Promise<void>
}

/** The turns to expand, and how much of them. */
export interface NativeExpand {
  first: number
  last: number
  loopId?: string
  matching?: string
  maxTokens?: number
  start?: string
}

/** The options of an import. */
export interface NativeImport {
  paths: Array<string>
  format?: string
  session?: string
  redact: boolean
  /** The redaction policy, as JSON. */
  redaction: string
  keepSource: boolean
}

/** A query for keys. */
export interface NativeKeys {
  prefix: string
  after?: string
  before?: string
  descending: boolean
  limit?: number
}

/** The options of a store. */
export interface NativeOpenOptions {
  counter?: string
  durability?: string
  key?: GivenJson
  readOnly?: boolean
}

/** The messages of one append, and its key. */
export interface NativePart {
  key?: string
  messages: GivenJson
}

/** The policy of compactions. */
export declare class NativePolicy {
  /**
   * Reads settings as JSON, the provider that contexts go to, a function with its name that writes the summaries,
   * and the hooks `approve` and `warn` with the fraction of the window from which `warn` is called. Each function
   * gets the number of a request and the request as JSON, and calls `answerRequest`.
   */
  constructor(settings: string, provider?: string | undefined | null, name?: string | undefined | null, summarizer?: ((request: number, json: string) => void) | undefined | null, approve?: ((request: number, json: string) => void) | undefined | null, warn?: ((request: number, json: string) => void) | undefined | null, warnAt?: number | undefined | null)
}

/** A context, and its description, as JSON. */
export interface NativePrepared {
  request: string
  about: string
}

/** An answer as JSON, and as text. */
export interface NativeRecall {
  answer: string
  text: string
}

/** One agent's history. */
export declare class NativeSession {
  get id(): string
  withPolicy(policy: NativePolicy): NativeSession
  /** Returns a handle of the session for contexts that go to a provider. */
  forProvider(provider: string): NativeSession
  leaf(): Promise<string | null>
  append(form: string, given: GivenJson, key?: string | undefined | null, cancel?: CancelFlag | undefined | null): Promise<Appended>
  /** Appends several times in one transaction. */
  appendBatch(form: string, parts: Array<NativePart>, cancel?: CancelFlag | undefined | null): Promise<Array<Appended>>
  /** Returns the result of the append under a key. */
  appended(key: string): Promise<Appended | null>
  /** Lists appends with keys, in the order of the bytes of the keys. */
  appendKeys(given: NativeKeys): Promise<Array<KeyedAppend>>
  /** Returns stored messages with their positions. */
  entries(query: string): Promise<string>
  countEntries(query: string): Promise<number>
  exists(): Promise<boolean>
  hide(): Promise<string>
  unhide(id: string): Promise<NativeSession>
  erase(reason?: string | undefined | null): Promise<string>
  redact(request: string): Promise<string>
  /** Returns a context as JSON in bytes. */
  contextBytes(form: string, maxTokens: number | undefined | null, maxBytes: number | undefined | null, at: NativeAsOf, check: boolean, cancel?: CancelFlag | undefined | null): Promise<Buffer>
  /** Returns a context as JSON. */
  context(form: string, maxTokens: number | undefined | null, maxBytes: number | undefined | null, at: NativeAsOf, check: boolean, cancel?: CancelFlag | undefined | null): Promise<string>
  /** Records the context of the next model call, and returns its manifest as JSON. */
  recordContext(): Promise<string>
  /** Returns the context in a form, and its description. */
  prepare(form: string, forLength: boolean, cancel?: CancelFlag | undefined | null): Promise<NativePrepared>
  compact(force: boolean, dryRun: boolean, policy?: NativePolicy | undefined | null, cancel?: CancelFlag | undefined | null): Promise<string>
  undo(run?: string | undefined | null, reason?: string | undefined | null): Promise<string>
  redo(run?: string | undefined | null, reason?: string | undefined | null): Promise<string>
  /** Edits messages; the request is JSON. */
  edit(action: string, request: string): Promise<string>
  /** Restores edited messages; the targets are JSON. */
  restore(targets: string): Promise<string>
  fork(loopId: string, turn: number, seq?: number | undefined | null): Promise<NativeSession>
  atLoop(loopId: string): Promise<NativeSession>
  /** Begins a loop; `kind` is JSON. */
  beginLoop(id: string | undefined | null, fresh: boolean, agent?: string | undefined | null, kind?: string | undefined | null): Promise<string>
  endLoop(status: string): Promise<void>
  /** Returns the open calls as JSON. */
  openCalls(): Promise<string>
  startCall(callId: string): Promise<NativeCall>
  child(callId: string, id: string): Promise<NativeSession>
  pin(loopId: string, turn: number, seq?: number | undefined | null): Promise<string>
  unpin(loopId: string, turn: number, seq?: number | undefined | null): Promise<string>
  pins(): Promise<string>
  /** Finds messages of the session. */
  search(given: string, query: string, cancel?: CancelFlag | undefined | null): Promise<string>
  history(): Promise<string>
  /** Returns an answer and its text. */
  recall(question: string, tokens: number, cancel?: CancelFlag | undefined | null): Promise<NativeRecall>
  expand(given: NativeExpand): Promise<string>
  /** Returns the rows of the session, its loops and the blocks on them. */
  show(): Promise<string>
  /** Returns an export, or writes it to a file. */
  export(format: string, loopId?: string | undefined | null, path?: string | undefined | null, cancel?: CancelFlag | undefined | null): Promise<Buffer | null>
  /** Returns the report of the session, or writes it to a file. */
  report(path?: string | undefined | null, cancel?: CancelFlag | undefined | null): Promise<string | null>
  setTitle(title: string): Promise<void>
  setProject(folder: string): Promise<void>
  /**
   * Appends items of the Agents SDK, which are returned unchanged: each with the equivalent item of the Responses
   * API, or null.
   */
  appendItems(given: GivenJson): Promise<void>
  /** Changes the end of the items once: removes the expected items, and appends others. */
  changeItems(key: string, digest: string, expected: string | undefined | null, given: GivenJson): Promise<void>
  /** Returns the items of the context, at most the last `limit`. */
  items(limit?: number | undefined | null): Promise<string>
  /** Removes the last item. */
  popItem(): Promise<string | null>
  /** Replaces all items with these, as a compaction by the provider; returns false if there are no items. */
  sealItems(given: GivenJson): Promise<boolean>
}

/** A database of sessions. */
export declare class NativeStore {
  static open(path: string, policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  static inMemory(policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  static connect(url: string, policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  /** Returns the location of the database, without user and password. */
  place(): string
  /** Closes the store once the running calls have ended. */
  close(): void
  isClosed(): boolean
  /** Returns a session's handle. */
  session(id: string, policy?: NativePolicy | undefined | null): NativeSession
  /** Finds messages, or sessions. */
  search(text: string, query: string, bySession: boolean, cancel?: CancelFlag | undefined | null): Promise<string>
  /** Returns an answer and its text. */
  recall(question: string, query: string, tokens: number, cancel?: CancelFlag | undefined | null): Promise<NativeRecall>
  sessions(filter: string): Promise<string>
  history(session?: string | undefined | null): Promise<string>
  sql(query: string, maxRows?: number | undefined | null, timeout?: number | undefined | null, cancel?: CancelFlag | undefined | null): Promise<string>
  importPaths(given: NativeImport, cancel?: CancelFlag | undefined | null): Promise<string>
  /** Imports a transcript from memory; its name may matter to the format. */
  importBytes(name: string, transcript: GivenJson, format: string): Promise<string>
  stats(): Promise<string>
  verify(cancel?: CancelFlag | undefined | null): Promise<string>
}

/** The version of the package. */
export declare const VERSION: string

/** Returns `true` if another copy of SQLite in this process may have the same database open. */
export declare function allowsOtherCopies(): boolean

/** Answers a request with JSON, or with an error. The answer to a request that has ended is dropped. */
export declare function answerRequest(request: number, answer?: string | undefined | null, error?: string | undefined | null): void

/** The names of the token counters of this build. */
export declare function counters(): Array<string>

/** Panics on a worker thread, for tests of the error of a panic. */
export declare function panicOnThread(message: string): Promise<void>

/** Runs the command line and returns its exit code. */
export declare function runCommand(args: Array<string>): number
