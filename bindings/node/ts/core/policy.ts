/** The policy: when and how an agent's contexts are compacted. */

import {
  MOST_PLACE,
  flag,
  optionalChoice,
  optionalCount,
  optionalFunction,
  optionalText,
  shown,
  text as textOf,
  texts,
  typed,
  wrongType,
  wrongValue,
} from "./arguments.js";
import { InvalidInputError, guarded, raised } from "./errors.js";
import { type Json, checked, decode, encode, encodeOptions } from "./json.js";
import { NativePolicy, answerRequest } from "./native.js";

/** The request to a summariser. */
export interface SummaryRequest {
  /** The role of the summariser. */
  system: string;
  /** The input of the summary, and the instructions. */
  prompt: string;
  /** The number of tokens that the prompt requests. */
  askedTokens: number;
  /** The number of tokens after which the answer may be cut. */
  maxTokens: number;
  /** The temperature; `null` for the model's default. */
  temperature: number | null;
  /** The deadline in seconds. */
  timeout: number;
  /** Aborted after the deadline, or if the compaction is aborted. */
  signal: AbortSignal;
}

/** The answer of a summariser; a plain text is accepted too. */
export interface SummaryAnswer {
  /** The summary. */
  text: string;
  /** The model that wrote it. */
  model?: string;
  /** The reported tokens: `input`, `output`, and others if they are known. */
  usage?: Record<string, number>;
}

/** Writes a summary from a prompt: a function, or an async function. */
export type Summarizer = (
  request: SummaryRequest,
) => string | SummaryAnswer | PromiseLike<string | SummaryAnswer>;

/** The tool results that a policy clears before anything is compacted. */
export interface ClearToolResults {
  /** The number of newest results that stay, whatever their tools; 3 by default. */
  keep?: number | undefined;
  /** The tokens that clearing must free, else nothing is cleared; 1,000 by default. */
  atLeast?: number | undefined;
  /** The names of tools whose results are never cleared. */
  excludeTools?: string[] | undefined;
  /**
   * Whether the provider clears them: requests for Anthropic then have the setting `context_management`, and a
   * compaction clears nothing; `false` by default.
   */
  byProvider?: boolean | undefined;
}

/** A block of a proposed compaction. */
export interface ProposedBlock {
  /** The loop. */
  loopId: string;
  /** The kind of the block. */
  kind: "current" | "earlier" | "rollup";
  /** The first and the last of the turns that the text replaces; `null` if the block only shortens turns. */
  turns: [first: number, last: number] | null;
  /** The text that replaces the turns; `null` if the block has none. */
  text: string | null;
}

/** A compaction that is ready to be committed. */
export interface Proposal {
  /** The session. */
  sessionId: string;
  /** The loop in which the context ends. */
  loopId: string;
  /** The strategy of the texts. */
  strategy: string;
  /** The tokens of the context now. */
  tokensBefore: number;
  /** The tokens of the context with the blocks. */
  tokensAfter: number;
  /** The bytes of the context now. */
  bytesBefore: number;
  /** The bytes of the context with the blocks. */
  bytesAfter: number;
  /** The number of messages of the context now. */
  messagesBefore: number;
  /** The number of messages of the context with the blocks. */
  messagesAfter: number;
  /** The blocks to be written, from the root to the leaf. */
  blocks: ProposedBlock[];
  /** The messages that the next model call would have with the blocks, in loopstore's own form. */
  messages: Json[];
  /** Aborted if the call is aborted: nothing is committed then. */
  signal: AbortSignal;
}

/**
 * The decision about a proposal. `true` commits it. `false` and `refuse`, with a reason, do not: the same plan is not
 * proposed again. `postpone` does not either, but the next compaction proposes it again. `rewrite` commits it with other
 * texts, by the positions of their blocks in `Proposal.blocks`.
 */
export type Approval = boolean | { refuse: string } | { postpone: string } | { rewrite: Record<number, string> };

/** Decides about a compaction before its commit: a function, or an async function. */
export type Approve = (proposal: Proposal) => Approval | PromiseLike<Approval>;

/** A context that comes near its compaction. */
export interface WindowWarning {
  /** The session. */
  sessionId: string;
  /** The tokens of the context and of the system prompt. */
  tokens: number;
  /** The window in tokens. */
  window: number;
  /** The used share of the window in percent. */
  percent: number;
  /** Aborted if the call is aborted. */
  signal: AbortSignal;
}

/** Is called before a compaction comes near: a function, or an async function. */
export type Warn = (warning: WindowWarning) => unknown;

/**
 * When and how contexts are compacted: the window, the turns that are kept, and the strategy of the text.
 *
 * An omitted setting has the default of loopstore: a window of 128,000 tokens (64,000 with the trigger `target`), 2
 * turns kept at the start and 10 at the end, and the text of a digest that needs no model.
 */
