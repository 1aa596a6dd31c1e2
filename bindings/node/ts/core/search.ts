/** Queries of searches. */

import {
  type Instant,
  count,
  flag,
  optionalCount,
  optionalMilliseconds,
  optionalText,
} from "./arguments.js";
import type { Abortable } from "./calls.js";
import { checked, encodeOptions } from "./json.js";

/** Options of a search. */
export interface SearchOptions {
  /** Only messages of this role. */
  role?: "user" | "assistant" | "toolResult" | undefined;
  /** Only calls of this tool and their results. */
  tool?: string | undefined;
  /** Only messages of this time or later: a `Date`, ISO 8601 text, or milliseconds since 1970. */
  since?: number | Instant | undefined;
  /** Only messages of this time or earlier; of a text without a time of day all of the day. */
  until?: number | Instant | undefined;
  /** True for only messages that the context does not contain, false for only those that it contains. */
  hidden?: boolean | undefined;
  /** The maximum number of hits; 20 by default. */
  limit?: number | undefined;
  /** The number of best hits to skip. */
  offset?: number | undefined;
}

const KNOWN = ["role", "tool", "since", "until", "hidden", "limit", "offset", "signal"] as const;

/** Returns a query for the native part, and the signal that aborts it. */
export function searched<More extends string>(
  options: (SearchOptions & Abortable & { [Name in More]?: string | undefined }) | undefined,
  more: readonly More[],
): [query: string, signal: AbortSignal | undefined] {
  const { signal, ...given } = checked(options, [...KNOWN, ...more] as never[], "search") as SearchOptions & Abortable;
  const query: Record<string, unknown> = {
    role: optionalText("role", given.role),
    tool: optionalText("tool", given.tool),
    since: optionalMilliseconds("since", given.since),
    until: optionalMilliseconds("until", given.until, true),
    hidden: given.hidden === undefined || given.hidden === null ? undefined : flag("hidden", given.hidden),
    limit: optionalCount("limit", given.limit, "hits"),
    offset: count("offset", given.offset ?? 0, "hits"),
  };
  for (const name of more) query[name] = optionalText(name, (given as Record<string, unknown>)[name]);
  return [encodeOptions(query), signal];
}
