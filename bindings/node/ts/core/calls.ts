/** The guard of every call. */

import { AbortedBeforeStart, ClosedError, InvalidInputError, revived } from "./errors.js";
import { CancelFlag } from "./native.js";

/** Options of calls that can be aborted. */
export interface Abortable {
  /**
   * Aborts the call. A call that has not begun does nothing, and a compaction commits nothing unless its commit had
   * begun: the promise is rejected with the signal's reason. A running write is completed.
   */
  signal?: AbortSignal | undefined;
}

/** The calls of one store. */
export class Calls {
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

async function aborted<T>(work: (cancel: CancelFlag) => Promise<T>, signal: AbortSignal): Promise<T> {
  if (!(signal instanceof AbortSignal)) {
    throw new InvalidInputError("the option `signal` is an AbortSignal");
  }
  signal.throwIfAborted();
  const cancel = new CancelFlag();
  const abort = () => cancel.cancel();
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await work(cancel);
  } catch (error) {
    const own = revived(error);
    throw signal.aborted && own instanceof AbortedBeforeStart ? signal.reason : own;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