export interface Policy {
  /** The size of the model's window in tokens, including system prompt and tools. */
  window?: number | undefined;
  /** The model, which determines the window; `window` takes precedence. */
  model?: string | undefined;
  /** Windows of models by prefixes of their names, in addition to those that loopstore knows. */
  models?: Record<string, number> | undefined;
  /** Tokens of the system prompt and the tools. */
  systemTokens?: number | undefined;
  /**
   * The system prompts that requests for a provider may begin with: the newest that the agent appended itself,
   * those of imported transcripts too, or none.
   */
  systemPrompts?: "appended" | "all" | "none" | undefined;
  /** The maximum number of bytes of the messages as JSON. */
  maxBytes?: number | undefined;
  /** When to compact, and down to which size. */
  trigger?: "headroom" | "reserves" | "target" | undefined;
  /** Parameters of the trigger, by name. */
  triggerParams?: Record<string, number> | undefined;
  /** The number of turns kept verbatim at the start of the current loop. */
  keepFirst?: number | undefined;
  /** The amount kept at the end: turns, or `user-turns:N`, `messages:N`. */
  keepRecent?: number | string | undefined;
  /** The typical turns that a compaction leaves room for; 0 uses the target size whole. */
  roomTurns?: number | undefined;
  /** The tokens of what people wrote that stay word for word in every compaction, the newest first. */
  keepPrompts?: number | undefined;
  /** Where the turns kept at the end may be: in the current loop or in the chain. */
  recentWindow?: "loop" | "chain" | undefined;
  /** The maximum number of tokens of the summary of a loop. */
  maxSummaryTokens?: number | undefined;
  /** The maximum number of tokens of the rollup of older loops. */
  maxRollupTokens?: number | undefined;
  /** The number of lines kept of each tool output in the turns at the end. */
  toolOutputLines?: number | undefined;
  /** The number of earlier loops in scope: `fixed:N` or `token-budget`. */
  scope?: string | undefined;
  /**
   * The provider that contexts are made for: its own compactions, which only it can read, then replace everything
   * before them. For every other provider, and without this setting, the originals are read.
   */
  provider?: "openai" | "anthropic" | undefined;
  /** The treatment of the loops before those in scope. */
  olderLoops?: "skip" | "rollup" | undefined;
  /** The tool results to clear first; only if that is not enough, the context is compacted. */
  clearToolResults?: ClearToolResults | undefined;
  /** The strategy of the texts, if there is no summariser. */
  strategy?: "one-liner" | "digest" | undefined;
  /** Writes the summaries; if it fails, the digest is used, and the audit row records it. */
  summarizer?: Summarizer | undefined;
  /** The name of the summariser in audit rows; by default the name of the function. */
  summarizerName?: string | undefined;
  /**
   * Decides about each compaction before its commit. If it throws an error, nothing is committed, and the promise of
   * the call that compacts is rejected with that error.
   */
  approve?: Approve | undefined;
  /**
   * Called by each `prepare` that does not compact once the context has reached `warnAt` of the window. The call is
   * rejected with an error of it.
   */
  warn?: Warn | undefined;
  /** The fraction of the window, such as 0.8, from which `warn` is called. */
  warnAt?: number | undefined;
}

/** The name of each setting in the native part. */
const SETTINGS = {
  trigger: "policy",
  triggerParams: "policy_param",
  window: "max_tokens",
  maxBytes: "max_bytes",
  systemTokens: "system_tokens",
  systemPrompts: "system_prompts",
  model: "model",
  models: "models",
  keepFirst: "keep_first",
  keepRecent: "keep_recent",
  roomTurns: "room_turns",
  keepPrompts: "keep_prompts",
  maxSummaryTokens: "max_summary_tokens",
  maxRollupTokens: "max_rollup_tokens",
  toolOutputLines: "tool_output_lines",
  scope: "scope",
  olderLoops: "older_loops",
  recentWindow: "recent_window",
  strategy: "strategy",
} as const satisfies Partial<Record<keyof Policy, string>>;

const KNOWN = [
  ...(Object.keys(SETTINGS) as (keyof typeof SETTINGS)[]),
  "clearToolResults",
  "provider",
  "summarizer",
  "summarizerName",
  "approve",
  "warn",
  "warnAt",
] as const;

/** The name of each setting of `clearToolResults` in the native part. */
const CLEARING = {
  keep: "keep",
  atLeast: "at_least",
  excludeTools: "exclude_tools",
  byProvider: "by_provider",
} as const satisfies Record<keyof ClearToolResults, string>;

/** Returns the settings that are set, by their names in the native part. */
function named<T extends object>(given: T, names: Partial<Record<keyof T, string>>): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const [name, own] of Object.entries<string>(names as Record<string, string>)) {
    const value = given[name as keyof T];
    if (value !== undefined && value !== null) settings[own] = value;
  }
  return settings;
}

