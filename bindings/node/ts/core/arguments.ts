/** Checks and conversions of arguments: an error names the argument, its unit, and what was given. */

import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

import { InvalidInputError } from "./errors.js";

/** A path of a file, in which `~` at the start is the home folder, or its URL. */
export type Path = string | URL;

/** A time: a `Date`, or ISO 8601 text, which is UTC without a zone; a text without a time of day is the whole day. */
export type Instant = Date | string;

/** The last position of a turn or message, and the largest number of them. */
export const MOST_PLACE = 2 ** 32 - 1;

const SHOWN = 60;
const DAY = 86_400_000;
const ISO = /^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*([Zz]|[+-]\d\d(?::?\d\d)?)?)?$/;

/** Returns a value for an error, cut to a part of a line. */
export function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : inspect(value, { depth: 1, breakLength: Infinity });
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN - 1)}…`;
}

/** Returns a value for an error, with its type. */
export function typed(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "function") return `the function ${value.name || "(anonymous)"}`;
  if (Array.isArray(value)) return `the array ${shown(value)}`;
  return `the ${typeof value} ${shown(value)}`;
}

/** Returns the error of an argument of another type. */
export function wrongType(name: string, expected: string, value: unknown): InvalidInputError {
  return new InvalidInputError(`\`${name}\` is ${expected}, not ${typed(value)}`);
}

/** Returns the error of an argument that is out of range, or unknown. */
export function wrongValue(name: string, expected: string, value: unknown): InvalidInputError {
  return new InvalidInputError(`\`${name}\` is ${expected}, not ${shown(value)}`);
}

const isMissing = (value: unknown): value is null | undefined => value === undefined || value === null;

/** Returns a text that can be stored. */
export function text(name: string, value: unknown): string {
  if (typeof value !== "string") throw wrongType(name, "a text", value);
  const half = value.search(/\p{Surrogate}/u);
  if (half >= 0) {
    throw new InvalidInputError(`\`${name}\` is not Unicode text: character ${half} of it is half of a surrogate pair`);
  }
  return value;
}

/** Returns a text that can be stored, if there is one. */
export function optionalText(name: string, value: unknown): string | undefined {
  return isMissing(value) ? undefined : text(name, value);
}

/** Returns a whole number. */
export function count(name: string, value: unknown, unit = "", least = 0, most = Number.MAX_SAFE_INTEGER): number {
  const expected = `a whole number${unit && ` of ${unit}`}`;
  if (typeof value !== "number") throw wrongType(name, expected, value);
  if (!Number.isInteger(value)) throw wrongValue(name, expected, value);
  if (value < least) throw wrongValue(name, `${expected} from ${least}`, value);
  if (value > most) throw wrongValue(name, `${expected} up to ${most}`, value);
  return value;
}

/** Returns a whole number, if there is one. */
export function optionalCount(
  name: string,
  value: unknown,
  unit = "",
  least = 0,
  most = Number.MAX_SAFE_INTEGER,
): number | undefined {
  return isMissing(value) ? undefined : count(name, value, unit, least, most);
}

/** Returns the position of a turn, or of a message. */
export function place(name: string, value: unknown, what = "turn"): number {
  const expected = `the position of a ${what}, a whole number from 0`;
  if (typeof value !== "number") throw wrongType(name, expected, value);
  if (!Number.isInteger(value) || value < 0 || value > MOST_PLACE) throw wrongValue(name, expected, value);
  return value;
}

/** Returns the position of a turn, or of a message, if there is one. */
export function optionalPlace(name: string, value: unknown, what = "turn"): number | undefined {
  return isMissing(value) ? undefined : place(name, value, what);
}

/** Returns a time span in seconds; `undefined` is no limit. */
export function seconds(name: string, value: unknown): number | undefined {
  const expected = "a number of seconds";
  if (isMissing(value) || value === Infinity) return undefined;
  if (typeof value !== "number") throw wrongType(name, expected, value);
  if (!(value >= 0 && value < 2 ** 53)) throw wrongValue(name, `${expected} from 0; null is no limit`, value);
  return value;
}

/** Returns true or false; an option that is not given is false. */
export function flag(name: string, value: unknown): boolean {
  if (isMissing(value)) return false;
  if (typeof value !== "boolean") throw wrongType(name, "true or false", value);
  return value;
}

/** Returns one of some words. */
export function choice<Word extends string>(name: string, value: Word, known: readonly string[]): Word {
  const words = known.join(", ");
  if (typeof value !== "string") throw wrongType(name, `one of ${words}`, value);
  if (!known.includes(value)) throw new InvalidInputError(`unknown \`${name}\` ${shown(value)}; known are ${words}`);
  return value;
}

/** Returns one of some words, if there is one. */
export function optionalChoice<Word extends string>(
  name: string,
  value: Word | null | undefined,
  known: readonly string[],
): Word | undefined {
  return isMissing(value) ? undefined : choice(name, value, known);
}

/** Returns a list of texts. */
export function texts(name: string, value: unknown): string[] {
  if (typeof value !== "object" || value === null || !(Symbol.iterator in value)) {
    throw wrongType(name, "a list of texts", value);
  }
  return Array.from(value as Iterable<unknown>, (each, at) => text(`${name}[${at}]`, each));
}

