/** Conversion of values to and from the JSON of the native part. */

import { typed, wrongType } from "./arguments.js";
import { InvalidInputError } from "./errors.js";

/** The form of messages: loopstore's own, or that of a provider's API. */
export type Form = "loopstore" | "openai" | "responses" | "anthropic";

/** All forms of messages. */
export const FORMS = ["loopstore", "openai", "responses", "anthropic"] as const;

/** A message, a row, or another object of JSON. */
export type Json = Record<string, unknown>;

/**
 * A message, several of them, or the JSON of either as a text or as bytes. A provider's form also takes whole
 * answers. A `Date` in a message is stored as ISO 8601 text, and half of a surrogate pair as U+FFFD, with a note.
 */
export type Messages = object | Iterable<object> | string | Uint8Array;

/** The note on a text with a character that Unicode text cannot contain; an import has the same. */
const HALF_PAIR = "half of a surrogate pair, replaced by U+FFFD";

/** An escape in JSON: a pair of surrogates, half of one, or any other. */
const ESCAPE = /\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|[^])/g;
const HAS_ESCAPE = /\\u[dD][89a-fA-F]/;
const MAX_DEPTH = 200;

/** Writes a value as JSON. */
export function encode(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw refusal(value, error as Error);
  }
  if (text === undefined) throw new InvalidInputError(`this cannot be written as JSON: ${typeof value}`);
  checkNumbers(value, text);
  return text;
}

/** Fails if a number or a `Date` of a value became null in its JSON, and names its place. */
export function checkNumbers(value: unknown, json: string): void {
  // A look at each value takes most of the time.
  const found = json.includes("null") ? unwritable(value, "", 0) : null;
  if (found !== null) throw new InvalidInputError(found);
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

/** Returns the error of a value that cannot be written, with its place. */
function refusal(value: unknown, error: Error): InvalidInputError {
  if (error instanceof InvalidInputError) return error;
  const isEndless = error instanceof RangeError || /circular|cyclic/i.test(error.message);
  const text = isEndless
    ? "this cannot be written as JSON: it contains itself, or nests too deep"
    : (unwritable(value, "", 0) ?? `this cannot be written as JSON: ${error.message}`);
  return new InvalidInputError(text, { cause: error });
}

/** Returns the error text of the first part of a value that is no JSON; `null` if there is none. */
function unwritable(value: unknown, place: string, depth: number): string | null {
  const refused = (why: string) => `${place || "this"} cannot be written as JSON: ${why}`;
  if (typeof value === "number" && !Number.isFinite(value)) {
    return refused(`JSON has no ${value}; write null, or a text`);
  }
  if (typeof value === "bigint") return refused(`JSON has no bigint ${value}; write a number, or a text`);
  if (value instanceof Date && Number.isNaN(value.getTime())) return refused("the Date is invalid");
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH) return null;
  // Bytes are numbers, and many.
  if (value instanceof Uint8Array) return null;
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return value instanceof Date ? null : unwritable(value.toJSON(), place, depth + 1);
  }
  for (const [key, inner] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${place}[${key}]` : place ? `${place}.${key}` : key;
    const found = unwritable(inner, at, depth + 1);
    if (found !== null) return found;
  }
  return null;
}

/** Replaces halves of surrogate pairs in JSON. */
export function whole(json: string): string {
  const text = json.replace(/\p{Surrogate}/gu, "\ufffd");
  return HAS_ESCAPE.test(text) ? text.replace(ESCAPE, (all, half?: string) => (half === undefined ? all : "\ufffd")) : text;
}

/** Writes messages as JSON, with notes on what was replaced; JSON is passed on unchanged otherwise. */
export function messages(given: Messages): [json: string | Uint8Array, notes: string[]] {
  if (given instanceof Uint8Array) {
    const bytes = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
    if (!bytes.includes("\\ud") && !bytes.includes("\\uD")) return [given, []];
    // Each byte as a character: the escapes are ASCII, and all other bytes stay.
    const text = bytes.toString("latin1");
    const replaced = text.replace(ESCAPE, (all, half?: string) => (half === undefined ? all : "\\ufffd"));
    return replaced === text ? [given, []] : [Buffer.from(replaced, "latin1"), [HALF_PAIR]];
  }
  const json = typeof given === "string" ? given : encodeMessages(given);
  const text = whole(json);
  return [text, text === json ? [] : [HALF_PAIR]];
}

function encodeMessages(given: Exclude<Messages, string | Uint8Array>): string {
  const expected = "a message, several, or their JSON: an object, an iterable of objects, a string or bytes";
  if (typeof given !== "object" || given === null) throw wrongType("messages", expected, given);
  if (!Array.isArray(given) && !(Symbol.iterator in given)) return encode(given);
  const all = [...(given as Iterable<unknown>)];
  for (const [at, one] of all.entries()) {
    if (typeof one !== "object" || one === null) throw wrongType(`messages[${at}]`, "a message, as an object", one);
  }
  return encode(all);
}

/** Reads JSON of the native part. */
export function decode<T>(text: string): T {
  return JSON.parse(text) as T;
}

/** A whole number with at least as many digits as the first that a JavaScript number cannot represent. */
const LONG = /\d{16}/;
const NUMBER = /-?\d+(\.\d+)?([eE][-+]?\d+)?/y;

/** Reads JSON of the native part. Whole numbers that a JavaScript number would round are BigInt. */
export function decodeExact<T>(text: string): T {
  if (!LONG.test(text)) return decode(text);
  let mark = "\u0001";
  while (text.includes(mark) || text.includes(JSON.stringify(mark).slice(1, -1))) mark += "\u0001";
  let out = "";
  let copied = 0;
  for (let at = 0; at < text.length; ) {
    const code = text.charCodeAt(at);
    if (code === 0x22) {
      at = stringEnd(text, at);
    } else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      NUMBER.lastIndex = at;
      const [digits = "-", fraction, exponent] = NUMBER.exec(text) ?? [];
      if (fraction === undefined && exponent === undefined && !Number.isSafeInteger(Number(digits))) {
        out += `${text.slice(copied, at)}"${JSON.stringify(mark).slice(1, -1)}${digits}"`;
        copied = at + digits.length;
      }
      at += digits.length;
    } else {
      at++;
    }
  }
  const isMarked = (value: unknown): value is string => typeof value === "string" && value.startsWith(mark);
  return JSON.parse(out + text.slice(copied), (_key, value: unknown) =>
    isMarked(value) ? BigInt(value.slice(mark.length)) : value,
  ) as T;
}

/** Returns the position after a string of JSON. */
function stringEnd(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); ; end = text.indexOf('"', end + 1)) {
    if (end < 0) return text.length;
    let escapes = 0;
    while (text[end - 1 - escapes] === "\\") escapes++;
    if (escapes % 2 === 0) return end + 1;
  }
}

/** Rejects unknown options: most of them are misspelt. */
export function checked<T extends object>(given: T | undefined, known: readonly (keyof T & string)[], of: string): T {
  if (given === undefined) return {} as T;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new InvalidInputError(`the options of ${of} are an object, not ${typed(given)}`);
  }
  for (const name of Object.keys(given)) {
    if (!(known as readonly string[]).includes(name)) {
      throw new InvalidInputError(`${of} has no option \`${name}\`; known are ${known.join(", ")}`);
    }
  }
  return given;
}