/** Fails if a setting has another type or is out of range, and names the setting. */
function check(policy: Policy): void {
  optionalCount("window", policy.window, "tokens", 1);
  optionalCount("maxBytes", policy.maxBytes, "bytes", 1);
  for (const name of ["systemTokens", "keepPrompts", "maxSummaryTokens", "maxRollupTokens"] as const) {
    optionalCount(name, policy[name], "tokens");
  }
  for (const name of ["keepFirst", "roomTurns"] as const) optionalCount(name, policy[name], "turns", 0, MOST_PLACE);
  optionalCount("toolOutputLines", policy.toolOutputLines, "lines");
  optionalText("model", policy.model);
  optionalText("summarizerName", policy.summarizerName);
  for (const [name, words] of Object.entries(WORDS)) optionalChoice(name, policy[name as keyof typeof WORDS], words);
  const scope = optionalText("scope", policy.scope);
  if (scope !== undefined && !/^(fixed:\d{1,9}|token-budget)$/.test(scope)) {
    throw wrongValue("scope", "`fixed:N` (loops) or `token-budget`", scope);
  }
  const kept = policy.keepRecent;
  if (typeof kept !== "string") optionalCount("keepRecent", kept, "turns", 0, MOST_PLACE);
  else if (!/^((user-turns|messages):)?\d{1,9}$/.test(kept)) {
    throw wrongValue("keepRecent", "a number of turns, `user-turns:N` or `messages:N`", kept);
  }
  for (const [model, window] of entriesOf("models", policy.models)) {
    optionalCount(`models[${shown(textOf("a model of models", model))}]`, window, "tokens", 1);
  }
  for (const [parameter, value] of entriesOf("triggerParams", policy.triggerParams)) checkParameter(parameter, value);
  checkClearing(policy.clearToolResults);
  optionalFunction("summarizer", policy.summarizer, "a SummaryRequest");
  optionalFunction("approve", policy.approve, "a Proposal");
  optionalFunction("warn", policy.warn, "a WindowWarning");
  const fraction: unknown = policy.warnAt;
  if (fraction !== undefined && fraction !== null && typeof fraction !== "number") {
    throw wrongType("warnAt", "a fraction of the window, such as 0.8", fraction);
  }
  checkWindow(policy);
}

const WORDS = {
  trigger: ["headroom", "reserves", "target"],
  systemPrompts: ["appended", "all", "none"],
  recentWindow: ["loop", "chain"],
  provider: ["openai", "anthropic"],
  olderLoops: ["skip", "rollup"],
  strategy: ["one-liner", "digest"],
} as const satisfies Partial<Record<keyof Policy, readonly string[]>>;

const SHARES = ["trigger", "target", "share", "compact_at_pct", "compact_budget_threshold_pct"];
const RESERVES = { system: 2_000, output: 4_000, safety: 5_000 };
const DEFAULT_WINDOW = 128_000;

function entriesOf(name: string, value: unknown): [string, unknown][] {
  if (value === undefined || value === null) return [];
  if (typeof value !== "object" || Array.isArray(value)) throw wrongType(name, "an object", value);
  return Object.entries(value);
}

function checkParameter(parameter: string, value: unknown): void {
  const name = `triggerParams[${shown(parameter)}]`;
  if (typeof value !== "number") throw wrongType(name, "a number", value);
  if (SHARES.includes(parameter) && !(value >= 0 && value <= 1)) throw wrongValue(name, "a share from 0 to 1", value);
  if (parameter in RESERVES) optionalCount(name, value, "tokens");
  if (parameter === "max_attempts") optionalCount(name, value, "attempts");
}

function checkClearing(given: ClearToolResults | undefined): void {
  if (given === undefined || given === null) return;
  if (typeof given !== "object" || Array.isArray(given)) {
    throw wrongType("clearToolResults", "an object of `keep`, `atLeast`, `excludeTools` and `byProvider`", given);
  }
  optionalCount("clearToolResults.keep", given.keep, "results");
  optionalCount("clearToolResults.atLeast", given.atLeast, "tokens");
  if (given.excludeTools !== undefined) texts("clearToolResults.excludeTools", given.excludeTools);
  flag("clearToolResults.byProvider", given.byProvider);
}

/** Fails if nothing of the window is left for messages. */
function checkWindow(policy: Policy): void {
  const given = policy.window ?? undefined;
  if (given === undefined && ((policy.model ?? undefined) !== undefined || policy.trigger === "target")) return;
  const window = given ?? DEFAULT_WINDOW;
  let taken = policy.systemTokens ?? 0;
  let kept = "`systemTokens`";
  if (policy.trigger === "reserves") {
    const reserves = { ...RESERVES, ...policy.triggerParams };
    taken = Math.max(taken, reserves.system) + reserves.output + reserves.safety;
    kept = "the reserves for the system prompt, the answer and safety (`triggerParams`)";
  }
  if (window <= taken) {
    const [has, take] = [window, taken].map((tokens) => tokens.toLocaleString("en-US"));
    throw new InvalidInputError(
      `\`window\` of ${has} tokens leaves none for messages: ${kept} take ${take}; give a larger window, or smaller reserves`,
    );
  }
}

