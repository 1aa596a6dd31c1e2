/** A session's handle. */

import type { Abortable, Calls } from "./calls.js";
import { InvalidInputError, guarded } from "./errors.js";
import { type Form, type Json, type Messages, checked, decode, encode, encodeOptions, messages } from "./json.js";
import {
  type Appended,
  type KeyedAppend,
  type NativeAsOf,
  type NativePrepared,
  type NativeRecall,
  NativeSession,
} from "./native.js";
import { type Policy, native } from "./policy.js";
import { type SearchOptions, searched } from "./search.js";
import { type Path, type RedactionPolicy, pathOf, redactionOf } from "./store.js";
import type {
  CompactReport,
  Context,
  ContextOf,
  Entry,
  EraseReport,
  Expanded,
  FlipReport,
  MessageOf,
  PinReport,
  PinRow,
  RecallPart,
  RedactReport,
  RunRow,
  SearchResults,
  SessionView,
} from "./types.js";

/** Options of `Session.redact`. */
export interface RedactOptions extends RedactionPolicy {
  /** Why; it stays in the receipt. */
  reason?: string | undefined;
  /** Remove kept files too that hold other sessions as well. */
  withFiles?: boolean | undefined;
  /** Change nothing: `findings` shows each secret, masked, and where it is. */
  dryRun?: boolean | undefined;
}

/** What is known of a tool call. */
export interface CallState {
  /** `new`: run it. `started`: a run before this one may have been cut off. `finished`: it has a result. */
  state: "new" | "started" | "finished";
  /** The same at every attempt, so that a tool can keep its work from being done twice. */
  key: string | null;
  /** The result, once there is one. */
  message: Json | null;
}

/** The context of the next model call, which fits the policy's window. */
export interface Prepared<F extends Form = "loopstore"> {
  /** What goes into the request, in the form that was asked for. */
  request: ContextOf<F>;
  /** The messages of the request, or its items in the form `responses`. */
  messages: MessageOf<F>[];
  /** The loop in which it ends. */
  loopId: string;
  /** The sum of the messages' counts. */
  tokens: number;
  /** The sum of the messages' JSON. */
  bytes: number;
  /** Whether it was compacted for this call. */
  wasCompacted: boolean;
  /** The attempts to compact it, in order: what `Session.compact` returns. */
  compactions: CompactReport[];
  /** What a provider would object to in the originals. */
  faults: Json[];
  /** What was done so that the provider accepts it. */
  mended: Json[];
  /** The tool calls that wait for their results. */
  openCalls: OpenCall[];
}

/** A tool call that waits for its result. */
export interface OpenCall {
  /** Names the call; its result carries the same id. */
  id: string;
  /** The tool. */
  name: string;
  /** What the tool is called with. */
  arguments: unknown;
}

/** What answers a question. */
export interface Recall {
  /** The answer as text, each part under the place that it is from. */
  text: string;
  /** Tokens of the text, by the store's counter. */
  tokens: number;
  /** The excerpts. */
  parts: RecallPart[];
  /** What else was found. */
  leftOut: Json | null;
}

/** Options of `Session.append`. */
export interface AppendOptions extends Abortable {
  /** The form of the messages; loopstore's own if not given. */
  format?: Form | undefined;
  /**
   * Append once: if the session has an append of this key, nothing is appended, and what is returned says where
   * its messages are.
   */
  key?: string | undefined;
}

/** Options of `Session.context`. */
export interface ContextOptions<F extends Form = Form> extends Abortable {
  /** Tokens that the messages may have; more is an error. */
  maxTokens?: number | undefined;
  /** Bytes of JSON that the messages may have; more is an error. */
  maxBytes?: number | undefined;
  /**
   * `openai` gives `{messages}`, `responses` `{instructions?, input}`, `anthropic` `{system?, messages}`: options
   * of the provider's call. `loopstore` gives `messages` with `tokens`, `parts`, `faults` and more.
   */
  format?: F | undefined;
  /** Compare each message with its digest; one that does not fit is a `DamagedError`. */
  check?: boolean | undefined;
}

