/** The policy: when and how an agent's contexts are compacted. */

import { InvalidInputError, guarded } from "./errors.js";
import { checked, encode, encodeOptions } from "./json.js";
import { NativePolicy, answerSummary } from "./native.js";

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
}

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
  "clearToolResults",
  "provider",
  "summarizer",
  "summarizerName",
] as const;

/** The name of each setting of `clearToolResults` in the native part. */
const CLEARING = {
  keep: "keep",
  atLeast: "at_least",
  excludeTools: "exclude_tools",
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

/** Returns the policy for the native part. */
export function native(given: Policy | undefined): NativePolicy {
  const policy = checked(given, KNOWN, "a policy");
  const settings = named(policy, SETTINGS);
  const { summarizer, summarizerName, provider, clearToolResults } = policy;
  if (clearToolResults !== undefined && clearToolResults !== null) {
    const known = Object.keys(CLEARING) as (keyof typeof CLEARING)[];
    settings["clear_tool_results"] = named(checked(clearToolResults, known, "clearToolResults"), CLEARING);
  }
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

/** Returns a function that calls a summariser, and passes its answer to the native part. */
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
