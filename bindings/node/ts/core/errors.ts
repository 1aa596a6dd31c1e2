/**
 * The errors of loopstore, by what a caller can do about them.
 *
 * All of them are a `LoopstoreError` with a `code`. The message states the failure and the remedy. A write that
 * failed had no effect, unless the error is an `UnconfirmedError`.
 */

/** The base of all errors of this package. */
export class LoopstoreError extends Error {
  /** The kind of the error, for programs. */
  readonly code: string = "ERR_LOOPSTORE";

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An id, message, query or option cannot be used; correct the call. */
export class InvalidInputError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_INVALID_INPUT";
}

/** The session, loop, run, turn or call does not exist. */
export class NotFoundError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_NOT_FOUND";
  /** The kind of the missing object, if it is known. */
  readonly what: string | null = null;
  /** Its id, if it is known. */
  readonly id: string | null = null;
}

/** A session or loop with this id exists; choose another id. */
export class ExistsError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_EXISTS";
}

/** Another writer held the database longer than the timeout; try again. */
export class BusyError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_BUSY";
}

/** Another program drives the loop under a lease; wait until it is done. */
export class LoopHeldError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_LOOP_HELD";
  /** The loop, if it is known. */
  readonly loopId: string | null = null;
  /** The owner of the lease, if it is known. */
  readonly owner: string | null = null;
  /** The end of the lease, if it is known. */
  readonly until: string | null = null;
}

/** Something does not fit. */
export class TooLargeError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_TOO_LARGE";
  /** The required amount. */
  readonly needed: number = 0;
  /** The allowed amount. */
  readonly budget: number = 0;
  /** The unit of both. */
  readonly unit: "tokens" | "bytes" = "tokens";
  /** The reason that it was not made smaller, if it is known. */
  readonly reason: string | null = null;
}

/** The context does not fit; compact the session, or allow more. */
export class NeedsCompactionError extends TooLargeError {
  override readonly code: string = "ERR_LOOPSTORE_NEEDS_COMPACTION";
}

/** Not even the smallest context or answer fits; allow more. */
export class BudgetTooSmallError extends TooLargeError {
  override readonly code: string = "ERR_LOOPSTORE_BUDGET_TOO_SMALL";
}

/** The database cannot be opened; the message states the reason. */
export class OpenError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_OPEN";
}

/** A file or a server cannot be read or written; check it, then try again. */
export class StorageError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_STORAGE";
}

/** The disk is full; free some space and try again. */
export class DiskFullError extends StorageError {
  override readonly code: string = "ERR_LOOPSTORE_DISK_FULL";
}

/** The store was opened for reading, or its file can only be read. */
export class ReadOnlyError extends StorageError {
  override readonly code: string = "ERR_LOOPSTORE_READ_ONLY";
}

/**
 * The database did not confirm a commit: check whether it was applied before you repeat the call.
 *
 * An append with a `key` can be repeated safely.
 */
export class UnconfirmedError extends StorageError {
  override readonly code: string = "ERR_LOOPSTORE_UNCONFIRMED";
}

/** The database is damaged; restore a backup, or save what is intact with `loopstore verify --salvage`. */
export class DamagedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_DAMAGED";
}

/**
 * The thread's state was written by LangGraph of another language, whose values cannot be read here.
 *
 * Its messages and its search are shared. Use another thread id, or read the state in that language.
 */
export class ForeignThreadError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_FOREIGN_THREAD";
}

/** A part of a thread's state was redacted or is damaged; the message states which part. */
export class UnreadableError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_UNREADABLE";
}

/** The store was closed; open it again. */
export class ClosedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_CLOSED";
}

/** This build of loopstore lacks a feature; the message states how to build it. */
export class UnsupportedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_UNSUPPORTED";
}

/** loopstore itself failed, which should not happen; please report it. */
export class InternalError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_INTERNAL";
}

/** A call was aborted: the promise is rejected with the reason of its signal. */
export class AbortedCall extends LoopstoreError {}

const CLASSES: Record<string, new (message: string, options?: ErrorOptions) => LoopstoreError> = {
  LoopstoreError,
  InvalidInputError,
  NotFoundError,
  ExistsError,
  BusyError,
  LoopHeldError,
  NeedsCompactionError,
  BudgetTooSmallError,
  OpenError,
  StorageError,
  DiskFullError,
  ReadOnlyError,
  UnconfirmedError,
  DamagedError,
  ForeignThreadError,
  UnreadableError,
  ClosedError,
  UnsupportedError,
  InternalError,
  AbortError: AbortedCall,
};

interface Thrown {
  class: string;
  text: string;
  fields: Record<string, unknown>;
}

/** The errors of functions that the native part called, by the numbers of the requests, until they are thrown. */
export const raised = new Map<number, unknown>();

/** Converts an exception of the native part to an error of this package. */
export function revived(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof LoopstoreError) return error;
  if (error.message.startsWith('{"class":')) {
    const thrown = JSON.parse(error.message) as Thrown;
    const request = thrown.fields["raised_by"];
    if (typeof request === "number" && raised.has(request)) {
      const own = raised.get(request);
      raised.delete(request);
      return own;
    }
    const made = new (CLASSES[thrown.class] ?? LoopstoreError)(thrown.text);
    for (const [name, value] of Object.entries(thrown.fields)) {
      Object.assign(made, { [name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase())]: value });
    }
    return made;
  }
  const code: unknown = Reflect.get(error, "code");
  if (typeof code === "string" && /Expected$|^InvalidArg$/.test(code)) {
    return new InvalidInputError(`an argument has the wrong type: ${error.message}`, { cause: error });
  }
  if (error instanceof TypeError || typeof code !== "string") return error;
  return new InternalError(`loopstore failed in itself (${error.message}); please report it`, { cause: error });
}

/**
 * Runs an append. The JSON of an object is not the caller's text: positions in it are left out of an error, and its
 * parts have the names of JavaScript.
 */
export async function readable<T>(isText: boolean, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isText || !(error instanceof InvalidInputError)) throw error;
    const text = error.message
      .replace(/ at line \d+ column \d+/, "")
      .replace(/expected a sequence/, "expected a list")
      .replace(/expected a map/, "expected an object")
      .replace(/invalid type: (\w+) /, "a field has the wrong type: $1 ");
    throw text === error.message ? error : new InvalidInputError(text, { cause: error });
  }
}

/** Runs a call of the native part, with errors of this package. */
export function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw revived(error);
  }
}
