/**
 * Parameters of SQL: their values are written into the query as literals.
 *
 * A query only reads, and SQLite and PostgreSQL read these literals alike, except bytes. A placeholder within a text, a
 * name or a comment is none. Two forms of PostgreSQL are taken for placeholders: the operator `?` of `jsonb`, and a slice
 * `a[1:n]`.
 */

import { text, wrongType, wrongValue } from "./arguments.js";
import { InvalidInputError } from "./errors.js";

/** A value of a parameter. */
export type SqlValue = string | number | bigint | boolean | Date | Uint8Array | null;

/** The values of `?`, in order, or those of `:name`, by name. */
export type SqlParams = readonly SqlValue[] | Readonly<Record<string, SqlValue>>;

/** A text, a text of PostgreSQL with escapes, quoted names, comments, casts, words, and the placeholders. */
const TOKEN =
  /[eE]'(?:[^'\\]|''|\\[^])*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|(?<!\w)\$(\w*)\$[^]*?\$\1\$|--[^\n]*|\/\*[^]*?\*\/|::|\w+|(\?)(\d+)?|:([A-Za-z_]\w*)/g;

/** The store that runs a query. */
export type SqlStore = "sqlite" | "postgres";

/** Returns the query with the values of its parameters, as the store reads them. */
export function withParams(query: string, params: SqlParams | null | undefined, store: SqlStore): string {
  if (params === null || params === undefined) return query;
  const isObject = typeof params === "object" && !(params instanceof Date) && !ArrayBuffer.isView(params);
  if (!isObject) {
    throw wrongType("params", "an array of values for each `?`, or an object of values for each `:name`", params);
  }
  const used = new Set<string | number>();
  let following = 0;
  const filled = query.replace(
    TOKEN,
    (token: string, _tag: string | undefined, mark?: string, number?: string, name?: string) => {
      let key: string | number;
      if (name !== undefined) key = name;
      else if (mark === undefined) return token;
      else {
        key = number === undefined ? following : Number(number) - 1;
        following = key + 1;
      }
      used.add(key);
      return literal(chosen(params, key), nameOf(key), store);
    },
  );
  const given: (string | number)[] = Array.isArray(params) ? [...params.keys()] : Object.keys(params);
  const left = given.filter((key) => !used.has(key)).map((key) => `\`${nameOf(key)}\``);
  if (left.length > 0) throw new InvalidInputError(`the query has no parameter for ${left.join(", ")} of \`params\``);
  return filled;
}

function nameOf(key: string | number): string {
  return typeof key === "string" ? `:${key}` : `params[${key}]`;
}

function chosen(params: SqlParams, key: string | number): unknown {
  if ((typeof key === "string") === Array.isArray(params)) {
    const way = typeof key === "string" ? "an object" : "an array";
    throw new InvalidInputError(`the query needs \`${nameOf(key)}\`: give \`params\` as ${way}`);
  }
  if (!Object.hasOwn(params, key)) {
    throw new InvalidInputError(`the query needs \`${nameOf(key)}\`, which \`params\` lacks`);
  }
  return (params as Record<string | number, unknown>)[key];
}

/** Writes a value as a literal. */
function literal(value: unknown, name: string, store: SqlStore): string {
  if (value === null) return "NULL";
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  if (typeof value === "string") {
    if (value.includes("\0")) throw wrongValue(name, "a text without a zero character", value);
    return `'${text(name, value).replaceAll("'", "''")}'`;
  }
  // As the views show times.
  if (value instanceof Date && !Number.isNaN(value.getTime())) return `'${value.toISOString()}'`;
  if (value instanceof Uint8Array) {
    const hex = Buffer.from(value).toString("hex");
    // On PostgreSQL, `X''` is a bit string.
    return store === "postgres" ? `'\\x${hex}'::bytea` : `X'${hex}'`;
  }
  if (typeof value === "bigint" || (typeof value === "number" && Number.isFinite(value))) return `(${value})`;
  throw wrongType(name, "null, true or false, a finite number, a bigint, a text, a Date, or bytes", value);
}
