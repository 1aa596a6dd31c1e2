/** Conversion of values to and from the JSON of the native part. */

import { InvalidInputError } from "./errors.js";

/** The form of messages: loopstore's own, or that of a provider's API. */
export type Form = "loopstore" | "openai" | "responses" | "anthropic";

/** A message, a row, or another object of JSON. */
export type Json = Record<string, unknown>;

/**
 * A message, several of them, or the JSON of either as a text or as bytes. A provider's form also takes whole
 * answers.
 */
export type Messages = object | Iterable<object> | string | Uint8Array;

/** Writes a value as JSON. */
export function encode(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
    // A function for each value takes most of the time, so it runs only if a number may have become null.
    if (text?.includes("null")) JSON.stringify(value, finite);
  } catch (error) {
    if (error instanceof InvalidInputError) throw error;
    throw new InvalidInputError(`this cannot be written as JSON: ${(error as Error).message}`, { cause: error });
  }
  if (text === undefined) throw new InvalidInputError(`this cannot be written as JSON: ${typeof value}`);
  return text;
}

/** Writes options as JSON; a value that JSON cannot represent is rejected, not left out. */
export function encodeOptions(given: Record<string, unknown>): string {
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new InvalidInputError(`the option \`${name}\` cannot be a ${typeof value}`);
    }
  }
  return encode(given);
}

function finite(_key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new InvalidInputError(`this cannot be written as JSON: the number ${value}`);
  }
  return value;
}

/** Writes messages as JSON; JSON is passed on unchanged. */
export function messages(given: Messages): string | Uint8Array {
  if (typeof given === "string" || given instanceof Uint8Array) return given;
  if (typeof given !== "object" || given === null) {
    throw new InvalidInputError(
      `messages are an object, an iterable of objects, or JSON as a string or bytes, not ${given === null ? "null" : typeof given}`,
    );
  }
  return encode(!Array.isArray(given) && Symbol.iterator in given ? [...given] : given);
}

/** Reads JSON of the native part. */
export function decode<T>(text: string): T {
  return JSON.parse(text) as T;
}

/** Rejects unknown options: most of them are misspelt. */
export function checked<T extends object>(given: T | undefined, known: readonly (keyof T & string)[], of: string): T {
  if (given === undefined) return {} as T;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    const kind = given === null ? "null" : Array.isArray(given) ? "an array" : typeof given;
    throw new InvalidInputError(`the options of ${of} are an object, not ${kind}`);
  }
  for (const name of Object.keys(given)) {
    if (!(known as readonly string[]).includes(name)) {
      throw new InvalidInputError(`${of} has no option \`${name}\`; known are ${known.join(", ")}`);
    }
  }
  return given;
}
