/** The guard of every call. */

import { wrongType } from "./arguments.js";
import { AbortedCall, ClosedError, revived } from "./errors.js";
import { Events } from "./events.js";
import { CancelFlag } from "./native.js";

/** Options of calls that can be aborted. */
export interface Abortable {
  /**
   * Aborts the call: the promise is rejected with the signal's reason. A call that has not begun does nothing, a call
   * that only reads is not waited for, and a compaction commits nothing unless its commit had begun. A running write is
   * completed.
   */
  signal?: AbortSignal | undefined;
}

/** The calls of one store, and its events. */
export class Calls {
  readonly events = new Events();
  #underWay = 0;
  #isClosed = false;
  #waiting: (() => void)[] = [];

  /** Runs a call. */
  async run<T>(work: (cancel?: CancelFlag) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#isClosed) throw new ClosedError("the store is closed; open it again");
    this.#underWay++;
    try {
      return await (signal === undefined ? work() : aborted(work, signal));
    } catch (error) {
      throw revived(error);
    } finally {
      this.#underWay--;
      if (this.#underWay === 0) {
        for (const done of this.#waiting.splice(0)) done();
      }
    }
  }

  /** Runs a call that only reads: nothing waits for its end once it is aborted. */
  async read<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (signal === undefined) return await this.run(work);
    const { promise, stop } = abortOf(checkedSignal(signal));
    try {
      return await Promise.race([this.run(work), promise]);
    } finally {
      stop();
    }
  }

  /** Rejects new calls, and waits until none is running. */
  async end(): Promise<void> {
    this.close();
    if (this.#underWay > 0) await new Promise<void>((done) => this.#waiting.push(done));
  }

  /** Rejects new calls. */
  close(): void {
    this.#isClosed = true;
  }
}

function checkedSignal(signal: AbortSignal): AbortSignal {
  if (!(signal instanceof AbortSignal)) throw wrongType("signal", "an AbortSignal", signal);
  signal.throwIfAborted();
  return signal;
}

/** Returns a promise that is rejected when the signal aborts, and a function that ends it. */
function abortOf(signal: AbortSignal): { promise: Promise<never>; stop: () => void } {
  let abort = () => {};
  const promise = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
  });
  return { promise, stop: () => signal.removeEventListener("abort", abort) };
}

async function aborted<T>(work: (cancel: CancelFlag) => Promise<T>, signal: AbortSignal): Promise<T> {
  checkedSignal(signal);
  const cancel = new CancelFlag();
  const abort = () => cancel.cancel();
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await work(cancel);
  } catch (error) {
    const own = revived(error);
    throw signal.aborted && own instanceof AbortedCall ? signal.reason : own;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