/** Returns a list of texts, if there is one. */
export function optionalTexts(name: string, value: unknown): string[] | undefined {
  return isMissing(value) ? undefined : texts(name, value);
}

/** Returns a path, with the home folder in place of `~`. */
export function path(name: string, value: unknown): string {
  if (value instanceof URL) {
    if (value.protocol !== "file:") throw wrongValue(name, "a path, or a URL of a file", value.href);
    return fileURLToPath(value);
  }
  if (typeof value !== "string") throw wrongType(name, "a path, as text or a URL", value);
  if (value === "") throw wrongValue(name, "a path", value);
  if (value.includes("\0")) throw wrongValue(name, "a path, which has no zero character", value);
  return /^~(?=$|[\\/])/.test(value) ? join(homedir(), value.slice(1)) : value;
}

/** Returns the paths of an argument: one path, or several. */
export function paths(name: string, value: unknown): string[] {
  const isList = typeof value === "object" && value !== null && !(value instanceof URL) && Symbol.iterator in value;
  const given = isList ? [...(value as Iterable<unknown>)] : [value];
  if (given.length === 0) throw new InvalidInputError(`\`${name}\` names no file and no folder: give at least one`);
  return given.map((one, at) => path(isList ? `${name}[${at}]` : name, one));
}

const MEMORY = ":memory:";

/**
 * Returns the path of a database file; `null` is a database in memory. A text may also be a URL of the form
 * `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://`.
 */
export function location(name: string, value: unknown): string | null {
  const found = path(name, value);
  if (found === MEMORY) return null;
  if (typeof value !== "string") return found;
  const colon = value.indexOf("://");
  if (colon < 0 || value.startsWith("file:")) {
    if (value.startsWith("file:")) {
      throw new InvalidInputError(`\`${name}\` is a path, not a URI of SQLite: give the path in ${value}`);
    }
    return found;
  }
  const [scheme, rest] = [value.slice(0, colon), value.slice(colon + 3)];
  if (scheme === "postgres" || scheme === "postgresql") {
    throw new InvalidInputError(`\`${name}\` is the URL of a server: use Store.connect(url)`);
  }
  if (scheme !== "sqlite" && scheme !== "sqlite3") {
    throw wrongValue(name, "a path, or a URL of the form sqlite:///PATH", value);
  }
  if (["", "/", MEMORY, `/${MEMORY}`].includes(rest)) return null;
  if (!rest.startsWith("/") || rest.includes("?")) {
    const expected = "of the form sqlite:///relative.db or sqlite:////absolute.db, without a host and options";
    throw wrongValue(name, `a path, or a URL ${expected}`, value);
  }
  return path(name, rest.slice(1));
}

/** Fails unless the value is a function, or missing. */
export function optionalFunction(name: string, value: unknown, argument: string): void {
  if (!isMissing(value) && typeof value !== "function") throw wrongType(name, `a function of ${argument}`, value);
}

/** Returns an instant in milliseconds since 1970; of a day its last one if `isEnd` is true. */
function moment(name: string, value: unknown, isEnd: boolean): number {
  const expected = "a Date, or ISO 8601 text such as 2026-01-31T12:00:00Z";
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw wrongValue(name, expected, value);
    return value.getTime();
  }
  if (typeof value !== "string") throw wrongType(name, expected, value);
  const found = ISO.exec(value.trim());
  if (found === null) throw wrongValue(name, expected, value);
  const [, day, minutes, second = "00", fraction = "", zone = "Z"] = found;
  const offset = zone.toUpperCase() === "Z" ? "Z" : `${zone.slice(0, 3)}:${zone.slice(3).replace(":", "") || "00"}`;
  const milliseconds = fraction.padEnd(3, "0").slice(0, 3);
  const iso = minutes === undefined ? `${day}T00:00:00.000Z` : `${day}T${minutes}:${second}.${milliseconds}${offset}`;
  const at = Date.parse(iso);
  const isDay = new Date(`${day}T00:00:00.000Z`);
  // `Date.parse` takes 31 February for a day in March.
  if (Number.isNaN(at) || Number.isNaN(isDay.getTime()) || isDay.toISOString().slice(0, 10) !== day) {
    throw new InvalidInputError(`\`${name}\` is no time: ${shown(value)}`);
  }
  return minutes === undefined && isEnd ? at + DAY - 1 : at;
}

/** Returns an instant as ISO 8601 text in UTC, if there is one; of a day its end if `isEnd` is true. */
export function optionalIso(name: string, value: unknown, isEnd = false): string | undefined {
  return isMissing(value) ? undefined : new Date(moment(name, value, isEnd)).toISOString();
}

/** Returns an instant in milliseconds since 1970, if there is one; a number is one already. */
export function optionalMilliseconds(name: string, value: unknown, isEnd = false): number | undefined {
  if (isMissing(value)) return undefined;
  if (typeof value !== "number") return moment(name, value, isEnd);
  return count(name, value, "milliseconds since 1970", -Number.MAX_SAFE_INTEGER);
}
