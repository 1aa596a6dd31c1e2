/**
 * The errors of loopstore, by what a caller can do about them.
 *
 * Every one is a `LoopstoreError` with a `code`. Its message says what went wrong and what to do; nothing of a
 * write was kept, unless it is an `UnconfirmedError`.
 */

/** The base of all errors of this package. */
export class LoopstoreError extends Error {
  /** What went wrong, for programs. */
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

/** There is no such session, loop, run, turn or call. */
export class NotFoundError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_NOT_FOUND";
  /** What was looked for, where that is known. */
  readonly what: string | null = null;
  /** Its id, where that is known. */
  readonly id: string | null = null;
}

/** There is a session or loop of this id; choose another. */
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
  /** Which loop, where that is known. */
  readonly loopId: string | null = null;
  /** Who drives it, where that is known. */
  readonly owner: string | null = null;
  /** Until when, where that is known. */
  readonly until: string | null = null;
}

/** Something does not fit. */
export class TooLargeError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_TOO_LARGE";
  /** So much is needed. */
  readonly needed: number = 0;
  /** So much fits. */
  readonly budget: number = 0;
  /** Of what. */
  readonly unit: "tokens" | "bytes" = "tokens";
  /** Why it was not made smaller, where that is known. */
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

/** The database cannot be opened; the message says why. */
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
 * The database did not confirm a commit: look whether it was applied before you try again.
 *
 * An append with a `key` can simply be tried again.
 */
export class UnconfirmedError extends StorageError {
  override readonly code: string = "ERR_LOOPSTORE_UNCONFIRMED";
}

/** The database is damaged; restore a backup, or save what is intact with `loopstore verify --salvage`. */
export class DamagedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_DAMAGED";
}

/**
 * The thread's state was written by another language's LangGraph, whose values this one cannot read.
 *
 * Its messages and its search are shared. Use another thread id, or read the state in that language.
 */
export class ForeignThreadError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_FOREIGN_THREAD";
}

/** A part of a thread's state is not there any more: it was redacted or is damaged; the message says which. */
export class UnreadableError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_UNREADABLE";
}

/** The store was closed; open it again. */
export class ClosedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_CLOSED";
}

/** This build of loopstore lacks a feature; the message says how to build it with that. */
export class UnsupportedError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_UNSUPPORTED";
}

/** loopstore failed in itself, which should not happen; please report it. */
export class InternalError extends LoopstoreError {
  override readonly code: string = "ERR_LOOPSTORE_INTERNAL";
}

/** The native part says that a call was aborted before it began. */
export class AbortedInTime extends LoopstoreError {}

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
  AbortError: AbortedInTime,
};

interface Thrown {
  class: string;
  text: string;
  fields: Record<string, unknown>;
}

/** Makes the error of what the native part threw. */
export function revived(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof LoopstoreError) return error;
  if (error.message.startsWith('{"class":')) {
    const thrown = JSON.parse(error.message) as Thrown;
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
  return error;
}

/** Runs what calls the native part, with errors of this package. */
export function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw revived(error);
  }
}
