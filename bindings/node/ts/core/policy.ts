/** When an agent's contexts are compacted, and how. */

import { InvalidInputError, guarded } from "./errors.js";
import { checked, encode, encodeOptions } from "./json.js";
import { NativePolicy, answerSummary } from "./native.js";

/** What a summariser is asked. */
export interface SummaryRequest {
  /** Who the summariser is. */
  system: string;
  /** What it is to summarise, and how. */
  prompt: string;
  /** Tokens that the prompt asks for. */
  askedTokens: number;
  /** Tokens after which the answer may be cut. */
  maxTokens: number;
  /** The temperature; `null` leaves it to the model. */
  temperature: number | null;
  /** Seconds until the answer comes too late. */
  timeout: number;
  /** Is aborted when nobody waits for the answer any more: it comes too late, or the compaction was aborted. */
  signal: AbortSignal;
}

/** What a summariser gives back; its text alone will do. */
export interface SummaryAnswer {
  /** The summary. */
  text: string;
  /** The model that wrote it. */
  model?: string;
  /** Tokens as reported: `input` and `output`, and what else is known. */
  usage?: Record<string, number>;
}

/** Writes a summary from a prompt: a function, or an async function. */
export type Summarizer = (
  request: SummaryRequest,
) => string | SummaryAnswer | PromiseLike<string | SummaryAnswer>;

/**
 * When contexts are compacted, and how: the window, what is kept word for word, what makes the text.
 *
 * What is left out is as loopstore has it by default: a window of 128,000 tokens (64,000 with the trigger
 * `target`), 2 turns kept at the start and 10 at the end, and the text of a digest that needs no model.
 */
export interface Policy {
  /** Tokens that the model's window has, system prompt and tools included. */
  window?: number | undefined;
  /** The model, for its window; `window` wins over it. */
  model?: string | undefined;
  /** Windows of models by the beginnings of their names; they join those that loopstore knows. */
  models?: Record<string, number> | undefined;
  /** Tokens of the system prompt and the tools. */
  systemTokens?: number | undefined;
  /**
   * The system prompts that requests for a provider may begin with: the newest that the agent appended itself,
   * those of imported transcripts too, or none.
   */
  systemPrompts?: "appended" | "all" | "none" | undefined;
  /** Bytes of JSON that the messages may have. */
  maxBytes?: number | undefined;
  /** When to compact, and what to come down to. */
  trigger?: "headroom" | "reserves" | "target" | undefined;
  /** Parameters of the trigger, by name. */
  triggerParams?: Record<string, number> | undefined;
  /** Turns kept word for word from the start of the current loop. */
  keepFirst?: number | undefined;
  /** How much is kept at the end: turns, or `user-turns:N`, `messages:N`. */
  keepRecent?: number | string | undefined;
  /** Where the turns kept at the end may lie. */
  recentWindow?: "loop" | "chain" | undefined;
  /** Tokens that the summary of a loop may have. */
  maxSummaryTokens?: number | undefined;
  /** Tokens that the rollup of older loops may have. */
  maxRollupTokens?: number | undefined;
  /** Lines left of each tool output in the turns kept at the end. */
  toolOutputLines?: number | undefined;
  /** How many earlier loops are taken in: `fixed:N` or `token-budget`. */
  scope?: string | undefined;
  /**
   * The provider that contexts go to: what it compacted itself, and only it can read, then stands for all
   * before it. For every other one, and without it, the originals are read.
   */
  provider?: "openai" | "anthropic" | undefined;
  /** What becomes of the loops before these. */
  olderLoops?: "skip" | "rollup" | undefined;
  /** What makes the texts, where there is no summariser. */
  strategy?: "one-liner" | "digest" | undefined;
  /** Writes the summaries; if it fails, the digest stands in, and the audit row says so. */
  summarizer?: Summarizer | undefined;
  /** How the audit rows name the summariser; by default the name of the function. */
  summarizerName?: string | undefined;
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
  "provider",
  "summarizer",
  "summarizerName",
] as const;

/** Returns a policy as the native part takes it. */
export function native(given: Policy | undefined): NativePolicy {
  const policy = checked(given, KNOWN, "a policy");
  const settings: Record<string, unknown> = {};
  for (const [name, own] of Object.entries(SETTINGS)) {
    const value = policy[name as keyof typeof SETTINGS];
    if (value !== undefined && value !== null) settings[own] = value;
  }
  const { summarizer, summarizerName, provider } = policy;
  if (summarizer !== undefined && typeof summarizer !== "function") {
    throw new InvalidInputError(`the summarizer is a function, not ${typeof summarizer}`);
  }
  const name = summarizerName ?? (summarizer?.name || "javascript");
  const asking = summarizer && asks(summarizer);
  return guarded(() => new NativePolicy(encodeOptions(settings), provider, name, asking));
}

interface Asked {
  system: string;
  prompt: string;
  asked_tokens: number;
  max_tokens: number;
  temperature: number | null;
  timeout: number;
}

/** Returns a function that asks a summariser, and hands its answer to the native part. */
function asks(summarizer: Summarizer): (request: number, json: string) => void {
  const asked = new Map<number, AbortController>();
  const ask = async (json: string, signal: AbortSignal): Promise<string> => {
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
  };
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
        (answer) => answerSummary(request, answer),
        (error: unknown) => answerSummary(request, undefined, String(error)),
      )
      .finally(() => asked.delete(request));
  };
}
