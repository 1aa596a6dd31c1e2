/** A session's handle. */

import {
  type Instant,
  MOST_PLACE,
  type Path,
  choice,
  count,
  flag,
  optionalCount,
  optionalIso,
  optionalPlace,
  optionalText,
  optionalTexts,
  path as pathOf,
  place as placeOf,
  text as textOf,
  wrongType,
  wrongValue,
} from "./arguments.js";
import type { Abortable, Calls } from "./calls.js";
import { InvalidInputError, NotFoundError, guarded, readable } from "./errors.js";
import { type Form, FORMS, type Json, type Messages, checked, decode, encode, encodeOptions, messages } from "./json.js";
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
import { printed, printedAppended, printedPrepared, printedRecall } from "./printed.js";
import { type RedactionPolicy, redactionOf } from "./store.js";
import type {
  CompactReport,
  Context,
  ContextOf,
  EditReport,
  EditTarget,
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

/** Options of `Session.drop` and `Session.clear`. Messages that meet all given conditions are edited too. */
export interface EditOptions {
  /** Words that the messages contain. */
  match?: string | undefined;
  /** The tool of tool results. */
  tool?: string | undefined;
  /** The number of bytes that the messages exceed. */
  larger?: number | undefined;
  /** The number of complete turns that follow the messages, at least. */
  olderThan?: number | undefined;
  /** True to return the report without writing anything. */
  dryRun?: boolean | undefined;
  /** The reason, stored with the run. */
  reason?: string | undefined;
}

/** Options of `Session.redact`. */
export interface RedactOptions extends RedactionPolicy {
  /** The reason; it is stored in the receipt. */
  reason?: string | undefined;
  /** True to remove also kept files that contain other sessions. */
  withFiles?: boolean | undefined;
  /** True to change nothing: `findings` has each secret, masked, with its places. */
  dryRun?: boolean | undefined;
}

/** The state of a tool call. */
export interface CallState {
  /** `new`: run the call. `started`: an earlier run may have been interrupted. `finished`: the call has a result. */
  state: "new" | "started" | "finished";
  /** The same key at every attempt, so that a tool can avoid doing its work twice. */
  key: string | null;
  /** The result; `null` if there is none yet. */
  message: Json | null;
}

/** The context of the next model call, which fits the policy's window. */
export interface Prepared<F extends Form = "loopstore"> {
  /** The content of the request, in the requested form. */
  request: ContextOf<F>;
  /** The messages of the request, or its items in the form `responses`. */
  messages: MessageOf<F>[];
  /** The loop of the last message. */
  loopId: string;
  /** The tokens of the messages. */
  tokens: number;
  /** The bytes of the messages as JSON. */
  bytes: number;
  /** True if the context was compacted for this call. */
  wasCompacted: boolean;
  /** The tool results that the policy cleared first, as `Session.clear` returns them; `null` if it cleared none. */
  cleared: EditReport | null;
  /** The reason why the policy, although it fired, cleared no tool results. */
  notCleared: string | null;
  /** The attempts to compact it, in order, as `Session.compact` returns them. */
  compactions: CompactReport[];
  /** The faults of the originals for which a provider would reject them. */
  faults: Json[];
  /** The changes that were made so that the provider accepts the request. */
  mended: Json[];
  /** The tool calls that wait for their results. */
  openCalls: OpenCall[];
}

/** A tool call that waits for its result. */
export interface OpenCall {
  /** The id of the call; its result has the same id. */
  id: string;
  /** The tool. */
  name: string;
  /** The arguments of the call. */
  arguments: unknown;
}

/** The answer to a question. */
export interface Recall {
  /** The answer as text, each part below its position. */
  text: string;
  /** The tokens of the text, by the store's counter. */
  tokens: number;
  /** The excerpts. */
  parts: RecallPart[];
  /** The results that did not fit. */
  leftOut: Json | null;
}

/** Options of `Session.append`. */
export interface AppendOptions extends Abortable {
  /** The form of the messages; by default loopstore's own. */
  format?: Form | undefined;
  /**
   * Appends once: if the session has an append under this key, nothing is appended, and the result is that of the first
   * append.
   */
  key?: string | undefined;
}

/** Options of `Session.context`. */
export interface ContextOptions<F extends Form = Form> extends Abortable {
  /** The maximum number of tokens of the messages; more is an error. */
  maxTokens?: number | undefined;
  /** The maximum number of bytes of the messages as JSON; more is an error. */
  maxBytes?: number | undefined;
  /**
   * `openai` returns `{messages}`, `responses` `{instructions?, input}`, `anthropic` `{system?, messages}`: options of
   * the provider's call. `loopstore` returns `messages` with `tokens`, `parts`, `faults` and more.
   */
  format?: F | undefined;
  /** True to compare each message with its digest; a mismatch is a `DamagedError`. */
  check?: boolean | undefined;
  /** True for the empty context of a session that does not exist yet; by default it is a `NotFoundError`. */
  create?: boolean | undefined;
}

/** A point in time: just after a turn, after a compaction, at a time, or the context that `recordContext` recorded. */
export type AsOf =
  | { loopId: string; turn: number }
  | { manifest: string }
  | { run: string }
  | { time: Instant };

/** The record of a context. */
export interface RecordedContext {
  manifestId: string;
  /** The number of messages. */
  messages: number;
  tokens: number;
  /** The bytes of the messages as JSON. */
  bytes: number;
}

/** Options of `Session.prepare`. */
export interface PrepareOptions<F extends Form = Form> extends Abortable {
  /** As for `context`. */
  format?: F | undefined;
  /** True if the provider rejected the request or cut its answer for length: compacts in any case. */
  forLength?: boolean | undefined;
  /** True for the empty context of a session that does not exist yet; by default it is a `NotFoundError`. */
  create?: boolean | undefined;
}

/** Options of `Session.compact`. */
export interface CompactOptions extends Abortable {
  /** True to ignore the trigger, and to plan as if no block were active. */
  force?: boolean | undefined;
  /** True to only report the plan. */
  dryRun?: boolean | undefined;
  /** The policy in place of the handle's; it may have a `summarizer`. */
  policy?: Policy | undefined;
}

/** A message of a session: its loop and its sequence there. */
export interface EntryPlace {
  loopId: string;
  seq: number;
}

/** The selection of entries. */
export interface EntryOptions extends Abortable {
  /** True for the messages of all loops, in place of the handle's line. */
  wholeSession?: boolean | undefined;
  /** Only messages of this loop, in place of the line. */
  loopId?: string | undefined;
  /** With `loopId`, only these sequences: the first, and the one after the last. */
  seqs?: readonly [first: number, end: number] | undefined;
  /** Only messages of these roles. */
  roles?: readonly string[] | undefined;
  /** Only extensions of these kinds; with `roles`, in addition to the messages. */
  kinds?: readonly string[] | undefined;
  /** Only entries after this message. */
  after?: EntryPlace | undefined;
  /** Only entries before this message. */
  before?: EntryPlace | undefined;
  /** Only this number of the last entries; earlier ones are not read. */
  last?: number | undefined;
  /** Only this number of the first entries. */
  limit?: number | undefined;
}

/** The selection of keys. */
export interface KeyOptions {
  /** Only keys after this one. */
  after?: string | undefined;
  /** Only keys before this one. */
  before?: string | undefined;
  /** True for descending order. */
  descending?: boolean | undefined;
  /** The maximum number of keys. */
  limit?: number | undefined;
}

/** Options of `Session.beginLoop`. */
export interface LoopOptions {
  /** The id of the loop; the next free `loop-N` by default. */
  id?: string | undefined;
  /** True to begin with an empty context, without a parent. */
  fresh?: boolean | undefined;
  /** The agent that runs. */
  agent?: string | undefined;
  /** The kind of continuation. */
  kind?: "Default" | { Rerun: { tag: string } } | { Branch: { tag: string } } | undefined;
}

/** Options of `Session.expand`. */
export interface ExpandOptions extends Abortable {
  /** The loop; by default that of the handle. */
  loopId?: string | undefined;
  /** Only messages that match this query; long messages are cut to the lines around the matches. */
  match?: string | undefined;
  /** The maximum number of tokens of the answer; `next` is the position of the rest. */
  maxTokens?: number | undefined;
  /** The position to start from: the `next` of the answer before. */
  start?: string | undefined;
}

/** The forms of an export. */
const EXPORT_FORMS = [
  "json",
  "phi-core",
  "openai",
  "responses",
  "anthropic",
  "markdown",
  "jsonl",
  "atif",
  "html",
  "otlp-json",
  "otlp-json-without-content",
] as const;

/**
 * The form of an export. `json` is `phi-core`, the whole session as one document; `html` is the page that `report`
 * returns.
 */
export type ExportForm = (typeof EXPORT_FORMS)[number];

/** Options of `Session.export`. */
export interface ExportOptions extends Abortable {
  /** Only the chain that ends in this loop. */
  loopId?: string | undefined;
}

const EDIT = ["match", "tool", "larger", "olderThan", "dryRun", "reason"] as const;
const CONTEXT = ["maxTokens", "maxBytes", "format", "check", "create", "signal"] as const;

/**
 * One agent's history. Get one with `Store.session`.
 *
 * A handle follows one line of loops: the session's current loop when the handle was first used, then the loops that
 * continue it. A fork returns a handle of its own, and the other handle stays on its line.
 *
 * Turns and loops are derived from the messages. A turn is one model call with its inputs and its tool results. A loop
 * is a prompt and everything until the agent stops.
 */
export class Session {
  readonly #native: NativeSession;
  readonly #calls: Calls;

  /** Wraps a native session: use `Store.session`. */
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

  /** Returns the text that `console.log` prints. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Session { ${JSON.stringify(this.id)} }`;
  }

  /** Returns a handle on the same line, with another policy. */
  withPolicy(policy: Policy): Session {
    return this.#made(guarded(() => this.#native.withPolicy(native(policy))));
  }

  /** Returns the loop that the handle continues; `null` if the session has none yet. */
  async leaf(): Promise<string | null> {
    return (await this.#calls.run(() => this.#native.leaf())) ?? null;
  }

  /**
   * Appends messages: all of them or, with an error, none. They are durable when the promise is fulfilled.
   *
   * Messages are one object, several, or the JSON of either as a string or as bytes; in the form of a provider also a
   * whole answer of its API. Appends of one handle are made in the order of the calls if each is awaited.
   */
  async append(given: Messages, options?: AppendOptions): Promise<Appended> {
    const { format = "loopstore", key, signal } = checked(options, ["format", "key", "signal"], "append");
    const form = formOf(format);
    const once = optionalText("key", key);
    const [json, notes] = messages(given);
    const work = () => this.#calls.run((cancel) => this.#native.append(form, json, once, cancel), signal);
    const written = () => this.#calls.events.written(this.id, work);
    return this.#appended(await readable(isText(given), written), notes);
  }

  /** Appends messages once, as `append` with `key`. Other messages under a known key are an `ExistsError`. */
  async appendOnce(key: string, given: Messages, options?: AppendOptions): Promise<Appended> {
    return await this.append(given, { ...options, key });
  }

  /**
   * Appends several times in one transaction: all of it or, with an error, nothing. Under a known key the first
   * messages count, and others are skipped.
   */
  async appendBatch(
    parts: Iterable<{ key?: string | null | undefined; messages: Messages }>,
    options?: { format?: Form | undefined } & Abortable,
  ): Promise<Appended[]> {
    const { format = "loopstore", signal } = checked(options, ["format", "signal"], "appendBatch");
    const form = formOf(format);
    const notes: string[][] = [];
    let texts = false;
    const given = Array.from(listed("parts", parts), (part, at) => {
      if (typeof part !== "object" || part === null) {
        throw wrongType(`parts[${at}]`, "an object of `messages` and perhaps a `key`", part);
      }
      const { key, messages: each } = part as { key?: string | null; messages: Messages };
      const [json, more] = messages(each);
      notes.push(more);
      texts ||= isText(each);
      return { messages: json, ...set({ key: optionalText(`parts[${at}].key`, key) }) };
    });
    const work = () => this.#calls.run((cancel) => this.#native.appendBatch(form, given, cancel), signal);
    const written = () => this.#calls.events.written(this.id, work);
    const done = await readable(texts, written);
    return done.map((one, at) => this.#appended(one, notes[at] ?? []));
  }

  #appended(done: Appended, notes: string[]): Appended {
    const appended = notes.length > 0 ? { ...done, notes: [...done.notes, ...notes] } : done;
    this.#calls.events.appended(this.id, appended);
    return printed(appended, printedAppended);
  }

  /** Returns the result of the append under a key; `null` if there is none. */
  async appended(key: string): Promise<Appended | null> {
    textOf("key", key);
    const found = await this.#calls.run(() => this.#native.appended(key));
    return found ? printed(found, printedAppended) : null;
  }

  /** Lists the keys that begin with `prefix` in the order of their bytes. */
  async appendKeys(prefix = "", options?: KeyOptions): Promise<KeyedAppend[]> {
    const given = checked(options, ["after", "before", "descending", "limit"], "appendKeys");
    const query = {
      prefix: textOf("prefix", prefix),
      descending: flag("descending", given.descending),
      ...set({
        after: optionalText("after", given.after),
        before: optionalText("before", given.before),
        limit: optionalCount("limit", given.limit, "keys"),
      }),
    };
    const found = await this.#calls.run(() => this.#native.appendKeys(query));
    for (const { appended } of found) printed(appended, printedAppended);
    return found;
  }

  /** Returns stored messages in order, including those that a compaction hides, and extensions. */
  async entries(options?: EntryOptions): Promise<Entry[]> {
    const query = entryQuery(options);
    return decode(await this.#calls.read(() => this.#native.entries(query), options?.signal));
  }

  /** Returns the number of entries that `entries` would return. */
  async countEntries(options?: Omit<EntryOptions, "last" | "limit">): Promise<number> {
    const query = entryQuery(options);
    return await this.#calls.read(() => this.#native.countEntries(query), options?.signal);
  }

  /** Returns true if the session exists: a message was appended to it, or its title set. */
  async exists(): Promise<boolean> {
    return await this.#calls.run(() => this.#native.exists());
  }

  /**
   * Hides the session, which frameworks call delete, and returns its new id.
   *
   * A hidden session is in no list and no search, and its former id is free. `unhide` restores it.
   */
  async hide(): Promise<string> {
    return await this.#calls.run(() => this.#native.hide());
  }

  /** Restores a hidden session under a free id, and returns its handle. */
  async unhide(id: string): Promise<Session> {
    textOf("id", id);
    return this.#made(await this.#calls.run(() => this.#native.unhide(id)));
  }

  /** Removes the session and all its content for good. Only a receipt remains. */
  async erase(options?: { reason?: string | undefined }): Promise<EraseReport> {
    const reason = reasonOf(options, "erase");
    return decode(await this.#calls.run(() => this.#native.erase(reason)));
  }

  /** Replaces the secrets in the session by markers. Later imports into it are redacted too. */
  async redact(options?: RedactOptions): Promise<RedactReport> {
    const known = ["reason", "withFiles", "dryRun", "allow", "only", "minConfidence"] as const;
    const { reason, withFiles, dryRun, ...rest } = checked(options, known, "redact");
    const request = encode({
      reason: optionalText("reason", reason),
      with_files: flag("withFiles", withFiles),
      dry_run: flag("dryRun", dryRun),
      policy: redactionOf(rest),
    });
    return decode(await this.#calls.run(() => this.#native.redact(request)));
  }

  /** Builds the context of the next model call, without changing anything. */
  async context<F extends Form = "loopstore">(options?: ContextOptions<F>): Promise<ContextOf<F>> {
    const given = contextOptions(options);
    const work = () => this.#native.context(given.form, given.maxTokens, given.maxBytes, {}, given.check);
    const built = decode<ContextOf<F>>(await this.#calls.read(work, given.signal));
    await this.#checkExists(built, given.create);
    return built;
  }

  /** Builds the same as `context`, as the bytes of its JSON: for programs that pass it on unread. */
  async contextBytes(options?: ContextOptions): Promise<Buffer> {
    const given = contextOptions(options);
    const work = () => this.#native.contextBytes(given.form, given.maxTokens, given.maxBytes, {}, given.check);
    const bytes = await this.#calls.read(work, given.signal);
    if (bytes.length < EMPTY_CONTEXT) await this.#checkExists(JSON.parse(bytes.toString()), given.create);
    return bytes;
  }

  /** Fails if an empty context is that of a session that does not exist. */
  async #checkExists(built: object, create: boolean): Promise<void> {
    const { messages = [], input = [] } = built as { messages?: unknown[]; input?: unknown[] };
    if (create || messages.length > 0 || input.length > 0 || (await this.exists())) return;
    const error = new NotFoundError(
      `session \`${this.id}\` not found; \`Store.sessions\` lists all, and with \`create: true\` a session that its first append begins has an empty context`,
    );
    throw Object.assign(error, { what: "session", id: this.id });
  }

  /**
   * Records which messages the context of the next model call has. A job queue or a workflow engine passes the id in
   * place of the messages, and its worker calls `asOf({ manifest })`.
   */
  async recordContext(): Promise<RecordedContext> {
    const recorded = await this.#calls.run(() => this.#native.recordContext());
    const { manifest_id: manifestId, ...size } = decode<Omit<RecordedContext, "manifestId"> & { manifest_id: string }>(recorded);
    return { manifestId, ...size };
  }

  /** Builds the context of the next model call just after a turn, a compaction, at a time, or of a manifest. */
  async asOf<F extends Form = "loopstore">(
    asOf: AsOf,
    options?: { format?: F | undefined } & Abortable,
  ): Promise<ContextOf<F>> {
    const { format = "loopstore", signal } = checked(options, ["format", "signal"], "asOf");
    const [form, at] = [formOf(format), pointOf(asOf)];
    const work = () => this.#native.context(form, undefined, undefined, at, false);
    return decode(await this.#calls.read(work, signal));
  }

  /**
   * Returns the context of the next model call, compacted if the policy requires it. A context that does not fit is an
   * error.
   */
  async prepare<F extends Form = "loopstore">(options?: PrepareOptions<F>): Promise<Prepared<F>> {
    const known = ["format", "forLength", "create", "signal"] as const;
    const { format = "loopstore", forLength, create, signal } = checked(options, known, "prepare");
    const [form, isForLength, creates] = [formOf(format), flag("forLength", forLength), flag("create", create)];
    const work = () => this.#calls.run((cancel) => this.#native.prepare(form, isForLength, cancel), signal);
    const ready = prepared<F>(await unlessAborted(work, signal));
    await this.#checkExists(ready, creates);
    for (const report of ready.compactions) this.#calls.events.compacted(this.id, report);
    return printed(ready, printedPrepared);
  }

  /** Compacts by the policy: one run, which writes blocks over the loops. No original changes. */
  async compact(options?: CompactOptions): Promise<CompactReport> {
    const known = ["force", "dryRun", "policy", "signal"] as const;
    const { force, dryRun, policy, signal } = checked(options, known, "compact");
    const given = policy === undefined ? undefined : native(policy);
    const [isForced, isDry] = [flag("force", force), flag("dryRun", dryRun)];
    const work = () => this.#calls.run((cancel) => this.#native.compact(isForced, isDry, given, cancel), signal);
    const report: CompactReport = decode(await unlessAborted(work, signal));
    if (!isDry) this.#calls.events.compacted(this.id, report);
    if (signal?.aborted && report.outcome !== "committed") throw signal.reason;
    return report;
  }

  /** Undoes the last compaction of the line, or the named one. */
  async undo(run?: string, options?: { reason?: string | undefined }): Promise<FlipReport> {
    const reason = reasonOf(options, "undo");
    const id = optionalText("run", run);
    return decode(await this.#calls.run(() => this.#native.undo(id, reason)));
  }

  /** Redoes the compaction that was undone last, or the named one. */
  async redo(run?: string, options?: { reason?: string | undefined }): Promise<FlipReport> {
    const reason = reasonOf(options, "redo");
    const id = optionalText("run", run);
    return decode(await this.#calls.run(() => this.#native.redo(id, reason)));
  }

  /**
   * Removes messages or parts from contexts. They stay stored; `undo` or `restore` takes it back. A tool call and its
   * results are removed together, and so is what a provider bound to a removed part.
   */
  async drop(targets: EditTarget | EditTarget[], options?: EditOptions): Promise<EditReport> {
    return await this.#edit("removed", targets, checked(options, EDIT, "drop"));
  }

  /** Shows a marker of one line in place of messages or parts, such as old tool results; see `drop`. */
  async clear(targets: EditTarget | EditTarget[], options?: EditOptions): Promise<EditReport> {
    return await this.#edit("cleared", targets, checked(options, EDIT, "clear"));
  }

  /** Shows a text in place of a message or a part; see `drop`. The text of a call is its arguments. */
  async replace(
    target: EditTarget,
    text: string,
    options?: Pick<EditOptions, "dryRun" | "reason">,
  ): Promise<EditReport> {
    return await this.#edit("replaced", target, checked(options, ["dryRun", "reason"], "replace"), textOf("text", text));
  }

  async #edit(
    action: string,
    targets: EditTarget | EditTarget[],
    { match, tool, larger, olderThan, dryRun, reason }: EditOptions,
    text?: string,
  ): Promise<EditReport> {
    const request = encode({
      targets: targetsOf(targets),
      match: optionalText("match", match),
      tool: optionalText("tool", tool),
      larger: optionalCount("larger", larger, "bytes"),
      older_than: optionalCount("olderThan", olderThan, "turns", 0, MOST_PLACE),
      text,
      dry_run: flag("dryRun", dryRun),
      reason: optionalText("reason", reason),
    });
    return decode(await this.#calls.run(() => this.#native.edit(action, request)));
  }

  /** Undoes the edits of turns, messages or calls, and returns the reports of the undone runs. */
  async restore(targets: EditTarget | EditTarget[]): Promise<FlipReport[]> {
    const given = encode(targetsOf(targets));
    return decode(await this.#calls.run(() => this.#native.restore(given)));
  }

  /**
   * Begins a branch after a complete turn, or within it after a message, and returns its handle. A branch is one row;
   * nothing is copied. Turns count from 0.
   */
  async fork(loopId: string, turn: number, seq?: number): Promise<Session> {
    const at = placeOfMessage(loopId, turn, seq);
    return this.#made(await this.#calls.run(() => this.#native.fork(...at)));
  }

  /** Returns a handle that continues this loop, such as a branch that was begun before. */
  async atLoop(loopId: string): Promise<Session> {
    textOf("loopId", loopId);
    return this.#made(await this.#calls.run(() => this.#native.atLoop(loopId)));
  }

  /** Begins a loop explicitly, and returns its id; appends begin loops by themselves. */
  async beginLoop(options?: LoopOptions): Promise<string> {
    const { id, fresh, agent, kind } = checked(options, ["id", "fresh", "agent", "kind"], "beginLoop");
    const json = kindOf(kind);
    const [loop, isFresh, runner] = [optionalText("id", id), flag("fresh", fresh), optionalText("agent", agent)];
    return await this.#calls.run(() => this.#native.beginLoop(loop, isFresh, runner, json));
  }

  /** Ends the current loop of the handle. The next user message begins a new loop. */
  async endLoop(status: "Completed" | "Rejected" | "Aborted" = "Completed"): Promise<void> {
    choice("status", status, ["Completed", "Rejected", "Aborted"]);
    await this.#calls.run(() => this.#native.endLoop(status));
  }

  /**
   * Returns the tool calls that wait for their results, in order. Calls that can no longer get a result are left out: a
   * prompt or a later answer follows them, or their loop has ended.
   */
  async openCalls(): Promise<OpenCall[]> {
    return decode<OpenCall[]>(await this.#calls.run(() => this.#native.openCalls()));
  }

  /**
   * Records that a tool call is about to run, so that a restart knows of it. Appending the result finishes the call.
   */
  async startCall(callId: string): Promise<CallState> {
    textOf("callId", callId);
    const { state, key, message } = await this.#calls.run(() => this.#native.startCall(callId));
    return {
      state: state as CallState["state"],
      key: key ?? null,
      message: message === undefined || message === null ? null : decode(message),
    };
  }

  /** Begins the session of a sub-agent that a tool call starts, or continues it. */
  async child(callId: string, id: string): Promise<Session> {
    textOf("callId", callId);
    textOf("id", id);
    return this.#made(await this.#calls.run(() => this.#native.child(callId, id)));
  }

  /** Keeps a message verbatim through every compaction; without `seq`, all texts of the turn. */
  async pin(loopId: string, turn: number, seq?: number): Promise<PinReport> {
    const at = placeOfMessage(loopId, turn, seq);
    return decode(await this.#calls.run(() => this.#native.pin(...at)));
  }

  /** Removes a pin. */
  async unpin(loopId: string, turn: number, seq?: number): Promise<PinReport> {
    const at = placeOfMessage(loopId, turn, seq);
    return decode(await this.#calls.run(() => this.#native.unpin(...at)));
  }

  /** Returns the pins on the line. */
  async pins(): Promise<PinRow[]> {
    return decode(await this.#calls.run(() => this.#native.pins()));
  }

  /** Finds messages of this session: see `Store.search`. */
  async search(text: string, options?: SearchOptions & Abortable): Promise<SearchResults> {
    textOf("text", text);
    const [query, signal] = searched(options, []);
    return decode(await this.#calls.run((cancel) => this.#native.search(text, query, cancel), signal));
  }

  /**
   * Answers a question from the messages of the session, in at most `maxTokens` tokens.
   *
   * The smallest answer takes about 100 tokens. A session that does not exist has an empty answer.
   */
  async recall(question: string, maxTokens: number, options?: Abortable): Promise<Recall> {
    const { signal } = checked(options, ["signal"], "recall");
    textOf("question", question);
    const most = count("maxTokens", maxTokens, "tokens");
    return recalled(await this.#calls.run((cancel) => this.#native.recall(question, most, cancel), signal));
  }

  /** Returns turns of a loop as they were recorded, from the first to the last. */
  async expand(first: number, last: number, options?: ExpandOptions): Promise<Expanded> {
    const known = ["loopId", "match", "maxTokens", "start", "signal"] as const;
    const { loopId, match, maxTokens, start, signal } = checked(options, known, "expand");
    if (optionalText("start", start) !== undefined && !/^\d+(:\d+)?$/.test(start ?? "")) {
      throw wrongValue("start", "`SEQ` or `SEQ:OFFSET`, the `next` of a page", start);
    }
    const asked = {
      first: placeOf("first", first),
      last: placeOf("last", last),
      ...set({
        loopId: optionalText("loopId", loopId),
        matching: optionalText("match", match),
        maxTokens: optionalCount("maxTokens", maxTokens, "tokens"),
        start,
      }),
    };
    return decode(await this.#calls.read(() => this.#native.expand(asked), signal));
  }

  /** Returns the attempts to compact this session, newest first. */
  async history(options?: Abortable): Promise<RunRow[]> {
    const { signal } = checked(options, ["signal"], "history");
    return decode(await this.#calls.read(() => this.#native.history(), signal));
  }

  /** Returns the session's row of `v_sessions`, with its `loops` and their `blocks`. */
  async show(): Promise<SessionView> {
    const json = await this.#calls.run(() => this.#native.show());
    const [session, loops] = decode<[SessionView, [Json, Json[]][]]>(json);
    return { ...session, loops: loops.map(([row, blocks]) => ({ ...row, blocks })) };
  }

  /** Returns the originals in another form. */
  async export(format: ExportForm, options?: ExportOptions): Promise<Buffer> {
    const { loopId, signal } = checked(options, ["loopId", "signal"], "export");
    return (await this.#export(format, loopId, undefined, signal)) ?? Buffer.alloc(0);
  }

  /** Writes the originals in another form to a file, which is never incomplete; replaced if it exists. */
  async exportTo(path: Path, format: ExportForm, options?: Omit<ExportOptions, "signal">): Promise<void> {
    const { loopId } = checked(options, ["loopId"], "exportTo");
    await this.#export(format, loopId, pathOf("path", path));
  }

  async #export(
    format: ExportForm,
    loopId: string | undefined,
    path: string | undefined,
    signal?: AbortSignal,
  ): Promise<Buffer | null> {
    choice("format", format, EXPORT_FORMS);
    const leaf = optionalText("loopId", loopId);
    if (format === "html") {
      const of = leaf === undefined ? this.#native : await this.#calls.run(() => this.#native.atLoop(leaf));
      const page = await this.#calls.run((cancel) => of.report(path, cancel), signal);
      return page === null || page === undefined ? null : Buffer.from(page);
    }
    const form = format === "json" ? "phi-core" : format;
    return (await this.#calls.run((cancel) => this.#native.export(form, leaf, path, cancel), signal)) ?? null;
  }

  /** Returns the session as one self-contained HTML page. */
  async report(options?: Abortable): Promise<string> {
    const { signal } = checked(options, ["signal"], "report");
    return (await this.#calls.run((cancel) => this.#native.report(undefined, cancel), signal)) ?? "";
  }

  /** Writes the session as one self-contained HTML page to a file. */
  async reportTo(path: Path): Promise<void> {
    const file = pathOf("path", path);
    await this.#calls.run(() => this.#native.report(file));
  }

  /** Sets the title of the session, which lists show in place of its first prompt. */
  async setTitle(title: string): Promise<void> {
    textOf("title", title);
    await this.#calls.run(() => this.#native.setTitle(title));
  }

  /** Records the folder of the session's project. */
  async setProject(folder: Path): Promise<void> {
    const path = pathOf("folder", folder);
    await this.#calls.run(() => this.#native.setProject(path));
  }

  #made(session: NativeSession): Session {
    return new Session(session, this.#calls);
  }
}

/** Rejects with the signal's reason if `work` failed because it was aborted. */
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
  cleared: EditReport | null;
  not_cleared: string | null;
  compactions: CompactReport[];
  faults: Json[];
  mended: Json[];
  open_calls: OpenCall[];
}

function prepared<F extends Form>({ request, about }: NativePrepared): Prepared<F> {
  const {
    loop_id: loopId,
    was_compacted: wasCompacted,
    open_calls: openCalls,
    not_cleared: notCleared,
    ...rest
  } = decode<About>(about);
  const asked = decode<ContextOf<F>>(request);
  const found = asked as { input?: MessageOf<F>[]; messages?: MessageOf<F>[] };
  const messages = found.input ?? found.messages ?? [];
  return { request: asked, messages, loopId, wasCompacted, openCalls, notCleared, ...rest };
}

/** Converts an answer of the native part. */
export function recalled({ answer, text }: NativeRecall): Recall {
  const found = decode<{ tokens: number; parts: RecallPart[]; left_out: Json | null }>(answer);
  return printed({ text, tokens: found.tokens, parts: found.parts, leftOut: found.left_out }, printedRecall);
}

function pointOf(asOf: AsOf): NativeAsOf {
  const known = ["loopId", "turn", "run", "time", "manifest"] as const;
  const { loopId, turn, run, time, manifest } = checked(
    asOf as { [Name in keyof NativeAsOf]: NativeAsOf[Name] | Date },
    known,
    "asOf",
  );
  if ([loopId, turn, run, time, manifest].every((one) => one === undefined)) {
    throw new InvalidInputError("asOf needs a loop and a turn, a run, a time, or a manifest");
  }
  if ((loopId === undefined) !== (turn === undefined)) {
    throw new InvalidInputError("`loopId` and `turn` belong together: give both, or neither");
  }
  return set({
    loopId: optionalText("loopId", loopId),
    turn: optionalPlace("turn", turn),
    run: optionalText("run", run),
    manifest: optionalText("manifest", manifest),
    time: optionalIso("time", time, true),
  }) as NativeAsOf;
}

/** The largest number of bytes of the JSON of an empty context. */
const EMPTY_CONTEXT = 4_096;

/** Returns true for messages that are given as JSON. */
function isText(given: Messages): boolean {
  return typeof given === "string" || given instanceof Uint8Array;
}

/** Returns the kind of a loop. */
function kindOf(kind: LoopOptions["kind"]): string | undefined {
  if (kind === undefined || kind === null) return undefined;
  const [name, ...more] = typeof kind === "object" ? Object.keys(kind) : [kind];
  const inner = (kind as Record<string, { tag?: unknown } | null>)[name ?? ""];
  const isTagged = (name === "Rerun" || name === "Branch") && more.length === 0 && typeof inner?.tag === "string";
  if (kind !== "Default" && !isTagged) {
    throw wrongType("kind", "`Default`, or an object of `Rerun` or `Branch` with a `tag`", kind);
  }
  return encode(kind);
}

function formOf<F extends Form>(format: F): F {
  return choice("format", format, FORMS);
}

function reasonOf(options: { reason?: string | undefined } | undefined, of: string): string | undefined {
  return optionalText("reason", checked(options, ["reason"], of).reason);
}

function contextOptions(options: ContextOptions | undefined) {
  const { signal, format = "loopstore", maxTokens, maxBytes, check, create } = checked(options, CONTEXT, "context");
  return {
    form: formOf(format),
    maxTokens: optionalCount("maxTokens", maxTokens, "tokens"),
    maxBytes: optionalCount("maxBytes", maxBytes, "bytes"),
    check: flag("check", check),
    create: flag("create", create),
    signal,
  };
}

/** Returns the loop and the turn of a message, and its sequence. */
function placeOfMessage(loopId: unknown, turn: unknown, seq: unknown): [string, number, number | undefined] {
  return [textOf("loopId", loopId), placeOf("turn", turn), optionalPlace("seq", seq, "message")];
}

/** Returns something that can be iterated over, and is no text. */
function listed<T>(name: string, given: Iterable<T>): Iterable<T> {
  if (typeof given !== "object" || given === null || !(Symbol.iterator in given)) throw wrongType(name, "a list", given);
  return given;
}

const TARGET = { call: "text", loop_id: "text", turn: "turn", last_turn: "turn", seq: "message", part: "part" } as const;

/** Returns the targets of an edit. */
function targetsOf(given: EditTarget | EditTarget[]): Json[] | string[] {
  return [given].flat().map((target: unknown, at) => {
    if (typeof target === "string") return textOf(`targets[${at}]`, target);
    if (typeof target !== "object" || target === null) {
      throw wrongType(`targets[${at}]`, "a text such as LOOP:TURN or the id of a call, or an object", target);
    }
    for (const [name, value] of Object.entries(target)) {
      const kind = TARGET[name as keyof typeof TARGET];
      const shown = `targets[${at}].${name}`;
      if (kind === undefined) {
        const known = Object.keys(TARGET).join(", ");
        throw new InvalidInputError(`\`targets[${at}]\` has no field \`${name}\`; known are ${known}`);
      }
      if (kind === "text") optionalText(shown, value);
      else optionalPlace(shown, value, kind);
    }
    return target;
  }) as Json[];
}

function entryQuery(options: EntryOptions | undefined): string {
  const known = ["wholeSession", "loopId", "seqs", "roles", "kinds", "after", "before", "last", "limit", "signal"] as const;
  const given = checked(options, known, "entries");
  return encodeOptions({
    whole_session: flag("wholeSession", given.wholeSession),
    loop_id: optionalText("loopId", given.loopId),
    seqs: sequences(given.seqs),
    roles: optionalTexts("roles", given.roles),
    kinds: optionalTexts("kinds", given.kinds),
    after: entryPlace("after", given.after),
    before: entryPlace("before", given.before),
    last: optionalCount("last", given.last, "entries"),
    limit: optionalCount("limit", given.limit, "entries"),
  });
}

function sequences(given: unknown): [number, number] | undefined {
  if (given === undefined || given === null) return undefined;
  if (!Array.isArray(given) || given.length !== 2) {
    throw wrongType("seqs", "the first sequence, and the one after the last, such as [3, 9]", given);
  }
  const [first, end] = given.map((one, at) => placeOf(`seqs[${at}]`, one, "message")) as [number, number];
  return [first, Math.max(first, end)];
}

function entryPlace(name: string, at: EntryPlace | undefined): [string, number] | undefined {
  if (at === undefined || at === null) return undefined;
  if (typeof at !== "object") throw wrongType(name, "an object of `loopId` and `seq`", at);
  return [textOf(`${name}.loopId`, at.loopId), placeOf(`${name}.seq`, at.seq, "message")];
}

/** Returns the options that are set. */
function set<T extends object>(given: T): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null)) as never;
}

/** The type of loopstore's own context, which `context` returns without a format. */
export type { Context };
