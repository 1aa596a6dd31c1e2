/** Names of the formats of transcripts. */

import { InvalidInputError } from "./errors.js";

/** Runs an import; the error of an unknown format names the known one that was probably meant. */
export async function withSuggestion<T>(given: string | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const known = error instanceof InvalidInputError && /^unknown format .*; known (?:formats )?are (.*)$/s.exec(error.message);
    const near = known && given !== undefined ? nearest(given, (known[1] ?? "").split(", ")) : undefined;
    if (near === undefined) throw error;
    throw new InvalidInputError(`${(error as Error).message}; did you mean \`${near}\`?`, { cause: error });
  }
}

/** Returns the known word that was probably meant. */
function nearest(given: string, known: string[]): string | undefined {
  const word = given.toLowerCase();
  const begun = known.find((one) => word !== "" && (one.startsWith(word) || word.startsWith(one)));
  if (begun !== undefined) return begun;
  const near = known.map((one) => [distance(word, one), one] as const).sort(([one], [other]) => one - other)[0];
  return near !== undefined && near[0] <= near[1].length / 3 ? near[1] : undefined;
}

/** Returns the number of characters to add, remove or replace that make one word another. */
function distance(one: string, other: string): number {
  let above = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (const [row, letter] of [...one].entries()) {
    const line = [row + 1];
    for (let at = 0; at < other.length; at++) {
      const replaced = (above[at] ?? 0) + (letter === other[at] ? 0 : 1);
      line.push(Math.min(replaced, (line[at] ?? 0) + 1, (above[at + 1] ?? 0) + 1));
    }
    above = line;
  }
  return above[other.length] ?? 0;
}
