/** The results of calls: rows in the form in which the command line prints them too. */

import type { Form, Json } from "./json.js";

/** A part of a context. */
export interface ContextPart extends Json {
  loop_id: string;
  section: string;
  from_turn: number | null;
  to_turn: number | null;
  messages: number;
  tokens: number;
}

/** The context of the next model call, in loopstore's own form. */
export interface Context {
  session_id: string;
  loop_id: string;
  messages: Json[];
  tokens: number;
  bytes: number;
  parts: ContextPart[];
  faults: Json[];
}

/** The content of a request of chat completions. */
export interface OpenAiRequest {
  messages: any[];
}

/** The content of a request of Responses. */
export interface ResponsesRequest {
  instructions?: string;
  input: any[];
}

/** The content of a request of Anthropic's messages. */
export interface AnthropicRequest {
  system?: any;
  messages: any[];
}

interface Contexts {
  loopstore: Context;
  openai: OpenAiRequest;
  responses: ResponsesRequest;
  anthropic: AnthropicRequest;
}

/** The context in a form. */
export type ContextOf<F extends Form> = Contexts[F];

/** A message of a context in a form. */
export type MessageOf<F extends Form> = F extends "loopstore" ? Json : any;

/** Tokens that a model reported, by kind. */
export type Usage = Json;

/** The dispositions of the messages below a block, in numbers. */
export interface Coverage {
  kept: number;
  truncated: number;
  summarised: number;
  dropped: number;
  rolled_up: number;
  sealed: number;
}

/** A block that a compaction wrote over a loop; turns from the first to the last. */
export interface BlockReport {
  loop_id: string;
  generation: number | null;
  kind: string;
  keep_first: [first: number, last: number] | null;
  keep_compacted: [first: number, last: number] | null;
  keep_recent: [first: number, last: number] | null;
  coverage: Coverage;
}

/** The outcome of an attempt to compact. */
export type Outcome = "committed" | "no_gain" | "not_needed" | "failed" | (string & {});

/** The report of a compaction. */
export interface CompactReport {
  run_id: string | null;
  outcome: Outcome;
  strategy: string;
  fallback: string | null;
  asked_about: Json | null;
  /** The tool results that the policy cleared first. */
  cleared?: EditReport;
  /** The reason why the policy, although it fired, cleared no tool results. */
  not_cleared?: string;
  tokens_before: number;
  tokens_after: number;
  bytes_before: number;
  bytes_after: number;
  messages_before: number;
  messages_after: number;
  /** Tokens of a typical turn, if a compaction was planned. */
  turn_tokens?: number;
  /** Tokens by which the context may grow before the next compaction. */
  room?: number;
  loops_compacted: number;
  blocks: BlockReport[];
  /** With `keepPrompts`: the number of hidden prompts that are quoted. */
  prompts_kept?: number;
  /** With `keepPrompts`: the number of hidden prompts that did not fit. */
  prompts_left_out?: number;
  duration_ms: number;
  usage: Usage | null;
  error: string | null;
  reached: Json | null;
}

/** The report of an undo or a redo. */
export interface FlipReport {
  run_id: string;
  outcome: "undone" | "redone" | (string & {});
  tokens_before: number;
  tokens_after: number;
}

/**
 * A target of an edit: `LOOP:TURN`, `LOOP:FIRST..LAST`, `LOOP:TURN:SEQ`, `LOOP:TURN:SEQ:PART` or the id of a call; or
 * the same as an object.
 */
export type EditTarget =
  | string
  | { call: string }
  | { loop_id: string; turn: number; last_turn?: number | undefined }
  | { loop_id: string; turn: number; seq: number; part?: number | undefined };

/** An edited message or part. */
export interface EditedMessage {
  loop_id: string;
  turn: number;
  seq: number;
  /** The part; absent for the whole message. */
  part?: number;
  action: "removed" | "cleared" | "replaced" | (string & {});
  tokens_before: number;
  tokens_after: number;
}

/** The result of an edit. */
export interface EditReport {
  /** The run that the edits belong to; `null` for a dry run. */
  run_id: string | null;
  edits: EditedMessage[];
  /** The other halves of pairs, which are removed too. */
  paired: EditedMessage[];
  /** Content that a provider bound to an edited part, which is removed too. */
  bound: EditedMessage[];
  /** The messages that match and were not edited. */
  skipped: { loop_id: string; turn: number; seq: number; reason: string }[];
  /** The runs of compactions whose texts are not active any more. */
  stale: string[];
  tokens_before: number;
  tokens_after: number;
  messages_before: number;
  messages_after: number;
}

/** An undo or a redo of a compaction. */
export interface Flip {
  run_id: string;
  kind: "undo" | "redo" | (string & {});
  loop_id: string;
  turns: number;
  at: string;
  reason: string | null;
}

