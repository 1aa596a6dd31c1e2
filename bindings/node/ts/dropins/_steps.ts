/** Steps of an agent of the Vercel AI SDK: the model gets the compacted context, and the record stays whole. */

import type { ModelMessage, PrepareStepFunction } from "ai";

import { InvalidInputError, type Json, type Policy, type Session, Store, checked } from "#core";

import { type Mark, formsOf, markOf, messageOf, withOtherParts } from "./_model_messages.js";
import { type Given, type Kept, inOrder, saveList } from "./_saved_list.js";

/** Options of the steps. */
export interface LoopstoreStepsOptions {
  /** When and how contexts are compacted; by default the store's policy. */
  policy?: Policy | undefined;
  /**
   * Called if a step could not be stored or its context not be prepared: the model then gets all messages. By default
   * a warning of the process is emitted.
   */
  onError?: ((error: unknown) => void) | undefined;
}

/**
 * The messages of agents, each a session, and the hook `prepareStep` with which the model sees their compacted context.
 *
 * A session has either the `ModelMessage`s of an agent or the `UIMessage`s of `LoopstoreChats`: give an application
 * that has both two ids.
 */
export class LoopstoreSteps {
  /** The store. */
  readonly store: Store;
  readonly #policy: Policy | undefined;
  readonly #onError: (error: unknown) => void;

  /** Takes an open store, which stays open. */
  constructor(store: Store, options?: LoopstoreStepsOptions) {
    const { policy, onError } = checked(options, ["policy", "onError"], "LoopstoreSteps");
    if (!(store instanceof Store)) throw new InvalidInputError("LoopstoreSteps takes a Store that is open");
    if (onError !== undefined && typeof onError !== "function") {
      throw new InvalidInputError(`\`onError\` is a function of an error, not ${typeof onError}`);
    }
    this.store = store;
    this.#policy = policy;
    this.#onError = onError ?? warned;
    // A policy that cannot be used fails here, not at the first step.
    this.session("policy");
  }

