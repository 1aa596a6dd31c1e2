/** What calls return: rows as the command line prints them too. */

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

/** What the next model call sees, in loopstore's own form. */
export interface Context {
  session_id: string;
  loop_id: string;
  messages: Json[];
  tokens: number;
  bytes: number;
  parts: ContextPart[];
  faults: Json[];
}

/** What goes into a request of chat completions. */
export interface OpenAiRequest {
  messages: any[];
}

/** What goes into a request of Responses. */
export interface ResponsesRequest {
  instructions?: string;
  input: any[];
}

/** What goes into a request of Anthropic's messages. */
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

/** What became of the messages below a block, in numbers. */
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

/** What an attempt to compact came to. */
export type Outcome = "committed" | "no_gain" | "not_needed" | "failed" | (string & {});

/** What a compaction did. */
export interface CompactReport {
  run_id: string | null;
  outcome: Outcome;
  strategy: string;
  fallback: string | null;
  asked_about: Json | null;
  tokens_before: number;
  tokens_after: number;
  bytes_before: number;
  bytes_after: number;
  messages_before: number;
  messages_after: number;
  loops_compacted: number;
  blocks: BlockReport[];
  duration_ms: number;
  usage: Usage | null;
  error: string | null;
  reached: Json | null;
}

/** What an undo or a redo did. */
export interface FlipReport {
  run_id: string;
  outcome: "undone" | "redone" | (string & {});
  tokens_before: number;
  tokens_after: number;
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

/** What a search found; `next` is the `offset` of the answer after this one. */
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

/** What a pin did to a message. */
export interface PinnedMessage {
  loop_id: string;
  turn: number;
  seq: number;
  changed: boolean;
}

/** What pinning or taking a pin back did. */
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

/** Turns as they were recorded; `next` is the `start` of the answer after this one. */
export interface Expanded {
  messages: Json[];
  tokens: number;
  next: string | null;
}

/** A stored message with its place. */
export interface Entry {
  loop_id: string;
  turn: number | null;
  seq: number;
  created_at: number | null;
  message: Json;
}

/** What an import brought. */
export interface ImportReport {
  files: number;
  sessions: string[];
  loops: number;
  turns: number;
  messages: number;
  added_messages: number;
  revised: number;
  /** Parts of conversations that were written anew, or continued in two places. */
  branches?: { file: string; session: string; loop_id: string }[];
  /** Conversations under an id that another one has. */
  separated?: { file: string; id: string; session: string }[];
  unknown_files: number;
  unread: Json[];
  failed: Json[];
  skipped: Json[];
  repaired: Json[];
  bytes: number;
  seconds: number;
}

/** What a check of the whole database found. */
export interface VerifyReport {
  ok: boolean;
  checked: Record<string, number>;
  problems: Json[];
}

/** What `Session.redact` replaced, or would. */
export interface RedactReport {
  session_id: string;
  dry_run: boolean;
  receipt: number | null;
  /** Secrets that were replaced, by type. */
  secrets: Record<string, number>;
  pieces: number;
  /** Secrets that were found and not replaced, as their confidence is too low, by type. */
  held_back: Record<string, number>;
  /** With `dryRun`, each secret that was found, masked, and where it is. */
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

/** What an erasure removed. */
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
