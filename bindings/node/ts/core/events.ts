/** The events of a store, for logs and measurements. */

import { EventEmitter } from "node:events";

import { BusyError } from "./errors.js";
import type { Appended } from "./native.js";
import type { CompactReport } from "./types.js";

/** Messages were appended to a session. */
export interface AppendedEvent {
  sessionId: string;
  appended: Appended;
}

/** A compaction was attempted, as `Session.compact` or `Session.prepare` reports it. */
export interface CompactionEvent {
  sessionId: string;
  report: CompactReport;
}

/** A write waited long: another program held the database, or the disk is slow. */
export interface SlowWriteEvent {
  sessionId: string;
  seconds: number;
  /** True if the write failed with a `BusyError`. */
  hasFailed: boolean;
}

/** The events of `Store.events`, with the arguments of their listeners. */
export interface StoreEvents {
  /** Messages were appended by `append`, `appendOnce` or `appendBatch`. */
  appended: [event: AppendedEvent];
  /** A compaction was committed. */
  compacted: [event: CompactionEvent];
  /** The summariser failed, and the digest was used in its place: `report.fallback`, `report.error`. */
  summarizerFailed: [event: CompactionEvent];
  /** A compaction was not committed, since another one was made meanwhile. */
  conflict: [event: CompactionEvent];
  /** An append took a second or longer. */
  slow: [event: SlowWriteEvent];
}

/** The time from which a write is slow: it takes milliseconds unless another program holds the database. */
const SLOW_SECONDS = 1;

/** Reports what the calls of a store did. */
export class Events {
  /** The listeners. */
  readonly emitter = new EventEmitter<StoreEvents>();

  /** Runs a write, and reports it if it waits long for the database. */
  async written<T>(sessionId: string, work: () => Promise<T>): Promise<T> {
    const begun = performance.now();
    const report = (hasFailed: boolean) => {
      const seconds = (performance.now() - begun) / 1000;
      if (hasFailed || seconds >= SLOW_SECONDS) this.#emit("slow", { sessionId, seconds, hasFailed });
    };
    try {
      const done = await work();
      report(false);
      return done;
    } catch (error) {
      if (error instanceof BusyError) report(true);
      throw error;
    }
  }

  /** Reports an append. */
  appended(sessionId: string, appended: Appended): void {
    if (!appended.duplicate) this.#emit("appended", { sessionId, appended });
  }

  /** Reports an attempt to compact. */
  compacted(sessionId: string, report: CompactReport): void {
    const event = { sessionId, report };
    if (report.outcome === "committed") this.#emit("compacted", event);
    if (report.outcome === "conflict") this.#emit("conflict", event);
    if (report.fallback) this.#emit("summarizerFailed", event);
  }

  #emit<Name extends keyof StoreEvents>(name: Name, event: StoreEvents[Name][0]): void {
    // An error of a listener must not be that of the call, which has succeeded: it is an uncaught exception.
    if (this.emitter.listenerCount(name) > 0) {
      queueMicrotask(() => (this.emitter as EventEmitter).emit(name, event));
    }
  }
}
