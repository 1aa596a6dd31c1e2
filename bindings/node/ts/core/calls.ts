/** What every call goes through. */

import { AbortedInTime, ClosedError, InvalidInputError, revived } from "./errors.js";
import { CancelFlag } from "./native.js";

/** Options of calls that can be aborted. */
export interface Abortable {
  /**
   * Aborts the call. One that has not begun does nothing, and a compaction commits nothing that it had not begun
   * to commit: the promise is rejected with the signal's reason. A write that was under way is made.
   */
  signal?: AbortSignal | undefined;
}

/** The calls of one store. */
export class Calls {
  #underWay = 0;
  #isClosed = false;
  #waiting: (() => void)[] = [];

  /** Makes a call. */
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

  /** Lets no call begin any more, and waits until none is under way. */
  async end(): Promise<void> {
    this.close();
    if (this.#underWay > 0) await new Promise<void>((done) => this.#waiting.push(done));
  }

  /** Lets no call begin any more. */
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
    throw signal.aborted && revived(error) instanceof AbortedInTime ? signal.reason : error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