/** A moment: just after a turn, after a compaction, or at a time, as ISO-8601 text. */
export type Moment =
  | { loopId: string; turn: number }
  | { run: string }
  | { time: string | Date };

/** Options of `Session.prepare`. */
export interface PrepareOptions<F extends Form = Form> extends Abortable {
  /** As for `context`. */
  format?: F | undefined;
  /** The provider refused, or cut its answer for length: compact whatever the policy says. */
  forLength?: boolean | undefined;
}

/** Options of `Session.compact`. */
export interface CompactOptions extends Abortable {
  /** Do not ask the trigger, and plan as if no block were active. */
  force?: boolean | undefined;
  /** Only say what would be done. */
  dryRun?: boolean | undefined;
  /** In place of the handle's policy; a `summarizer` goes in here. */
  policy?: Policy | undefined;
}

/** A message of a session: its loop and its sequence there. */
export interface EntryPlace {
  loopId: string;
  seq: number;
}

/** Which messages are asked for. */
export interface EntryOptions {
  /** Those of all loops, in place of the handle's line. */
  wholeSession?: boolean | undefined;
  /** Those of this loop, in place of the line. */
  loopId?: string | undefined;
  /** With `loopId`, only these: the first, and the one after the last. */
  seqs?: readonly [first: number, end: number] | undefined;
  /** Only messages of these roles. */
  roles?: readonly string[] | undefined;
  /** Only extensions of these kinds; beside `roles`, these too. */
  kinds?: readonly string[] | undefined;
  /** Only what comes after this message. */
  after?: EntryPlace | undefined;
  /** Only what comes before this message. */
  before?: EntryPlace | undefined;
  /** Only the last so many of those; what comes before is not read. */
  last?: number | undefined;
  /** Only the first so many of those. */
  limit?: number | undefined;
}

/** Which keys are listed. */
export interface KeyOptions {
  /** Only keys after this one. */
  after?: string | undefined;
  /** Only keys before this one. */
  before?: string | undefined;
  /** The last ones first. */
  descending?: boolean | undefined;
  /** Only so many. */
  limit?: number | undefined;
}

/** Options of `Session.beginLoop`. */
export interface LoopOptions {
  /** Its id; the next free `loop-N` if not given. */
  id?: string | undefined;
  /** Go on from nothing: its context begins empty. */
  fresh?: boolean | undefined;
  /** The agent that runs. */
  agent?: string | undefined;
  /** How it came to be. */
  kind?: "Default" | { Rerun: { tag: string } } | { Branch: { tag: string } } | undefined;
}

/** Options of `Session.expand`. */
export interface ExpandOptions {
  /** The loop; that of the handle if not given. */
  loopId?: string | undefined;
  /** Only messages that fit this query, and of long ones the lines around what fits. */
  match?: string | undefined;
  /** End the answer there, and say how to go on in `next`. */
  maxTokens?: number | undefined;
  /** Where to go on: from the `next` of the answer before. */
  start?: string | undefined;
}

/** The forms of an export. */
export type ExportForm = "phi-core" | "openai" | "responses" | "anthropic" | "markdown" | "jsonl";

const CONTEXT = ["maxTokens", "maxBytes", "format", "check", "signal"] as const;

/**
 * One agent's history. Get one with `Store.session`.
 *
 * A handle goes along one line of loops: the session's current loop when it was first used, then what goes on from
 * there. A fork has a handle of its own, and the other one stays on its line.
 *
 * Turns and loops make themselves. A turn is one model call with its inputs and its tool results. A loop is a prompt
 * and everything until the agent stops.
 */
export class Session {
  readonly #native: NativeSession;
  readonly #calls: Calls;

  /** Takes a native session: use `Store.session`. */
  constructor(nativeSession: NativeSession, calls: Calls) {
    if (!(nativeSession instanceof NativeSession)) throw new InvalidInputError("use store.session(id)");
    this.#native = nativeSession;
    this.#calls = calls;
  }

