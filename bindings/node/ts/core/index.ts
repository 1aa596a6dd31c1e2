/**
 * loopstore keeps the sessions of long-running agents in SQLite, with compaction as an overlay.
 *
 * An agent appends what happened, and nothing that it wrote is ever changed. When its context window fills, a
 * compaction writes blocks over loops: what to keep, what to shorten, what to replace by a summary. The next model
 * call reads through the blocks. A compaction can be undone, and everything is plain rows that `sqlite3` can query.
 *
 * ```js
 * import { Store } from "loopstore";
 *
 * await using store = await Store.open("agent.db", { policy: { window: 200_000 } });
 * const chat = store.session("weather");
 * await chat.append({ role: "user", content: "Will it rain?" }, { format: "openai" });
 * const ready = await chat.prepare({ format: "openai" }); // Compacted if needed; it fits, or is an error.
 * const answer = await client.chat.completions.create({ model: "gpt-5", ...ready.request });
 * await chat.append(answer, { format: "openai" });
 * ```
 *
 * `loopstore/openai-agents`, `loopstore/claude`, `loopstore/ai` and `loopstore/langgraph` are stores for those
 * frameworks.
 */

import { VERSION, counters } from "./native.js";

/** The version of this package. */
export const version: string = VERSION;

/** The names of the token counters of this build. */
export const COUNTERS: readonly string[] = counters();

export type { Instant, Path } from "./arguments.js";
export type { Abortable } from "./calls.js";
export type { AppendedEvent, CompactionEvent, SlowWriteEvent, StoreEvents } from "./events.js";
export {
  BudgetTooSmallError,
  BusyError,
  ClosedError,
  DamagedError,
  DiskFullError,
  ExistsError,
  ForeignThreadError,
  InternalError,
  InvalidInputError,
  LoopHeldError,
  LoopstoreError,
  NeedsCompactionError,
  NotFoundError,
  OpenError,
  ReadOnlyError,
  StorageError,
  TooLargeError,
  UnconfirmedError,
  UnreadableError,
  UnsupportedError,
} from "./errors.js";
export type { Form, Json, Messages } from "./json.js";
export type { Appended, KeyedAppend } from "./native.js";
export type {
  Approval,
  Approve,
  ClearToolResults,
  Policy,
  Proposal,
  ProposedBlock,
  Summarizer,
  SummaryAnswer,
  SummaryRequest,
  Warn,
  WindowWarning,
} from "./policy.js";
export type { SearchOptions } from "./search.js";
export {
  type AppendOptions,
  type AsOf,
  type CallState,
  type CompactOptions,
  type ContextOptions,
  type EntryOptions,
  type EntryPlace,
  type ExpandOptions,
  type ExportForm,
  type ExportOptions,
  type KeyOptions,
  type LoopOptions,
  type PrepareOptions,
  type RecordedContext,
  type OpenCall,
  type Prepared,
  type Recall,
  type EditOptions,
  type RedactOptions,
  Session,
} from "./session.js";
export {
  type ConnectOptions,
  type ImportBytesOptions,
  type ImportOptions,
  type OpenOptions,
  type RedactionPolicy,
  type SessionsOptions,
  type SqlOptions,
  Store,
  type StoreOptions,
  type StoreRecallOptions,
  type StoreSearchOptions,
} from "./store.js";
export type { SqlParams, SqlValue } from "./sql.js";
export type * from "./types.js";