  /** Returns the session of an agent as loopstore's handle: for `context`, `undo`, `search`, `report`. */
  session(id: string): Session {
    return this.store.session(id, { policy: this.#policy });
  }

  /** Returns all messages of an agent; none if it has not begun. */
  async load(id: string): Promise<ModelMessage[]> {
    const groups = grouped((await this.session(id).entries()).map(({ message }) => message));
    return groups.map(({ mark, forms }) => mark?.raw ?? messageOf(forms));
  }

  /**
   * Makes the messages of an agent equal to a list: new messages are appended, each once. If the list differs from the
   * stored messages, a branch begins, and the record stays.
   */
  async save(id: string, messages: readonly ModelMessage[]): Promise<void> {
    await inOrder(this.store, id, () => this.#save(id, given(messages)));
  }

  async #save(id: string, messages: Given[]): Promise<Session> {
    const session = this.session(id);
    const leaf = await session.leaf();
    return await saveList(session, leaf, await stored(session), messages);
  }

  /** Returns true if the next step compacts the context of an agent. */
  async shouldCompact(id: string): Promise<boolean> {
    const session = this.session(id);
    if (!(await session.exists())) return false;
    return (await session.compact({ dryRun: true })).outcome !== "not_needed";
  }

  /**
   * Returns the option `prepareStep` of `generateText`, `streamText` and agents: it stores the messages of each step
   * before the model is called, and gives the model the context, compacted if the policy requires it.
   */
  prepareStep(id: string): PrepareStepFunction {
    if (typeof id !== "string") throw new InvalidInputError(`\`id\` is the id of a session, not ${typeof id}`);
    return async ({ messages }) => {
      try {
        return await inOrder(this.store, id, async () => {
          const own = given(messages);
          const session = await this.#save(id, own);
          const ready = await session.prepare({ create: true });
          return { messages: shown(messages, own, ready.messages as Json[]) };
        });
      } catch (error) {
        this.#onError(error);
        return {};
      }
    };
  }
}

function warned(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  process.emitWarning(`a step was not compacted, and the model gets all messages: ${text}`, "LoopstoreWarning");
}

function given(messages: readonly ModelMessage[]): Given[] {
  if (!Array.isArray(messages)) throw new InvalidInputError(`messages are an array, not ${typeof messages}`);
  return messages.map(formsOf);
}

async function stored(session: Session): Promise<Kept[]> {
  const kept: Kept[] = [];
  for (const { loop_id: loopId, turn, seq, message } of await session.entries()) {
    const mark = markOf(message);
    if (mark === undefined) continue;
    const last = kept.at(-1);
    // A further result of the same message of tools.
    if (mark.digest === "" && last !== undefined) Object.assign(last, { loopId, turn, seq });
    else kept.push({ digest: mark.digest, loopId, turn, seq });
  }
  return kept;
}

interface Group {
  mark: Mark | undefined;
  forms: Json[];
}

/** Returns the forms of each message together. */
function grouped(forms: readonly Json[]): Group[] {
  const groups: Group[] = [];
  for (const form of forms) {
    const mark = markOf(form);
    const last = groups.at(-1);
    if (mark?.digest === "" && last?.mark !== undefined && last.forms[0]?.["role"] === "toolResult") last.forms.push(form);
    else if (mark !== undefined || form["role"] !== "extension") groups.push({ mark, forms: [form] });
  }
  return groups;
}

/**
 * Returns the messages for the model: the given ones that the context shows as they are, those that a compaction made
 * or changed, and the system messages, which no compaction covers.
 */
function shown(messages: readonly ModelMessage[], own: readonly Given[], context: readonly Json[]): ModelMessage[] {
  const byDigest = new Map<string, number[]>();
  for (const [at, { digest }] of own.entries()) byDigest.set(digest, [...(byDigest.get(digest) ?? []), at]);
  // From the end: of equal messages the last ones are more likely to be shown.
  const found: Shown[] = grouped(context)
    .reverse()
    .map(({ mark, forms }) => {
      const at = mark === undefined ? undefined : byDigest.get(mark.digest)?.pop();
      const message = at === undefined ? undefined : messages[at];
      if (message === undefined) return { at, message: messageOf(forms) };
      const isSame = isUnchanged(forms, own[at ?? -1]?.forms ?? []);
      return { at, message: isSame ? message : withOtherParts(messageOf(forms), message) };
    })
    .reverse();
  addExtensions(found, messages, own);
  return [...messages.filter(({ role }) => role === "system"), ...found.map(({ message }) => message)];
}

/** A message for the model, and the position of the given message from which it is. */
interface Shown {
  at: number | undefined;
  message: ModelMessage;
}

/**
 * Adds the messages that are stored as extensions, such as approvals of tools, which are in no context. Each is covered
 * by a compaction with the message before it. The last ones are the input of the step: they are always shown.
 */
function addExtensions(found: Shown[], messages: readonly ModelMessage[], own: readonly Given[]): void {
  const isExtension = (at: number) => own[at]?.forms[0]?.["role"] === "extension";
  let end = own.length;
  while (end > 0 && isExtension(end - 1)) end--;
  let previous: number | undefined;
  for (const [at, message] of messages.entries()) {
    if (message.role === "system") continue;
    if (isExtension(at)) {
      const index = previous === undefined ? -1 : found.findIndex((one) => one.at === previous);
      const isShown = previous === undefined || index >= 0;
      if (!isShown && at < end) continue;
      found.splice(isShown ? index + 1 : found.length, 0, { at, message });
    }
    previous = at;
  }
}

function isUnchanged(forms: readonly Json[], own: readonly Json[]): boolean {
  const contents = (all: readonly Json[]) => JSON.stringify(all.map(({ content }) => content));
  return contents(forms) === contents(own);
}