  /** The native session, for the drop-ins of this package. */
  static native(session: Session): [NativeSession, Calls] {
    return [session.#native, session.#calls];
  }

  /** The session's id. */
  get id(): string {
    return this.#native.id;
  }

  /** What `console.log` prints of it. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Session { ${JSON.stringify(this.id)} }`;
  }

  /** Returns the same handle, on the same line, with another policy. */
  withPolicy(policy: Policy): Session {
    return this.#made(guarded(() => this.#native.withPolicy(native(policy))));
  }

  /** Returns the loop that the handle goes on from; `null` if the session has none yet. */
  async leaf(): Promise<string | null> {
    return (await this.#calls.run(() => this.#native.leaf())) ?? null;
  }

  /**
   * Appends messages: all of them or, with an error, none. When the promise is fulfilled they are durable.
   *
   * Messages are one object, several, or the JSON of either as a string or as bytes. In the form of a provider also
   * a whole answer of its API. Appends of one handle are made in the order of the calls if each is awaited.
   */
  async append(given: Messages, options?: AppendOptions): Promise<Appended> {
    const { format = "loopstore", key, signal } = checked(options, ["format", "key", "signal"], "append");
    const json = messages(given);
    return await this.#calls.run((cancel) => this.#native.append(format, json, key, cancel), signal);
  }

  /** Appends messages once: as `append` with `key`. Other messages under a known key are an `ExistsError`. */
  async appendOnce(key: string, given: Messages, options?: AppendOptions): Promise<Appended> {
    return await this.append(given, { ...options, key });
  }

  /**
   * Appends several times in one transaction: all of it or, with an error, nothing. Under a known key the first
   * messages count, and others are passed over.
   */
  async appendBatch(
    parts: Iterable<{ key?: string | null | undefined; messages: Messages }>,
    options?: { format?: Form | undefined } & Abortable,
  ): Promise<Appended[]> {
    const { format = "loopstore", signal } = checked(options, ["format", "signal"], "appendBatch");
    const given = Array.from(parts, ({ key, messages: each }) => ({
      messages: messages(each),
      ...(key === undefined || key === null ? {} : { key }),
    }));
    return await this.#calls.run((cancel) => this.#native.appendBatch(format, given, cancel), signal);
  }

  /** Returns where the messages are that were appended with a key; `null` if none were. */
  async appended(key: string): Promise<Appended | null> {
    return (await this.#calls.run(() => this.#native.appended(key))) ?? null;
  }

  /** Lists the keys of appends in the order of their bytes: those that begin with `prefix`. */
  async appendKeys(prefix = "", options?: KeyOptions): Promise<KeyedAppend[]> {
    const given = checked(options, ["after", "before", "descending", "limit"], "appendKeys");
    const { descending = false, ...rest } = given;
    return await this.#calls.run(() => this.#native.appendKeys({ prefix, descending, ...set(rest) }));
  }

  /** Returns stored messages in order, also those that a compaction hides, and extensions. */
  async entries(options?: EntryOptions): Promise<Entry[]> {
    const query = entryQuery(options);
    return decode(await this.#calls.run(() => this.#native.entries(query)));
  }

  /** Counts what `entries` would return. */
  async countEntries(options?: Omit<EntryOptions, "last" | "limit">): Promise<number> {
    const query = entryQuery(options);
    return await this.#calls.run(() => this.#native.countEntries(query));
  }

  /** Whether the session is there: something was appended to it, or its title set. */
  async exists(): Promise<boolean> {
    return await this.#calls.run(() => this.#native.exists());
  }

  /**
   * Hides the session, which frameworks call delete, and returns the id that it is kept under.
   *
   * It is in no list and no search any more, and its id may be used again. `unhide` brings it back.
   */
  async hide(): Promise<string> {
    return await this.#calls.run(() => this.#native.hide());
  }

  /** Brings a hidden session back under an id that is free, and returns its handle. */
  async unhide(id: string): Promise<Session> {
    return this.#made(await this.#calls.run(() => this.#native.unhide(id)));
  }

  /** Removes the session and all that it holds, for good. What is left is a receipt. */
  async erase(options?: { reason?: string | undefined }): Promise<EraseReport> {
    const { reason } = checked(options, ["reason"], "erase");
    return decode(await this.#calls.run(() => this.#native.erase(reason)));
  }

  /** Replaces the secrets in the session by markers. What is imported into it later is redacted first. */
  async redact(options?: RedactOptions): Promise<RedactReport> {
    const known = ["reason", "withFiles", "dryRun", "allow", "only", "minConfidence"] as const;
    const { reason, withFiles = false, dryRun = false, ...rest } = checked(options, known, "redact");
    const policy = redactionOf(rest);
    const request = JSON.stringify({ reason, with_files: withFiles, dry_run: dryRun, policy });
    return decode(await this.#calls.run(() => this.#native.redact(request)));
  }

  /** Builds what the next model call sees, without changing anything. */
  async context<F extends Form = "loopstore">(options?: ContextOptions<F>): Promise<ContextOf<F>> {
    const { signal, format = "loopstore", maxTokens, maxBytes, check = false } = checked(options, CONTEXT, "context");
    const work = (cancel?: Parameters<NativeSession["context"]>[5]) =>
      this.#native.context(format, maxTokens, maxBytes, {}, check, cancel);
    return decode(await this.#calls.run(work, signal));
  }

  /** Builds what `context` does, as the bytes of its JSON: for what is passed on and not looked at. */
  async contextBytes(options?: ContextOptions): Promise<Buffer> {
    const { signal, format = "loopstore", maxTokens, maxBytes, check = false } = checked(options, CONTEXT, "context");
    return await this.#calls.run(
      (cancel) => this.#native.contextBytes(format, maxTokens, maxBytes, {}, check, cancel),
      signal,
    );
  }

  /** Builds what the next model call would have seen just after a turn, a compaction, or at a time. */
  async asOf<F extends Form = "loopstore">(
    moment: Moment,
    options?: { format?: F | undefined } & Abortable,
  ): Promise<ContextOf<F>> {
    const { format = "loopstore", signal } = checked(options, ["format", "signal"], "asOf");
    const at = momentOf(moment);
    return decode(
      await this.#calls.run(
        (cancel) => this.#native.context(format, undefined, undefined, at, false, cancel),
        signal,
      ),
    );
  }

  /** Returns the context of the next model call, compacted if the policy says so. It fits, or is an error. */
  async prepare<F extends Form = "loopstore">(options?: PrepareOptions<F>): Promise<Prepared<F>> {
    const known = ["format", "forLength", "signal"] as const;
    const { format = "loopstore", forLength = false, signal } = checked(options, known, "prepare");
    const work = () => this.#calls.run((cancel) => this.#native.prepare(format, forLength, cancel), signal);
    return prepared(await unlessAborted(work, signal));
  }

  /** Compacts as the policy says: one run, which writes blocks over the loops. No original changes. */
  async compact(options?: CompactOptions): Promise<CompactReport> {
    const known = ["force", "dryRun", "policy", "signal"] as const;
    const { force = false, dryRun = false, policy, signal } = checked(options, known, "compact");
    const given = policy === undefined ? undefined : native(policy);
    const work = () => this.#calls.run((cancel) => this.#native.compact(force, dryRun, given, cancel), signal);
    const report: CompactReport = decode(await unlessAborted(work, signal));
    if (signal?.aborted && report.outcome !== "committed") throw signal.reason;
    return report;
  }

  /** Takes the last compaction of the line out of force, or the one named. */
  async undo(run?: string, options?: { reason?: string | undefined }): Promise<FlipReport> {
    const { reason } = checked(options, ["reason"], "undo");
    return decode(await this.#calls.run(() => this.#native.undo(run, reason)));
  }

  /** Puts the compaction back that was undone last, or the one named. */
  async redo(run?: string, options?: { reason?: string | undefined }): Promise<FlipReport> {
    const { reason } = checked(options, ["reason"], "redo");
    return decode(await this.#calls.run(() => this.#native.redo(run, reason)));
  }

  /**
   * Begins a branch after a complete turn, or within it after a message, and returns its handle. It is one row;
   * nothing is copied. Turns count from 0.
   */
  async fork(loopId: string, turn: number, seq?: number): Promise<Session> {
    return this.#made(await this.#calls.run(() => this.#native.fork(loopId, turn, seq)));
  }

  /** Returns a handle that goes on from this loop: a branch that was begun before, say. */
  async atLoop(loopId: string): Promise<Session> {
    return this.#made(await this.#calls.run(() => this.#native.atLoop(loopId)));
  }

  /** Begins a loop on purpose, and returns its id; appends begin loops by themselves. */
  async beginLoop(options?: LoopOptions): Promise<string> {
    const { id, fresh = false, agent, kind } = checked(options, ["id", "fresh", "agent", "kind"], "beginLoop");
    const json = kind === undefined ? undefined : encode(kind);
    return await this.#calls.run(() => this.#native.beginLoop(id, fresh, agent, json));
  }

  /** Ends the loop that the handle stands on. A user message after that begins the next. */
  async endLoop(status: "Completed" | "Rejected" | "Aborted" = "Completed"): Promise<void> {
    await this.#calls.run(() => this.#native.endLoop(status));
  }

  /**
   * Returns the tool calls that wait for their results, in order. A call that can get no result any more is not
   * among them: a prompt or a later answer follows it, or its loop has ended.
   */
  async openCalls(): Promise<OpenCall[]> {
    return decode<OpenCall[]>(await this.#calls.run(() => this.#native.openCalls()));
  }

  /** Says that a tool call is about to run, so that a restart knows of it. Appending the result finishes the call. */
  async startCall(callId: string): Promise<CallState> {
    const { state, key, message } = await this.#calls.run(() => this.#native.startCall(callId));
    return {
      state: state as CallState["state"],
      key: key ?? null,
      message: message === undefined || message === null ? null : decode(message),
    };
  }

  /** Begins the session of a sub-agent that a tool call starts, or goes on with it. */
  async child(callId: string, id: string): Promise<Session> {
    return this.#made(await this.#calls.run(() => this.#native.child(callId, id)));
  }

  /** Keeps a message word for word through every compaction; without `seq` the words of the turn. */
  async pin(loopId: string, turn: number, seq?: number): Promise<PinReport> {
    return decode(await this.#calls.run(() => this.#native.pin(loopId, turn, seq)));
  }

  /** Takes a pin back. */
  async unpin(loopId: string, turn: number, seq?: number): Promise<PinReport> {
    return decode(await this.#calls.run(() => this.#native.unpin(loopId, turn, seq)));
  }

  /** Returns what is pinned on the line. */
  async pins(): Promise<PinRow[]> {
    return decode(await this.#calls.run(() => this.#native.pins()));
  }

  /** Finds messages of this session: see `Store.search`. */
  async search(text: string, options?: SearchOptions & Abortable): Promise<SearchResults> {
    const [query, signal] = searched(options, []);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, cancel), signal));
  }

  /**
   * Answers a question from what was said in the session, in at most so many tokens.
   *
   * The least answer takes about 100 tokens. A session that is not there says nothing.
   */
  async recall(question: string, maxTokens: number, options?: Abortable): Promise<Recall> {
    const { signal } = checked(options, ["signal"], "recall");
    const work = () => this.#calls.run((cancel) => this.#native.recall(question, maxTokens, cancel), signal);
    return recalled(await work());
  }

  /** Returns turns of a loop as they were recorded, from the first to the last. */
  async expand(first: number, last: number, options?: ExpandOptions): Promise<Expanded> {
    const given = checked(options, ["loopId", "match", "maxTokens", "start"], "expand");
    const { match, ...rest } = given;
    const asked = { first, last, ...set({ ...rest, matching: match }) };
    return decode(await this.#calls.run(() => this.#native.expand(asked)));
  }

  /** Returns the attempts to compact this session, newest first. */
  async history(): Promise<RunRow[]> {
    return decode(await this.#calls.run(() => this.#native.history()));
  }

  /** Returns the session's row of `v_sessions`, with its `loops` and their `blocks`. */
  async show(): Promise<SessionView> {
    const json = await this.#calls.run(() => this.#native.show());
    const [session, loops] = decode<[SessionView, [Json, Json[]][]]>(json);
    return { ...session, loops: loops.map(([row, blocks]) => ({ ...row, blocks })) };
  }

  /** Returns the originals in another form. `loopId`: only the chain that ends in this loop. */
  async export(format: ExportForm, options?: { loopId?: string | undefined }): Promise<Buffer> {
    const { loopId } = checked(options, ["loopId"], "export");
    return (await this.#calls.run(() => this.#native.export(format, loopId))) ?? Buffer.alloc(0);
  }

  /** Writes the originals in another form to a file, which is never incomplete; replaced if it exists. */
  async exportTo(path: Path, format: ExportForm, options?: { loopId?: string | undefined }): Promise<void> {
    const { loopId } = checked(options, ["loopId"], "exportTo");
    await this.#calls.run(() => this.#native.export(format, loopId, pathOf(path)));
  }

  /** Returns the session as one self-contained HTML page. */
  async report(): Promise<string> {
    return (await this.#calls.run(() => this.#native.report())) ?? "";
  }

  /** Writes the session as one self-contained HTML page to a file. */
  async reportTo(path: Path): Promise<void> {
    await this.#calls.run(() => this.#native.report(pathOf(path)));
  }

  /** Gives the session a title, which lists show in place of its first prompt. */
  async setTitle(title: string): Promise<void> {
    await this.#calls.run(() => this.#native.setTitle(title));
  }

  /** Notes the folder that the session's agent works in. */
  async setProject(folder: Path): Promise<void> {
    await this.#calls.run(() => this.#native.setProject(pathOf(folder)));
  }

  #made(session: NativeSession): Session {
    return new Session(session, this.#calls);
  }
}

/** Rejects with the signal's reason what failed because it was aborted. */
async function unlessAborted<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  }
}

interface About {
  loop_id: string;
  tokens: number;
  bytes: number;
  was_compacted: boolean;
  compactions: CompactReport[];
  faults: Json[];
  mended: Json[];
  open_calls: OpenCall[];
}

function prepared<F extends Form>({ request, about }: NativePrepared): Prepared<F> {
  const { loop_id: loopId, was_compacted: wasCompacted, open_calls: openCalls, ...rest } = decode<About>(about);
  const asked = decode<ContextOf<F>>(request);
  const found = asked as { input?: MessageOf<F>[]; messages?: MessageOf<F>[] };
  const messages = found.input ?? found.messages ?? [];
  return { request: asked, messages, loopId, wasCompacted, openCalls, ...rest };
}

/** Makes an answer of what the native part gives. */
export function recalled({ answer, text }: NativeRecall): Recall {
  const found = decode<{ tokens: number; parts: RecallPart[]; left_out: Json | null }>(answer);
  return { text, tokens: found.tokens, parts: found.parts, leftOut: found.left_out };
}

function momentOf(moment: Moment): NativeAsOf {
  const given = checked(moment as { [Name in keyof NativeAsOf]: NativeAsOf[Name] | Date }, ["loopId", "turn", "run", "time"], "asOf");
  const { loopId, turn, run, time } = given;
  if (loopId === undefined && turn === undefined && run === undefined && time === undefined) {
    throw new InvalidInputError("asOf needs a loop and a turn, a run, or a time");
  }
  return set({ loopId, turn, run, time: time instanceof Date ? time.toISOString() : time }) as NativeAsOf;
}

function entryQuery(options: EntryOptions | undefined): string {
  const known = ["wholeSession", "loopId", "seqs", "roles", "kinds", "after", "before", "last", "limit"] as const;
  const given = checked(options, known, "entries");
  const { wholeSession = false, loopId, after, before, ...rest } = given;
  const place = (at: EntryPlace | undefined) => at && [at.loopId, at.seq];
  return encodeOptions({
    whole_session: wholeSession,
    loop_id: loopId,
    after: place(after),
    before: place(before),
    ...rest,
  });
}

/** Returns what of the options is set. */
function set<T extends object>(given: T): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null)) as never;
}

/** The type of loopstore's own context, which `context` gives without a format. */
export type { Context };
