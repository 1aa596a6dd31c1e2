// Made from the Rust of the native part by `npm run build`: not to be edited.

/** JSON, as a text or as its bytes. */
export type GivenJson = string | Uint8Array

/** Where an append went. */
export interface Appended {
  /** The loop that holds the last of the messages. */
  loopId: string
  /**
   * The turns that they belong to in that loop, those included that they joined: the first, and the one
   * after the last.
   */
  turns: [first: number, end: number]
  /** Their sequences in that loop: the first, and the one after the last. */
  seqs: [first: number, end: number]
  /** The tokens of all of them. */
  tokens: number
  /** The loops that they began, in order. */
  begun: Array<string>
  /** Whether the session had an append of this key before, and nothing was appended now. */
  duplicate: boolean
  /** What was completed in tool calls and results that came without an id or a name: a sentence for each. */
  notes: Array<string>
}

/** Cancels a call from another thread. */
export declare class CancelFlag {
  constructor()
  /** Cancels the call: one that has not begun does nothing. */
  cancel(): void
}

/** An append that has a key. */
export interface KeyedAppend {
  /** The key. */
  key: string
  /** Where its messages are. */
  appended: Appended
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
   * Stores a checkpoint. What the caller has to do again is told in place of an error: `missing` names
   * channels whose values are wanted, `stale` that what it remembers is of a thread that was deleted.
   */
  put(thread: string, checkpoint: GivenJson): Promise<string>
  /** Stores what a task wrote; answers as `put` does. */
  putWrites(thread: string, writes: GivenJson): Promise<string>
  get(thread: string, ns: string, id?: string | undefined | null): Promise<string | null>
  list(query: string): Promise<string>
  history(thread: string, ns: string, id: string | undefined | null, channels: Array<string>): Promise<string>
  deleteThread(thread: string, erase: boolean): Promise<void>
}

/** Which turns are expanded. */
export interface NativeExpand {
  first: number
  last: number
  loopId?: string
  matching?: string
  maxTokens?: number
  start?: string
}

/** What is imported, and how. */
export interface NativeImport {
  paths: Array<string>
  format?: string
  session?: string
  redact: boolean
  /** Which secrets are replaced, as JSON. */
  redaction: string
  keepSource: boolean
}

/** Which keys are listed. */
export interface NativeKeys {
  prefix: string
  after?: string
  before?: string
  descending: boolean
  limit?: number
}

/** A moment: a run, a turn of a loop, or a time. */
export interface NativeMoment {
  run?: string
  loopId?: string
  turn?: number
  time?: string
}

/** How a store is opened. */
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

/** When contexts are compacted, and how. */
export declare class NativePolicy {
  /**
   * Takes settings as JSON, the provider that contexts go to, and a function with its name that writes the
   * summaries: it is given the number of a request and the request as JSON, and calls `answerSummary`.
   */
  constructor(settings: string, provider?: string | undefined | null, name?: string | undefined | null, summarizer?: ((request: number, json: string) => void) | undefined | null)
}

/** A context, and what was done to get it, as JSON. */
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
  /** Returns the same handle for contexts that go to a provider. */
  forProvider(provider: string): NativeSession
  leaf(): Promise<string | null>
  append(form: string, given: GivenJson, key?: string | undefined | null, cancel?: CancelFlag | undefined | null): Promise<Appended>
  /** Appends several times in one transaction. */
  appendBatch(form: string, parts: Array<NativePart>, cancel?: CancelFlag | undefined | null): Promise<Array<Appended>>
  /** Returns where the messages of a key are. */
  appended(key: string): Promise<Appended | null>
  /** Lists keys in the order of their bytes, with where their messages are. */
  appendKeys(given: NativeKeys): Promise<Array<KeyedAppend>>
  /** Returns stored messages with their places. */
  entries(query: string): Promise<string>
  countEntries(query: string): Promise<number>
  exists(): Promise<boolean>
  hide(): Promise<string>
  unhide(id: string): Promise<NativeSession>
  erase(reason?: string | undefined | null): Promise<string>
  redact(request: string): Promise<string>
  /** Returns a context as JSON in bytes. */
  contextBytes(form: string, maxTokens: number | undefined | null, maxBytes: number | undefined | null, at: NativeMoment, check: boolean, cancel?: CancelFlag | undefined | null): Promise<Buffer>
  /** Returns a context as JSON. */
  context(form: string, maxTokens: number | undefined | null, maxBytes: number | undefined | null, at: NativeMoment, check: boolean, cancel?: CancelFlag | undefined | null): Promise<string>
  /** Returns the context in a form, and what was done to get it. */
  prepare(form: string, forLength: boolean, cancel?: CancelFlag | undefined | null): Promise<NativePrepared>
  compact(force: boolean, dryRun: boolean, policy?: NativePolicy | undefined | null, cancel?: CancelFlag | undefined | null): Promise<string>
  undo(run?: string | undefined | null, reason?: string | undefined | null): Promise<string>
  redo(run?: string | undefined | null, reason?: string | undefined | null): Promise<string>
  fork(loopId: string, turn: number, seq?: number | undefined | null): Promise<NativeSession>
  atLoop(loopId: string): Promise<NativeSession>
  /** Begins a loop; `kind` is JSON. */
  beginLoop(id: string | undefined | null, fresh: boolean, agent?: string | undefined | null, kind?: string | undefined | null): Promise<string>
  endLoop(status: string): Promise<void>
  /** Returns the calls that wait for their results as JSON. */
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
  export(format: string, loopId?: string | undefined | null, path?: string | undefined | null): Promise<Buffer | null>
  /** Returns the page of the session, or writes it to a file. */
  report(path?: string | undefined | null): Promise<string | null>
  /**
   * Appends items of the Agents SDK, which come back as they are: each with the item of the Responses API
   * that says the same, or null.
   */
  appendItems(given: GivenJson): Promise<void>
  /** Changes the end of the items once: takes what is expected from it, and appends. */
  changeItems(key: string, digest: string, expected: string | undefined | null, given: GivenJson): Promise<void>
  /** Returns the items of the context, the last `limit` of them if that is given. */
  items(limit?: number | undefined | null): Promise<string>
  /** Takes the last item back. */
  popItem(): Promise<string | null>
  /** Puts items over all that is there, as the provider's own compaction does; tells whether anything was. */
  sealItems(given: GivenJson): Promise<boolean>
  setTitle(title: string): Promise<void>
  setProject(folder: string): Promise<void>
}

/** A database of sessions. */
export declare class NativeStore {
  static open(path: string, policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  static inMemory(policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  static connect(url: string, policy: NativePolicy, options: NativeOpenOptions): Promise<NativeStore>
  /** Where the database is, without user and password. */
  place(): string
  /** Closes the store once the calls that are under way have ended. */
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
  /** Imports a transcript that is no file; its name may matter to the format. */
  importBytes(name: string, transcript: GivenJson, format: string): Promise<string>
  stats(): Promise<string>
  verify(): Promise<string>
}

/** The version of the package. */
export declare const VERSION: string

/** Returns `true` if another copy of SQLite in this process may have the same database open. */
export declare function allowsOtherCopies(): boolean

/** Answers a request with JSON, or with what went wrong. One that nobody waits for any more is let go. */
export declare function answerSummary(request: number, answer?: string | undefined | null, error?: string | undefined | null): void

/** The names of the token counters of this build. */
export declare function counters(): Array<string>

/** Panics on a worker thread, so that a test can see what a panic becomes. */
export declare function panicOnThread(message: string): Promise<void>

/** Runs the command line and returns its exit code. */
export declare function runCommand(args: Array<string>): number
