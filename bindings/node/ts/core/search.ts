/** Queries of searches. */

import type { Abortable } from "./calls.js";
import { checked, encodeOptions } from "./json.js";

/** Options of a search. */
export interface SearchOptions {
  /** Only messages of this role. */
  role?: "user" | "assistant" | "toolResult" | undefined;
  /** Only calls of this tool and their results. */
  tool?: string | undefined;
  /** Only messages of this time or later, in milliseconds since the epoch. */
  since?: number | Date | undefined;
  /** Only messages of this time or earlier. */
  until?: number | Date | undefined;
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
  const times = { since: millis(given.since), until: millis(given.until), offset: given.offset ?? 0 };
  return [encodeOptions({ ...given, ...times }), signal];
}

function millis(time: number | Date | undefined): number | undefined {
  return time instanceof Date ? time.getTime() : time;
}