/** An attempt to compact: a row of the view `v_runs`, with its events, undos and redos. */
export interface RunRow {
  session_id: string;
  run_id: string;
  loop_id: string;
  trigger: string;
  strategy: string;
  round: number;
  outcome: Outcome;
  is_live: number;
  fallback: string | null;
  error: string | null;
  tokens_before: number;
  tokens_after: number;
  bytes_before: number;
  bytes_after: number;
  messages_before: number;
  messages_after: number;
  started_at: string;
  duration_ms: number;
  config: string;
  turns: number | null;
  scope: string | null;
  older_loops: string | null;
  counter: string | null;
  usage: Usage | null;
  reached: Json | null;
  events: Json[];
  flips: Flip[];
}

/** A message that a search found. */
export interface SearchHit {
  session_id: string;
  loop_id: string;
  turn: number | null;
  seq: number;
  role: string;
  /** Milliseconds since the epoch, or ISO-8601 text. */
  created_at: number | string | null;
  snippet: string;
  score: number;
  relevance: number;
  hidden: boolean;
  run_id: string | null;
  block_loop_id: string | null;
  generation: number | null;
  disposition: string | null;
  also: Json[];
}

/** The results of a search; `next` is the `offset` of the next page. */
export interface SearchResults {
  hits: SearchHit[];
  indexed: number;
  next: number | null;
}

/** A session that a search found. */
export interface SessionHit {
  session_id: string;
  title: string | null;
  project: string | null;
  source: string | null;
  last_active_at: string | null;
  score: number;
  hits: SearchHit[];
}

/** The sessions that a search found. */
export interface SessionResults {
  sessions: SessionHit[];
  indexed: number;
  next: number | null;
}

/** An excerpt of an answer. */
export interface RecallPart {
  session_id: string;
  loop_id: string;
  turn: number | null;
  seqs: number[];
  role: string;
  /** Milliseconds since the epoch, or ISO-8601 text. */
  created_at: number | string | null;
  lead: string | null;
  text: string;
  tokens: number;
  score: number;
  hidden: boolean;
  cut: boolean;
}

/** A session: a row of the view `v_sessions`. */
export interface SessionRow {
  session_id: string;
  agent_id: string | null;
  title: string | null;
  created_at: string | null;
  last_active_at: string | null;
  current_loop_id: string | null;
  loops: number;
  turns: number;
  messages: number;
  tokens: number;
  source: string | null;
  prompt: string | null;
  project: string | null;
  hidden_at: string | null;
}

/** A session with its loops, and the blocks on each. */
export type SessionView = Omit<SessionRow, "loops"> & { loops: (Json & { blocks: Json[] })[] };

/** A message that a pin applies to. */
export interface PinnedMessage {
  loop_id: string;
  turn: number;
  seq: number;
  changed: boolean;
}

/** The report of a pin or of its removal. */
export interface PinReport {
  session_id: string;
  leaf_loop_id: string;
  outcome: string;
  messages: PinnedMessage[];
}

/** A message that is pinned. */
export interface PinRow {
  loop_id: string;
  turn: number;
  seq: number;
  role: string;
  author: string | null;
  tokens: number;
  created_at: string;
  text: string;
}

/** Turns as they were recorded; `next` is the `start` of the next page. */
export interface Expanded {
  messages: Json[];
  tokens: number;
  next: string | null;
}

/** A stored message with its position. */
export interface Entry {
  loop_id: string;
  turn: number | null;
  seq: number;
  created_at: number | null;
  message: Json;
}

/** The report of an import. */
export interface ImportReport {
  files: number;
  sessions: string[];
  loops: number;
  turns: number;
  messages: number;
  added_messages: number;
  revised: number;
  /** Parts of conversations that were rewritten, or continued in two places. */
  branches?: { file: string; session: string; loop_id: string }[];
  /** Conversations whose id another conversation has. */
  separated?: { file: string; id: string; session: string }[];
  unknown_files: number;
  unread: Json[];
  failed: Json[];
  skipped: Json[];
  repaired: Json[];
  bytes: number;
  seconds: number;
}

/** The report of a check of the whole database. */
export interface VerifyReport {
  ok: boolean;
  checked: Record<string, number>;
  problems: Json[];
}

/** The report of `Session.redact`: what was replaced, or would be. */
export interface RedactReport {
  session_id: string;
  dry_run: boolean;
  receipt: number | null;
  /** Secrets that were replaced, by type. */
  secrets: Record<string, number>;
  pieces: number;
  /** Secrets that were found and not replaced, since their confidence is too low, by type. */
  held_back: Record<string, number>;
  /** With `dryRun`, each secret that was found, masked, with its places. */
  findings: Json[];
  messages: number;
  places: Json[];
  texts: Record<string, number>;
  sources: number;
  source_of: string[];
  files: Json[];
  left: Json[];
  leftover: string;
}

/** The report of an erasure. */
export interface EraseReport {
  session_id: string;
  dry_run: boolean;
  receipt: number | null;
  was_erased: boolean;
  counts: Record<string, number>;
  sources: number;
  source_of: string[];
  files: string[];
  shared: number;
  named_by: string[];
  leftover: string;
}