/** Returns the policy for the native part. */
export function native(given: Policy | undefined): NativePolicy {
  if (given !== undefined && (typeof given !== "object" || given === null || Array.isArray(given))) {
    throw new InvalidInputError(`\`policy\` is an object of settings, not ${typed(given)}`);
  }
  const policy = checked(given, KNOWN, "a policy");
  check(policy);
  const settings = named(policy, SETTINGS);
  const { summarizer, summarizerName, provider, approve, warn, warnAt, clearToolResults } = policy;
  if (clearToolResults !== undefined && clearToolResults !== null) {
    const known = Object.keys(CLEARING) as (keyof typeof CLEARING)[];
    settings["clear_tool_results"] = named(checked(clearToolResults, known, "clearToolResults"), CLEARING);
  }
  const name = summarizerName ?? (summarizer?.name || "javascript");
  const asking = summarizer ? asks(summarizer) : undefined;
  const approving = approve ? approves(approve) : undefined;
  const warning = warn ? warns(warn) : undefined;
  const json = encodeOptions(settings);
  return guarded(() => new NativePolicy(json, provider, name, asking, approving, warning, warnAt));
}

interface Asked {
  system: string;
  prompt: string;
  asked_tokens: number;
  max_tokens: number;
  temperature: number | null;
  timeout: number;
}

type Answering = (request: number, json: string) => void;

/** Returns a function that calls a summariser, and passes its answer to the native part. */
function asks(summarizer: Summarizer): Answering {
  return answering(async (json, signal) => {
    const given = JSON.parse(json) as Asked;
    const answer = await summarizer({
      system: given.system,
      prompt: given.prompt,
      askedTokens: given.asked_tokens,
      maxTokens: given.max_tokens,
      temperature: given.temperature,
      timeout: given.timeout,
      signal,
    });
    if (typeof answer === "string") return encode({ text: answer });
    if (typeof answer !== "object" || answer === null) {
      throw new TypeError(`a summariser returns a string or an object, not ${typeof answer}`);
    }
    return encode(answer);
  });
}

interface Proposed {
  session_id: string;
  loop_id: string;
  strategy: string;
  tokens_before: number;
  tokens_after: number;
  bytes_before: number;
  bytes_after: number;
  messages_before: number;
  messages_after: number;
  blocks: { loop_id: string; kind: ProposedBlock["kind"]; turns: [number, number] | null; text: string | null }[];
  messages: Json[];
}

/** Returns a function that calls `approve`, and passes its decision to the native part. */
function approves(approve: Approve): Answering {
  return answering(async (json, signal) => {
    const given: Proposed = decode(json);
    const decided = await approve({
      sessionId: given.session_id,
      loopId: given.loop_id,
      strategy: given.strategy,
      tokensBefore: given.tokens_before,
      tokensAfter: given.tokens_after,
      bytesBefore: given.bytes_before,
      bytesAfter: given.bytes_after,
      messagesBefore: given.messages_before,
      messagesAfter: given.messages_after,
      blocks: given.blocks.map(({ loop_id: loopId, ...rest }) => ({ loopId, ...rest })),
      messages: given.messages,
      signal,
    });
    return encode(decided ?? null);
  }, true);
}

/** Returns a function that calls `warn`. */
function warns(warn: Warn): Answering {
  return answering(async (json, signal) => {
    const { session_id: sessionId, tokens, window, percent } = JSON.parse(json) as {
      session_id: string;
      tokens: number;
      window: number;
      percent: number;
    };
    await warn({ sessionId, tokens, window, percent, signal });
    return "null";
  }, true);
}

/**
 * Returns a function that passes the answers of `ask` to the native part, and aborts `ask` if its answer is not wanted
 * any more. If `keeps` is true, the error of `ask` is kept for the call that waits for the answer.
 */
function answering(ask: (json: string, signal: AbortSignal) => Promise<string>, keeps = false): Answering {
  const asked = new Map<number, AbortController>();
  return (request, json) => {
    if (json === "") {
      asked.get(request)?.abort();
      asked.delete(request);
      return;
    }
    const control = new AbortController();
    asked.set(request, control);
    ask(json, control.signal)
      .then(
        (answer) => answerRequest(request, answer),
        (error: unknown) => {
          if (keeps && asked.has(request)) raised.set(request, error);
          answerRequest(request, undefined, String(error));
        },
      )
      .finally(() => asked.delete(request));
  };
}
